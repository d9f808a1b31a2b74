//! `torch.special`: functions of mathematical physics and statistics, orthogonal polynomials.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use super::pointwise::{binary, float_operands, in_float_dtype};
use super::{Args, Composite};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{BinaryFunction, UnaryFunction};

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &[
            "aten::i0(Tensor self) -> Tensor",
            "aten::special_i0(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").function(UnaryFunction::I0)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_i0e(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::I0e)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_i1(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::I1)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_i1e(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::I1e)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_bessel_j0(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::BesselJ0)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_bessel_j1(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::BesselJ1)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_bessel_y0(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::BesselY0)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_bessel_y1(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::BesselY1)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_modified_bessel_i0(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::I0)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_modified_bessel_i1(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::ModifiedI1)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_modified_bessel_k0(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::K0)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_modified_bessel_k1(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::K1)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_scaled_modified_bessel_k0(Tensor x) -> Tensor"],
        |a| Ok(a.tensor("x").function(UnaryFunction::K0e)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_scaled_modified_bessel_k1(Tensor x) -> Tensor"],
        |a| Ok(a.tensor("x").function(UnaryFunction::K1e)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_airy_ai(Tensor x) -> Tensor"],
        |a| Ok(a.tensor("x").function(UnaryFunction::AiryAi)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_erfcx(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::Erfcx)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_ndtri(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").function(UnaryFunction::Ndtri)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_spherical_bessel_j0(Tensor x) -> Tensor"],
        |a| Ok(in_float_dtype(a.tensor("x"), spherical_bessel_j0)),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_entr(Tensor self) -> Tensor"],
        |a| Ok(entropy(a.tensor("self").to_float())),
        &["f32[B, 3]", "i64[3]"],
    )
    .with_gradient(|call| {
        let slope = -call.args().tensor("self").log() - 1.0;
        Ok(vec![("self", call.gradient(0)? * slope)])
    }),
    Composite::elementwise(
        &["aten::special_ndtr(Tensor self) -> Tensor"],
        |a| Ok(((a.tensor("self").to_float() / SQRT_2).erf() + 1.0) * 0.5),
        &["f32[B, 3]", "i64[3]"],
    ),
    Composite::elementwise(
        &["aten::special_log_ndtr(Tensor self) -> Tensor"],
        |a| Ok(in_float_dtype(a.tensor("self"), log_normal_distribution)),
        &["f32[B, 3]", "i64[3]"],
    )
    .with_gradient(|call| {
        let x = call.args().tensor("self");
        let slope =
            (-(call.result(0)? + x * x * 0.5)).exp() * (FRAC_1_SQRT_2 * FRAC_2_SQRT_PI / 2.0);
        Ok(vec![("self", call.gradient(0)? * slope)])
    }),
    Composite::elementwise(
        &[
            "aten::special_zeta(Tensor self, Tensor other) -> Tensor",
            "aten::special_zeta.other_scalar(Tensor self, Scalar other) -> Tensor",
            "aten::special_zeta.self_scalar(Scalar self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Zeta),
        &[
            "f32[B, 3], f32[3]",
            "other_scalar: f32[3], 2",
            "self_scalar: 3, i64[3]",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::igamma(Tensor self, Tensor other) -> Tensor",
            "aten::special_gammainc(Tensor self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Igamma),
        &["f32[B, 3], f32[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::igammac(Tensor self, Tensor other) -> Tensor",
            "aten::special_gammaincc(Tensor self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Igammac),
        &["f32[B, 3], f32[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::special_chebyshev_polynomial_t(Tensor x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_t.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_t.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevT, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_chebyshev_polynomial_u(Tensor x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_u.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_u.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevU, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_chebyshev_polynomial_v(Tensor x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_v.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_v.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevV, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_chebyshev_polynomial_w(Tensor x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_w.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_chebyshev_polynomial_w.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevW, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_hermite_polynomial_h(Tensor x, Tensor n) -> Tensor",
            "aten::special_hermite_polynomial_h.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_hermite_polynomial_h.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::HermiteH, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_hermite_polynomial_he(Tensor x, Tensor n) -> Tensor",
            "aten::special_hermite_polynomial_he.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_hermite_polynomial_he.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::HermiteHe, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_laguerre_polynomial_l(Tensor x, Tensor n) -> Tensor",
            "aten::special_laguerre_polynomial_l.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_laguerre_polynomial_l.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::LaguerreL, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_legendre_polynomial_p(Tensor x, Tensor n) -> Tensor",
            "aten::special_legendre_polynomial_p.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_legendre_polynomial_p.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::LegendreP, |x| x),
        &[
            "f32[B, 3], i64[3]",
            "x_scalar: 0.5, i64[3]",
            "n_scalar: f32[3], 4",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::special_shifted_chebyshev_polynomial_t(Tensor x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_t.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_t.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevT, |x| x + x - 1.0),
        &["f32[B, 3], i64[3]", "n_scalar: f32[3], 4"],
    ),
    Composite::elementwise(
        &[
            "aten::special_shifted_chebyshev_polynomial_u(Tensor x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_u.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_u.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevU, |x| x + x - 1.0),
        &["f32[B, 3], i64[3]", "n_scalar: f32[3], 4"],
    ),
    Composite::elementwise(
        &[
            "aten::special_shifted_chebyshev_polynomial_v(Tensor x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_v.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_v.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevV, |x| x + x - 1.0),
        &["f32[B, 3], i64[3]", "n_scalar: f32[3], 4"],
    ),
    Composite::elementwise(
        &[
            "aten::special_shifted_chebyshev_polynomial_w(Tensor x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_w.x_scalar(Scalar x, Tensor n) -> Tensor",
            "aten::special_shifted_chebyshev_polynomial_w.n_scalar(Tensor x, Scalar n) -> Tensor",
        ],
        |a| polynomial(a, BinaryFunction::ChebyshevW, |x| x + x - 1.0),
        &["f32[B, 3], i64[3]", "n_scalar: f32[3], 4"],
    ),
];

/// `sin x / x`; 1 at 0, and 0 at infinity.
fn spherical_bessel_j0(x: Value) -> Value {
    let ratio = x.eq(0.0).where_(1.0, x.sin() / x);
    x.abs().eq(f64::INFINITY).where_(0.0, ratio)
}

/// `-x log x`; 0 at 0, and minus infinity below.
fn entropy(x: Value) -> Value {
    let inside = x.lt(0.0).where_(f64::NEG_INFINITY, -x * x.log());
    x.eq(0.0).where_(0.0, inside)
}

/// Logarithm of the normal distribution function. The lower tail uses the scaled error function, which does not underflow.
fn log_normal_distribution(x: Value) -> Value {
    let scaled = x * FRAC_1_SQRT_2;
    let tail = ((-scaled).function(UnaryFunction::Erfcx) * 0.5).log() - scaled * scaled;
    let body = (scaled.erfc() * -0.5).log1p();
    x.lt(-1.0).where_(tail, body)
}

/// A polynomial in the argument `x` whose degree is the tensor `n`, truncated to integers. `shift` maps `x` to the
/// operand of the unshifted polynomial.
fn polynomial<'g>(
    a: &Args<'g>,
    function: BinaryFunction,
    shift: fn(Value<'g>) -> Value<'g>,
) -> Result<Value<'g>> {
    let (dtype, [x, degree]) = float_operands(a, ["x", "n"]);
    if dtype == DType::F64 {
        return a.reject("orthogonal polynomials are evaluated in single precision only");
    }
    Ok(shift(x).combine(function, degree).to(dtype))
}
