use serde::{Deserialize, Serialize};

use super::derivative::{Derivative, UNDEFINED};
use super::table::{pointwise_type, scalar_functions};
use super::{Operand, Rules, operands, polynomial, special};
use crate::dim::{Bindings, floor_div};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// A binary function of operands of one dtype and shape, elementwise. Either operand may be a number or a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    /// The function.
    pub function: BinaryFunction,
}

/// The host implementation of a binary function.
#[derive(Clone, Copy)]
enum Oracle {
    /// Floats only, computed in double precision and rounded.
    Float(fn(f64, f64) -> f64),
    /// Floats only, computed in single precision where PyTorch rounds to it, otherwise in double precision.
    PerPrecision(fn(f32, f32) -> f32, fn(f64, f64) -> f64),
    /// Floats and integers.
    Number(fn(f64, f64) -> f64, fn(i64, i64) -> i64),
    /// Integers and `bool`.
    Integer(fn(i64, i64) -> i64),
    /// The bits of 32-bit integers.
    Word(fn(u32, u32) -> u32),
    /// `bool` operands.
    Bool(fn(bool, bool) -> bool),
    /// Any operands, `bool` result.
    Compare(fn(f64, f64) -> bool, fn(i64, i64) -> bool),
}

/// A row of the table: oracle, WGSL expression of operands `x` and `y`, ranges of sample operands, and derivatives with
/// respect to them.
struct Row(Oracle, &'static str, [(f64, f64); 2], [&'static str; 2]);

use Oracle::{Bool, Compare, Float, Integer, Number, PerPrecision, Word};

const PLAIN: [(f64, f64); 2] = [(-10.0, 10.0), (-5.0, 5.0)];

/// Derivatives of functions whose result is no float, or constant between jumps.
const NO_SLOPE: [&str; 2] = ["0", "0"];

const WORD: [(f64, f64); 2] = [(-2147483648.0, 2147483647.0); 2];

/// Orders and arguments on both sides of the points where expansions change.
const GAMMA: [(f64, f64); 2] = [(0.0, 60.0), (0.0, 60.0)];

/// Around the interval of orthogonality, with degrees on both sides of the change to cosines. Higher degrees are not
/// comparable to five digits. PyTorch multiplies the degree by an arc cosine in single precision, whose last digit depends
/// on the C library, so that from degree 40 on a result may differ by more than the tolerance.
const DEGREE: [(f64, f64); 2] = [(-1.2, 1.2), (0.0, 24.0)];

