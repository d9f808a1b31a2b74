//! Arguments and results of a user's `forward`: tensors in tuples, lists and dictionaries.

use crate::dim::Bindings;
use crate::error::{Error, ErrorContext, Result};
use crate::ir::{ModuleState, NamedTree, TreeConstant, TreeSpec, Weights};
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// A tensor, a plain value, or a nested structure of these.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A tensor.
    Tensor(Tensor),
    /// A `bool`, `int` or `float`.
    Number(Scalar),
    /// A string.
    Str(String),
    /// `None`
    None,
    /// A tuple or named tuple.
    Tuple(Vec<Item>),
    /// A list.
    List(Vec<Item>),
    /// A dictionary with string keys, in order.
    Dict(Vec<(String, Item)>),
}

impl From<Tensor> for Item {
    fn from(tensor: Tensor) -> Item {
        Item::Tensor(tensor)
    }
}

impl Item {
    /// The tensors, from left to right.
    pub fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Item::Tensor(tensor) => vec![tensor],
            Item::Tuple(items) | Item::List(items) => {
                items.iter().flat_map(Item::tensors).collect()
            }
            Item::Dict(items) => items.iter().flat_map(|(_, item)| item.tensors()).collect(),
            _ => Vec::new(),
        }
    }

    /// All leaves with their paths, such as `[0].mask`.
    pub fn leaves(&self) -> Vec<(String, &Item)> {
        let mut found = Vec::new();
        self.collect("", &mut found);
        found
    }

    fn collect<'a>(&'a self, path: &str, found: &mut Vec<(String, &'a Item)>) {
        match self {
            Item::Tuple(items) | Item::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.collect(&format!("{path}[{index}]"), found);
                }
            }
            Item::Dict(items) => {
                for (key, item) in items {
                    item.collect(&format!("{path}[{key:?}]"), found);
                }
            }
            leaf => found.push((path.to_string(), leaf)),
        }
    }

    /// Builds the value that a signature describes from a graph's output tensors.
    pub fn build(tree: &TreeSpec, tensors: &[Tensor], bindings: &Bindings) -> Result<Item> {
        Item::build_with(tree, &|index| output(tensors, index).cloned(), bindings)
    }

    /// Like [`Item::build`], with a function that returns the tensor of an output.
    pub(crate) fn build_with(
        tree: &TreeSpec,
        tensor: &dyn Fn(usize) -> Result<Tensor>,
        bindings: &Bindings,
    ) -> Result<Item> {
        let build = |item: &TreeSpec| Item::build_with(item, tensor, bindings);
        let all = |items: &[TreeSpec]| items.iter().map(build).collect::<Result<Vec<_>>>();
        Ok(match tree {
            TreeSpec::Tensor(index) => Item::Tensor(tensor(*index)?),
            TreeSpec::Number(index) => Item::Number(tensor(*index)?.item()?),
            TreeSpec::Constant(TreeConstant::None) => Item::None,
            TreeSpec::Constant(TreeConstant::Number(number)) => Item::Number(*number),
            TreeSpec::Constant(TreeConstant::Str(text)) => Item::Str(text.clone()),
            TreeSpec::Size(dim) => Item::Number(Scalar::Int(dim.eval(bindings)?)),
            TreeSpec::Tuple(items) => Item::Tuple(all(items)?),
            TreeSpec::NamedTuple(_, fields) => {
                let fields = fields.iter().map(|(_, item)| build(item));
                Item::Tuple(fields.collect::<Result<_>>()?)
            }
            TreeSpec::List(items) => Item::List(all(items)?),
            TreeSpec::Dict(items) => {
                let entry = |(key, item): &(String, TreeSpec)| Ok((key.clone(), build(item)?));
                Item::Dict(items.iter().map(entry).collect::<Result<_>>()?)
            }
        })
    }

    /// The item with a function applied to its tensors.
    pub(crate) fn try_map(&self, function: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Item> {
        let all = |items: &[Item]| {
            let items = items.iter().map(|item| item.try_map(function));
            items.collect::<Result<Vec<_>>>()
        };
        Ok(match self {
            Item::Tensor(tensor) => Item::Tensor(function(tensor)?),
            Item::Tuple(items) => Item::Tuple(all(items)?),
            Item::List(items) => Item::List(all(items)?),
            Item::Dict(items) => {
                let entry =
                    |(key, item): &(String, Item)| Ok((key.clone(), item.try_map(function)?));
                Item::Dict(items.iter().map(entry).collect::<Result<_>>()?)
            }
            other => other.clone(),
        })
    }
}

/// The value of a state before the first call.
pub fn initial_state(state: &ModuleState, weights: &Weights) -> Result<Item> {
    let weight = |name: &String| {
        let found = weights.get(name);
        let found = found.ok_or_else(|| Error::input(format!("there is no weight {name}")))?;
        found.load()
    };
    let tensors: Vec<Tensor> = state.weights.iter().map(weight).collect::<Result<_>>()?;
    Item::build(&state.initial, &tensors, &Bindings::new())
}

