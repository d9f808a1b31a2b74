//! Resampling along one axis: source positions of output elements, and interpolation between the input elements around them.
//!
//! Source positions are computed from indices, so that sizes may be symbolic, and in `f32` as in PyTorch
//! (`aten/src/ATen/native/UpSample.h`), or in `f64` for `f64` inputs.

use std::f64::consts::PI;

use super::split::INDEX_DTYPE;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{ArithmeticOperand, Value};
use crate::scalar::round;

/// Interpolation of input elements around a source position.
#[derive(Clone, Copy)]
pub(super) enum Interpolation {
    /// The element at or before the position.
    Nearest,
    /// The element whose centre is nearest.
    NearestExact,
    /// Linear interpolation of two neighbours.
    Linear,
    /// Keys' cubic convolution of four neighbours, with `a = -0.75`.
    Cubic,
    /// Antialiased: a triangle as wide as two output elements.
    AntialiasLinear,
    /// Antialiased: Keys' cubic convolution with `a = -0.5`, as wide as four output elements.
    AntialiasCubic,
    /// Antialiased: a windowed sinc, as wide as six output elements.
    AntialiasLanczos,
}

/// An axis to be resampled.
pub(super) struct ResampledAxis<'g> {
    /// The value to be resampled.
    x: Value<'g>,
    dim: i64,
    /// Size of the axis in the input.
    input: Dim,
    /// Size of the axis in the output.
    output: Dim,
    /// Input elements per output element.
    ratio: ArithmeticOperand<'g>,
    /// Scale that the caller gave instead of the quotient of the sizes.
    scale: Option<f64>,
    /// True if the centres of the first and last elements coincide in input and output, instead of the outer edges.
    align_corners: bool,
}

impl Interpolation {
    /// Resamples a value along an axis.
    pub fn apply<'g>(self, x: Value<'g>, axis: &ResampledAxis<'g>) -> Value<'g> {
        match self {
            Interpolation::Nearest => x.index_select(axis.dim, axis.nearest()),
            Interpolation::NearestExact => {
                let position = ((axis.outputs() + 0.5) * axis.ratio.clone()).floor();
                x.index_select(axis.dim, axis.clamped_index(position))
            }
            Interpolation::Linear => axis.linear(x),
            Interpolation::Cubic => axis.cubic(x),
            Interpolation::AntialiasLinear => axis.antialiased(x, 2, triangle),
            Interpolation::AntialiasCubic => axis.antialiased(x, 4, keys),
            Interpolation::AntialiasLanczos => axis.antialiased(x, 6, lanczos),
        }
    }
}

