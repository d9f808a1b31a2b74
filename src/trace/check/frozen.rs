//! Numbers in a graph that are probably sizes of the example's inputs.

use std::collections::BTreeSet;

use super::canonical::{each_graph, first_result, line};
use super::{Finding, Id};
use crate::aten::{self, ArgumentType};
use crate::dim::Dim;
use crate::ir::{Argument, Constant, Graph, Module, Node, Op, Tree};
use crate::scalar::Scalar;

/// Parameters of operators that take sizes and positions along an axis.
const SIZES: &[&str] = &[
    "size",
    "sizes",
    "shape",
    "repeats",
    "length",
    "start",
    "end",
    "split_size",
    "split_sizes",
    "chunks",
    "n",
    "m",
];

/// A size of an input.
struct InputSize {
    value: i64,
    /// `size 0 of x`
    text: String,
}

/// Findings for numbers that stand where sizes do and equal an input's size that no weight has. Sizes of 1 are too common
/// to tell.
pub fn size_literals(graph: &Graph, module: &Module) -> Vec<Finding> {
    let sizes = input_sizes(graph, module);
    let mut found = Vec::new();
    each_graph(graph, &mut |graph| {
        for node in &graph.nodes {
            let numbers = literals(node);
            let hit = sizes.iter().find(|size| numbers.contains(&size.value));
            found.extend(hit.map(|size| finding(graph, node, size)));
        }
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
    found
}

fn finding(graph: &Graph, node: &Node, size: &InputSize) -> Finding {
    let message = format!("{} in {} is {}", size.value, node.op.name(), size.text);
    let finding = Finding::new(Id::SizeLiteral, message).at(&node.place);
    let finding = finding.details([line(graph, node)]);
    match first_result(graph, node) {
        Some(value) => finding.value(value),
        None => finding,
    }
}

/// Sizes of inputs, and products of the first few, that no weight has.
fn input_sizes(graph: &Graph, module: &Module) -> Vec<InputSize> {
    let weights = module.weights.values();
    let own: BTreeSet<i64> = weights
        .flat_map(|weight| weight.shape().iter().map(|size| *size as i64))
        .collect();
    let mut sizes: Vec<InputSize> = Vec::new();
    let mut add = |value: i64, text: String| {
        if value > 1 && !own.contains(&value) && sizes.iter().all(|size| size.value != value) {
            sizes.push(InputSize { value, text });
        }
    };
    for id in &graph.inputs {
        let info = graph.value(*id);
        let values = info
            .ty
            .shape
            .iter()
            .map(|dim| dim.eval(&graph.hints).unwrap_or(1));
        let values: Vec<i64> = values.collect();
        for (axis, value) in values.iter().enumerate() {
            add(*value, format!("size {axis} of {}", info.name));
        }
        let mut product = values.first().copied().unwrap_or(1);
        for (axis, value) in values.iter().enumerate().skip(1) {
            product = product.saturating_mul(*value);
            add(
                product,
                format!("the product of sizes 0 to {axis} of {}", info.name),
            );
        }
    }
    sizes
}

/// Numbers among the sizes that a node takes.
fn literals(node: &Node) -> Vec<i64> {
    match &node.op {
        Op::Call(name) => call_literals(name, node),
        Op::Primitive(primitive) => {
            let mut primitive = primitive.clone();
            let mut found = Vec::new();
            primitive.map_sizes(&mut |dim: &Dim| {
                found.extend(dim.as_const());
                dim.clone()
            });
            found
        }
        Op::Region(_) => Vec::new(),
    }
}

fn call_literals(name: &str, node: &Node) -> Vec<i64> {
    let Ok(operator) = aten::operator(name) else {
        return Vec::new();
    };
    let arguments = operator.schema.parameters.iter().zip(&node.arguments);
    let sizes = arguments.filter(|(parameter, _)| takes_size(&operator.schema.name, parameter));
    sizes.flat_map(|(_, argument)| integers(argument)).collect()
}

fn takes_size(operator: &str, parameter: &aten::Parameter) -> bool {
    fn is_integer(ty: &ArgumentType) -> bool {
        match ty {
            ArgumentType::Optional(inner) | ArgumentType::List(inner, _) => is_integer(inner),
            ty => matches!(ty, ArgumentType::Int | ArgumentType::Scalar),
        }
    }
    // Adaptive pooling names what it makes; resampling usually repeats what it was given.
    let resampled = parameter.name == "output_size" && operator.starts_with("upsample");
    is_integer(&parameter.ty) && (resampled || SIZES.contains(&parameter.name.as_str()))
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
