//! The trace checker: is a graph what the function does, for these inputs and for others?
//!
//! [`Finding`]s, of the tracer and of the checker, have ids of the [`catalog`], which explains each.

pub mod catalog;
mod finding;

pub use catalog::{Entry, Id, Severity, entries, explain};
pub use finding::{Allow, Finding};

use crate::error::Result;
use crate::ir::Module;
use crate::item::Item;

/// What can be traced again and called: a Rust closure, a module of libtorch, an archive.
pub trait Subject {
    /// Traces from nothing, with these arguments as the example.
    ///
    /// # Errors
    /// The function cannot be traced for these arguments.
    fn trace(&self, arguments: &[Item]) -> Result<Traced>;

    /// Calls the function itself, without a graph.
    ///
    /// # Errors
    /// The function fails for these arguments.
    fn call(&self, arguments: &[Item]) -> Result<Item>;

    /// Sets the random state, so that calls and traces after it draw the same numbers. The default is for functions that
    /// draw none.
    fn seed(&self, _seed: u64) {}
}

/// A module of graphs, and what the tracer warned of while it made them.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// The graphs and weights.
    pub module: Module,
    /// In the order in which they were found.
    pub warnings: Vec<Finding>,
}
