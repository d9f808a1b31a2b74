//! Outputs whose first size is fixed to the example's batch size.

use super::dependence::{DependenceKind, dependence};
use super::evaluate::argument_inputs;
use super::size_literals::{is_guarded, weight_sizes};
use super::{Finding, Id};
use crate::dim::{Dim, Symbol};
use crate::ir::{Graph, GraphModule, ValueId};

/// Returns a finding for each output that depends on inputs of symbolic batch size, but whose first size is a constant
/// equal to the batch size of such an input in the example. Unless the batch symbol is part of another axis of the
/// output, the equality may be a coincidence: it then counts only if the size is greater than 1, is no size of a weight,
/// and is the first size of every argument in the example.
pub fn fixed_batches(graph: &Graph, module: &GraphModule) -> Vec<Finding> {
    let inputs = argument_inputs(graph);
    let has_batch_symbol = |id: &ValueId| batch_symbol(graph, *id).is_some();
    let all_inputs = graph.inputs.iter();
    let chosen_inputs: Vec<bool> = all_inputs
        .map(|id| inputs.contains(id) && has_batch_symbol(id))
        .collect();
    let depends = dependence(graph, &chosen_inputs, DependenceKind::Elements);
    let outputs = graph.outputs.iter().zip(depends).enumerate();
    outputs
        .filter(|(_, (_, depends))| *depends)
        .filter_map(|(index, (id, _))| finding(graph, module, index, *id))
        .collect()
}

/// The symbol of an input's first size.
fn batch_symbol(graph: &Graph, id: ValueId) -> Option<&Symbol> {
    graph.ty(id).shape.first()?.as_symbol()
}

/// True if the first size of all inputs is `rows` in the example. Then `rows` is the batch size.
fn all_have_rows(graph: &Graph, rows: i64) -> bool {
    let inputs = argument_inputs(graph).iter();
    let mut first_sizes = inputs.filter_map(|id| graph.ty(*id).shape.first());
    first_sizes.all(|dim| dim.eval(&graph.hints).is_ok_and(|size| size == rows))
}

/// A finding about the output `index`, whose value is `id`, if its first size is fixed to the example's batch size.
fn finding(graph: &Graph, module: &GraphModule, index: usize, id: ValueId) -> Option<Finding> {
    let shape = &graph.ty(id).shape;
    let rows = shape.first()?.as_const()?;
    let has_rows_in_example = |input: &&ValueId| {
        let symbol = batch_symbol(graph, **input);
        symbol.and_then(|symbol| graph.hints.get(symbol)) == Some(&rows)
    };
    let input = *argument_inputs(graph).iter().find(has_rows_in_example)?;
    let dim = graph.ty(input).shape.first()?;
    let symbol = dim.as_symbol()?;
    // A guard restricts the batch size, and the finding about that guard says so.
    if is_guarded(graph, dim) {
        return None;
    }
    let is_elsewhere = shape.iter().any(|dim: &Dim| dim.symbols().contains(symbol));
    let is_batch_size =
        rows > 1 && !weight_sizes(module).contains(&rows) && all_have_rows(graph, rows);
    if !is_elsewhere && !is_batch_size {
        return None;
    }
    let (info, input) = (graph.value(id), graph.value(input));
    let message = format!(
        "size 0 of output {index} ({}: {}) is {rows}, the batch size of the example, for every batch size of {}: {}",
        info.name, info.ty, input.name, input.ty
    );
    let place = graph.nodes.iter().find(|node| node.results.contains(&id));
    let place = place.map(|node| node.place.clone()).unwrap_or_default();
    Some(
        Finding::new(Id::FixedBatch, message)
            .at(&place)
            .with_value_name(&info.name),
    )
}
