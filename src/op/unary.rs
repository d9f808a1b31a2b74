use serde::{Deserialize, Serialize};

use super::derivative::{Derivative, UNDEFINED};
use super::table::{pointwise_type, scalar_functions};
use super::{Operand, Rules, bessel, operands, special, values};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::series::Real;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// A unary function, elementwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unary {
    /// The function.
    pub function: UnaryFunction,
}

/// The host implementation of a unary function.
#[derive(Clone, Copy)]
enum Oracle {
    /// Floats only, computed in double precision and rounded.
    Float(fn(f64) -> f64),
    /// Floats only, computed in single precision step by step as in PyTorch, or in double precision.
    PerPrecision(fn(f32) -> f32, fn(f64) -> f64),
    /// Floats and integers.
    Number(fn(f64) -> f64, fn(i64) -> i64),
    /// Integers and `bool`.
    Integer(fn(i64) -> i64),
    /// `bool` to `bool`.
    Bool(fn(bool) -> bool),
    /// Floats to `bool`.
    Test(fn(f64) -> bool),
}

/// A row of the table: oracle, WGSL expression of an operand `x`, range of sample operands, and derivative.
struct Row(Oracle, &'static str, (f64, f64), &'static str);

use Oracle::{Bool, Float, Integer, Number, PerPrecision, Test};

