//! Padding.

use super::split::{INDEX_DTYPE, check_axis};
use super::{Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{ArithmeticOperand, Value};
use crate::scalar::Scalar;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor",
        ],
        |a| {
            let (x, pad) = (a.tensor("self"), a.sizes("pad"));
            match (a.str("mode").as_str(), a.optional_scalar("value")) {
                ("constant", value) => constant(x, &pad, value.unwrap_or(Scalar::Int(0))),
                (_, Some(value)) if value.to_f64() != 0.0 => {
                    a.reject("only constant padding takes a value")
                }
                ("reflect", _) => pad_by_mode(x, &pad, PadMode::Reflect),
                ("replicate", _) => pad_by_mode(x, &pad, PadMode::Replicate),
                ("circular", _) => pad_by_mode(x, &pad, PadMode::Circular),
                (mode, _) => a.reject(format!("mode = {mode:?}")),
            }
        },
        &[
            "f32[B, 3], [1, 2]",
            "f32[2, 3], [-1, 2, 0, 1], value=2.5",
            "f32[B, 2, 4], [2, 1], mode='reflect'",
            "f32[2, 3, 4], [1, 2, 0, 1], mode='replicate'",
            "f32[2, 3, 4], [4, 2], mode='circular'",
            "f32[0, 3], [1, 1, 2, 0]",
        ],
    )
    .with_strides(StrideRule::Padded),
    Composite::one(
        &["aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"],
        |a| {
            let (x, pad) = (a.tensor("self"), a.sizes("pad"));
            match a.number("value") {
                ArithmeticOperand::Value(value) => {
                    let everywhere = a.builder().full(DType::Bool, x.shape(), true);
                    let inside = constant(everywhere, &pad, Scalar::Bool(false))?;
                    let value = value.reshape(Shape::new()).to(x.dtype());
                    Ok(inside.where_(constant(x, &pad, Scalar::Int(0))?, value))
                }
                _ => constant(x, &pad, a.scalar("value")),
            }
        },
        &[
            "f32[B, 3], [1, 2], 1.5",
            "i64[2, 3], [-1, 0, 1, 1], 7",
            "bool[3], [1, 0]",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &["aten::_pad_enum(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor"],
        |a| {
            let (x, pad) = (a.tensor("self"), a.sizes("pad"));
            match a.int("mode") {
                0 => pad_by_mode(x, &pad, PadMode::Reflect),
                1 => pad_by_mode(x, &pad, PadMode::Replicate),
                2 => pad_by_mode(x, &pad, PadMode::Circular),
                3 => constant(
                    x,
                    &pad,
                    a.optional_scalar("value").unwrap_or(Scalar::Int(0)),
                ),
                mode => a.reject(format!("mode = {mode}")),
            }
        },
        &["f32[B, 2, 4], [1, 2], 0"],
    ),
    Composite::one(
        &["aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor"],
        |a| pad_by_mode(a.tensor("self"), &a.sizes("pad"), PadMode::Circular),
        &["f32[B, 2, 4], [1, 2]"],
    )
    .with_strides(StrideRule::Standard),
    Composite::one(
        &[
            "aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor",
            "aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor",
            "aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor",
        ],
        |a| pad_by_mode(a.tensor("self"), &a.sizes("padding"), PadMode::Reflect),
        &["f32[B, 2, 4], [1, 2]"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor",
            "aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor",
            "aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor",
        ],
        |a| pad_by_mode(a.tensor("self"), &a.sizes("padding"), PadMode::Replicate),
        &["f32[B, 2, 4], [1, 2]"],
    )
    .with_strides(StrideRule::Suggested),
];

