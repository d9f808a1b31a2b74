//! Initial values of parameters: PyTorch's distributions, numbers of our own.

use std::cell::Cell;
use std::f64::consts::TAU;

use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{self, Tensor as HostTensor};
use crate::trace::native::Tensor;

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Sets the seed of this thread's generator of initial parameters, 0 at first: modules that are made after it, in the same
/// order, have the same parameters. They are not those that `torch.manual_seed` gives.
pub fn manual_seed(seed: u64) {
    STATE.set(seed);
}

/// At least 0 and less than 1: SplitMix64, whose outputs are a mix of a counter.
fn unit() -> f64 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

fn drawn(shape: &[usize], mut draw: impl FnMut() -> f64) -> Result<HostTensor> {
    let count = tensor::numel(shape)?;
    HostTensor::from_vec(shape, (0..count).map(|_| draw() as f32).collect())
}

/// A parameter uniform between `-bound` and `bound`.
pub(super) fn uniform(shape: &[usize], bound: f64) -> Tensor {
    Tensor::parameter_or(drawn(shape, || (2.0 * unit() - 1.0) * bound))
}

/// A parameter of the standard normal distribution, by Box and Muller.
pub(super) fn normal(shape: &[usize]) -> Tensor {
    let draw = || (-2.0 * (1.0 - unit()).ln()).sqrt() * (TAU * unit()).cos();
    Tensor::parameter_or(drawn(shape, draw))
}

/// A weight or bias as most modules fill theirs, by how many weights lead to an output.
pub(super) fn by_fan_in(shape: &[usize], fan_in: usize) -> Tensor {
    uniform(shape, 1.0 / (fan_in as f64).sqrt())
}

/// A parameter or buffer of one value.
pub(super) fn constant(shape: &[usize], value: f64) -> Tensor {
    Tensor::parameter_or(HostTensor::full(DType::F32, shape, value))
}

/// A buffer that counts steps of training, which no graph reads.
pub(super) fn counter() -> Tensor {
    Tensor::parameter_or(HostTensor::full(DType::I64, [], 0.0))
}