scalar_functions! {
    /// Unary functions, named as in PyTorch.
    UnaryFunction;

    Neg "neg" Number(|x| -x, i64::wrapping_neg), "-x", (-9.0, 9.0), "-1";
    Abs "abs" Number(f64::abs, i64::wrapping_abs), "abs(x)", (-9.0, 9.0), "sign(x)";
    Sign "sign" Number(sign, i64::signum), "sign_of(x)", (-9.0, 9.0), "0";
    Floor "floor" Float(f64::floor), "floor(x)", (-9.0, 9.0), "0";
    Ceil "ceil" Float(f64::ceil), "ceil(x)", (-9.0, 9.0), "0";
    Round "round" Float(f64::round_ties_even), "round(x)", (-9.0, 9.0), "0";
    Trunc "trunc" Float(f64::trunc), "trunc(x)", (-9.0, 9.0), "0";
    Sqrt "sqrt" Float(f64::sqrt), "sqrt(x)", (0.0, 9.0), "0.5 / r";
    Rsqrt "rsqrt" PerPrecision(|x| 1.0 / x.sqrt(), |x| 1.0 / x.sqrt()), "1.0 / sqrt(x)", (0.1, 9.0), "-0.5 * r * r * r";
    Exp "exp" Float(f64::exp), "exp_of(x)", (-9.0, 9.0), "r";
    Exp2 "exp2" Float(f64::exp2), "exp2_of(x)", (-9.0, 9.0), "r * 0.6931471805599453";
    Expm1 "expm1" Float(f64::exp_m1), "expm1_of(x)", (-3.0, 3.0), "r + 1";
    Log "log" Float(f64::ln), "log_of(x)", (0.01, 99.0), "1 / x";
    Log2 "log2" Float(f64::log2), "log2_of(x)", (0.01, 99.0), "1 / (x * 0.6931471805599453)";
    Log10 "log10" Float(f64::log10), "log10_of(x)", (0.01, 99.0), "1 / (x * 2.302585092994046)";
    Log1p "log1p" Float(f64::ln_1p), "log1p_of(x)", (-0.9, 9.0), "1 / (x + 1)";
    Sin "sin" Float(f64::sin), "sin_of(x)", (-99.0, 99.0), "cos(x)";
    Cos "cos" Float(f64::cos), "cos_of(x)", (-99.0, 99.0), "-sin(x)";
    Tan "tan" Float(f64::tan), "tan_of(x)", (-1.5, 1.5), "1 + r * r";
    Asin "asin" Float(f64::asin), "asin_of(x)", (-1.0, 1.0), "rsqrt(1 - x * x)";
    Acos "acos" Float(f64::acos), "acos_of(x)", (-1.0, 1.0), "-rsqrt(1 - x * x)";
    Atan "atan" Float(f64::atan), "atan_of(x)", (-9.0, 9.0), "1 / (x * x + 1)";
    Sinh "sinh" Float(f64::sinh), "sinh_of(x)", (-5.0, 5.0), "cosh(x)";
    Cosh "cosh" PerPrecision(cosh, f64::cosh), "cosh_of(x)", (-5.0, 5.0), "sinh(x)";
    Tanh "tanh" Float(f64::tanh), "tanh_of(x)", (-20.0, 20.0), "1 - r * r";
    Asinh "asinh" Float(f64::asinh), "asinh_of(x)", (-9.0, 9.0), "rsqrt(x * x + 1)";
    Acosh "acosh" Float(f64::acosh), "acosh_of(x)", (1.0, 9.0), "rsqrt(x * x - 1)";
    Atanh "atanh" Float(f64::atanh), "atanh_of(x)", (-0.99, 0.99), "1 / (1 - x * x)";
    Sigmoid "sigmoid" PerPrecision(sigmoid, sigmoid), "sigmoid_of(x)", (-20.0, 20.0), "(1 - r) * r";
    Erf "erf" Float(libm::erf), "erf_of(x)", (-4.0, 4.0), "1.1283791670955126 * exp(-(x * x))";
    Erfc "erfc" Float(libm::erfc), "erfc_of(x)", (-4.0, 4.0), "-1.1283791670955126 * exp(-(x * x))";
    Erfinv "erfinv" Float(erfinv), "erfinv_of(x)", (-0.99, 0.99), "0.886226925452758 * exp(r * r)";
    Lgamma "lgamma" Float(lgamma), "lgamma_of(x)", (0.1, 20.0), "digamma(x)";
    Digamma "digamma" PerPrecision(special::digamma, special::digamma), "digamma_of(x)", (0.1, 20.0), "trigamma(x)";
    Trigamma "trigamma" PerPrecision(special::trigamma, special::trigamma), "trigamma_of(x)", (0.1, 20.0), "-2 * zeta(3, x)";
    I0 "i0" PerPrecision(bessel::i0, bessel::i0), "i0_of(x)", (-9.0, 9.0), "i1(x)";
    I0e "i0e" PerPrecision(bessel::i0e, bessel::i0e), "i0e_of(x)", (-30.0, 30.0), "i1e(x) - sign(x) * r";
    I1 "i1" PerPrecision(bessel::i1, bessel::i1), "i1_of(x)", (-9.0, 9.0), "select(eq(x, 0), 0.5, i0(x) - r / x)";
    I1e "i1e" PerPrecision(bessel::i1e, bessel::i1e), "i1e_of(x)", (-30.0, 30.0), "select(gt(x * x, 0), i0e(x) - r * (sign(x) + 1 / x), 0.5)";
    ModifiedI1 "modified_bessel_i1" PerPrecision(bessel::modified_i1, bessel::modified_i1), "modified_i1_of(x)", (-9.0, 9.0), UNDEFINED;
    K0 "modified_bessel_k0" PerPrecision(bessel::k0, bessel::k0), "k0_of(x)", (0.1, 9.0), UNDEFINED;
    K0e "scaled_modified_bessel_k0" PerPrecision(bessel::k0e, bessel::k0e), "k0e_of(x)", (0.1, 30.0), UNDEFINED;
    K1 "modified_bessel_k1" PerPrecision(bessel::k1, bessel::k1), "k1_of(x)", (0.1, 9.0), UNDEFINED;
    K1e "scaled_modified_bessel_k1" PerPrecision(bessel::k1e, bessel::k1e), "k1e_of(x)", (0.1, 30.0), UNDEFINED;
    BesselJ0 "bessel_j0" PerPrecision(bessel::j0, bessel::j0), "bessel_j0_of(x)", (-50.0, 50.0), UNDEFINED;
    BesselJ1 "bessel_j1" PerPrecision(bessel::j1, bessel::j1), "bessel_j1_of(x)", (-50.0, 50.0), UNDEFINED;
    BesselY0 "bessel_y0" PerPrecision(bessel::y0, bessel::y0), "bessel_y0_of(x)", (0.1, 50.0), UNDEFINED;
    BesselY1 "bessel_y1" PerPrecision(bessel::y1, bessel::y1), "bessel_y1_of(x)", (0.1, 50.0), UNDEFINED;
    AiryAi "airy_ai" PerPrecision(bessel::airy_ai, bessel::airy_ai), "airy_ai_of(x)", (-20.0, 5.0), UNDEFINED;
    Erfcx "erfcx" PerPrecision(special::erfcx, special::erfcx), "erfcx_of(x)", (-3.0, 50.0), "2 * x * r - 1.1283791670955126";
    Ndtri "ndtri" Float(special::ndtri), "ndtri_of(x)", (0.001, 0.999), "2.5066282746310002 * exp(0.5 * r * r)";
    Mantissa "frexp_mantissa" Float(special::mantissa), "mantissa_of(x)", (-99.0, 99.0), "exp2(-frexp_exponent(x))";
    Exponent "frexp_exponent" Float(special::exponent), "exponent_of(x)", (-99.0, 99.0), "0";
    BitwiseNot "bitwise_not" Integer(|x| !x), "~x", (-9.0, 9.0), "0";
    LogicalNot "logical_not" Bool(|x| !x), "!x", (0.0, 1.0), "0";
    IsNan "isnan" Test(f64::is_nan), "is_nan(x)", (-9.0, 9.0), "0";
    SignBit "signbit" Test(f64::is_sign_negative), "sign_bit(x)", (-9.0, 9.0), "0";
}

