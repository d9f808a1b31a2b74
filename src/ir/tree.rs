use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim::Dim;
use crate::scalar::Scalar;

/// A nested structure of inputs or outputs, as the user's `forward` takes or returns it. Leaves are indices of the graph's
/// inputs or outputs, or constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeSpec {
    /// The tensor with this index among the graph's inputs or outputs.
    Tensor(usize),
    /// A Python number: the element of the scalar tensor with this index among the outputs.
    Number(usize),
    /// A value that was fixed when the graph was made.
    Constant(TreeConstant),
    /// An `int` that is a symbolic size.
    Size(Dim),
    /// A tuple.
    Tuple(Vec<TreeSpec>),
    /// A list.
    List(Vec<TreeSpec>),
    /// A dictionary with its keys in order.
    Dict(Vec<(String, TreeSpec)>),
    /// A named tuple: type name and fields.
    NamedTuple(String, Vec<(String, TreeSpec)>),
}

/// A leaf that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeConstant {
    /// `None`
    None,
    /// A number.
    Number(Scalar),
    /// A string.
    Str(String),
}

/// A named tree: an argument of the user's `forward`, or a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedTree {
    /// Name of the argument or state.
    pub name: String,
    /// Structure of its value.
    pub tree: TreeSpec,
}

impl TreeSpec {
    /// Indices of the tensors, from left to right.
    pub fn tensors(&self) -> Vec<usize> {
        match self {
            TreeSpec::Tensor(index) | TreeSpec::Number(index) => vec![*index],
            TreeSpec::Constant(_) | TreeSpec::Size(_) => Vec::new(),
            TreeSpec::Tuple(items) | TreeSpec::List(items) => {
                items.iter().flat_map(TreeSpec::tensors).collect()
            }
            TreeSpec::Dict(items) | TreeSpec::NamedTuple(_, items) => {
                items.iter().flat_map(|(_, item)| item.tensors()).collect()
            }
        }
    }
}

impl TreeSpec {
    /// Names and indices of the tensors, from left to right. A name is `prefix`, then `.` and the index or key of each
    /// level.
    pub fn leaves(&self, prefix: &str) -> Vec<(String, usize)> {
        match self {
            TreeSpec::Tensor(index) | TreeSpec::Number(index) => vec![(prefix.to_string(), *index)],
            TreeSpec::Constant(_) | TreeSpec::Size(_) => Vec::new(),
            TreeSpec::Tuple(items) | TreeSpec::List(items) => {
                let items = items.iter().enumerate();
                items
                    .flat_map(|(place, item)| item.leaves(&format!("{prefix}.{place}")))
                    .collect()
            }
            TreeSpec::Dict(fields) | TreeSpec::NamedTuple(_, fields) => {
                let fields = fields.iter();
                fields
                    .flat_map(|(key, item)| item.leaves(&format!("{prefix}.{key}")))
                    .collect()
            }
        }
    }
}

impl TreeSpec {
    /// Indices of the Python numbers, from left to right.
    pub fn numbers(&self) -> Vec<usize> {
        match self {
            TreeSpec::Number(index) => vec![*index],
            TreeSpec::Tensor(_) | TreeSpec::Constant(_) | TreeSpec::Size(_) => Vec::new(),
            TreeSpec::Tuple(items) | TreeSpec::List(items) => {
                items.iter().flat_map(TreeSpec::numbers).collect()
            }
            TreeSpec::Dict(items) | TreeSpec::NamedTuple(_, items) => {
                let items = items.iter();
                items.flat_map(|(_, item)| item.numbers()).collect()
            }
        }
    }

    /// The symbolic sizes among the leaves, from left to right.
    pub fn sizes(&self) -> Vec<&Dim> {
        match self {
            TreeSpec::Size(dim) => vec![dim],
            TreeSpec::Tensor(_) | TreeSpec::Number(_) | TreeSpec::Constant(_) => Vec::new(),
            TreeSpec::Tuple(items) | TreeSpec::List(items) => {
                items.iter().flat_map(TreeSpec::sizes).collect()
            }
            TreeSpec::Dict(items) | TreeSpec::NamedTuple(_, items) => {
                items.iter().flat_map(|(_, item)| item.sizes()).collect()
            }
        }
    }
}

impl TreeSpec {
    /// The structure with every tensor index replaced by a tree, also those of numbers.
    #[must_use]
    pub fn map_tensors(&self, tensor: &dyn Fn(usize) -> TreeSpec) -> TreeSpec {
        let all = |items: &[TreeSpec]| items.iter().map(|item| item.map_tensors(tensor)).collect();
        let fields = |items: &[(String, TreeSpec)]| {
            let field = |(key, item): &(String, TreeSpec)| (key.clone(), item.map_tensors(tensor));
            items.iter().map(field).collect()
        };
        match self {
            TreeSpec::Tensor(index) => tensor(*index),
            TreeSpec::Number(index) => match tensor(*index) {
                TreeSpec::Tensor(index) => TreeSpec::Number(index),
                other => other,
            },
            TreeSpec::Tuple(items) => TreeSpec::Tuple(all(items)),
            TreeSpec::List(items) => TreeSpec::List(all(items)),
            TreeSpec::Dict(items) => TreeSpec::Dict(fields(items)),
            TreeSpec::NamedTuple(name, items) => TreeSpec::NamedTuple(name.clone(), fields(items)),
            leaf => leaf.clone(),
        }
    }
}

impl TreeSpec {
    /// The structure with every size replaced by a tree.
    pub fn map_sizes<E>(
        &self,
        size: &mut impl FnMut(&Dim) -> Result<TreeSpec, E>,
    ) -> Result<TreeSpec, E> {
        let mut all = |items: &[TreeSpec]| -> Result<Vec<TreeSpec>, E> {
            items.iter().map(|item| item.map_sizes(size)).collect()
        };
        Ok(match self {
            TreeSpec::Size(dim) => size(dim)?,
            TreeSpec::Tuple(items) => TreeSpec::Tuple(all(items)?),
            TreeSpec::List(items) => TreeSpec::List(all(items)?),
            TreeSpec::Dict(items) => TreeSpec::Dict(map_fields(items, size)?),
            TreeSpec::NamedTuple(name, items) => {
                TreeSpec::NamedTuple(name.clone(), map_fields(items, size)?)
            }
            leaf => leaf.clone(),
        })
    }
}

fn map_fields<E>(
    items: &[(String, TreeSpec)],
    size: &mut impl FnMut(&Dim) -> Result<TreeSpec, E>,
) -> Result<Vec<(String, TreeSpec)>, E> {
    let field = |(key, item): &(String, TreeSpec)| Ok((key.clone(), item.map_sizes(size)?));
    items.iter().map(field).collect()
}

impl fmt::Display for TreeConstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeConstant::None => f.write_str("none"),
            TreeConstant::Number(number) => write!(f, "{number}"),
            TreeConstant::Str(text) => write!(f, "{text:?}"),
        }
    }
}
