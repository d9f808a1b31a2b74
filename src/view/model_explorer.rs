//! Models as JSON for Model Explorer.
//!
//! The format is that of its `input_graph.ts`: a collection of graphs, whose nodes have an id, a label, a namespace of
//! modules between slashes, incoming edges, attributes, and metadata of inputs and outputs.
//! <https://github.com/google-ai-edge/model-explorer>

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::hierarchy::{BoxKind, GraphBox, Hierarchy};
use super::operands::weights_read;
use crate::ir::{Graph, GraphModule, Node};

/// Returns a model as a JSON document that Model Explorer opens. `label` names it there.
pub fn to_model_explorer(module: &GraphModule, label: &str) -> Json {
    let graphs = module.graphs.iter().map(|graph| {
        let hierarchy = Hierarchy::of([graph]);
        let export = GraphExport::new(&hierarchy);
        json!({"id": graph.name, "nodes": export.nodes()})
    });
    json!({
        "format": "onionskin-model-explorer-1",
        "label": label,
        "graphs": graphs.collect::<Json>(),
    })
}

/// Number of a result of a node, and the box that it comes from.
type EdgeSource = (usize, usize);

struct GraphExport<'a> {
    hierarchy: &'a Hierarchy<'a>,
    /// Values that each box reads, in order: source, and type.
    edges: HashMap<usize, Vec<(EdgeSource, String)>>,
}

impl<'a> GraphExport<'a> {
    fn new(hierarchy: &'a Hierarchy<'a>) -> GraphExport<'a> {
        let mut edges: HashMap<usize, Vec<(EdgeSource, String)>> = HashMap::new();
        for read in &hierarchy.reads {
            let node = hierarchy.node(read.source);
            let results =
                node.and_then(|node| node.results.iter().position(|id| *id == read.value));
            let ty = hierarchy.graphs[read.graph].ty(read.value).to_string();
            let source = (read.source, results.unwrap_or(0));
            edges.entry(read.target).or_default().push((source, ty));
        }
        GraphExport { hierarchy, edges }
    }

    /// A node for each input, operator, region and output.
    fn nodes(&self) -> Vec<Json> {
        let boxes = self.hierarchy.boxes.iter().enumerate();
        let shown = boxes.filter(|(_, own)| {
            use BoxKind::{Input, Operator, Output, Region};
            matches!(own.kind, Input(_) | Operator(_) | Output(_) | Region(_))
        });
        shown.map(|(index, own)| self.node(index, own)).collect()
    }

    fn node(&self, index: usize, own: &GraphBox) -> Json {
        let graph = self.hierarchy.graphs[own.graph];
        let node = self.hierarchy.node(index);
        let label = node.map_or(own.label.as_str(), |node| node.op.short_name());
        let edges = self.edges.get(&index).map_or(&[][..], Vec::as_slice);
        let incoming = edges
            .iter()
            .enumerate()
            .map(|(input, ((source, output), _))| {
                json!({
                    "sourceNodeId": source.to_string(),
                    "sourceNodeOutputId": output.to_string(),
                    "targetNodeInputId": input.to_string(),
                })
            });
        let inputs = edges
            .iter()
            .enumerate()
            .map(|(input, (_, ty))| metadata(input, ty, None));
        json!({
            "id": index.to_string(),
            "label": label,
            "namespace": self.namespace(index, own),
            "attrs": node.map(|node| attributes(graph, node)).unwrap_or_default(),
            "incomingEdges": incoming.collect::<Json>(),
            "inputsMetadata": inputs.collect::<Json>(),
            "outputsMetadata": outputs(graph, own, node),
        })
    }

    /// Names of the boxes around a box, between slashes. The name of the graph is left out; a region is in a namespace of its
    /// own with its bodies.
    fn namespace(&self, index: usize, own: &GraphBox) -> String {
        let around = self.hierarchy.ancestors(index);
        let mut names: Vec<String> = around
            .filter(|outer| self.hierarchy.boxes[*outer].kind != BoxKind::Graph)
            .map(|outer| self.name(outer))
            .collect();
        names.reverse();
        let joined = matches!(own.kind, BoxKind::Operator(_)).then(|| self.name(index));
        let is_module = self
            .hierarchy
            .node(index)
            .is_some_and(|node| node.op.short_name() != own.label);
        names.extend(joined.filter(|_| is_module));
        if let BoxKind::Region(_) = own.kind {
            names.push(self.name(index));
        }
        names.join("/")
    }

    /// Name of a box in a namespace. Regions have the name of their first result.
    fn name(&self, index: usize) -> String {
        let own = &self.hierarchy.boxes[index];
        let name = match (own.kind, self.hierarchy.node(index)) {
            (BoxKind::Region(_), Some(node)) => {
                let graph = self.hierarchy.graphs[own.graph];
                let first = node
                    .results
                    .first()
                    .map(|id| graph.value(*id).name.as_str());
                format!("{} {}", own.label, first.unwrap_or_default())
            }
            _ => own.label.clone(),
        };
        name.replace('/', "_")
    }
}

/// Attributes, weights and source of a node.
fn attributes(graph: &Graph, node: &Node) -> Vec<Json> {
    let attribute = |key: &str, value: &str| json!({"key": key, "value": value});
    let mut attributes = vec![attribute("operator", node.op.name())];
    let described = node.describe().attributes;
    attributes.extend(described.iter().map(|(key, value)| attribute(key, value)));
    let weights = weights_read(graph, node);
    attributes.extend(
        weights
            .iter()
            .map(|(role, name, ty)| attribute(role, &format!("{name} {ty}"))),
    );
    let place = &node.place;
    let location = place.location.as_ref().map(ToString::to_string);
    attributes.extend(location.map(|location| attribute("source", &location)));
    if !place.module.is_empty() {
        attributes.push(attribute("module", &place.module));
    }
    attributes
}

fn outputs(graph: &Graph, own: &GraphBox, node: Option<&Node>) -> Vec<Json> {
    let values = match (own.kind, node) {
        (BoxKind::Input(input), _) => vec![graph.inputs[input]],
        (_, Some(node)) => node.results.clone(),
        _ => Vec::new(),
    };
    let values = values.into_iter().enumerate();
    let values = values.map(|(output, id)| {
        let info = graph.value(id);
        metadata(output, &info.ty.to_string(), Some(&info.name))
    });
    values.collect()
}

/// Metadata of an input or output.
fn metadata(number: usize, ty: &str, name: Option<&str>) -> Json {
    let mut attributes = vec![json!({"key": "tensor_shape", "value": ty})];
    attributes.extend(name.map(|name| json!({"key": "__tensor_tag", "value": name})));
    json!({"id": number.to_string(), "attrs": attributes})
}
