//! Initial values of parameters: the distributions of `torch.nn.init`. The numbers follow from
//! [`manual_seed`](super::manual_seed) but are not PyTorch's.
//!
//! ```
//! use onionskin::trace::{Parameter, init};
//!
//! let position = Parameter::new([1, 16, 64], init::normal(0.0, 0.02));
//! let weight = Parameter::new([8, 4], init::kaiming_normal().fan_out());
//! assert_eq!((position.rank(), weight.rank()), (3, 2));
//! ```

use std::f64::consts::TAU;

use crate::aten::Generator;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{self, Tensor};

use super::parameter::Parameter;
use super::random::next_generator;

/// The distribution of a parameter's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Init {
    kind: InitKind,
    /// Factor of the distributions that follow from the shape.
    gain: f64,
    /// True if the number of outputs decides in place of the number of inputs, for `kaiming_*`.
    fan_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum InitKind {
    Constant(f64),
    Uniform(f64, f64),
    Normal(f64, f64),
    TruncNormal {
        mean: f64,
        std: f64,
        low: f64,
        high: f64,
    },
    XavierUniform,
    XavierNormal,
    KaimingUniform,
    KaimingNormal,
    Orthogonal,
}

/// `torch.nn.init.zeros_`
pub fn zeros() -> Init {
    constant(0.0)
}

/// `torch.nn.init.ones_`
pub fn ones() -> Init {
    constant(1.0)
}

/// `torch.nn.init.constant_`
pub fn constant(value: f64) -> Init {
    Init::new(InitKind::Constant(value), 1.0)
}

/// `torch.nn.init.uniform_`: between `low` and `high`.
pub fn uniform(low: f64, high: f64) -> Init {
    Init::new(InitKind::Uniform(low, high), 1.0)
}

/// `torch.nn.init.normal_`: with a mean and a standard deviation.
pub fn normal(mean: f64, std: f64) -> Init {
    Init::new(InitKind::Normal(mean, std), 1.0)
}

/// `torch.nn.init.trunc_normal_`: [`normal`] between `low` and `high`; PyTorch's defaults are -2 and 2.
pub fn trunc_normal(mean: f64, std: f64, low: f64, high: f64) -> Init {
    let kind = InitKind::TruncNormal {
        mean,
        std,
        low,
        high,
    };
    Init::new(kind, 1.0)
}

/// `torch.nn.init.xavier_uniform_`. The shape has at least two axes.
pub fn xavier_uniform() -> Init {
    Init::new(InitKind::XavierUniform, 1.0)
}

/// `torch.nn.init.xavier_normal_`. The shape has at least two axes.
pub fn xavier_normal() -> Init {
    Init::new(InitKind::XavierNormal, 1.0)
}

/// `torch.nn.init.kaiming_uniform_`, for a ReLU. The shape has at least two axes.
pub fn kaiming_uniform() -> Init {
    Init::new(InitKind::KaimingUniform, 2f64.sqrt())
}

/// `torch.nn.init.kaiming_normal_`, for a ReLU. The shape has at least two axes.
pub fn kaiming_normal() -> Init {
    Init::new(InitKind::KaimingNormal, 2f64.sqrt())
}

/// `torch.nn.init.orthogonal_`: the rows of the matrix with the first axis as rows are orthonormal, or the columns if there
/// are more rows. The shape has at least two axes.
pub fn orthogonal() -> Init {
    Init::new(InitKind::Orthogonal, 1.0)
}

impl Init {
    fn new(kind: InitKind, gain: f64) -> Init {
        Init {
            kind,
            gain,
            fan_out: false,
        }
    }

    /// A factor, for `xavier_*`, `kaiming_*` and `orthogonal`: √2 by default for `kaiming_*`, else 1.
    pub fn gain(mut self, gain: f64) -> Init {
        self.gain = gain;
        self
    }

    /// The slope of a leaky ReLU behind the layer, for `kaiming_*`: the parameter `a` of PyTorch.
    pub fn a(self, slope: f64) -> Init {
        self.gain((2.0 / (1.0 + slope * slope)).sqrt())
    }

