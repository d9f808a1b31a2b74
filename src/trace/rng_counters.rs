//! Counters of random numbers across conditions and loops.
//!
//! Random numbers follow from a seed and a counter: each call that draws numbers takes the next counter of its seed
//! ([`Generator`]). A tracer gives the calls in a region body counters as if the body ran once, in place. This pass
//! makes regions that draw random numbers take the current counter as an input and return the next one. Every iteration
//! of a loop, and the code after the loop, then draws different numbers: the numbers that the program draws when it
//! runs without tracing.

use std::collections::BTreeMap;

use crate::aten::{self, Generator};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::rewrite::{Replay, replay};
use crate::ir::{Argument, Graph, Node, Op, Region, Value, ValueId};
use crate::op::{Binary, BinaryFunction};
use crate::scalar::Scalar;
use crate::shape::TensorType;

/// The smallest counter of each seed among the calls of a graph.
type FirstCounters = BTreeMap<u64, u64>;

/// Makes regions that draw random numbers take and return counters. Graphs without such regions stay as they are.
///
/// `restarts` holds, for each call of `manual_seed` in order, the number of the graph's values at that call. The nodes
/// that define values from such an index on keep the tracer's counters until the next region that draws random numbers.
pub(in crate::trace) fn carry_rng_counters(graph: Graph, restarts: &[usize]) -> Result<Graph> {
    let has_regions = graph
        .nodes
        .iter()
        .any(|node| !first_counters(node).is_empty());
    if has_regions {
        Ok(RngCounters::default().rewrite(&graph, restarts)?.0)
    } else {
        Ok(graph)
    }
}

/// The current counters of a graph, by seed. A seed that no region has drawn from yet is absent: its calls keep the counters
/// that the tracer gave them.
#[derive(Default)]
struct RngCounters(BTreeMap<u64, RngCounter>);

/// A counter that is known only when the graph runs.
struct RngCounter {
    /// The value from which counting starts: an input of a body, or a result of a region.
    base: ValueId,
    /// Number of random calls since `base` was defined.
    calls: i64,
}

impl RngCounters {
    /// Rewrites a graph. Returns it with the counters at its end.
    fn rewrite(mut self, graph: &Graph, restarts: &[usize]) -> Result<(Graph, RngCounters)> {
        let mut pending_restarts = restarts.iter().peekable();
        let counted = replay(graph, |replay, node| {
            let first_result = node.results.first().map(|id| id.index());
            while pending_restarts
                .next_if(|index| Some(**index) <= first_result)
                .is_some()
            {
                self.0.clear();
            }
            match &node.op {
                Op::Call(name) => self.call(replay, node, name),
                Op::Region(_) => self.region(replay, node.clone()),
                Op::Primitive(_) => replay.copy(node),
            }
        });
        Ok((counted?, self))
    }

