//! Boxes by the names of their values.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::view::hierarchy::{BoxKind, Hierarchy};

/// Entry graph, module, and source line of an operator.
type OperatorPlace = (String, String, String);

/// Boxes by the paths of their values, as documents write them: the value's name, prefixed by the names of the first
/// results of the enclosing regions, `steps/x`.
pub(super) struct ValueIndex {
    boxes: HashMap<(String, String), Vec<usize>>,
    /// Operators by their places in the user's source.
    places: HashMap<OperatorPlace, Vec<usize>>,
}

impl ValueIndex {
    pub(super) fn of(hierarchy: &Hierarchy) -> ValueIndex {
        let mut boxes: HashMap<(String, String), Vec<usize>> = HashMap::new();
        let mut places: HashMap<OperatorPlace, Vec<usize>> = HashMap::new();
        // Entry graph and path of the regions around each box.
        let mut around: Vec<(String, String)> = Vec::new();
        for (index, own) in hierarchy.boxes.iter().enumerate() {
            let (entry, prefix) = match own.parent {
                None => (own.label.clone(), String::new()),
                Some(parent) => around[parent].clone(),
            };
            let graph = hierarchy.graphs[own.graph];
            let node = hierarchy.node(index);
            for id in node.iter().flat_map(|node| &node.results) {
                let path = format!("{prefix}{}", graph.value(*id).name);
                boxes.entry((entry.clone(), path)).or_default().push(index);
            }
            let place = node.map(|node| &node.place);
            if let Some((place, line)) =
                place.and_then(|place| Some((place, place.location.as_ref()?)))
                && matches!(own.kind, BoxKind::Operator(_))
            {
                let key = (entry.clone(), place.module.clone(), line.to_string());
                places.entry(key).or_default().push(index);
            }
            let prefix = match (own.kind, node.and_then(|node| node.results.first())) {
                (BoxKind::Region(_), Some(id)) => format!("{prefix}{}/", graph.value(*id).name),
                _ => prefix,
            };
            around.push((entry, prefix));
        }
        ValueIndex { boxes, places }
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

    /// The operators that each step computes: those of its values. Passes name the values of a step anew where they replace
    /// all of an operator; such a step has the operators of its place that no step names.
    pub(super) fn steps(&self, graph: &str, steps: &[&StepPlace]) -> Vec<Vec<usize>> {
        let named = steps.iter().map(|step| self.find_all(graph, &step.nodes));
        let named: Vec<Vec<usize>> = named.collect();
        let inline = steps.iter();
        let inline = inline.flat_map(|step| self.find_all(graph, &step.inline));
        let known: HashSet<usize> = named.iter().flatten().copied().chain(inline).collect();
        let found = steps.iter().zip(named).map(|(step, named)| {
            let fallback = || {
                let here = self.at_place(graph, step).iter();
                here.copied().filter(|own| !known.contains(own)).collect()
            };
            if named.is_empty() { fallback() } else { named }
        });
        found.collect()
    }

    /// The operators of a module's line.
    fn at_place(&self, graph: &str, step: &StepPlace) -> &[usize] {
        let key = step.location.as_ref().map(|location| {
            let module = step.module.clone();
            (graph.to_string(), module, location.clone())
        });
        let found = key.and_then(|key| self.places.get(&key));
        found.map_or(&[], Vec::as_slice)
    }
}

/// Values and place of a step, as documents write them.
#[derive(Deserialize)]
pub(super) struct StepPlace {
    /// Values that the step computes.
    pub(super) nodes: Vec<String>,
    /// Values that it computes where it reads them.
    #[serde(default)]
    pub(super) inline: Vec<String>,
    #[serde(default)]
    module: String,
    location: Option<String>,
}
