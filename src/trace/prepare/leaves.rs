//! Leaves: modules of which each call becomes one node. The members of a call are the nodes that belong to it.

use std::collections::HashSet;

use super::instances::is_leaf;
use super::report::{PrepareReport, RewriteKind};
use crate::error::{Error, ErrorContext, Result, SourcePlace, without_call_numbers};
use crate::ir::rewrite::replay;
use crate::ir::{Argument, Definition, Graph, GraphModule, Node, Op, Region, ValueId};
use crate::trace::check::each_graph;
use crate::trace::region_bodies::{add_size_input, retain_local_guards, unbound_symbols};

/// Outlines each call of the listed modules into one node.
pub(super) fn outline_leaves(
    module: &mut GraphModule,
    leaves: &[String],
    report: &mut PrepareReport,
) -> Result<()> {
    for leaf in leaves {
        let mut has_calls = false;
        for graph in &mut module.graphs {
            report.set_graph(graph);
            has_calls |= outline_in(graph, leaf, report).at(|| format!("leaf {leaf}"))?;
        }
        if !has_calls {
            return Err(unknown_leaf(module, leaf));
        }
    }
    Ok(())
}

/// The error for a leaf without nodes.
fn unknown_leaf(module: &GraphModule, leaf: &str) -> Error {
    let mut paths = Vec::new();
    for graph in &module.graphs {
        each_graph(graph, &mut |graph| {
            let places = graph.nodes.iter().map(|node| &node.place.module);
            paths.extend(places.map(|path| without_call_numbers(path)));
        });
    }
    paths.retain(|path| !path.is_empty());
    paths.sort();
    paths.dedup();
    let error = Error::usage(format!("no operator is in a module {leaf}"));
    error.help(format!("operators are in {}", paths.join(", ")))
}

/// Outlines the calls of a module in a graph and its nested graphs. True if there is one.
fn outline_in(graph: &mut Graph, leaf: &str, report: &mut PrepareReport) -> Result<bool> {
    let calls: Vec<Option<String>> = graph.nodes.iter().map(|node| call_of(node, leaf)).collect();
    let mut distinct_calls: Vec<&String> = calls.iter().flatten().collect();
    distinct_calls.dedup();
    let mut seen = HashSet::new();
    distinct_calls.retain(|call| seen.insert(*call));
    for call in &distinct_calls {
        *graph = outline_call(graph, call, leaf, report)?;
    }
    let mut has_calls = !distinct_calls.is_empty();
    for node in graph.nodes.iter_mut().filter(|node| !is_leaf(&node.op)) {
        for body in node.bodies_mut() {
            has_calls |= outline_in(body, leaf, report)?;
        }
    }
    Ok(has_calls)
}

/// Path of the module call that a node belongs to; none if it belongs to another module.
fn call_of(node: &Node, leaf: &str) -> Option<String> {
    let parts: Vec<&str> = node.place.module.split('.').collect();
    let call = parts.get(..leaf.split('.').count())?.join(".");
    (without_call_numbers(&call) == leaf).then_some(call)
}

/// Outlines one call of a leaf. `call` is the path of the call, `leaf` that of the module.
fn outline_call(
    graph: &Graph,
    call: &str,
    leaf: &str,
    report: &mut PrepareReport,
) -> Result<Graph> {
    let is_member = |node: &Node| call_of(node, leaf).as_deref() == Some(call);
    let members: Vec<Node> = graph
        .nodes
        .iter()
        .filter(|node| is_member(node))
        .cloned()
        .collect();
    let (before, after) = split_around(graph, &is_member)?;
    let place = SourcePlace {
        module: call.to_string(),
        location: members.first().and_then(|node| node.place.location.clone()),
    };
    for node in &members {
        let first_result = node
            .results
            .first()
            .map(|id| graph.value(*id).name.as_str());
        report.add(
            RewriteKind::Leaf,
            first_result.unwrap_or_default(),
            leaf,
            &node.place,
        );
    }
    let node = call_node(graph, members, &after, leaf, place)?;
    let nodes = before.into_iter().chain([node]).chain(after).collect();
    let ordered = Graph {
        nodes,
        ..graph.clone()
    };
    replay(&ordered, |replay, node| replay.copy(node))
}

