//! Options of `onionskin test` that make a device like those of other machines.

use std::ffi::OsString;

use clap::Args;

use crate::error::Result;
use crate::gpu::{DeviceChoice, DeviceOptions, FeatureLevel, LowerLimits};

/// `--portable`, `--device-limit`, `--gpu-kernels` and `--fill-workgroup-memory`
#[derive(Args)]
pub(super) struct PlatformArgs {
    /// Open the device with WebGPU's default limits and without optional features.
    #[arg(long)]
    portable: bool,
    /// Lower a limit of the device: maxStorageBuffersPerShaderStage, maxComputeWorkgroupStorageSize (bytes) or
    /// maxComputeInvocationsPerWorkgroup.
    #[arg(long = "device-limit", value_name = "NAME=N", value_parser = parse)]
    device_limits: Vec<(String, u32)>,
    /// Plan the kernels of GPUs on a software rasteriser, too.
    #[arg(long)]
    gpu_kernels: bool,
    /// Let kernels start with not-a-number in their workgroup memory: those that read it before they write fail.
    #[arg(long)]
    fill_workgroup_memory: bool,
}

impl PlatformArgs {
    /// Returns the options to open the chosen device with.
    pub(super) fn device_options(&self, choice: DeviceChoice) -> Result<DeviceOptions> {
        let mut lower_limits = LowerLimits::default();
        for (name, limit) in &self.device_limits {
            lower_limits.set(name, *limit)?;
        }
        Ok(DeviceOptions {
            feature_level: match self.portable {
                true => FeatureLevel::Portable,
                false => FeatureLevel::Full,
            },
            lower_limits,
            gpu_kernels: self.gpu_kernels,
            fill_workgroup_memory: self.fill_workgroup_memory,
            ..choice.into()
        })
    }

    /// Returns the options for the command line of another process.
    pub(super) fn command_line_options(&self) -> Vec<OsString> {
        let limits = self.device_limits.iter();
        let limits = limits.map(|(name, limit)| format!("--device-limit={name}={limit}").into());
        let flags = [
            ("--portable", self.portable),
            ("--gpu-kernels", self.gpu_kernels),
            ("--fill-workgroup-memory", self.fill_workgroup_memory),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        limits.chain(flags.map(|(flag, _)| flag.into())).collect()
    }
}

fn parse(text: &str) -> Result<(String, u32), String> {
    let (name, limit) = text.split_once('=').ok_or("expected NAME=N")?;
    let limit = limit
        .parse()
        .map_err(|_| format!("{limit:?} is not a number"))?;
    let mut limits = LowerLimits::default();
    limits.set(name, limit).map_err(|error| error.to_string())?;
    Ok((name.to_string(), limit))
}
