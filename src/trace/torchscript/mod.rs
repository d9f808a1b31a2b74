//! Reader of TorchScript archives (`torch.jit.save`).
//!
//! An archive is a [`Container`](crate::archive::Container). Its records are the pickled root module, raw storages, the
//! program as Python-like text ([`source`], [`lexer`], [`parser`]), and debug records that map this text to lines
//! of the user's own files. [`Archive`] combines them without knowing the meaning of any operator. [`import`](fn@import) makes graphs of
//! an archive. No byte of a file is trusted: for any contents, the result is a value or an error.

pub mod archive;
pub mod lexer;
pub mod parser;
mod program;
mod script;
pub mod source;

pub use crate::trace::program::{EntryMethod, ImportOptions, InputSpec, SymbolicSizes};
pub use crate::trace::script::import;
pub use archive::Archive;
pub use source::ArchiveSource;
