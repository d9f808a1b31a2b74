//! Arithmetic on the numbers of the program that are known during import: Python's `bool`, `int` and `float`.
//!
//! An `int` may be a symbolic size. A float made from sizes stays exact as long as it is a size over a whole number, so
//! `int(floor(size * 0.5))` remains a size. Any other float fixes the sizes to their examples. An `int` without symbols
//! has 64 bits and wraps, as in PyTorch's scripts and tensors.
//!
//! Functions are selected by name, in general ATen's. The prefix `script_` marks a function of Python numbers that
//! differs from the tensor function of the name without the prefix.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::BinaryFunction;
use crate::scalar::Scalar;
use crate::symbols::Symbols;

mod integer;
mod ratio;

use integer::binary_ints;
use ratio::binary_ratios;

/// A number that is known during import.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptNumber {
    /// `True` or `False`.
    Bool(bool),
    /// A Python `int`, possibly a symbolic size.
    Int(Dim),
    /// A Python `float`.
    Float(f64),
    /// A Python `float`: a size over a positive whole number.
    Ratio(Dim, i64),
}

impl ScriptNumber {
    /// Makes an `int`.
    pub fn int(value: impl Into<Dim>) -> ScriptNumber {
        ScriptNumber::Int(value.into())
    }

    /// True for Python's `float`.
    pub fn is_float(&self) -> bool {
        matches!(self, ScriptNumber::Float(_) | ScriptNumber::Ratio(..))
    }

    /// Converts the number by Python's `int()`. The result may be symbolic.
    pub fn to_int(&self, symbols: &Symbols) -> Result<Dim> {
        Ok(match self {
            ScriptNumber::Bool(value) => Dim::from(i64::from(*value)),
            ScriptNumber::Int(dim) => dim.clone(),
            ScriptNumber::Float(value) => Dim::from(truncate_to_i64(*value)),
            ScriptNumber::Ratio(size, denominator) => match symbols.less_equal(&Dim::ZERO, size)? {
                true => size.floor_div(&Dim::from(*denominator)),
                false => size.ceil_div(&Dim::from(*denominator)),
            },
        })
    }

    /// Converts the number by Python's `float()`.
    pub fn to_float(&self) -> ScriptNumber {
        match self {
            ScriptNumber::Bool(value) => ScriptNumber::Float(f64::from(u8::from(*value))),
            ScriptNumber::Int(dim) => dim
                .as_const()
                .map_or(ScriptNumber::Ratio(dim.clone(), 1), |value| {
                    ScriptNumber::Float(value as f64)
                }),
            float => float.clone(),
        }
    }

    /// Returns the number with symbolic sizes fixed to their examples.
    pub fn concrete(&self, symbols: &Symbols) -> Result<Scalar> {
        Ok(match self {
            ScriptNumber::Bool(value) => Scalar::Bool(*value),
            ScriptNumber::Int(dim) => Scalar::Int(symbols.specialize(dim)?),
            ScriptNumber::Float(value) => Scalar::Float(*value),
            ScriptNumber::Ratio(size, denominator) => {
                Scalar::Float(symbols.specialize(size)? as f64 / *denominator as f64)
            }
        })
    }

    /// Python's truth value: not zero.
    pub fn is_truthy(&self, symbols: &Symbols) -> Result<bool> {
        match self {
            ScriptNumber::Bool(value) => Ok(*value),
            ScriptNumber::Float(value) => Ok(*value != 0.0),
            ScriptNumber::Int(dim) | ScriptNumber::Ratio(dim, _) => {
                Ok(!symbols.equal(dim, &Dim::ZERO)?)
            }
        }
    }

    /// Converts the number to the value that an element of a dtype holds.
    pub fn cast(&self, dtype: DType, symbols: &Symbols) -> Result<ScriptNumber> {
        Ok(match self {
            ScriptNumber::Int(dim) if dtype.is_integer() && dim.as_const().is_none() => {
                self.clone()
            }
            ScriptNumber::Ratio(..) if dtype.is_integer() => {
                ScriptNumber::Int(self.to_int(symbols)?)
            }
            ScriptNumber::Int(dim) if dtype.is_float() && dim.as_const().is_none() => {
                self.to_float()
            }
            ScriptNumber::Ratio(..) if dtype.is_float() => self.clone(),
            other => other.concrete(symbols)?.cast(dtype).into(),
        })
    }

