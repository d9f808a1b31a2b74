//! The oracle: interprets a graph on host tensors, node by node. It also serves as the device of machines without an
//! adapter.

pub mod loop_limit;
mod memory;

use std::collections::HashMap;

use crate::aten::{self, Operator};
use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ir::{
    Argument, Builder, Definition, Graph, Node, Op, Primitive, Region, Value, ValueId, Weights,
};
use crate::scalar::Scalar;
use crate::symbols;
use crate::tensor::Tensor;

/// A node that has run.
#[derive(Clone, Copy)]
pub struct NodeEvent<'a> {
    /// The graph that contains the node.
    pub graph: &'a Graph,
    /// The node.
    pub node: &'a Node,
    /// Results of the node.
    pub results: &'a [Tensor],
    /// The region body that this graph is; `None` for the outermost graph.
    pub frame: Option<&'a BodyFrame<'a>>,
}

/// A run of a region's body.
#[derive(Clone, Copy)]
pub struct BodyFrame<'a> {
    /// The body that contains the region; `None` if the outermost graph does.
    pub outer: Option<&'a BodyFrame<'a>>,
    /// The graph that contains the region.
    pub graph: &'a Graph,
    /// The region.
    pub region: &'a Node,
    /// The body of the region.
    pub kind: BodyKind,
    /// Inputs of the body.
    pub inputs: &'a [Tensor],
}

/// A body of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// The only body of a call.
    Body,
    /// The branch for a true condition.
    Then,
    /// The branch for a false condition.
    Otherwise,
    /// An iteration of a loop, counted from 0.
    Iteration(i64),
}

impl BodyKind {
    /// The body of a node; `None` if the node has no such body.
    pub fn body_of(self, node: &Node) -> Option<&Graph> {
        let index = usize::from(self == BodyKind::Otherwise);
        node.bodies().into_iter().nth(index)
    }
}

/// Callback for every node of a run in execution order: nodes of a body come before the region that contains it.
pub type NodeObserver<'w> = dyn FnMut(&NodeEvent) -> Result<()> + 'w;

/// Runs a graph on inputs that match its signature.
pub fn run(graph: &Graph, weights: &Weights, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    run_observed(graph, weights, inputs, &mut |_| Ok(()))
}

/// Runs a graph and calls `watch` for every node.
pub fn run_observed(
    graph: &Graph,
    weights: &Weights,
    inputs: &[Tensor],
    watch: &mut NodeObserver,
) -> Result<Vec<Tensor>> {
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let bindings = graph.bind(&shapes)?;
    graph.check_dtypes(inputs)?;
    memory::check(graph, &bindings)?;
    run_bound(graph, weights, bindings, inputs, None, watch)
}

/// Sizes of the symbols of a body, which follow from the shapes of its inputs.
pub fn body_sizes<'a>(body: &Graph, shapes: impl Iterator<Item = &'a [usize]> + Clone) -> Bindings {
    let pairs = body.inputs.iter().zip(shapes);
    symbols::solve(pairs.flat_map(|(id, shape)| {
        let sizes = shape.iter().copied();
        body.ty(*id).shape.iter().zip(sizes)
    }))
}

/// Runs a graph for known sizes of its symbols.
fn run_bound(
    graph: &Graph,
    weights: &Weights,
    bindings: Bindings,
    inputs: &[Tensor],
    within: Option<&BodyFrame>,
    watch: &mut NodeObserver,
) -> Result<Vec<Tensor>> {
    let mut run = Interpreter {
        graph,
        weights,
        bindings,
        values: HashMap::new(),
        remaining_reads: graph.uses(),
        frame: within,
    };
    for (id, tensor) in graph.inputs.iter().zip(inputs) {
        run.values.insert(*id, tensor.clone());
    }
    for node in &graph.nodes {
        let results = run
            .node(node, watch)
            .map_err(|error| error.at_place(&node.place))?;
        watch(&NodeEvent {
            graph,
            node,
            results: &results,
            frame: within,
        })?;
        run.values.extend(node.results.iter().copied().zip(results));
        run.release(node);
    }
    graph
        .outputs
        .iter()
        .map(|output| run.value(*output))
        .collect()
}

