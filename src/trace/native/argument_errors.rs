//! Errors for calls that no operator accepts.

use crate::aten::{ArgumentType, Operator, SchemaParameter};
use crate::error::Error;
use crate::ir::Argument;

use super::argument::GivenArgument;

/// The error if no operator accepts the arguments.
pub(super) fn mismatch_error(
    name: &str,
    operators: &[&'static Operator],
    positional: &[GivenArgument],
    named: &[(&str, GivenArgument)],
) -> Error {
    if operators.is_empty() {
        return Error::unsupported(format!("there is no operator {name}"));
    }
    let parameters = operators
        .iter()
        .flat_map(|operator| &operator.schema.parameters);
    let known: Vec<&str> = parameters
        .map(|parameter| parameter.name.as_str())
        .collect();
    let schemas = operators.iter().map(|operator| operator.schema.to_string());
    let takes = format!("it takes {}", schemas.collect::<Vec<_>>().join(" or "));
    match named.iter().find(|(name, _)| !known.contains(name)) {
        None => {
            // The overload that accepts the most arguments is the likeliest to be meant.
            let complaints = operators
                .iter()
                .map(|operator| first_complaint(operator, positional, named));
            let (_, complaint) = complaints
                .max_by_key(|(accepted, _)| *accepted)
                .unwrap_or_default();
            Error::operator(format!("{name} {complaint}")).help(takes)
        }
        Some((unknown, _)) => {
            let error = Error::operator(format!("{name} has no argument {unknown}"));
            let similar = closest_word(unknown, &known);
            error.help(similar.map_or(takes, |known| format!("did you mean {known}?")))
        }
    }
}

/// The number of parameters that accept their arguments before the first that does not, and what is wrong with that one.
fn first_complaint(
    operator: &Operator,
    positional: &[GivenArgument],
    named: &[(&str, GivenArgument)],
) -> (usize, String) {
    let parameters = &operator.schema.parameters;
    let is_positional = |parameter: &&SchemaParameter| !parameter.keyword_only;
    let most = parameters.iter().filter(is_positional).count();
    let given = |(index, parameter): (usize, &SchemaParameter)| {
        let by_name = named.iter().find(|(name, _)| *name == parameter.name);
        let next = positional.get(index).filter(|_| !parameter.keyword_only);
        next.or(by_name.map(|(_, argument)| argument))
    };
    for (index, parameter) in parameters.iter().enumerate() {
        let name = &parameter.name;
        match given((index, parameter)) {
            Some(argument) if !argument.fits(&parameter.ty) => {
                let (wanted, found) = (describe_type(&parameter.ty), describe_given(argument));
                return (index, format!("wants {wanted} as `{name}`, got {found}"));
            }
            None if parameter.default.is_none() => {
                return (index, format!("lacks the argument `{name}`"));
            }
            _ => {}
        }
    }
    let count = positional.len();
    let complaint = match count > most {
        true => {
            let plural = if most == 1 { "" } else { "s" };
            format!("takes {most} positional argument{plural}, got {count}")
        }
        false => "does not take these arguments".to_string(),
    };
    (parameters.len(), complaint)
}

/// Describes the arguments that a type accepts.
fn describe_type(ty: &ArgumentType) -> String {
    match ty {
        ArgumentType::List(inner, _) => format!("a list of {}s", noun(inner)),
        ArgumentType::Optional(inner) => format!("{} or None", describe_type(inner)),
        ArgumentType::Int | ArgumentType::DType => format!("an {}", noun(ty)),
        _ => format!("a {}", noun(ty)),
    }
}

/// The word for an argument of a type that is no list.
fn noun(ty: &ArgumentType) -> &'static str {
    match ty {
        ArgumentType::Tensor => "tensor",
        ArgumentType::Int => "integer",
        ArgumentType::Float | ArgumentType::Scalar => "number",
        ArgumentType::IntOrTensor => "number or tensor",
        ArgumentType::Bool => "bool",
        ArgumentType::Str => "string",
        ArgumentType::DType => "element type",
        ArgumentType::List(..) => "list",
        ArgumentType::Optional(inner) => noun(inner),
        ArgumentType::Ignored => "value",
    }
}

/// Describes an argument of a call.
fn describe_given(given: &GivenArgument) -> String {
    match given.is_dtype {
        true => "an element type".into(),
        false => describe(&given.value),
    }
}

/// Describes an argument.
fn describe(argument: &Argument) -> String {
    match argument {
        Argument::Value(_) => "a tensor".into(),
        Argument::Number(number) => format!("{number}"),
        Argument::Size(size) => format!("the size {size}"),
        Argument::Str(text) => format!("{text:?}"),
        Argument::List(items) => {
            let items: Vec<String> = items.iter().map(describe).collect();
            format!("[{}]", items.join(", "))
        }
        Argument::None => "None".into(),
    }
}

/// The known word with the smallest edit distance, if it is similar enough.
pub(super) fn closest_word<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    let distances = words
        .iter()
        .map(|known| (edit_distance(word, known), *known));
    let nearest = distances.min()?;
    (nearest.0 <= word.len().div_ceil(3)).then_some(nearest.1)
}

/// The Levenshtein distance.
fn edit_distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (index, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
