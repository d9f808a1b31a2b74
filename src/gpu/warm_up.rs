//! Pipeline warm-up: zero-size dispatches that force a driver to compile kernels before a program first runs.
//!
//! Lavapipe, Mesa's software rasteriser, compiles a kernel at its first dispatch, on the thread that executes the device's
//! commands. Without warm-up, the first run of a program compiles all kernels one after the other. So each kernel is
//! dispatched with zero workgroups while the program is made. Kernels that one device has compiled are in Mesa's cache on
//! disk for the others. Kernels that are not in the cache are distributed to several processors, each with its own device.

use std::cmp::Reverse;
use std::iter::from_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::{ScopedJoinHandle, scope};
use std::time::Duration;

use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferUsages,
    ComputePassDescriptor, TextureView, TextureViewDescriptor,
};

use crate::error::Result;
use crate::interrupt::ActiveLimits;
use crate::kernel::layout::{Layout, TEXELS_PER_ROW, Texel, non_power_of_two};
use crate::kernel::plan::{Access, Kernel, Plan, SlotId};

use super::device::GpuDevice;
use super::error_scope::in_error_scope;
use super::memory;
use super::pipeline::Pipeline;
use super::statistics::Counters;

/// A kernel that takes longer than this is not in Mesa's cache: a cache hit is faster and a compilation slower.
const CACHE_HIT_TIME: Duration = Duration::from_millis(6);

/// Maximum number of additional devices. A larger number would hardly shorten the warm-up: the longest kernel of a
/// network takes at least an eighth of the total time.
const MAX_OTHER_DEVICES: usize = 7;

/// Bytes of a dummy buffer; no array of fixed length in a kernel is longer.
const DUMMY_BYTES: u64 = 1 << 14;

/// Makes the driver compile the kernels of a plan that it has not compiled yet, and returns how many it compiled. Calls
/// `done` once for each kernel of the plan. A kernel that fails here fails again in the first run, where the error is
/// reported.
pub(super) fn warm_up(
    device: &GpuDevice,
    plan: &Plan,
    pipelines: &[Arc<Pipeline>],
    done: &(dyn Fn() + Sync),
) -> usize {
    let pending = pending_kernels(plan, pipelines);
    (pending.len()..pipelines.len()).for_each(|_| done());
    if pending.is_empty() {
        return 0;
    }
    let Ok(dummies) = DummyDevice::new(device) else {
        pending.iter().for_each(|_| done());
        return 0;
    };
    let compiled_elsewhere = distribute(&dummies, &pending, done);
    // This device finds them in Mesa's cache.
    let cached = compiled_elsewhere.into_iter();
    cached.for_each(|job| dummies.dispatch_empty(job, job.pipeline));
    let is_compiled = |job: &&PendingKernel| job.pipeline.is_warmed_up.load(Relaxed);
    pending.iter().filter(is_compiled).count()
}

/// Compiles kernels on a device. As soon as one takes longer than [`CACHE_HIT_TIME`], other devices compile some of the
/// remaining ones. Returns the kernels that other devices compiled.
fn distribute<'a>(
    device: &DummyDevice,
    pending: &'a [PendingKernel],
    done: &(dyn Fn() + Sync),
) -> Vec<&'a PendingKernel<'a>> {
    let next = AtomicUsize::new(0);
    let limits = ActiveLimits::current();
    let claim = || match limits.check() {
        Ok(()) => pending.get(next.fetch_add(1, Relaxed)),
        Err(_) => None,
    };
    let (sender, receiver) = channel();
    scope(|scope| {
        scope.spawn(move || {
            for job in from_fn(claim) {
                device.dispatch_empty(job, job.pipeline);
                done();
                // The receiver is no longer read once other devices work.
                let _ = sender.send(());
            }
        });
        while receiver.recv_timeout(CACHE_HIT_TIME).is_ok() {}
        let left = pending.len().saturating_sub(next.load(Relaxed));
        let other_devices =
            (1..device.device.pipelines().threads()).take(left.min(MAX_OTHER_DEVICES));
        let others: Vec<_> = other_devices
            .map(|_| {
                scope.spawn(move || compile_on_other_device(device.device, from_fn(claim), done))
            })
            .collect();
        let join = |other: ScopedJoinHandle<Vec<_>>| other.join().unwrap_or_default();
        others.into_iter().flat_map(join).collect()
    })
}

/// Compiles kernels on another device of the same adapter and returns those kernels.
fn compile_on_other_device<'a>(
    device: &GpuDevice,
    pending: impl Iterator<Item = &'a PendingKernel<'a>>,
    done: &(dyn Fn() + Sync),
) -> Vec<&'a PendingKernel<'a>> {
    let Ok(device) = device.reopen() else {
        return Vec::new();
    };
    let Ok(dummies) = DummyDevice::new(&device) else {
        return Vec::new();
    };
    let compile = |job: &&PendingKernel| {
        if let Ok((pipeline, _)) = device.pipelines().get_or_create(device.wgpu(), job.kernel) {
            dummies.dispatch_empty(job, &pipeline);
        }
        done();
    };
    pending.inspect(compile).collect()
}

/// A kernel to compile.
struct PendingKernel<'a> {
    kernel: &'a Kernel,
    pipeline: &'a Pipeline,
    /// Width, height, layers and texel type of each binding that is a texture.
    textures: Vec<Option<([u32; 3], Texel)>>,
}