/// Runs an operator. A value id among the arguments is an index into `tensors`.
pub fn call(
    operator: &'static Operator,
    arguments: &[Argument],
    tensors: &[Tensor],
    bindings: &Bindings,
) -> Result<Vec<Tensor>> {
    let builder = Builder::new(&operator.name);
    let inputs = tensors.iter();
    let inputs = inputs.map(|tensor| builder.input("x", tensor.tensor_type()).id());
    let inputs: Vec<ValueId> = inputs.collect();
    let mut unknown = None;
    let mut size = |dim: &Dim| match dim.eval(bindings) {
        Ok(size) => Dim::from(size),
        Err(error) => {
            unknown = Some(error);
            Dim::ZERO
        }
    };
    let mut value = |id: ValueId| inputs.get(id.index()).copied().unwrap_or(id);
    let arguments = arguments.iter();
    let arguments = arguments.map(|argument| argument.map(&mut value, &mut size));
    let arguments: Vec<Argument> = arguments.collect();
    if let Some(error) = unknown {
        return Err(error);
    }
    let results = operator.expand(&builder, &arguments)?;
    let results: Vec<ValueId> = results.into_iter().map(Value::id).collect();
    let body = builder.finish(&results, Vec::new(), None)?;
    run(&body, &Weights::new(), tensors)
}

struct Interpreter<'a> {
    graph: &'a Graph,
    weights: &'a Weights,
    bindings: Bindings,
    values: HashMap<ValueId, Tensor>,
    /// Number of reads that are still to come, by value. A value without any is dropped.
    remaining_reads: Vec<usize>,
    frame: Option<&'a BodyFrame<'a>>,
}

impl Interpreter<'_> {
    fn value(&self, id: ValueId) -> Result<Tensor> {
        if let Some(tensor) = self.values.get(&id) {
            return Ok(tensor.clone());
        }
        let info = self.graph.value(id);
        match &info.definition {
            Definition::Weight(name) => match self.weights.get(name) {
                Some(tensor) => tensor.load(),
                None => Err(Error::input(format!("there is no weight {name}"))),
            },
            _ => Err(Error::internal(format!("{} has no value", info.name))),
        }
    }

    fn node(&self, node: &Node, watch: &mut NodeObserver) -> Result<Vec<Tensor>> {
        interrupt::check().map_err(|error| at_node(error, self.graph, node))?;
        match &node.op {
            Op::Primitive(primitive) => self.primitive(primitive, node),
            Op::Call(name) => self.call(name, node),
            Op::Region(region) => self.region(region, node, watch),
        }
    }

    fn primitive(&self, primitive: &Primitive, node: &Node) -> Result<Vec<Tensor>> {
        let dtype = self.number_dtype(primitive, node);
        let operands: Vec<Tensor> = node
            .arguments
            .iter()
            .map(|argument| self.operand(argument, dtype))
            .collect::<Result<_>>()?;
        primitive.eval(&operands, &self.bindings)
    }

    /// The dtype for numbers among the operands: that of the other operands.
    fn number_dtype(&self, primitive: &Primitive, node: &Node) -> Option<DType> {
        let skip = usize::from(matches!(primitive, Primitive::Select(_)));
        let value = node
            .arguments
            .iter()
            .skip(skip)
            .flat_map(Argument::values)
            .next()?;
        Some(self.graph.ty(value).dtype)
    }

    fn operand(&self, argument: &Argument, dtype: Option<DType>) -> Result<Tensor> {
        match argument {
            Argument::Value(id) => self.value(*id),
            Argument::Number(number) => scalar_tensor(*number, dtype),
            Argument::Size(dim) => scalar_tensor(Scalar::Int(dim.eval(&self.bindings)?), dtype),
            _ => Err(Error::internal(
                "an operand of a primitive must be a value, number or size",
            )),
        }
    }

    /// Runs the body of a call, made for the current sizes.
    fn call(&self, name: &str, node: &Node) -> Result<Vec<Tensor>> {
        let mut operands = node.operands();
        operands.sort();
        operands.dedup();
        let tensors = operands.iter().map(|id| self.value(*id));
        let tensors: Vec<Tensor> = tensors.collect::<Result<_>>()?;
        let mut place =
            |id: ValueId| ValueId::from(operands.binary_search(&id).unwrap_or(usize::MAX));
        let arguments = node.arguments.iter();
        let arguments =
            arguments.map(|argument| argument.map(&mut place, &mut |size| size.clone()));
        let arguments: Vec<Argument> = arguments.collect();
        call(aten::operator(name)?, &arguments, &tensors, &self.bindings)
    }

    fn region(
        &self,
        region: &Region,
        node: &Node,
        watch: &mut NodeObserver,
    ) -> Result<Vec<Tensor>> {
        let arguments: Vec<Tensor> = node
            .arguments
            .iter()
            .map(|argument| self.operand(argument, None))
            .collect::<Result<_>>()?;
        let mut run = |part: BodyKind, body: &Graph, inputs: &[Tensor]| {
            let within = BodyFrame {
                outer: self.frame,
                graph: self.graph,
                region: node,
                kind: part,
                inputs,
            };
            let sizes = body_sizes(body, inputs.iter().map(Tensor::shape));
            run_bound(body, self.weights, sizes, inputs, Some(&within), watch)
        };
        match (region, arguments.as_slice()) {
            (Region::Call { body }, inputs) => run(BodyKind::Body, body, inputs),
            (Region::If { then, otherwise }, [condition, inputs @ ..]) => match truth(condition) {
                true => run(BodyKind::Then, then, inputs),
                false => run(BodyKind::Otherwise, otherwise, inputs),
            },
            (Region::Loop { body, carried }, [trips, condition, inputs @ ..]) => {
                let trips = trips.to_i64().first().copied().unwrap_or(0);
                let (state, constants) = inputs.split_at(*carried);
                let (mut state, mut again) = (state.to_vec(), truth(condition));
                for trip in 0..trips {
                    if !again {
                        break;
                    }
                    loop_limit::begin_round(trip, &node.place)?;
                    interrupt::check().map_err(|error| at_node(error, self.graph, node))?;
                    let count = Tensor::from_vec(Vec::new(), vec![trip])?;
                    let inputs: Vec<Tensor> = [&[count], state.as_slice(), constants].concat();
                    state = run(BodyKind::Iteration(trip), body, &inputs)?;
                    again = truth(&state.remove(0));
                }
                Ok(state)
            }
            _ => Err(Error::internal("a region has too few arguments")),
        }
    }

    fn release(&mut self, node: &Node) {
        for id in node.operands() {
            if let Some(left) = self.remaining_reads.get_mut(id.index()) {
                *left -= 1;
                if *left == 0 {
                    self.values.remove(&id);
                }
            }
        }
    }
}

