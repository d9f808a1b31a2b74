//! Comparisons, tests of numbers, and selection by them.

use super::pointwise::binary;
use super::{Args, Composite, StrideRule};
use crate::dtype::{Category, DType};
use crate::error::Result;
use crate::ir::{ArithmeticOperand, Value};
use crate::op::BinaryFunction;

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &[
            "aten::eq.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::eq.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Eq),
        &[
            "Tensor: f32[B, 3], f32[3]",
            "Tensor: i64[3], f16[3]",
            "Scalar: i64[3], 1.5",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::ne.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::ne.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::not_equal.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::not_equal.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Ne),
        &["ne.Tensor: f32[B, 3], f32[3]", "ne.Scalar: bool[3], 1"],
    ),
    Composite::elementwise(
        &[
            "aten::lt.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::lt.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::less.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::less.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Lt),
        &["lt.Tensor: f32[B, 3], f32[3]", "lt.Scalar: i32[3], 1"],
    ),
    Composite::elementwise(
        &[
            "aten::le.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::le.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::less_equal.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::less_equal.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Le),
        &["le.Tensor: f32[B, 3], f32[3]", "le.Scalar: i32[3], 1"],
    ),
    Composite::elementwise(
        &[
            "aten::gt.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::gt.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::greater.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::greater.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Gt),
        &["gt.Tensor: f32[B, 3], f32[3]", "gt.Scalar: i32[3], 1"],
    ),
    Composite::elementwise(
        &[
            "aten::ge.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::ge.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::greater_equal.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::greater_equal.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Ge),
        &["ge.Tensor: f32[B, 3], f32[3]", "ge.Scalar: i32[3], 1"],
    ),
    Composite::elementwise(
        &[
            "aten::isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
        ],
        isclose,
        &[
            "f32[B, 3], f32[3]",
            "i64[3], i64[3], rtol=0.5",
            "f32[3], f32[3], equal_nan=True",
        ],
    ),
    Composite::elementwise(
        &["aten::isnan(Tensor self) -> Tensor"],
        |a| Ok(float_test(a, |x| x.isnan())),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::isinf(Tensor self) -> Tensor"],
        |a| Ok(float_test(a, |x| x.abs().eq(f64::INFINITY))),
        &["f32[B, 3]", "bool[3]"],
    ),
    Composite::elementwise(
        &["aten::isposinf(Tensor self) -> Tensor"],
        |a| Ok(float_test(a, |x| x.eq(f64::INFINITY))),
        &["f32[B, 3]"],
    ),
    Composite::elementwise(
        &["aten::isneginf(Tensor self) -> Tensor"],
        |a| Ok(float_test(a, |x| x.eq(f64::NEG_INFINITY))),
        &["f32[B, 3]"],
    ),
    Composite::elementwise(
        &["aten::isfinite(Tensor self) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            Ok(if x.dtype().is_float() {
                x.isfinite()
            } else {
                constant(x, true)
            })
        },
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::isreal(Tensor self) -> Tensor"],
        |a| Ok(constant(a.tensor("self"), true)),
        &["f32[B, 3]"],
    ),
    Composite::elementwise(
        &["aten::signbit(Tensor self) -> Tensor"],
        signbit,
        &["f32[B, 3]", "i64[3]", "bool[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor",
            "aten::isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> Tensor",
            "aten::isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor",
        ],
        isin,
        &[
            "f32[B, 3], f32[2, 2]",
            "i64[3], i64[2], invert=True",
            "Tensor_Scalar: i64[3], 2",
            "Scalar_Tensor: 2, i64[3]",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor",
            "aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
            "aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
            "aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor",
        ],
        |a| {
            Ok(a.tensor("condition")
                .where_(a.number("self"), a.number("other")))
        },
        &[
            "bool[B, 3], f32[3], f16[B, 1]",
            "ScalarSelf: bool[3], 1.5, i64[3]",
            "ScalarOther: bool[3], i64[3], 2",
            "Scalar: bool[3], 1, 2",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
            "aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
        ],
        masked_fill,
        &[
            "Scalar: f32[B, 3], bool[3], -inf",
            "Scalar: i64[3], bool[2, 1], 2.7",
            "Tensor: f16[3], bool[3], f32[]",
        ],
    )
    .with_strides(StrideRule::Standard),
];

/// A `bool` tensor of the shape of `x` that has one value everywhere.
fn constant(x: Value, value: bool) -> Value {
    x.builder().full(DType::Bool, x.shape(), value)
}

/// Applies a test to floats; it is false for all integers and `bool`s.
fn float_test<'g>(a: &Args<'g>, test: fn(Value<'g>) -> Value<'g>) -> Value<'g> {
    let x = a.tensor("self");
    if x.dtype().is_float() {
        test(x)
    } else {
        constant(x, false)
    }
}

/// Whether the sign bit of a float is set, which it is for -0.0; for integers, whether they are negative.
fn signbit<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    Ok(match x.dtype().category() {
        Category::Float => x.signbit(),
        Category::Integer => x.lt(0),
        Category::Bool => constant(x, false),
    })
}

/// Whether elements are equal, or finite and apart by at most `atol + rtol · |other|`
/// (`aten/src/ATen/native/TensorCompare.cpp`).
fn isclose<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, y) = (a.tensor("self"), a.tensor("other"));
    let (rtol, atol) = (a.float("rtol"), a.float("atol"));
    let both_nan = || x.ne(x).logical_and(y.ne(y));
    let equal = x.eq(y);
    let equal = if a.bool("equal_nan") {
        equal.logical_or(both_nan())
    } else {
        equal
    };
    if rtol == 0.0 && atol == 0.0 {
        return Ok(equal);
    }
    let (x, y) = (x.to_float(), y.to_float());
    let (allowed, distance) = ((y * rtol).abs() + atol, (x - y).abs());
    Ok(equal.logical_or(distance.isfinite().logical_and(distance.le(allowed))))
}

/// Whether each element equals any of the test elements.
fn isin<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (elements, tests) = match a.overload() {
        "Scalar_Tensor" => (
            a.number("element"),
            a.tensor("test_elements").flatten(0, -1).into(),
        ),
        "Tensor_Scalar" => (
            a.tensor("elements").unsqueeze(-1).into(),
            a.number("test_element"),
        ),
        _ => (
            a.tensor("elements").unsqueeze(-1).into(),
            ArithmeticOperand::Value(a.tensor("test_elements").flatten(0, -1)),
        ),
    };
    let is_in = a
        .builder()
        .combine(BinaryFunction::Eq, elements, tests)
        .any(&[-1], false);
    Ok(if a.bool("invert") {
        is_in.logical_not()
    } else {
        is_in
    })
}

/// Replaces the elements under a mask by a value. The result has the tensor's dtype, whatever the dtype of the value.
fn masked_fill<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, mask) = (a.tensor("self"), a.tensor("mask"));
    let value = match a.number("value") {
        ArithmeticOperand::Value(value) => value.to(x.dtype()).into(),
        ArithmeticOperand::Scalar(value) => value.cast(x.dtype()).into(),
        size => size,
    };
    Ok(mask.where_(value, x).to(x.dtype()))
}
