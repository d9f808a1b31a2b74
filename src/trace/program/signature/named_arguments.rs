//! Conversion of named tensors to the arguments of a call.

use std::collections::BTreeMap;

use super::{ArgumentStructure, constant};
use crate::ir::{TreeConstant, TreeSpec};
use crate::item::Item;
use crate::tensor::Tensor;

/// Named tensors of a call, during the conversion to arguments.
#[derive(Default)]
pub(super) struct NamedArguments<'a> {
    /// Tensors that no argument has taken yet, by name.
    pub(super) unused: BTreeMap<&'a str, &'a Tensor>,
    /// Names that arguments require and that are not given.
    pub(super) missing: Vec<String>,
    /// Names that are given more than once.
    pub(super) duplicates: Vec<String>,
    /// Message about a tensor that is not a single number.
    pub(super) error: Option<String>,
}

impl NamedArguments<'_> {
    /// Removes and returns the tensor of a name.
    fn take(&mut self, name: &str) -> Option<Tensor> {
        self.unused.remove(name).cloned()
    }

    /// True if a tensor is given under a name, or under a dotted name that starts with it.
    pub(super) fn has(&self, name: &str) -> bool {
        let ends_key = |rest: &str| rest.is_empty() || rest.starts_with('.');
        self.unused
            .keys()
            .any(|key| key.strip_prefix(name).is_some_and(ends_key))
    }

    /// The tensor of a name. Records the name as missing if it is not given.
    fn required(&mut self, name: &str) -> Item {
        self.take(name).map_or_else(
            || {
                self.missing.push(name.to_string());
                Item::None
            },
            Item::Tensor,
        )
    }

    /// A number from a tensor of one element.
    fn number(&mut self, name: &str) -> Item {
        let Item::Tensor(tensor) = self.required(name) else {
            return Item::None;
        };
        tensor.item().map_or_else(
            |error| {
                self.error = Some(format!("input {name}: {}", error.message()));
                Item::None
            },
            Item::Number,
        )
    }

    /// The keys after a name and a dot, sorted numerically, then as text.
    fn keys(&self, name: &str) -> Vec<String> {
        let key = |given: &&str| {
            let rest = given.strip_prefix(name)?.strip_prefix('.')?;
            Some(rest.split('.').next()?.to_string())
        };
        let mut keys: Vec<String> = self.unused.keys().filter_map(key).collect();
        keys.sort_by_key(|key| (key.parse().unwrap_or(usize::MAX), key.clone()));
        keys.dedup();
        keys
    }
}

impl ArgumentStructure {
    /// Builds a value of this structure from the tensors whose names begin with `name`.
    pub(super) fn item(&self, name: &str, given: &mut NamedArguments) -> Item {
        match self {
            ArgumentStructure::Known(tree) => build_known(tree, name, given),
            ArgumentStructure::Inferred { is_list } => build_inferred(name, *is_list, given),
        }
    }
}

/// Builds a value of a known structure.
fn build_known(tree: &TreeSpec, name: &str, given: &mut NamedArguments) -> Item {
    let mut numbered = |items: &[TreeSpec]| -> Vec<Item> {
        let items = items.iter().enumerate();
        items
            .map(|(place, item)| build_known(item, &format!("{name}.{place}"), given))
            .collect()
    };
    match tree {
        TreeSpec::Tuple(items) => Item::Tuple(numbered(items)),
        TreeSpec::List(items) => Item::List(numbered(items)),
        TreeSpec::Tensor(_) => given.required(name),
        TreeSpec::Number(_) => given.number(name),
        TreeSpec::Constant(value) => match (value, given.has(name)) {
            (TreeConstant::Number(_), true) => given.number(name),
            (TreeConstant::None, true) => build_inferred(name, false, given),
            _ => constant(value),
        },
        TreeSpec::Size(_) => Item::None,
        TreeSpec::Dict(fields) => {
            let fields = fields.iter();
            let field = |(key, item): &(String, TreeSpec)| {
                (
                    key.clone(),
                    build_known(item, &format!("{name}.{key}"), given),
                )
            };
            Item::Dict(fields.map(field).collect())
        }
        TreeSpec::NamedTuple(_, fields) => {
            let fields = fields.iter().enumerate();
            let field = |(place, (key, item)): (usize, &(String, TreeSpec))| {
                let indexed_name = format!("{name}.{place}");
                let name = if given.has(&indexed_name) {
                    indexed_name
                } else {
                    format!("{name}.{key}")
                };
                build_known(item, &name, given)
            };
            Item::Tuple(fields.map(field).collect())
        }
    }
}

/// Builds a value whose structure follows from the given names: see [`ArgumentStructure::Inferred`].
fn build_inferred(name: &str, is_list: bool, given: &mut NamedArguments) -> Item {
    let keys = given.keys(name);
    if keys.is_empty() {
        return given.required(name);
    }
    let is_numbered = keys
        .iter()
        .enumerate()
        .all(|(place, key)| *key == place.to_string());
    let items: Vec<(String, Item)> = keys
        .into_iter()
        .map(|key| {
            let item = build_inferred(&format!("{name}.{key}"), false, given);
            (key, item)
        })
        .collect();
    match is_numbered {
        false => Item::Dict(items),
        true if is_list => Item::List(items.into_iter().map(|(_, item)| item).collect()),
        true => Item::Tuple(items.into_iter().map(|(_, item)| item).collect()),
    }
}
