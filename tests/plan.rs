//! Plans without a device: every kernel is valid WGSL and translates to SPIR-V, MSL and HLSL; some are read by people.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and say what they skip"
)]

use onionskin::kernel::plan::Capabilities;
use onionskin::kernel::shader;
use onionskin::pass;

mod samples;

/// A device with everything that plans make use of, and WebGPU's default limits.
fn capabilities() -> Capabilities {
    Capabilities {
        max_binding_size: 128 << 20,
        max_buffer_size: 256 << 20,
        max_storage_buffers: 8,
        max_workgroups: 65_535,
        max_invocations: 256,
        max_workgroup_memory: 16_384,
        int64: true,
        float64: true,
        float16: true,
        subgroups: false,
        software: false,
    }
}

#[test]
fn kernels_are_valid() {
    for (name, graph) in samples::all() {
        let plan =
            pass::plan(&graph, &capabilities()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for kernel in &plan.kernels {
            if std::env::var("SHOW").is_ok_and(|wanted| name.contains(&wanted)) {
                println!("---- {name}: {}\n{}", kernel.label, kernel.wgsl);
            }
            shader::validate(&kernel.wgsl, &capabilities()).unwrap_or_else(|error| {
                panic!("{name}: {}\n{}\n{error}", kernel.label, kernel.wgsl)
            });
        }
    }
}