scalar_functions! {
    /// Binary functions, named as in PyTorch.
    BinaryFunction;

    Add "add" Number(|x, y| x + y, i64::wrapping_add), "x + y", PLAIN, ["1", "1"];
    Sub "sub" Number(|x, y| x - y, i64::wrapping_sub), "x - y", PLAIN, ["1", "-1"];
    Mul "mul" Number(|x, y| x * y, i64::wrapping_mul), "x * y", PLAIN, ["y", "x"];
    Div "div" Float(|x, y| x / y), "x / y", PLAIN, ["1 / y", "-r / y"];
    FloorDivide "floor_divide" Number(floor_divide, floor_div), "floor_divide(x, y)", PLAIN, NO_SLOPE;
    TruncDivide "trunc_divide" Number(|x, y| (x / y).trunc(), trunc_divide), "trunc_divide(x, y)", PLAIN, NO_SLOPE;
    Remainder "remainder" Number(remainder, |x, y| x.wrapping_sub(y.wrapping_mul(floor_div(x, y)))), "remainder_of(x, y)", PLAIN, ["1", "-floor_divide(x, y)"];
    Fmod "fmod" Number(|x, y| x % y, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) }), "fmod_of(x, y)", PLAIN, ["1", "-trunc_divide(x, y)"];
    Pow "pow" Number(f64::powf, integer_power), "power(x, y)", PLAIN, ["select(eq(y, 0), 0, y * pow(x, y - 1))", "select(logical_and(eq(x, 0), ge(y, 0)), 0, r * log(x))"];
    Maximum "maximum" Number(maximum, i64::max), "maximum(x, y)", PLAIN, ["select(eq(x, y), 0.5, select(lt(x, y), 0, 1))", "select(eq(x, y), 0.5, select(gt(x, y), 0, 1))"];
    Minimum "minimum" Number(minimum, i64::min), "minimum(x, y)", PLAIN, ["select(eq(x, y), 0.5, select(gt(x, y), 0, 1))", "select(eq(x, y), 0.5, select(lt(x, y), 0, 1))"];
    Atan2 "atan2" Float(f64::atan2), "atan2_of(x, y)", PLAIN, ["select(eq(x * x + y * y, 0), 0, y / (x * x + y * y))", "select(eq(x * x + y * y, 0), 0, -x / (x * x + y * y))"];
    Copysign "copysign" Float(f64::copysign), "copy_sign(x, y)", PLAIN, ["select(eq(x, 0), 0, r / x)", "0"];
    NextAfter "nextafter" Float(nextafter), "next_after(x, y)", PLAIN, [UNDEFINED; 2];
    Hypot "hypot" Float(f64::hypot), "hypot_of(x, y)", PLAIN, ["x / r", "y / r"];
    Gcd "gcd" Integer(special::gcd), "gcd(x, y)", PLAIN, NO_SLOPE;
    Zeta "zeta" PerPrecision(special::zeta, special::zeta), "zeta_of(x, y)", [(1.0, 20.0), (0.0, 20.0)], [UNDEFINED, "-x * zeta(x + 1, y)"];
    Igamma "igamma" Float(special::igamma), "igamma_of(x, y)", GAMMA, [UNDEFINED, "exp((x - 1) * log(y) - y - lgamma(x))"];
    Igammac "igammac" Float(special::igammac), "igammac_of(x, y)", GAMMA, [UNDEFINED, "-exp((x - 1) * log(y) - y - lgamma(x))"];
    ChebyshevT "chebyshev_polynomial_t" Float(polynomial::chebyshev_t), "chebyshev_t_of(x, y)", DEGREE, [UNDEFINED; 2];
    ChebyshevU "chebyshev_polynomial_u" Float(polynomial::chebyshev_u), "chebyshev_u_of(x, y)", DEGREE, [UNDEFINED; 2];
    ChebyshevV "chebyshev_polynomial_v" Float(polynomial::chebyshev_v), "chebyshev_v_of(x, y)", DEGREE, [UNDEFINED; 2];
    ChebyshevW "chebyshev_polynomial_w" Float(polynomial::chebyshev_w), "chebyshev_w_of(x, y)", DEGREE, [UNDEFINED; 2];
    HermiteH "hermite_polynomial_h" Float(polynomial::hermite_h), "hermite_h_of(x, y)", DEGREE, [UNDEFINED; 2];
    HermiteHe "hermite_polynomial_he" Float(polynomial::hermite_he), "hermite_he_of(x, y)", DEGREE, [UNDEFINED; 2];
    LaguerreL "laguerre_polynomial_l" Float(polynomial::laguerre), "laguerre_of(x, y)", DEGREE, [UNDEFINED; 2];
    LegendreP "legendre_polynomial_p" Float(polynomial::legendre), "legendre_of(x, y)", DEGREE, [UNDEFINED; 2];
    Eq "eq" Compare(|x, y| x == y, |x, y| x == y), "x == y", PLAIN, NO_SLOPE;
    Ne "ne" Compare(|x, y| x != y, |x, y| x != y), "x != y", PLAIN, NO_SLOPE;
    Lt "lt" Compare(|x, y| x < y, |x, y| x < y), "x < y", PLAIN, NO_SLOPE;
    Le "le" Compare(|x, y| x <= y, |x, y| x <= y), "x <= y", PLAIN, NO_SLOPE;
    Gt "gt" Compare(|x, y| x > y, |x, y| x > y), "x > y", PLAIN, NO_SLOPE;
    Ge "ge" Compare(|x, y| x >= y, |x, y| x >= y), "x >= y", PLAIN, NO_SLOPE;
    LogicalAnd "logical_and" Bool(|x, y| x && y), "x & y", PLAIN, NO_SLOPE;
    LogicalOr "logical_or" Bool(|x, y| x || y), "x | y", PLAIN, NO_SLOPE;
    LogicalXor "logical_xor" Bool(|x, y| x != y), "x != y", PLAIN, NO_SLOPE;
    BitwiseAnd "bitwise_and" Integer(|x, y| x & y), "x & y", PLAIN, NO_SLOPE;
    BitwiseOr "bitwise_or" Integer(|x, y| x | y), "x | y", PLAIN, NO_SLOPE;
    BitwiseXor "bitwise_xor" Integer(|x, y| x ^ y), "x ^ y", PLAIN, NO_SLOPE;
    ShiftLeft "bitwise_left_shift" Integer(|x, y| if (0..64).contains(&y) { x << y } else { 0 }), "shift_left(x, y)", PLAIN, NO_SLOPE;
    MulHigh "mul_high" Word(|x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32), "mul_high(x, y)", WORD, NO_SLOPE;
    ShiftRight "bitwise_right_shift" Integer(|x, y| x >> if (0..64).contains(&y) { y } else { 63 }), "shift_right(x, y)", PLAIN, NO_SLOPE;
}

