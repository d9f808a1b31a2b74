//! Measures a device's roofline ceilings: memory bandwidth and multiply-adds in registers per second.

use std::cmp::Ordering;
use std::fmt;
use std::time::Instant;

use wgpu::BufferUsages;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Result, SourcePlace};
use crate::kernel::capabilities::{SizesSpace, StorageType};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Access, Kernel, Plan, Slot, SlotId, SlotKind, Step, Workgroups};
use crate::kernel::work::Work;

use super::device::GpuDevice;
use super::error_scope::in_error_scope;
use super::program::{Program, ProgramOptions};
use super::statistics::Counters;

/// Sizes in bytes of the copied buffers, largest first: one that exceeds every cache and fits the binding limit of
/// every device, then one for each cache level.
const COPY_BYTES: [u64; 4] = [64 << 20, 8 << 20, 1 << 20, 128 << 10];
/// Total invocations of the arithmetic kernel.
const INVOCATIONS: i64 = 64 * 1024;
/// SIMD vectors in a workgroup on a software rasteriser.
const VECTORS_PER_WORKGROUP: usize = 8;
/// Invocations of a workgroup on other devices.
const WORKGROUP_INVOCATIONS: usize = 64;
/// Operations of a loop iteration: eight multiply-adds of each of four `vec4`.
const OPERATIONS_PER_ROUND: i64 = 8 * 4 * 4 * 2;
/// Minimum nanoseconds of a measurement, so that the clock's resolution does not matter. The number of
/// iterations increases until a measurement takes this long.
const MIN_MEASURED_NANOSECONDS: f64 = 1e6;
/// Maximum number of iterations: some drivers silently stop loops at 65,535 iterations.
const MAX_ROUNDS: i64 = 1 << 13;
/// Number of runs, of which the fastest counts.
const RUNS: usize = 6;

/// Peak rates of a device per nanosecond, to compare kernels with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ceilings {
    /// Multiplications and additions per nanosecond (GFLOP/s) in single precision, with all operands in registers.
    pub arithmetic: f64,
    /// Copy rates by size, largest size first. Small copies stay in caches, which are faster than memory.
    pub copies: Vec<CopyRate>,
}

/// Copy rate for a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyRate {
    /// Bytes read plus bytes written.
    pub bytes: f64,
    /// Bytes per nanosecond: GB/s.
    pub rate: f64,
}

impl Ceilings {
    /// Ceilings from measured rates. Smaller copies never get a lower rate than larger ones, to hide the cost of a
    /// dispatch.
    pub fn new(arithmetic: f64, copies: impl IntoIterator<Item = CopyRate>) -> Ceilings {
        let mut copies: Vec<CopyRate> = copies.into_iter().collect();
        // Of two rates for equal sizes the higher one comes first.
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

    /// Bytes per nanosecond (GB/s) if this many bytes are read and written.
    pub fn bandwidth(&self, bytes: f64) -> f64 {
        let mut smallest_first = self.copies.iter().rev();
        let smallest_covering = smallest_first.find(|copy| bytes <= copy.bytes);
        smallest_covering.map_or(self.memory(), |copy| copy.rate)
    }

    /// Lower bound of nanoseconds for a number of operations and of bytes read or written, if arithmetic and memory
    /// traffic overlap perfectly.
    pub fn min_nanoseconds(&self, operations: f64, bytes: f64) -> f64 {
        (operations / self.arithmetic).max(bytes / self.bandwidth(bytes))
    }

    /// Raises the ceilings to the rates of a measured kernel, so that no kernel exceeds them. Returns true if the
    /// kernel was faster than a ceiling. Kernels with cooperative matrices or in half precision may exceed the
    /// arithmetic rate; kernels that read data which the previous kernel left in caches may exceed the copy rate.
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

/// Formats as `83 GFLOP/s and 12.5 GB/s (40.1 GB/s within caches)`.
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

impl GpuDevice {
    /// Measures the ceilings; takes a fraction of a second.
    pub fn ceilings(&self) -> Result<Ceilings> {
        let times = fastest_times(self, copy_plan())?;
        // Each size has two steps: fill, then copy.
        let copy_times = COPY_BYTES.iter().zip(times.iter().skip(1).step_by(2));
        let mut copies: Vec<CopyRate> = copy_times
            .map(|(bytes, time)| copy_rate(*bytes, *time))
            .collect();
        copies.push(copy_rate(COPY_BYTES[0], measure_copy_command(self)?));
        Ok(Ceilings::new(measure_arithmetic(self)?, copies))
    }
}

/// The rate of a copy of this many bytes, which are read and written.
fn copy_rate(bytes: u64, nanoseconds: f64) -> CopyRate {
    let bytes = 2.0 * bytes as f64;
    CopyRate {
        bytes,
        rate: bytes / nanoseconds,
    }
}

/// Measures multiplications and additions per nanosecond.
fn measure_arithmetic(device: &GpuDevice) -> Result<f64> {
    let lanes = device.capabilities().simd_lanes();
    let invocations = lanes.map_or(WORKGROUP_INVOCATIONS, |lanes| VECTORS_PER_WORKGROUP * lanes);
    let mut rounds = 16;
    loop {
        let times = fastest_times(device, arithmetic_plan(rounds, invocations))?;
        let time = times.first().copied().unwrap_or(1.0);
        if time >= MIN_MEASURED_NANOSECONDS || rounds >= MAX_ROUNDS {
            return Ok((INVOCATIONS * rounds * OPERATIONS_PER_ROUND) as f64 / time);
        }
        rounds *= 8;
    }
}

/// Nanoseconds of each step in its fastest run.
fn fastest_times(device: &GpuDevice, plan: Plan) -> Result<Vec<f64>> {
    let mut fastest = vec![f64::INFINITY; plan.steps.len()];
    let program = Program::new(device, plan, &Default::default(), ProgramOptions::default())?;
    for _ in 0..RUNS {
        let (_, profile) = program.profile(&[])?;
        for (fastest_time, step) in fastest.iter_mut().zip(&profile.steps) {
            *fastest_time = fastest_time.min(step.nanoseconds.max(1) as f64);
        }
    }
    Ok(fastest)
}

/// Nanoseconds of a buffer copy by the device's copy command, by the host's clock.
fn measure_copy_command(device: &GpuDevice) -> Result<f64> {
    let counters = Counters::default();
    let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    let buffer = || counters.buffer(device.wgpu(), "ceiling", COPY_BYTES[0], usage);
    let [from, to] = in_error_scope(device.wgpu(), || Ok([buffer(), buffer()]))?;
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        let submission = in_error_scope(device.wgpu(), || {
            let mut encoder = device.wgpu().create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, COPY_BYTES[0]);
            Ok(device.queue().submit([encoder.finish()]))
        })?;
        device.poll(Some(&submission))?;
        fastest = fastest.min(start.elapsed().as_nanos() as f64);
    }
    Ok(fastest)
}