    /// An `int` or `bool` as a size; none for floats.
    fn as_dim(&self) -> Option<Dim> {
        match self {
            ScriptNumber::Bool(value) => Some(Dim::from(i64::from(*value))),
            ScriptNumber::Int(dim) => Some(dim.clone()),
            _ => None,
        }
    }

    /// Numerator and denominator, if the number equals a ratio exactly whose denominator is small.
    fn as_ratio(&self) -> Option<(Dim, i64)> {
        match self {
            ScriptNumber::Ratio(size, denominator) => Some((size.clone(), *denominator)),
            ScriptNumber::Float(value) => {
                let denominators = [1i64, 2, 4, 8, 16, 32, 64, 128, 256];
                let mut ratios = denominators
                    .into_iter()
                    .map(|denominator| (value * denominator as f64, denominator));
                let (numerator, denominator) =
                    ratios.find(|(scaled, _)| scaled.fract() == 0.0 && scaled.abs() < 1e9)?;
                Some((Dim::from(numerator as i64), denominator))
            }
            other => Some((other.as_dim()?, 1)),
        }
    }
}

impl From<Scalar> for ScriptNumber {
    fn from(scalar: Scalar) -> ScriptNumber {
        match scalar {
            Scalar::Bool(value) => ScriptNumber::Bool(value),
            Scalar::Int(value) => ScriptNumber::Int(Dim::from(value)),
            Scalar::Float(value) => ScriptNumber::Float(value),
        }
    }
}

/// The integer part. A value that no `i64` holds becomes the least `i64`, as on processors of the x86 family and so in
/// PyTorch's scripts.
fn truncate_to_i64(value: f64) -> i64 {
    let is_in_range = (-(2f64.powi(63))..2f64.powi(63)).contains(&value);
    if is_in_range { value as i64 } else { i64::MIN }
}

/// Applies a function of two numbers by its name; `None` if there is no such function.
pub fn binary(
    symbols: &Symbols,
    name: &str,
    a: &ScriptNumber,
    b: &ScriptNumber,
) -> Result<Option<ScriptNumber>> {
    if let Some(answer) = compare(symbols, name, a, b)? {
        return Ok(Some(ScriptNumber::Bool(answer)));
    }
    if let (ScriptNumber::Bool(a), ScriptNumber::Bool(b)) = (a, b)
        && let Some(answer) = logic(name, *a, *b)
    {
        return Ok(Some(ScriptNumber::Bool(answer)));
    }
    match (a.as_dim(), b.as_dim()) {
        (Some(a), Some(b)) => binary_ints(symbols, name, &a, &b),
        _ => binary_floats(symbols, name, a, b),
    }
}

/// Applies a logical function of two bools; `None` if there is no such function.
fn logic(name: &str, a: bool, b: bool) -> Option<bool> {
    match name {
        "__and__" | "logical_and" | "bitwise_and" => Some(a && b),
        "__or__" | "logical_or" | "bitwise_or" => Some(a || b),
        "__xor__" | "logical_xor" | "bitwise_xor" => Some(a != b),
        _ => None,
    }
}