impl Rules for Binary {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [a, b] = operands::<_, 2>(found)?;
        let x = match (a.value(), b.value()) {
            (Some(x), Some(y)) => {
                let complain = || format!("{x} and {y} differ in dtype or shape");
                if x.dtype != y.dtype || x.rank() != y.rank() {
                    return Err(Error::operator(complain()));
                }
                for (left, right) in x.shape.iter().zip(&y.shape) {
                    symbols.require_equal(left, right, complain)?;
                }
                x
            }
            (Some(x), None) | (None, Some(x)) => x,
            (None, None) => return Err(Error::operator("combines two numbers")),
        };
        pointwise_type(self.function.name(), x, self.result(x.dtype))
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x, y] = operands::<_, 2>(found)?;
        let (dtype, is_float) = (x.dtype(), x.dtype().is_float());
        // A number arrives as a scalar beside an operand of any shape.
        let shape = if x.shape().is_empty() {
            y.shape()
        } else {
            x.shape()
        };
        let numel = shape.iter().product();
        let floats = |function: fn(f64, f64) -> f64| {
            Tensor::from_f64(dtype, shape, zip(x.to_f64(), y.to_f64(), numel, function))
        };
        Ok(vec![match self.function.oracle() {
            Float(function) => floats(function)?,
            PerPrecision(_, function) if dtype == DType::F64 => floats(function)?,
            PerPrecision(function, _) => {
                let function = |x, y| f64::from(function(x as f32, y as f32));
                Tensor::from_f64(dtype, shape, zip(x.to_f64(), y.to_f64(), numel, function))?
            }
            Number(function, _) if is_float => floats(function)?,
            Number(_, function) | Integer(function) => {
                Tensor::from_i64(dtype, shape, zip(x.to_i64(), y.to_i64(), numel, function))?
            }
            Word(function) => {
                let function = |x, y| i64::from(function(x as u32, y as u32).cast_signed());
                Tensor::from_i64(dtype, shape, zip(x.to_i64(), y.to_i64(), numel, function))?
            }
            Bool(function) => {
                let function = |x: i64, y: i64| function(x != 0, y != 0);
                Tensor::from_bools(shape, zip(x.to_i64(), y.to_i64(), numel, function))?
            }
            Compare(function, _) if is_float => {
                Tensor::from_bools(shape, zip(x.to_f64(), y.to_f64(), numel, function))?
            }
            Compare(_, function) => {
                Tensor::from_bools(shape, zip(x.to_i64(), y.to_i64(), numel, function))?
            }
        }])
    }
}

