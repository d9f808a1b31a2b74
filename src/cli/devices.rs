//! `onionskin devices`: lists the adapters with their capabilities, and tests whether they compute right.

use clap::Args;

use super::{Outcome, output};
use crate::error::Result;
use crate::gpu::{self, AdapterReport, DeviceChoice, SelfTest, VectorWidth};

/// List adapters with limits and features, and test whether each computes right.
#[derive(Args)]
pub(super) struct DevicesCommand {
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
}

impl DevicesCommand {
    pub(super) fn run(&self, vectors: &VectorWidth) -> Result<Outcome> {
        let reports = gpu::adapters();
        let mut all_right = true;
        for report in &reports {
            let test = gpu::GpuDevice::open(DeviceChoice::Index(report.index))
                .and_then(|device| device.self_test());
            all_right &= test.is_ok();
            output::line(&if self.json {
                json(report, &test).to_string()
            } else {
                text(report, &test, vectors)
            });
        }
        if reports.is_empty() {
            output::note("no adapter found; models run on the host interpreter (--device cpu)");
            output::note(
                "on Debian, `apt-get install mesa-vulkan-drivers` installs a software rasteriser",
            );
        }
        Ok(if all_right {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }
}

fn text(report: &AdapterReport, test: &Result<SelfTest>, vectors: &VectorWidth) -> String {
    let limits = &report.capabilities;
    let lanes = limits.simd_lanes().map_or_else(String::new, |lanes| {
        format!("\n  vectors    {lanes} lanes; {vectors}")
    });
    let verdict = match test {
        Ok(times) => format!(
            "passed (compile {:.1?}, first run {:.1?}, run {:.1?})",
            times.compile, times.first_run, times.run
        ),
        Err(error) => format!("FAILED: {error}"),
    };
    format!(
        "{report}\n  driver     {}\n  buffers    {} MiB a binding, {} MiB a buffer, {} bindings a kernel\n  textures   \
         {} texels a side, {} layers, {} bindings a kernel\n  workgroups \
         {} invocations, {} KiB shared memory, {} along a dimension{lanes}\n  features   {}\n  self-test  {verdict}",
        report.driver,
        limits.max_binding_size >> 20,
        limits.max_buffer_size >> 20,
        limits.max_storage_buffers,
        limits.textures.size,
        limits.textures.layers,
        limits.textures.bindings,
        limits.max_invocations,
        limits.max_workgroup_memory >> 10,
        limits.max_workgroups,
        report.features.join(" "),
    )
}

fn json(report: &AdapterReport, test: &Result<SelfTest>) -> serde_json::Value {
    let limits = &report.capabilities;
    serde_json::json!({
        "index": report.index,
        "name": report.name,
        "kind": report.kind.to_string(),
        "backend": report.backend,
        "driver": report.driver,
        "features": report.features,
        "limits": {
            "max_binding_size": limits.max_binding_size,
            "max_buffer_size": limits.max_buffer_size,
            "max_storage_buffers": limits.max_storage_buffers,
            "max_texture_size": limits.textures.size,
            "max_texture_layers": limits.textures.layers,
            "max_storage_textures": limits.textures.bindings,
            "max_workgroups": limits.max_workgroups,
            "max_invocations": limits.max_invocations,
            "max_workgroup_memory": limits.max_workgroup_memory,
        },
        "lanes": limits.simd_lanes(),
        "self_test": match test {
            Ok(_) => "passed".to_string(),
            Err(error) => error.to_string(),
        },
    })
}
