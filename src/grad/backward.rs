//! The walk from the last node to the first.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::recompute::Recomputation;
use super::{GradientOptions, Loss, rules};
use crate::aten::{self, CallGradient};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, Graph, Node, Op, Value, ValueId};
use crate::op::Primitive;

/// Gradients of values of a graph under construction.
pub(super) struct Backward<'g> {
    builder: &'g Builder,
    /// Values whose gradients are wanted.
    wanted: Vec<Value<'g>>,
    /// The forward nodes.
    nodes: Vec<Node>,
    /// Float values that depend on a wanted one.
    active: HashSet<ValueId>,
    /// Results of nodes in bodies of operators that select between values.
    selecting: HashSet<ValueId>,
    /// Sums of the gradients so far.
    gradients: HashMap<ValueId, Value<'g>>,
    /// The modules whose values are computed again.
    recomputation: Recomputation<'g>,
    /// Operators without a derivative.
    faults: Vec<Error>,
}

/// A node, and the gradients of its results.
pub(super) struct NodeGradient<'a, 'g> {
    pub(super) builder: &'g Builder,
    pub(super) node: &'a Node,
    active: &'a HashSet<ValueId>,
    /// True if the node is in the body of an operator that selects between values. Where a value is not selected, its
    /// gradient is zero, whatever the derivative is.
    pub(super) is_selected_from: bool,
    /// Gradients of the results; `None` where the loss does not depend on a result.
    results: Vec<Option<Value<'g>>>,
}

/// Gradients of a node's arguments, in order; `None` for arguments without one. May be shorter than the arguments.
pub(super) type ArgumentGradients<'g> = Vec<Option<Value<'g>>>;

impl<'g> Backward<'g> {
    /// Prepares the walk over all nodes of a builder. `expansions` are the indices of values in bodies of operators.
    pub(super) fn of(
        builder: &'g Builder,
        wanted: &[Value<'g>],
        expansions: &[Range<usize>],
        options: &GradientOptions,
    ) -> Result<Backward<'g>> {
        let nodes = builder.nodes();
        let mut active: HashSet<ValueId> = wanted.iter().map(|value| value.id()).collect();
        for node in &nodes {
            if node.operands().iter().any(|id| active.contains(id)) {
                let results = node.results.iter().copied();
                active.extend(results.filter(|id| builder.ty(*id).dtype.is_float()));
            }
        }
        Ok(Backward {
            recomputation: Recomputation::of(builder, &nodes, &options.recompute)?,
            builder,
            wanted: wanted.to_vec(),
            selecting: selecting(&nodes, expansions),
            nodes,
            active,
            gradients: HashMap::new(),
            faults: Vec::new(),
        })
    }

    /// Adds the nodes that compute the gradients of a loss of these outputs, and returns them.
    pub(super) fn run(
        mut self,
        loss: &Loss,
        graph: &Graph,
        outputs: &[Value<'g>],
    ) -> Result<Vec<Value<'g>>> {
        for (output, gradient) in loss.gradients(graph, outputs)? {
            self.add(output.id(), gradient);
        }
        let nodes = std::mem::take(&mut self.nodes);
        for (index, node) in nodes.iter().enumerate().rev() {
            self.visit(&nodes, index, node)?;
        }
        self.builder.check()?;
        self.faults.reverse();
        if let Some(error) = Error::all(self.faults) {
            return Err(error);
        }
        let gradients = self.gradients;
        let gradient = |value: &Value<'g>| {
            let zeros = || self.builder.full(value.dtype(), value.shape(), 0.0);
            gradients.get(&value.id()).copied().unwrap_or_else(zeros)
        };
        Ok(self.wanted.iter().map(gradient).collect())
    }

    /// Adds to the gradient of a value that depends on a wanted one.
    fn add(&mut self, id: ValueId, gradient: Value<'g>) {
        let id = self.recomputation.original(id);
        if self.active.contains(&id) {
            let sum = self.gradients.entry(id);
            sum.and_modify(|sum| *sum = *sum + gradient)
                .or_insert(gradient);
        }
    }

    /// Adds the gradients of the operands of `node`, the one at an index of the forward nodes.
    fn visit(&mut self, nodes: &[Node], index: usize, node: &Node) -> Result<()> {
        let results = node.results.iter();
        let results: Vec<_> = results.map(|id| self.gradients.get(id).copied()).collect();
        let is_active = |id: &ValueId| self.active.contains(id);
        if results.iter().all(Option::is_none) || !node.operands().iter().any(is_active) {
            return Ok(());
        }
        let copy = self
            .recomputation
            .copy(nodes, index, node, &mut self.active)?;
        self.builder.set_place(&node.place);
        let rule = NodeGradient {
            builder: self.builder,
            node: copy.as_ref().unwrap_or(node),
            active: &self.active,
            is_selected_from: node.results.iter().any(|id| self.selecting.contains(id)),
            results,
        };
        let gradients = rule
            .arguments()
            .and_then(|gradients| self.builder.check().map(|()| gradients));
        match gradients {
            Ok(gradients) => {
                for (argument, gradient) in gradients {
                    self.add(argument, gradient);
                }
            }
            Err(error) => {
                let error = error.at(node.op.name()).at_place(&node.place);
                self.faults.push(error);
            }
        }
        Ok(())
    }
}

