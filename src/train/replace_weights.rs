use std::collections::HashSet;

use crate::aten;
use crate::error::{Error, ErrorContext, Result};
use crate::ir::rewrite::{Replay, replay};
use crate::ir::{Graph, GraphModule, Node, Op, Value, ValueId, Weights};

/// The module with other tensors for some weights, of any shapes that the graphs can take: a last layer for other classes,
/// an embedding for another vocabulary. Types of values that depend on them follow.
///
/// ```no_run
/// # fn main() -> onionskin::Result<()> {
/// use onionskin::Model;
/// use onionskin::nn::Linear;
/// use onionskin::trace::state_dict;
/// use onionskin::train::replace_weights;
///
/// let module = Model::open("resnet18.pt")?.import_method("forward", None)?;
/// let head = state_dict(&Linear::new(512, 5))?;
/// let head = head.into_iter().map(|(name, tensor)| (format!("fc.{name}"), tensor));
/// let module = replace_weights(&module, head.collect())?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The module has no such weight, or an operator does not take the new types: the message names it and its line.
pub fn replace_weights(module: &GraphModule, weights: Weights) -> Result<GraphModule> {
    let unknown = weights
        .keys()
        .filter(|name| !module.weights.contains_key(*name));
    let unknown = unknown.map(|name| Error::input(format!("the module has no weight {name}")));
    Error::all(unknown.collect()).map_or(Ok(()), Err)?;
    let graphs = module.graphs.iter();
    let graphs = graphs.map(|graph| retyped(graph, &weights).at(|| graph.name.clone()));
    let mut replaced = GraphModule {
        graphs: graphs.collect::<Result<_>>()?,
        ..module.clone()
    };
    replaced.weights.extend(weights);
    replaced.verify()?;
    Ok(replaced)
}

/// The graph with the types that follow from those of weights.
fn retyped(graph: &Graph, weights: &Weights) -> Result<Graph> {
    let mut graph = graph.clone();
    graph.pass_weights();
    let read = graph
        .weights()
        .filter_map(|(name, id)| Some((id, weights.get(name)?)));
    let mut changed = Vec::new();
    for (id, tensor) in read {
        let ty = tensor.tensor_type();
        if *graph.ty(id) != ty {
            changed.push((id, ty));
        }
    }
    let mut retyped: HashSet<ValueId> = changed.iter().map(|(id, _)| *id).collect();
    for (id, ty) in changed {
        if let Some(info) = graph.values.get_mut(id.index()) {
            info.ty = ty;
        }
    }
    replay(&graph, |replay, node| {
        match node.operands().iter().any(|id| retyped.contains(id)) {
            true => {
                retyped.extend(&node.results);
                inferred(replay, node)
            }
            false => replay.copy(node),
        }
    })
}

/// Adds a node with the result types that follow from its arguments.
fn inferred<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> Result<Vec<Value<'g>>> {
    let arguments = replay.arguments(node);
    let builder = replay.builder;
    match &node.op {
        Op::Call(name) => {
            let types = aten::operator(name)?.infer(builder, &arguments)?;
            Ok(builder.call(name, arguments, types))
        }
        Op::Primitive(primitive) => builder.try_apply(primitive.clone(), arguments),
        Op::Region(region) => builder.try_region((**region).clone(), arguments),
    }
}
