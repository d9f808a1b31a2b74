//! Names of nodes and values after modules and operators.

use std::collections::{BTreeMap, BTreeSet};

use super::instances::{Instances, is_leaf, join_path};
use super::report::{PrepareReport, RewriteKind};
use crate::error::without_call_numbers;
use crate::ir::{Graph, Node, ValueId, legal_name};

/// Names every node after its module and operator, and its values after the node. Nodes in leaves keep their names.
pub(super) fn name_nodes(graph: &mut Graph, instances: &Instances, report: &mut PrepareReport) {
    let mut namer = NodeNamer::new(graph, instances);
    namer.name_graph(graph, report);
}

/// Names the nodes of one graph.
struct NodeNamer<'a> {
    instances: &'a Instances,
    /// Number of nodes directly in each module call, without nested calls.
    direct_nodes: BTreeMap<String, usize>,
    /// Module calls that contain other module calls.
    containers: BTreeSet<String>,
    /// Names that no further node may get.
    used_names: BTreeSet<String>,
}

impl<'a> NodeNamer<'a> {
    fn new(graph: &Graph, instances: &'a Instances) -> NodeNamer<'a> {
        let inputs = graph.inputs.iter().map(|id| graph.value(*id).name.clone());
        let mut namer = NodeNamer {
            instances,
            direct_nodes: BTreeMap::new(),
            containers: BTreeSet::new(),
            used_names: inputs.chain(instances.names().cloned()).collect(),
        };
        namer.count_nodes(graph);
        namer
    }

    /// Counts the nodes of each module call, and notes the containers.
    fn count_nodes(&mut self, graph: &Graph) {
        for node in &graph.nodes {
            let path = &node.place.module;
            *self.direct_nodes.entry(path.clone()).or_default() += 1;
            let parents = path
                .match_indices('.')
                .filter_map(|(end, _)| path.get(..end));
            self.containers.extend(parents.map(str::to_string));
            if !is_leaf(&node.op) {
                node.bodies()
                    .into_iter()
                    .for_each(|body| self.count_nodes(body));
            }
        }
    }

    /// Names the nodes and values of a graph and its nested graphs.
    fn name_graph(&mut self, graph: &mut Graph, report: &mut PrepareReport) {
        let mut names = Vec::new();
        for node in &mut graph.nodes {
            let (kind, name) = self.node_name(node);
            let old = std::mem::replace(&mut node.place.module, name.clone());
            names.push((kind, name, old));
            if !is_leaf(&node.op) {
                for body in node.bodies_mut() {
                    self.name_graph(body, report);
                }
            }
        }
        name_values(graph, &names, report);
    }

    /// Returns the name of a node: its module's if it is the module's only node, else its operator's.
    fn node_name(&mut self, node: &Node) -> (RewriteKind, String) {
        let path = &node.place.module;
        let module = self.instances.name(path);
        let is_only_node =
            self.direct_nodes.get(path) == Some(&1) && !self.containers.contains(path);
        let is_module = is_only_node && !path.is_empty();
        let kind = match is_module {
            _ if module != without_call_numbers(path) => RewriteKind::Reused,
            true => RewriteKind::Module,
            false => RewriteKind::Functional,
        };
        if is_module {
            return (kind, module.to_string());
        }
        let first = join_path(module, node.op.short_name());
        let numbered = (1..).map(|number| format!("{first}_{number}"));
        let mut candidates = std::iter::once(first.clone()).chain(numbered);
        let name = candidates.find(|name| !self.used_names.contains(name));
        let name = name.unwrap_or(first);
        self.used_names.insert(name.clone());
        (kind, name)
    }
}

/// Names results after their nodes. Several results of a node are numbered. `names` holds for each node the kind of its
/// rewrite, its new name, and the path of its module call.
fn name_values(
    graph: &mut Graph,
    names: &[(RewriteKind, String, String)],
    report: &mut PrepareReport,
) {
    let inputs = graph.inputs.iter().map(|id| graph.value(*id).name.clone());
    let mut taken: BTreeSet<String> = inputs.collect();
    for (index, (kind, name, path)) in names.iter().enumerate() {
        let node = &graph.nodes[index];
        let mut place = node.place.clone();
        place.module.clone_from(path);
        let results = node.results.clone();
        let old_names: Vec<String> = results
            .iter()
            .map(|id| graph.value(*id).name.clone())
            .collect();
        let first_old_name = old_names.first().cloned().unwrap_or_default();
        let mut is_new = name != path;
        for (number, id) in results.iter().enumerate() {
            let wanted = match results.len() {
                1 => name.clone(),
                _ => format!("{name}.{number}"),
            };
            let new_name = unique(&legal_name(&wanted), &mut taken);
            is_new |= old_names.get(number) != Some(&new_name);
            rename(graph, *id, new_name);
        }
        if is_new {
            report.add(*kind, &first_old_name, name, &place);
        }
    }
}

/// Returns a name that is not taken, `wanted` if possible, and marks it as taken.
fn unique(wanted: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (1..).map(|number| format!("{wanted}_{number}"));
    let mut candidates = std::iter::once(wanted.to_string()).chain(numbered);
    let name = candidates.find(|name| taken.insert(name.clone()));
    name.unwrap_or_default()
}

/// Sets the name of a value.
fn rename(graph: &mut Graph, id: ValueId, name: String) {
    graph.values[id.index()].name = name;
}
