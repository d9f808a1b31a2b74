//! The sample calls of the dictionary's rows, as texts, as graphs of one node, and with inputs.
#![allow(dead_code, reason = "each test uses its part")]

use onionskin::aten::{self, ArgumentType, Composite, Operator, Schema, SchemaParameter};
use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::error::{Error, Result};
use onionskin::ir::{Argument, Builder, Graph, Value};
use onionskin::scalar::Scalar;
use onionskin::tensor::Tensor;

use super::random::Random;

/// Returns sizes for the symbols of sample calls: `batch` for `B`, `size` for the others, into which windows fit.
pub fn sizes(batch: i64, size: i64) -> Bindings {
    let sizes = ["H", "L", "N", "S", "T", "W"].map(|name| (name.into(), size));
    sizes.into_iter().chain([("B".into(), batch)]).collect()
}

/// Builds a graph of one node for the call of a case.
pub fn graph_of(
    operator: &'static Operator,
    texts: &[Option<String>],
    hints: Option<&Bindings>,
) -> Result<Graph> {
    let hints = hints.cloned().unwrap_or_default();
    let builder = Builder::with_symbols("case", hints, Vec::new());
    let arguments = arguments(&builder, operator, texts)?;
    let results = operator.call(&builder, arguments)?;
    let results: Vec<_> = results.into_iter().map(Value::id).collect();
    builder.finish(&results, Vec::new(), None)
}

/// Returns the arguments of a case; its tensors become inputs.
pub fn arguments(
    builder: &Builder,
    operator: &'static Operator,
    texts: &[Option<String>],
) -> Result<Vec<Argument>> {
    let pairs = operator.schema.parameters.iter().zip(texts);
    pairs
        .map(|(parameter, text)| match text {
            Some(text) => argument(builder, &parameter.ty, text),
            None => Ok(parameter.default.clone().unwrap_or(Argument::None)),
        })
        .collect()
}

/// Returns the operator of a case and the text of each argument. A case may begin with an overload, an operator of the row,
/// or both, and a colon.
pub fn parse(row: &Composite, case: &str) -> Result<(&'static Operator, Vec<Option<String>>)> {
    let schemas: Vec<Schema> = row
        .schemas
        .iter()
        .map(|text| Schema::parse(text))
        .collect::<Result<_>>()?;
    let prefix = case
        .split_once(": ")
        .filter(|(prefix, _)| !prefix.contains(['[', ' ']));
    let (schema, rest) = match prefix {
        None => (schemas.first(), case),
        Some((prefix, rest)) => {
            let full = |schema: &Schema| format!("{}.{}", schema.name, schema.overload);
            let by_overload = schemas.iter().find(|schema| schema.overload == prefix);
            let by_name = || schemas.iter().find(|schema| schema.name == prefix);
            let by_both = || schemas.iter().find(|schema| full(schema) == prefix);
            (by_overload.or_else(by_name).or_else(by_both), rest)
        }
    };
    let schema = schema.ok_or_else(|| Error::usage("no schema of the row is meant"))?;
    let mut texts = vec![None; schema.parameters.len()];
    for (index, part) in split(rest).into_iter().enumerate() {
        let named = part.split_once('=').and_then(|(name, value)| {
            let place = schema.position(name.trim())?;
            Some((place, value))
        });
        let (place, value) = named.unwrap_or((index, part));
        let slot = texts
            .get_mut(place)
            .ok_or_else(|| Error::usage(format!("there is no parameter for {part}")))?;
        *slot = Some(value.trim().to_string());
    }
    let missing = |(parameter, text): (&SchemaParameter, &Option<String>)| {
        parameter.default.is_none() && text.is_none()
    };
    if schema.parameters.iter().zip(&texts).any(missing) {
        return Err(Error::usage("an argument is missing"));
    }
    let operator = aten::operator(&schema.text_name())?;
    texts.resize(operator.schema.parameters.len(), None);
    Ok((operator, texts))
}

/// Splits a text at commas outside brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted) = (0, false);
    let parts = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            '\'' => quoted = !quoted,
            _ => {}
        }
        c == ',' && depth == 0 && !quoted
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

/// Replaces symbols in texts by numbers.
pub fn substitute_symbols(texts: &[Option<String>], bindings: &Bindings) -> Vec<Option<String>> {
    let known = |text: &String| {
        let mut known = text.clone();
        for (name, size) in bindings {
            for (before, after) in [("[", ","), ("[", "]"), (" ", ","), (" ", "]")] {
                let (from, to) = (
                    format!("{before}{name}{after}"),
                    format!("{before}{size}{after}"),
                );
                known = known.replace(&from, &to);
            }
        }
        known
    };
    texts.iter().map(|text| text.as_ref().map(known)).collect()
}

fn argument(builder: &Builder, ty: &ArgumentType, text: &str) -> Result<Argument> {
    let bad = || Error::usage(format!("{text:?} is no {ty:?}"));
    if text == "None" {
        return Ok(Argument::None);
    }
    let list = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    Ok(match (ty, list) {
        (ArgumentType::Optional(inner), _) => return argument(builder, inner, text),
        (ArgumentType::List(inner, _), Some(items)) => {
            let items = split(items)
                .into_iter()
                .map(|item| argument(builder, inner, item));
            Argument::List(items.collect::<Result<_>>()?)
        }
        (ArgumentType::List(inner, _), None) => argument(builder, inner, text)?,
        (ArgumentType::Tensor, _) => builder.input("x", text.parse()?).into(),
        (ArgumentType::Str, _) => Argument::Str(text.trim_matches('\'').to_string()),
        (ArgumentType::DType, _) => {
            let dtype: DType = text.parse()?;
            Argument::Number(Scalar::Int(dtype.torch_code()))
        }
        (ArgumentType::Ignored, _) => Argument::None,
        _ => Argument::Number(number(text).ok_or_else(bad)?),
    })
}

fn number(text: &str) -> Option<Scalar> {
    Some(match text {
        "True" => Scalar::Bool(true),
        "False" => Scalar::Bool(false),
        _ => match text.parse::<i64>() {
            Ok(number) => Scalar::Int(number),
            Err(_) => match text.parse::<DType>() {
                Ok(dtype) => Scalar::Int(dtype.torch_code()),
                Err(_) => Scalar::Float(text.parse().ok()?),
            },
        },
    })
}

/// Returns inputs: floats between 0 and 1, and integers and booleans of 0 and 1, which are valid indices of two elements, or
/// of 0 where the first operand is a scalar.
pub fn inputs(graph: &Graph, bindings: &Bindings) -> Result<Vec<Tensor>> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let first = graph.inputs.first().map_or(0, |id| graph.ty(*id).rank());
    let limit = if first == 0 { 1.0 } else { 2.0 };
    // Integers alone may be divisors; beside floats they are indices.
    let mut types = graph.inputs.iter().map(|id| graph.ty(*id).dtype);
    let least = f64::from(u8::from(first > 0 && types.all(|dtype| dtype.is_integer())));
    let tensor = |id| {
        let ty = graph.ty(id);
        let shape = ty.sizes(bindings)?;
        let numel = shape.iter().product();
        let is_float = ty.dtype.is_float();
        let element = |_| {
            let value = random.fraction();
            if is_float {
                value
            } else {
                (value * limit).floor() + least
            }
        };
        Tensor::from_f64(ty.dtype, shape, (0..numel).map(element).collect())
    };
    graph.inputs.iter().copied().map(tensor).collect()
}
