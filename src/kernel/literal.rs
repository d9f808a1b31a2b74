//! Numeric literals of WGSL, written so that every compiler reads the same bits.
//!
//! WGSL reads a literal of a float without a suffix as an `AbstractFloat`, which is an `f64`, and rounds that to `f32`. A
//! compiler may refuse a literal that is beyond the largest `f32` before it is rounded. The shortest digits of the largest
//! `f32`, `3.4028235e38`, are such a literal.

use crate::error::{Error, Result};

/// The literal of a finite `f32`: the fewest digits that read back as the same bits.
pub fn f32_literal(value: f32) -> String {
    let short = format!("{value:?}");
    match parse_f32(&short) {
        Ok(read) if read.to_bits() == value.to_bits() => short,
        _ => format!("{:?}", f64::from(value)),
    }
}

/// The literal of a finite `f64`; `lf` is naga's suffix, which standard WGSL does not have.
pub fn f64_literal(value: f64) -> String {
    format!("{value:?}lf")
}

/// The `f32` value of a literal without a suffix, by the rules of WGSL.
///
/// # Errors
/// The text is not a number, or not a finite `f32`.
pub fn parse_f32(text: &str) -> Result<f32> {
    let wide: f64 = text.parse().map_err(|_| unreadable(text))?;
    match wide.abs() <= f64::from(f32::MAX) {
        true => Ok(wide as f32),
        false => Err(Error::plan(format!(
            "the literal {text} is not a finite f32"
        ))),
    }
}

/// The numeric literals of WGSL source, without signs, in order.
pub fn literals(wgsl: &str) -> Vec<&str> {
    wgsl.lines().flat_map(literals_in_line).collect()
}

fn literals_in_line(line: &str) -> Vec<&str> {
    let mut rest = line.split("//").next().unwrap_or_default();
    let mut found = Vec::new();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
        let token = &rest[start..];
        let (word, after) = token.split_at(token_length(token));
        if word
            .trim_start_matches('.')
            .starts_with(|c: char| c.is_ascii_digit())
        {
            found.push(word);
        }
        rest = after;
    }
    found
}

/// Length in bytes of the name or number at the start of the text; the exponent of a number may have a sign.
fn token_length(text: &str) -> usize {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let mut before = ' ';
    let end = text.find(|c: char| {
        let is_sign = is_number && matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        let is_part = c.is_ascii_alphanumeric() || c == '_' || (c == '.' && is_number);
        before = c;
        !(is_part || is_sign)
    });
    end.unwrap_or(text.len())
}

/// Checks that every compiler reads the literals of WGSL source as the same numbers.
///
/// # Errors
/// A literal is not a number of its type, or rounding it twice (to `f64`, then to `f32`) differs from rounding it once.
pub fn check_literals(wgsl: &str) -> Result<()> {
    literals(wgsl).into_iter().try_for_each(check_literal)
}

fn check_literal(text: &str) -> Result<()> {
    let fits = |is_number: bool| is_number.then_some(()).ok_or_else(|| unreadable(text));
    if text.starts_with("0x") {
        return fits(parse_unsigned(text.trim_end_matches(['u', 'i', 'l'])).is_some());
    }
    let is_float = text.contains(['.', 'e', 'E']);
    if let Some(digits) = text.strip_suffix("lf") {
        return fits(digits.parse().is_ok_and(f64::is_finite));
    }
    if let Some(digits) = text.strip_suffix("li") {
        return fits(digits.parse::<i64>().is_ok());
    }
    if let Some(digits) = text.strip_suffix("lu") {
        return fits(parse_unsigned(digits).is_some());
    }
    if let Some(digits) = text.strip_suffix('u') {
        return fits(parse_unsigned(digits).is_some_and(|value| u32::try_from(value).is_ok()));
    }
    if let Some(digits) = text.strip_suffix('h') {
        return fits(digits.parse().is_ok_and(|wide: f64| wide.abs() <= 65504.0));
    }
    if !is_float {
        return fits(text.trim_end_matches('i').parse::<i64>().is_ok());
    }
    let digits = text.trim_end_matches('f');
    let twice = parse_f32(digits)?;
    fits(
        digits
            .parse()
            .is_ok_and(|once: f32| once.to_bits() == twice.to_bits()),
    )
}

fn parse_unsigned(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

fn unreadable(text: &str) -> Error {
    Error::plan(format!(
        "compilers may read the literal {text} as different numbers"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::shader::parse;

    /// Bits of numbers of every exponent, including subnormal numbers, zeros and the largest.
    fn bits() -> impl Iterator<Item = u32> {
        let mantissas = [
            0, 1, 2, 0x2a_aaaa, 0x40_0000, 0x55_5555, 0x7f_fffe, 0x7f_ffff,
        ];
        let exponents = (0..255u32).map(|exponent| exponent << 23);
        let all = exponents.flat_map(move |exponent| mantissas.map(|mantissa| exponent | mantissa));
        all.flat_map(|bits| [bits, bits | 1 << 31])
    }

    /// The bits of the constants that naga reads in functions that return them.
    fn by_naga(texts: &[String]) -> Vec<u32> {
        let functions = texts.iter().enumerate();
        let functions = functions
            .map(|(place, text)| format!("fn number_{place}() -> f32 {{ return {text}; }}\n"));
        let module = parse(&functions.collect::<String>()).unwrap();
        let only = |function: &naga::Function| {
            let mut numbers = function
                .expressions
                .iter()
                .filter_map(|(_, found)| match found {
                    naga::Expression::Literal(naga::Literal::F32(value)) => Some(value.to_bits()),
                    _ => None,
                });
            numbers.next_back().unwrap()
        };
        module
            .functions
            .iter()
            .map(|(_, function)| only(function))
            .collect()
    }

    #[test]
    fn singles_read_back_bit_for_bit() {
        let expected: Vec<u32> = bits().collect();
        let texts: Vec<String> = expected
            .iter()
            .map(|bits| f32_literal(f32::from_bits(*bits)))
            .collect();
        for (bits, text) in expected.iter().zip(&texts) {
            assert_eq!(parse_f32(text).unwrap().to_bits(), *bits, "{text}");
            check_literals(text).unwrap();
        }
        assert_eq!(by_naga(&texts), expected);
    }

    #[test]
    fn the_largest_single_is_no_larger() {
        assert_eq!(f32_literal(f32::MIN), "-3.4028234663852886e38");
        assert!(parse_f32("3.4028235e38").is_err());
        assert_eq!(
            [f32_literal(0.1), f32_literal(-0.0), f32_literal(1e-45)],
            ["0.1", "-0.0", "1e-45"]
        );
    }

    #[test]
    fn literals_are_found_in_texts() {
        let text = "let x1 = vec4(1.5, -2e-3, .5).x; // 7 of them\nlet y = (x1 - 1u) << 31u - a[3li] + 0x7fu";
        assert_eq!(
            literals(text),
            ["1.5", "2e-3", ".5", "1u", "31u", "3li", "0x7fu"]
        );
        assert!(check_literals(text).is_ok());
        for wrong in [
            "4294967296u",
            "70000.0h",
            "1e39",
            "9223372036854775808li",
            "1e999lf",
        ] {
            assert!(check_literals(wrong).is_err(), "{wrong}");
        }
    }
}
