//! Normalises WGSL: removes comments and numbers declared names in the order of their first use.

use std::collections::{BTreeSet, HashMap};

/// Returns the normal form of a shader: tokens with spaces between them.
pub fn normalize(wgsl: &str) -> String {
    let tokens = tokens(wgsl);
    let declared = declared(&tokens);
    let mut numbers = HashMap::new();
    let words = tokens
        .iter()
        .map(|token| match declared.contains(token.as_str()) {
            true => {
                let next = numbers.len();
                format!("v{}", numbers.entry(token).or_insert(next))
            }
            false => token.clone(),
        });
    words.collect::<Vec<_>>().join(" ")
}

/// Splits WGSL into words and single characters.
fn tokens(wgsl: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let lines = wgsl
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    for c in lines.flat_map(|line| line.chars().chain(['\n'])) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            tokens.push(c.to_string());
        }
    }
    tokens
}

/// Returns the names that a shader declares: functions, structures, constants, variables, parameters and fields.
fn declared(tokens: &[String]) -> BTreeSet<&str> {
    const KEYWORDS: [&str; 7] = ["fn", "let", "var", "const", "struct", "alias", "override"];
    let mut declared = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| &tokens[before]);
        let after = tokens.get(at + 1).map_or("", String::as_str);
        let is_name = token.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let is_declared = KEYWORDS.contains(&before) || (after == ":" && before != "case");
        if is_name && is_declared && token != "default" {
            declared.insert(token.as_str());
        }
    }
    declared
}

#[test]
fn names_and_comments_do_not_count() {
    let first = "// one\nvar<private> a: f32;\nfn f(x: f32) -> f32 { let y = x * a; return y; }";
    let second =
        "var<private> sum: f32; // two\nfn g(p: f32) -> f32 {\n let q = p * sum;\n return q; }";
    assert_eq!(normalize(first), normalize(second));
    let third = second.replace("p * sum", "sum * p");
    assert_ne!(normalize(first), normalize(&third));
    let fourth = second.replace("f32", "f16");
    assert_ne!(normalize(first), normalize(&fourth));
}
