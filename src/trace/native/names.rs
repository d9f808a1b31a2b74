//! Names that the graphs of one module have in common.

use std::collections::{BTreeSet, HashMap};

use super::module::Address;
use super::tensor::TracedTensor;

/// What the graphs of one module share: names of weights and paths of modules.
#[derive(Clone, Default)]
pub(super) struct Names {
    /// Weights by the address of their tensor, which is kept alive.
    pub weights: HashMap<usize, (String, TracedTensor)>,
    /// Paths by the address of the module.
    pub modules: HashMap<Address, String>,
    /// Names of weights that are taken.
    pub taken: BTreeSet<String>,
}

impl Names {
    /// A name of a weight that is not taken.
    pub fn unique(&self, wanted: &str) -> String {
        let numbered = (1..).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.to_string()).chain(numbered);
        names
            .find(|name| !self.taken.contains(name))
            .unwrap_or_default()
    }

    /// Names a tensor, unless it has a name: a parameter that two modules share is stored once.
    pub fn insert(&mut self, name: String, tensor: &TracedTensor) {
        self.taken.insert(name.clone());
        let slot = self.weights.entry(tensor.address());
        slot.or_insert_with(|| (name, tensor.clone()));
    }
}
