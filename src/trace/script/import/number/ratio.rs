//! Arithmetic on ratios of sizes to whole numbers, as long as the ratios equal the floats that PyTorch computes.

use super::ScriptNumber;
use super::integer::greatest_common_divisor;
use crate::dim::Dim;

/// Returns the float that equals a size over a positive whole number.
pub(super) fn ratio(size: &Dim, denominator: i64) -> ScriptNumber {
    let quotient = size.floor_div(&Dim::from(denominator));
    if &quotient * &Dim::from(denominator) == *size {
        return ScriptNumber::Int(quotient).to_float();
    }
    size.as_const()
        .map_or(ScriptNumber::Ratio(size.clone(), denominator), |value| {
            ScriptNumber::Float(value as f64 / denominator as f64)
        })
}

/// Applies a function with a symbolic operand; none if its result is not a ratio, or differs from the float that
/// PyTorch computes.
pub(super) fn binary_ratios(
    name: &str,
    a: &ScriptNumber,
    b: &ScriptNumber,
) -> Option<ScriptNumber> {
    let is_symbolic = |number: &ScriptNumber| match number {
        ScriptNumber::Ratio(..) => true,
        ScriptNumber::Int(dim) => dim.as_const().is_none(),
        _ => false,
    };
    if !is_symbolic(a) && !is_symbolic(b) {
        return None;
    }
    // The operands are `a / p` and `b / q`.
    let ((a, p), (b, q)) = (a.as_ratio()?, b.as_ratio()?);
    let common_denominator = p.checked_mul(q).filter(|product| *product < 1 << 40)?;
    if !stays_exact(name, &a, p, &b, q) {
        return None;
    }
    match name {
        "min" | "minimum" => Some(ratio(&(a * q).minimum(&(b * p)), common_denominator)),
        "max" | "maximum" => Some(ratio(&(a * q).maximum(&(b * p)), common_denominator)),
        "add" => Some(ratio(&(a * q + b * p), common_denominator)),
        "sub" => Some(ratio(&(a * q - b * p), common_denominator)),
        "rsub" => Some(ratio(&(b * p - a * q), common_denominator)),
        "mul" => Some(ratio(&(a * b), common_denominator)),
        "div" | "true_divide" => {
            let divisor = b.as_const().filter(|divisor| *divisor != 0)?;
            let sign = divisor.signum();
            let denominator = p.checked_mul(divisor.checked_abs()?)?;
            Some(ratio(&(a * q * sign), denominator))
        }
        "floordiv" | "floor_divide" => {
            let divisor = b.as_const().filter(|divisor| 0 < *divisor)?;
            Some(
                ScriptNumber::Int((a * q).floor_div(&Dim::from(p.checked_mul(divisor)?)))
                    .to_float(),
            )
        }
        _ => None,
    }
}

/// Tests whether the float that PyTorch computes from `a / p` and `b / q` can be represented by the exact result. A
/// float quotient by a power of two is exact. Any other quotient was rounded. It may be rounded once more, but must not
/// become whole again: `x / 49 * 49` is not `x` in floats.
fn stays_exact(name: &str, a: &Dim, p: i64, b: &Dim, q: i64) -> bool {
    let is_coprime = |number: &Dim, denominator: i64| {
        let number = number.as_const();
        number.is_some_and(|number| greatest_common_divisor(number, denominator) == 1)
    };
    match (name, is_power_of_two(p), is_power_of_two(q)) {
        (_, true, true) | ("min" | "minimum" | "max" | "maximum", ..) => true,
        ("mul", false, true) => is_coprime(b, p),
        ("mul", true, false) => is_coprime(a, q),
        ("div" | "true_divide", false, true) => true,
        _ => false,
    }
}

fn is_power_of_two(number: i64) -> bool {
    number.count_ones() == 1
}
