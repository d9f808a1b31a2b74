//! Initial values of parameters, with PyTorch's distributions. The numbers follow from `manual_seed` but are not PyTorch's.

use std::f64::consts::TAU;

use crate::aten::Generator;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{self, Tensor};
use crate::trace::native::{TracedTensor, next_generator};

/// A SplitMix64 generator seeded by the thread's random state, which advances by one call. Its outputs are mixes of a
/// counter.
struct SplitMix64(u64);

impl SplitMix64 {
    fn new() -> SplitMix64 {
        let Generator { seed, counter } = next_generator();
        SplitMix64(mix_bits(seed) ^ mix_bits(counter.wrapping_add(GOLDEN_GAMMA)))
    }

    /// Draws a number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        (mix_bits(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Increment of the counter: 2^64 divided by the golden ratio, as an odd number.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's bijective hash of 64 bits.
fn mix_bits(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A tensor of numbers that `draw` takes from a new generator.
fn random_tensor(shape: &[usize], draw: impl Fn(&mut SplitMix64) -> f64) -> Result<Tensor> {
    let (count, mut stream) = (tensor::numel(shape)?, SplitMix64::new());
    let values = (0..count).map(|_| draw(&mut stream) as f32);
    Tensor::from_vec(shape, values.collect())
}

/// A parameter drawn uniformly between `-bound` and `bound`.
pub(super) fn uniform(shape: &[usize], bound: f64) -> TracedTensor {
    TracedTensor::parameter_or(random_tensor(shape, |stream| {
        (2.0 * stream.unit() - 1.0) * bound
    }))
}

/// A parameter drawn from the standard normal distribution.
pub(super) fn normal(shape: &[usize]) -> TracedTensor {
    scaled_normal(shape, 1.0)
}

/// A parameter drawn from the normal distribution of Glorot and Bengio, for a kernel over the last axis.
pub(super) fn glorot_normal(shape: &[usize; 3]) -> TracedTensor {
    let [rows, columns, kernel] = *shape;
    scaled_normal(shape, (2.0 / ((rows + columns) * kernel) as f64).sqrt())
}

/// A parameter drawn from the normal distribution with a standard deviation (Box and Muller).
fn scaled_normal(shape: &[usize], deviation: f64) -> TracedTensor {
    let draw = |stream: &mut SplitMix64| {
        let radius = (-2.0 * (1.0 - stream.unit()).ln()).sqrt();
        deviation * radius * (TAU * stream.unit()).cos()
    };
    TracedTensor::parameter_or(random_tensor(shape, draw))
}

/// A weight or bias with the default initialisation of most modules: uniform within `1 / √fan_in`, where `fan_in` is the
/// number of weights that lead to an output.
pub(super) fn by_fan_in(shape: &[usize], fan_in: usize) -> TracedTensor {
    uniform(shape, 1.0 / (fan_in as f64).sqrt())
}

/// A parameter or buffer filled with one value.
pub(super) fn constant(shape: &[usize], value: f64) -> TracedTensor {
    TracedTensor::parameter_or(Tensor::full(DType::F32, shape, value))
}

/// A buffer that counts training steps, initially 0.
pub(super) fn counter() -> TracedTensor {
    TracedTensor::parameter_or(Tensor::full(DType::I64, [], 0.0))
}