    /// Copies an operator call. A call that draws random numbers takes the current counter of its seed.
    fn call<'g>(
        &mut self,
        replay: &mut Replay<'_, 'g>,
        node: &Node,
        name: &str,
    ) -> Result<Vec<Value<'g>>> {
        let operator = aten::operator(name)?;
        let Some(generator) = operator.random_position(&node.arguments) else {
            return replay.copy(node);
        };
        let Some(counter) = self.0.get_mut(&generator.seed) else {
            return replay.copy(node);
        };
        let current = counter.current(replay);
        counter.calls += 1;
        let mut arguments = replay.arguments(node);
        operator.set_counter(&mut arguments, current.into());
        operator.call(replay.builder, arguments)
    }

    /// Copies a region. The copy takes and returns a counter for each seed that the region draws from.
    fn region<'g>(
        &mut self,
        replay: &mut Replay<'_, 'g>,
        mut node: Node,
    ) -> Result<Vec<Value<'g>>> {
        let first_counters = first_counters(&node);
        if first_counters.is_empty() {
            return replay.copy(&node);
        }
        let mut arguments = replay.arguments(&node);
        let initial_counters = first_counters
            .iter()
            .map(|(seed, first)| match self.0.get(seed) {
                Some(counter) => counter.current(replay).into(),
                None => Argument::Number(Scalar::Int(first.cast_signed())),
            });
        let initial_counters: Vec<Argument> = initial_counters.collect();
        // The counters come after the arguments of the bodies, or after the values that a loop carries. The body of a loop
        // also takes the iteration number.
        let (argument_index, input_index) = match &node.op {
            Op::Region(region) => match **region {
                Region::Loop { carried, .. } => (2 + carried, 1 + carried),
                Region::If { .. } => (arguments.len(), arguments.len() - 1),
                Region::Call { .. } => (arguments.len(), arguments.len()),
            },
            _ => return replay.copy(&node),
        };
        arguments.splice(argument_index..argument_index, initial_counters);
        for body in node.bodies_mut() {
            *body = body_with_counters(body.clone(), &first_counters, input_index)?;
        }
        if let Op::Region(region) = &mut node.op
            && let Region::Loop { carried, .. } = &mut **region
        {
            *carried += first_counters.len();
        }
        let result_types = node.results.iter().map(|id| replay.graph.ty(*id).clone());
        let types = result_types
            .chain(first_counters.iter().map(|_| counter_type()))
            .collect();
        let mut results = replay.builder.add_operation(&node.op, arguments, types)?;
        let final_counters = results.split_off(node.results.len());
        for (seed, final_counter) in first_counters.into_keys().zip(final_counters) {
            let counter = RngCounter {
                base: final_counter.id(),
                calls: 0,
            };
            self.0.insert(seed, counter);
        }
        Ok(results)
    }
}

impl RngCounter {
    /// The counter of the next call.
    fn current<'g>(&self, replay: &Replay<'_, 'g>) -> Value<'g> {
        let base = replay.builder.value(self.base);
        if self.calls == 0 {
            base
        } else {
            base + self.calls
        }
    }
}

/// Returns a body that takes a counter for each seed, from input `first_input` on, and returns the next counters after
/// its results.
fn body_with_counters(
    mut body: Graph,
    first_counters: &FirstCounters,
    first_input: usize,
) -> Result<Graph> {
    let mut counters = RngCounters::default();
    for (index, seed) in (first_input..).zip(first_counters.keys()) {
        body.insert_input(index, "counter", counter_type());
        let counter = RngCounter {
            // Inputs are the first values of the new graph.
            base: ValueId::from(index),
            calls: 0,
        };
        counters.0.insert(*seed, counter);
    }
    let (mut graph, counters) = counters.rewrite(&body, &[])?;
    for seed in first_counters.keys() {
        let Some(RngCounter { base, calls }) = counters.0.get(seed) else {
            return Err(Error::internal(
                "a region returns no counter of random numbers",
            ));
        };
        let arguments = vec![
            Argument::Value(*base),
            Argument::Number(Scalar::Int(*calls)),
        ];
        let function = BinaryFunction::Add;
        let next = graph.push_node(
            "next_counter",
            Binary { function },
            arguments,
            counter_type(),
        );
        graph.outputs.push(next);
    }
    Ok(graph)
}

/// The type of a counter.
fn counter_type() -> TensorType {
    TensorType::new::<Dim>(DType::I64, [])
}

/// The first counters that the bodies of a region draw from, by seed.
fn first_counters(node: &Node) -> FirstCounters {
    let mut first_counters = FirstCounters::new();
    for body in node.bodies() {
        collect_first_counters(body, &mut first_counters);
    }
    first_counters
}

/// Adds the smallest counters of a graph and its nested graphs.
fn collect_first_counters(graph: &Graph, first_counters: &mut FirstCounters) {
    for node in &graph.nodes {
        if let Some(Generator { seed, counter }) = generator_of(node) {
            let first = first_counters.entry(seed).or_insert(counter);
            *first = counter.min(*first);
        }
        node.bodies()
            .into_iter()
            .for_each(|body| collect_first_counters(body, first_counters));
    }
}

/// Seed and counter of a call that draws random numbers; none for other nodes.
fn generator_of(node: &Node) -> Option<Generator> {
    let Op::Call(name) = &node.op else {
        return None;
    };
    aten::operator(name).ok()?.random_position(&node.arguments)
}
