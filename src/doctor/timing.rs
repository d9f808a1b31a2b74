//! Times of a device, and remarks on absurd ones.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::gpu::{AdapterKind, Ceilings, Clock, GpuDevice, Program, ProgramOptions, RunInput};
use crate::interp;
use crate::ir::{Graph, GraphModule, Weights};
use crate::pass;
use crate::plan;
use crate::tensor::Tensor;

/// Elements of the vector that is copied: 16 MiB of f32.
const COPIED: usize = 4 << 20;
/// Rows, columns and K of the matrix product.
const SIDE: usize = 512;
/// Number of runs, of which the fastest counts.
const RUNS: usize = 5;
/// Longest time of an empty run that is not absurd.
const SLOW_ROUND_TRIP: Duration = Duration::from_millis(100);
/// Shortest kernel for which a device must not be slower than the host.
const MEASURABLE: Duration = Duration::from_millis(1);

/// Times of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceTiming {
    /// Time from the submission of a kernel on one element to its result on the host.
    pub round_trip: Duration,
    /// Bytes a second from the host to the device, by the run of a kernel that reads them.
    pub upload: f64,
    /// Bytes a second from the device to the host.
    pub download: f64,
    /// Bandwidth of memory and arithmetic in registers.
    pub ceilings: Ceilings,
    /// Time of a product of two f32 matrices of [`DeviceTiming::SIDE`] rows and columns, with its transfers.
    pub product: Duration,
    /// Time of this product's kernels.
    pub product_kernels: Duration,
    /// True if timestamps of the device measured the kernels, not the host's clock.
    pub has_timestamps: bool,
    /// Time of this product on the host.
    pub product_on_host: Duration,
}

impl DeviceTiming {
    /// Rows and columns of the matrices that are multiplied.
    pub const SIDE: usize = SIDE;

    /// Measures a device.
    ///
    /// # Errors
    /// The device fails.
    pub(super) fn measure(device: &GpuDevice) -> Result<DeviceTiming> {
        let (upload, download) = transfers(device)?;
        let (program, graph, inputs) = product(device)?;
        let (product, _) = fastest(|| program.run(&inputs))?;
        let (_, profile) = program.profile(&inputs)?;
        let (product_on_host, _) = timed(|| interp::run(&graph, &Weights::new(), &inputs))?;
        Ok(DeviceTiming {
            round_trip: round_trip(device)?,
            upload,
            download,
            ceilings: device.ceilings()?,
            product,
            product_kernels: Duration::from_nanos(profile.total()),
            has_timestamps: profile.clock == Clock::Device,
            product_on_host,
        })
    }

    /// Multiplications and additions a second of the matrix product's kernels; `None` if they took no time.
    pub fn product_rate(&self) -> Option<f64> {
        let seconds = self.product_kernels.as_secs_f64();
        let operations = 2.0 * (SIDE as f64).powi(3);
        (seconds > 0.0).then(|| operations / seconds)
    }

    /// Times that are absurd, a sentence each.
    pub fn remarks(&self, kind: AdapterKind) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.round_trip > SLOW_ROUND_TRIP {
            remarks.push(format!(
                "a kernel on one element takes {:.1?}, which is more than {SLOW_ROUND_TRIP:?}",
                self.round_trip
            ));
        }
        if self.has_timestamps && self.product_kernels.is_zero() {
            remarks.push(
                "the device's timestamps do not advance, or go backward: profiles show no times"
                    .into(),
            );
        } else if self.has_timestamps && self.product_kernels > 4 * self.product + MEASURABLE {
            remarks.push(format!(
                "the device's timestamps say {:.1?} for kernels of a run that takes {:.1?}: profiles show wrong times",
                self.product_kernels, self.product
            ));
        }
        let is_gpu = kind != AdapterKind::Software;
        if is_gpu && self.product > self.product_on_host.max(MEASURABLE) {
            remarks.push(format!(
                "the GPU is slower than the host: {:.1?} instead of {:.1?} for a product of two {SIDE}x{SIDE} matrices",
                self.product, self.product_on_host
            ));
        }
        remarks
    }
}

/// Runs an action and returns its duration and result.
fn timed<T>(action: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let result = action()?;
    Ok((start.elapsed(), result))
}