/// Splits the nodes outside of the module call: those that can run before its members, and those that must run after.
///
/// # Errors
/// A member depends on a node outside of the call that depends on a member.
fn split_around(
    graph: &Graph,
    is_member: &dyn Fn(&Node) -> bool,
) -> Result<(Vec<Node>, Vec<Node>)> {
    let last = graph.nodes.iter().rposition(is_member);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut member_results: HashSet<ValueId> = HashSet::new();
    let mut dependent_values: HashSet<ValueId> = HashSet::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let operands = node.operands();
        let must_follow = operands.iter().any(|id| dependent_values.contains(id));
        if is_member(node) {
            if must_follow {
                return Err(cyclic_leaf(node));
            }
            member_results.extend(&node.results);
        } else if must_follow
            || Some(index) > last
            || operands.iter().any(|id| member_results.contains(id))
        {
            dependent_values.extend(&node.results);
            after.push(node.clone());
        } else {
            before.push(node.clone());
        }
    }
    Ok((before, after))
}

/// The error for a member that depends on its own call through other nodes.
fn cyclic_leaf(node: &Node) -> Error {
    let message = "the module reads a value that is computed outside of it from its own results";
    let error = Error::unsupported(message).at_place(&node.place);
    error.help("choose the enclosing module as the leaf")
}

/// Makes a call node whose body consists of the members. Its results are the values that other nodes or the graph's
/// outputs read. `after` are the nodes that run after it.
fn call_node(
    graph: &Graph,
    members: Vec<Node>,
    after: &[Node],
    name: &str,
    place: SourcePlace,
) -> Result<Node> {
    let defined: Vec<ValueId> = members
        .iter()
        .flat_map(|node| node.results.clone())
        .collect();
    let member_values: HashSet<ValueId> = defined.iter().copied().collect();
    let operands_after = after.iter().flat_map(Node::operands);
    let read: HashSet<ValueId> = operands_after
        .chain(graph.outputs.iter().copied())
        .collect();
    let results: Vec<ValueId> = defined.into_iter().filter(|id| read.contains(id)).collect();
    let mut seen = HashSet::new();
    let is_input = |id: &ValueId| {
        let is_weight = matches!(graph.value(*id).definition, Definition::Weight(_));
        !is_weight && !member_values.contains(id)
    };
    let operands = members.iter().flat_map(Node::operands).filter(is_input);
    let mut inputs: Vec<ValueId> = operands.filter(|id| seen.insert(*id)).collect();
    let mut body = leaf_body(graph, members, &inputs, &results)?;
    body.name = name.to_string();
    inputs.extend(add_size_inputs(graph, &mut body)?);
    retain_local_guards(&mut body);
    Ok(Node {
        op: Op::Region(Box::new(Region::Call { body })),
        arguments: inputs.into_iter().map(Argument::Value).collect(),
        results,
        place,
    })
}

/// A graph of these nodes, inputs and outputs.
fn leaf_body(
    graph: &Graph,
    nodes: Vec<Node>,
    inputs: &[ValueId],
    outputs: &[ValueId],
) -> Result<Graph> {
    let nodes_graph = Graph {
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        nodes,
        input_trees: Vec::new(),
        output_tree: None,
        reads: Vec::new(),
        writes: Vec::new(),
        ..graph.clone()
    };
    replay(&nodes_graph, |replay, node| replay.copy(node))
}

/// Adds inputs to the body that define the symbols that none of its inputs defines. Returns their values outside of the
/// body.
fn add_size_inputs(graph: &Graph, body: &mut Graph) -> Result<Vec<ValueId>> {
    let mut added = Vec::new();
    for symbol in unbound_symbols(body) {
        let has_size = |id: &&ValueId| {
            let mut sizes = graph.ty(**id).shape.iter();
            sizes.any(|size| size.as_symbol() == Some(&symbol))
        };
        let source = graph.inputs.iter().find(has_size);
        let missing = || Error::unsupported(format!("no input has the size {symbol}"));
        let id = *source.ok_or_else(missing)?;
        add_size_input(body, &symbol, graph.ty(id).clone());
        added.push(id);
    }
    Ok(added)
}
