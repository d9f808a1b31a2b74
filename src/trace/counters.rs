//! Counters of random numbers across conditions and loops.
//!
//! A tracer gives the calls of a body counters as if it ran once, where it stands. Here regions that draw take the counter that
//! they begin with and return the next one, so that every round of a loop, and what comes after it, draws numbers of its own:
//! those that the program draws when it simply runs.

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

/// The first counter of each seed that the calls of a graph draw from.
type Firsts = BTreeMap<u64, u64>;

/// Lets regions that draw hand on their counters. Graphs without such regions stay as they are.
///
/// All sequences begin anew in front of the values of these indices.
pub(in crate::trace) fn hand_on_counters(graph: Graph, begin: &[usize]) -> Result<Graph> {
    let has_regions = graph.nodes.iter().any(|node| !firsts(node).is_empty());
    if has_regions {
        Ok(Counters::default().count(&graph, begin)?.0)
    } else {
        Ok(graph)
    }
}

/// Where the sequences of a graph stand, by their seeds. A sequence that no region has drawn from yet stands where its calls say.
#[derive(Default)]
struct Counters(BTreeMap<u64, Counter>);

/// A sequence that counts at run time.
struct Counter {
    /// The value counted from.
    from: ValueId,
    /// Calls since then.
    calls: i64,
}

impl Counters {
    /// The graph with counters handed on, and the sequences at its end.
    fn count(mut self, graph: &Graph, begin: &[usize]) -> Result<(Graph, Counters)> {
        let mut begin = begin.iter().peekable();
        let counted = replay(graph, |replay, node| {
            let result = node.results.first().map(|id| id.index());
            while begin.next_if(|index| Some(**index) <= result).is_some() {
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

    fn call<'g>(
        &mut self,
        replay: &mut Replay<'_, 'g>,
        node: &Node,
        name: &str,
    ) -> Result<Vec<Value<'g>>> {
        let operator = aten::operator(name)?;
        let Some(drawn) = operator.drawn_at(&node.arguments) else {
            return replay.copy(node);
        };
        let Some(counter) = self.0.get_mut(&drawn.seed) else {
            return replay.copy(node);
        };
        let now = counter.now(replay);
        counter.calls += 1;
        let mut arguments = replay.arguments(node);
        operator.count_by(&mut arguments, now.into());
        operator.call(replay.builder, arguments)
    }

    /// A region that carries a counter for each sequence that it draws from.
    fn region<'g>(
        &mut self,
        replay: &mut Replay<'_, 'g>,
        mut node: Node,
    ) -> Result<Vec<Value<'g>>> {
        let firsts = firsts(&node);
        if firsts.is_empty() {
            return replay.copy(&node);
        }
        let mut arguments = replay.arguments(&node);
        let starts = firsts.iter().map(|(seed, first)| match self.0.get(seed) {
            Some(counter) => counter.now(replay).into(),
            None => Argument::Number(Scalar::Int(first.cast_signed())),
        });
        let starts: Vec<Argument> = starts.collect();
        // Behind the arguments that a body gets, or that a loop carries; a loop's body takes the number of the round too.
        let (place, input) = match &node.op {
            Op::Region(region) => match **region {
                Region::Loop { carried, .. } => (2 + carried, 1 + carried),
                Region::If { .. } => (arguments.len(), arguments.len() - 1),
                Region::Call { .. } => (arguments.len(), arguments.len()),
            },
            _ => return replay.copy(&node),
        };
        arguments.splice(place..place, starts);
        for body in node.bodies_mut() {
            *body = counted_body(body.clone(), &firsts, input)?;
        }
        if let Op::Region(region) = &mut node.op
            && let Region::Loop { carried, .. } = &mut **region
        {
            *carried += firsts.len();
        }
        let known = node.results.iter().map(|id| replay.graph.ty(*id).clone());
        let types = known.chain(firsts.iter().map(|_| scalar())).collect();
        let mut results = replay.builder.repeat(&node.op, arguments, types)?;
        let ends = results.split_off(node.results.len());
        for (seed, end) in firsts.into_keys().zip(ends) {
            let counter = Counter {
                from: end.id(),
                calls: 0,
            };
            self.0.insert(seed, counter);
        }
        Ok(results)
    }
}

impl Counter {
    /// The counter of the next call.
    fn now<'g>(&self, replay: &Replay<'_, 'g>) -> Value<'g> {
        let from = replay.builder.value(self.from);
        if self.calls == 0 {
            from
        } else {
            from + self.calls
        }
    }
}

/// A body that takes counters from this input on, and returns the next ones behind its results.
fn counted_body(mut body: Graph, firsts: &Firsts, input: usize) -> Result<Graph> {
    let mut counters = Counters::default();
    for (index, seed) in (input..).zip(firsts.keys()) {
        body.insert_input(index, "counter", scalar());
        let counter = Counter {
            // Inputs are the first values of the graph that is made.
            from: ValueId::from(index),
            calls: 0,
        };
        counters.0.insert(*seed, counter);
    }
    let (mut graph, counters) = counters.count(&body, &[])?;
    for seed in firsts.keys() {
        let Some(Counter { from, calls }) = counters.0.get(seed) else {
            return Err(Error::internal("a sequence of random numbers is lost"));
        };
        let arguments = vec![
            Argument::Value(*from),
            Argument::Number(Scalar::Int(*calls)),
        ];
        let function = BinaryFunction::Add;
        let next = graph.push_node("next_counter", Binary { function }, arguments, scalar());
        graph.outputs.push(next);
    }
    Ok(graph)
}

fn scalar() -> TensorType {
    TensorType::new::<Dim>(DType::I64, [])
}

/// What the bodies of a region draw.
fn firsts(node: &Node) -> Firsts {
    let mut firsts = Firsts::new();
    for body in node.bodies() {
        collect(body, &mut firsts);
    }
    firsts
}

fn collect(graph: &Graph, firsts: &mut Firsts) {
    for node in &graph.nodes {
        if let Some(Generator { seed, counter }) = drawn_at(node) {
            let first = firsts.entry(seed).or_insert(counter);
            *first = counter.min(*first);
        }
        node.bodies()
            .into_iter()
            .for_each(|body| collect(body, firsts));
    }
}

fn drawn_at(node: &Node) -> Option<Generator> {
    let Op::Call(name) = &node.op else {
        return None;
    };
    aten::operator(name).ok()?.drawn_at(&node.arguments)
}