/// A plan that, for each size, fills a buffer and copies it.
fn copy_plan() -> Plan {
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
    for bytes in COPY_BYTES {
        let (first, from) = (plan.steps.len(), plan.slots.len());
        let elements = Dim::from((bytes / 4) as i64);
        plan.slots.push(slot("x", &elements, first, first + 1));
        plan.slots.push(slot("y", &elements, first + 1, first + 1));
        let vectors = Dim::from((bytes / 16) as i64);
        let workgroups = Workgroups::Linear(vectors.ceil_div(&Dim::from(64i64)));
        for (kernel, bindings) in [(0, &[from][..]), (1, &[from, from + 1])] {
            let sizes = vec![vectors.clone()];
            plan.steps
                .push(step(kernel, bindings, sizes, workgroups.clone()));
        }
    }
    plan
}

/// A plan of one kernel with `rounds` loop iterations of multiply-adds and workgroups of `invocations`. The workgroup
/// size depends on the software rasteriser's vector width: with equal source, Mesa's cache would return code compiled
/// for another width.
fn arithmetic_plan(rounds: i64, invocations: usize) -> Plan {
    let size = format!("@workgroup_size({invocations})");
    let wgsl = include_str!("../../shaders/ceiling_arithmetic.wgsl");
    let wgsl = wgsl.replace("@workgroup_size(64)", &size);
    let workgroups = Workgroups::Linear(Dim::from(INVOCATIONS).ceil_div(&Dim::from(invocations)));
    let sizes = vec![Dim::from(rounds), Dim::from(2i64)];
    Plan {
        kernels: vec![kernel("ceiling_arithmetic", &wgsl, 1, 2)],
        slots: vec![slot("y", &Dim::from(INVOCATIONS * 4), 0, 0)],
        steps: vec![step(0, &[0], sizes, workgroups)],
        ..Plan::default()
    }
}

/// A kernel with a number of read-write bindings and a number of sizes.
fn kernel(label: &str, wgsl: &str, bindings: usize, sizes: usize) -> Kernel {
    Kernel {
        label: label.into(),
        wgsl: wgsl.into(),
        bindings: vec![Access::ReadWrite; bindings],
        sizes,
        sizes_space: SizesSpace::Uniform,
        zeroes_workgroup_memory: false,
    }
}

/// A temporary of `f32` elements that is live from step `first` to step `last`.
fn slot(name: &str, elements: &Dim, first: usize, last: usize) -> Slot {
    Slot {
        name: name.into(),
        dtype: DType::F32,
        storage: StorageType::F32,
        shape: vec![elements.clone()],
        layout: Layout::Linear,
        kind: SlotKind::Temporary { first, last },
    }
}

/// A step that runs the kernel of an index on slots of these indices.
fn step(kernel: usize, bindings: &[usize], sizes: Vec<Dim>, workgroups: Workgroups) -> Step {
    Step {
        kernel,
        bindings: bindings.iter().copied().map(SlotId).collect(),
        sizes,
        workgroups,
        place: SourcePlace::default(),
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

    /// A raised ceiling is at least the rate of the kernel; slower kernels change nothing.
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
                    raised.min_nanoseconds(operations, bytes) <= 10.0,
                    "{operations}, {bytes}"
                );
                assert_eq!(
                    was_faster,
                    ceilings().min_nanoseconds(operations, bytes) > 10.0
                );
                assert!(raised.copies.is_sorted_by(|a, b| a.rate <= b.rate));
            }
        }
    }
}