/// Adds the name of a node's first result to an error's trail.
fn at_node(error: Error, graph: &Graph, node: &Node) -> Error {
    match node.results.first() {
        Some(result) => error.at(&graph.value(*result).name),
        None => error,
    }
}

fn truth(tensor: &Tensor) -> bool {
    tensor.to_i64().first().is_some_and(|value| *value != 0)
}

fn scalar_tensor(number: Scalar, dtype: Option<DType>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(match number {
        // A number without other operands keeps full precision until the operator determines its dtype.
        Scalar::Float(_) => DType::F64,
        other => other.dtype(),
    });
    match number.cast(dtype) {
        Scalar::Float(value) => Tensor::from_f64(dtype, [], vec![value]),
        other => Tensor::from_i64(dtype, [], vec![other.to_i64()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass;

    #[test]
    fn a_call_and_its_body_compute_the_same() {
        let builder = Builder::with_symbols("f", Bindings::from([("B".into(), 2)]), Vec::new());
        let x = builder.input("x", "f32[B, 3]".parse().unwrap());
        let gelu = aten::operator("aten.gelu").unwrap();
        let results = gelu
            .call(&builder, vec![x.into(), Argument::Str("tanh".into())])
            .unwrap();
        let id = results[0].id();
        let graph = builder.finish(&[id], Vec::new(), None).unwrap();
        assert_eq!(graph.ty(graph.outputs[0]).to_string(), "f32[B, 3]");
        let body = pass::decompose(&graph).unwrap();
        assert!(
            body.nodes
                .iter()
                .all(|node| matches!(node.op, Op::Primitive(_)))
        );
        let input =
            Tensor::from_vec([4, 3], (0..12).map(|i| i as f32 / 4.0 - 1.0).collect()).unwrap();
        let called = run(&graph, &Weights::new(), std::slice::from_ref(&input)).unwrap();
        let expanded = run(&body, &Weights::new(), &[input]).unwrap();
        assert_eq!(called, expanded);
        assert!((called[0].to_f64()[0] + 0.158_808).abs() < 1e-5);
    }
}
