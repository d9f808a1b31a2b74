//! The only unsafe calls of the crate: functions of wgpu that trust their caller, of Vulkan, and of the system.
#![expect(
    unsafe_code,
    reason = "the calls are marked unsafe; each says below why it is sound"
)]

#[cfg_attr(not(target_os = "linux"), path = "trusted/unaliased.rs")]
pub(super) mod aliased;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod raw;

use wgpu::{
    ExperimentalFeatures, PipelineCache, PipelineCacheDescriptor, ShaderModule,
    ShaderModuleDescriptor,
};
use wgpu::{ShaderRuntimeChecks, ShaderSource};

/// Compiles WGSL without loop bounding: a counter in every loop, which costs real devices far more than the loop itself.
///
/// Bounds checks stay: kernels are made from templates and from the user's sizes, so that no kernel is proved to stay
/// within its buffers, and the checks cost next to nothing on storage buffers.
pub(super) fn shader(device: &wgpu::Device, label: &str, wgsl: &str) -> ShaderModule {
    let checks = ShaderRuntimeChecks {
        force_loop_bounding: false,
        ..ShaderRuntimeChecks::checked()
    };
    let descriptor = ShaderModuleDescriptor {
        label: Some(label),
        source: ShaderSource::Wgsl(wgsl.into()),
    };
    // SAFETY: a shader without loop bounding must not loop for ever. Loops in kernels run to bounds that are constants
    // or sizes that the host passes and are not changed within the loop.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// Gives the system back what was freed, as far as the allocator would keep it for later.
pub(super) fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives the system back the pages of a compiler that has done its work in this process.
pub(super) fn give_back_compiler() {
    #[cfg(target_os = "linux")]
    programs::give_back();
}

/// Sets a variable of the environment, unless there are other threads or the system does not tell.
pub(super) fn set_variable_if_alone(name: &str, value: &str) -> bool {
    // Linux lists the threads of a process there.
    let is_alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if is_alone {
        // SAFETY: no other thread may read the environment meanwhile. This one is the only one, and starts none.
        unsafe { std::env::set_var(name, value) }
    }
    is_alone
}

/// Consent to features that wgpu counts as experiments.
pub(super) fn experiments() -> ExperimentalFeatures {
    // SAFETY: experimental features may have bugs that are undefined behaviour. Only whoever opens a device asks for them,
    // and is told so by `DeviceOptions::experiments`.
    unsafe { ExperimentalFeatures::enabled() }
}

/// A pipeline cache, filled with what an earlier one contained.
pub(super) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> PipelineCache {
    let descriptor = PipelineCacheDescriptor {
        label: Some("onionskin"),
        data,
        fallback: true,
    };
    // SAFETY: the data must come from `PipelineCache::get_data`. It is read from a file that `disk` has written, and
    // whose checksum, adapter, driver and wgpu version agree.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
