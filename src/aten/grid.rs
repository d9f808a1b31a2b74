//! Sampling at positions that are data: `grid_sample` and `affine_grid`.
//!
//! A *coordinate* is a number of the grid: -1 and 1 are the ends of an axis. A *position* counts input elements along
//! an axis, and may be fractional. The *taps* of a position are the input elements that contribute to the sample there.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::reduce::require_elements_in_last_axes;
use super::resample::cubic_weights;
use super::{Args, Composite};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
            "aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
            "aten::grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
            "aten::_grid_sampler_2d_cpu_fallback(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
        ],
        grid_sample,
        &[
            "f32[B, 3, H, W], f32[B, 4, 5, 2], 0, 0, False",
            "f32[2, 3, 6, 7], f32[2, 4, 5, 2], 0, 1, True",
            "f32[2, 3, 6, 7], f32[2, 4, 5, 2], 1, 2, False",
            "f32[2, 3, 6, 7], f32[2, 4, 5, 2], 2, 2, True",
            "f32[2, 3, H, 1], f32[2, 4, 5, 2], 0, 2, True",
            "f16[1, 1, 6, 7], f16[1, 4, 5, 2], 2, 0, False",
            "grid_sampler_3d: f32[1, 2, 3, 4, 5], f32[1, 2, 3, 2, 3], 0, 0, False",
        ],
    ),
    Composite::one(
        &["aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor"],
        affine_grid,
        &[
            "f32[2, 2, 3], [2, 3, 4, 5], False",
            "f32[2, 3, 4], [2, 3, 4, 5, 6], True",
        ],
    ),
];

/// Interpolation modes; the codes of `GridSamplerInterpolation`.
const LINEAR: i64 = 0;
const NEAREST: i64 = 1;
const CUBIC: i64 = 2;

/// Padding modes; the codes of `GridSamplerPadding`.
const ZEROS: i64 = 0;
const BORDER: i64 = 1;
const REFLECTION: i64 = 2;

/// One spatial axis of the input.
struct GridAxis {
    size: Dim,
    /// The padding mode.
    padding: i64,
    /// Whether -1 and 1 are the centres of the outer elements, not their edges.
    align_corners: bool,
}

/// An input element that contributes to a sample along one axis, and its weight.
#[derive(Clone, Copy)]
struct Tap<'g> {
    /// Index of the element, as a float; it may be outside the input.
    index: Value<'g>,
    /// Weight of the element; `None` means 1.
    weight: Option<Value<'g>>,
}

/// Computes `torch.nn.functional.grid_sample`. Half precision computes in half precision, as in PyTorch.
fn grid_sample<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (input, grid) = (a.tensor("input"), a.tensor("grid"));
    let (mode, padding) = (a.int("interpolation_mode"), a.int("padding_mode"));
    a.builder().check()?;
    let (shape, grid_shape) = (input.shape(), grid.shape());
    let ([batch, channels, spatial_sizes @ ..], [_, output_sizes @ .., _]) =
        (shape.as_slice(), grid_shape.as_slice())
    else {
        return Err(Error::operator("has too few dimensions"));
    };
    let input = require_elements_in_last_axes(input, spatial_sizes.len())?;
    let ranks_fit =
        spatial_sizes.len() == output_sizes.len() && (2..=3).contains(&spatial_sizes.len());
    let complain = || format!("samples {} at {}", input.ty(), grid.ty());
    if !ranks_fit {
        return a.reject(complain());
    }
    let coordinate_count = Dim::from(spatial_sizes.len());
    a.builder()
        .symbols()
        .require_equal(&grid.size(-1), &coordinate_count, complain)?;
    let points = vec![batch.clone(), Dim::ONE, Dim::product(output_sizes)];
    let mut taps = vec![];
    for (axis, size) in spatial_sizes.iter().enumerate() {
        let grid_axis = GridAxis {
            size: size.clone(),
            padding,
            align_corners: a.bool("align_corners"),
        };
        // The grid lists the last axis first.
        let coordinate = grid.select(-1, (spatial_sizes.len() - 1 - axis) as i64);
        taps.push((
            grid_axis.taps(coordinate.reshape(points.clone()), mode)?,
            grid_axis,
        ));
    }
    let flat = input.reshape(vec![
        batch.clone(),
        channels.clone(),
        Dim::product(spatial_sizes),
    ]);
    let sample_shape = vec![batch.clone(), channels.clone(), Dim::product(output_sizes)];
    let sum = combinations(&taps)
        .into_iter()
        .map(|combination| gathered(flat, &combination, &sample_shape))
        .reduce(|sum, term| sum + term)
        .ok_or_else(|| Error::operator("samples nothing"))?;
    let shape = [&[batch.clone(), channels.clone()], output_sizes].concat();
    Ok(sum.reshape(shape))
}

