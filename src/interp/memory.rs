//! Memory that a run on the host takes, known before it runs: a run that would exceed its limit ends before it takes any.

use std::collections::HashMap;

use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt;
use crate::ir::{Argument, Graph, Node, Op, Region, ValueId};
use crate::op::HostType;
use crate::tensor::can_reserve;
use crate::units;

/// Checks that the values of a run take no more memory than [`interrupt::host_memory`], and that the system has as much.
/// Inputs and weights are not counted.
///
/// # Errors
/// [`ErrorKind::Memory`] at the node that takes most.
pub(super) fn check(graph: &Graph, bindings: &Bindings) -> Result<()> {
    let peak = Peak::of(graph, bindings);
    let limit = interrupt::host_memory();
    if limit < peak.bytes {
        return Err(peak.error(&format!(
            "the limit is {}",
            units::amount(limit as f64, "B")
        )));
    }
    match is_available(peak.bytes) {
        true => Ok(()),
        false => Err(peak.error("the system does not have as much")),
    }
}

/// True if the system reserves so many bytes. Those of small runs are not asked for.
fn is_available(bytes: u64) -> bool {
    const FEW: u64 = 1 << 20;
    bytes <= FEW || usize::try_from(bytes).is_ok_and(can_reserve)
}

/// The most memory that the values of a run take at a time.
#[derive(Default)]
struct Peak<'a> {
    bytes: u64,
    /// The node that runs then, and its graph.
    node: Option<(&'a Graph, &'a Node)>,
}

impl<'a> Peak<'a> {
    fn of(graph: &'a Graph, bindings: &Bindings) -> Peak<'a> {
        let mut values = LiveValues::new(graph, bindings);
        let mut peak = Peak::default();
        for node in &graph.nodes {
            let taken = values.run(node);
            if peak.bytes < taken.bytes {
                peak = taken;
            }
        }
        peak
    }

    fn error(&self, reason: &str) -> Error {
        let bytes = units::amount(self.bytes as f64, "B");
        let message = format!("values on the host would take {bytes}; {reason}");
        let error = Error::new(ErrorKind::Memory, message).help(
            "smaller inputs take less, and so does a GPU; if the machine has the memory, raise the limit: --host-memory BYTES, or \
             RunOptions::host_memory in the library",
        );
        match self.node {
            Some((graph, node)) => super::at_node(error, graph, node).at_place(&node.place),
            None => error,
        }
    }
}

/// Memory of the values that are still read, node by node, as [`super::Interpreter`] keeps them.
struct LiveValues<'a, 'b> {
    graph: &'a Graph,
    bindings: &'b Bindings,
    remaining_reads: Vec<usize>,
    /// Memory of each value that takes any.
    memory: HashMap<ValueId, usize>,
    /// Bytes of each memory, and how many values share it.
    blocks: Vec<Block>,
    bytes: u64,
}

struct Block {
    bytes: u64,
    values: usize,
}

impl<'a, 'b> LiveValues<'a, 'b> {
    fn new(graph: &'a Graph, bindings: &'b Bindings) -> LiveValues<'a, 'b> {
        LiveValues {
            graph,
            bindings,
            remaining_reads: graph.uses(),
            memory: HashMap::new(),
            blocks: Vec::new(),
            bytes: 0,
        }
    }

