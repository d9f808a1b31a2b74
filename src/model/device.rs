use std::fmt;

use crate::error::{Error, Result};

/// What runs a model.
#[derive(Clone)]
pub enum Device {
    /// The interpreter in this process: no driver, no adapter.
    Host,
}

impl Device {
    /// The best device there is.
    pub fn auto() -> Result<Device> {
        Ok(Device::Host)
    }

    /// A device by name: `auto`, `cpu`.
    pub fn open(name: &str) -> Result<Device> {
        match name {
            "auto" | "cpu" | "host" => Ok(Device::Host),
            other => Err(Error::usage(format!("there is no device {other}"))),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Host => f.write_str("host interpreter"),
        }
    }
}
