//! What a device can do at most, measured: bytes copied and multiply-adds in registers per second.

use std::cmp::Ordering;
use std::fmt;
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

/// Bytes of the buffers that are copied, the largest first: more than caches hold and less than any device may bind, then what
/// caches of each level hold.
const BUFFERS: [u64; 4] = [64 << 20, 8 << 20, 1 << 20, 128 << 10];
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
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ceilings {
    /// Multiplications and additions per nanosecond (GFLOP/s), in single precision and all in registers.
    pub arithmetic: f64,
    /// How fast so many bytes are read and written, the most bytes first. Few bytes stay in caches, which are faster than
    /// memory.
    pub copies: Vec<CopyRate>,
}

/// How fast so many bytes are read and written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyRate {
    /// Bytes that are read and bytes that are written, together.
    pub bytes: f64,
    /// Bytes per nanosecond: GB/s.
    pub rate: f64,
}

impl Ceilings {
    /// Ceilings of measured rates. Fewer bytes are never slower than more, whatever a dispatch costs.
    pub fn new(arithmetic: f64, copies: impl IntoIterator<Item = CopyRate>) -> Ceilings {
        let mut copies: Vec<CopyRate> = copies.into_iter().collect();
        // Of two rates for as many bytes the higher one comes first.
        let key = |copy: &CopyRate| (copy.bytes, copy.rate);
        copies.sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal));
        let mut fastest = 0.0f64;
        for copy in &mut copies {
            fastest = fastest.max(copy.rate);
            copy.rate = fastest;
        }
        Ceilings { arithmetic, copies }
    }

    /// Bytes per nanosecond (GB/s) of memory, beyond all caches.
    pub fn memory(&self) -> f64 {
        self.copies.first().map_or(f64::INFINITY, |copy| copy.rate)
    }

    /// Bytes per nanosecond (GB/s) of the fastest cache.
    pub fn cache(&self) -> f64 {
        self.copies.last().map_or(f64::INFINITY, |copy| copy.rate)
    }

    /// Bytes per nanosecond (GB/s) where so many are read and written.
    pub fn bandwidth(&self, bytes: f64) -> f64 {
        let mut smallest_first = self.copies.iter().rev();
        let enough = smallest_first.find(|copy| bytes <= copy.bytes);
        enough.map_or(self.memory(), |copy| copy.rate)
    }

    /// Nanoseconds that so much work takes at least, if arithmetic and copies go on side by side.
    pub fn least(&self, operations: f64, bytes: f64) -> f64 {
        (operations / self.arithmetic).max(bytes / self.bandwidth(bytes))
    }

    /// Raises the ceilings to what a kernel has reached, so that none exceeds them; true if it was faster. Cooperative matrices
    /// and half precision exceed arithmetic in single precision; what neighbouring kernels leave in caches exceeds a copy.
    pub fn raise(&mut self, operations: f64, bytes: f64, nanoseconds: f64) -> bool {
        if nanoseconds <= 0.0 {
            return false;
        }
        let (arithmetic, rate) = (operations / nanoseconds, bytes / nanoseconds);
        let is_faster = arithmetic > self.arithmetic || rate > self.bandwidth(bytes);
        self.arithmetic = self.arithmetic.max(arithmetic);
        let covering = self.copies.iter().rposition(|copy| bytes <= copy.bytes);
        for copy in self.copies.iter_mut().skip(covering.unwrap_or(0)) {
            copy.rate = copy.rate.max(rate);
        }
        is_faster
    }
}

/// `83 GFLOP/s and 12.5 GB/s (40.1 GB/s within caches)`
impl fmt::Display for Ceilings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, cache) = (self.memory(), self.cache());
        write!(f, "{:.0} GFLOP/s and {memory:.1} GB/s", self.arithmetic)?;
        match memory < cache {
            true => write!(f, " ({cache:.1} GB/s within caches)"),
            false => Ok(()),
        }
    }
}

impl Device {
    /// Measures what the device can do; a fraction of a second.
    pub fn ceilings(&self) -> Result<Ceilings> {
        let times = fastest(self, copies())?;
        let kernels = BUFFERS.iter().zip(times.iter().skip(1).step_by(2));
        let mut copies: Vec<CopyRate> = kernels.map(|(bytes, time)| rate(*bytes, *time)).collect();
        copies.push(rate(BUFFERS[0], copy_command(self)?));
        Ok(Ceilings::new(compute(self)?, copies))
    }
}

/// The rate of a copy of so many bytes, which are read and written.
fn rate(bytes: u64, nanoseconds: f64) -> CopyRate {
    let bytes = 2.0 * bytes as f64;
    CopyRate {
        bytes,
        rate: bytes / nanoseconds,
    }
}

