//! The structure of a user's arguments, result and states in terms of a graph's inputs and outputs.

use std::collections::BTreeMap;
use std::fmt;

use super::graph::{Graph, ValueId};
use super::tree::{NamedTree, TreeSpec};
use crate::shape::TensorType;

/// The name and the type of an input or an output. `Display` is `input_ids: i64[B, T]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorSpec {
    /// The parameter's name or `output`. Within tuples, lists and dictionaries, a dot and the index or key follow.
    pub name: String,
    /// Element type and shape; symbols stand for sizes that may change from call to call.
    pub ty: TensorType,
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

impl Graph {
    /// True if each input is an argument with its name.
    pub fn has_default_inputs(&self) -> bool {
        self.reads.is_empty()
            && (self.input_trees.is_empty() || self.input_trees == self.default_inputs())
    }

    /// Default arguments: one for each input, with its name.
    pub fn default_inputs(&self) -> Vec<NamedTree> {
        let input = |(index, id): (usize, &ValueId)| {
            let name = self.values.get(id.index())?.name.clone();
            let tree = TreeSpec::Tensor(index);
            Some(NamedTree { name, tree })
        };
        self.inputs.iter().enumerate().filter_map(input).collect()
    }

    /// True if the result is the output or the tuple of the outputs.
    pub fn has_default_outputs(&self) -> bool {
        let plain = self.default_outputs();
        let is_plain = |tree: &TreeSpec| *tree == plain;
        self.writes.is_empty() && self.output_tree.as_ref().is_none_or(is_plain)
    }

    /// Default result: the output, or the tuple of the outputs.
    pub fn default_outputs(&self) -> TreeSpec {
        match self.outputs.len() {
            1 => TreeSpec::Tensor(0),
            count => TreeSpec::Tuple((0..count).map(TreeSpec::Tensor).collect()),
        }
    }

    /// Completes the signature of a hand-written entry graph by the default arguments and the default result. Graphs with
    /// states specify both.
    pub(super) fn complete_signature(&mut self) {
        if self.input_trees.is_empty() && self.reads.is_empty() {
            self.input_trees = self.default_inputs();
        }
        if self.output_tree.is_none() && self.writes.is_empty() {
            self.output_tree = Some(self.default_outputs());
        }
    }

    /// The inputs that form the user's arguments, in order.
    pub fn input_specs(&self) -> Vec<TensorSpec> {
        let plain;
        let arguments = if self.input_trees.is_empty() {
            plain = self.default_inputs();
            &plain
        } else {
            &self.input_trees
        };
        let leaves = arguments
            .iter()
            .flat_map(|argument| argument.tree.leaves(&argument.name));
        self.specs(leaves, &self.inputs)
    }

    /// The outputs that form the user's result, in order. Keys of a dictionary and fields at the top level have no prefix.
    pub fn output_specs(&self) -> Vec<TensorSpec> {
        self.specs(self.output_leaves(), &self.outputs)
    }

    /// Names of the outputs that form the user's result, each with its index among the outputs.
    pub(crate) fn output_leaves(&self) -> Vec<(String, usize)> {
        let result = self
            .output_tree
            .clone()
            .unwrap_or_else(|| self.default_outputs());
        match &result {
            TreeSpec::Dict(fields) | TreeSpec::NamedTuple(_, fields) => fields
                .iter()
                .flat_map(|(key, item)| item.leaves(key))
                .collect(),
            result => result.leaves("output"),
        }
    }

    /// Index and name of the outputs that pass gradients on: tensors of floats, in order. A Python number has no gradient.
    pub(crate) fn differentiable_outputs(&self) -> BTreeMap<usize, String> {
        let numbers = self.output_tree.as_ref().map(TreeSpec::numbers);
        let numbers = numbers.unwrap_or_default();
        let leaves = self.output_leaves().into_iter().rev();
        let outputs = leaves.map(|(name, index)| (index, name));
        let mut outputs: BTreeMap<usize, String> = outputs.collect();
        outputs.retain(|index, _| {
            let output = self.outputs.get(*index);
            let is_float = output.is_some_and(|id| self.ty(*id).dtype.is_float());
            is_float && !numbers.contains(index)
        });
        outputs
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

    /// True if runs depend on the state of earlier ones, or change it.
    pub fn has_states(&self) -> bool {
        !(self.reads.is_empty() && self.writes.is_empty())
    }

    /// Number of inputs that form the user's arguments; those of states follow.
    pub fn argument_count(&self) -> usize {
        self.inputs.len() - tensor_count(&self.reads)
    }

    /// Number of outputs that form the user's result; those of states follow.
    pub fn result_count(&self) -> usize {
        self.outputs.len() - tensor_count(&self.writes)
    }
}

fn tensor_count(states: &[NamedTree]) -> usize {
    let tensors = states.iter().map(|state| state.tree.tensors().len());
    tensors.sum()
}
