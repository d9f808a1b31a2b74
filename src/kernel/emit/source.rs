//! Renders expressions as WGSL, with parentheses where precedence needs them. A template is the WGSL text of a call
//! with names in place of its operands: `select(x, y, z)`.

use crate::kernel::expr::{Literal, WgslType};
use crate::kernel::literal;
use crate::kernel::tokens::tokens;

/// Names of operands in templates, by index of the operand.
const OPERANDS: [&str; 4] = ["x", "y", "z", "w"];

/// Operator precedence, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
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
pub(super) struct ExprSource {
    pub(super) wgsl: String,
    precedence: Precedence,
}

impl ExprSource {
    pub(super) fn atom(wgsl: impl Into<String>) -> ExprSource {
        ExprSource {
            wgsl: wgsl.into(),
            precedence: Precedence::Atom,
        }
    }
}

/// Source of a literal as an expression of a type; for a vector type all components are equal.
pub(super) fn literal_text(literal: Literal, ty: WgslType) -> ExprSource {
    let with_optional_sign = |wgsl: String| ExprSource {
        precedence: if wgsl.starts_with('-') {
            Precedence::Prefix
        } else {
            Precedence::Atom
        },
        wgsl,
    };
    match (literal, ty) {
        (_, WgslType::Boolx4 | WgslType::F32x4) => {
            let number = literal_text(literal, WgslType::F32);
            ExprSource::atom(format!("vec4({})", number.wgsl))
        }
        (Literal::Bool(value), _) => ExprSource::atom(value.to_string()),
        (Literal::Integer(value), WgslType::U32) => ExprSource::atom(format!("{value}u")),
        (Literal::Integer(i64::MIN), _) => ExprSource::atom("(-9223372036854775807li - 1li)"),
        (Literal::Integer(value), WgslType::I64) => with_optional_sign(format!("{value}li")),
        (Literal::Integer(value), _) => with_optional_sign(value.to_string()),
        (Literal::Float(bits), ty) => with_optional_sign(float_text(f64::from_bits(bits), ty)),
    }
}

/// Source of a float. WGSL has no literals for infinity and not-a-number, so calls of functions in the shader library
/// (`infinity`, `not_a_number`) replace them.
fn float_text(value: f64, ty: WgslType) -> String {
    let suffix = if ty == WgslType::F64 { "_f64" } else { "" };
    if value.is_nan() {
        return format!("not_a_number{suffix}()");
    }
    if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}infinity{suffix}()");
    }
    match ty {
        WgslType::F64 => literal::f64_literal(value),
        _ => literal::f32_literal(value as f32),
    }
}

/// Number of occurrences of an operand in a template.
pub(super) fn occurrences(template: &str, operand_index: usize) -> usize {
    let name = OPERANDS.get(operand_index);
    tokens(template).filter(|word| Some(word) == name).count()
}

/// Substitutes operands for their names in a template, in parentheses where needed.
pub(super) fn substitute(template: &str, operands: &[ExprSource]) -> ExprSource {
    let precedence = precedence_of(template);
    let mut wgsl = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if end == 0 {
            wgsl.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let index = OPERANDS.iter().position(|name| *name == word);
        match index.and_then(|index| operands.get(index).map(|operand| (index, operand))) {
            Some((index, operand))
                if needs_parentheses(precedence, index, operand.precedence)
                    || (wgsl.ends_with(['!', '-', '~'])
                        && operand.precedence < Precedence::Atom) =>
            {
                wgsl.push('(');
                wgsl.push_str(&operand.wgsl);
                wgsl.push(')');
            }
            Some((_, operand)) => wgsl.push_str(&operand.wgsl),
            None => wgsl.push_str(word),
        }
        rest = after;
    }
    ExprSource { wgsl, precedence }
}

/// True if an operand of precedence `inner` needs parentheses in a template of precedence `outer`. The operand with
/// index 0 is taken as the left one of a binary operator.
fn needs_parentheses(outer: Precedence, index: usize, inner: Precedence) -> bool {
    match outer {
        Precedence::Atom => false,
        Precedence::Prefix | Precedence::Bits => inner < Precedence::Atom,
        Precedence::Logic | Precedence::Comparison => inner <= outer,
        Precedence::Sum | Precedence::Product => {
            inner < outer || inner == Precedence::Prefix || (index > 0 && inner == outer)
        }
    }
}

/// Precedence of the first operator of a template outside of parentheses.
fn precedence_of(template: &str) -> Precedence {
    if template.starts_with(['-', '!', '~']) && !template.contains(' ') {
        return Precedence::Prefix;
    }
    let mut depth = 0;
    for part in template.split(' ') {
        if depth == 0 {
            match part {
                "*" | "/" | "%" => return Precedence::Product,
                "+" | "-" => return Precedence::Sum,
                "&&" | "||" => return Precedence::Logic,
                "<" | "<=" | ">" | ">=" | "==" | "!=" => return Precedence::Comparison,
                "&" | "|" | "^" | "<<" | ">>" => return Precedence::Bits,
                _ => {}
            }
        }
        depth += part.matches('(').count() as i32 - part.matches(')').count() as i32;
    }
    Precedence::Atom
}
