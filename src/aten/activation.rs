//! Activations of `torch.nn.functional`. Half precision computes in `f32`.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use super::pointwise::{in_compute_dtype, round_to, scaled};
use super::{Args, CallGradient, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{ArithmeticOperand, Value};
use crate::op::BinaryFunction;
use crate::scalar::Scalar;

// The constants of SELU: Klambauer et al., "Self-Normalizing Neural Networks" (2017).

/// SELU without its scale approaches `-SELU_ALPHA` for negative inputs.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
/// Slope of SELU for positive inputs.
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &["aten::relu(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").relu()),
        &["f32[4, 8]", "i64[5]"],
    )
    .with_gradient(|call| call.where_(call.result(0)?.le(0.0).logical_not())),
    Composite::elementwise(
        &["aten::relu6(Tensor self) -> Tensor"],
        |a| Ok(bounded(a.tensor("self"), Scalar::Int(0), Scalar::Int(6))),
        &["f32[B, 3]", "i64[3]"],
    )
    .with_gradient(|call| within(call, 0.0.into(), 6.0.into())),
    Composite::elementwise(
        &["aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let bounds = ["min_val", "max_val"].map(|name| Some(a.number_as(name, x.dtype())));
            let [low, high] = bounds;
            Ok(x.clamp(low, high))
        },
        &["f32[B, 3]", "f32[3], -0.5, 2"],
    )
    .with_gradient(|call| {
        let dtype = call.args().tensor("self").dtype();
        let bound = |name| call.args().number_as(name, dtype);
        within(call, bound("min_val"), bound("max_val"))
    }),
    Composite::elementwise(
        &["aten::gelu(Tensor self, *, str approximate='none') -> Tensor"],
        gelu,
        &["f32[4, 8]", "f32[4, 8], approximate='tanh'", "f16[B, 3]"],
    ),
    Composite::elementwise(
        &["aten::silu(Tensor self) -> Tensor"],
        |a| Ok(in_compute_dtype(a.tensor("self"), |x| x * x.sigmoid())),
        &["f32[B, 3]", "f16[3]"],
    )
    .with_gradient(|call| {
        times_slope(call, |x| {
            let sigmoid = x.sigmoid();
            sigmoid * (x * (1.0 - sigmoid) + 1.0)
        })
    }),
    Composite::elementwise(
        &["aten::mish(Tensor self) -> Tensor"],
        |a| {
            Ok(in_compute_dtype(a.tensor("self"), |x| {
                x * x.exp().log1p().tanh()
            }))
        },
        &["f32[B, 3]", "f16[3]"],
    )
    .with_gradient(|call| {
        times_slope(call, |x| {
            let tanh = x.exp().log1p().tanh();
            tanh + x * x.sigmoid() * (1.0 - tanh * tanh)
        })
    }),
    Composite::elementwise(
        &["aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let number = |name: &str| a.number_as(name, x.dtype().to_compute());
            let scale = number("scale");
            let factor = scaled(a, number("alpha"), scale.clone());
            Ok(elu(x, factor, scale, number("input_scale")))
        },
        &["f32[B, 3]", "f16[3], 0.5, 2, 3"],
    ),
    Composite::elementwise(
        &["aten::selu(Tensor self) -> Tensor"],
        |a| {
            let factor = SELU_ALPHA * SELU_SCALE;
            Ok(elu(
                a.tensor("self"),
                factor.into(),
                SELU_SCALE.into(),
                1.0.into(),
            ))
        },
        &["f32[B, 3]"],
    ),
    Composite::elementwise(
        &["aten::celu(Tensor self, Scalar alpha=1.0) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let alpha = a.number_as("alpha", x.dtype().to_compute());
            let inverse = match &alpha {
                ArithmeticOperand::Scalar(alpha) => (1.0 / alpha.to_f64()).into(),
                alpha => a
                    .builder()
                    .combine(BinaryFunction::Div, 1.0, alpha.clone())
                    .into(),
            };
            Ok(elu(x, alpha, 1.0.into(), inverse))
        },
        &["f32[B, 3]", "f32[3], 2"],
    ),
    Composite::elementwise(
        &["aten::hardswish(Tensor self) -> Tensor"],
        |a| {
            Ok(in_compute_dtype(a.tensor("self"), |x| {
                x * shifted_bounded(x) / 6.0
            }))
        },
        &["f32[B, 3]", "f16[3]"],
    )
    .with_gradient(|call| {
        times_slope(call, |x| {
            let rising = x.lt(3.0).where_(x / 3.0 + 0.5, 1.0);
            x.le(-3.0).where_(0.0, rising)
        })
    }),
    Composite::elementwise(
        &["aten::hardsigmoid(Tensor self) -> Tensor"],
        |a| {
            Ok(in_compute_dtype(a.tensor("self"), |x| {
                shifted_bounded(x) / 6.0
            }))
        },
        &["f32[B, 3]", "f16[3]"],
    )
    .with_gradient(|call| {
        let x = call.args().tensor("self");
        let is_inside = x.gt(-3.0).logical_and(x.lt(3.0));
        let gradient = in_compute_dtype(call.gradient(0)?, |gradient| gradient / 6.0);
        Ok(vec![("self", is_inside.where_(gradient, 0.0))])
    }),
    Composite::elementwise(
        &["aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor"],
        hardshrink,
        &["f32[B, 3]", "f16[3], 1"],
    ),
    Composite::elementwise(
        &["aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor"],
        softshrink,
        &["f32[B, 3]", "f16[3], 1"],
    ),
    Composite::elementwise(
        &["aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            Ok(leaky(
                x,
                a.number_as("negative_slope", x.dtype().to_compute()),
            ))
        },
        &["f32[B, 3]", "f16[3], 0.2"],
    ),
    Composite::elementwise(
        &["aten::prelu(Tensor self, Tensor weight) -> Tensor"],
        prelu,
        &["f32[B, 3, 2], f32[3]", "f16[3], f16[1]"],
    ),
    Composite::elementwise(
        &["aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor"],
        |a| Ok(leaky(a.tensor("self"), a.tensor("weight").to_compute())),
        &["f32[B, 3], f32[1, 3]", "f32[], f32[3]", "f32[2, 3], f32[3]"],
    ),
    Composite::elementwise(
        &["aten::log_sigmoid(Tensor self) -> Tensor"],
        |a| Ok(in_compute_dtype(a.tensor("self"), log_sigmoid)),
        &["f32[B, 3]", "f16[3]"],
    )
    .with_gradient(log_sigmoid_gradient)
    .with_strides(StrideRule::Standard),
    Composite::many(
        &["aten::log_sigmoid_forward(Tensor self) -> (Tensor, Tensor)"],
        |a| {
            let x = a.tensor("self");
            Ok(vec![
                in_compute_dtype(x, log_sigmoid),
                in_compute_dtype(x, |x| (-x.abs()).exp()),
            ])
        },
        &["f32[B, 3]"],
    )
    .with_gradient(log_sigmoid_gradient)
    .with_strides(StrideRule::Standard),
    Composite::elementwise(
        &["aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor"],
        softplus,
        &["f32[B, 3]", "f16[3], 2, 1"],
    ),
    Composite::elementwise(
        &["aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor"],
        threshold,
        &["f32[B, 3], 0.5, 7", "i64[3], 1, 7"],
    ),
    Composite::elementwise(
        &["aten::glu(Tensor self, int dim=-1) -> Tensor"],
        glu,
        &["f32[B, 4]", "f16[2, 3], 0"],
    ),
];

