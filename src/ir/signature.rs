//! How a user's arguments and result, and states, are made of a graph's inputs and outputs.

use super::graph::{Graph, ValueId};
use super::tree::{Input, Tree};

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
