//! Programs, and what the front ends offer of each: its methods, their inputs, graphs for given inputs, and findings.
//!
//! A front end makes a [`SourceProgram`] of a file. The trace checker, [`Model`](crate::Model) and the command line know programs
//! only, so that they work with every front end alike.

mod graphs;
mod method_subject;
mod module_tensors;
mod options;
mod signature;

use std::fmt;

pub use crate::trace::symbolic_sizes::SymbolicSizes;
pub use method_subject::MethodSubject;
pub use module_tensors::ModuleTensors;
pub use options::{EntryMethod, ImportOptions, InputSpec};
pub(crate) use signature::arguments_of;
pub use signature::{ArgumentStructure, MethodParameter, Signature, SignatureInput};

use crate::error::Result;
use crate::ir::GraphModule;
use crate::trace::check::{Finding, SubjectKind};

/// A program with its weights, as a front end reads it from a file: a TorchScript archive, or graphs that were imported
/// before.
pub trait SourceProgram: fmt::Debug + Send + Sync {
    /// The kind of code that the calls of a method run.
    fn kind(&self) -> SubjectKind;

    /// The format of the file: `TorchScript archive`.
    fn format(&self) -> &'static str;

    /// Version of the file's format.
    fn format_version(&self) -> u64;

    /// Names of the methods that have example inputs, or `forward`.
    fn entries(&self) -> Vec<String>;

    /// Names of all methods that can be imported.
    fn methods(&self) -> Vec<String>;

    /// The inputs of a method by name, without an import.
    ///
    /// # Errors
    /// The program has no such method, or is damaged.
    fn signature(&self, method: &str) -> Result<Signature>;

    /// Imports methods as graphs. Their weights may be read from a file when they are used; see [`crate::tensor::Tensor::load`].
    ///
    /// # Errors
    /// One error lists everything that is not supported. Programs without example inputs need those of the options.
    fn import(&self, options: &ImportOptions) -> Result<GraphModule>;

    /// True if an import for other inputs may give other graphs.
    fn can_reimport(&self) -> bool;

    /// Findings about the whole program that need no run, including methods that are never called.
    ///
    /// # Errors
    /// The program is damaged.
    fn inspect(&self) -> Result<Vec<Finding>>;

    /// The modules of the program with their parameters and buffers.
    fn module_tensors(&self) -> ModuleTensors;
}
