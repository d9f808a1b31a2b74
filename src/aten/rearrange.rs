//! Operators that reorder elements.

use super::concatenate::{broadcast, cat, common_dtype, concat_nonempty};
use super::positions::where_true;
use super::split::check_axis;
use super::view::unflatten;
use super::{Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::flip(Tensor self, int[] dims) -> Tensor"],
        |a| Ok(a.tensor("self").flip(&a.ints("dims"))),
        &["f32[B, 3, 4], [0, -1]", "f32[0, 2], [0]", "f32[], [0]"],
    )
    .with_strides(StrideRule::Elementwise),
    Composite::one(
        &["aten::fliplr(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").flip(&[1])),
        &["f32[B, 3]"],
    )
    .with_strides(StrideRule::Elementwise),
    Composite::one(
        &["aten::flipud(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").flip(&[0])),
        &["f32[B, 3]"],
    )
    .with_strides(StrideRule::Elementwise),
    Composite::one(
        &["aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor"],
        |a| {
            let (x, shifts, dims) = (a.tensor("self"), a.sizes("shifts"), a.ints("dims"));
            match shifts.as_slice() {
                [shift] if dims.is_empty() => {
                    Ok(roll(x.flatten(0, -1), shift, 0)?.reshape(x.shape()))
                }
                _ if shifts.len() == dims.len() => shifts
                    .iter()
                    .zip(&dims)
                    .try_fold(x, |x, (shift, dim)| roll(x, shift, *dim)),
                _ => Err(Error::operator(format!(
                    "{} shifts for {} dimensions",
                    shifts.len(),
                    dims.len()
                ))),
            }
        },
        &[
            "f32[B, 5], [2, -1], [0, 1]",
            "f32[3, 4], 1",
            "f32[4], 9, 0",
            "f32[0, 2], 1, 0",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &["aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor"],
        |a| {
            let (x, dims) = (a.tensor("self"), a.ints("dims"));
            let [first, second] = dims.as_slice() else {
                return Err(Error::operator(format!(
                    "rotates two dimensions, not {}",
                    dims.len()
                )));
            };
            Ok(match a.int("k").rem_euclid(4) {
                1 => x.flip(&[*second]).transpose(*first, *second),
                2 => x.flip(&dims),
                3 => x.flip(&[*first]).transpose(*first, *second),
                _ => x,
            })
        },
        &["f32[B, 3]", "f32[2, 3, 4], 2, [1, 2]", "f32[2, 3], -1"],
    )
    .with_strides(StrideRule::Rot90),
    Composite::one(
        &["aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor"],
        |a| fft_shift(a.tensor("self"), a.optional_ints("dim"), 0),
        &["f32[4, 5]", "f32[B, 4], 1"],
    ),
    Composite::one(
        &["aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor"],
        |a| fft_shift(a.tensor("self"), a.optional_ints("dim"), 1),
        &["f32[4, 5]", "f32[B, 4], 1"],
    ),
    Composite::one(
        &["aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor"],
        |a| {
            let (x, factor) = (a.tensor("self"), Dim::from(a.int("upscale_factor")));
            let split = unflatten(x, -3, &[Dim::from(-1), factor.clone(), factor])?;
            let lead = x.rank().saturating_sub(3);
            let order = [0, 3, 1, 4, 2].map(|axis| lead + axis);
            let mixed = split.permute((0..lead).chain(order).collect::<Vec<_>>());
            Ok(mixed.flatten(-2, -1).flatten(-3, -2))
        },
        &["f32[B, 8, 3, 4], 2", "f32[9, 2, 2], 3"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &["aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor"],
        |a| {
            let (x, factor) = (a.tensor("self"), Dim::from(a.int("downscale_factor")));
            let split = unflatten(x, -1, &[Dim::from(-1), factor.clone()])?;
            let split = unflatten(split, -3, &[Dim::from(-1), factor])?;
            let lead = x.rank().saturating_sub(3);
            let order = [0, 2, 4, 1, 3].map(|axis| lead + axis);
            let mixed = split.permute((0..lead).chain(order).collect::<Vec<_>>());
            Ok(mixed.flatten(-5, -3))
        },
        &["f32[B, 2, 6, 4], 2"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor",
            "aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let split = unflatten(x, 1, &[a.size("groups"), Dim::from(-1)])?;
            Ok(split.transpose(1, 2).flatten(1, 2))
        },
        &["f32[B, 6, 2, 2], 3"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::many(
        &[
            "aten::meshgrid(Tensor[] tensors) -> Tensor[]",
            "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]",
        ],
        |a| {
            meshgrid(
                a.builder(),
                &a.tensors("tensors"),
                a.str("indexing") == "xy",
            )
        },
        &[
            "[f32[B], f32[3]]",
            "indexing: [f32[2], f32[3], f32[4]], indexing='xy'",
        ],
    )
    .with_strides(StrideRule::ItselfOrView),
    Composite::one(
        &["aten::cartesian_prod(Tensor[] tensors) -> Tensor"],
        |a| {
            let tensors = a.tensors("tensors");
            if let [single] = tensors.as_slice() {
                return Ok(*single);
            }
            let columns = meshgrid(a.builder(), &tensors, false)?;
            let columns: Vec<Value> = columns
                .into_iter()
                .map(|grid| grid.flatten(0, -1))
                .collect();
            Ok(a.builder().stack(&columns, 1))
        },
        &["[f32[B], f32[3]]", "[f32[3]]"],
    ),
    Composite::one(
        &["aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor"],
        |a| combinations(a.tensor("self"), a.int("r"), a.bool("with_replacement")),
        &[
            "f32[4]",
            "f32[4], 3",
            "f32[3], 2, True",
            "f32[3], 0",
            "f32[2], 3",
        ],
    ),
];

/// Rotates an axis by `shift` positions to the right.
pub(super) fn roll<'g>(x: Value<'g>, shift: &Dim, dim: i64) -> Result<Value<'g>> {
    if x.numel().is(0) || x.rank() == 0 {
        return Ok(x);
    }
    check_axis(x, dim)?;
    let (size, symbols) = (x.size(dim), x.builder().symbols());
    // The result starts at `-shift` modulo the size. For a shift of less than the size that is one of these two sums.
    let (negated, complement) = (-shift, &size - shift);
    let within = |start: &Dim| -> Result<bool> {
        Ok(symbols.hint(start)? >= 0 && symbols.hint(start)? < symbols.hint(&size)?)
    };
    let start = match (within(&complement)?, within(&negated)?) {
        (true, _) => complement,
        (_, true) => negated,
        _ => negated.modulo(&size),
    };
    let length = &size - &start;
    concat_nonempty(
        x.builder(),
        &[
            x.narrow(dim, start.clone(), length),
            x.narrow(dim, 0, start),
        ],
        dim,
    )
}

/// Swaps the halves of each axis; the middle of an odd axis goes to the second half if `extra` is 0.
fn fft_shift<'g>(x: Value<'g>, dims: Option<Vec<i64>>, extra: i64) -> Result<Value<'g>> {
    let dims = dims.unwrap_or_else(|| (0i64..).take(x.rank()).collect());
    dims.iter().try_fold(x, |x, dim| {
        let half = (&x.size(*dim) + extra).floor_div(&Dim::from(2));
        roll(x, &half, *dim)
    })
}

