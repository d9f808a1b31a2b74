//! Sampling at positions that are data: `grid_sample` and `affine_grid`.

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
    padding: i64,
    align_corners: bool,
}

/// An input element that contributes to a sample along one axis, and its weight.
#[derive(Clone, Copy)]
struct Tap<'g> {
    index: Value<'g>,
    weight: Option<Value<'g>>,
}

/// Half precision computes in half precision, as in PyTorch.
fn grid_sample<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (input, grid) = (a.tensor("input"), a.tensor("grid"));
    let (mode, padding) = (a.int("interpolation_mode"), a.int("padding_mode"));
    a.builder().check()?;
    let (shape, places) = (input.shape(), grid.shape());
    let ([batch, channels, space @ ..], [_, outputs @ .., _]) =
        (shape.as_slice(), places.as_slice())
    else {
        return Err(Error::operator("has too few dimensions"));
    };
    let input = require_elements_in_last_axes(input, space.len())?;
    let fits = space.len() == outputs.len() && (2..=3).contains(&space.len());
    let complain = || format!("samples {} at {}", input.ty(), grid.ty());
    if !fits {
        return a.reject(complain());
    }
    let width = Dim::from(space.len());
    a.builder()
        .symbols()
        .require_equal(&grid.size(-1), &width, complain)?;
    let points = vec![batch.clone(), Dim::ONE, Dim::product(outputs)];
    let mut taps = vec![];
    for (axis, size) in space.iter().enumerate() {
        let side = GridAxis {
            size: size.clone(),
            padding,
            align_corners: a.bool("align_corners"),
        };
        // The grid lists the last axis first.
        let coordinate = grid.select(-1, (space.len() - 1 - axis) as i64);
        taps.push((side.taps(coordinate.reshape(points.clone()), mode)?, side));
    }
    let flat = input.reshape(vec![batch.clone(), channels.clone(), Dim::product(space)]);
    let wanted = vec![batch.clone(), channels.clone(), Dim::product(outputs)];
    let sum = combinations(&taps)
        .into_iter()
        .map(|combination| gathered(flat, &combination, &wanted))
        .reduce(|sum, term| sum + term)
        .ok_or_else(|| Error::operator("samples nothing"))?;
    let shape = [&[batch.clone(), channels.clone()], outputs].concat();
    Ok(sum.reshape(shape))
}

/// All combinations of one tap of each axis.
fn combinations<'a, 'g>(axes: &'a [(Vec<Tap<'g>>, GridAxis)]) -> Vec<Vec<(Tap<'g>, &'a GridAxis)>> {
    axes.iter().fold(vec![vec![]], |found, (taps, side)| {
        let extended = found.iter().flat_map(|before| {
            taps.iter().map(move |tap| {
                let mut combination = before.clone();
                combination.push((*tap, side));
                combination
            })
        });
        extended.collect()
    })
}

