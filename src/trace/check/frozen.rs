//! Numbers in a graph that are probably sizes of the example's inputs.

use std::collections::BTreeSet;

use super::canonical::{each_node, line};
use super::finding::grouped;
use super::{Finding, Id};
use crate::aten::{self, ArgumentType};
use crate::dim::Dim;
use crate::ir::{Argument, Constant, Graph, Module, Node, Op, Tree};
use crate::scalar::Scalar;
use crate::symbols::Relation;

/// Parameters that say how large something new is, or how far a position is along an axis.
const FREE: &[&str] = &["end", "length", "m", "n", "repeats", "start"];

/// Parameters that say how large a result is. Operators that rearrange what they are given cannot take a wrong one.
const SIZES: &[&str] = &["shape", "size", "sizes", "split_size", "split_sizes"];

/// Operators that rearrange what they are given.
const REARRANGING: &[&str] = &[
    "_unsafe_view",
    "expand",
    "reshape",
    "split",
    "split_with_sizes",
    "unflatten",
    "unsafe_split",
    "view",
];

/// A size of an input.
struct InputSize {
    value: i64,
    /// `size 0 of x`
    text: String,
    /// The graph takes no other.
    is_fixed: bool,
}

/// Findings for numbers that stand where sizes do and equal an input's size that no weight has, one for all that say the
/// same. Sizes of 1 are too common to tell. A size that may vary is not the one that a view of the input names: the graph
/// would be for that size only.
pub fn size_literals(graph: &Graph, module: &Module) -> Vec<Finding> {
    let sizes = input_sizes(graph, module);
    let mut found = Vec::new();
    each_node(graph, &mut |graph, node, value| {
        let numbers = literals(node);
        let is = |size: &&InputSize| {
            let mut numbers = numbers.iter();
            numbers.any(|(number, is_free)| *number == size.value && (*is_free || size.is_fixed))
        };
        let size = sizes.iter().find(is);
        found.extend(size.map(|size| finding(graph, node, size).about(value)));
    });
    if let Some(tree) = &graph.output_tree {
        found.extend(constant_outputs(tree).into_iter().filter_map(|number| {
            let size = sizes.iter().find(|size| size.value == number)?;
            let message = format!(
                "the result holds the number {number}, which is {}",
                size.text
            );
            Some(Finding::new(Id::SizeLiteral, message))
        }));
    }
    grouped(found)
}

fn finding(graph: &Graph, node: &Node, size: &InputSize) -> Finding {
    let message = format!("{} in {} is {}", size.value, node.op.name(), size.text);
    let finding = Finding::new(Id::SizeLiteral, message).at(&node.place);
    finding.details([line(graph, node)])
}

/// Sizes of inputs, and products of the first few, that no weight has.
fn input_sizes(graph: &Graph, module: &Module) -> Vec<InputSize> {
    let weights = module.weights.values();
    let own: BTreeSet<i64> = weights
        .flat_map(|weight| weight.shape().iter().map(|size| *size as i64))
        .collect();
    let mut sizes: Vec<InputSize> = Vec::new();
    let mut add = |value: i64, is_fixed: bool, text: String| {
        if value > 1 && !own.contains(&value) && sizes.iter().all(|size| size.value != value) {
            sizes.push(InputSize {
                value,
                text,
                is_fixed,
            });
        }
    };
    for id in &graph.inputs {
        let info = graph.value(*id);
        let mut product = 1i64;
        for (axis, dim) in info.ty.shape.iter().enumerate() {
            let value = dim.eval(&graph.hints).unwrap_or(1);
            let fixed = dim.as_const();
            let is_fixed = fixed.is_some() || is_guarded(graph, dim);
            add(value, is_fixed, format!("size {axis} of {}", info.name));
            product = product.saturating_mul(fixed.unwrap_or(0));
            if axis > 0 {
                add(
                    product,
                    true,
                    format!("the product of sizes 0 to {axis} of {}", info.name),
                );
            }
        }
    }
    sizes
}

/// True if the graph holds only where some expression of the size equals another.
fn is_guarded(graph: &Graph, dim: &Dim) -> bool {
    let symbols = dim.symbols();
    let equations = graph
        .guards
        .iter()
        .filter(|guard| guard.relation == Relation::Equal);
    let mut known = equations.flat_map(|guard| [guard.left.symbols(), guard.right.symbols()]);
    known.any(|these| !these.is_disjoint(&symbols))
}

/// Numbers among the sizes that a node takes, and whether it could take any other.
pub fn literals(node: &Node) -> Vec<(i64, bool)> {
    match &node.op {
        Op::Call(name) => call_literals(name, node),
        Op::Primitive(primitive) => {
            let is_free = !REARRANGING.contains(&primitive.name());
            let mut primitive = primitive.clone();
            let mut found = Vec::new();
            primitive.map_sizes(&mut |dim: &Dim| {
                found.extend(dim.as_const().map(|size| (size, is_free)));
                dim.clone()
            });
            found
        }
        Op::Region(_) => Vec::new(),
    }
}

fn call_literals(name: &str, node: &Node) -> Vec<(i64, bool)> {
    let Ok(operator) = aten::operator(name) else {
        return Vec::new();
    };
    let schema = &operator.schema;
    let mut found = Vec::new();
    for (parameter, argument) in schema.parameters.iter().zip(&node.arguments) {
        if let Some(is_free) = takes_size(&schema.name, parameter) {
            found.extend(
                integers(argument)
                    .into_iter()
                    .map(|number| (number, is_free)),
            );
        }
    }
    found
}

/// Whether an operator could take any size for a parameter; none if the parameter is no size.
fn takes_size(operator: &str, parameter: &aten::Parameter) -> Option<bool> {
    fn is_integer(ty: &ArgumentType) -> bool {
        match ty {
            ArgumentType::Optional(inner) | ArgumentType::List(inner, _) => is_integer(inner),
            ty => matches!(ty, ArgumentType::Int | ArgumentType::Scalar),
        }
    }
    let name = parameter.name.as_str();
    // Adaptive pooling names what it makes; resampling usually repeats what it was given.
    let is_free = FREE.contains(&name) || name == "output_size" && operator.starts_with("upsample");
    // The size of an unfolding is that of a window.
    let is_size = is_free || SIZES.contains(&name) && operator != "unfold";
    (is_size && is_integer(&parameter.ty)).then(|| !REARRANGING.contains(&operator))
}

fn integers(argument: &Argument) -> Vec<i64> {
    match argument {
        Argument::Number(Scalar::Int(value)) => vec![*value],
        Argument::List(items) => items.iter().flat_map(integers).collect(),
        _ => Vec::new(),
    }
}

/// Integers of the result that are the same at every call.
fn constant_outputs(tree: &Tree) -> Vec<i64> {
    match tree {
        Tree::Constant(Constant::Number(Scalar::Int(value))) => vec![*value],
        Tree::Tuple(items) | Tree::List(items) => items.iter().flat_map(constant_outputs).collect(),
        Tree::Dict(items) | Tree::NamedTuple(_, items) => items
            .iter()
            .flat_map(|(_, item)| constant_outputs(item))
            .collect(),
        _ => Vec::new(),
    }
}
