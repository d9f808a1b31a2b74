//! The data of a page: boxes, values, weights and levels as JSON. `page/picture.js` reads it.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value as Json, json};

use super::box_size::{BoxSize, box_size, shortened, type_label};
use super::category::category;
use super::hierarchy::{BoxKind, GraphBox, Hierarchy};
use super::level::{GraphValue, Level, LevelItem, levels};
use super::operands::weight_name;
use super::source_lines::SourceLines;
use super::weight_summary::WeightSummary;
use crate::ir::{Graph, GraphModule, Node, NodeDescription, ValueId, Weights};

/// Builds the data of a page, box by box.
pub(super) struct DocumentBuilder<'a> {
    module: &'a GraphModule,
    hierarchy: &'a Hierarchy<'a>,
    /// Numbers of the values, in the order in which boxes mention them.
    value_numbers: HashMap<GraphValue, usize>,
    values: Vec<Json>,
    weight_numbers: BTreeMap<String, usize>,
    weights: Vec<Json>,
    sources: SourceLines,
}

impl<'a> DocumentBuilder<'a> {
    pub(super) fn new(
        module: &'a GraphModule,
        hierarchy: &'a Hierarchy<'a>,
        sources: SourceLines,
    ) -> DocumentBuilder<'a> {
        DocumentBuilder {
            module,
            hierarchy,
            value_numbers: HashMap::new(),
            values: Vec::new(),
            weight_numbers: BTreeMap::new(),
            weights: Vec::new(),
            sources,
        }
    }

    /// Returns the data: boxes, levels, values, weights and source lines.
    pub(super) fn document(mut self) -> Json {
        let (mut boxes, mut sizes) = (Vec::new(), Vec::new());
        let totals = ModuleTotals::of(self.hierarchy, &self.module.weights);
        for (index, own) in self.hierarchy.boxes.iter().enumerate() {
            let (entry, size) = self.entry(index, own, &totals);
            boxes.push(entry);
            sizes.push(size);
        }
        let levels = levels(self.hierarchy, &sizes);
        for (index, level) in &levels {
            boxes[*index]["level"] = self.level(level);
        }
        let graphs = self.module.graphs.iter().map(graph_facts);
        json!({
            "graphs": graphs.collect::<Json>(),
            "boxes": boxes,
            "values": self.values,
            "weights": self.weights,
            "sources": self.sources.texts(),
        })
    }

    fn entry(&mut self, index: usize, own: &GraphBox, totals: &ModuleTotals) -> (Json, BoxSize) {
        let node = self.hierarchy.node(index);
        let graph = self.hierarchy.graphs[own.graph];
        let description = node.map(Node::describe).unwrap_or_default();
        let subtitle = match node {
            Some(node) if own.children.is_empty() => {
                let subtitle = node_subtitle(graph, node, &description);
                // The label is the module's name where the operator is all of the module.
                match own.label == node.op.short_name() {
                    true => subtitle,
                    false => format!("{} {subtitle}", node.op.short_name())
                        .trim_end()
                        .to_string(),
                }
            }
            _ => self.subtitle(index, own, totals),
        };
        let subtitle = shortened(&subtitle);
        let size = box_size(own, &subtitle);
        let mut entry = Map::new();
        entry.insert("kind".into(), kind_name(own.kind).into());
        entry.insert("label".into(), shortened(&own.label).into());
        entry.insert("size".into(), json!([size.width.round(), size.height]));
        let optional = [
            ("parent", own.parent.map(Json::from)),
            ("subtitle", text(&subtitle)),
            ("module", text(&own.module)),
        ];
        entry.extend(present(optional));
        match node {
            Some(node) => entry.extend(self.node_fields(own.graph, node, description)),
            None => entry.extend(self.value_fields(own, graph)),
        }
        (entry.into(), size)
    }

    fn subtitle(&self, index: usize, own: &GraphBox, totals: &ModuleTotals) -> String {
        let graph = self.hierarchy.graphs[own.graph];
        match own.kind {
            BoxKind::Input(input) => graph.ty(graph.inputs[input]).to_string(),
            BoxKind::Output(output) => graph.ty(graph.outputs[output]).to_string(),
            _ => totals.text(index),
        }
    }

    /// Fields of an operator or region.
    fn node_fields(
        &mut self,
        graph: usize,
        node: &Node,
        description: NodeDescription,
    ) -> Vec<(String, Json)> {
        let (mut inputs, mut weights) = (Vec::new(), Vec::new());
        for (name, value) in description.operands {
            match self.weight(graph, value) {
                Some(weight) => weights.push(json!([name, weight])),
                None => inputs.push(json!([name, self.value((graph, value))])),
            }
        }
        let outputs = node.results.iter();
        let outputs: Vec<Json> = outputs.map(|id| self.value((graph, *id)).into()).collect();
        let location = node.place.location.as_ref().map(|location| {
            self.sources.add(location);
            location.to_string().into()
        });
        let attributes: Vec<Json> = description
            .attributes
            .iter()
            .map(|(name, value)| json!([name, value]))
            .collect();
        let fields = [
            ("operator", text(node.op.name())),
            ("category", Some(category(node).into())),
            ("attributes", list(attributes)),
            ("inputs", list(inputs)),
            ("weights", list(weights)),
            ("outputs", list(outputs)),
            ("source", location),
        ];
        present(fields).collect()
    }

    /// Fields of an input or output.
    fn value_fields(&mut self, own: &GraphBox, graph: &Graph) -> Vec<(String, Json)> {
        let fields = match own.kind {
            BoxKind::Input(index) => {
                let value = self.value((own.graph, graph.inputs[index]));
                [("outputs", list(vec![value.into()])), ("weights", None)]
            }
            BoxKind::Output(index) => {
                let id = graph.outputs[index];
                match self.weight(own.graph, id) {
                    Some(weight) => [
                        ("weights", list(vec![json!(["", weight])])),
                        ("inputs", None),
                    ],
                    None => {
                        let value = self.value((own.graph, id));
                        [
                            ("inputs", list(vec![json!(["", value])])),
                            ("weights", None),
                        ]
                    }
                }
            }
            _ => [("inputs", None), ("weights", None)],
        };
        present(fields).collect()
    }

    /// Number of a value.
    fn value(&mut self, value: GraphValue) -> usize {
        let next = self.values.len();
        let number = *self.value_numbers.entry(value).or_insert(next);
        if number == next {
            let graph = self.hierarchy.graphs[value.0];
            let info = graph.value(value.1);
            let (ty, label) = (info.ty.to_string(), type_label(graph, value.1));
            self.values.push(match ty == label {
                true => json!([info.name, ty]),
                false => json!([info.name, ty, label]),
            });
        }
        number
    }

    /// Number of a weight; `None` if the value is not one.
    fn weight(&mut self, graph: usize, value: ValueId) -> Option<usize> {
        let graph = self.hierarchy.graphs[graph];
        let name = weight_name(graph, value)?;
        if let Some(known) = self.weight_numbers.get(name) {
            return Some(*known);
        }
        let number = self.weights.len();
        let tensor = self.module.weights.get(name);
        let mut entry = json!({"name": name, "type": graph.ty(value).to_string()});
        if let Some(found) = tensor.and_then(WeightSummary::of) {
            entry["summary"] = json!(found);
        }
        self.weights.push(entry);
        self.weight_numbers.insert(name.to_string(), number);
        Some(number)
    }

    fn level(&mut self, level: &Level) -> Json {
        let layout = &level.layout;
        let ranks = layout
            .ranks
            .iter()
            .map(|rank| json!([rounded(rank.top), rounded(rank.height)]));
        let items = level.items.iter().zip(&layout.items).map(|(item, place)| {
            let x = rounded(place.x);
            match item {
                LevelItem::Box(index) => json!([place.rank, x, index]),
                LevelItem::InputPort(value) => json!([place.rank, x, -1, self.value(*value)]),
                LevelItem::OutputPort(value) => json!([place.rank, x, -2, self.value(*value)]),
            }
        });
        let items: Vec<Json> = items.collect();
        let nets = level.nets.iter().zip(&layout.routes).map(|(net, route)| {
            let bends = route.bends.iter();
            let bends = bends.map(|bend| json!([bend.rank, rounded(bend.x)]));
            let bends: Vec<Json> = bends.collect();
            json!([
                net.source,
                self.value(net.value),
                net.targets,
                bends,
                route.stubs
            ])
        });
        let nets: Vec<Json> = nets.collect();
        json!({
            "width": rounded(layout.width),
            "height": rounded(layout.height),
            "ranks": ranks.collect::<Json>(),
            "items": items,
            "nets": nets,
        })
    }
}

