//! Calls of graphs with named arguments.

use crate::error::{Error, Result};
use crate::ir::NamedTree;
use crate::item::Item;
use crate::trace::check::Traced;

use super::argument_errors::closest_word;
use super::subject::items;
use super::tree::Tree;

impl Traced {
    /// [`call`](Traced::call) with named arguments in any order: `traced.call_named([("x", x), ("mask", mask)])`.
    ///
    /// # Errors
    /// A name is unknown, missing or given twice; the inputs do not fit, or an operation fails.
    pub fn call_named<'n, I: Tree, O: Tree>(
        &self,
        inputs: impl IntoIterator<Item = (&'n str, I)>,
    ) -> Result<O> {
        let signature = &self.graph("forward")?.input_trees;
        let mut arguments: Vec<Option<Item>> = vec![None; signature.len()];
        for (name, value) in inputs {
            let position = signature.iter().position(|input| input.name == name);
            let position = position.ok_or_else(|| unknown_input(name, signature))?;
            if arguments[position]
                .replace(argument_item(name, &value)?)
                .is_some()
            {
                return Err(Error::input(format!("input `{name}` is given twice")));
            }
        }
        self.run("forward", &complete_arguments(signature, arguments)?)
    }
}

/// Converts the argument `name` to an item.
fn argument_item<I: Tree>(name: &str, value: &I) -> Result<Item> {
    let mut leaves = Vec::new();
    let spec = value.flatten(name, &mut leaves)?;
    let mut argument = items(std::iter::once(&spec), &leaves)?;
    Ok(argument.pop().unwrap_or(Item::None))
}

/// Returns the arguments, which are in the order of the signature. An argument without tensors may be left out.
fn complete_arguments(signature: &[NamedTree], arguments: Vec<Option<Item>>) -> Result<Vec<Item>> {
    let pairs = signature.iter().zip(arguments);
    let argument = |(input, argument): (&NamedTree, Option<Item>)| match argument {
        Some(argument) => Ok(argument),
        None if input.tree.tensors().is_empty() => Ok(Item::None),
        None => Err(Error::input(format!("input `{}` is missing", input.name))
            .help(format!("it takes {}", names(signature).join(", ")))),
    };
    pairs.map(argument).collect()
}

/// Names of the arguments.
fn names(signature: &[NamedTree]) -> Vec<&str> {
    signature.iter().map(|input| input.name.as_str()).collect()
}

/// The error for an argument that the signature does not have.
fn unknown_input(name: &str, signature: &[NamedTree]) -> Error {
    let known = names(signature);
    let message = format!("no input `{name}`; it takes {}", known.join(", "));
    match closest_word(name, &known) {
        Some(similar) => Error::input(message).help(format!("did you mean `{similar}`?")),
        None => Error::input(message),
    }
}
