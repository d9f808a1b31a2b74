//! Files that PyTorch saves: ZIP files with pickles and raw storages.
//!
//! A [`Container`] is the ZIP file; PyTorch calls the files in it records. A record may be a [`pickle`], whose values are
//! [`Pickled`], or the bytes of a storage, of which a [`TensorRecord`] is a part. `.debug_pkl` records map code to lines of
//! the user's own files ([`debug`]). [`read_tensors`] reads files of `torch.save`. This layer does not know what a program
//! means; the front ends in [`trace`](crate::trace) do. No byte of a file is trusted: for any contents, the result is a value
//! or an error.

pub mod container;
pub mod debug;
pub mod pickle;
pub mod state_dict;
pub mod tensor_record;

pub use container::Container;
pub(crate) use container::inflate;
pub use pickle::{Pickled, PickledDict, PickledList, PickledObject};
pub use state_dict::read_tensors;
pub(crate) use state_dict::read_tensors_with;
pub use tensor_record::TensorRecord;
