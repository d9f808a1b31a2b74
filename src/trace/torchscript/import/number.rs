//! Arithmetic on the numbers of the program that are known while it is read: Python's `bool`, `int` and `float`.
//!
//! An `int` may be a symbolic size. Floats made from sizes stay exact as long as they are a size over a whole number, so
//! that `int(floor(size * 0.5))` remains a size; anything else fixes the sizes to their examples.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::symbols::Symbols;

/// A number that is known while the program is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// `True` or `False`.
    Bool(bool),
    /// A Python `int`, possibly a symbolic size.
    Int(Dim),
    /// A Python `float`.
    Float(f64),
    /// A Python `float`: a size over a positive whole number.
    Ratio(Dim, i64),
}

impl Number {
    /// The `int` of this value.
    pub fn int(value: impl Into<Dim>) -> Number {
        Number::Int(value.into())
    }

    /// True for Python's `float`.
    pub fn is_float(&self) -> bool {
        matches!(self, Number::Float(_) | Number::Ratio(..))
    }

    /// The number as Python would convert it by `int()`, possibly symbolic.
    pub fn to_int(&self, symbols: &Symbols) -> Result<Dim> {
        Ok(match self {
            Number::Bool(value) => Dim::from(i64::from(*value)),
            Number::Int(dim) => dim.clone(),
            Number::Float(value) => Dim::from(*value as i64),
            Number::Ratio(size, by) => match symbols.less_equal(&Dim::ZERO, size)? {
                true => size.floor_div(&Dim::from(*by)),
                false => size.ceil_div(&Dim::from(*by)),
            },
        })
    }

    /// The number as Python would convert it by `float()`.
    pub fn to_float(&self) -> Number {
        match self {
            Number::Bool(value) => Number::Float(f64::from(u8::from(*value))),
            Number::Int(dim) => dim
                .as_const()
                .map_or(Number::Ratio(dim.clone(), 1), |value| {
                    Number::Float(value as f64)
                }),
            float => float.clone(),
        }
    }

    /// The number with symbolic sizes fixed to their examples.
    pub fn concrete(&self, symbols: &Symbols) -> Result<Scalar> {
        Ok(match self {
            Number::Bool(value) => Scalar::Bool(*value),
            Number::Int(dim) => Scalar::Int(symbols.concrete(dim)?),
            Number::Float(value) => Scalar::Float(*value),
            Number::Ratio(size, by) => Scalar::Float(symbols.concrete(size)? as f64 / *by as f64),
        })
    }

    /// Python's truth: not zero.
    pub fn truth(&self, symbols: &Symbols) -> Result<bool> {
        match self {
            Number::Bool(value) => Ok(*value),
            Number::Float(value) => Ok(*value != 0.0),
            Number::Int(dim) | Number::Ratio(dim, _) => {
                Ok(dim.smallest().is_some_and(|least| least > 0)
                    || !symbols.equal(dim, &Dim::ZERO)?)
            }
        }
    }

    /// The number as an element of a dtype holds it.
    pub fn cast(&self, dtype: DType, symbols: &Symbols) -> Result<Number> {
        Ok(match self {
            Number::Int(dim) if dtype.is_integer() && dim.as_const().is_none() => self.clone(),
            Number::Ratio(..) if dtype.is_integer() => Number::Int(self.to_int(symbols)?),
            Number::Int(dim) if dtype.is_float() && dim.as_const().is_none() => self.to_float(),
            Number::Ratio(..) if dtype.is_float() => self.clone(),
            other => other.concrete(symbols)?.cast(dtype).into(),
        })
    }

    /// An `int` as a size; floats are none.
    fn as_dim(&self) -> Option<Dim> {
        match self {
            Number::Bool(value) => Some(Dim::from(i64::from(*value))),
            Number::Int(dim) => Some(dim.clone()),
            _ => None,
        }
    }

    /// Numerator and denominator, if the number is such a ratio exactly.
    fn as_ratio(&self) -> Option<(Dim, i64)> {
        match self {
            Number::Ratio(size, by) => Some((size.clone(), *by)),
            Number::Float(value) => {
                let by = [1i64, 2, 4, 8, 16, 32, 64, 128, 256];
                let mut exact = by.into_iter().map(|by| (value * by as f64, by));
                let (whole, by) =
                    exact.find(|(scaled, _)| scaled.fract() == 0.0 && scaled.abs() < 1e9)?;
                Some((Dim::from(whole as i64), by))
            }
            other => Some((other.as_dim()?, 1)),
        }
    }
}

