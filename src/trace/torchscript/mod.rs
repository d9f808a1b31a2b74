//! Reader of TorchScript archives (`torch.jit.save`) and of plain `torch.save` files.
//!
//! An archive is a ZIP file ([`container`]), whose files PyTorch calls records. Its records are the pickled root module
//! ([`pickle`], [`value`]), raw storages ([`storage`]), the program as Python-like text ([`source`], [`lexer`],
//! [`parser`], [`ast`]), and debug records that map this text to lines of the user's own files ([`debug`]). [`Archive`]
//! combines them without knowing the meaning of any operator. [`import`](mod@import) makes graphs of an archive. Files
//! of `torch.save` are read by [`state_dict`]. No byte of a file is trusted: for any contents, the result is a value or
//! an error.

pub mod archive;
pub mod ast;
pub mod container;
pub mod debug;
pub mod import;
pub mod lexer;
pub mod parser;
pub mod pickle;
pub mod source;
pub mod state_dict;
pub mod storage;
pub mod value;

pub use archive::Archive;
pub use container::Container;
pub use import::{EntryMethod, ImportOptions, InputSpec, SymbolicSizes, import};
pub use source::ArchiveSource;
pub use state_dict::read_tensors;
pub use storage::TensorRecord;
pub use value::{Pickled, PickledDict, PickledList, PickledObject};