/// The kernels that have not been dispatched on the pipelines' device. Those with the longest source come first, so
/// that all processors finish at about the same time.
fn pending_kernels<'a>(plan: &'a Plan, pipelines: &'a [Arc<Pipeline>]) -> Vec<PendingKernel<'a>> {
    let mut pending: Vec<PendingKernel> = Vec::new();
    let kernels = plan.kernels.iter().zip(pipelines).enumerate();
    for (index, (kernel, pipeline)) in kernels {
        let step = plan.steps.iter().find(|step| step.kernel == index);
        if let Some(step) = step.filter(|_| !pipeline.is_warmed_up.load(Relaxed)) {
            let bindings = kernel.bindings.iter().zip(&step.bindings);
            pending.push(PendingKernel {
                kernel,
                pipeline,
                textures: bindings
                    .map(|(access, slot)| dummy_texture(plan, *access, *slot))
                    .collect(),
            });
        }
    }
    pending.sort_by_key(|job| Reverse(job.kernel.wgsl.len()));
    pending
}

/// A small texture for which the driver compiles the same code as for a slot's texture, see [`non_power_of_two`]; none for a
/// buffer.
fn dummy_texture(plan: &Plan, access: Access, slot: SlotId) -> Option<([u32; 3], Texel)> {
    let ([width, height, layers], texel) = match (access, &plan.slots[slot.0].layout) {
        (Access::TextureArray(texel), Layout::Panels(panels)) => (panels.extent(texel), texel),
        (Access::AliasedTexture(texel), _) => ([TEXELS_PER_ROW, non_power_of_two(1), 1], texel),
        _ => return None,
    };
    let small = |size: usize| if size.is_power_of_two() { 1 } else { 3 };
    let extent = [small(width), small(height), layers.min(2) as u32];
    Some((extent, texel))
}

/// A device with dummy resources to bind.
struct DummyDevice<'a> {
    device: &'a GpuDevice,
    /// Counters of the dummy resources, which are not reported.
    counters: Counters,
    read_only: Buffer,
    read_write: Buffer,
}

impl DummyDevice<'_> {
    fn new(device: &GpuDevice) -> Result<DummyDevice<'_>> {
        let counters = Counters::default();
        let buffer = |usage| counters.buffer(device.wgpu(), "warm-up", DUMMY_BYTES, usage);
        let [read, written] = in_error_scope(device.wgpu(), || {
            let storage = BufferUsages::STORAGE;
            Ok([buffer(storage | BufferUsages::UNIFORM), buffer(storage)])
        })?;
        Ok(DummyDevice {
            device,
            counters,
            read_only: read,
            read_write: written,
        })
    }

    /// Dispatches a kernel with zero workgroups and waits until that is done.
    fn dispatch_empty(&self, job: &PendingKernel, pipeline: &Pipeline) {
        let device = self.device;
        let submitted = in_error_scope(device.wgpu(), || {
            let group = self.bind_group(job, pipeline);
            let mut encoder = device.wgpu().create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
            pass.set_pipeline(&pipeline.raw);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(0, 0, 0);
            drop(pass);
            Ok(device.queue().submit([encoder.finish()]))
        });
        let is_done = submitted.and_then(|submission| device.poll(Some(&submission)));
        pipeline.is_warmed_up.store(is_done.is_ok(), Relaxed);
    }

    /// Creates a dummy texture and returns a view of it. Its usages include `COPY_DST`, so that wgpu clears it with a
    /// copy. wgpu clears textures without that usage by drawing, and after a draw Mesa takes compute timestamps too
    /// late.
    fn view(&self, access: Access, extent: [u32; 3], texel: Texel) -> TextureView {
        let texture = memory::texture(&self.counters, self.device, "warm-up", extent, texel);
        match access {
            Access::AliasedTexture(_) => texture.create_view(&TextureViewDescriptor::default()),
            _ => memory::array_view(&texture),
        }
    }

    fn bind_group(&self, job: &PendingKernel, pipeline: &Pipeline) -> BindGroup {
        let bindings = || job.kernel.bindings.iter().copied();
        let view = |(access, texture): (Access, &Option<_>)| {
            texture.map(|(extent, texel)| self.view(access, extent, texel))
        };
        let views: Vec<Option<TextureView>> = bindings().zip(&job.textures).map(view).collect();
        let storage = bindings().zip(&views).map(|bound| match bound {
            (_, Some(view)) => BindingResource::TextureView(view),
            (Access::ReadWrite | Access::CheckFlags | Access::StartedWorkgroups, None) => {
                self.read_write.as_entire_binding()
            }
            (_, None) => self.read_only.as_entire_binding(),
        });
        let sizes = (job.kernel.sizes > 0).then(|| self.read_only.as_entire_binding());
        let entries: Vec<BindGroupEntry> = (0..)
            .zip(storage.chain(sizes))
            .map(|(binding, resource)| BindGroupEntry { binding, resource })
            .collect();
        let descriptor = BindGroupDescriptor {
            label: Some("warm-up"),
            layout: &pipeline.layout,
            entries: &entries,
        };
        self.device.wgpu().create_bind_group(&descriptor)
    }
}
