//! How a user's arguments and result, and states, are made of a graph's inputs and outputs.

use std::fmt;

use super::graph::{Graph, ValueId};
use super::tree::{Input, Tree};
use crate::shape::TensorType;

/// The name and the type of an input or an output. `Display` is `input_ids: i64[B, T]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorSpec {
    /// A parameter's name or `output`; within tuples, lists and dictionaries the index or the key follows behind a dot.
    pub name: String,
    /// Element type and shape; sizes that may change from call to call are symbols.
    pub ty: TensorType,
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

impl Graph {
    /// True if each input is an argument of its own, of its name.
    pub fn has_plain_inputs(&self) -> bool {
        self.reads.is_empty()
            && (self.input_trees.is_empty() || self.input_trees == self.plain_inputs())
    }

    /// Arguments that are the inputs, by their names.
    pub fn plain_inputs(&self) -> Vec<Input> {
        let input = |(index, id): (usize, &ValueId)| {
            let name = self.values.get(id.index())?.name.clone();
            let tree = Tree::Tensor(index);
            Some(Input { name, tree })
        };
        self.inputs.iter().enumerate().filter_map(input).collect()
    }

    /// True if the result is the output, or the tuple of the outputs.
    pub fn has_plain_outputs(&self) -> bool {
        let plain = self.plain_outputs();
        let is_plain = |tree: &Tree| *tree == plain;
        self.writes.is_empty() && self.output_tree.as_ref().is_none_or(is_plain)
    }

    /// The result that is the output, or the tuple of the outputs.
    pub fn plain_outputs(&self) -> Tree {
        match self.outputs.len() {
            1 => Tree::Tensor(0),
            count => Tree::Tuple((0..count).map(Tree::Tensor).collect()),
        }
    }

    /// Completes an entry graph that was written by hand: without arguments the inputs are the arguments, without a result the
    /// outputs are. Graphs with states say both.
    pub(super) fn complete_signature(&mut self) {
        if self.input_trees.is_empty() && self.reads.is_empty() {
            self.input_trees = self.plain_inputs();
        }
        if self.output_tree.is_none() && self.writes.is_empty() {
            self.output_tree = Some(self.plain_outputs());
        }
    }

    /// The inputs that make up the arguments, in order.
    pub fn input_specs(&self) -> Vec<TensorSpec> {
        let plain;
        let arguments = if self.input_trees.is_empty() {
            plain = self.plain_inputs();
            &plain
        } else {
            &self.input_trees
        };
        let leaves = arguments
            .iter()
            .flat_map(|argument| argument.tree.leaves(&argument.name));
        self.specs(leaves, &self.inputs)
    }

    /// The outputs that make up the result, in order. A key of a dictionary or a field that is the result has no prefix.
    pub fn output_specs(&self) -> Vec<TensorSpec> {
        let result = self
            .output_tree
            .clone()
            .unwrap_or_else(|| self.plain_outputs());
        let leaves = match &result {
            Tree::Dict(fields) | Tree::NamedTuple(_, fields) => fields
                .iter()
                .flat_map(|(key, item)| item.leaves(key))
                .collect(),
            result => result.leaves("output"),
        };
        self.specs(leaves, &self.outputs)
    }

    fn specs(
        &self,
        leaves: impl IntoIterator<Item = (String, usize)>,
        values: &[ValueId],
    ) -> Vec<TensorSpec> {
        let spec = |(name, index): (String, usize)| {
            let ty = self.ty(*values.get(index)?).clone();
            Some(TensorSpec { name, ty })
        };
        leaves.into_iter().filter_map(spec).collect()
    }

    /// True if runs depend on earlier ones, or later ones on them.
    pub fn has_states(&self) -> bool {
        !(self.reads.is_empty() && self.writes.is_empty())
    }

    /// How many inputs make up the user's arguments; those of states follow.
    pub fn argument_count(&self) -> usize {
        self.inputs.len() - tensors_of(&self.reads)
    }

    /// How many outputs make up the user's result; those of states follow.
    pub fn result_count(&self) -> usize {
        self.outputs.len() - tensors_of(&self.writes)
    }
}

fn tensors_of(states: &[Input]) -> usize {
    let tensors = states.iter().map(|state| state.tree.tensors().len());
    tensors.sum()
}