impl Binary {
    fn result(&self, dtype: DType) -> Option<DType> {
        match self.function.oracle() {
            Float(_) | PerPrecision(..) => dtype.is_float().then_some(dtype),
            Number(..) => (dtype != DType::Bool).then_some(dtype),
            Integer(_) => (!dtype.is_float()).then_some(dtype),
            Word(_) => (dtype == DType::I32).then_some(dtype),
            Bool(_) => (dtype == DType::Bool).then_some(dtype),
            Compare(..) => Some(DType::Bool),
        }
    }
}

impl BinaryFunction {
    /// WGSL expression of operands `x` and `y` in the compute type; `shaders/lib` has functions that WGSL lacks.
    pub fn wgsl(self) -> &'static str {
        self.row().1
    }

    /// Ranges from which sample operands are drawn.
    pub fn sample_ranges(self) -> [(f64, f64); 2] {
        self.row().2
    }

    /// The derivative with respect to the first or second operand (0 or 1); `None` if PyTorch defines none.
    pub fn derivative(self, operand: usize) -> Result<Option<Derivative>> {
        let formulas = self.row().3;
        let formula = formulas.get(operand);
        formula.map_or(Ok(None), |formula| Derivative::parse(formula))
    }

    fn oracle(self) -> Oracle {
        self.row().0
    }

    /// The host function of two floats in double precision; `None` if the result is `bool` or the operands are integers.
    pub fn on_floats(self) -> Option<fn(f64, f64) -> f64> {
        match self.oracle() {
            Float(function) | Number(function, _) | PerPrecision(_, function) => Some(function),
            _ => None,
        }
    }

    /// True if the result is always `bool`.
    pub fn is_comparison(self) -> bool {
        matches!(self.oracle(), Compare(..))
    }

    /// True if the function is defined for floats only; PyTorch then computes integers in `f32`.
    pub fn is_float_only(self) -> bool {
        matches!(self.oracle(), Float(_) | PerPrecision(..))
    }
}

/// Combines elements; a vector of one element is repeated.
fn zip<T: Copy, U>(x: Vec<T>, y: Vec<T>, numel: usize, function: impl Fn(T, T) -> U) -> Vec<U> {
    let pick = |values: &[T], index: usize| {
        if values.len() == 1 {
            values.first().copied()
        } else {
            values.get(index).copied()
        }
    };
    let mut results = Vec::with_capacity(numel);
    results
        .extend((0..numel).filter_map(|index| Some(function(pick(&x, index)?, pick(&y, index)?))));
    results
}

/// The larger operand; not-a-number if either is.
pub(super) fn maximum(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else {
        x.max(y)
    }
}

/// The smaller operand; not-a-number if either is.
pub(super) fn minimum(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else {
        x.min(y)
    }
}

/// As PyTorch's `div_floor_floating` (`c10/util/generic_math.h`).
fn floor_divide(x: f64, y: f64) -> f64 {
    if y == 0.0 {
        return x / y;
    }
    let modulus = x % y;
    let mut quotient = (x - modulus) / y;
    if modulus != 0.0 && (y < 0.0) != (modulus < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0f64).copysign(x / y);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor + 1.0
    } else {
        floor
    }
}

fn remainder(x: f64, y: f64) -> f64 {
    let modulus = x % y;
    if modulus != 0.0 && (y < 0.0) != (modulus < 0.0) {
        modulus + y
    } else {
        modulus
    }
}

fn trunc_divide(x: i64, y: i64) -> i64 {
    if y == 0 { 0 } else { x.wrapping_div(y) }
}

/// Negative exponents give 0, except for the bases 1 and -1, as in PyTorch.
fn integer_power(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (_, 0..) => base.wrapping_pow(u32::try_from(exponent).unwrap_or(u32::MAX)),
        (1, _) => 1,
        (-1, _) => {
            if exponent % 2 == 0 {
                1
            } else {
                -1
            }
        }
        _ => 0,
    }
}

/// The next single-precision number after `x` towards `y`.
fn nextafter(x: f64, y: f64) -> f64 {
    f64::from(libm::nextafterf(x as f32, y as f32))
}
