//! Construction of graphs from their text and JSON forms: resolves names to ids and infers omitted types.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value as Json};

use crate::dim::{Bindings, Dim, Symbol};
use crate::error::{Error, Result, SourcePlace};
use crate::op::{BinaryFunction, Primitive, UnaryFunction};
use crate::shape::TensorType;
use crate::symbols::Guard;

use super::dictionary::{ArgumentStyle, CallParameter, Dictionary};
use super::graph::{Argument, Definition, Graph, Node, Op, ValueId, ValueInfo};
use super::resolve::resolve;
use super::type_inference::TypeInference;

/// Types of weights by name.
pub(super) type WeightTypes = BTreeMap<String, TensorType>;

/// A graph under construction, node by node.
pub(super) struct GraphAssembler<'a> {
    graph: Graph,
    ids: HashMap<String, ValueId>,
    types: TypeInference,
    weights: &'a WeightTypes,
    dictionary: &'a dyn Dictionary,
    has_inferred: bool,
}

impl<'a> GraphAssembler<'a> {
    /// A graph with its inputs. Symbols without an example value get one.
    pub(super) fn new(
        name: &str,
        inputs: Vec<(String, TensorType)>,
        mut hints: Bindings,
        guards: Vec<Guard>,
        weights: &'a WeightTypes,
        dictionary: &'a dyn Dictionary,
    ) -> Result<GraphAssembler<'a>> {
        add_missing_hints(&mut hints, inputs.iter().map(|(_, ty)| ty));
        let mut assembler = GraphAssembler {
            graph: Graph {
                name: name.to_string(),
                hints: hints.clone(),
                guards: guards.clone(),
                ..Graph::default()
            },
            ids: HashMap::new(),
            types: TypeInference::new(hints, guards),
            weights,
            dictionary,
            has_inferred: false,
        };
        for (index, (name, ty)) in inputs.into_iter().enumerate() {
            let id = assembler.add(name, ty, Definition::Input(index))?;
            assembler.graph.inputs.push(id);
        }
        Ok(assembler)
    }

    /// The value with a name.
    pub(super) fn value(&self, name: &str) -> Result<ValueId> {
        let found = self.ids.get(name).copied();
        let missing = || Error::format(format!("the value {name} is not defined before its use"));
        found.ok_or_else(missing)
    }

    /// True if there is a value with this name.
    pub(super) fn has_value(&self, name: &str) -> bool {
        self.ids.contains_key(name)
    }

    /// True if there is a size with this name.
    pub(super) fn has_size(&self, name: &str) -> bool {
        self.graph.hints.contains_key(name)
    }

    /// The weight with a name, which becomes a value of the graph on first use.
    pub(super) fn weight(&mut self, name: &str) -> Result<ValueId> {
        let value = format!("${name}");
        if let Some(id) = self.ids.get(&value) {
            return Ok(*id);
        }
        let ty = self.weights.get(name).cloned();
        let ty =
            ty.ok_or_else(|| Error::format(format!("the type of weight {name} is not given")))?;
        self.add(value, ty, Definition::Weight(name.to_string()))
    }

    /// Adds a node and infers omitted types of results.
    pub(super) fn node(
        &mut self,
        op: Op,
        arguments: Vec<Argument>,
        results: Vec<(String, Option<TensorType>)>,
        place: SourcePlace,
    ) -> Result<()> {
        let mut inferred = None;
        if results.iter().any(|(_, ty)| ty.is_none()) {
            self.has_inferred = true;
            let types = self.types.infer(&op, &arguments, self.dictionary)?;
            if types.len() != results.len() {
                let message = format!("{} has {} results", op.name(), types.len());
                return Err(Error::format(message));
            }
            inferred = Some(types);
        }
        let node = self.graph.nodes.len();
        let mut ids = Vec::new();
        for (index, (name, ty)) in results.into_iter().enumerate() {
            let inferred = inferred.as_ref().and_then(|types| types.get(index));
            let ty = ty.or_else(|| inferred.cloned());
            let ty = ty.ok_or_else(|| Error::internal("a result has no type"))?;
            ids.push(self.add(name, ty, Definition::Node(node, index))?);
        }
        self.graph.nodes.push(Node {
            op,
            arguments,
            results: ids,
            place,
        });
        Ok(())
    }

    /// Returns the graph with its outputs. Sizes that inference proved equal get the same expression.
    pub(super) fn finish(mut self, outputs: Vec<ValueId>) -> Graph {
        self.graph.outputs = outputs;
        if self.has_inferred {
            resolve(&mut self.graph, self.types.symbols());
        }
        self.graph
    }

    fn add(&mut self, name: String, ty: TensorType, definition: Definition) -> Result<ValueId> {
        let id = ValueId(u32::try_from(self.graph.values.len()).unwrap_or(u32::MAX));
        if self.ids.insert(name.clone(), id).is_some() {
            return Err(Error::format(format!("{name} is defined twice")));
        }
        self.types.push(&ty);
        self.graph.values.push(ValueInfo {
            name,
            ty,
            definition,
        });
        Ok(id)
    }
}