/// All combinations of one tap of each axis. `axes` has the taps of each axis.
fn combinations<'a, 'g>(axes: &'a [(Vec<Tap<'g>>, GridAxis)]) -> Vec<Vec<(Tap<'g>, &'a GridAxis)>> {
    axes.iter()
        .fold(vec![vec![]], |partial, (taps, grid_axis)| {
            let extended = partial.iter().flat_map(|prefix| {
                taps.iter().map(move |tap| {
                    let mut combination = prefix.clone();
                    combination.push((*tap, grid_axis));
                    combination
                })
            });
            extended.collect()
        })
}

/// The weighted elements at one tap of each axis; zero where a tap is outside the input. `flat` is
/// `[batch, channels, elements]`, and `shape` that of the result, `[batch, channels, samples]`.
fn gathered<'g>(flat: Value<'g>, taps: &[(Tap<'g>, &GridAxis)], shape: &[Dim]) -> Value<'g> {
    let builder = flat.builder();
    let mut index = builder.full(DType::I64, vec![], 0);
    let mut is_inside: Option<Value<'g>> = None;
    for (tap, grid_axis) in taps {
        let tap_is_inside = tap.index.ge(0).logical_and(tap.index.lt(&grid_axis.size));
        is_inside = Some(is_inside.map_or(tap_is_inside, |is_inside| {
            is_inside.logical_and(tap_is_inside)
        }));
        let clamped = tap
            .index
            .maximum(0)
            .minimum(&grid_axis.size - 1)
            .to(DType::I64);
        index = index * &grid_axis.size + clamped;
    }
    let elements = flat.gather(-1, index.expand(shape.to_vec()));
    // The last axis comes first: the order of the factors changes rounding in half precision.
    let weights = taps.iter().rev().filter_map(|(tap, _)| tap.weight);
    let weight = weights.reduce(|weight, other| weight * other);
    let weighted = weight.map_or(elements, |weight| elements * weight);
    is_inside.map_or(weighted, |is_inside| is_inside.where_(weighted, 0.0))
}

impl GridAxis {
    /// The taps of each coordinate.
    fn taps<'g>(&self, coordinate: Value<'g>, mode: i64) -> Result<Vec<Tap<'g>>> {
        if !(ZEROS..=REFLECTION).contains(&self.padding) {
            return Err(Error::unsupported(format!("padding mode {}", self.padding)));
        }
        let position = self.unnormalized(coordinate);
        let low = position.floor();
        match mode {
            NEAREST => Ok(vec![Tap {
                index: self.apply_padding(position).round(),
                weight: None,
            }]),
            LINEAR => {
                let position = self.apply_padding(position);
                let low = position.floor();
                let fraction = position - low;
                let tap = |position, weight| Tap {
                    index: position,
                    weight: Some(weight),
                };
                Ok(vec![tap(low, fraction.rsub(1.0)), tap(low + 1.0, fraction)])
            }
            CUBIC => Ok((-1i64..)
                .zip(cubic_weights(position - low))
                .map(|(offset, weight)| Tap {
                    index: self.apply_padding(low + offset as f64),
                    weight: Some(weight),
                })
                .collect()),
            other => Err(Error::unsupported(format!("interpolation mode {other}"))),
        }
    }

    /// Converts coordinates to positions.
    fn unnormalized<'g>(&self, coordinate: Value<'g>) -> Value<'g> {
        if self.align_corners {
            (coordinate + 1.0) * 0.5 * (&self.size - 1)
        } else {
            ((coordinate + 1.0) * &self.size - 1.0) * 0.5
        }
    }

    /// Moves positions outside the input to the inside, unless the padding mode is zeros.
    fn apply_padding<'g>(&self, position: Value<'g>) -> Value<'g> {
        let position = match self.padding {
            ZEROS => return position,
            BORDER => position,
            _ => self.reflected(position),
        };
        let builder = position.builder();
        let last = builder.full(position.dtype(), [], &self.size - 1);
        // Positions on the border have no gradient, as those beyond it.
        let is_before = position.le(0.0);
        is_before.where_(0.0, position.ge(last).where_(last, position))
    }

    /// Reflects positions at the centres or edges of the outer elements, as often as needed.
    fn reflected<'g>(&self, position: Value<'g>) -> Value<'g> {
        let (low, span) = if self.align_corners {
            // A single element has no span to divide by; the result for span 1 is clamped afterwards.
            (0.0, (&self.size - 1).maximum(&Dim::ONE))
        } else {
            (-0.5, self.size.clone())
        };
        let distance = (position - low).abs();
        let reflections = (distance / &span).floor();
        let offset = distance.fmod(&span);
        let is_even = reflections.remainder(2.0).eq(0.0);
        is_even.where_(offset + low, offset.rsub(&span) + low)
    }
}