impl From<Scalar> for Number {
    fn from(scalar: Scalar) -> Number {
        match scalar {
            Scalar::Bool(value) => Number::Bool(value),
            Scalar::Int(value) => Number::Int(Dim::from(value)),
            Scalar::Float(value) => Number::Float(value),
        }
    }
}

fn ratio(size: &Dim, by: i64) -> Number {
    let divided = size.floor_div(&Dim::from(by));
    if &divided * &Dim::from(by) == *size {
        return Number::Int(divided).to_float();
    }
    size.as_const()
        .map_or(Number::Ratio(size.clone(), by), |value| {
            Number::Float(value as f64 / by as f64)
        })
}

/// A function of two numbers by its ATen name; `None` if it is no such function.
pub fn binary(symbols: &Symbols, name: &str, a: &Number, b: &Number) -> Result<Option<Number>> {
    if let Some(answer) = compare(symbols, name, a, b)? {
        return Ok(Some(Number::Bool(answer)));
    }
    if let (Number::Bool(a), Number::Bool(b)) = (a, b)
        && let Some(answer) = logic(name, *a, *b)
    {
        return Ok(Some(Number::Bool(answer)));
    }
    match (a.as_dim(), b.as_dim()) {
        (Some(a), Some(b)) => on_ints(symbols, name, &a, &b),
        _ => on_floats(symbols, name, a, b),
    }
}

fn logic(name: &str, a: bool, b: bool) -> Option<bool> {
    match name {
        "__and__" | "logical_and" | "bitwise_and" => Some(a && b),
        "__or__" | "logical_or" | "bitwise_or" => Some(a || b),
        "__xor__" | "logical_xor" | "bitwise_xor" => Some(a != b),
        _ => None,
    }
}

fn compare(symbols: &Symbols, name: &str, a: &Number, b: &Number) -> Result<Option<bool>> {
    Ok(Some(match name {
        "eq" => equal(symbols, a, b)?,
        "ne" => !equal(symbols, a, b)?,
        "le" => less_equal(symbols, a, b)?,
        "ge" => less_equal(symbols, b, a)?,
        "lt" => less(symbols, a, b)?,
        "gt" => less(symbols, b, a)?,
        _ => return Ok(None),
    }))
}

fn equal(symbols: &Symbols, a: &Number, b: &Number) -> Result<bool> {
    match (a.as_ratio(), b.as_ratio()) {
        (Some((a, p)), Some((b, q))) => symbols.equal(&(a * q), &(b * p)),
        _ => Ok(a.concrete(symbols)?.to_f64() == b.concrete(symbols)?.to_f64()),
    }
}

fn less_equal(symbols: &Symbols, a: &Number, b: &Number) -> Result<bool> {
    match (a.as_ratio(), b.as_ratio()) {
        (Some((a, p)), Some((b, q))) => symbols.less_equal(&(a * q), &(b * p)),
        _ => Ok(a.concrete(symbols)?.to_f64() <= b.concrete(symbols)?.to_f64()),
    }
}

fn less(symbols: &Symbols, a: &Number, b: &Number) -> Result<bool> {
    match (a.as_ratio(), b.as_ratio()) {
        (Some((a, p)), Some((b, q))) => symbols.less_equal(&(a * q + 1), &(b * p)),
        _ => Ok(a.concrete(symbols)?.to_f64() < b.concrete(symbols)?.to_f64()),
    }
}

fn on_ints(symbols: &Symbols, name: &str, a: &Dim, b: &Dim) -> Result<Option<Number>> {
    let dim = match name {
        "add" => a + b,
        "sub" => a - b,
        "rsub" => b - a,
        "mul" => a * b,
        "floordiv" | "floor_divide" => a.floor_div(&divisor(symbols, b)?),
        "remainder" => a.modulo(&divisor(symbols, b)?),
        "min" | "minimum" => a.minimum(b),
        "max" | "maximum" => a.maximum(b),
        "div" | "true_divide" => return true_division(symbols, a, b).map(Some),
        "pow" => return power(symbols, a, b).map(Some),
        _ => return on_fixed_ints(symbols, name, a, b),
    };
    Ok(Some(Number::Int(dim)))
}

fn divisor(symbols: &Symbols, dim: &Dim) -> Result<Dim> {
    if Number::Int(dim.clone()).truth(symbols)? {
        return Ok(dim.clone());
    }
    Err(Error::operator("integer division by zero"))
}

