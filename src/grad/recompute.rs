//! Values of modules that the backward pass computes again instead of keeping them: `torch.utils.checkpoint`.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::{Error, Result, without_call_numbers};
use crate::ir::{Argument, Builder, Node, ValueId};
use crate::op::OptimizationBarrier;
use crate::wildcard;

/// Modules that an error lists at most.
const LISTED_MODULES: usize = 12;

/// The modules that are computed again, and what the backward pass has computed again so far.
pub(super) struct Recomputation<'g> {
    builder: &'g Builder,
    /// For each forward node, the module that it belongs to, if it is computed again.
    modules: Vec<Option<String>>,
    /// For each module that the backward pass has reached, the copies of its values, and the barriers before its inputs.
    copies: HashMap<String, HashMap<ValueId, ValueId>>,
    /// The original of each copy and of each barrier.
    originals: HashMap<ValueId, ValueId>,
}

impl<'g> Recomputation<'g> {
    /// Finds the modules: those with the shortest paths that match one of the patterns.
    ///
    /// # Errors
    /// No module matches one of the patterns.
    pub(super) fn of(
        builder: &'g Builder,
        nodes: &[Node],
        patterns: &[String],
    ) -> Result<Recomputation<'g>> {
        for pattern in patterns {
            let mut paths = nodes.iter().map(|node| node.place.module.as_str());
            if !paths.any(|path| matching_prefix(pattern, path).is_some()) {
                return Err(no_module(pattern, nodes));
            }
        }
        let module = |node: &Node| {
            let path = node.place.module.as_str();
            let found = patterns.iter().filter_map(|one| matching_prefix(one, path));
            Some(found.min_by_key(|prefix| prefix.len())?.to_string())
        };
        Ok(Recomputation {
            builder,
            modules: nodes.iter().map(module).collect(),
            copies: HashMap::new(),
            originals: HashMap::new(),
        })
    }

    /// The original of a copy; other values are their own.
    pub(super) fn original(&self, id: ValueId) -> ValueId {
        self.originals.get(&id).copied().unwrap_or(id)
    }

    /// The copy of `node`, the one at an index of the forward nodes, if it belongs to a module that is computed again. The first
    /// node of a module that the backward pass reaches adds the copies of all its nodes. Copies of values in `active` are
    /// added to it.
    pub(super) fn copy(
        &mut self,
        nodes: &[Node],
        index: usize,
        node: &Node,
        active: &mut HashSet<ValueId>,
    ) -> Result<Option<Node>> {
        let Some(module) = self.modules.get(index).cloned().flatten() else {
            return Ok(None);
        };
        if !self.copies.contains_key(&module) {
            let copies = self.copy_module(nodes, &module)?;
            for (original, copy) in &copies {
                self.originals.insert(*copy, *original);
                if active.contains(original) {
                    active.insert(*copy);
                }
            }
            self.copies.insert(module.clone(), copies);
        }
        let copies = self.copies.get(&module);
        let copy = |id: ValueId| {
            copies
                .and_then(|copies| copies.get(&id))
                .copied()
                .unwrap_or(id)
        };
        Ok(Some(Node {
            arguments: arguments(node, copy),
            results: node.results.iter().map(|id| copy(*id)).collect(),
            ..node.clone()
        }))
    }

    /// Adds copies of a module's nodes, whose inputs pass barriers.
    fn copy_module(&self, nodes: &[Node], module: &str) -> Result<HashMap<ValueId, ValueId>> {
        let mut copies: HashMap<ValueId, ValueId> = HashMap::new();
        let is_weight = |id: ValueId| self.builder.weight_name(id).is_some();
        let of_module = nodes.iter().zip(&self.modules);
        let of_module = of_module.filter(|(_, of_node)| of_node.as_deref() == Some(module));
        for (node, _) in of_module {
            self.builder.set_place(&node.place);
            for id in node.operands() {
                // Equal nodes that read only weights are merged: these are kept anyway.
                if !copies.contains_key(&id) && !is_weight(id) {
                    let operand = Argument::from(self.builder.value(id));
                    let barrier = self.builder.apply(OptimizationBarrier {}, vec![operand]);
                    copies.insert(id, barrier.id());
                }
            }
            let arguments = arguments(node, |id| copies.get(&id).copied().unwrap_or(id));
            let types = node.results.iter().map(|id| self.builder.ty(*id)).collect();
            let results = self.builder.add_operation(&node.op, arguments, types)?;
            let results = results.iter().map(|result| result.id());
            copies.extend(node.results.iter().copied().zip(results));
        }
        Ok(copies)
    }
}

/// A node's arguments with other values.
fn arguments(node: &Node, mut value: impl FnMut(ValueId) -> ValueId) -> Vec<Argument> {
    let arguments = node.arguments.iter();
    let mapped = arguments.map(|argument| argument.map(&mut value, &mut |size| size.clone()));
    mapped.collect()
}

/// The shortest part of a module's path, from the root, that matches a pattern.
fn matching_prefix<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let ends = path.match_indices('.').map(|(end, _)| end);
    let mut prefixes = ends.chain([path.len()]).filter_map(|end| path.get(..end));
    prefixes.find(|prefix| {
        !prefix.is_empty() && wildcard::matches(pattern, &without_call_numbers(prefix))
    })
}

fn no_module(pattern: &str, nodes: &[Node]) -> Error {
    let paths = nodes
        .iter()
        .map(|node| without_call_numbers(&node.place.module));
    let paths: BTreeSet<String> = paths.filter(|path| !path.is_empty()).collect();
    let error = Error::usage(format!("no module matches {pattern}"));
    let mut listed: Vec<&str> = paths
        .iter()
        .map(String::as_str)
        .take(LISTED_MODULES)
        .collect();
    let more = paths.len() - listed.len();
    let rest = format!("{more} more");
    listed.extend((more > 0).then_some(rest.as_str()));
    match listed.is_empty() {
        true => error.help("the graph has no modules"),
        false => error.help(format!("modules are {}", listed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_path_that_matches_is_a_module() {
        let prefix = |pattern: &str| matching_prefix(pattern, "layers.1#2.conv");
        assert_eq!(prefix("layers"), Some("layers"));
        assert_eq!(prefix("layers.*"), Some("layers.1#2"));
        assert_eq!(prefix("layers.1"), Some("layers.1#2"));
        assert_eq!(prefix("*.conv"), Some("layers.1#2.conv"));
        assert_eq!(prefix("conv"), None);
    }
}
