//! Structures of arguments and results, as `torch.utils._pytree.treespec_dumps` writes them (protocol 1).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::schema::NamedTupleFields;
use crate::error::{Error, Result};

/// The protocol of the JSON text.
const PROTOCOL: u64 = 1;

/// A nested structure whose leaves are the inputs or outputs of a graph, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Pytree {
    /// A tensor, a number or `None`.
    Leaf,
    /// A tuple.
    Tuple(Vec<Pytree>),
    /// A list.
    List(Vec<Pytree>),
    /// A dict by the texts of its keys.
    Dict(Vec<(String, Pytree)>),
    /// A named tuple or a registered dataclass: its type, and its fields.
    Record(String, Vec<(String, Pytree)>),
}

/// A node of the text.
#[derive(Deserialize)]
struct Node {
    #[serde(rename = "type")]
    class: Option<String>,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    children_spec: Vec<Node>,
}

impl Pytree {
    /// Reads a specification. `fields` has the names of named tuples' fields by type.
    ///
    /// # Errors
    /// The text is no specification, or names a class whose fields are not known.
    pub fn parse(text: &str, fields: &BTreeMap<String, NamedTupleFields>) -> Result<Pytree> {
        let malformed =
            |error: serde_json::Error| Error::format(format!("a tree specification: {error}"));
        let (protocol, node): (u64, Node) = serde_json::from_str(text).map_err(malformed)?;
        if protocol != PROTOCOL {
            return Err(Error::unsupported(format!(
                "tree specifications of protocol {protocol}"
            )));
        }
        Pytree::of_node(node, fields)
    }

    fn of_node(node: Node, fields: &BTreeMap<String, NamedTupleFields>) -> Result<Pytree> {
        let Some(class) = node.class else {
            return Ok(Pytree::Leaf);
        };
        let context = inner_json(node.context);
        let children = node.children_spec.into_iter();
        let children: Vec<Pytree> = children
            .map(|child| Pytree::of_node(child, fields))
            .collect::<Result<_>>()?;
        let names = match class.as_str() {
            "builtins.tuple" => return Ok(Pytree::Tuple(children)),
            "builtins.list" | "collections.deque" => return Ok(Pytree::List(children)),
            "collections.namedtuple" => {
                let name = context.as_str().unwrap_or_default().to_string();
                let known = fields.get(&name).map(|fields| fields.field_names.clone());
                let names = known.unwrap_or_else(|| {
                    (0..children.len()).map(|index| index.to_string()).collect()
                });
                return record(name, names, children);
            }
            "builtins.dict" | "collections.OrderedDict" => texts(&context),
            "collections.defaultdict" => texts(context.get("dict_context").unwrap_or(&Value::Null)),
            // A registered dataclass: the names of its fields, and of those that are `None`.
            _ => match context.get(0).filter(|names| names.is_array()) {
                Some(names) => return record(class, texts(names), children),
                None => {
                    let help =
                        "register the class with torch.export.register_dataclass, or give a dict";
                    let message = format!("an argument or result of the class {class}");
                    return Err(Error::unsupported(message).help(help));
                }
            },
        };
        Ok(Pytree::Dict(pairs(&class, names, children)?))
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> usize {
        match self {
            Pytree::Leaf => 1,
            Pytree::Tuple(items) | Pytree::List(items) => {
                items.iter().map(Pytree::leaf_count).sum()
            }
            Pytree::Dict(items) | Pytree::Record(_, items) => {
                items.iter().map(|(_, item)| item.leaf_count()).sum()
            }
        }
    }
}

fn record(class: String, names: Vec<String>, children: Vec<Pytree>) -> Result<Pytree> {
    let fields = pairs(&class, names, children)?;
    Ok(Pytree::Record(class, fields))
}

/// Pairs names with children.
fn pairs(class: &str, names: Vec<String>, children: Vec<Pytree>) -> Result<Vec<(String, Pytree)>> {
    if names.len() != children.len() {
        let (names, children) = (names.len(), children.len());
        return Err(Error::format(format!(
            "a {class} has {names} names for {children} values"
        )));
    }
    Ok(names.into_iter().zip(children).collect())
}

/// The value of a context that is JSON within a string.
fn inner_json(context: Value) -> Value {
    match context {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    }
}

/// The elements of an array as texts.
fn texts(array: &Value) -> Vec<String> {
    let items = array.as_array().into_iter().flatten();
    let text = |item: &Value| {
        item.as_str()
            .map_or_else(|| item.to_string(), str::to_string)
    };
    items.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_registered_structures() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let node = |class: &str, context: &str, count: usize| {
            let children = vec![leaf; count].join(", ");
            format!(r#"{{"type": "{class}", "context": {context}, "children_spec": [{children}]}}"#)
        };
        let fields = BTreeMap::from([(
            "m.P".to_string(),
            NamedTupleFields {
                field_names: vec!["a".into(), "b".into()],
            },
        )]);
        let parse = |text: String| Pytree::parse(&format!("[1, {text}]"), &fields);
        let dict = |names: [&str; 2]| names.map(|name| (name.to_string(), Pytree::Leaf)).to_vec();
        let cases = [
            (
                node("builtins.tuple", "\"null\"", 1),
                Pytree::Tuple(vec![Pytree::Leaf]),
            ),
            (
                node("collections.deque", "\"null\"", 1),
                Pytree::List(vec![Pytree::Leaf]),
            ),
            (
                node("builtins.dict", r#""[\"k\", 3]""#, 2),
                Pytree::Dict(dict(["k", "3"])),
            ),
            (
                node(
                    "collections.defaultdict",
                    r#"{"dict_context": ["a", "b"]}"#,
                    2,
                ),
                Pytree::Dict(dict(["a", "b"])),
            ),
            (
                node("collections.namedtuple", "\"m.P\"", 2),
                Pytree::Record("m.P".into(), dict(["a", "b"])),
            ),
            (
                node("m.D", r#""[[\"x\", \"y\"], []]""#, 2),
                Pytree::Record("m.D".into(), dict(["x", "y"])),
            ),
        ];
        for (text, tree) in cases {
            assert_eq!(parse(text).unwrap(), tree);
        }
        assert!(parse(node("builtins.dict", "\"[]\"", 1)).is_err());
        assert!(parse(node("m.Unknown", "\"null\"", 1)).is_err());
        assert!(Pytree::parse("[2, {}]", &fields).is_err());
    }
}
