//! Tensor creation: constants, ranges, and `*_like`.

use super::positions::{above_diagonal, spaced};
use super::{Args, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, ArithmeticOperand, Value};
use crate::op::BinaryFunction;
use crate::scalar::Scalar;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
            "aten::empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::empty_permuted(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::_efficientzerotensor(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            Ok(a.builder().full(
                a.dtype("dtype").unwrap_or(DType::F32),
                a.sizes("size"),
                false,
            ))
        },
        &["[2, 3]", "[], dtype=i64", "[0, 2], dtype=bool"],
    )
    .with_strides(StrideRule::StrideArgument),
    Composite::one(
        &[
            "aten::ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            Ok(a.builder().full(
                a.dtype("dtype").unwrap_or(DType::F32),
                a.sizes("size"),
                true,
            ))
        },
        &["[2, 3]", "[], dtype=i64", "[2], dtype=bool"],
    ),
    Composite::one(
        &[
            "aten::full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let value = a.number("fill_value");
            let dtype = a.dtype("dtype").unwrap_or(number_dtype(&value));
            Ok(a.builder().full(dtype, a.sizes("size"), value))
        },
        &["[2, 3], 1.5", "[2], 7", "[2], True", "[2], 2.5, dtype=i32"],
    ),
    Composite::one(
        &[
            "aten::scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            Ok(a.builder().full(
                a.dtype("dtype").unwrap_or(DType::F32),
                Shape::new(),
                a.number("s"),
            ))
        },
        &["2.5", "3, dtype=i64"],
    ),
    Composite::one(
        &[
            "aten::zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
            "aten::empty_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
            "aten::zero(Tensor self) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.tensor("self").shape(), false)),
        &["f32[B, 3]", "f32[2], dtype=i64"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.tensor("self").shape(), true)),
        &["f32[B, 3]", "bool[2]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.tensor("self").shape(), a.number("fill_value"))),
        &["f32[B, 3], 2", "i64[2], 1.5"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::fill.Scalar(Tensor self, Scalar value) -> Tensor",
            "aten::fill.Tensor(Tensor self, Tensor value) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.tensor("self").shape(), a.number("value"))),
        &["f32[B, 3], 2", "Tensor: f32[2], i64[]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.sizes("size"), false)),
        &["i64[B], [2, 3]"],
    )
    .with_strides(StrideRule::StrideArgument),
    Composite::one(
        &[
            "aten::new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.sizes("size"), true)),
        &["i64[B], [2, 3]"],
    ),
    Composite::one(
        &[
            "aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| Ok(filled_like(a, a.sizes("size"), a.number("fill_value"))),
        &["i64[B], [2, 3], 7"],
    ),
    Composite::one(
        &[
            "aten::eye(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::eye.m(SymInt n, SymInt m, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let rows = a.size("n");
            let columns = if a.has("m") {
                a.size("m")
            } else {
                rows.clone()
            };
            let is_diagonal = above_diagonal(a.builder(), &rows, &columns).eq(0);
            Ok(is_diagonal.to(a.dtype("dtype").unwrap_or(DType::F32)))
        },
        &["3", "m: 2, 3, dtype=i64", "0"],
    ),
    Composite::one(
        &[
            "aten::arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        arange,
        &[
            "5",
            "start: 2, 9, dtype=f32",
            "start_step: 9, 0, -2",
            "0.0",
            "start_step: 0.5, 3, 0.4",
        ],
    ),
    Composite::one(
        &[
            "aten::linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::linspace.Tensor_Tensor(Tensor start, Tensor end, int steps, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::linspace.Tensor_Scalar(Tensor start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::linspace.Scalar_Tensor(Scalar start, Tensor end, int steps, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let dtype = a.dtype("dtype").unwrap_or(DType::F32);
            let compute_dtype = if dtype.is_float() { dtype } else { DType::I64 };
            Ok(linspace(a, dtype, compute_dtype)?.to(dtype))
        },
        &["0.0, 1.0, 5", "-2, 2, 4, dtype=i64", "1, 2, 1", "1, 2, 0"],
    ),
    Composite::one(
        &[
            "aten::logspace(Scalar start, Scalar end, int steps, float base=10., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::logspace.Tensor_Tensor(Tensor start, Tensor end, int steps, float base=10., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::logspace.Tensor_Scalar(Tensor start, Scalar end, int steps, float base=10., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::logspace.Scalar_Tensor(Scalar start, Tensor end, int steps, float base=10., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let dtype = a.dtype("dtype").unwrap_or(DType::F32);
            let exponents = linspace(a, dtype, compute_float(dtype))?;
            let powers = a
                .builder()
                .combine(BinaryFunction::Pow, a.float("base"), exponents);
            Ok(powers.to(dtype))
        },
        &["0, 2, 3", "1.0, 2.0, 4, 2.0"],
    ),
    Composite::one(
        &["aten::_shape_as_tensor(Tensor self) -> Tensor"],
        |a| {
            let (builder, shape) = (a.builder(), a.tensor("self").shape());
            if shape.is_empty() {
                return Ok(builder.full(DType::I64, vec![Dim::ZERO], 0));
            }
            let sizes: Vec<Value> = shape
                .iter()
                .map(|size| builder.full(DType::I64, vec![Dim::ONE], size))
                .collect();
            Ok(builder.concat(&sizes, 0))
        },
        &["f32[B, 3]", "f32[]"],
    ),
    Composite::one(
        &[
            "aten::tensor.int(int t, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
            "aten::tensor.bool(bool t, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
            "aten::tensor.float(float t, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
        ],
        |a| {
            let value = a.number("t");
            let dtype = a.dtype("dtype").unwrap_or(number_dtype(&value));
            Ok(a.builder().full(dtype, Shape::new(), value))
        },
        &["3", "float: 2.5", "bool: True"],
    ),
];

/// The dtype that PyTorch infers for a number, or that of a tensor.
fn number_dtype(number: &ArithmeticOperand) -> DType {
    match number {
        ArithmeticOperand::Value(value) => value.dtype(),
        ArithmeticOperand::Scalar(scalar) => scalar.dtype(),
        ArithmeticOperand::Size(_) => DType::I64,
    }
}

/// A tensor filled with `number`. Its dtype is the argument `dtype`, or that of `self`.
fn filled_like<'g>(
    a: &Args<'g>,
    shape: Shape,
    number: impl Into<ArithmeticOperand<'g>>,
) -> Value<'g> {
    let dtype = a.dtype("dtype").unwrap_or(a.tensor("self").dtype());
    a.builder().full(dtype, shape, number)
}

/// Computes `torch.arange`; bounds and step may be symbolic sizes if no argument is a float.
fn arange<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let is_float = |name: &str| matches!(a.get(name), Argument::Number(Scalar::Float(_)));
    if ["start", "end", "step"].into_iter().any(is_float) {
        return arange_float(a);
    }
    let start = if a.has("start") {
        integer(a, "start")?
    } else {
        Dim::ZERO
    };
    let step = if a.has("step") {
        integer(a, "step")?
    } else {
        Dim::ONE
    };
    let symbols = a.builder().symbols();
    if !symbols.less_equal(&Dim::ONE, &step)? && !symbols.less_equal(&step, &Dim::from(-1))? {
        return Err(Error::operator("a range with step 0"));
    }
    let distance = &integer(a, "end")? - &start;
    let length = distance.ceil_div(&step);
    if !a.builder().symbols().less_equal(&Dim::ZERO, &length)? {
        return Err(Error::operator(format!(
            "a range over {distance} by steps of {step}"
        )));
    }
    let index = a.builder().iota(DType::I64, vec![length], 0);
    let scaled = if step.is(1) { index } else { index * &step };
    let range = if start.is(0) { scaled } else { scaled + &start };
    Ok(range.to(a.dtype("dtype").unwrap_or(DType::I64)))
}

/// An integer argument as a size. Fails for tensors.
fn integer(a: &Args, name: &str) -> Result<Dim> {
    match a.get(name) {
        Argument::Size(dim) => Ok(dim),
        Argument::Number(scalar) => Ok(Dim::from(scalar.to_i64())),
        _ => a.reject(format!(
            "{name} is an element of a tensor; the size of the result depends on data"
        )),
    }
}

/// [`arange`] for calls with a float among the bounds and the step. All three must be known.
fn arange_float<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let start = if a.has("start") {
        a.float("start")
    } else {
        0.0
    };
    let step = if a.has("step") { a.float("step") } else { 1.0 };
    let dtype = a.dtype("dtype").unwrap_or(DType::F32);
    let end = a.float("end");
    // PyTorch truncates the bounds of an `i64` range before it counts the elements; for other integers, after.
    let length = if dtype == DType::I64 {
        ((end.trunc() - start.trunc()) / step.trunc()).ceil()
    } else {
        ((end - start) / step).ceil()
    };
    if !(0.0..=f64::from(i32::MAX)).contains(&length) {
        return Err(Error::operator(format!(
            "a range from {start} to {end} by steps of {step}"
        )));
    }
    let compute_dtype = if dtype.is_float() {
        compute_float(dtype)
    } else {
        DType::I64
    };
    let index = a
        .builder()
        .iota(compute_dtype, vec![Dim::from(length as i64)], 0);
    if dtype.is_float() {
        Ok((index * step + start).to(dtype))
    } else {
        Ok((index * (step as i64) + start as i64).to(dtype))
    }
}

/// The float dtype in which values of a dtype are computed: at least single precision.
fn compute_float(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Evenly spaced numbers for a result of `dtype`, computed in and returned as `compute_dtype`. Floats are counted from
/// both ends, as in PyTorch. In `i64` the numbers are exact fractions rounded towards zero. Bounds of an integer result
/// are truncated first.
fn linspace<'g>(a: &Args<'g>, dtype: DType, compute_dtype: DType) -> Result<Value<'g>> {
    let builder = a.builder();
    let bound = |name: &str| {
        let number = a.number(name);
        let converted = if dtype.is_float() {
            number
        } else {
            builder.full(DType::I64, Shape::new(), number).into()
        };
        builder.full(compute_dtype, Shape::new(), converted)
    };
    let steps = a.int("steps");
    if steps < 0 {
        return Err(Error::operator(format!("{steps} steps")));
    }
    let (start, end) = (bound("start"), bound("end"));
    if compute_dtype.is_float() {
        return spaced(start, end, steps);
    }
    let shape = vec![Dim::from(steps)];
    if steps < 2 {
        return Ok(start.expand(shape));
    }
    let index = builder.iota(compute_dtype, shape, 0);
    Ok((start * (steps - 1) + (end - start) * index).trunc_divide(steps - 1))
}
