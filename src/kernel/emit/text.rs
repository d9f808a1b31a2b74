//! Renders expressions as WGSL, with parentheses where precedence needs them.

use crate::kernel::expr::{Literal, Type};
use crate::kernel::literal;
use crate::kernel::shader::words;

/// Names of operands in templates.
const OPERANDS: [&str; 4] = ["x", "y", "z", "w"];

/// Operator precedence, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Shifts and bitwise operators: WGSL requires parentheses around them and around their operands.
    Bits,
    Logic,
    Comparison,
    Sum,
    Product,
    Prefix,
    Atom,
}

/// Source of an expression, and its precedence.
#[derive(Clone)]
pub(super) struct Text {
    pub(super) text: String,
    level: Level,
}

impl Text {
    pub(super) fn atom(text: impl Into<String>) -> Text {
        Text {
            text: text.into(),
            level: Level::Atom,
        }
    }
}

/// A literal of a type.
pub(super) fn literal_text(literal: Literal, ty: Type) -> Text {
    let signed = |text: String| Text {
        level: if text.starts_with('-') {
            Level::Prefix
        } else {
            Level::Atom
        },
        text,
    };
    match (literal, ty) {
        (_, Type::Boolx4 | Type::F32x4) => {
            let number = literal_text(literal, Type::F32);
            Text::atom(format!("vec4({})", number.text))
        }
        (Literal::Bool(value), _) => Text::atom(value.to_string()),
        (Literal::Integer(value), Type::U32) => Text::atom(format!("{value}u")),
        (Literal::Integer(i64::MIN), _) => Text::atom("(-9223372036854775807li - 1li)"),
        (Literal::Integer(value), Type::I64) => signed(format!("{value}li")),
        (Literal::Integer(value), _) => signed(value.to_string()),
        (Literal::Float(bits), ty) => signed(float_text(f64::from_bits(bits), ty)),
    }
}

/// Literal of a float. WGSL has no infinity and no not-a-number, so library functions replace them.
fn float_text(value: f64, ty: Type) -> String {
    let suffix = if ty == Type::F64 { "_f64" } else { "" };
    if value.is_nan() {
        return format!("not_a_number{suffix}()");
    }
    if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}infinity{suffix}()");
    }
    match ty {
        Type::F64 => literal::double(value),
        _ => literal::single(value as f32),
    }
}

/// Number of occurrences of an operand in a template.
pub(super) fn occurrences(template: &str, place: usize) -> usize {
    let name = OPERANDS.get(place);
    words(template).filter(|word| Some(word) == name).count()
}

/// Substitutes operands into a template, in parentheses where needed.
pub(super) fn fill(template: &str, operands: &[Text]) -> Text {
    let level = level_of(template);
    let mut text = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if end == 0 {
            text.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let place = OPERANDS.iter().position(|name| *name == word);
        match place.and_then(|place| operands.get(place).map(|operand| (place, operand))) {
            Some((place, operand))
                if needs_parentheses(level, place, operand.level)
                    || (text.ends_with(['!', '-', '~']) && operand.level < Level::Atom) =>
            {
                text.push('(');
                text.push_str(&operand.text);
                text.push(')');
            }
            Some((_, operand)) => text.push_str(&operand.text),
            None => text.push_str(word),
        }
        rest = after;
    }
    Text { text, level }
}

fn needs_parentheses(outer: Level, place: usize, inner: Level) -> bool {
    match outer {
        Level::Atom => false,
        Level::Prefix | Level::Bits => inner < Level::Atom,
        Level::Logic | Level::Comparison => inner <= outer,
        Level::Sum | Level::Product => {
            inner < outer || inner == Level::Prefix || (place > 0 && inner == outer)
        }
    }
}

fn level_of(template: &str) -> Level {
    if template.starts_with(['-', '!', '~']) && !template.contains(' ') {
        return Level::Prefix;
    }
    let mut depth = 0;
    for part in template.split(' ') {
        if depth == 0 {
            match part {
                "*" | "/" | "%" => return Level::Product,
                "+" | "-" => return Level::Sum,
                "&&" | "||" => return Level::Logic,
                "<" | "<=" | ">" | ">=" | "==" | "!=" => return Level::Comparison,
                "&" | "|" | "^" | "<<" | ">>" => return Level::Bits,
                _ => {}
            }
        }
        depth += part.matches('(').count() as i32 - part.matches(')').count() as i32;
    }
    Level::Atom
}