/// The elements at one tap of each axis, weighted; zero where a tap is outside the input.
fn gathered<'g>(flat: Value<'g>, taps: &[(Tap<'g>, &GridAxis)], shape: &[Dim]) -> Value<'g> {
    let builder = flat.builder();
    let mut index = builder.full(DType::I64, vec![], 0);
    let mut inside: Option<Value<'g>> = None;
    for (tap, side) in taps {
        let within = tap.index.ge(0).logical_and(tap.index.lt(&side.size));
        inside = Some(inside.map_or(within, |inside| inside.logical_and(within)));
        let place = tap.index.maximum(0).minimum(&side.size - 1).to(DType::I64);
        index = index * &side.size + place;
    }
    let picked = flat.gather(-1, index.expand(shape.to_vec()));
    // The last axis comes first: the order of the factors changes rounding in half precision.
    let weights = taps.iter().rev().filter_map(|(tap, _)| tap.weight);
    let weight = weights.reduce(|weight, other| weight * other);
    let weighted = weight.map_or(picked, |weight| picked * weight);
    inside.map_or(weighted, |inside| inside.where_(weighted, 0.0))
}

impl GridAxis {
    /// The input elements for coordinates between -1 and 1.
    fn taps<'g>(&self, coordinate: Value<'g>, mode: i64) -> Result<Vec<Tap<'g>>> {
        if !(ZEROS..=REFLECTION).contains(&self.padding) {
            return Err(Error::unsupported(format!("padding mode {}", self.padding)));
        }
        let place = self.unnormalized(coordinate);
        let low = place.floor();
        match mode {
            NEAREST => Ok(vec![Tap {
                index: self.apply_padding(place).round(),
                weight: None,
            }]),
            LINEAR => {
                let place = self.apply_padding(place);
                let low = place.floor();
                let rest = place - low;
                let tap = |place, weight| Tap {
                    index: place,
                    weight: Some(weight),
                };
                Ok(vec![tap(low, rest.rsub(1.0)), tap(low + 1.0, rest)])
            }
            CUBIC => Ok((-1i64..)
                .zip(cubic_weights(place - low))
                .map(|(offset, weight)| Tap {
                    index: self.apply_padding(low + offset as f64),
                    weight: Some(weight),
                })
                .collect()),
            other => Err(Error::unsupported(format!("interpolation mode {other}"))),
        }
    }

    /// Converts coordinates in -1 ..= 1 to positions in elements.
    fn unnormalized<'g>(&self, coordinate: Value<'g>) -> Value<'g> {
        if self.align_corners {
            (coordinate + 1.0) * 0.5 * (&self.size - 1)
        } else {
            ((coordinate + 1.0) * &self.size - 1.0) * 0.5
        }
    }

    /// Moves a position inside the input, unless padding is zeros.
    fn apply_padding<'g>(&self, place: Value<'g>) -> Value<'g> {
        let place = match self.padding {
            ZEROS => return place,
            BORDER => place,
            _ => self.reflected(place),
        };
        place.maximum(0.0).minimum(&self.size - 1)
    }

    /// Reflects at the centres or edges of the outer elements, as often as needed.
    fn reflected<'g>(&self, place: Value<'g>) -> Value<'g> {
        let (low, span) = if self.align_corners {
            // A single element has no span to divide by; the result for span 1 is clamped afterwards.
            (0.0, (&self.size - 1).maximum(&Dim::ONE))
        } else {
            (-0.5, self.size.clone())
        };
        let distance = (place - low).abs();
        let turns = (distance / &span).floor();
        let rest = distance.fmod(&span);
        let is_forth = turns.remainder(2.0).eq(0.0);
        is_forth.where_(rest + low, rest.rsub(&span) + low)
    }
}

/// The positions of an output's elements, mapped by a matrix: `[N, H, W, 2]` or `[N, D, H, W, 3]`.
fn affine_grid<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (theta, sizes) = (a.tensor("theta"), a.sizes("size"));
    a.builder().check()?;
    let (Some(batch), Some(space)) = (sizes.first(), sizes.get(2..)) else {
        return a.reject(format!("a grid of {} sizes", sizes.len()));
    };
    let dtype = theta.to_compute().dtype();
    let line = |axis: usize, size: &Dim| {
        let mut shape = vec![Dim::ONE; space.len() + 1];
        if let Some(place) = shape.get_mut(axis) {
            *place = size.clone();
        }
        let index = a.builder().iota(dtype, shape, axis);
        let coordinate = match (a.bool("align_corners"), size.is(1)) {
            (_, true) => index * 0.0,
            (true, _) => index * 2.0 / (size - 1) - 1.0,
            (false, _) => (index * 2.0 + 1.0) / size - 1.0,
        };
        coordinate.expand([space, &[Dim::ONE]].concat())
    };
    let mut columns: Vec<Value<'g>> = space
        .iter()
        .enumerate()
        .rev()
        .map(|(axis, size)| line(axis, size))
        .collect();
    columns.push(a.builder().full(dtype, [space, &[Dim::ONE]].concat(), 1.0));
    let points = a
        .builder()
        .concat(&columns, -1)
        .reshape(vec![Dim::product(space), Dim::from(columns.len())]);
    let mapped = points.matmul(theta.to_compute().transpose(1, 2));
    let width = Dim::from(space.len());
    let shape = [std::slice::from_ref(batch), space, &[width]].concat();
    Ok(mapped.reshape(shape).to(theta.dtype()))
}
