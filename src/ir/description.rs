//! Operands and attributes of a node by name, as people read them.

use super::assembler::attributes;
use super::dictionary::{ArgumentStyle, CallParameter, Dictionary};
use super::graph::{Argument, Node, Op, Region, ValueId};
use super::text::attribute_text;
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The operands and attributes of a node, each with its name. Arguments that equal their defaults are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeDescription {
    /// The values that the node reads, in order: the parameter's name and the value. An item of a list has its index:
    /// `tensors[0]`.
    pub operands: Vec<(String, ValueId)>,
    /// All other arguments: the name and the value as text.
    pub attributes: Vec<(String, String)>,
}

/// Describes a node.
pub fn describe(node: &Node, dictionary: &dyn Dictionary) -> NodeDescription {
    let mut description = NodeDescription::default();
    match &node.op {
        Op::Call(name) => {
            let parameters = dictionary.parameters(name).unwrap_or_default();
            for (index, argument) in node.arguments.iter().enumerate() {
                match parameters.get(index) {
                    Some(parameter) => description.call_argument(parameter, argument),
                    None => description.argument(&index.to_string(), argument),
                }
            }
        }
        Op::Primitive(primitive) => {
            for (index, argument) in node.arguments.iter().enumerate() {
                description.argument(&format!("operand {index}"), argument);
            }
            let named = attributes(primitive).into_iter();
            let named = named.map(|(name, value)| (name, attribute_text(&value)));
            description.attributes.extend(named);
        }
        Op::Region(region) => {
            for (index, argument) in node.arguments.iter().enumerate() {
                // The largest integer is the trip count of a loop that only its condition ends.
                if !is_largest(argument) {
                    description.argument(&region_operand(region, index), argument);
                }
            }
        }
    }
    description
}

impl NodeDescription {
    fn call_argument(&mut self, parameter: &CallParameter, argument: &Argument) {
        // PyTorch writes the end of a slice without an end as the largest integer.
        if parameter.default == Some(argument) || is_largest(argument) {
            return;
        }
        match argument {
            Argument::Number(Scalar::Int(code)) if parameter.style == ArgumentStyle::DType => {
                let dtype = DType::from_torch_code(*code);
                let text = dtype.map_or_else(|_| code.to_string(), |dtype| dtype.to_string());
                self.attributes.push((parameter.name.to_string(), text));
            }
            _ => self.argument(parameter.name, argument),
        }
    }

    fn argument(&mut self, name: &str, argument: &Argument) {
        match argument {
            Argument::Value(value) => self.operands.push((name.to_string(), *value)),
            Argument::List(items) if !argument.values().is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    self.argument(&format!("{name}[{index}]"), item);
                }
            }
            _ => self
                .attributes
                .push((name.to_string(), argument_text(argument))),
        }
    }
}

fn is_largest(argument: &Argument) -> bool {
    *argument == Argument::Number(Scalar::Int(i64::MAX))
}

/// Name of an operand of a region.
fn region_operand(region: &Region, index: usize) -> String {
    let names: &[&str] = match region {
        Region::If { .. } => &["condition"],
        Region::Loop { .. } => &["trip count", "first condition"],
        Region::Call { .. } => &[],
    };
    match (region, names.get(index)) {
        (_, Some(name)) => (*name).to_string(),
        (Region::Loop { carried, .. }, None) if index < carried + names.len() => {
            format!("carried {}", index - names.len())
        }
        (Region::Loop { carried, .. }, None) => {
            format!("constant {}", index - names.len() - carried)
        }
        _ => format!("input {}", index - names.len()),
    }
}

/// An argument without values as text.
fn argument_text(argument: &Argument) -> String {
    match argument {
        Argument::Number(number) => number.to_string(),
        Argument::Size(size) => size.to_string(),
        Argument::Str(text) => text.clone(),
        Argument::List(items) => {
            let items: Vec<String> = items.iter().map(argument_text).collect();
            format!("[{}]", items.join(", "))
        }
        Argument::None => "none".to_string(),
        // Lists with values become operands, item by item.
        Argument::Value(_) => String::new(),
    }
}