/// Passes the gradient on strictly between two bounds, as PyTorch does for `hardtanh`.
fn within<'g>(
    call: &CallGradient<'g>,
    low: ArithmeticOperand<'g>,
    high: ArithmeticOperand<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let x = call.args().tensor("self");
    let is_outside = x.le(low).logical_or(x.ge(high));
    call.where_(is_outside.logical_not())
}

/// Clamps to bounds, which are converted to the tensor's dtype.
fn bounded(x: Value, low: Scalar, high: Scalar) -> Value {
    x.clamp(
        Some(low.cast(x.dtype()).into()),
        Some(high.cast(x.dtype()).into()),
    )
}

/// `x + 3`, clamped to 0 ..= 6.
fn shifted_bounded(x: Value) -> Value {
    bounded(x + 3.0, Scalar::Int(0), Scalar::Int(6))
}

/// Computes `torch.nn.functional.gelu` with the error function, or with its `tanh` approximation.
fn gelu<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    match a.str("approximate").as_str() {
        "none" => {
            let y = in_compute_dtype(x, |x| x * 0.5 * (1.0 + (x * FRAC_1_SQRT_2).erf()));
            Ok(match x.dtype() {
                // PyTorch's vectorised kernel for these dtypes multiplies infinity by 0.
                DType::F32 | DType::BF16 => x.eq(f64::INFINITY).where_(f64::NAN, y),
                _ => y,
            })
        }
        "tanh" => Ok(in_compute_dtype(x, |x| {
            let inner = (2.0 / PI).sqrt() * (x + 0.044715 * (x * x * x));
            0.5 * x * (1.0 + inner.tanh())
        })),
        other => a.reject(format!("approximate = {other:?}")),
    }
}

