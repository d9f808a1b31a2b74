//! What a device can do at most, measured: bytes copied and multiply-adds in registers per second.

use std::time::Instant;

use wgpu::BufferUsages;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Place, Result};
use crate::kernel::capabilities::{SizesIn, Storage};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Access, Kernel, Plan, Slot, SlotId, SlotKind, Step, Workgroups};
use crate::kernel::work::Work;

use super::device::Device;
use super::fault::guarded;
use super::program::{Program, ProgramOptions};
use super::statistics::Counters;

/// Bytes that are copied: more than caches hold, less than any device may bind.
const BYTES: u64 = 64 << 20;
/// Invocations that multiply and add.
const INVOCATIONS: i64 = 64 * 1024;
/// Vectors of a workgroup on a rasteriser.
const VECTORS: usize = 8;
/// Invocations of a workgroup on other devices.
const WORKGROUP: usize = 64;
/// Operations of a round: eight times four vectors of four are multiplied and added to.
const OPERATIONS: i64 = 8 * 4 * 4 * 2;
/// Rounds are made more until they take so many nanoseconds, in which a clock's steps are lost.
const LONG_ENOUGH: f64 = 1e6;
/// Rounds at most: some drivers stop loops silently at 65,535.
const MOST_ROUNDS: i64 = 1 << 13;
/// The fastest of so many runs counts.
const RUNS: usize = 6;

/// What a device does at most per nanosecond, for kernels to be held against.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ceilings {
    /// Bytes read and written by a copy of 64 MiB, by a kernel or by the device's own command, whichever is faster: GB/s.
    pub bandwidth: f64,
    /// Multiplications and additions in single precision, all in registers: GFLOP/s.
    pub arithmetic: f64,
}

impl Ceilings {
    /// Nanoseconds that so much work takes at least, if arithmetic and copies go on side by side.
    pub fn least(&self, operations: f64, bytes: f64) -> f64 {
        (operations / self.arithmetic).max(bytes / self.bandwidth)
    }
}

impl Device {
    /// Measures what the device can do; a fraction of a second.
    pub fn ceilings(&self) -> Result<Ceilings> {
        let copied = fastest(self, copy(), 1)?.min(copy_command(self)?);
        Ok(Ceilings {
            bandwidth: 2.0 * BYTES as f64 / copied,
            arithmetic: compute(self)?,
        })
    }
}

/// Operations per nanosecond.
fn compute(device: &Device) -> Result<f64> {
    let lanes = device.capabilities().lanes();
    let invocations = lanes.map_or(WORKGROUP, |lanes| VECTORS * lanes);
    let mut rounds = 16;
    loop {
        let time = fastest(device, arithmetic(rounds, invocations), 0)?;
        if time >= LONG_ENOUGH || rounds >= MOST_ROUNDS {
            return Ok((INVOCATIONS * rounds * OPERATIONS) as f64 / time);
        }
        rounds *= 8;
    }
}

/// Nanoseconds of a step in the run that is fastest.
fn fastest(device: &Device, plan: Plan, step: usize) -> Result<f64> {
    let program = Program::new(device, plan, &Default::default(), ProgramOptions::default())?;
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let (_, profile) = program.profile(&[])?;
        let time = profile.steps.get(step).map_or(0, |step| step.nanoseconds);
        least = least.min(time.max(1) as f64);
    }
    Ok(least)
}

/// Nanoseconds of the device's command that copies a buffer, by the host's clock.
fn copy_command(device: &Device) -> Result<f64> {
    let counters = Counters::default();
    let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    let buffer = || counters.buffer(device.wgpu(), "ceiling", BYTES, usage);
    let [from, to] = guarded(device.wgpu(), || Ok([buffer(), buffer()]))?;
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        let submission = guarded(device.wgpu(), || {
            let mut encoder = device.wgpu().create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, BYTES);
            Ok(device.queue().submit([encoder.finish()]))
        })?;
        device.poll(Some(&submission))?;
        least = least.min(start.elapsed().as_nanos() as f64);
    }
    Ok(least)
}

/// Fills a value and copies it.
fn copy() -> Plan {
    let count = Dim::from((BYTES / 16) as i64);
    let step = |kernel, bindings: &[usize]| {
        let workgroups = Workgroups::Linear(count.ceil_div(&Dim::from(256i64)));
        step(kernel, bindings, vec![count.clone()], workgroups)
    };
    let elements = Dim::from((BYTES / 4) as i64);
    Plan {
        kernels: vec![
            kernel(
                "ceiling_fill",
                include_str!("../../shaders/ceiling_fill.wgsl"),
                1,
                1,
            ),
            kernel(
                "ceiling_copy",
                include_str!("../../shaders/ceiling_copy.wgsl"),
                2,
                1,
            ),
        ],
        slots: vec![slot("x", &elements, 0, 1), slot("y", &elements, 1, 1)],
        steps: vec![step(0, &[0]), step(1, &[0, 1])],
        ..Plan::default()
    }
}

/// So many rounds, by workgroups of a size that differs with the length of a rasteriser's vectors: Mesa's cache would hand out
/// what was compiled for others.
fn arithmetic(rounds: i64, invocations: usize) -> Plan {
    let size = format!("@workgroup_size({invocations})");
    let text = include_str!("../../shaders/ceiling_arithmetic.wgsl");
    let text = text.replace("@workgroup_size(64)", &size);
    let workgroups = Workgroups::Linear(Dim::from(INVOCATIONS).ceil_div(&Dim::from(invocations)));
    let sizes = vec![Dim::from(rounds), Dim::from(2i64)];
    Plan {
        kernels: vec![kernel("ceiling_arithmetic", &text, 1, 2)],
        slots: vec![slot("y", &Dim::from(INVOCATIONS * 4), 0, 0)],
        steps: vec![step(0, &[0], sizes, workgroups)],
        ..Plan::default()
    }
}

fn kernel(label: &str, wgsl: &str, bindings: usize, sizes: usize) -> Kernel {
    Kernel {
        label: label.into(),
        wgsl: wgsl.into(),
        bindings: vec![Access::ReadWrite; bindings],
        sizes,
        sizes_in: SizesIn::Uniform,
    }
}

fn slot(name: &str, elements: &Dim, first: usize, last: usize) -> Slot {
    Slot {
        name: name.into(),
        dtype: DType::F32,
        storage: Storage::F32,
        shape: vec![elements.clone()],
        layout: Layout::Linear,
        kind: SlotKind::Temporary { first, last },
    }
}

fn step(kernel: usize, bindings: &[usize], sizes: Vec<Dim>, workgroups: Workgroups) -> Step {
    Step {
        kernel,
        bindings: bindings.iter().copied().map(SlotId).collect(),
        sizes,
        workgroups,
        place: Place::default(),
        nodes: Vec::new(),
        choice: None,
        work: Work::default(),
    }
}
