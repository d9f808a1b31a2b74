//! All unsafe calls of [`gpu`](crate::gpu): to wgpu functions that trust their caller, to Vulkan, and to the system.
#![expect(
    unsafe_code,
    reason = "the calls are marked unsafe; each says below why it is sound"
)]

#[cfg_attr(not(target_os = "linux"), path = "trusted/unaliased.rs")]
pub(super) mod aliased;
#[cfg(target_os = "linux")]
mod executable_pages;
#[cfg(target_os = "linux")]
mod raw;

use wgpu::{
    ExperimentalFeatures, PipelineCache, PipelineCacheDescriptor, ShaderModule,
    ShaderModuleDescriptor,
};
use wgpu::{ShaderRuntimeChecks, ShaderSource};

/// Compiles WGSL without loop bounding, that is without a counter in every loop, which costs far more than the loop
/// itself.
///
/// Bounds checks stay on. Kernels are made from templates and from the user's sizes, so no kernel is proved to stay
/// within its buffers. The checks cost next to nothing on storage buffers.
pub(super) fn shader(device: &wgpu::Device, label: &str, wgsl: &str) -> ShaderModule {
    let checks = ShaderRuntimeChecks {
        force_loop_bounding: false,
        ..ShaderRuntimeChecks::checked()
    };
    let descriptor = ShaderModuleDescriptor {
        label: Some(label),
        source: ShaderSource::Wgsl(wgsl.into()),
    };
    // SAFETY: a shader without loop bounding must not loop forever. Loops in kernels run to bounds that are constants
    // or sizes that the host passes and are not changed within the loop.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// Returns freed heap memory to the system that the allocator would keep.
pub(super) fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns pages of executables and libraries to the system, above all those of the driver's compiler after it has
/// compiled.
pub(super) fn release_executable_pages() {
    #[cfg(target_os = "linux")]
    executable_pages::release();
}

/// Sets an environment variable and returns true; does nothing if there are other threads or the system does not list
/// them.
pub(super) fn set_env_if_single_threaded(name: &str, value: &str) -> bool {
    // Linux lists the threads of a process in this folder.
    let is_single_threaded =
        std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if is_single_threaded {
        // SAFETY: no other thread may read the environment at the same time. This is the only thread, and it starts
        // none.
        unsafe { std::env::set_var(name, value) }
    }
    is_single_threaded
}

/// Consent to wgpu's experimental features.
pub(super) fn experimental_features() -> ExperimentalFeatures {
    // SAFETY: experimental features may have bugs that are undefined behaviour. They are enabled only if the user asks
    // for them when opening a device, and `DeviceOptions::experiments` warns of this.
    unsafe { ExperimentalFeatures::enabled() }
}

/// A pipeline cache with the data of an earlier one.
pub(super) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> PipelineCache {
    let descriptor = PipelineCacheDescriptor {
        label: Some("onionskin"),
        data,
        fallback: true,
    };
    // SAFETY: the data must come from `PipelineCache::get_data`. It is read from a file that `pipeline_cache` has
    // written, and whose checksum, adapter, driver and wgpu version agree.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
