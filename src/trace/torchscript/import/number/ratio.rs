//! Ratios of sizes to whole numbers, as long as they equal the floats that PyTorch computes.

use super::ScriptNumber;
use super::integer::greatest_common_divisor;
use crate::dim::Dim;

/// Returns the float that equals a size over a whole number.
pub(super) fn ratio(size: &Dim, by: i64) -> ScriptNumber {
    let divided = size.floor_div(&Dim::from(by));
    if &divided * &Dim::from(by) == *size {
        return ScriptNumber::Int(divided).to_float();
    }
    size.as_const()
        .map_or(ScriptNumber::Ratio(size.clone(), by), |value| {
            ScriptNumber::Float(value as f64 / by as f64)
        })
}

/// Sums, products and quotients with a symbolic operand, as long as they are ratios again.
pub(super) fn binary_ratios(
    name: &str,
    a: &ScriptNumber,
    b: &ScriptNumber,
) -> Option<ScriptNumber> {
    let symbolic = |number: &ScriptNumber| match number {
        ScriptNumber::Ratio(..) => true,
        ScriptNumber::Int(dim) => dim.as_const().is_none(),
        _ => false,
    };
    if !symbolic(a) && !symbolic(b) {
        return None;
    }
    let ((a, p), (b, q)) = (a.as_ratio()?, b.as_ratio()?);
    let both = p.checked_mul(q).filter(|by| *by < 1 << 40)?;
    if !stays_exact(name, &a, p, &b, q) {
        return None;
    }
    match name {
        "min" | "minimum" => Some(ratio(&(a * q).minimum(&(b * p)), both)),
        "max" | "maximum" => Some(ratio(&(a * q).maximum(&(b * p)), both)),
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
            Some(ScriptNumber::Int((a * q).floor_div(&Dim::from(p.checked_mul(by)?))).to_float())
        }
        _ => None,
    }
}

/// Tests whether a float has the value of the exact result. A quotient by a power of two is exact. Any other quotient was
/// rounded. It may be rounded once more, but must not become whole again: `x / 49 * 49` is not `x` in floats.
fn stays_exact(name: &str, a: &Dim, p: i64, b: &Dim, q: i64) -> bool {
    let coprime = |number: &Dim, by: i64| {
        let number = number.as_const();
        number.is_some_and(|number| greatest_common_divisor(number, by) == 1)
    };
    match (name, is_power_of_two(p), is_power_of_two(q)) {
        (_, true, true) | ("min" | "minimum" | "max" | "maximum", ..) => true,
        ("mul", false, true) => coprime(b, p),
        ("mul", true, false) => coprime(a, q),
        ("div" | "true_divide", false, true) => true,
        _ => false,
    }
}

fn is_power_of_two(number: i64) -> bool {
    number.count_ones() == 1
}