/// The results of nodes in the expansions that use some elements of a value and not others.
fn selecting(nodes: &[Node], expansions: &[Range<usize>]) -> HashSet<ValueId> {
    let selects = |node: &Node| match &node.op {
        Op::Primitive(primitive) => matches!(
            primitive,
            Primitive::Select(_) | Primitive::Gather(_) | Primitive::Slice(_)
        ),
        _ => false,
    };
    let mut found = HashSet::new();
    let mut nodes = nodes.iter().peekable();
    for expansion in expansions {
        let is_before = |node: &&Node| first_result(node) < expansion.start;
        while nodes.next_if(is_before).is_some() {}
        let is_inside = |node: &&Node| first_result(node) < expansion.end;
        let mut body = Vec::new();
        while let Some(node) = nodes.next_if(is_inside) {
            body.push(node);
        }
        if body.iter().any(|node| selects(node)) {
            found.extend(body.iter().flat_map(|node| node.results.iter().copied()));
        }
    }
    found
}

fn first_result(node: &Node) -> usize {
    node.results.first().map_or(0, |id| id.index())
}

impl<'g> NodeGradient<'_, 'g> {
    /// Gradients of the values among the arguments.
    fn arguments(&self) -> Result<Vec<(ValueId, Value<'g>)>> {
        if let Op::Call(name) = &self.node.op {
            return self.call(name);
        }
        let gradients = match &self.node.op {
            Op::Primitive(primitive) => rules::of_primitive(primitive, self)?,
            Op::Region(region) => rules::of_region(region, self)?,
            Op::Call(_) => Vec::new(),
        };
        let pairs = self.node.arguments.iter().zip(gradients);
        Ok(pairs
            .filter_map(|(argument, gradient)| match argument {
                Argument::Value(id) => Some((*id, gradient?)),
                _ => None,
            })
            .collect())
    }

    /// Gradients of a call by its row's own rule.
    fn call(&self, name: &str) -> Result<Vec<(ValueId, Value<'g>)>> {
        let operator = aten::operator(name)?;
        let Some(rule) = operator.row.gradient else {
            return Err(Error::internal("a call without a rule was not replaced"));
        };
        let results = self.node.results.iter();
        let results = results.map(|id| self.builder.value(*id)).collect();
        let call = CallGradient::new(
            self.builder,
            operator,
            &self.node.arguments,
            results,
            self.results.clone(),
        );
        let named = rule(&call)?;
        let with_id = |(name, gradient): (&str, Value<'g>)| match call.args().get(name) {
            Argument::Value(id) => Some((id, gradient)),
            _ => None,
        };
        Ok(named.into_iter().filter_map(with_id).collect())
    }

    /// True if the gradient of an argument is needed.
    pub(super) fn wants(&self, argument: usize) -> bool {
        let argument = self.node.arguments.get(argument);
        matches!(argument, Some(Argument::Value(id)) if self.active.contains(id))
    }

    /// An argument that is a value.
    pub(super) fn operand(&self, argument: usize) -> Result<Value<'g>> {
        match self.node.arguments.get(argument) {
            Some(Argument::Value(id)) => Ok(self.builder.value(*id)),
            _ => Err(Error::internal(format!(
                "argument {argument} of {} is no value",
                self.node.op.name()
            ))),
        }
    }

    /// An argument of a region as a value; numbers and sizes become scalars of a dtype.
    pub(super) fn input(&self, argument: usize, dtype: DType) -> Result<Value<'g>> {
        match self.node.arguments.get(argument) {
            Some(Argument::Number(number)) => Ok(self.builder.full(dtype, [], *number)),
            Some(Argument::Size(size)) => Ok(self.builder.full(dtype, [], size)),
            _ => self.operand(argument),
        }
    }

    /// A result of the node.
    pub(super) fn result(&self, index: usize) -> Result<Value<'g>> {
        let id = self.node.results.get(index).copied();
        let id = id.ok_or_else(|| Error::internal(format!("there is no result {index}")))?;
        Ok(self.builder.value(id))
    }

    /// The gradient of a result; zeros where the loss does not depend on it.
    pub(super) fn gradient(&self, index: usize) -> Result<Value<'g>> {
        let known = self.results.get(index).copied().flatten();
        let result = self.result(index)?;
        Ok(known.unwrap_or_else(|| self.builder.full(result.dtype(), result.shape(), 0.0)))
    }
}

