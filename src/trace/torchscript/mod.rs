//! Reader of TorchScript archives (`torch.jit.save`) and of plain `torch.save` files.
//!
//! An archive is a ZIP [`container`] with the pickled root module ([`pickle`], [`value`]), raw storages ([`storage`]), and
//! the program as text ([`lexer`], [`parser`], [`ast`]) with a record of the lines in the user's own files that it comes
//! from ([`debug`]). [`Archive`] combines them without knowing the meaning of any operator; [`import`](mod@import) makes graphs of it.
//! No byte of an archive is trusted: whatever it holds, the result is a value or an error.

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