/// Numbers of elements to add in front of and behind each axis. PyTorch's list `pad` has a pair for each padded axis
/// and begins with the last axis.
fn by_axis(pad: &[Dim], rank: usize) -> Result<(Vec<Dim>, Vec<Dim>)> {
    let pairs: Vec<(&Dim, &Dim)> = pad
        .chunks_exact(2)
        .filter_map(|pair| Some((pair.first()?, pair.last()?)))
        .collect();
    if !pad.len().is_multiple_of(2) || pairs.len() > rank {
        return Err(Error::operator(format!(
            "{} paddings for {rank} dimensions",
            pad.len()
        )));
    }
    let untouched = std::iter::repeat_n((Dim::ZERO, Dim::ZERO), rank - pairs.len());
    let padded = pairs
        .into_iter()
        .rev()
        .map(|(low, high)| (low.clone(), high.clone()));
    Ok(untouched.chain(padded).unzip())
}

/// Pads with a number. `pad` is PyTorch's list; negative padding crops.
pub(super) fn constant<'g>(x: Value<'g>, pad: &[Dim], value: Scalar) -> Result<Value<'g>> {
    let (low, high) = by_axis(pad, x.rank())?;
    Ok(x.pad(&low, &high, value))
}

/// The extension of an axis beyond its ends.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum PadMode {
    /// The axis is mirrored at its end elements.
    Reflect,
    /// The end elements are repeated.
    Replicate,
    /// The axis is repeated.
    Circular,
}

/// Pads with the value's own elements, each padded axis by the mode. Negative padding crops.
pub(super) fn pad_by_mode<'g>(x: Value<'g>, pad: &[Dim], mode: PadMode) -> Result<Value<'g>> {
    let (low, high) = by_axis(pad, x.rank())?;
    // Circular padding repeats only the elements that negative padding leaves.
    let cropping = |pad: &[Dim]| -> Vec<Dim> {
        let negative = |dim: &Dim| dim.as_const().is_some_and(|number| number < 0);
        pad.iter()
            .map(|dim| {
                if negative(dim) {
                    dim.clone()
                } else {
                    Dim::ZERO
                }
            })
            .collect()
    };
    let (x, low, high) = if mode == PadMode::Circular {
        let (crop_low, crop_high) = (cropping(&low), cropping(&high));
        let without_cropping = |pad: Vec<Dim>, crop: &[Dim]| {
            pad.iter()
                .zip(crop)
                .map(|(padding, crop)| padding - crop)
                .collect()
        };
        (
            x.pad(&crop_low, &crop_high, 0),
            without_cropping(low, &crop_low),
            without_cropping(high, &crop_high),
        )
    } else {
        (x, low, high)
    };
    let pairs = low.iter().zip(&high);
    (0i64..).zip(pairs).try_fold(x, |x, (dim, (low, high))| {
        if low.is(0) && high.is(0) {
            return Ok(x);
        }
        check_axis(x, dim)?;
        let size = x.size(dim);
        check_width(x, dim, low, mode)?;
        check_width(x, dim, high, mode)?;
        let length = &(&size + low) + high;
        let position = x.builder().iota(INDEX_DTYPE, vec![length], 0) - low;
        let last = &size - 1;
        let source = match mode {
            // Symmetric about 0 and about the last element: `|p|`, then `last - |last - p|`.
            PadMode::Reflect => (position.abs().rsub(&last)).abs().rsub(&last),
            PadMode::Replicate => position.clamp(Some(0.into()), Some(last.into())),
            PadMode::Circular => position.remainder(&size),
        };
        Ok(x.index_select(dim, source))
    })
}

/// Requires that padding of `width` elements on one side of an axis is no wider than the mode allows.
fn check_width(x: Value, dim: i64, width: &Dim, mode: PadMode) -> Result<()> {
    let symbols = x.builder().symbols();
    let limit = match mode {
        PadMode::Reflect => &x.size(dim) - 1,
        PadMode::Circular => x.size(dim),
        PadMode::Replicate => return Ok(()),
    };
    if !symbols.less_equal(width, &limit)? {
        return Err(Error::operator(format!(
            "padding {width} is wider than axis {dim} of {} allows",
            x.ty()
        )));
    }
    Ok(())
}
