//! Arithmetic on integers and sizes. Integers without symbols wrap at 64 bits; expressions in symbolic sizes stay
//! symbolic.

use super::ratio::ratio;
use super::{ScriptNumber, binary, binary_floats};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::symbols::Symbols;

/// Applies a function of two integers by its name; `None` if there is no such function.
pub(super) fn binary_ints(
    symbols: &Symbols,
    name: &str,
    a: &Dim,
    b: &Dim,
) -> Result<Option<ScriptNumber>> {
    if let (Some(a), Some(b)) = (a.as_const(), b.as_const())
        && let Some(wrapped) = wrapping_ints(name, a, b)
    {
        return Ok(Some(ScriptNumber::int(wrapped)));
    }
    let dim = match name {
        "add" => a + b,
        "sub" => a - b,
        "rsub" => b - a,
        "mul" => a * b,
        "floordiv" | "floor_divide" => a.floor_div(&divisor(symbols, b)?),
        "remainder" | "script_remainder" => a.modulo(&divisor(symbols, b)?),
        "trunc_divide" => truncated_quotient(symbols, a, &divisor(symbols, b)?)?,
        "min" | "minimum" => a.minimum(b),
        "max" | "maximum" => a.maximum(b),
        "div" | "true_divide" => return true_division(symbols, a, b).map(Some),
        "pow" => return power(symbols, a, b).map(Some),
        "script_pow" => return Ok(Some(power(symbols, a, b)?.to_float())),
        _ => return concrete_ints(symbols, name, a, b),
    };
    if is_size(symbols, &dim)? {
        return Ok(Some(ScriptNumber::Int(dim)));
    }
    // No size is this large: the number wraps at 64 bits.
    let (a, b) = (symbols.specialize(a)?, symbols.specialize(b)?);
    binary(symbols, name, &ScriptNumber::int(a), &ScriptNumber::int(b))
}

/// True if an integer has no symbols, or is small enough to be a size.
fn is_size(symbols: &Symbols, dim: &Dim) -> Result<bool> {
    const LARGEST: u64 = 1 << 53;
    Ok(dim.as_const().is_some() || symbols.hint(dim)?.unsigned_abs() < LARGEST)
}

/// Sums, differences and products of integers without symbols, which wrap; none for other functions.
fn wrapping_ints(name: &str, a: i64, b: i64) -> Option<i64> {
    match name {
        "add" => Some(a.wrapping_add(b)),
        "sub" => Some(a.wrapping_sub(b)),
        "rsub" => Some(b.wrapping_sub(a)),
        "mul" => Some(a.wrapping_mul(b)),
        _ => None,
    }
}

/// Returns a divisor; an error if it is zero.
fn divisor(symbols: &Symbols, dim: &Dim) -> Result<Dim> {
    if ScriptNumber::Int(dim.clone()).is_truthy(symbols)? {
        return Ok(dim.clone());
    }
    Err(Error::operator("integer division by zero"))
}

/// A quotient rounded towards zero.
fn truncated_quotient(symbols: &Symbols, a: &Dim, b: &Dim) -> Result<Dim> {
    let is_negative = |dim: &Dim| Ok::<bool, Error>(!symbols.less_equal(&Dim::ZERO, dim)?);
    Ok(match is_negative(a)? == is_negative(b)? {
        true => a.floor_div(b),
        false => a.ceil_div(b),
    })
}

/// A quotient as a float, exact if possible.
fn true_division(symbols: &Symbols, a: &Dim, b: &Dim) -> Result<ScriptNumber> {
    if let Some(constant) = b.as_const() {
        return Ok(match constant {
            0 => ScriptNumber::Float(symbols.specialize(a)? as f64 / 0.0),
            constant if constant < 0 => ratio(&-a, constant.saturating_neg()),
            constant => ratio(a, constant),
        });
    }
    let quotient = a.floor_div(&divisor(symbols, b)?);
    if &quotient * b == *a {
        return Ok(ScriptNumber::Int(quotient).to_float());
    }
    let (a, b) = (symbols.specialize(a)?, symbols.specialize(b)?);
    Ok(ScriptNumber::Float(a as f64 / b as f64))
}

/// An integer power, which wraps as for tensors. A negative exponent gives a float.
fn power(symbols: &Symbols, a: &Dim, b: &Dim) -> Result<ScriptNumber> {
    let exponent = symbols.specialize(b)?;
    if a.as_const().is_none() && (0..=4).contains(&exponent) {
        let factors = (0..exponent).map(|_| a);
        return Ok(ScriptNumber::Int(Dim::product(factors)));
    }
    let base = symbols.specialize(a)?;
    Ok(match u32::try_from(exponent) {
        Ok(exponent) => ScriptNumber::int(base.wrapping_pow(exponent)),
        Err(_) => ScriptNumber::Float((base as f64).powf(exponent as f64)),
    })
}

/// Applies a function that has no symbolic form. Fixes the sizes to their examples.
fn concrete_ints(symbols: &Symbols, name: &str, a: &Dim, b: &Dim) -> Result<Option<ScriptNumber>> {
    let Some(function) = bit_function(name) else {
        return binary_floats(
            symbols,
            name,
            &ScriptNumber::Int(a.clone()),
            &ScriptNumber::Int(b.clone()),
        );
    };
    let (a, b) = (symbols.specialize(a)?, symbols.specialize(b)?);
    Ok(Some(ScriptNumber::int(function(a, b))))
}

/// Finds a function of integers that has no symbolic form.
fn bit_function(name: &str) -> Option<fn(i64, i64) -> i64> {
    Some(match name {
        "__and__" | "bitwise_and" => |a, b| a & b,
        "__or__" | "bitwise_or" => |a, b| a | b,
        "__xor__" | "bitwise_xor" => |a, b| a ^ b,
        "__lshift__" | "bitwise_left_shift" => |a, b| match u32::try_from(b) {
            Ok(b) => a.checked_shl(b).unwrap_or(0),
            Err(_) => 0,
        },
        "__rshift__" | "bitwise_right_shift" => |a, b| match u32::try_from(b) {
            Ok(b) => a >> b.min(63),
            Err(_) => a >> 63,
        },
        // Processors use the last six bits of a shift distance, and scripts pass the distance on unchecked.
        "script_lshift" => |a, b| a.wrapping_shl(b as u32),
        "script_rshift" => |a, b| a.wrapping_shr(b as u32),
        "gcd" => greatest_common_divisor,
        "fmod" => |a, b| a.checked_rem(b).unwrap_or(0),
        _ => return None,
    })
}

pub(super) fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    match b {
        0 => a.wrapping_abs(),
        _ => greatest_common_divisor(b, a.checked_rem(b).unwrap_or(0)),
    }
}