impl<'g> ResampledAxis<'g> {
    pub fn new(
        x: Value<'g>,
        dim: i64,
        output: &Dim,
        scale: Option<f64>,
        align_corners: bool,
    ) -> ResampledAxis<'g> {
        let input = x.size(dim);
        let dtype = compute_dtype(x);
        let ratio = match scale {
            _ if align_corners => quotient(x, dtype, &(&input - 1), &(output - 1)),
            Some(scale) => ArithmeticOperand::from(round(1.0 / scale, dtype)),
            None => quotient(x, dtype, &input, output),
        };
        ResampledAxis {
            x,
            dim,
            input,
            output: output.clone(),
            ratio,
            scale,
            align_corners,
        }
    }

    /// Indices of the output elements in the compute dtype.
    fn outputs(&self) -> Value<'g> {
        let shape = vec![self.output.clone()];
        self.x.builder().iota(compute_dtype(self.x), shape, 0)
    }

    /// A position as an index, clamped to the last element.
    fn clamped_index(&self, position: Value<'g>) -> Value<'g> {
        position.to(INDEX_DTYPE).minimum(&self.input - 1)
    }

    /// Source index of each output element for [`Interpolation::Nearest`].
    fn nearest(&self) -> Value<'g> {
        let builder = self.x.builder();
        let index = builder.iota(INDEX_DTYPE, vec![self.output.clone()], 0);
        let scales_by = |factor: f64| self.scale.is_none_or(|scale| scale == factor);
        if self.output == self.input && scales_by(1.0) {
            index
        } else if (&self.output - &(&self.input * 2)).is(0) && scales_by(2.0) {
            index.floor_divide(2)
        } else {
            self.clamped_index((self.outputs() * self.ratio.clone()).floor())
        }
    }

    /// Source positions: of the elements' centres, unless the corners are aligned.
    fn source_positions(&self) -> Value<'g> {
        if self.align_corners {
            self.outputs() * self.ratio.clone()
        } else {
            (self.outputs() + 0.5) * self.ratio.clone() - 0.5
        }
    }

    /// The element at or before each position, and the fraction from it to the position.
    fn split(&self, positions: Value<'g>) -> (Value<'g>, Value<'g>) {
        let index = self.clamped_index(positions.floor());
        let fraction = positions - index.to(positions.dtype());
        (index, fraction.clamp(Some(0.0.into()), Some(1.0.into())))
    }

    /// Resamples by [`Interpolation::Linear`].
    fn linear(&self, x: Value<'g>) -> Value<'g> {
        if self.output == self.input && (self.scale.is_some() || !self.align_corners) {
            return x;
        }
        let positions = if self.align_corners {
            self.source_positions()
        } else {
            self.source_positions().maximum(0.0)
        };
        let (index, fraction) = self.split(positions);
        let next = (index + 1).minimum(&self.input - 1);
        let fraction = self.along(fraction);
        let (lower, upper) = (
            x.index_select(self.dim, index),
            x.index_select(self.dim, next),
        );
        lower * fraction.rsub(1.0) + upper * fraction
    }

    /// Resamples by [`Interpolation::Cubic`].
    fn cubic(&self, x: Value<'g>) -> Value<'g> {
        let (index, fraction) = self.split(self.source_positions());
        let weights = cubic_weights(fraction);
        let taps = (-1i64..).zip(weights).map(|(offset, weight)| {
            let index = (index + offset).maximum(0).minimum(&self.input - 1);
            x.index_select(self.dim, index) * self.along(weight)
        });
        taps.reduce(|sum, tap| sum + tap).unwrap_or(x)
    }

    /// Resamples by a filter. It weights every input element within its width by the distance from the source position,
    /// measured in output elements, or in input elements where the output is finer. `width` is the width of the filter
    /// in that unit.
    fn antialiased(
        &self,
        x: Value<'g>,
        width: i64,
        filter: fn(Value<'g>) -> Value<'g>,
    ) -> Value<'g> {
        let builder = x.builder();
        let dtype = compute_dtype(x);
        let ratio = builder.full(dtype, vec![], self.ratio.clone());
        let unit = ratio.maximum(1.0);
        let radius = unit * (width as f64 / 2.0);
        let centre = (self.outputs() + 0.5) * ratio;
        let low = (centre - radius + 0.5).trunc().maximum(0.0);
        let high = (centre + radius + 0.5).trunc().minimum(&self.input);
        let taps = self.taps(width);
        let position = low.unsqueeze(1) + builder.iota(dtype, vec![taps.clone()], 0);
        let distance = (position - centre.unsqueeze(1) + 0.5) / unit;
        let weights = position.lt(high.unsqueeze(1)).where_(filter(distance), 0.0);
        let total = weights.sum(&[1], true);
        let weights = weights / total.eq(0.0).where_(1.0, total);

        let mut shape = x.shape();
        let axis = x.axis(self.dim).unwrap_or(0);
        let trailing = shape.split_off(shape.len().min(axis + 1));
        shape.truncate(axis);
        shape.extend([self.output.clone(), taps]);
        shape.extend(trailing);
        let picked = x
            .index_select(self.dim, self.clamped_index(position).flatten(0, 1))
            .reshape(shape);
        let mut weights_shape = weights.shape();
        weights_shape.resize(x.rank().saturating_sub(axis) + 1, Dim::ONE);
        (picked * weights.reshape(weights_shape)).sum(&[axis as i64 + 1], false)
    }

    /// Number of input elements that a filter of `width` can touch: `2·ceil(radius) + 1`.
    fn taps(&self, width: i64) -> Dim {
        let half = width / 2;
        let radius = match &self.ratio {
            ArithmeticOperand::Scalar(ratio) => {
                Dim::from((ratio.to_f64().max(1.0) * half as f64).ceil() as i64)
            }
            _ => {
                let (numerator, denominator) = if self.align_corners {
                    (&self.input - 1, (&self.output - 1).maximum(&Dim::ONE))
                } else {
                    (self.input.clone(), self.output.clone())
                };
                (numerator * half)
                    .ceil_div(&denominator)
                    .maximum(&Dim::from(half))
            }
        };
        radius * 2 + 1
    }

    /// Reshapes a vector with a number for each output element so that it broadcasts along the axis.
    fn along(&self, numbers: Value<'g>) -> Value<'g> {
        let mut shape = vec![Dim::ONE; self.x.rank()];
        if let Some(size) = self.x.axis(self.dim).and_then(|axis| shape.get_mut(axis)) {
            *size = self.output.clone();
        }
        numbers.reshape(shape)
    }
}

/// The dtype in which source positions and weights are computed.
fn compute_dtype(x: Value) -> DType {
    if x.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// A quotient of sizes; 0 if the divisor is not positive. The result is a number if it does not depend on symbols, otherwise
/// a value computed when the graph runs.
fn quotient<'g>(
    x: Value<'g>,
    dtype: DType,
    numerator: &Dim,
    denominator: &Dim,
) -> ArithmeticOperand<'g> {
    let builder = x.builder();
    let number = |above: i64, beneath: i64| {
        let exact = if 0 < beneath {
            above as f64 / beneath as f64
        } else {
            0.0
        };
        ArithmeticOperand::from(round(exact, dtype))
    };
    if let (Some(above), Some(beneath)) = (numerator.as_const(), denominator.as_const()) {
        return number(above, beneath);
    }
    let symbols = builder.symbols();
    if let (Ok(a), Ok(b)) = (symbols.hint(numerator), symbols.hint(denominator)) {
        // Sizes in a fixed proportion, such as H and 2·H.
        if 0 < b && (numerator * b - denominator * a).is(0) {
            return number(a, b);
        }
    }
    let value = |dim: &Dim| builder.full(dtype, vec![], dim);
    let divisor = value(denominator);
    let exact = value(numerator) / divisor.maximum(1.0);
    ArithmeticOperand::Value(divisor.gt(0.0).where_(exact, 0.0))
}

/// Weights of the elements at -1, 0, 1 and 2 for a position between 0 and 1: Keys' cubic convolution with `a = -0.75`.
pub(super) fn cubic_weights(position: Value) -> [Value; 4] {
    const A: f64 = -0.75;
    [
        keys_far(position + 1.0, A),
        keys_near(position, A),
        keys_near(position.rsub(1.0), A),
        keys_far(position.rsub(2.0), A),
    ]
}

/// Keys' kernel for distances up to 1.
fn keys_near(x: Value, a: f64) -> Value {
    (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0
}

/// Keys' kernel for distances between 1 and 2.
fn keys_far(x: Value, a: f64) -> Value {
    ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
}

/// The filter of [`Interpolation::AntialiasLinear`].
fn triangle(x: Value) -> Value {
    x.abs().rsub(1.0).maximum(0.0)
}

/// The filter of [`Interpolation::AntialiasCubic`].
fn keys(x: Value) -> Value {
    const A: f64 = -0.5;
    let x = x.abs();
    let far = x.lt(2.0).where_(keys_far(x, A), 0.0);
    x.lt(1.0).where_(keys_near(x, A), far)
}

/// The filter of [`Interpolation::AntialiasLanczos`].
fn lanczos(x: Value) -> Value {
    let inside = x.ge(-3.0).logical_and(x.lt(3.0));
    inside.where_(sinc(x) * sinc(x / 3.0), 0.0)
}

/// `sin πx / πx`
fn sinc(x: Value) -> Value {
    let angle = x * PI;
    let is_zero = angle.eq(0.0);
    is_zero.where_(1.0, angle.sin() / is_zero.where_(1.0, angle))
}
