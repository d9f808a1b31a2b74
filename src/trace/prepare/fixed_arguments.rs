//! Fixes arguments of graphs to values.

use std::collections::BTreeSet;

use super::report::{PrepareReport, RewriteKind};
use crate::error::{Error, Result};
use crate::ir::{
    Argument, Definition, Graph, GraphModule, NamedTree, Node, Op, TreeConstant, TreeSpec, ValueId,
};
use crate::op::Full;
use crate::pass::{dce, specialize};
use crate::scalar::Scalar;
use crate::trace::check::{each_graph, signature};

/// Fixes arguments to values, and folds the nodes that depend only on them.
pub(super) fn fix_arguments(
    module: &mut GraphModule,
    fixed: &[(String, Scalar)],
    report: &mut PrepareReport,
) -> Result<()> {
    for (name, value) in fixed {
        let mut is_known = false;
        for graph in &mut module.graphs {
            report.set_graph(graph);
            is_known |= fix_argument(graph, name, *value, report)?;
        }
        if !is_known {
            return Err(unknown_argument(module, name));
        }
    }
    for graph in module.graphs.iter_mut().filter(|_| !fixed.is_empty()) {
        report.set_graph(graph);
        let folded = dce(&specialize(graph)?)?;
        report_removed_nodes(graph, &folded, report);
        *graph = folded;
    }
    Ok(())
}

/// The error for an argument that no graph has.
fn unknown_argument(module: &GraphModule, name: &str) -> Error {
    let inputs = module.graphs.iter().flat_map(signature);
    let names: BTreeSet<String> = inputs.map(|input| input.name).collect();
    let names: Vec<String> = names.into_iter().collect();
    let error = Error::usage(format!("there is no argument {name}"));
    error.help(format!("the arguments are {}", names.join(", ")))
}

/// Index of an argument's input; none if there is no such argument, or if it is already fixed to the value.
pub(super) fn input_of(graph: &Graph, name: &str, value: Scalar) -> Result<Option<usize>> {
    let trees = signature(graph);
    let Some(argument) = trees.iter().find(|input| input.name == name) else {
        return Ok(None);
    };
    match &argument.tree {
        TreeSpec::Tensor(index) => Ok(Some(*index)),
        TreeSpec::Constant(TreeConstant::Number(known)) if known.to_f64() == value.to_f64() => {
            Ok(None)
        }
        TreeSpec::Constant(known) => {
            let message = format!("the argument {name} is {known} in this graph, not {value}");
            Err(Error::usage(message).help("import the archive with the other value"))
        }
        _ => Err(Error::usage(format!(
            "the argument {name} is not a tensor: only tensors can be fixed"
        ))),
    }
}

/// Replaces an argument by a value. True if the graph has such an argument.
fn fix_argument(
    graph: &mut Graph,
    name: &str,
    value: Scalar,
    report: &mut PrepareReport,
) -> Result<bool> {
    let Some(index) = input_of(graph, name, value)? else {
        return Ok(signature(graph).iter().any(|input| input.name == name));
    };
    require_other_size_source(graph, index, name)?;
    let input = graph.inputs[index];
    let place = Default::default();
    report.add(RewriteKind::Fixed, name, &value.to_string(), &place);
    graph.input_trees = replace_input_by_constant(&signature(graph), index, value);
    graph.reads = replace_input_by_constant(&graph.reads, index, value);
    remove_input(graph, index);
    insert_constant(graph, input, value);
    Ok(true)
}

/// An error if the input `index` is the only one that defines one of its symbolic sizes.
fn require_other_size_source(graph: &Graph, index: usize, name: &str) -> Result<()> {
    let symbols = |id: &ValueId| {
        let sizes = graph.ty(*id).shape.iter();
        sizes
            .flat_map(|size| size.symbols())
            .collect::<BTreeSet<_>>()
    };
    let inputs = graph.inputs.iter().enumerate();
    let others = inputs.filter(|(other, _)| *other != index);
    let defined_elsewhere: BTreeSet<_> = others.flat_map(|(_, id)| symbols(id)).collect();
    let own_symbols = graph.inputs.get(index).map(symbols).unwrap_or_default();
    match own_symbols.difference(&defined_elsewhere).next() {
        None => Ok(()),
        Some(size) => Err(Error::usage(format!(
            "the argument {name} can't be fixed: no other input defines the size {size}"
        ))),
    }
}

/// Returns structures in which the input `index` is a constant. The inputs after it move down by one.
fn replace_input_by_constant(inputs: &[NamedTree], index: usize, value: Scalar) -> Vec<NamedTree> {
    let tensor = |input_index: usize| match input_index {
        _ if input_index == index => TreeSpec::Constant(TreeConstant::Number(value)),
        _ => TreeSpec::Tensor(input_index - usize::from(index < input_index)),
    };
    let inputs = inputs.iter().map(|input| NamedTree {
        name: input.name.clone(),
        tree: input.tree.map_tensors(&tensor),
    });
    inputs.collect()
}

/// Removes an input of the graph. Its value keeps its id, and needs a new definition.
fn remove_input(graph: &mut Graph, index: usize) {
    graph.inputs.remove(index);
    for (index, id) in graph.inputs.clone().into_iter().enumerate() {
        graph.values[id.index()].definition = Definition::Input(index);
    }
}

/// Inserts a node before all others that defines the value `id`: a tensor filled with a number.
fn insert_constant(graph: &mut Graph, id: ValueId, value: Scalar) {
    for info in &mut graph.values {
        if let Definition::Node(node, _) = &mut info.definition {
            *node += 1;
        }
    }
    graph.values[id.index()].definition = Definition::Node(0, 0);
    let ty = graph.ty(id).clone();
    let full = Full {
        dtype: ty.dtype,
        shape: ty.shape,
    };
    let node = Node {
        op: Op::Primitive(full.into()),
        arguments: vec![Argument::Number(value.cast(ty.dtype))],
        results: vec![id],
        place: Default::default(),
    };
    graph.nodes.insert(0, node);
}

/// Reports the nodes that `after` no longer has, by the names of their first results and their operators.
fn report_removed_nodes(before: &Graph, after: &Graph, report: &mut PrepareReport) {
    let mut remaining = BTreeSet::new();
    each_graph(after, &mut |graph| {
        let nodes = graph.nodes.iter();
        remaining.extend(nodes.map(|node| {
            (
                first_name(graph, node).to_string(),
                node.op.name().to_string(),
            )
        }));
    });
    each_graph(before, &mut |graph| {
        for node in &graph.nodes {
            let name = first_name(graph, node);
            if !remaining.contains(&(name.to_string(), node.op.name().to_string())) {
                report.add(RewriteKind::Folded, name, "", &node.place);
            }
        }
    });
}

/// Name of a node's first result; empty if it has none.
fn first_name<'a>(graph: &'a Graph, node: &Node) -> &'a str {
    let first = node.results.first();
    first.map_or("", |id| graph.value(*id).name.as_str())
}
