//! Numbers in a graph that are probably sizes of the example's inputs.

use std::collections::BTreeSet;

use super::canonical::{each_node, node_line};
use super::finding::merge_equal;
use super::unrolled_axes::integer;
use super::{Finding, Id};
use crate::aten::{self, ArgumentType};
use crate::dim::{Dim, Symbol};
use crate::ir::{Argument, Graph, GraphModule, Node, Op, TreeConstant, TreeSpec};
use crate::scalar::Scalar;
use crate::symbols::Relation;

/// Parameters for the size of a new tensor, or for a position along an axis.
const FREE_SIZE_PARAMETERS: &[&str] = &["end", "length", "m", "n", "repeats", "start"];

/// Parameters for the size of a result. Operators that rearrange their operand accept only matching sizes.
const RESULT_SIZE_PARAMETERS: &[&str] = &["shape", "size", "sizes", "split_size", "split_sizes"];

/// Operators that rearrange or expand the elements of their operand.
const REARRANGING_OPERATORS: &[&str] = &[
    "_unsafe_view",
    "expand",
    "reshape",
    "split",
    "split_with_sizes",
    "unflatten",
    "unsafe_split",
    "view",
];

/// Views that may have the batch size as a number.
const VIEW_OPERATORS: &[&str] = &["_unsafe_view", "reshape", "view"];

/// A size of an input.
struct InputSize {
    /// The size in the example.
    value: i64,
    /// Text for messages: `size 0 of x`.
    description: String,
    /// True if the graph refuses other sizes.
    is_fixed: bool,
    /// True if a weight has this size, too.
    is_of_weight: bool,
    /// The size's symbol; none if it is constant or a product.
    symbol: Option<Symbol>,
}

/// True for an archive's constants: tensors that are not attributes of modules, such as results of Python values.
pub fn is_constant(name: &str) -> bool {
    name.starts_with("constants.")
}

/// Sizes of all weights that belong to the network. Sizes of constants are left out, since they may be the example's.
pub fn weight_sizes(module: &GraphModule) -> BTreeSet<i64> {
    let weights = module.weights.iter();
    let parameters = weights.filter(|(name, _)| !is_constant(name));
    parameters
        .flat_map(|(_, weight)| weight.shape().iter().map(|size| *size as i64))
        .collect()
}

/// Returns the symbols of batch sizes that a view has as a number. Such a number is right for the example only.
pub fn constant_batches(graph: &Graph) -> BTreeSet<Symbol> {
    let mut symbols = BTreeSet::new();
    each_node(graph, &mut |graph, node, _| {
        symbols.extend(constant_batch(graph, node).cloned());
    });
    symbols
}

/// Returns findings for numbers that are passed as sizes and equal an input's size that no weight has. Equal findings are
/// merged. Sizes of 1 are too common to be evidence.
///
/// An operator that rearranges its operand accepts only a fixed size of the input: with the number of a size that may vary,
/// the graph would hold for that size only. The first size of a view is the exception, if the operand's first size is the
/// input's symbol.
pub fn size_literals(graph: &Graph, module: &GraphModule) -> Vec<Finding> {
    let sizes = input_sizes(graph, module);
    let mut findings = Vec::new();
    each_node(graph, &mut |graph, node, value| {
        let numbers = constant_sizes(node);
        let matches = |size: &&InputSize| {
            let mut numbers = numbers.iter();
            numbers.any(|(number, is_free)| *number == size.value && (*is_free || size.is_fixed))
        };
        let batch = constant_batch(graph, node);
        let is_batch = |size: &&InputSize| batch.is_some() && size.symbol.as_ref() == batch;
        let candidates = sizes
            .iter()
            .filter(|size| !size.is_of_weight && size.value > 1);
        let size = sizes.iter().find(is_batch).or_else(|| {
            let mut evident = candidates.filter(|size| may_be_slice_size(graph, node, size.value));
            evident.find(matches)
        });
        findings.extend(size.map(|size| finding(graph, node, size).with_value(value)));
    });
    if let Some(tree) = &graph.output_tree {
        findings.extend(constant_outputs(tree).into_iter().filter_map(|number| {
            let is_size = |size: &&InputSize| size.value == number && size.value > 1;
            let size = sizes
                .iter()
                .filter(|size| !size.is_of_weight)
                .find(is_size)?;
            let message = format!(
                "the result holds the number {number}, which is {}",
                size.description
            );
            Some(Finding::new(Id::SizeLiteral, message))
        }));
    }
    merge_equal(findings)
}

