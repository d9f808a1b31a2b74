//! Extraction of constant subgraphs from a graph under construction.

use std::collections::{BTreeSet, HashMap};

use crate::dim::Dim;

use super::builder::Builder;
use super::graph::{Graph, ValueId};

/// Largest number of values of a constant subgraph; a larger one is computed on the device.
const MAX_VALUES: usize = 256;

impl Builder {
    /// A graph without inputs that computes a value from weights and sizes; `None` if the value depends on inputs or
    /// regions.
    pub fn constant_subgraph(&self, id: ValueId) -> Option<Graph> {
        let symbols = self.symbols();
        let part = Builder::with_symbols("constant", symbols.hints(), symbols.guards());
        let mut known: HashMap<ValueId, ValueId> = HashMap::new();
        // Operands of a value have smaller ids, so they come first in order of ids.
        for id in self.constant_dependencies(id)? {
            if known.contains_key(&id) {
                continue;
            }
            let Some(node) = self.node_of(id) else {
                let weight = part.weight(&self.weight_name(id)?, self.ty(id));
                known.insert(id, weight.id());
                continue;
            };
            let mut value = |id: ValueId| known.get(&id).copied().unwrap_or(id);
            let mut size = |dim: &Dim| self.symbols().resolve(dim);
            let arguments = node.arguments.iter();
            let arguments = arguments.map(|argument| argument.map(&mut value, &mut size));
            let arguments = arguments.collect();
            let resolved = |id: &ValueId| {
                let mut ty = self.ty(*id);
                ty.shape
                    .iter_mut()
                    .for_each(|dim| *dim = self.symbols().resolve(dim));
                ty
            };
            let types = node.results.iter().map(resolved).collect();
            let results = part.add_operation(&node.op, arguments, types).ok()?;
            let results = results.iter().map(|result| result.id());
            known.extend(node.results.iter().copied().zip(results));
        }
        let result = *known.get(&id)?;
        part.finish(&[result], Vec::new(), None).ok()
    }

    /// The value and all values that it depends on; `None` if it is not constant or depends on too many.
    fn constant_dependencies(&self, id: ValueId) -> Option<BTreeSet<ValueId>> {
        let mut found = BTreeSet::new();
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            if !found.insert(id) {
                continue;
            }
            if MAX_VALUES < found.len() {
                return None;
            }
            match self.node_of(id) {
                Some(node) if node.bodies().is_empty() => left.extend(node.operands()),
                Some(_) => return None,
                None => drop(self.weight_name(id)?),
            }
        }
        Some(found)
    }
}