/// Name, sizes and guards of an entry graph.
fn graph_facts(graph: &Graph) -> Json {
    let guards = graph.guards.iter().map(ToString::to_string);
    let guards: Vec<String> = guards.collect();
    json!({"name": graph.name, "sizes": graph.hints, "guards": guards})
}

fn kind_name(kind: BoxKind) -> &'static str {
    match kind {
        BoxKind::Graph => "graph",
        BoxKind::Module => "module",
        BoxKind::Region(_) => "region",
        BoxKind::Body => "body",
        BoxKind::Input(_) => "input",
        BoxKind::Operator(_) => "operator",
        BoxKind::Output(_) => "output",
    }
}

/// Second line of an operator: the shape of its first weight, or else its attributes.
fn node_subtitle(graph: &Graph, node: &Node, description: &NodeDescription) -> String {
    let operands = description.operands.iter();
    let mut weights = operands.filter(|(_, id)| weight_name(graph, *id).is_some());
    let largest = weights
        .clone()
        .find(|(name, _)| name == "weight")
        .or(weights.next());
    match largest {
        Some((name, id)) => {
            let sizes: Vec<String> = graph
                .ty(*id)
                .shape
                .iter()
                .map(ToString::to_string)
                .collect();
            format!("{name} {}", sizes.join(" × "))
        }
        None => {
            let attributes = description.attributes.iter();
            let attributes = attributes.map(|(name, value)| format!("{name} {value}"));
            let attributes: Vec<String> = attributes.collect();
            match attributes.is_empty() && node.results.len() > 1 {
                true => format!("{} results", node.results.len()),
                false => attributes.join(", "),
            }
        }
    }
}

