use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result, SourcePlace};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::symbols::Guard;

use crate::ir::assembler::{
    GraphAssembler, WeightTypes, attributes, complete_call, primitive, split_call,
};
use crate::ir::dictionary::{ArgumentStyle, Dictionary};
use crate::ir::graph::{Argument, Graph, ModuleState, Node, Op, Region, ValueId};
use crate::ir::tree::{NamedTree, TreeSpec};
use crate::ir::verify::MAX_DEPTH;

/// A whole document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub format: String,
    pub version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<JsonWeights>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<ModuleState>,
    pub graphs: Vec<JsonGraph>,
}

/// The weights file and the types of the weights.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonWeights {
    /// The name of a safetensors file in the folder of the document.
    pub file: String,
    /// Types by name.
    pub tensors: BTreeMap<String, TensorType>,
    /// Names of those that are parameters.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub parameters: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonGraph {
    name: String,
    #[serde(default, skip_serializing_if = "Bindings::is_empty")]
    sizes: Bindings,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<Guard>,
    inputs: Vec<JsonValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<NamedTree>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reads: Vec<NamedTree>,
    nodes: Vec<JsonNode>,
    outputs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<TreeSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writes: Vec<NamedTree>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonValue {
    name: String,
    #[serde(rename = "type")]
    ty: TensorType,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonNode {
    results: Vec<JsonValue>,
    op: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    operands: Vec<Json>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    attributes: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    graphs: Vec<JsonGraph>,
    #[serde(default, skip_serializing_if = "SourcePlace::is_unknown")]
    place: SourcePlace,
}

impl JsonGraph {
    /// The JSON form of a verified graph.
    pub(super) fn of(graph: &Graph, dictionary: &dyn Dictionary) -> JsonGraph {
        let value = |id: &ValueId| JsonValue {
            name: graph.value(*id).name.clone(),
            ty: graph.ty(*id).clone(),
        };
        let node = |node: &Node| JsonNode {
            results: node.results.iter().map(value).collect(),
            op: node.op.name().to_string(),
            operands: operands(graph, node, dictionary),
            attributes: named(graph, node, dictionary),
            graphs: node
                .bodies()
                .into_iter()
                .map(|body| JsonGraph::of(body, dictionary))
                .collect(),
            place: node.place.clone(),
        };
        let outputs = graph.outputs.iter().map(|id| graph.value(*id).name.clone());
        JsonGraph {
            name: graph.name.clone(),
            sizes: graph.hints.clone(),
            guards: graph.guards.clone(),
            inputs: graph.inputs.iter().map(value).collect(),
            arguments: graph.input_trees.clone(),
            reads: graph.reads.clone(),
            nodes: graph.nodes.iter().map(node).collect(),
            outputs: outputs.collect(),
            result: graph.output_tree.clone(),
            writes: graph.writes.clone(),
        }
    }

    /// Builds the graph.
    pub(super) fn build(self, weights: &WeightTypes, dictionary: &dyn Dictionary) -> Result<Graph> {
        let name = self.name.clone();
        self.build_nested(weights, dictionary, 0)
            .at(|| format!("graph {name}"))
    }

    fn build_nested(
        self,
        weights: &WeightTypes,
        dictionary: &dyn Dictionary,
        depth: usize,
    ) -> Result<Graph> {
        if MAX_DEPTH < depth {
            return Err(Error::format("graphs are nested too deeply"));
        }
        let inputs = self.inputs.into_iter().map(|input| (input.name, input.ty));
        let (hints, guards) = (self.sizes, self.guards);
        let mut assembler = GraphAssembler::new(
            &self.name,
            inputs.collect(),
            hints,
            guards,
            weights,
            dictionary,
        )?;
        for (index, node) in self.nodes.into_iter().enumerate() {
            let place = node.place.clone();
            let frame = format!("node {index} ({})", node.op);
            node.build(&mut assembler, weights, dictionary, depth)
                .map_err(|error| error.at(frame).at_place(&place))?;
        }
        let outputs = self.outputs.iter().map(|name| value(&mut assembler, name));
        let outputs = outputs.collect::<Result<_>>()?;
        let mut graph = assembler.finish(outputs);
        graph.input_trees = self.arguments;
        graph.output_tree = self.result;
        (graph.reads, graph.writes) = (self.reads, self.writes);
        if depth == 0 {
            graph.complete_signature();
        }
        Ok(graph)
    }
}

impl JsonNode {
    fn build(
        mut self,
        assembler: &mut GraphAssembler,
        weights: &WeightTypes,
        dictionary: &dyn Dictionary,
        depth: usize,
    ) -> Result<()> {
        let operands = self.operands.iter().map(|json| argument(assembler, json));
        let mut arguments = operands.collect::<Result<Vec<_>>>()?;
        let bodies = std::mem::take(&mut self.graphs).into_iter();
        let bodies = bodies.map(|body| body.build_nested(weights, dictionary, depth + 1));
        let bodies = bodies.collect::<Result<Vec<_>>>()?;
        let op = if bodies.is_empty() {
            match dictionary.parameters(&self.op) {
                Some(parameters) => {
                    let named = self.attributes.iter();
                    let named =
                        named.map(|(key, json)| Ok((key.clone(), argument(assembler, json)?)));
                    let named = named.collect::<Result<Vec<_>>>()?;
                    arguments = complete_call(&self.op, &parameters, arguments, named)?;
                    Op::Call(self.op.as_str().into())
                }
                None => {
                    let unknown =
                        || Error::unsupported(format!("there is no operator {}", self.op));
                    let found = primitive(&self.op, std::mem::take(&mut self.attributes));
                    Op::Primitive(found.ok_or_else(unknown)??)
                }
            }
        } else {
            Op::Region(Box::new(self.region(bodies)?))
        };
        let results = self.results.into_iter();
        let results = results
            .map(|result| (result.name, Some(result.ty)))
            .collect();
        assembler.node(op, arguments, results, self.place)
    }

    fn region(&self, bodies: Vec<Graph>) -> Result<Region> {
        let carried = self.attributes.get("carried").and_then(Json::as_u64);
        let carried = carried.and_then(|carried| usize::try_from(carried).ok());
        let count = bodies.len();
        let mut bodies = bodies.into_iter();
        match (
            self.op.as_str(),
            count,
            bodies.next(),
            bodies.next(),
            carried,
        ) {
            ("if", 2, Some(then), Some(otherwise), None) => Ok(Region::If { then, otherwise }),
            ("loop", 1, Some(body), None, Some(carried)) => Ok(Region::Loop { body, carried }),
            ("call", 1, Some(body), None, None) => Ok(Region::Call { body }),
            _ => Err(Error::format(
                "an \"if\" has two graphs, a \"loop\" has one and carries, a \"call\" has one",
            )),
        }
    }
}

/// Positional operands: all of a primitive or region, leading tensors of a call.
fn operands(graph: &Graph, node: &Node, dictionary: &dyn Dictionary) -> Vec<Json> {
    let parameters = match &node.op {
        Op::Call(name) => dictionary.parameters(name).unwrap_or_default(),
        _ => Vec::new(),
    };
    let (positional, _) = split_call(&parameters, &node.arguments);
    positional
        .into_iter()
        .map(|argument| json_argument(graph, argument, ArgumentStyle::Positional))
        .collect()
}

/// Named arguments and attributes.
fn named(graph: &Graph, node: &Node, dictionary: &dyn Dictionary) -> Map<String, Json> {
    match &node.op {
        Op::Primitive(primitive) => attributes(primitive),
        Op::Call(name) => {
            let parameters = dictionary.parameters(name).unwrap_or_default();
            let (_, named) = split_call(&parameters, &node.arguments);
            let named = named.into_iter().map(|(parameter, argument)| {
                let value = json_argument(graph, argument, parameter.style);
                (parameter.name.to_string(), value)
            });
            named.collect()
        }
        Op::Region(region) => match &**region {
            Region::If { .. } | Region::Call { .. } => Map::new(),
            Region::Loop { carried, .. } => Map::from_iter([("carried".into(), json!(carried))]),
        },
    }
}

/// The JSON form of an argument. Values are their names; arguments without a JSON type are objects with one field.
fn json_argument(graph: &Graph, argument: &Argument, style: ArgumentStyle) -> Json {
    match argument {
        Argument::Value(id) => json!(graph.value(*id).name),
        Argument::Number(Scalar::Int(code)) if style == ArgumentStyle::DType => {
            match DType::from_torch_code(*code) {
                Ok(dtype) => json!({"dtype": dtype}),
                Err(_) => json!(code),
            }
        }
        Argument::Number(Scalar::Float(number)) if !number.is_finite() => {
            json!({"float": Scalar::Float(*number).to_string()})
        }
        Argument::Number(number) => json!(number),
        Argument::Size(dim) => json!({"size": dim}),
        Argument::Str(text) => json!({"text": text}),
        Argument::List(items) => items
            .iter()
            .map(|item| json_argument(graph, item, style))
            .collect(),
        Argument::None => Json::Null,
    }
}

fn argument(assembler: &mut GraphAssembler, json: &Json) -> Result<Argument> {
    Ok(match json {
        Json::Null => Argument::None,
        Json::Bool(value) => Argument::Number(Scalar::Bool(*value)),
        Json::Number(number) => Argument::Number(match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Scalar::Int(number),
            (None, Some(number)) if !json.is_u64() => Scalar::Float(number),
            _ => return Err(Error::format(format!("{number} is too large a number"))),
        }),
        Json::String(name) => Argument::Value(value(assembler, name)?),
        Json::Array(items) => {
            let items = items.iter().map(|item| argument(assembler, item));
            Argument::List(items.collect::<Result<_>>()?)
        }
        Json::Object(fields) => object(fields)?,
    })
}

fn object(fields: &Map<String, Json>) -> Result<Argument> {
    let mut fields = fields.iter();
    let complain = || Error::format("an operand must be a size, text, float or dtype");
    match (fields.next(), fields.next()) {
        (Some((key, Json::String(text))), None) => match key.as_str() {
            "size" => Ok(Argument::from(text.parse::<Dim>()?)),
            "text" => Ok(Argument::Str(text.clone())),
            "dtype" => {
                let dtype: DType = text.parse()?;
                Ok(Argument::Number(Scalar::Int(dtype.torch_code())))
            }
            "float" => match text.as_str() {
                "nan" => Ok(Argument::Number(Scalar::Float(f64::NAN))),
                "inf" => Ok(Argument::Number(Scalar::Float(f64::INFINITY))),
                "-inf" => Ok(Argument::Number(Scalar::Float(f64::NEG_INFINITY))),
                _ => Err(complain()),
            },
            _ => Err(complain()),
        },
        _ => Err(complain()),
    }
}

/// A value by its name; names of weights begin with `$`.
fn value(assembler: &mut GraphAssembler, name: &str) -> Result<ValueId> {
    match name.strip_prefix('$') {
        Some(weight) => assembler.weight(weight),
        None => assembler.value(name),
    }
}
