//! Arguments of operators as Rust source.

use crate::aten::ArgumentType;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Argument, ValueId};
use crate::scalar::Scalar;

/// The source of an argument for a parameter of type `ty`. `value` returns the source of a reference to a tensor.
pub(super) fn argument_source(
    ty: &ArgumentType,
    argument: &Argument,
    value: &dyn Fn(ValueId) -> Result<String>,
) -> Result<String> {
    Ok(match (ty, argument) {
        (ArgumentType::Optional(inner), given) if *given != Argument::None => {
            return self::argument_source(inner, given, value);
        }
        (_, Argument::None) | (ArgumentType::Ignored, _) => "Arg::None".to_string(),
        (_, Argument::Value(id)) => value(*id)?,
        (ArgumentType::DType, Argument::Number(Scalar::Int(code))) => {
            dtype(DType::from_torch_code(*code)?)
        }
        (ArgumentType::Float, Argument::Number(number)) => float(number.to_f64()),
        (ArgumentType::List(inner, _), Argument::List(items)) => {
            let items = items
                .iter()
                .map(|item| self::argument_source(inner, item, value));
            let texts = items.collect::<Result<Vec<_>>>()?;
            list_source(
                &texts,
                is_homogeneous(argument),
                **inner == ArgumentType::Tensor,
            )
        }
        (_, Argument::List(_)) => "Arg::List(Vec::new())".to_string(),
        (_, Argument::Number(number)) => scalar(*number),
        (_, Argument::Size(size)) => size.rust_expression(),
        (_, Argument::Str(text)) => format!("{text:?}"),
    })
}

/// True if all items of a list have one Rust type and can be an array.
fn is_homogeneous(list: &Argument) -> bool {
    let Argument::List(items) = list else {
        return true;
    };
    let is_symbol = |item: &Argument| match item {
        Argument::Size(size) => size.as_symbol().is_some(),
        _ => false,
    };
    items.iter().all(|item| matches!(item, Argument::Number(_)))
        || items.iter().all(|item| matches!(item, Argument::Value(_)))
        || items.iter().all(is_symbol)
}

/// Largest number of items of a tuple that converts to a list.
const LARGEST_TUPLE: usize = 8;

/// The source of a list of items: an array, or a tuple for items of several Rust types. `tensors` is true for a parameter
/// that takes a slice of tensors.
fn list_source(items: &[String], homogeneous: bool, tensors: bool) -> String {
    let joined = items.join(", ");
    match (items.len(), homogeneous) {
        (0, _) if tensors => "&[] as &[TracedTensor]".to_string(),
        (0, _) => "Arg::List(Vec::new())".to_string(),
        _ if tensors => format!("&[{joined}]"),
        (_, true) => format!("[{joined}]"),
        (1, false) => format!("({joined},)"),
        (2..=LARGEST_TUPLE, false) => format!("({joined})"),
        _ => {
            let items = items.iter().map(|item| match item.as_str() {
                "Arg::None" => item.clone(),
                _ => format!("Arg::from({item})"),
            });
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The source of a number or size as an operand.
pub(super) fn operand_source(argument: &Argument) -> String {
    match argument {
        Argument::Number(number) => scalar(*number),
        Argument::Size(size) => size.rust_expression(),
        _ => "Arg::None".to_string(),
    }
}

/// The source of a list of sizes.
pub(super) fn sizes_source(shape: &[Dim]) -> String {
    let items: Vec<String> = shape.iter().map(Dim::rust_expression).collect();
    let sizes = shape.iter().cloned().map(Argument::from);
    list_source(
        &items,
        is_homogeneous(&Argument::List(sizes.collect())),
        false,
    )
}

/// The source of an element type: `DType::F32`.
pub(super) fn dtype(dtype: DType) -> String {
    format!("DType::{dtype:?}")
}

/// The source of a number. Integers outside of `i32` have a type suffix.
pub(super) fn scalar(number: Scalar) -> String {
    match number {
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) if i32::try_from(value).is_err() => format!("{value}i64"),
        Scalar::Int(value) => value.to_string(),
        Scalar::Float(value) => float(value),
    }
}

fn float(value: f64) -> String {
    match value {
        _ if value.is_nan() => "f64::NAN".to_string(),
        f64::INFINITY => "f64::INFINITY".to_string(),
        f64::NEG_INFINITY => "f64::NEG_INFINITY".to_string(),
        _ => format!("{value:?}"),
    }
}
