//! Names shared by the graphs of one module.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::module::ModuleAddress;
use super::storage::TracedStorage;

/// Names of weights and paths of modules, shared by the graphs of one module.
#[derive(Clone, Default)]
pub(super) struct TraceNames {
    /// Name of each weight by the address of its storage. The storage is kept alive, so its address stays unique.
    pub weights: HashMap<usize, (String, Arc<TracedStorage>)>,
    /// Paths of modules by address.
    pub modules: HashMap<ModuleAddress, String>,
    /// Names of the weights that are parameters.
    pub parameters: BTreeSet<String>,
    /// Names in use.
    pub used: BTreeSet<String>,
}

impl TraceNames {
    /// Returns a name that is not in use: `wanted`, or `wanted` with a number.
    pub fn unique(&self, wanted: &str) -> String {
        let numbered = (1..).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.to_string()).chain(numbered);
        names
            .find(|name| !self.used.contains(name))
            .unwrap_or_default()
    }

    /// Names a storage unless it has a name. A parameter that two modules share is stored once.
    pub fn insert(&mut self, name: String, storage: &Arc<TracedStorage>) {
        self.used.insert(name.clone());
        let slot = self.weights.entry(storage.address());
        slot.or_insert_with(|| (name, storage.clone()));
    }

    /// Names a parameter unless it has a name.
    pub fn insert_parameter(&mut self, name: String, storage: &Arc<TracedStorage>) {
        self.insert(name, storage);
        let name = self.weights.get(&storage.address());
        let name = name.map(|(name, _)| name.clone());
        self.parameters.extend(name);
    }
}
