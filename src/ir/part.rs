//! What a value is made of, taken out of a graph under construction.

use std::collections::{BTreeSet, HashMap};

use crate::dim::Dim;

use super::builder::Builder;
use super::graph::{Graph, ValueId};

/// Values of more parts than this are left to the device.
const MOST_PARTS: usize = 256;

impl Builder {
    /// A graph without inputs that computes a value from weights and sizes; none if it depends on inputs or on regions.
    pub fn constant_part(&self, id: ValueId) -> Option<Graph> {
        let symbols = self.symbols();
        let part = Builder::with_symbols("constant", symbols.hints(), symbols.guards());
        let mut known: HashMap<ValueId, ValueId> = HashMap::new();
        // Whatever a value is made of was there before it, and so comes first in order of numbers.
        for id in self.constant_parts(id)? {
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
            let results = part.repeat(&node.op, arguments, types).ok()?;
            let results = results.iter().map(|result| result.id());
            known.extend(node.results.iter().copied().zip(results));
        }
        let result = *known.get(&id)?;
        part.finish(&[result], Vec::new(), None).ok()
    }

    /// The value and all that it is made of.
    fn constant_parts(&self, id: ValueId) -> Option<BTreeSet<ValueId>> {
        let mut found = BTreeSet::new();
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            if !found.insert(id) {
                continue;
            }
            if MOST_PARTS < found.len() {
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
