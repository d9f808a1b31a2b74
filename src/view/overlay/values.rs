//! Boxes by the names of their values.

use std::collections::HashMap;

use crate::view::hierarchy::{BoxKind, Hierarchy};

/// Boxes by the paths of their values, as documents write them: the value's name, prefixed by the names of the first
/// results of the enclosing regions, `steps/x`.
pub(super) struct ValueIndex {
    boxes: HashMap<(String, String), Vec<usize>>,
}

impl ValueIndex {
    pub(super) fn of(hierarchy: &Hierarchy) -> ValueIndex {
        let mut boxes: HashMap<(String, String), Vec<usize>> = HashMap::new();
        // Entry graph and path of the regions around each box.
        let mut places: Vec<(String, String)> = Vec::new();
        for (index, own) in hierarchy.boxes.iter().enumerate() {
            let (entry, prefix) = match own.parent {
                None => (own.label.clone(), String::new()),
                Some(parent) => places[parent].clone(),
            };
            let graph = hierarchy.graphs[own.graph];
            let node = hierarchy.node(index);
            for id in node.iter().flat_map(|node| &node.results) {
                let path = format!("{prefix}{}", graph.value(*id).name);
                boxes.entry((entry.clone(), path)).or_default().push(index);
            }
            let prefix = match (own.kind, node.and_then(|node| node.results.first())) {
                (BoxKind::Region(_), Some(id)) => format!("{prefix}{}/", graph.value(*id).name),
                _ => prefix,
            };
            places.push((entry, prefix));
        }
        ValueIndex { boxes }
    }

    /// The boxes that define a value. Both branches of a region may have a value of one name.
    pub(super) fn find(&self, graph: &str, path: &str) -> &[usize] {
        let key = (graph.to_string(), path.to_string());
        self.boxes.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The boxes that define some values, each once.
    pub(super) fn find_all(&self, graph: &str, paths: &[String]) -> Vec<usize> {
        let mut found = Vec::new();
        for index in paths.iter().flat_map(|path| self.find(graph, path)) {
            if !found.contains(index) {
                found.push(*index);
            }
        }
        found
    }
}