/// Coordinate grids of vectors. With `transposed`, the first vector varies along columns and the second along rows.
fn meshgrid<'g>(
    builder: &'g Builder,
    values: &[Value<'g>],
    transposed: bool,
) -> Result<Vec<Value<'g>>> {
    let swaps_first_two = transposed && values.len() > 1;
    let axis_of = |index: usize| {
        if swaps_first_two && index < 2 {
            1 - index
        } else {
            index
        }
    };
    let reshaped: Vec<Value> = values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let mut shape = vec![Dim::ONE; values.len()];
            if let Some(size) = shape.get_mut(axis_of(index)) {
                *size = value.numel();
            }
            value.reshape(shape)
        })
        .collect();
    if values
        .iter()
        .any(|value| value.dtype() != common_dtype(values))
    {
        return Err(Error::operator("grids are made of vectors of one dtype"));
    }
    broadcast(builder, &reshaped)
}

/// All combinations of `r` elements of a vector, as rows. Elements of a row are in the order of the vector. Specialises
/// the length of the vector.
fn combinations(x: Value, r: i64, with_replacement: bool) -> Result<Value> {
    let builder = x.builder();
    let n = builder.symbols().specialize(&x.numel())?;
    let (Ok(width), true) = (usize::try_from(r), x.rank() == 1) else {
        return Err(Error::operator(format!(
            "choices of {r} elements of {}",
            x.ty()
        )));
    };
    let pool = if with_replacement { n + r - 1 } else { n };
    let total = (0..r).fold(1i64, |total, index| {
        total.saturating_mul((pool - index).max(0)) / (index + 1)
    });
    if width == 0 || total == 0 || n == 0 {
        let shape = vec![Dim::ZERO, Dim::from(if width == 0 { 0 } else { r })];
        return Ok(builder.full(
            x.dtype(),
            if width == 0 { vec![Dim::ZERO] } else { shape },
            0,
        ));
    }
    let grid = vec![Dim::from(n); width];
    let index = |axis: usize| builder.iota(DType::I64, grid.clone(), axis);
    let is_ordered = (1..width).map(|axis| {
        let (previous, current) = (index(axis - 1), index(axis));
        if with_replacement {
            previous.le(current)
        } else {
            previous.lt(current)
        }
    });
    let all_true = builder.full(DType::Bool, grid.clone(), true);
    let chosen = is_ordered.fold(all_true, Value::logical_and);
    let positions = where_true(chosen.flatten(0, -1), Dim::from(total));
    let columns = (0..width).map(|axis| {
        let stride = n.saturating_pow(u32::try_from(width - 1 - axis).unwrap_or(0));
        let element_index = positions.floor_divide(stride).remainder(n);
        x.index_select(0, element_index).unsqueeze(1)
    });
    Ok(cat(builder, &columns.collect::<Vec<_>>(), 1))
}
