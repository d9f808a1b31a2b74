//! Replaying a graph into a new builder, the basis of every pass.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::error::{Error, Result, SourcePlace};
use crate::op::Primitive;
use crate::shape::TensorType;

use super::builder::Builder;
use super::graph::{Argument, Definition, Graph, Node, Op, ValueId, ValueInfo};
use super::value::Value;

/// A replay in progress: the new builder, and the new value of each old one.
#[derive(Debug)]
pub struct Replay<'a, 'g> {
    /// The graph that is replayed.
    pub graph: &'a Graph,
    /// The builder that receives the nodes.
    pub builder: &'g Builder,
    values: HashMap<ValueId, Value<'g>>,
}

/// Replays a graph. For each node, `step` returns the values that replace its results; [`Replay::copy`] keeps the node.
pub fn replay(
    graph: &Graph,
    step: impl for<'g> FnMut(&mut Replay<'_, 'g>, &Node) -> Result<Vec<Value<'g>>>,
) -> Result<Graph> {
    replay_with_outputs(graph, step, |replay| {
        let outputs = graph.outputs.iter();
        Ok(outputs.map(|output| replay.value(*output)).collect())
    })
}

/// Like [`replay`], with the outputs that `outputs` returns after the last node. It may add nodes.
pub fn replay_with_outputs(
    graph: &Graph,
    mut step: impl for<'g> FnMut(&mut Replay<'_, 'g>, &Node) -> Result<Vec<Value<'g>>>,
    outputs: impl for<'g> FnOnce(&mut Replay<'_, 'g>) -> Result<Vec<Value<'g>>>,
) -> Result<Graph> {
    let builder = Builder::with_symbols(&graph.name, graph.hints.clone(), graph.guards.clone());
    let outputs: Vec<ValueId> = {
        let mut replay = Replay {
            graph,
            builder: &builder,
            values: HashMap::new(),
        };
        for input in &graph.inputs {
            let info = graph.value(*input);
            replay
                .values
                .insert(*input, builder.input(&info.name, info.ty.clone()));
        }
        builder.reserve_names(graph.values.iter().map(|info| info.name.as_str()));
        for node in &graph.nodes {
            builder.set_place(&node.place);
            let known = builder.value_count();
            let results =
                step(&mut replay, node).and_then(|results| builder.check().map(|()| results));
            let results = results.map_err(|error| error.at_place(&node.place))?;
            if results.len() != node.results.len() {
                return Err(Error::internal(format!(
                    "{} has {} results, not {}",
                    node.op.name(),
                    node.results.len(),
                    results.len()
                )));
            }
            for (old, new) in node.results.iter().zip(results) {
                replay.define(*old, new, known);
            }
        }
        let outputs = outputs(&mut replay)?;
        outputs.into_iter().map(Value::id).collect()
    };
    builder.set_states(graph.reads.clone(), graph.writes.clone());
    builder.finish(
        &outputs,
        graph.input_trees.clone(),
        graph.output_tree.clone(),
    )
}

/// Applies a pass to the graphs nested in a graph's regions, innermost first, then to the graph itself.
pub fn apply_to_all_graphs(
    graph: &Graph,
    pass: &mut dyn FnMut(&Graph) -> Result<Graph>,
) -> Result<Graph> {
    if graph.nodes.iter().all(|node| node.bodies().is_empty()) {
        return pass(graph);
    }
    let mut graph = graph.clone();
    for body in graph.nodes.iter_mut().flat_map(Node::bodies_mut) {
        *body = apply_to_all_graphs(body, pass)?;
    }
    pass(&graph)
}

impl Builder {
    /// Adds a node with an operation of another graph's node, on arguments of this graph.
    pub(crate) fn add_operation(
        &self,
        op: &Op,
        arguments: Vec<Argument>,
        results: Vec<TensorType>,
    ) -> Result<Vec<Value<'_>>> {
        match op {
            Op::Primitive(primitive) => self.try_apply(primitive.clone(), arguments),
            Op::Call(name) => Ok(self.call(name, arguments, results)),
            Op::Region(region) => Ok(self.region((**region).clone(), arguments, results)),
        }
    }
}

