//! Instances of modules. An instance is one of several calls of a module, treated as a module of its own: `relu_1` is
//! the second call of `relu`.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::without_call_numbers;
use crate::ir::{Graph, Op, Region};
use crate::trace::check::each_graph;

/// Names for the calls of modules in a graph. Each call gets the name of a separate instance.
pub(super) struct Instances {
    /// Name of the instance, by the path of the module call.
    names: BTreeMap<String, String>,
    /// Paths of modules and weights. No numbered instance gets such a name.
    reserved: BTreeSet<String>,
    /// Names of all instances so far.
    assigned: BTreeSet<String>,
}

impl Instances {
    /// Names all module calls in a graph and its nested graphs, leaves included.
    pub fn of(graph: &Graph) -> Instances {
        let mut paths = Vec::new();
        let mut reserved = BTreeSet::new();
        each_graph(graph, &mut |graph| {
            paths.extend(graph.nodes.iter().map(|node| node.place.module.clone()));
            let weights = graph.weights().map(|(name, _)| name.to_string());
            reserved.extend(weights.flat_map(|name| path_and_parents(&name)));
        });
        let modules = paths.iter().map(|path| without_call_numbers(path));
        reserved.extend(modules.flat_map(|path| path_and_parents(&path)));
        let mut instances = Instances {
            names: BTreeMap::new(),
            reserved,
            assigned: BTreeSet::new(),
        };
        for path in paths {
            instances.assign_name(&path);
        }
        instances
    }

    /// Name of the instance for the path of a module call.
    pub fn name<'a>(&'a self, path: &'a str) -> &'a str {
        self.names.get(path).map_or(path, String::as_str)
    }

    /// Names of all instances.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.assigned.iter()
    }

    /// Names the module call at `path`, and those around it. Returns its name.
    fn assign_name(&mut self, path: &str) -> String {
        if path.is_empty() {
            return String::new();
        }
        if let Some(name) = self.names.get(path) {
            return name.clone();
        }
        let (parent, own_name) = path.rsplit_once('.').unwrap_or(("", path));
        let first = join_path(&self.assign_name(parent), &without_call_numbers(own_name));
        let mut candidates = (1..).map(|number| format!("{first}_{number}"));
        let name = if self.assigned.contains(&first) {
            let is_free =
                |name: &String| !self.reserved.contains(name) && !self.assigned.contains(name);
            candidates.find(is_free).unwrap_or_default()
        } else {
            first
        };
        self.assigned.insert(name.clone());
        self.names.insert(path.to_string(), name.clone());
        name
    }
}

/// Joins a module path and a name.
pub(super) fn join_path(module: &str, name: &str) -> String {
    match module {
        "" => name.to_string(),
        module => format!("{module}.{name}"),
    }
}

/// A path and its parent paths.
fn path_and_parents(path: &str) -> Vec<String> {
    let ends = path.match_indices('.').map(|(end, _)| end);
    let ends = ends.chain([path.len()]);
    ends.filter_map(|end| path.get(..end))
        .map(str::to_string)
        .collect()
}

/// True for a module that became one node.
pub(super) fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::Region(region) if matches!(**region, Region::Call { .. }))
}