/// Compares two numbers; `None` if the name is not that of a comparison.
fn compare(
    symbols: &Symbols,
    name: &str,
    a: &ScriptNumber,
    b: &ScriptNumber,
) -> Result<Option<bool>> {
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

fn equal(symbols: &Symbols, a: &ScriptNumber, b: &ScriptNumber) -> Result<bool> {
    match (a.as_ratio(), b.as_ratio()) {
        (Some((a, p)), Some((b, q))) => symbols.equal(&(a * q), &(b * p)),
        _ => Ok(a.concrete(symbols)?.to_f64() == b.concrete(symbols)?.to_f64()),
    }
}

fn less_equal(symbols: &Symbols, a: &ScriptNumber, b: &ScriptNumber) -> Result<bool> {
    match (a.as_ratio(), b.as_ratio()) {
        (Some((a, p)), Some((b, q))) => symbols.less_equal(&(a * q), &(b * p)),
        _ => Ok(a.concrete(symbols)?.to_f64() <= b.concrete(symbols)?.to_f64()),
    }
}

fn less(symbols: &Symbols, a: &ScriptNumber, b: &ScriptNumber) -> Result<bool> {
    match (a.as_ratio(), b.as_ratio()) {
        (Some((a, p)), Some((b, q))) => symbols.less_equal(&(a * q + 1), &(b * p)),
        _ => Ok(a.concrete(symbols)?.to_f64() < b.concrete(symbols)?.to_f64()),
    }
}

/// Applies a function of two numbers, of which at least one is taken for a float. The result is a ratio if that is
/// exact. Any other result fixes the sizes to their examples.
fn binary_floats(
    symbols: &Symbols,
    name: &str,
    a: &ScriptNumber,
    b: &ScriptNumber,
) -> Result<Option<ScriptNumber>> {
    if let Some(exact) = binary_ratios(name, a, b) {
        return Ok(Some(exact));
    }
    let Some(function) = float_function_of_two(name) else {
        return Ok(None);
    };
    let (a, b) = (a.concrete(symbols)?.to_f64(), b.concrete(symbols)?.to_f64());
    Ok(Some(ScriptNumber::Float(function(a, b))))
}

fn float_function_of_two(name: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match name {
        "add" => |a, b| a + b,
        "sub" => |a, b| a - b,
        "rsub" => |a, b| b - a,
        "mul" => |a, b| a * b,
        "div" | "true_divide" => |a, b| a / b,
        "floordiv" => |a, b| (a / b).floor(),
        "floor_divide" => return BinaryFunction::FloorDivide.on_floats(),
        "trunc_divide" => |a, b| (a / b).trunc(),
        "remainder" => return BinaryFunction::Remainder.on_floats(),
        "minimum" => return BinaryFunction::Minimum.on_floats(),
        "maximum" => return BinaryFunction::Maximum.on_floats(),
        "script_remainder" => |a, b| (b + a % b) % b,
        "fmod" => |a, b| a % b,
        "pow" | "script_pow" => f64::powf,
        "min" => |a, b| if b < a { b } else { a },
        "max" => |a, b| if a < b { b } else { a },
        "atan2" => f64::atan2,
        "copysign" => libm::copysign,
        _ => return None,
    })
}

/// Applies a function of one number by its name; `None` if there is no such function.
pub fn unary(symbols: &Symbols, name: &str, a: &ScriptNumber) -> Result<Option<ScriptNumber>> {
    if name == "__not__" || name == "logical_not" {
        return Ok(Some(ScriptNumber::Bool(!a.is_truthy(symbols)?)));
    }
    if let Some(size) = a.as_dim() {
        match name {
            "neg" => return Ok(Some(ScriptNumber::Int(-&size))),
            "abs" => return absolute(symbols, &size).map(Some),
            "floor" | "ceil" | "round" | "trunc" => return Ok(Some(ScriptNumber::Int(size))),
            _ => {}
        }
    }
    if let ScriptNumber::Ratio(size, denominator) = a {
        let denominator = Dim::from(*denominator);
        match name {
            "neg" => {
                return Ok(Some(ScriptNumber::Ratio(
                    -size,
                    denominator.as_const().unwrap_or(1),
                )));
            }
            "floor" => return Ok(Some(ScriptNumber::Int(size.floor_div(&denominator)))),
            "ceil" => return Ok(Some(ScriptNumber::Int(size.ceil_div(&denominator)))),
            // With an odd denominator, no value lies halfway between two integers.
            "round" if denominator.modulo(&2.into()).is(1) => {
                let doubled = size * 2 + &denominator;
                return Ok(Some(ScriptNumber::Int(
                    doubled.floor_div(&(denominator * 2)),
                )));
            }
            "trunc" => return Ok(Some(ScriptNumber::Int(a.to_int(symbols)?))),
            _ => {}
        }
    }
    let Some(function) = float_function(name) else {
        return Ok(None);
    };
    Ok(Some(ScriptNumber::Float(function(
        a.concrete(symbols)?.to_f64(),
    ))))
}

/// The absolute value of a size.
fn absolute(symbols: &Symbols, size: &Dim) -> Result<ScriptNumber> {
    let is_nonnegative = symbols.less_equal(&Dim::ZERO, size)?;
    Ok(ScriptNumber::Int(if is_nonnegative {
        size.clone()
    } else {
        -size
    }))
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
mod tests;