/// A finding about a number in a node that is a size of an input.
fn finding(graph: &Graph, node: &Node, size: &InputSize) -> Finding {
    let message = format!(
        "{} in {} is {}",
        size.value,
        node.op.name(),
        size.description
    );
    let finding = Finding::new(Id::SizeLiteral, message).at(&node.place);
    finding.details([node_line(graph, node)])
}

/// Sizes of the inputs, and products of their leading fixed sizes.
fn input_sizes(graph: &Graph, module: &GraphModule) -> Vec<InputSize> {
    let weight_sizes = weight_sizes(module);
    let mut sizes: Vec<InputSize> = Vec::new();
    let mut add = |value: i64, is_fixed: bool, symbol: Option<&Symbol>, text: String| {
        sizes.push(InputSize {
            value,
            description: text,
            is_fixed,
            is_of_weight: weight_sizes.contains(&value),
            symbol: symbol.cloned(),
        });
    };
    for id in &graph.inputs {
        let info = graph.value(*id);
        let mut product = 1i64;
        for (axis, dim) in info.ty.shape.iter().enumerate() {
            let value = dim.eval(&graph.hints).unwrap_or(1);
            let fixed = dim.as_const();
            let is_fixed = fixed.is_some() || is_guarded(graph, dim);
            let text = format!("size {axis} of {}", info.name);
            add(value, is_fixed, dim.as_symbol(), text);
            product = product.saturating_mul(fixed.unwrap_or(0));
            if axis > 0 {
                let text = format!("the product of sizes 0 to {axis} of {}", info.name);
                add(product, true, None, text);
            }
        }
    }
    sizes
}

/// Returns the symbol of the first size of a view's operand if the view has the example's value of that symbol as its first
/// size. A 1 counts only if the symbol is part of another axis of the result.
fn constant_batch<'a>(graph: &'a Graph, node: &Node) -> Option<&'a Symbol> {
    let name = node.op.name().strip_prefix("aten.").unwrap_or_default();
    let first = match node.arguments.get(1) {
        Some(Argument::List(sizes)) if VIEW_OPERATORS.contains(&name) => integer(sizes.first()?)?,
        _ => return None,
    };
    let operand = node.operands().first().copied()?;
    let symbol = graph.ty(operand).shape.first()?.as_symbol()?;
    let result = &graph.ty(*node.results.first()?).shape;
    let other_sizes = result.iter().skip(1);
    let is_elsewhere = other_sizes
        .flat_map(Dim::symbols)
        .any(|other| other == *symbol);
    let is_read = graph.hints.get(symbol) == Some(&first) && (first > 1 || is_elsewhere);
    is_read.then_some(symbol)
}

/// True for operators that slice or repeat their operand.
fn is_slice_or_repeat(name: &str) -> bool {
    let base = name.strip_prefix("aten.").unwrap_or(name);
    ["repeat", "slice"]
        .iter()
        .any(|part| base.starts_with(part))
}

/// False for a number in a slice of a symbolic axis whose example size is not that number.
fn may_be_slice_size(graph: &Graph, node: &Node, value: i64) -> bool {
    let ("aten.slice.Tensor" | "aten.narrow", [Argument::Value(operand), axis, ..]) =
        (node.op.name(), node.arguments.as_slice())
    else {
        // A 2 in these operators is too common to be evidence.
        return value > 2 || !is_slice_or_repeat(node.op.name());
    };
    let axis = integer(axis).and_then(|axis| usize::try_from(axis).ok());
    let dim = axis.and_then(|axis| graph.ty(*operand).shape.get(axis));
    let varying = dim.filter(|dim| dim.as_const().is_none());
    varying.is_none_or(|dim| dim.eval(&graph.hints).is_ok_and(|size| size == value))
}

