//! Reader of exported programs (`torch.export.save`).
//!
//! A file is a package of documents in JSON (`schema`) and tensors (`package`). A document holds a graph of calls, which
//! `translate` makes a function of a [script](super::script); its import is that of TorchScript archives. No byte of a file is
//! trusted: for any contents, the result is a value or an error.

mod codes;
mod node_places;
mod package;
mod program;
mod pytree;
mod schema;
mod script;
mod size_expr;
mod translate;

pub use program::ExportedProgram;