impl Rules for Unary {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        pointwise_type(self.function.name(), x, self.result(x.dtype))
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let (dtype, shape) = (x.dtype(), x.shape());
        let floats = |function: fn(f64) -> f64| {
            Tensor::from_f64(dtype, shape, x.to_f64().into_iter().map(function).collect())
        };
        let integers = |function: fn(i64) -> i64| {
            Tensor::from_i64(dtype, shape, x.to_i64().into_iter().map(function).collect())
        };
        Ok(vec![match self.function.oracle() {
            Float(function) => floats(function)?,
            PerPrecision(_, function) if dtype == DType::F64 => floats(function)?,
            PerPrecision(function, _) => {
                let results = x.to_f64().into_iter();
                let results = results.map(|x| f64::from(function(x as f32)));
                Tensor::from_f64(dtype, shape, results.collect())?
            }
            Number(function, _) if dtype.is_float() => floats(function)?,
            Number(_, function) | Integer(function) if dtype != DType::Bool => integers(function)?,
            Number(..) | Integer(_) => {
                Tensor::from_bools(shape, x.to_i64().into_iter().map(|value| value == 0))?
            }
            Bool(function) => Tensor::from_bools(
                shape,
                x.to_i64().into_iter().map(|value| function(value != 0)),
            )?,
            Test(function) => Tensor::from_bools(shape, x.to_f64().into_iter().map(function))?,
        }])
    }
}

impl Unary {
    fn result(&self, dtype: DType) -> Option<DType> {
        match self.function.oracle() {
            Float(_) | PerPrecision(..) => dtype.is_float().then_some(dtype),
            Number(..) => (dtype != DType::Bool).then_some(dtype),
            Integer(_) => (!dtype.is_float()).then_some(dtype),
            Bool(_) => (dtype == DType::Bool).then_some(dtype),
            Test(_) => dtype.is_float().then_some(DType::Bool),
        }
    }
}

impl UnaryFunction {
    /// WGSL expression of an operand `x` in the compute type; `shaders/lib` has functions that WGSL lacks.
    pub fn wgsl(self) -> &'static str {
        self.row().1
    }

    /// Range from which sample operands are drawn.
    pub fn sample_range(self) -> (f64, f64) {
        self.row().2
    }

    /// The derivative; `None` if PyTorch defines none.
    pub fn derivative(self) -> Result<Option<Derivative>> {
        Derivative::parse(self.row().3)
    }

    fn oracle(self) -> Oracle {
        self.row().0
    }

    /// True if the function is defined for floats only; PyTorch then computes integers in `f32`.
    pub fn is_float_only(self) -> bool {
        matches!(self.oracle(), Float(_) | PerPrecision(..) | Test(_))
    }
}

/// Computes `cosh` from an exponential, as C libraries do; for small arguments from `exp(x) - 1`.
fn cosh(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude < 0.5 * std::f32::consts::LN_2 {
        let excess = magnitude.apply_rounded(f64::exp_m1);
        let double = 2.0 * (1.0 + excess);
        1.0 + excess * excess / double
    } else if magnitude < 80.0 {
        let exponential = magnitude.apply_rounded(f64::exp);
        0.5 * exponential + 0.5 / exponential
    } else {
        x.apply_rounded(f64::cosh)
    }
}

fn sigmoid<T: Real>(x: T) -> T {
    let one = T::from_f64(1.0);
    one / (one + (-x).apply_rounded(f64::exp))
}

fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        // Zero and not-a-number give 0, as in PyTorch.
        0.0
    }
}

fn lgamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        f64::INFINITY
    } else {
        libm::lgamma(x)
    }
}

/// Inverse error function: Giles' single-precision approximation, then two Newton steps to double precision.
fn erfinv(y: f64) -> f64 {
    if y.abs() >= 1.0 {
        return if y.abs() == 1.0 {
            y * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let w = -((1.0 - y) * (1.0 + y)).ln();
    let start = if w < 5.0 {
        central(w - 2.5)
    } else {
        tail(w.sqrt() - 3.0)
    } * y;
    (0..2).fold(start, |x, _| {
        let slope = 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp();
        if slope == 0.0 {
            x
        } else {
            x - (libm::erf(x) - y) / slope
        }
    })
}

/// M. Giles, "Approximating the erfinv function" (2010), polynomial for w < 5.
fn central(w: f64) -> f64 {
    const C: [f64; 9] = [
        2.810_226_36e-8,
        3.432_739_39e-7,
        -3.523_387_7e-6,
        -4.391_506_54e-6,
        0.000_218_580_87,
        -0.001_253_725_03,
        -0.004_177_681_64,
        0.246_640_727,
        1.501_409_41,
    ];
    C.into_iter().fold(0.0, |sum, c| sum * w + c)
}

/// The polynomial of Giles' paper for w >= 5.
fn tail(w: f64) -> f64 {
    const C: [f64; 9] = [
        -0.000_200_214_257,
        0.000_100_950_558,
        0.001_349_343_22,
        -0.003_673_428_44,
        0.005_739_507_73,
        -0.007_622_461_3,
        0.009_438_870_47,
        1.001_674_06,
        2.832_976_82,
    ];
    C.into_iter().fold(0.0, |sum, c| sum * w + c)
}
