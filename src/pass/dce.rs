use std::collections::BTreeSet;

use crate::dim::{Dim, Symbol};
use crate::error::Result;
use crate::ir::rewrite::replay;
use crate::ir::{Graph, Node, Op, Region, ValueId};

/// Removes nodes that have no effect and no used result; outputs, carried values and arguments of regions that nothing
/// uses; and weights that nothing reads afterwards.
pub fn dce(graph: &Graph) -> Result<Graph> {
    let live = Graph {
        nodes: live_nodes(graph)?,
        ..graph.clone()
    };
    replay(&live, |replay, node| replay.copy(node))
}

/// The nodes that [`dce`] keeps, without unused parts of regions.
fn live_nodes(graph: &Graph) -> Result<Vec<Node>> {
    let mut is_read = outputs_of(graph);
    let mut live = Vec::new();
    for node in graph.nodes.iter().rev() {
        if is_live(node, &is_read) {
            let node = trim(node, &is_read)?;
            mark_read(&node, &mut is_read);
            live.push(node);
        }
    }
    live.reverse();
    Ok(live)
}

/// For each value of a graph, whether it is an output.
fn outputs_of(graph: &Graph) -> Vec<bool> {
    let mut is_read = vec![false; graph.values.len()];
    for output in &graph.outputs {
        is_read[output.index()] = true;
    }
    is_read
}

/// True for a node with an effect or a result that is read. `is_read` has an element for each value.
fn is_live(node: &Node, is_read: &[bool]) -> bool {
    node.has_side_effect() || node.results.iter().any(|result| is_read[result.index()])
}

/// Marks the operands of a node as read.
fn mark_read(node: &Node, is_read: &mut [bool]) {
    for operand in node.operands() {
        is_read[operand.index()] = true;
    }
}

/// Copies a node without its unused outputs, carried values and arguments.
fn trim(node: &Node, is_read: &[bool]) -> Result<Node> {
    let Op::Region(region) = &node.op else {
        return Ok(node.clone());
    };
    let results = node.results.iter();
    let mut kept: Vec<bool> = results.map(|result| is_read[result.index()]).collect();
    // A node that has only an effect keeps one result.
    if let (false, Some(first)) = (kept.contains(&true), kept.first_mut()) {
        *first = true;
    }
    let (region, kept_arguments) = match &**region {
        Region::If { then, otherwise } => {
            let (then, otherwise) = (with_outputs(then, &kept)?, with_outputs(otherwise, &kept)?);
            let kept_inputs = union(&needed_inputs(&then), &needed_inputs(&otherwise));
            let region = Region::If {
                then: with_inputs(then, &kept_inputs)?,
                otherwise: with_inputs(otherwise, &kept_inputs)?,
            };
            (region, [&[true], kept_inputs.as_slice()].concat())
        }
        Region::Loop { body, carried } => {
            keep_carried(body, *carried, &mut kept);
            let body = with_outputs(body, &[&[true], kept.as_slice()].concat())?;
            // The carried values go first, since a size that one of them determined may be needed of a constant.
            let all = vec![true; body.inputs.len() - 1 - carried];
            let body = with_inputs(body, &[&[true], kept.as_slice(), &all].concat())?;
            let carried = kept.iter().filter(|kept| **kept).count();
            let constants = needed_inputs(&body).split_off(1 + carried);
            let kept_of_body = [vec![true; 1 + carried], constants.clone()].concat();
            let region = Region::Loop {
                body: with_inputs(body, &kept_of_body)?,
                carried,
            };
            let kept_inputs = [&[true], kept.as_slice(), &constants].concat();
            (region, [&[true], kept_inputs.as_slice()].concat())
        }
        Region::Call { body } => {
            let body = dce(body)?;
            kept.fill(true);
            (Region::Call { body }, vec![true; node.arguments.len()])
        }
    };
    let mut node = node.clone();
    node.op = Op::Region(Box::new(region));
    retain(&mut node.arguments, &kept_arguments);
    retain(&mut node.results, &kept);
    Ok(node)
}

/// Extends `kept` by the carried values of a loop that the next value of a kept one depends on.
fn keep_carried(body: &Graph, carried: usize, kept: &mut Vec<bool>) {
    loop {
        let mut trimmed = body.clone();
        retain(&mut trimmed.outputs, &[&[true], kept.as_slice()].concat());
        let mut is_read = outputs_of(&trimmed);
        for node in trimmed.nodes.iter().rev() {
            if is_live(node, &is_read) {
                mark_read(node, &mut is_read);
            }
        }
        let inputs = trimmed.inputs.iter().skip(1).take(carried);
        let is_needed: Vec<bool> = inputs.map(|id| is_read[id.index()]).collect();
        let extended = union(kept, &is_needed);
        if extended == *kept {
            return;
        }
        *kept = extended;
    }
}

/// A body with only the outputs marked in `kept`, and without the nodes that only the others need.
fn with_outputs(body: &Graph, kept: &[bool]) -> Result<Graph> {
    let mut body = body.clone();
    retain(&mut body.outputs, kept);
    dce(&body)
}

/// A body with only the inputs marked in `kept`.
fn with_inputs(mut body: Graph, kept: &[bool]) -> Result<Graph> {
    retain(&mut body.inputs, kept);
    replay(&body, |replay, node| replay.copy(node))
}

/// For each input of a body, whether the body reads it, or no other kept input determines one of its symbolic sizes.
fn needed_inputs(body: &Graph) -> Vec<bool> {
    let uses = body.uses();
    let is_read = |id: &ValueId| uses[id.index()] > 0;
    let plain_symbols = |id: &ValueId| {
        let sizes = body.ty(*id).shape.iter();
        sizes
            .filter_map(Dim::as_symbol)
            .cloned()
            .collect::<Vec<_>>()
    };
    let mut determined: BTreeSet<Symbol> = BTreeSet::new();
    determined.extend(
        body.inputs
            .iter()
            .filter(|id| is_read(id))
            .flat_map(plain_symbols),
    );
    let mut adds_symbol = |id: &ValueId| {
        let sizes = body.ty(*id).shape.iter().flat_map(Dim::symbols);
        let new: Vec<Symbol> = sizes.filter(|name| !determined.contains(name)).collect();
        determined.extend(plain_symbols(id));
        !new.is_empty()
    };
    let inputs = body.inputs.iter();
    inputs.map(|id| is_read(id) || adds_symbol(id)).collect()
}

/// Elementwise `or`.
fn union(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a || *b).collect()
}

/// Removes the items that are not marked in `kept`.
fn retain<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    items.retain(|_| kept.next().is_none_or(|kept| *kept));
}
