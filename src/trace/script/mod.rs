//! Programs as syntax trees, and their execution on symbolic inputs.
//!
//! A front end makes a [`Script`] of a file: declarations ([`ast`]), an object tree with the weights, and places in the user's
//! source. [`import`](fn@import) runs a method of it and makes a graph of the tensor operations. The language is the subset of
//! Python that TorchScript's serialiser writes.

pub mod ast;
pub mod import;
mod inspect;
mod module_tensors;

use std::fmt;

pub use import::import;
pub use inspect::{has_control_flow, inspect};
pub use module_tensors::module_tensors;

use crate::archive::{Pickled, TensorRecord};
use crate::budget::Budget;
use crate::error::{Error, ErrorContext, Location, Result};
use crate::tensor::Tensor;
use crate::trace::program::InputSpec;
use ast::{ClassDef, FunctionDef};

/// A program with its weights, as [`import`](fn@import) reads it.
pub trait Script: fmt::Debug {
    /// The root module with all its attributes.
    fn root(&self) -> &Pickled;

    /// The constants that the program calls `CONSTANTS.c0`, `CONSTANTS.c1` and so on.
    fn constants(&self) -> &[Pickled];

    /// Looks up a qualified name; none if it is not declared.
    ///
    /// # Errors
    /// The program is damaged.
    fn declaration(&self, name: &str) -> Result<Option<Declaration<'_>>>;

    /// The arguments that a method was recorded with; none if the program holds none.
    ///
    /// # Errors
    /// An argument is of a kind that no graph takes.
    fn example_inputs(&self, method: &str) -> Result<Option<Vec<InputSpec>>>;

    /// The version of TorchScript's format whose operators the program calls; see `import::upgrade`.
    fn operator_version(&self) -> u32;

    /// The line of the user's own source that an offset in a file of the program comes from, if it was recorded.
    fn location(&self, file: &str, offset: usize) -> Option<Location>;

    /// The first such line at or after an offset. For the offset of a function, this is a line of its body.
    fn first_location(&self, file: &str, offset: usize) -> Option<Location>;

    /// The path of the module call that a statement belongs to, if the program says so. By default, it is that of the object
    /// whose method runs.
    fn module_path(&self, _file: &str, _offset: usize) -> Option<&str> {
        None
    }

    /// A tensor of the program. It may be read when it is used; copies are charged to the budget.
    ///
    /// # Errors
    /// The file has no such tensor.
    fn open_tensor(&self, record: &TensorRecord, budget: &Budget) -> Result<Tensor>;

    /// Reads a tensor of the program.
    ///
    /// # Errors
    /// The file has no such tensor, or cannot be read.
    fn read_tensor(&self, record: &TensorRecord, budget: &Budget) -> Result<Tensor> {
        let tensor = self.open_tensor(record, budget)?.load();
        tensor.at(|| format!("tensor {} of {}", record.tensor_type(), record.storage))
    }

    /// A budget for an import, of which nothing is used.
    fn new_budget(&self) -> Budget;

    /// The class of the root module.
    ///
    /// # Errors
    /// The program is damaged.
    fn root_class(&self) -> Result<&ClassDef> {
        let root = self.root().as_object();
        let root = root.ok_or_else(|| Error::format("data.pkl does not hold a module"))?;
        self.class(&root.class)
    }

    /// A class by its qualified name.
    ///
    /// # Errors
    /// There is no such class, or the program is damaged.
    fn class(&self, name: &str) -> Result<&ClassDef> {
        match self.declaration(name)? {
            Some(Declaration::Class(class)) => Ok(class),
            _ => Err(Error::source(format!(
                "the program declares no class {name}"
            ))),
        }
    }
}

/// The declaration that a qualified name stands for.
#[derive(Clone, Copy, Debug)]
pub enum Declaration<'a> {
    /// A class.
    Class(&'a ClassDef),
    /// A free function.
    Function(&'a FunctionDef),
}