fn output(tensors: &[Tensor], index: usize) -> Result<&Tensor> {
    let found = tensors.get(index);
    found.ok_or_else(|| Error::internal(format!("there is no output {index}")))
}

/// The tensors of a call in the order of a graph's inputs; an error names the argument that does not match the signature.
pub fn flatten_arguments(signature: &[NamedTree], arguments: &[Item]) -> Result<Vec<Tensor>> {
    if arguments.len() > signature.len() {
        return Err(Error::input(format!(
            "{} arguments given, {} taken",
            arguments.len(),
            signature.len()
        )));
    }
    let mut found: Vec<(usize, Tensor)> = Vec::new();
    for (index, input) in signature.iter().enumerate() {
        let argument = arguments.get(index).unwrap_or(&Item::None);
        match_tree(&input.tree, argument, &input.name, &mut found)?;
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, tensor)| tensor).collect())
}

/// The tensors of states in the order of a graph's inputs; an error names the state for which the graph was not made.
pub fn flatten_states(reads: &[NamedTree], states: &[Item]) -> Result<Vec<Tensor>> {
    let mut pairs = reads.iter().zip(states);
    match pairs.find(|(read, state)| lacks_value(&read.tree, state)) {
        Some((read, _)) => Err(Error::input(format!(
            "the state {} is None, but the graph was made for a value",
            read.name
        ))),
        None => flatten_arguments(reads, states).at(|| "states of the model".to_string()),
    }
}

/// True if a value is `None` where the graph was made for another one. A state is never omitted, as an argument may be.
fn lacks_value(tree: &TreeSpec, item: &Item) -> bool {
    match (tree, item) {
        (TreeSpec::Constant(constant), Item::None) => *constant != TreeConstant::None,
        (
            TreeSpec::Tuple(trees) | TreeSpec::List(trees),
            Item::Tuple(items) | Item::List(items),
        ) => trees
            .iter()
            .zip(items)
            .any(|(tree, item)| lacks_value(tree, item)),
        (TreeSpec::Dict(trees), Item::Dict(items)) => trees
            .iter()
            .zip(items)
            .any(|((_, tree), (_, item))| lacks_value(tree, item)),
        _ => false,
    }
}

fn match_tree(
    tree: &TreeSpec,
    item: &Item,
    path: &str,
    found: &mut Vec<(usize, Tensor)>,
) -> Result<()> {
    let mismatch = || Error::input(format!("argument {path} does not fit the signature"));
    match (tree, item) {
        (TreeSpec::Tensor(index), Item::Tensor(tensor)) => found.push((*index, tensor.clone())),
        (TreeSpec::Constant(constant), item) => check_constant(constant, item, path)?,
        (TreeSpec::Number(index), Item::Number(number)) => {
            let scalar = Tensor::from_i64(number.dtype(), [], vec![number.to_i64()])?;
            found.push((*index, scalar));
        }
        (
            TreeSpec::Tuple(trees) | TreeSpec::List(trees),
            Item::Tuple(items) | Item::List(items),
        ) if trees.len() == items.len() => {
            for (index, (tree, item)) in trees.iter().zip(items).enumerate() {
                match_tree(tree, item, &format!("{path}[{index}]"), found)?;
            }
        }
        (TreeSpec::NamedTuple(_, fields), Item::Tuple(items)) if fields.len() == items.len() => {
            for ((name, tree), item) in fields.iter().zip(items) {
                match_tree(tree, item, &format!("{path}.{name}"), found)?;
            }
        }
        (TreeSpec::Dict(trees), Item::Dict(items)) => {
            for (key, tree) in trees {
                let known: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
                let entry = items.iter().find(|(name, _)| name == key);
                let (_, item) = entry.ok_or_else(|| {
                    Error::input(format!("missing key {key:?} in {path}, got {known:?}"))
                })?;
                match_tree(tree, item, &format!("{path}[{key:?}]"), found)?;
            }
        }
        _ => return Err(mismatch()),
    }
    Ok(())
}

/// Checks that a value equals the one that was fixed when the graph was made; an omitted argument keeps it.
fn check_constant(constant: &TreeConstant, item: &Item, path: &str) -> Result<()> {
    let same = match (constant, item) {
        (_, Item::None) => true,
        (TreeConstant::Number(fixed), Item::Number(given)) => fixed.to_f64() == given.to_f64(),
        (TreeConstant::Str(fixed), Item::Str(given)) => fixed == given,
        _ => false,
    };
    if same {
        return Ok(());
    }
    Err(Error::input(format!(
        "argument {path} is fixed to {constant} in this graph"
    ))
    .help("import the archive again with the other value"))
}