/// Computes `torch.nn.functional.affine_grid`: the coordinates of an output's elements, mapped by the matrix `theta`:
/// `[N, H, W, 2]` or `[N, D, H, W, 3]`.
fn affine_grid<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (theta, sizes) = (a.tensor("theta"), a.sizes("size"));
    a.builder().check()?;
    let (Some(batch), Some(spatial_sizes)) = (sizes.first(), sizes.get(2..)) else {
        return a.reject(format!("a grid of {} sizes", sizes.len()));
    };
    let dtype = theta.to_compute().dtype();
    let axis_coordinates = |axis: usize, size: &Dim| {
        let mut shape = vec![Dim::ONE; spatial_sizes.len() + 1];
        if let Some(axis_size) = shape.get_mut(axis) {
            *axis_size = size.clone();
        }
        let index = a.builder().iota(dtype, shape, axis);
        let coordinate = match (a.bool("align_corners"), size.is(1)) {
            (_, true) => index * 0.0,
            (true, _) => index * 2.0 / (size - 1) - 1.0,
            (false, _) => (index * 2.0 + 1.0) / size - 1.0,
        };
        coordinate.expand([spatial_sizes, &[Dim::ONE]].concat())
    };
    let mut columns: Vec<Value<'g>> = spatial_sizes
        .iter()
        .enumerate()
        .rev()
        .map(|(axis, size)| axis_coordinates(axis, size))
        .collect();
    columns.push(
        a.builder()
            .full(dtype, [spatial_sizes, &[Dim::ONE]].concat(), 1.0),
    );
    let points = a
        .builder()
        .concat(&columns, -1)
        .reshape(vec![Dim::product(spatial_sizes), Dim::from(columns.len())]);
    let mapped = points.matmul(theta.to_compute().transpose(1, 2));
    let coordinate_count = Dim::from(spatial_sizes.len());
    let shape = [
        std::slice::from_ref(batch),
        spatial_sizes,
        &[coordinate_count],
    ]
    .concat();
    Ok(mapped.reshape(shape).to(theta.dtype()))
}
