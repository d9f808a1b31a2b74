//! The device that runs a model.

use std::fmt;

use crate::error::Result;
use crate::gpu::{self, DeviceChoice, DeviceOptions};

/// Device that runs a model: the host, or a GPU (a software rasteriser counts as one).
#[derive(Clone, Debug)]
pub enum Device {
    /// The interpreter in this process, without driver and adapter.
    Host,
    /// An adapter through wgpu.
    Gpu(gpu::GpuDevice),
}

impl Device {
    /// Opens a hardware GPU if there is one, else a software rasteriser, else the host.
    ///
    /// # Errors
    /// Fails if an adapter was found but could not be opened.
    pub fn auto() -> Result<Device> {
        Device::with_options(DeviceOptions::from(DeviceChoice::Auto))
    }

    /// Opens a device by name: `auto`, `cpu` (the host), `gpu` and `software` (kinds of adapters), an adapter's index,
    /// or a part of its name.
    ///
    /// # Errors
    /// Fails if no adapter matches; the message lists all adapters.
    pub fn open(name: &str) -> Result<Device> {
        let Ok(choice) = name.parse::<DeviceChoice>();
        Device::with_options(DeviceOptions::from(choice))
    }

    /// Opens a device by options.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn with_options(options: DeviceOptions) -> Result<Device> {
        match options.choice {
            DeviceChoice::Cpu => Ok(Device::Host),
            DeviceChoice::Auto if gpu::adapters().is_empty() => Ok(Device::Host),
            _ => gpu::GpuDevice::open(options).map(Device::Gpu),
        }
    }
}

impl From<gpu::GpuDevice> for Device {
    fn from(device: gpu::GpuDevice) -> Device {
        Device::Gpu(device)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Host => f.write_str("host interpreter"),
            Device::Gpu(device) => f.write_str(device.name()),
        }
    }
}