    /// The number of outputs decides, for `kaiming_*`: `mode="fan_out"` of PyTorch.
    pub fn fan_out(mut self) -> Init {
        self.fan_out = true;
        self
    }

    /// Draws a tensor of `f32`.
    ///
    /// # Errors
    /// The shape has fewer than two axes and the distribution needs them, or it is too large.
    pub(super) fn draw(self, shape: &[usize]) -> Result<Tensor> {
        let between = |bound: f64| uniform(-bound, bound).draw(shape);
        let fan = || {
            let [fan_in, fan_out] = fans(shape)?;
            Ok(if self.fan_out { fan_out } else { fan_in })
        };
        match self.kind {
            InitKind::Constant(value) => Tensor::full(DType::F32, shape, value),
            InitKind::Uniform(low, high) => {
                random_tensor(shape, |stream| low + (high - low) * stream.unit())
            }
            InitKind::Normal(mean, std) => {
                random_tensor(shape, |stream| mean + std * stream.normal())
            }
            InitKind::TruncNormal {
                mean,
                std,
                low,
                high,
            } => random_tensor(shape, |stream| stream.truncated(mean, std, low, high)),
            InitKind::XavierUniform => between(self.gain * (6.0 / total_fan(shape)?).sqrt()),
            InitKind::XavierNormal => {
                normal(0.0, self.gain * (2.0 / total_fan(shape)?).sqrt()).draw(shape)
            }
            InitKind::KaimingUniform => between(self.gain * (3.0 / fan()?).sqrt()),
            InitKind::KaimingNormal => normal(0.0, self.gain / fan()?.sqrt()).draw(shape),
            InitKind::Orthogonal => orthogonal_tensor(shape, self.gain),
        }
    }
}

/// Numbers of elements that lead to an output and that an input leads to, as PyTorch counts them.
///
/// # Errors
/// The shape has fewer than two axes.
fn fans(shape: &[usize]) -> Result<[f64; 2]> {
    let [outputs, inputs, kernel @ ..] = shape else {
        let message = format!("this distribution needs two axes or more, got the shape {shape:?}");
        return Err(Error::input(message).help("use `init::normal` or `init::uniform`"));
    };
    let kernel: usize = kernel.iter().product();
    Ok([inputs, outputs].map(|features| (features * kernel) as f64))
}

fn total_fan(shape: &[usize]) -> Result<f64> {
    Ok(fans(shape)?.iter().sum())
}

/// A tensor with orthonormal rows or columns times a factor: random normal vectors, each made orthogonal to those before it.
fn orthogonal_tensor(shape: &[usize], gain: f64) -> Result<Tensor> {
    fans(shape)?;
    let rows = shape[0];
    let columns: usize = shape[1..].iter().product();
    let (count, length) = (rows.min(columns), rows.max(columns));
    tensor::numel(shape)?;
    let mut stream = SplitMix64::new();
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    for _ in 0..count {
        let vector = (0..length).map(|_| stream.normal()).collect();
        let vector = orthogonal_to(&vectors, vector);
        vectors.push(vector);
    }
    let element = |row: usize, column: usize| match rows <= columns {
        true => vectors[row][column],
        false => vectors[column][row],
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let elements = places.map(|(row, column)| (gain * element(row, column)) as f32);
    Tensor::from_vec(shape, elements.collect())
}

/// The part of a vector that is orthogonal to orthonormal vectors, with length 1. Done twice, for the rounding errors.
fn orthogonal_to(vectors: &[Vec<f64>], mut vector: Vec<f64>) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for _ in 0..2 {
        for known in vectors {
            let along = dot(known, &vector);
            let pairs = vector.iter_mut().zip(known);
            pairs.for_each(|(element, known)| *element -= along * known);
        }
        let length = dot(&vector, &vector).sqrt();
        vector.iter_mut().for_each(|element| *element /= length);
    }
    vector
}

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

    /// Draws a number of the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// Draws a number of a normal distribution that lies between `low` and `high`. Where nearly none does, it is the nearest
    /// of them.
    fn truncated(&mut self, mean: f64, std: f64, low: f64, high: f64) -> f64 {
        let mut numbers = (0..MOST_DRAWS).map(|_| mean + std * self.normal());
        let inside = numbers.find(|number| (low..=high).contains(number));
        inside.unwrap_or_else(|| mean.max(low).min(high))
    }
}

