//! Initial values of parameters: PyTorch's distributions, numbers of our own that follow from `manual_seed`.

use std::f64::consts::TAU;

use crate::aten::Generator;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{self, Tensor};
use crate::trace::native::{TracedTensor, next_generator};

/// Numbers that follow from the thread's random state, which counts one call: SplitMix64, whose outputs are a mix of a counter.
struct Stream(u64);

impl Stream {
    fn new() -> Stream {
        let Generator { seed, counter } = next_generator();
        Stream(mixed(seed) ^ mixed(counter.wrapping_add(STEP)))
    }

    /// At least 0 and less than 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(STEP);
        (mixed(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn drawn(shape: &[usize], draw: impl Fn(&mut Stream) -> f64) -> Result<Tensor> {
    let (count, mut stream) = (tensor::numel(shape)?, Stream::new());
    let values = (0..count).map(|_| draw(&mut stream) as f32);
    Tensor::from_vec(shape, values.collect())
}

/// A parameter uniform between `-bound` and `bound`.
pub(super) fn uniform(shape: &[usize], bound: f64) -> TracedTensor {
    TracedTensor::parameter_or(drawn(shape, |stream| (2.0 * stream.unit() - 1.0) * bound))
}

/// A parameter of the standard normal distribution, by Box and Muller.
pub(super) fn normal(shape: &[usize]) -> TracedTensor {
    let draw = |stream: &mut Stream| {
        let radius = (-2.0 * (1.0 - stream.unit()).ln()).sqrt();
        radius * (TAU * stream.unit()).cos()
    };
    TracedTensor::parameter_or(drawn(shape, draw))
}

/// A weight or bias as most modules fill theirs, by how many weights lead to an output.
pub(super) fn by_fan_in(shape: &[usize], fan_in: usize) -> TracedTensor {
    uniform(shape, 1.0 / (fan_in as f64).sqrt())
}

/// A parameter or buffer of one value.
pub(super) fn constant(shape: &[usize], value: f64) -> TracedTensor {
    TracedTensor::parameter_or(Tensor::full(DType::F32, shape, value))
}

/// A buffer that counts steps of training, which no graph reads.
pub(super) fn counter() -> TracedTensor {
    TracedTensor::parameter_or(Tensor::full(DType::I64, [], 0.0))
}