/// Runs an action several times. Returns the shortest duration and the last result.
fn fastest<T>(mut action: impl FnMut() -> Result<T>) -> Result<(Duration, T)> {
    let mut best = timed(&mut action)?;
    for _ in 1..RUNS {
        let (duration, result) = timed(&mut action)?;
        best = (duration.min(best.0), result);
    }
    Ok(best)
}

/// A graph of one node on `x` and `y`, and its program.
fn program(device: &GpuDevice, inputs: &str, node: &str) -> Result<(Program, Graph)> {
    let text = format!("graph timing({inputs}) {{\n  z = {node}\n  return z\n}}\n");
    let module: GraphModule = text.parse()?;
    let graph = pass::optimize(module.graph("timing")?)?;
    let plan = plan::plan(&graph, device.capabilities())?;
    let program = Program::new(device, plan, &Default::default(), ProgramOptions::default())?;
    Ok((program, graph))
}

fn round_trip(device: &GpuDevice) -> Result<Duration> {
    let (program, _) = program(device, "x: f32[1]", "neg x")?;
    let x = Tensor::full(crate::dtype::DType::F32, [1], 1.0)?;
    Ok(fastest(|| program.run(std::slice::from_ref(&x)))?.0)
}

/// Bytes a second to the device, and back.
fn transfers(device: &GpuDevice) -> Result<(f64, f64)> {
    let (program, _) = program(device, &format!("x: f32[{COPIED}]"), "neg x")?;
    let x = Tensor::from_vec([COPIED], vec![1.0f32; COPIED])?;
    let (up, run) = fastest(|| {
        let run = program.launch(&[RunInput::Host(&x)])?;
        run.wait()?;
        Ok(run)
    })?;
    let (down, _) = fastest(|| run.read())?;
    let rate = |duration: Duration| (4 * COPIED) as f64 / duration.as_secs_f64().max(1e-9);
    Ok((rate(up), rate(down)))
}

/// The program of a matrix product, its graph, and inputs.
fn product(device: &GpuDevice) -> Result<(Program, Graph, [Tensor; 2])> {
    let side = format!("f32[{SIDE}, {SIDE}]");
    let (program, graph) = program(device, &format!("x: {side}, y: {side}"), "aten.matmul x, y")?;
    let matrix = |step: usize| {
        let numbers = (0..SIDE * SIDE).map(|index| (index * step % 251) as f32 / 251.0);
        Tensor::from_vec([SIDE, SIDE], numbers.collect())
    };
    let inputs = [matrix(7)?, matrix(11)?];
    match program.plan().steps.is_empty() {
        true => Err(Error::internal("the matrix product has no kernel")),
        false => Ok((program, graph, inputs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing() -> DeviceTiming {
        DeviceTiming {
            round_trip: Duration::from_millis(1),
            upload: 1e9,
            download: 1e9,
            ceilings: Ceilings::new(100.0, []),
            product: Duration::from_millis(4),
            product_kernels: Duration::from_millis(3),
            has_timestamps: true,
            product_on_host: Duration::from_millis(90),
        }
    }

    #[test]
    fn usual_times_have_no_remark() {
        assert!(timing().remarks(AdapterKind::Discrete).is_empty());
    }

    #[test]
    fn absurd_times_are_remarked_on() {
        let told = |timing: DeviceTiming, kind| timing.remarks(kind).join("\n");
        let slow = Duration::from_millis(200);
        let round_trip = DeviceTiming {
            round_trip: slow,
            ..timing()
        };
        assert!(told(round_trip, AdapterKind::Software).contains("more than 100ms"));
        let still = DeviceTiming {
            product_kernels: Duration::ZERO,
            ..timing()
        };
        assert!(told(still, AdapterKind::Discrete).contains("do not advance"));
        let fast = DeviceTiming {
            product_kernels: slow,
            ..timing()
        };
        assert!(told(fast, AdapterKind::Discrete).contains("wrong times"));
        let slower = DeviceTiming {
            product: slow,
            ..timing()
        };
        assert!(told(slower.clone(), AdapterKind::Discrete).contains("slower than the host"));
        assert!(told(slower, AdapterKind::Software).is_empty());
    }
}
