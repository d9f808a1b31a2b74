//! How to open a device.

use std::path::PathBuf;

use super::adapter::DeviceChoice;
use super::lower_limits::LowerLimits;

/// Features and limits that a device is opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureLevel {
    /// All limits, and every optional feature that Onionskin uses.
    #[default]
    Full,
    /// WebGPU's default limits and no optional feature, as on every device.
    Portable,
}

/// How to open a device.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Adapter to open.
    pub choice: DeviceChoice,
    /// Features and limits to enable.
    pub feature_level: FeatureLevel,
    /// Limits below those of the feature level.
    pub lower_limits: LowerLimits,
    /// Plans the kernels of GPUs on a software rasteriser, too, to test them there.
    pub gpu_kernels: bool,
    /// Lets kernels start with not-a-number in their workgroup memory, to find those that read it before they write. This
    /// tests kernels, not devices.
    pub fill_workgroup_memory: bool,
    /// Enables wgpu's experimental features where the adapter has them: cooperative matrices. Results computed with
    /// them have been tested on no device. By default enabled if `ONIONSKIN_EXPERIMENTS` is 1.
    pub experiments: bool,
    /// Folder for compiled pipelines, if the driver exports them; by default the folder in `ONIONSKIN_CACHE`, else
    /// none. The driver reads the folder's contents, so nobody else may be able to write there.
    pub cache: Option<PathBuf>,
    /// Records all commands of the device, with the bytes that the host writes and reads; see [`GpuDevice::recording`](super::GpuDevice::recording). It
    /// needs [`FeatureLevel::Portable`].
    pub record: bool,
    /// Translates every kernel to the shading languages of all platforms and fails if one cannot be translated; see
    /// [`GpuDevice::translated`](super::GpuDevice::translated). This checks kernels, not devices.
    #[cfg(feature = "translate")]
    pub translate: bool,
    /// Folder into which each translated kernel is written: `HASH.wgsl`, `.spv`, `.hlsl` and `.msl`. It needs `translate`.
    #[cfg(feature = "translate")]
    pub kernels: Option<PathBuf>,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            choice: DeviceChoice::Auto,
            feature_level: FeatureLevel::Full,
            lower_limits: LowerLimits::default(),
            gpu_kernels: false,
            fill_workgroup_memory: false,
            experiments: std::env::var("ONIONSKIN_EXPERIMENTS").is_ok_and(|value| value == "1"),
            cache: std::env::var_os("ONIONSKIN_CACHE")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            record: false,
            #[cfg(feature = "translate")]
            translate: false,
            #[cfg(feature = "translate")]
            kernels: None,
        }
    }
}

impl From<DeviceChoice> for DeviceOptions {
    fn from(choice: DeviceChoice) -> DeviceOptions {
        DeviceOptions {
            choice,
            ..DeviceOptions::default()
        }
    }
}

impl DeviceOptions {
    /// Default options without a folder for compiled pipelines.
    pub(super) fn without_cache() -> DeviceOptions {
        DeviceOptions {
            cache: None,
            ..DeviceOptions::default()
        }
    }
}
