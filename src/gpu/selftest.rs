//! A small kernel with known results, to test whether a device computes correctly.

use std::time::{Duration, Instant};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result, SourcePlace};
use crate::kernel::capabilities::{SizesSpace, StorageType};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Access, Kernel, Plan, Slot, SlotId, SlotKind, Step, Workgroups};
use crate::kernel::work::Work;
use crate::tensor::Tensor;

use super::device::GpuDevice;
use super::program::{Program, ProgramOptions};

/// A self-test that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelfTest {
    /// Time to compile the kernel.
    pub compile: Duration,
    /// Time of the first run, in which many drivers finish compiling.
    pub first_run: Duration,
    /// Time of a second run.
    pub run: Duration,
}

/// Source of the kernel.
const WGSL: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> sizes: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i < sizes.x {
        y[i] = x[i] * 0.5 + f32(i % 7u) - f32(i / 3u);
    }
}
";

/// Number of elements.
const COUNT: usize = 1000;

impl GpuDevice {
    /// Runs a small kernel and compares its results with the host's. Fails if a number differs.
    pub fn self_test(&self) -> Result<SelfTest> {
        let input: Vec<f32> = (0u16..).take(COUNT).map(f32::from).collect();
        // Each number is a small multiple of one half, so every order of operations gives it exactly.
        let expected: Vec<f32> = (0u16..)
            .zip(&input)
            .map(|(i, x)| x * 0.5 + f32::from(i % 7) - f32::from(i / 3))
            .collect();
        let x = Tensor::from_vec([COUNT], input)?;
        let (program, compile) =
            timed(|| Program::new(self, plan(), &Default::default(), ProgramOptions::default()))?;
        let (first, first_run) = timed(|| program.run(std::slice::from_ref(&x)))?;
        let (second, run) = timed(|| program.run(std::slice::from_ref(&x)))?;
        for output in [first, second].iter().flatten() {
            compare(output.as_slice()?, &expected)?;
        }
        Ok(SelfTest {
            compile,
            first_run,
            run,
        })
    }
}

/// Runs an action and returns its result and duration.
fn timed<T>(action: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    Ok((action()?, start.elapsed()))
}

/// Fails if a number differs from the expected one.
fn compare(found: &[f32], expected: &[f32]) -> Result<()> {
    let wrong = (0..COUNT).find(|index| found.get(*index) != expected.get(*index));
    match wrong {
        None => Ok(()),
        Some(index) => Err(Error::device(format!(
            "the device computes wrong numbers: element {index} is {:?}, not {:?}",
            found.get(index),
            expected.get(index)
        ))
        .help("update the driver, or choose another device")),
    }
}

/// A plan of one step that runs the kernel.
fn plan() -> Plan {
    let slot = |name: &str, kind| Slot {
        name: name.into(),
        dtype: DType::F32,
        storage: StorageType::F32,
        shape: vec![Dim::from(COUNT)],
        layout: Layout::Linear,
        kind,
    };
    Plan {
        kernels: vec![Kernel {
            label: "self_test".into(),
            wgsl: WGSL.into(),
            bindings: vec![Access::Read, Access::ReadWrite],
            sizes: 1,
            sizes_space: SizesSpace::Uniform,
            zeroes_workgroup_memory: false,
        }],
        slots: vec![slot("x", SlotKind::Input(0)), slot("y", SlotKind::Output)],
        steps: vec![Step {
            kernel: 0,
            bindings: vec![SlotId(0), SlotId(1)],
            sizes: vec![Dim::from(COUNT)],
            workgroups: Workgroups::Linear(Dim::from(COUNT.div_ceil(64))),
            place: SourcePlace::default(),
            nodes: vec!["self_test".into()],
            choice: None,
            work: Work::default(),
        }],
        inputs: vec![Some(SlotId(0))],
        outputs: vec![SlotId(1)],
        ..Plan::default()
    }
}
