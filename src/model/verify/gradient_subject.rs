//! Graphs with gradients, as subjects of a verification.

use crate::compare::{Difference, Tolerance, compare, compare_tensors};
use crate::error::{Error, Result};
use crate::grad::Loss;
use crate::ir::{Graph, GraphModule};
use crate::item::Item;

/// The module with only the entry graph, which also computes the gradients of a loss with respect to all its float inputs
/// and weights. Without a loss it is the sum of the only float output.
pub(super) fn with_gradients(
    module: GraphModule,
    entry: &str,
    loss: Option<&Loss>,
) -> Result<GraphModule> {
    let mut graph = module.graph(entry)?.clone();
    let loss = match loss {
        Some(loss) => loss.clone(),
        None => sum_of_only_output(&graph)?,
    };
    graph.pass_weights();
    let gradient = graph.gradient(&loss, &graph.differentiable_values())?;
    Ok(GraphModule {
        graphs: vec![gradient],
        ..module
    })
}

fn sum_of_only_output(graph: &Graph) -> Result<Loss> {
    let outputs = graph.differentiable_outputs();
    let names: Vec<&str> = outputs.values().map(String::as_str).collect();
    match names.as_slice() {
        [_] => Ok(Loss::Sum),
        [] => Err(Error::usage(format!(
            "{} has no output of floats, so it has no gradients",
            graph.name
        ))),
        [first, ..] => {
            let message = format!(
                "{} has {} outputs of floats: {}",
                graph.name,
                names.len(),
                names.join(", ")
            );
            Err(Error::usage(message).help(format!(
                "choose a loss: sum or mean of all of them, or one number of them, as in output:{first}"
            )))
        }
    }
}

/// The differences of a result, and of the gradients beside it.
pub(super) fn differences(got: &Item, expected: &Item, tolerance: Tolerance) -> Vec<Difference> {
    let (Some((got, got_gradients)), Some((expected, expected_gradients))) =
        (parts(got), parts(expected))
    else {
        return compare(got, expected, tolerance);
    };
    let mut differences = compare(got, expected, tolerance);
    for ((name, got), (_, expected)) in got_gradients.iter().zip(expected_gradients) {
        if let (Item::Tensor(got), Item::Tensor(expected)) = (got, expected) {
            let label = format!("gradient of {name}");
            differences.push(compare_tensors(&label, got, expected, tolerance));
        }
    }
    differences
}

/// The result of a graph with gradients: that of the graph without, and the gradients by name.
pub(super) fn parts(item: &Item) -> Option<(&Item, &[(String, Item)])> {
    match item {
        Item::Tuple(items) => match items.as_slice() {
            [result, Item::Dict(gradients)] => Some((result, gradients)),
            _ => None,
        },
        _ => None,
    }
}