fn true_division(symbols: &Symbols, a: &Dim, b: &Dim) -> Result<Number> {
    if let Some(by) = b.as_const() {
        return Ok(match by {
            0 => Number::Float(symbols.concrete(a)? as f64 / 0.0),
            by if by < 0 => ratio(&-a, by.saturating_neg()),
            by => ratio(a, by),
        });
    }
    let quotient = a.floor_div(b);
    if &quotient * b == *a {
        return Ok(Number::Int(quotient).to_float());
    }
    let (a, b) = (symbols.concrete(a)?, symbols.concrete(b)?);
    Ok(Number::Float(a as f64 / b as f64))
}

fn power(symbols: &Symbols, a: &Dim, b: &Dim) -> Result<Number> {
    let exponent = symbols.concrete(b)?;
    if let Some(base) = a.as_const() {
        let whole = u32::try_from(exponent)
            .ok()
            .and_then(|e| base.checked_pow(e));
        return Ok(whole.map_or(
            Number::Float((base as f64).powf(exponent as f64)),
            Number::int,
        ));
    }
    if (0..=4).contains(&exponent) {
        let factors = (0..exponent).map(|_| a);
        return Ok(Number::Int(Dim::product(factors)));
    }
    let base = symbols.concrete(a)?;
    power(symbols, &Dim::from(base), b)
}

fn on_fixed_ints(symbols: &Symbols, name: &str, a: &Dim, b: &Dim) -> Result<Option<Number>> {
    let known = [
        "__and__",
        "__or__",
        "__xor__",
        "__lshift__",
        "__rshift__",
        "gcd",
        "fmod",
    ];
    if !known.contains(&name) {
        return on_floats(
            symbols,
            name,
            &Number::Int(a.clone()),
            &Number::Int(b.clone()),
        );
    }
    let (a, b) = (symbols.concrete(a)?, symbols.concrete(b)?);
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    Ok(Some(Number::int(match name {
        "__and__" => a & b,
        "__or__" => a | b,
        "__xor__" => a ^ b,
        "__lshift__" => a.checked_shl(shift).unwrap_or(0),
        "__rshift__" => a.checked_shr(shift).unwrap_or(0),
        "gcd" => greatest_common_divisor(a, b),
        _ => a.checked_rem(b).unwrap_or(0),
    })))
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    match b {
        0 => a.saturating_abs(),
        _ => greatest_common_divisor(b, a.checked_rem(b).unwrap_or(0)),
    }
}

fn on_floats(symbols: &Symbols, name: &str, a: &Number, b: &Number) -> Result<Option<Number>> {
    if let Some(exact) = on_ratios(name, a, b) {
        return Ok(Some(exact));
    }
    if !is_float_function(name) {
        return Ok(None);
    }
    let (a, b) = (a.concrete(symbols)?.to_f64(), b.concrete(symbols)?.to_f64());
    Ok(Some(Number::Float(match name {
        "add" => a + b,
        "sub" => a - b,
        "rsub" => b - a,
        "mul" => a * b,
        "div" | "true_divide" => a / b,
        "floordiv" | "floor_divide" => (a / b).floor(),
        "remainder" => a - b * (a / b).floor(),
        "fmod" => a % b,
        "pow" => a.powf(b),
        "min" | "minimum" => a.min(b),
        "max" | "maximum" => a.max(b),
        "atan2" => a.atan2(b),
        _ => libm::copysign(a, b),
    })))
}

fn is_float_function(name: &str) -> bool {
    let arithmetic = ["add", "sub", "rsub", "mul", "div", "true_divide", "pow"];
    let others = [
        "floordiv",
        "floor_divide",
        "remainder",
        "fmod",
        "atan2",
        "copysign",
    ];
    let order = ["min", "max", "minimum", "maximum"];
    arithmetic.contains(&name) || others.contains(&name) || order.contains(&name)
}