/// True if a guard requires an expression of the size's symbols to equal another.
pub fn is_guarded(graph: &Graph, dim: &Dim) -> bool {
    let symbols = dim.symbols();
    let equations = graph
        .guards
        .iter()
        .filter(|guard| guard.relation == Relation::Equal);
    let mut guarded = equations.flat_map(|guard| [guard.left.symbols(), guard.right.symbols()]);
    guarded.any(|these| !these.is_disjoint(&symbols))
}

/// Constant sizes among a node's arguments and attributes, each with true if the node would accept any other number.
pub fn constant_sizes(node: &Node) -> Vec<(i64, bool)> {
    match &node.op {
        Op::Call(name) => constant_sizes_of_call(name, node),
        Op::Primitive(primitive) => {
            let is_free = !REARRANGING_OPERATORS.contains(&primitive.name());
            let mut primitive = primitive.clone();
            let mut sizes = Vec::new();
            primitive.map_sizes(&mut |dim: &Dim| {
                sizes.extend(dim.as_const().map(|size| (size, is_free)));
                dim.clone()
            });
            sizes
        }
        Op::Region(_) => Vec::new(),
    }
}

/// [`constant_sizes`] of an operator call.
fn constant_sizes_of_call(name: &str, node: &Node) -> Vec<(i64, bool)> {
    let Ok(operator) = aten::operator(name) else {
        return Vec::new();
    };
    let schema = &operator.schema;
    let mut sizes = Vec::new();
    for (parameter, argument) in schema.parameters.iter().zip(&node.arguments) {
        if let Some(is_free) = accepts_any_size(&schema.name, parameter) {
            sizes.extend(
                integers(argument)
                    .into_iter()
                    .map(|number| (number, is_free)),
            );
        }
    }
    sizes
}

/// True if an operator accepts any number for a size parameter; none if the parameter is not a size.
fn accepts_any_size(operator: &str, parameter: &aten::SchemaParameter) -> Option<bool> {
    fn is_integer(ty: &ArgumentType) -> bool {
        match ty {
            ArgumentType::Optional(inner) | ArgumentType::List(inner, _) => is_integer(inner),
            ty => matches!(ty, ArgumentType::Int | ArgumentType::Scalar),
        }
    }
    let name = parameter.name.as_str();
    // The output size of adaptive pooling is the network's; that of resampling is usually a size of its input.
    let is_free = FREE_SIZE_PARAMETERS.contains(&name)
        || name == "output_size" && operator.starts_with("upsample");
    // `unfold` takes the size of a window.
    let is_size = is_free || RESULT_SIZE_PARAMETERS.contains(&name) && operator != "unfold";
    (is_size && is_integer(&parameter.ty)).then(|| !REARRANGING_OPERATORS.contains(&operator))
}

/// The integers in an argument, which may be a list.
fn integers(argument: &Argument) -> Vec<i64> {
    match argument {
        Argument::Number(Scalar::Int(value)) => vec![*value],
        Argument::List(items) => items.iter().flat_map(integers).collect(),
        _ => Vec::new(),
    }
}

/// Integer constants of the result.
fn constant_outputs(tree: &TreeSpec) -> Vec<i64> {
    match tree {
        TreeSpec::Constant(TreeConstant::Number(Scalar::Int(value))) => vec![*value],
        TreeSpec::Tuple(items) | TreeSpec::List(items) => {
            items.iter().flat_map(constant_outputs).collect()
        }
        TreeSpec::Dict(items) | TreeSpec::NamedTuple(_, items) => items
            .iter()
            .flat_map(|(_, item)| constant_outputs(item))
            .collect(),
        _ => Vec::new(),
    }
}