impl Loss {
    /// The outputs that the loss depends on, each with its gradient.
    fn gradients<'g>(
        &self,
        graph: &Graph,
        outputs: &[Value<'g>],
    ) -> Result<Vec<(Value<'g>, Value<'g>)>> {
        let indices = graph.differentiable_outputs();
        let floats = indices.keys().filter_map(|index| outputs.get(*index));
        let ones = |output: Value<'g>| output.builder().full(output.dtype(), output.shape(), 1.0);
        Ok(match self {
            Loss::Output(name) => {
                let output = loss_output(graph, name, outputs)?;
                vec![(output, ones(output))]
            }
            Loss::Sum => floats.map(|output| (*output, ones(*output))).collect(),
            Loss::Mean => floats
                .map(|output| (*output, ones(*output) / output.numel()))
                .collect(),
            Loss::GradOutputs => {
                let names = indices.keys().filter_map(|index| graph.outputs.get(*index));
                let names = names.map(|id| &graph.value(*id).name);
                floats
                    .zip(names)
                    .map(|(output, name)| {
                        let builder = output.builder();
                        (*output, builder.input(&format!("grad_{name}"), output.ty()))
                    })
                    .collect()
            }
        })
    }
}

/// The output with a name, which is one float.
fn loss_output<'g>(graph: &Graph, name: &str, outputs: &[Value<'g>]) -> Result<Value<'g>> {
    let leaves = graph.output_leaves();
    let found = leaves.iter().find(|(known, _)| known == name);
    let Some(output) = found.and_then(|(_, index)| outputs.get(*index)) else {
        let names: Vec<&str> = leaves.iter().map(|(name, _)| name.as_str()).collect();
        let message = format!("there is no output {name}; there is {}", names.join(", "));
        return Err(Error::usage(message));
    };
    let ty = output.ty();
    let is_number = graph.output_tree.as_ref().is_some_and(|tree| {
        let numbers = tree.numbers();
        leaves
            .iter()
            .any(|(known, index)| known == name && numbers.contains(index))
    });
    match ty.dtype.is_float() && ty.numel().is(1) {
        _ if is_number => Err(Error::usage(format!(
            "the loss {name} is a Python number, which has no gradient"
        ))
        .help("return the tensor in place of its item()")),
        true => Ok(*output),
        false => Err(
            Error::usage(format!("the loss {name}: {ty} is not one float"))
                .help("take its sum or mean"),
        ),
    }
}