/// `scale · x` for `x` of 0 or more, else `factor · (exp(input_scale · x) - 1)`.
fn elu<'g>(
    x: Value<'g>,
    factor: ArithmeticOperand<'g>,
    scale: ArithmeticOperand<'g>,
    input_scale: ArithmeticOperand<'g>,
) -> Value<'g> {
    in_compute_dtype(x, |x| {
        let positive = times(x, scale);
        let negative = times(times(x, input_scale).expm1(), factor);
        x.le(0.0).where_(negative, positive)
    })
}

/// `x · factor`, without a product if the factor is known to be 1.
fn times<'g>(x: Value<'g>, factor: ArithmeticOperand<'g>) -> Value<'g> {
    match factor {
        ArithmeticOperand::Scalar(factor) if factor.to_f64() == 1.0 => x,
        factor => x * factor,
    }
}

/// 0 for elements from `-lambd` to `lambd`; others are unchanged.
fn hardshrink<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, bound) = (a.tensor("self"), a.float("lambd"));
    Ok(x.ge(-bound).logical_and(x.le(bound)).where_(0.0, x))
}

/// Moves elements towards 0 by `lambd`; those from `-lambd` to `lambd` become 0.
fn softshrink<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let bound = a.float("lambd");
    Ok(in_compute_dtype(a.tensor("self"), |x| {
        // A product with 0 would also propagate not-a-number, but shader compilers fold it to 0.
        let zero = x.isnan().where_(x, 0.0);
        let not_above = x.lt(-bound).where_(x + bound, zero);
        x.gt(bound).where_(x - bound, not_above)
    }))
}

/// `x` above 0, else `slope · x`.
pub(super) fn leaky<'g>(x: Value<'g>, slope: impl Into<ArithmeticOperand<'g>>) -> Value<'g> {
    in_compute_dtype(x, |x| x.gt(0.0).where_(x, x * slope))
}

/// Leaky ReLU with one slope for all elements, or one for each channel (the second axis).
fn prelu<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, mut weight) = (a.tensor("self"), a.tensor("weight"));
    if weight.rank() == 1 && x.rank() != 1 {
        let mut shape = vec![Dim::ONE; x.rank()];
        if let Some(channels) = shape.get_mut(1) {
            *channels = weight.numel();
        }
        weight = weight.reshape(shape);
    }
    Ok(leaky(x, weight.to_compute()))
}

/// The logarithm of the sigmoid, without overflow for large magnitudes.
fn log_sigmoid(x: Value) -> Value {
    x.minimum(0.0) - (-x.abs()).exp().log1p()
}

/// The gradient of the first result. The second one is only for PyTorch's own backward pass.
fn log_sigmoid_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    times_slope(call, |x| (-x).sigmoid())
}

/// The gradient of the first result times a derivative at `self`; half precision is rounded once.
fn times_slope<'g>(
    call: &CallGradient<'g>,
    slope: impl FnOnce(Value<'g>) -> Value<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (x, gradient) = (call.args().tensor("self"), call.gradient(0)?);
    let product = gradient.to_compute() * slope(x.to_compute());
    Ok(vec![("self", product.to(x.dtype()))])
}

/// `log(1 + exp(beta · x)) / beta`; `x` itself where `beta · x` exceeds the threshold.
fn softplus<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let number = |name: &str| a.number_as(name, x.dtype().to_float().to_compute());
    let (beta, threshold) = (number("beta"), number("threshold"));
    Ok(in_compute_dtype(x, |x| {
        let scaled = times(x, beta.clone());
        let smooth = scaled.exp().log1p();
        let smooth = if a.is_number("beta", 1.0) {
            smooth
        } else {
            smooth / beta
        };
        scaled.gt(threshold).where_(x, smooth)
    }))
}

/// `value` where `x` is at most `threshold`, else `x`.
fn threshold<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let value = a.number_as("value", x.dtype());
    Ok(x.le(a.number("threshold")).where_(value, x))
}

/// The first half of an axis times the sigmoid of the second half.
fn glu<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, dim) = (a.tensor("self"), a.int("dim"));
    let half = x.size(dim).floor_div(&Dim::from(2));
    let (value, gate) = (
        x.narrow(dim, 0, half.clone()),
        x.narrow(dim, half.clone(), half.clone()),
    );
    let symbols = a.builder().symbols();
    symbols.require_equal(&x.size(dim), &(&half * &Dim::from(2)), || {
        format!("the halves of axis {dim} of {} differ", x.ty())
    })?;
    let gated = value.to_compute() * gate.to_compute().sigmoid();
    Ok(round_to(x.dtype(), gated))
}