/// Numbers that are drawn at most for one that lies within limits.
const MOST_DRAWS: usize = 1000;

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

/// A weight or bias with the default initialisation of most modules: uniform within `1 / √fan_in`, where `fan_in` is the
/// number of weights that lead to an output.
pub(in crate::trace) fn by_fan_in(shape: &[usize], fan_in: usize) -> Parameter {
    // Without inputs the bias is zero, as in PyTorch.
    let bound = if fan_in == 0 {
        0.0
    } else {
        1.0 / (fan_in as f64).sqrt()
    };
    Parameter::new(shape, uniform(-bound, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation.
    fn moments(init: Init, shape: &[usize]) -> [f64; 2] {
        let values = init.draw(shape).unwrap().to_f32();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>();
        let count = values.len() as f64;
        let average = mean(&mut values.iter().map(|x| f64::from(*x))) / count;
        let squares = &mut values.iter().map(|x| (f64::from(*x) - average).powi(2));
        [average, (mean(squares) / count).sqrt()]
    }

    /// Checks the moments of 12,800 numbers, whose deviations from those of the distribution are below 3 %.
    fn check(init: Init, std: f64) {
        let [mean, found] = moments(init, &[64, 8, 5, 5]);
        assert!(mean.abs() < 0.03 * std, "{init:?}: mean {mean}");
        assert!(
            (found / std - 1.0).abs() < 0.03,
            "{init:?}: {found}, not {std}"
        );
    }

    #[test]
    fn moments_are_those_of_pytorch() {
        let (fan_in, fan_out) = (200f64, 1600f64);
        check(uniform(-0.5, 0.5), 1.0 / 12f64.sqrt());
        check(normal(0.0, 0.02), 0.02);
        check(trunc_normal(0.0, 1.0, -2.0, 2.0), 0.8796);
        check(xavier_uniform(), (2.0 / (fan_in + fan_out)).sqrt());
        check(
            xavier_normal().gain(2.0),
            2.0 * (2.0 / (fan_in + fan_out)).sqrt(),
        );
        check(
            kaiming_uniform().a(5f64.sqrt()),
            1.0 / (3.0 * fan_in).sqrt(),
        );
        check(kaiming_normal(), (2.0 / fan_in).sqrt());
        check(kaiming_normal().fan_out(), (2.0 / fan_out).sqrt());
    }

    #[test]
    fn truncated_numbers_lie_within_their_limits() {
        let values = trunc_normal(0.0, 1.0, -0.5, 0.25).draw(&[100]).unwrap();
        assert!(values.to_f32().iter().all(|x| (-0.5..=0.25).contains(x)));
        let far = trunc_normal(0.0, 0.001, 5.0, 6.0).draw(&[1]).unwrap();
        assert_eq!(far.to_f32(), [5.0]);
    }

    #[test]
    fn vectors_of_an_orthogonal_matrix_are_orthonormal() {
        for shape in [[3, 5], [5, 3], [4, 4]] {
            let matrix = orthogonal().gain(2.0).draw(&shape).unwrap().to_f32();
            let [rows, columns] = shape;
            let (count, length) = (rows.min(columns), rows.max(columns));
            let at = |vector: usize, index: usize| match rows <= columns {
                true => matrix[vector * columns + index],
                false => matrix[index * columns + vector],
            };
            for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                let dot: f32 = (0..length).map(|index| at(a, index) * at(b, index)).sum();
                let wanted = if a == b { 4.0 } else { 0.0 };
                assert!((dot - wanted).abs() < 1e-5, "{shape:?}: {dot}");
            }
        }
    }

    #[test]
    fn a_vector_has_no_fan() {
        let error = xavier_uniform().draw(&[3]).unwrap_err();
        assert!(error.message().contains("two axes or more"), "{error}");
    }
}