/// Gives each symbol without an example value a different one.
fn add_missing_hints<'a>(hints: &mut Bindings, types: impl Iterator<Item = &'a TensorType>) {
    let known: HashSet<i64> = hints.values().copied().collect();
    let candidates = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29].into_iter().chain(31..);
    let mut free = candidates.filter(|hint| !known.contains(hint));
    for name in types.flat_map(|ty| &ty.shape).flat_map(Dim::symbols) {
        if !hints.contains_key(&name) {
            hints.extend(free.next().map(|hint| (name, hint)));
        }
    }
}

/// A primitive from its name in the text form and its attributes; `None` if there is no such primitive.
pub(super) fn primitive(name: &str, attributes: Map<String, Json>) -> Option<Result<Primitive>> {
    let is_unary = UnaryFunction::ALL
        .iter()
        .any(|function| function.name() == name);
    let is_binary = BinaryFunction::ALL
        .iter()
        .any(|function| function.name() == name);
    let mut fields = Map::new();
    if is_unary || is_binary {
        let kind = if is_unary { "unary" } else { "binary" };
        fields.insert("op".into(), kind.into());
        fields.insert("function".into(), name.into());
    } else if Primitive::NAMES.contains(&name) {
        fields.insert("op".into(), name.into());
    } else {
        return None;
    }
    fields.extend(attributes);
    Some(from_fields(name, fields))
}

fn from_fields(name: &str, fields: Map<String, Json>) -> Result<Primitive> {
    let complain = |what: String| Error::format(format!("{name}: {what}"));
    let keys: Vec<String> = fields.keys().cloned().collect();
    let primitive: Primitive = serde_json::from_value(Json::Object(fields))
        .map_err(|error| complain(error.to_string()))?;
    let known = serde_json::to_value(&primitive).map_err(|error| complain(error.to_string()))?;
    match keys.iter().find(|key| known.get(key.as_str()).is_none()) {
        Some(key) => Err(complain(format!("there is no attribute {key}"))),
        None => Ok(primitive),
    }
}

/// A primitive's attributes, except those that its name implies.
pub(super) fn attributes(primitive: &Primitive) -> Map<String, Json> {
    let implied: &[&str] = match primitive {
        Primitive::Unary(_) | Primitive::Binary(_) => &["op", "function"],
        _ => &["op"],
    };
    match serde_json::to_value(primitive) {
        Ok(Json::Object(fields)) => fields
            .into_iter()
            .filter(|(key, _)| !implied.contains(&key.as_str()))
            .collect(),
        _ => Map::new(),
    }
}

/// The arguments of a call in the order of its parameters, from positional and named arguments.
pub(super) fn complete_call(
    name: &str,
    parameters: &[CallParameter],
    positional: Vec<Argument>,
    named: Vec<(String, Argument)>,
) -> Result<Vec<Argument>> {
    if parameters.len() < positional.len() {
        let message = format!("{name} has {} parameters", parameters.len());
        return Err(Error::format(message));
    }
    let mut slots: Vec<Option<Argument>> = positional.into_iter().map(Some).collect();
    slots.resize(parameters.len(), None);
    for (key, argument) in named {
        let position = parameters
            .iter()
            .position(|parameter| parameter.name == key);
        let slot = position.and_then(|position| slots.get_mut(position));
        match slot {
            None => return Err(Error::format(format!("{name} has no parameter {key}"))),
            Some(Some(_)) => return Err(Error::format(format!("{key} is given twice"))),
            Some(slot) => *slot = Some(argument),
        }
    }
    let complete = |(slot, parameter): (Option<Argument>, &CallParameter)| {
        let missing = || Error::format(format!("{name} is not given its {}", parameter.name));
        slot.or_else(|| parameter.default.cloned())
            .ok_or_else(missing)
    };
    slots.into_iter().zip(parameters).map(complete).collect()
}

/// The written form of a call's arguments: leading tensors by position, then arguments that differ from their defaults by
/// name. Without parameters, all arguments are positional.
pub(super) fn split_call<'a, 'p>(
    parameters: &'a [CallParameter<'p>],
    arguments: &'a [Argument],
) -> (
    Vec<&'a Argument>,
    Vec<(&'a CallParameter<'p>, &'a Argument)>,
) {
    let is_default = |parameter: &CallParameter, argument| parameter.default == Some(argument);
    let leading = parameters
        .iter()
        .zip(arguments)
        .take_while(|(parameter, argument)| {
            parameter.style == ArgumentStyle::Positional && !is_default(parameter, argument)
        });
    let count = if parameters.is_empty() {
        arguments.len()
    } else {
        leading.count()
    };
    let positional = arguments.iter().take(count).collect();
    let rest = parameters.iter().zip(arguments).skip(count);
    let named = rest.filter(|(parameter, argument)| !is_default(parameter, argument));
    (positional, named.collect())
}

/// True for valid names of symbols.
pub(super) fn is_symbol(name: &Symbol) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}
