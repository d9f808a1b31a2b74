//! TorchScript archives (`torch.jit.save`) from bytes to data structures, and plain `torch.save` files.
//!
//! An archive is a ZIP [`container`] with the pickled root module ([`pickle`], [`value`]), raw storages
//! ([`storage`]), and the program as text ([`lexer`], [`parser`], [`ast`]) with a record of where each piece came
//! from in the user's own files ([`debug`]). [`Archive`] holds all of it together; nothing here knows what an
//! operator does. No byte of an archive is trusted: whatever it holds, the result is a value or an error.

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
pub use import::{Entry, ImportOptions, InputSpec, Sizes, import};
pub use source::Source;
pub use state_dict::read_tensors;
pub use storage::TensorRecord;
pub use value::{Dict, List, Object, Pickled};