    /// The most memory that is taken while a node runs. Afterwards its results are live, and operands without another read
    /// are not.
    fn run(&mut self, node: &'a Node) -> Peak<'a> {
        let results = self.results(node);
        let inner = self.inner(node, &results);
        let before = self.bytes;
        self.add_results(node, &results);
        let added = self.bytes.saturating_sub(before);
        // The results of a call or branch are values of its body. Those of an iteration are inputs of the next one.
        let taken = match &node.op {
            Op::Region(region) if !matches!(**region, Region::Loop { .. }) => {
                inner.bytes.max(added)
            }
            _ => inner.bytes.saturating_add(added),
        };
        self.release(node);
        Peak {
            bytes: before.saturating_add(taken),
            node: inner.node.or(Some((self.graph, node))),
        }
    }

    /// Memory that a node takes besides its results, and the node within it that takes most.
    fn inner(&self, node: &'a Node, results: &[HostType]) -> Peak<'a> {
        match &node.op {
            Op::Primitive(primitive) => Peak {
                bytes: primitive.workspace(&self.arguments(node), results),
                node: None,
            },
            // The body of an operator is made when it runs, and is checked then.
            Op::Call(_) => Peak::default(),
            Op::Region(_) => {
                let bodies = node.bodies().into_iter();
                let peaks = bodies.map(|body| Peak::of(body, &self.body_sizes(node, body)));
                peaks.max_by_key(|peak| peak.bytes).unwrap_or_default()
            }
        }
    }

    /// Sizes of a body, whose inputs are the last arguments of its region.
    fn body_sizes(&self, node: &Node, body: &Graph) -> Bindings {
        let arguments = self.arguments(node);
        let skipped = arguments.len().saturating_sub(body.inputs.len());
        let shapes = arguments.iter().skip(skipped);
        super::body_sizes(body, shapes.map(|argument| argument.shape.as_slice()))
    }

    fn arguments(&self, node: &Node) -> Vec<HostType> {
        let arguments = node.arguments.iter();
        let types = arguments.map(|argument| match argument {
            Argument::Value(id) => self.host_type(*id),
            _ => HostType {
                dtype: DType::F64,
                shape: Vec::new(),
            },
        });
        types.collect()
    }

    fn results(&self, node: &Node) -> Vec<HostType> {
        let results = node.results.iter();
        results.map(|result| self.host_type(*result)).collect()
    }

    /// The type of a value. A size that only the run knows counts as 0.
    fn host_type(&self, id: ValueId) -> HostType {
        let ty = self.graph.ty(id);
        let size = |dim: &Dim| dim.eval(self.bindings).ok()?.try_into().ok();
        let sizes = ty.shape.iter().map(|dim| size(dim).unwrap_or(0));
        HostType {
            dtype: ty.dtype,
            shape: sizes.collect(),
        }
    }

    fn add_results(&mut self, node: &Node, results: &[HostType]) {
        for (id, result) in node.results.iter().zip(results) {
            match shared_operand(node) {
                Some(operand) => self.share(operand, *id),
                None => self.add(*id, result.bytes()),
            }
        }
    }

    fn add(&mut self, id: ValueId, bytes: u64) {
        self.memory.insert(id, self.blocks.len());
        self.blocks.push(Block { bytes, values: 1 });
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Makes a value share the memory of another, which has none if it is an input or a weight.
    fn share(&mut self, from: ValueId, to: ValueId) {
        if let Some(index) = self.memory.get(&from).copied()
            && let Some(block) = self.blocks.get_mut(index)
        {
            block.values += 1;
            self.memory.insert(to, index);
        }
    }

    /// Drops operands that no later node reads.
    fn release(&mut self, node: &Node) {
        for id in node.operands() {
            if let Some(left) = self.remaining_reads.get_mut(id.index()) {
                *left -= 1;
                if *left == 0 {
                    self.drop_value(id);
                }
            }
        }
    }

    fn drop_value(&mut self, id: ValueId) {
        if let Some(index) = self.memory.remove(&id)
            && let Some(block) = self.blocks.get_mut(index)
        {
            block.values -= 1;
            if block.values == 0 {
                self.bytes = self.bytes.saturating_sub(block.bytes);
            }
        }
    }
}

/// The operand whose memory the result of a node is.
fn shared_operand(node: &Node) -> Option<ValueId> {
    match (&node.op, node.arguments.first()?) {
        (Op::Primitive(primitive), Argument::Value(id)) if primitive.shares_operand() => Some(*id),
        _ => None,
    }
}
