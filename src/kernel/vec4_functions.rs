//! Generates vec4 versions of library functions from the scalar ones.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{token_length, tokens};

/// Tokens that prevent widening a function: branches, which each component would take separately, vector components, and
/// types that are not widened.
const UNWIDENABLE: &[&str] = &[
    "if ", "for ", "loop ", "while ", "switch ", "&&", "||", "[", "vec", "array", "ptr<", "Bits(",
    "f16", "f64", "i64", "u64",
];
/// Types that are widened.
const WIDENED_TYPES: &[&str] = &["bool", "f32", "i32", "u32"];

/// The name of the vec4 version of a function.
pub fn vec4_name(function: &str) -> String {
    format!("{function}_four")
}

/// Returns the vec4 versions of library functions, by name, for all functions that can be widened. Every type and number in
/// the source becomes a vector.
pub fn generate(library: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut widenable: BTreeMap<&str, String> = library
        .iter()
        .map(|(name, text)| (name.as_str(), without_comments(text)))
        .filter(|(_, code)| UNWIDENABLE.iter().all(|part| !code.contains(part)))
        .collect();
    // A function can be widened only if all functions that it calls can.
    let mut count = None;
    while count != Some(widenable.len()) {
        count = Some(widenable.len());
        let names: BTreeSet<&str> = widenable.keys().copied().collect();
        let is_known = |word: &str| !library.contains_key(word) || names.contains(word);
        widenable.retain(|_, code| tokens(code).all(is_known));
    }
    let widened = widenable.iter().map(|(function, code)| {
        let text = widen(code, |word| widenable.contains_key(word));
        (vec4_name(function), text)
    });
    widened.collect()
}

/// Removes comment lines.
fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Widens source to `vec4`.
fn widen(code: &str, is_function: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let end = token_length(rest);
        let (word, rest_of_text) = rest.split_at(end.max(first.len_utf8()));
        match word {
            _ if end == 0 => text.push_str(word),
            _ if first.is_ascii_digit() => text += &format!("vec4({word})"),
            _ if WIDENED_TYPES.contains(&word) => text += &format!("vec4<{word}>"),
            _ if is_function(word) => text += &vec4_name(word),
            _ => text.push_str(word),
        }
        rest = rest_of_text;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = texts
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()));
        owned.collect()
    }

    #[test]
    fn types_numbers_and_calls_are_widened() {
        let found = generate(&library(&[
            (
                "a",
                "// A 1.\nfn a(x: f32) -> bool {\n    return bitcast<u32>(x) > 0x7fu;\n}",
            ),
            (
                "b",
                "fn b(x: f32) -> f32 {\n    return select(x, -1.5e-3, a(x));\n}",
            ),
        ]));
        assert_eq!(
            found["a_four"],
            "fn a_four(x: vec4<f32>) -> vec4<bool> {\n    return bitcast<vec4<u32>>(x) > vec4(0x7fu);\n}"
        );
        assert_eq!(
            found["b_four"],
            "fn b_four(x: vec4<f32>) -> vec4<f32> {\n    return select(x, -vec4(1.5e-3), a_four(x));\n}"
        );
    }

    #[test]
    fn functions_with_branches_and_their_callers_are_left_out() {
        let found = generate(&library(&[
            (
                "a",
                "fn a(x: f32) -> f32 {\n    if x > 1.0 {\n        return 1.0;\n    }\n    return x;\n}",
            ),
            ("b", "fn b(x: f32) -> f32 {\n    return a(x);\n}"),
            ("c", "fn c(x: f32) -> f32 {\n    return b(x);\n}"),
        ]));
        assert!(found.is_empty(), "{found:?}");
    }
}