/// Sums, products and quotients in which a symbolic size takes part, as long as they are ratios again.
fn on_ratios(name: &str, a: &Number, b: &Number) -> Option<Number> {
    let symbolic = |number: &Number| match number {
        Number::Ratio(..) => true,
        Number::Int(dim) => dim.as_const().is_none(),
        _ => false,
    };
    if !symbolic(a) && !symbolic(b) {
        return None;
    }
    let ((a, p), (b, q)) = (a.as_ratio()?, b.as_ratio()?);
    let both = p.checked_mul(q).filter(|by| *by < 1 << 40)?;
    match name {
        "add" => Some(ratio(&(a * q + b * p), both)),
        "sub" => Some(ratio(&(a * q - b * p), both)),
        "rsub" => Some(ratio(&(b * p - a * q), both)),
        "mul" => Some(ratio(&(a * b), both)),
        "div" | "true_divide" => {
            let by = b.as_const().filter(|by| *by != 0)?;
            let sign = by.signum();
            let by = p.checked_mul(by.checked_abs()?)?;
            Some(ratio(&(a * q * sign), by))
        }
        "floordiv" | "floor_divide" => {
            let by = b.as_const().filter(|by| 0 < *by)?;
            Some(Number::Int((a * q).floor_div(&Dim::from(p.checked_mul(by)?))).to_float())
        }
        _ => None,
    }
}

/// A function of one number by its ATen name; `None` if it is no such function.
pub fn unary(symbols: &Symbols, name: &str, a: &Number) -> Result<Option<Number>> {
    if name == "__not__" || name == "logical_not" {
        return Ok(Some(Number::Bool(!a.truth(symbols)?)));
    }
    if let Some(size) = a.as_dim() {
        match name {
            "neg" => return Ok(Some(Number::Int(-&size))),
            "abs" => return absolute(symbols, &size).map(Some),
            "floor" | "ceil" | "round" | "trunc" => return Ok(Some(Number::Int(size))),
            _ => {}
        }
    }
    if let Number::Ratio(size, by) = a {
        let by = Dim::from(*by);
        match name {
            "neg" => return Ok(Some(Number::Ratio(-size, by.as_const().unwrap_or(1)))),
            "floor" => return Ok(Some(Number::Int(size.floor_div(&by)))),
            "ceil" => return Ok(Some(Number::Int(size.ceil_div(&by)))),
            "trunc" => return Ok(Some(Number::Int(a.to_int(symbols)?))),
            _ => {}
        }
    }
    let Some(function) = float_function(name) else {
        return Ok(None);
    };
    Ok(Some(Number::Float(function(a.concrete(symbols)?.to_f64()))))
}

fn absolute(symbols: &Symbols, size: &Dim) -> Result<Number> {
    let positive = symbols.less_equal(&Dim::ZERO, size)?;
    Ok(Number::Int(if positive { size.clone() } else { -size }))
}

fn float_function(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "neg" => |x| -x,
        "abs" | "fabs" => f64::abs,
        "floor" => f64::floor,
        "ceil" => f64::ceil,
        "round" => f64::round_ties_even,
        "trunc" => f64::trunc,
        "sqrt" => f64::sqrt,
        "rsqrt" => |x| 1.0 / x.sqrt(),
        "reciprocal" => |x| 1.0 / x,
        "exp" => f64::exp,
        "log" => f64::ln,
        "log2" => f64::log2,
        "log10" => f64::log10,
        "log1p" => f64::ln_1p,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Bindings;

    fn symbols() -> Symbols {
        Symbols::new(Bindings::from([("H".into(), 7)]), Vec::new())
    }

    fn size(text: &str) -> Number {
        Number::Int(text.parse().unwrap())
    }

    #[test]
    fn halving_a_size_stays_symbolic() {
        let symbols = symbols();
        let half = binary(&symbols, "mul", &size("H").to_float(), &Number::Float(0.5))
            .unwrap()
            .unwrap();
        let floor = unary(&symbols, "floor", &half).unwrap().unwrap();
        assert_eq!(floor, size("floordiv(H, 2)"));
        assert!(symbols.guards().is_empty());
    }

    #[test]
    fn inexact_factors_fix_the_size() {
        let symbols = symbols();
        let product = binary(&symbols, "mul", &size("H"), &Number::Float(0.3)).unwrap();
        assert_eq!(product, Some(Number::Float(7.0 * 0.3)));
        assert_eq!(symbols.resolve(&"H".parse().unwrap()), Dim::from(7));
    }

    #[test]
    fn comparisons_record_guards() {
        let symbols = symbols();
        let answer = binary(&symbols, "lt", &size("H"), &Number::Float(7.5)).unwrap();
        assert_eq!(answer, Some(Number::Bool(true)));
        assert_eq!(symbols.guards().len(), 1);
        let same = binary(&symbols, "eq", &size("2*H"), &size("H + H")).unwrap();
        assert_eq!(same, Some(Number::Bool(true)));
        assert_eq!(symbols.guards().len(), 1);
    }
}
