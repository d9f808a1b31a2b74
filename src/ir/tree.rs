use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim::Dim;
use crate::scalar::Scalar;

/// A nested structure of inputs or outputs, as the user's `forward` takes or returns it. Leaves are indices of the graph's
/// inputs or outputs, or constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tree {
    /// The tensor with this index among the graph's inputs or outputs.
    Tensor(usize),
    /// A Python number: the element of the scalar tensor with this index among the outputs.
    Number(usize),
    /// A value that was fixed when the graph was made.
    Constant(Constant),
    /// An `int` that is a symbolic size.
    Size(Dim),
    /// A tuple.
    Tuple(Vec<Tree>),
    /// A list.
    List(Vec<Tree>),
    /// A dictionary with its keys in order.
    Dict(Vec<(String, Tree)>),
    /// A named tuple: type name and fields.
    NamedTuple(String, Vec<(String, Tree)>),
}

/// A leaf that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constant {
    /// `None`
    None,
    /// A number.
    Number(Scalar),
    /// A string.
    Str(String),
}

/// A named tree: an argument of the user's `forward`, or a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Name of the argument or state.
    pub name: String,
    /// Structure of its value.
    pub tree: Tree,
}

impl Tree {
    /// Indices of the tensors, from left to right.
    pub fn tensors(&self) -> Vec<usize> {
        match self {
            Tree::Tensor(index) | Tree::Number(index) => vec![*index],
            Tree::Constant(_) | Tree::Size(_) => Vec::new(),
            Tree::Tuple(items) | Tree::List(items) => {
                items.iter().flat_map(Tree::tensors).collect()
            }
            Tree::Dict(items) | Tree::NamedTuple(_, items) => {
                items.iter().flat_map(|(_, item)| item.tensors()).collect()
            }
        }
    }
}

impl Tree {
    /// Names and indices of the tensors, from left to right. A name is `prefix`, then `.` and the index or key of each
    /// level.
    pub fn leaves(&self, prefix: &str) -> Vec<(String, usize)> {
        match self {
            Tree::Tensor(index) | Tree::Number(index) => vec![(prefix.to_string(), *index)],
            Tree::Constant(_) | Tree::Size(_) => Vec::new(),
            Tree::Tuple(items) | Tree::List(items) => {
                let items = items.iter().enumerate();
                items
                    .flat_map(|(place, item)| item.leaves(&format!("{prefix}.{place}")))
                    .collect()
            }
            Tree::Dict(fields) | Tree::NamedTuple(_, fields) => {
                let fields = fields.iter();
                fields
                    .flat_map(|(key, item)| item.leaves(&format!("{prefix}.{key}")))
                    .collect()
            }
        }
    }
}

impl Tree {
    /// The symbolic sizes among the leaves, from left to right.
    pub fn sizes(&self) -> Vec<&Dim> {
        match self {
            Tree::Size(dim) => vec![dim],
            Tree::Tensor(_) | Tree::Number(_) | Tree::Constant(_) => Vec::new(),
            Tree::Tuple(items) | Tree::List(items) => items.iter().flat_map(Tree::sizes).collect(),
            Tree::Dict(items) | Tree::NamedTuple(_, items) => {
                items.iter().flat_map(|(_, item)| item.sizes()).collect()
            }
        }
    }
}

impl Tree {
    /// The structure with every tensor index replaced by a tree.
    #[must_use]
    pub fn map_tensors(&self, tensor: &dyn Fn(usize) -> Tree) -> Tree {
        let all = |items: &[Tree]| items.iter().map(|item| item.map_tensors(tensor)).collect();
        let fields = |items: &[(String, Tree)]| {
            let field = |(key, item): &(String, Tree)| (key.clone(), item.map_tensors(tensor));
            items.iter().map(field).collect()
        };
        match self {
            Tree::Tensor(index) => tensor(*index),
            Tree::Tuple(items) => Tree::Tuple(all(items)),
            Tree::List(items) => Tree::List(all(items)),
            Tree::Dict(items) => Tree::Dict(fields(items)),
            Tree::NamedTuple(name, items) => Tree::NamedTuple(name.clone(), fields(items)),
            leaf => leaf.clone(),
        }
    }
}

impl Tree {
    /// The structure with every size replaced by a tree.
    pub fn map_sizes<E>(&self, size: &mut impl FnMut(&Dim) -> Result<Tree, E>) -> Result<Tree, E> {
        let mut all = |items: &[Tree]| -> Result<Vec<Tree>, E> {
            items.iter().map(|item| item.map_sizes(size)).collect()
        };
        Ok(match self {
            Tree::Size(dim) => size(dim)?,
            Tree::Tuple(items) => Tree::Tuple(all(items)?),
            Tree::List(items) => Tree::List(all(items)?),
            Tree::Dict(items) => Tree::Dict(map_fields(items, size)?),
            Tree::NamedTuple(name, items) => {
                Tree::NamedTuple(name.clone(), map_fields(items, size)?)
            }
            leaf => leaf.clone(),
        })
    }
}

fn map_fields<E>(
    items: &[(String, Tree)],
    size: &mut impl FnMut(&Dim) -> Result<Tree, E>,
) -> Result<Vec<(String, Tree)>, E> {
    let field = |(key, item): &(String, Tree)| Ok((key.clone(), item.map_sizes(size)?));
    items.iter().map(field).collect()
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::None => f.write_str("none"),
            Constant::Number(number) => write!(f, "{number}"),
            Constant::Str(text) => write!(f, "{text:?}"),
        }
    }
}