fn rounded(number: f32) -> f32 {
    number.round()
}

fn text(text: &str) -> Option<Json> {
    (!text.is_empty()).then(|| text.into())
}

fn list(items: Vec<Json>) -> Option<Json> {
    (!items.is_empty()).then(|| items.into())
}

fn present<const N: usize>(
    fields: [(&'static str, Option<Json>); N],
) -> impl Iterator<Item = (String, Json)> {
    let fields = fields.into_iter();
    fields.filter_map(|(name, value)| Some((name.to_string(), value?)))
}

/// Numbers of operators and parameters in each box.
struct ModuleTotals {
    operators: Vec<usize>,
    parameters: Vec<usize>,
}

impl ModuleTotals {
    fn of(hierarchy: &Hierarchy, weights: &Weights) -> ModuleTotals {
        let count = hierarchy.boxes.len();
        let mut operators = vec![0; count];
        let mut names: Vec<Vec<&str>> = vec![Vec::new(); count];
        // Boxes within a box follow it.
        for index in (0..count).rev() {
            let own = &hierarchy.boxes[index];
            if let Some(node) = hierarchy.node(index) {
                operators[index] += 1;
                let graph = hierarchy.graphs[own.graph];
                names[index].extend(
                    node.operands()
                        .iter()
                        .filter_map(|id| weight_name(graph, *id)),
                );
            }
            names[index].sort_unstable();
            names[index].dedup();
            if let Some(parent) = own.parent {
                operators[parent] += operators[index];
                let own = names[index].clone();
                names[parent].extend(own);
            }
        }
        let numel = |name: &&str| weights.get(*name).map_or(0, crate::Tensor::numel);
        let parameters = names.iter().map(|names| names.iter().map(numel).sum());
        ModuleTotals {
            parameters: parameters.collect(),
            operators,
        }
    }

    fn text(&self, index: usize) -> String {
        let operators = match self.operators[index] {
            1 => "1 operator".to_string(),
            count => format!("{count} operators"),
        };
        match self.parameters[index] {
            0 => operators,
            count => format!("{operators}, {} parameters", short_count(count)),
        }
    }
}

/// A count with three digits: `25.6 M`.
fn short_count(count: usize) -> String {
    let units = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    let unit = units.iter().find(|(size, _)| *size <= count as f64);
    unit.map_or_else(
        || count.to_string(),
        |(size, unit)| match count as f64 / size {
            large if large >= 100.0 => format!("{large:.0}{unit}"),
            small => format!("{small:.1}{unit}"),
        },
    )
}