impl Graph {
    /// Inserts an input at an index.
    pub(crate) fn insert_input(&mut self, place: usize, name: &str, ty: TensorType) -> ValueId {
        let id = self.push_named(name, ty, Definition::Input(place));
        self.inputs.insert(place.min(self.inputs.len()), id);
        for (index, id) in self.inputs.iter().enumerate() {
            self.values[id.index()].definition = Definition::Input(index);
        }
        id
    }

    /// Adds a node at the end and returns its result.
    pub(crate) fn push_node(
        &mut self,
        name: &str,
        primitive: impl Into<Primitive>,
        arguments: Vec<Argument>,
        ty: TensorType,
    ) -> ValueId {
        let result = self.push_named(name, ty, Definition::Node(self.nodes.len(), 0));
        self.nodes.push(Node {
            op: Op::Primitive(primitive.into()),
            arguments,
            results: vec![result],
            place: SourcePlace::default(),
        });
        result
    }

    /// Adds a value; appends a number if the name is taken.
    fn push_named(&mut self, name: &str, ty: TensorType, definition: Definition) -> ValueId {
        let is_taken = |name: &str| self.values.iter().any(|info| info.name == name);
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_string()).chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        self.push_value(ValueInfo {
            name,
            ty,
            definition,
        })
    }
}

impl<'g> Replay<'_, 'g> {
    /// The new value of an old one. Weights are added on first use.
    pub fn value(&mut self, old: ValueId) -> Value<'g> {
        if let Some(value) = self.values.get(&old) {
            return *value;
        }
        let info = self.graph.value(old);
        let value = match &info.definition {
            Definition::Weight(name) => self.builder.weight(name, info.ty.clone()),
            _ => {
                self.builder.fail(Error::internal(format!(
                    "{} is used before it is defined",
                    info.name
                )));
                self.builder.poison()
            }
        };
        self.values.insert(old, value);
        value
    }

    /// A node's arguments as new values.
    pub fn arguments(&mut self, node: &Node) -> Vec<Argument> {
        let builder = self.builder;
        let map = |argument: &Argument| {
            argument.map(&mut |old| self.value(old).id(), &mut |dim| {
                builder.symbols().resolve(dim)
            })
        };
        node.arguments.iter().map(map).collect()
    }

    /// An argument of a region as a value. Numbers and sizes become scalars of a dtype.
    pub fn as_value(&self, argument: &Argument, dtype: DType) -> Value<'g> {
        match argument {
            Argument::Value(id) => self.builder.value(*id),
            Argument::Number(number) => self.builder.full(dtype, [], *number),
            Argument::Size(size) => self.builder.full(dtype, [], size),
            _ => {
                let message = "an argument of a region must be a value, number or size";
                self.builder.fail(Error::internal(message));
                self.builder.poison()
            }
        }
    }

    /// Copies a node onto new values.
    pub fn copy(&mut self, node: &Node) -> Result<Vec<Value<'g>>> {
        let arguments = self.arguments(node);
        let types = node
            .results
            .iter()
            .map(|result| self.graph.ty(*result).clone())
            .collect();
        self.builder.add_operation(&node.op, arguments, types)
    }

    /// Inlines the body of a region; returns the values that replace its results. Sizes become those of the new graph.
    pub fn inline(&mut self, body: &Graph, arguments: &[Argument]) -> Result<Vec<Value<'g>>> {
        let builder = self.builder;
        let body = body.with_sizes_of(arguments, |id| builder.ty(id));
        let mut inner = Replay {
            graph: &body,
            builder,
            values: HashMap::new(),
        };
        for (id, argument) in body.inputs.iter().zip(arguments) {
            let value = inner.as_value(argument, body.ty(*id).dtype);
            inner.values.insert(*id, value);
        }
        for node in &body.nodes {
            builder.set_place(&node.place);
            let results = inner.copy(node)?;
            inner
                .values
                .extend(node.results.iter().copied().zip(results));
        }
        let outputs = body.outputs.iter();
        Ok(outputs.map(|output| inner.value(*output)).collect())
    }

    /// Records the new value of an old one. The new value takes the old name, unless it existed before the node.
    fn define(&mut self, old: ValueId, new: Value<'g>, known: usize) {
        if known <= new.id().index() {
            let name = &self.graph.value(old).name;
            self.builder.rename_result(new.id(), name);
        }
        self.values.insert(old, new);
    }
}