/// Operations per nanosecond.
fn compute(device: &Device) -> Result<f64> {
    let lanes = device.capabilities().lanes();
    let invocations = lanes.map_or(WORKGROUP, |lanes| VECTORS * lanes);
    let mut rounds = 16;
    loop {
        let times = fastest(device, arithmetic(rounds, invocations))?;
        let time = times.first().copied().unwrap_or(1.0);
        if time >= LONG_ENOUGH || rounds >= MOST_ROUNDS {
            return Ok((INVOCATIONS * rounds * OPERATIONS) as f64 / time);
        }
        rounds *= 8;
    }
}

/// Nanoseconds of each step in the run in which it is fastest.
fn fastest(device: &Device, plan: Plan) -> Result<Vec<f64>> {
    let mut least = vec![f64::INFINITY; plan.steps.len()];
    let program = Program::new(device, plan, &Default::default(), ProgramOptions::default())?;
    for _ in 0..RUNS {
        let (_, profile) = program.profile(&[])?;
        for (least, step) in least.iter_mut().zip(&profile.steps) {
            *least = least.min(step.nanoseconds.max(1) as f64);
        }
    }
    Ok(least)
}

/// Nanoseconds of the device's command that copies a buffer, by the host's clock.
fn copy_command(device: &Device) -> Result<f64> {
    let counters = Counters::default();
    let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    let buffer = || counters.buffer(device.wgpu(), "ceiling", BUFFERS[0], usage);
    let [from, to] = guarded(device.wgpu(), || Ok([buffer(), buffer()]))?;
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        let submission = guarded(device.wgpu(), || {
            let mut encoder = device.wgpu().create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, BUFFERS[0]);
            Ok(device.queue().submit([encoder.finish()]))
        })?;
        device.poll(Some(&submission))?;
        least = least.min(start.elapsed().as_nanos() as f64);
    }
    Ok(least)
}

/// For each number of bytes: fills a value of so many, and copies it.
fn copies() -> Plan {
    let mut plan = Plan {
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
        ..Plan::default()
    };
    for bytes in BUFFERS {
        let (first, from) = (plan.steps.len(), plan.slots.len());
        let elements = Dim::from((bytes / 4) as i64);
        plan.slots.push(slot("x", &elements, first, first + 1));
        plan.slots.push(slot("y", &elements, first + 1, first + 1));
        let vectors = Dim::from((bytes / 16) as i64);
        let workgroups = Workgroups::Linear(vectors.ceil_div(&Dim::from(256i64)));
        for (kernel, bindings) in [(0, &[from][..]), (1, &[from, from + 1])] {
            let sizes = vec![vectors.clone()];
            plan.steps
                .push(step(kernel, bindings, sizes, workgroups.clone()));
        }
    }
    plan
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings() -> Ceilings {
        let copy = |bytes: f64, rate: f64| CopyRate { bytes, rate };
        Ceilings::new(100.0, [copy(1e3, 5.0), copy(1e6, 10.0), copy(1e4, 40.0)])
    }

    #[test]
    fn fewer_bytes_are_never_slower() {
        let found = ceilings();
        let rates = [1e2, 1e3, 2e3, 1e4, 1e5, 1e6, 1e9].map(|bytes| found.bandwidth(bytes));
        assert_eq!(rates, [40.0, 40.0, 40.0, 40.0, 10.0, 10.0, 10.0]);
        assert_eq!((found.memory(), found.cache()), (10.0, 40.0));
        let text = found.to_string();
        assert_eq!(text, "100 GFLOP/s and 10.0 GB/s (40.0 GB/s within caches)");
        let twice = [1.0, 12.0, 3.0].map(|rate| CopyRate { bytes: 1e6, rate });
        assert_eq!(Ceilings::new(100.0, twice).memory(), 12.0);
    }

    /// However fast a kernel was, it has reached at most the ceilings, and slower ones leave them as they are.
    #[test]
    fn nothing_exceeds_a_raised_ceiling() {
        let work = [0.0, 1.0, 1e3, 1e5, 1e7];
        let mut raised = ceilings();
        assert!(!raised.raise(100.0, 10.0, 1.0) && raised == ceilings());
        assert!(!raised.raise(1e9, 1e9, 0.0) && raised == ceilings());
        for operations in work {
            for bytes in work {
                let mut raised = ceilings();
                let was_faster = raised.raise(operations, bytes, 10.0);
                assert!(
                    raised.least(operations, bytes) <= 10.0,
                    "{operations}, {bytes}"
                );
                assert_eq!(was_faster, ceilings().least(operations, bytes) > 10.0);
                assert!(raised.copies.is_sorted_by(|a, b| a.rate <= b.rate));
            }
        }
    }
}
