//! Tensors of random numbers as functions of seed, counter and index.

use std::f64::consts::PI;

use super::philox::{Philox, mul_high};
use super::pointwise::round_to;
use super::{Args, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::scalar::Scalar;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::rand(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::rand.generator(SymInt[] size, *, Generator? generator, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| Ok(Philox::of(a).uniform(dtype(a)?, a.sizes("size"))),
        &["[2, 3]", "[4], dtype=f16", "[4], dtype=f64"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::randn.generator(SymInt[] size, *, Generator? generator, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| Ok(normal(a, dtype(a)?, a.sizes("size"))),
        &["[2, 3]", "[4], dtype=f16"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::rand_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
            "aten::rand_like.generator(Tensor self, *, Generator? generator, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        ],
        |a| Ok(Philox::of(a).uniform(dtype(a)?, a.tensor("self").shape())),
        &["f32[B, 3]", "i64[2], dtype=bf16"],
    )
    .with_strides(StrideRule::Preserve)
    .with_random(always),
    Composite::one(
        &[
            "aten::randn_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
            "aten::randn_like.generator(Tensor self, *, Generator? generator, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        ],
        |a| Ok(normal(a, dtype(a)?, a.tensor("self").shape())),
        &["f32[B, 3]"],
    )
    .with_strides(StrideRule::Preserve)
    .with_random(always),
    Composite::one(
        &[
            "aten::randint(SymInt high, SymInt[] size, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::randint.generator(SymInt high, SymInt[] size, *, Generator? generator, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::randint.low_generator(SymInt low, SymInt high, SymInt[] size, *, Generator? generator, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| integers(a, a.dtype("dtype").unwrap_or(DType::I64), a.sizes("size")),
        &["10, [2, 3]", "low: -3, 4, [5], dtype=i32"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::randint_like(Tensor self, SymInt high, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
            "aten::randint_like.low_dtype(Tensor self, SymInt low, SymInt high, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        ],
        |a| {
            let like = a.tensor("self");
            let dtype = a.dtype("dtype").unwrap_or(like.dtype());
            integers(a, dtype, like.shape())
        },
        &["f32[B, 3], 7", "low_dtype: i64[3], 2, 4"],
    )
    .with_strides(StrideRule::Preserve)
    .with_random(always),
    Composite::one(
        &[
            "aten::randperm(SymInt n, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::randperm.generator(SymInt n, *, Generator? generator, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let (_, order) = Philox::of(a).bits(vec![a.size("n")]).sort(0, false);
            Ok(order.to(a.dtype("dtype").unwrap_or(DType::I64)))
        },
        &["5", "0"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor",
            "aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor",
            "aten::bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let p = if a.has("p") { a.number("p") } else { x.into() };
            let drawn = Philox::of(a).uniform(DType::F32, x.shape());
            Ok(drawn.lt(p).to(x.dtype()))
        },
        &["f32[B, 3]", "p: f32[B, 3], 0.25", "Tensor: i64[2], f32[2]"],
    )
    .with_strides(StrideRule::Standard)
    .with_random(always),
    Composite::one(
        &[
            "aten::normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor",
            "aten::normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor",
            "aten::normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor",
        ],
        |a| {
            let (mean, std) = (a.number("mean"), a.number("std"));
            let like = a.builder().combine(crate::op::BinaryFunction::Add, mean.clone(), std.clone());
            let drawn = Philox::of(a).normal(compute_float(like.dtype()), like.shape());
            Ok(round_to(like.dtype(), drawn * std + mean).to(like.dtype()))
        },
        &["f32[B, 3], 2.0", "float_Tensor: 1.0, f32[3]", "Tensor_Tensor: f16[2, 1], f16[3]"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let dtype = dtype(a)?;
            let drawn = Philox::of(a).normal(compute_float(dtype), a.sizes("size"));
            Ok((drawn * a.float("std") + a.float("mean")).to(dtype))
        },
        &["1.0, 2.0, [2, 3]"],
    )
    .with_random(always),
    Composite::one(
        &["aten::uniform(Tensor self, float from=0, float to=1, *, Generator? generator=None) -> Tensor"],
        |a| {
            let (x, low) = (a.tensor("self"), a.float("from"));
            let drawn = Philox::of(a).uniform(compute_float(x.dtype()), x.shape());
            Ok((drawn * (a.float("to") - low) + low).to(x.dtype()))
        },
        &["f32[B, 3]", "f32[B, 3], -1.0, 1.0"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::normal_functional(Tensor self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let drawn = Philox::of(a).normal(compute_float(x.dtype()), x.shape());
            Ok((drawn * a.float("std") + a.float("mean")).to(x.dtype()))
        },
        &["f32[B, 3], 1.0, 2.0"],
    )
    .with_random(always),
    Composite::one(
        &["aten::log_normal(Tensor self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let drawn = Philox::of(a).normal(compute_float(x.dtype()), x.shape());
            Ok((drawn * a.float("std") + a.float("mean")).exp().to(x.dtype()))
        },
        &["f32[B, 3]"],
    )
    .with_random(always),
    Composite::one(
        &["aten::exponential(Tensor self, float lambd=1, *, Generator? generator=None) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            Ok((exponential(a, x) / a.float("lambd")).to(x.dtype()))
        },
        &["f32[B, 3]", "f16[3], 2.0"],
    )
    .with_random(always),
    Composite::one(
        &["aten::cauchy(Tensor self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let drawn = Philox::of(a).positive(compute_float(x.dtype()), x.shape());
            let tangent = ((drawn - 0.5) * PI).tan();
            Ok((tangent * a.float("sigma") + a.float("median")).to(x.dtype()))
        },
        &["f32[B, 3]"],
    )
    .with_random(always),
    Composite::one(
        &["aten::geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor"],
        |a| {
            let (x, p) = (a.tensor("self"), a.float("p"));
            let trials = -exponential(a, x) / (-p).ln_1p();
            Ok(trials.ceil().maximum(1.0).to(x.dtype()))
        },
        &["f32[B, 3], 0.25"],
    )
    .with_random(always),
    Composite::one(
        &[
            "aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor",
        ],
        multinomial,
        &["f32[4], 2", "f32[B, 4], 3", "f32[B, 4], 6, True"],
    )
    .with_random(always),
];

/// The predicate of rows whose calls all draw random numbers.
fn always(_: &Args) -> bool {
    true
}

/// The dtype of the result, which must be a float.
fn dtype(a: &Args) -> Result<DType> {
    let self_dtype = a.has("self").then(|| a.tensor("self").dtype());
    let dtype = a.dtype("dtype").or(self_dtype).unwrap_or(DType::F32);
    if dtype.is_float() {
        return Ok(dtype);
    }
    Err(Error::operator(format!(
        "random numbers require a float dtype, not {dtype}"
    )))
}

/// The dtype to compute in.
fn compute_float(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Numbers of the standard normal distribution.
fn normal<'g>(a: &Args<'g>, dtype: DType, shape: Shape) -> Value<'g> {
    Philox::of(a).normal(compute_float(dtype), shape).to(dtype)
}

/// Exponentially distributed numbers of rate 1, in the shape of `x`.
fn exponential<'g>(a: &Args<'g>, x: Value<'g>) -> Value<'g> {
    -Philox::of(a)
        .positive(compute_float(x.dtype()), x.shape())
        .log()
}

/// Integers in `low..high` (`low` defaults to 0): the remainder of a word by the size of the range.
fn integers<'g>(a: &Args<'g>, dtype: DType, shape: Shape) -> Result<Value<'g>> {
    let low = if a.has("low") { a.int("low") } else { 0 };
    let high = a.int("high");
    let count = high.checked_sub(low).unwrap_or_default();
    if !(1..=1 << 30).contains(&count) {
        let message = format!("random numbers from {low} to below {high}");
        return Err(Error::operator(message).help("draw from 1 to 2^30 different numbers"));
    }
    let word = Philox::of(a).bits(shape);
    Ok((remainder(word, count).to(dtype.max(DType::I64)) + low).to(dtype))
}

/// The remainder of an unsigned word by a divisor up to 2^30.
fn remainder(word: Value, divisor: i64) -> Value {
    if divisor == 1 {
        return word.bitwise_and(0);
    }
    // The high word of the product with 2^32 / divisor is the quotient, or one less.
    let quotient = mul_high(
        word,
        Scalar::Int(i64::from(((1u64 << 32) / divisor as u64) as i32)),
    );
    let rest = word - quotient * divisor;
    rest.ge(divisor).where_(rest - divisor, rest)
}

/// Samples indices by weight: those with the shortest exponentially distributed waiting times, as in PyTorch. `speeds`
/// are the reciprocals of the waiting times.
fn multinomial<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (weights, count) = (a.tensor("self"), a.size("num_samples"));
    if !(1..=2).contains(&weights.rank()) || !weights.dtype().is_float() {
        return Err(Error::operator(format!("weights of type {}", weights.ty())));
    }
    if !a.bool("replacement") {
        let symbols = a.builder().symbols();
        if !symbols.less_equal(&count, &weights.size(-1))? {
            return Err(Error::operator(format!(
                "{count} different ones of {}",
                weights.size(-1)
            )));
        }
        let speeds = weights / exponential(a, weights).to(weights.dtype());
        let (_, order) = speeds.sort(-1, true);
        return Ok(order.narrow(-1, Dim::ZERO, count));
    }
    let mut shape = weights.shape();
    shape.insert(shape.len().saturating_sub(1), count);
    let repeated = weights.unsqueeze(-2).expand(shape);
    let speeds = repeated / exponential(a, repeated).to(weights.dtype());
    Ok(speeds.argmax(-1, false))
}
