//! Files of tensors: safetensors, NumPy's `.npy` and `.npz`, `torch.save` files.

use std::path::Path;

use crate::archive;
use crate::budget::Limits;
use crate::error::{Error, ErrorContext, Result};
use crate::file_kind::FileKind;
use crate::files;
use crate::storage::{ByteRange, ByteSource};
use crate::tensor::Tensor;

pub mod checksummed;
pub mod npy;
pub mod safetensors;

/// Named tensors in file order.
pub type NamedTensors = Vec<(String, Tensor)>;

/// Reads all tensors of a file; its content determines the format. A single tensor without a name gets the file's stem as
/// its name.
///
/// # Errors
/// The file cannot be read, is damaged, exceeds one of the default [`Limits`], or holds no tensors: the message names the
/// detected kind.
pub fn read(path: &Path) -> Result<NamedTensors> {
    read_with(path, &Limits::default())
}

/// Like [`read`], with other limits.
///
/// # Errors
/// As [`read`].
pub fn read_with(path: &Path, limits: &Limits) -> Result<NamedTensors> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .to_string();
    let bytes = || files::read(path).map_err(|error| Error::io(path, error));
    let found = match FileKind::of(path)? {
        FileKind::Safetensors => {
            safetensors::parse_copied(&ByteRange::whole(ByteSource::open(path)?), limits)
        }
        FileKind::Npy => npy::parse(&bytes()?).map(|tensor| vec![(stem, tensor)]),
        FileKind::Npz => npy::parse_archive_with(&bytes()?, limits),
        FileKind::StateDict(_) | FileKind::TorchScript => {
            return archive::read_tensors_with(path, limits);
        }
        other => return Err(other.without_tensors(path)),
    };
    found.at(|| path.display().to_string())
}

/// True if the file stores names of its tensors. A `.npy` file has one tensor, which is named after the file.
pub fn has_names(path: &Path) -> bool {
    !matches!(FileKind::of(path), Ok(FileKind::Npy))
}

/// Writes tensors to a file atomically; its extension determines the format (`.npz` for
/// a FIFO or a device without one).
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let format = match extension(path) {
        // A FIFO or a device need not have an extension.
        none if none.is_empty() && files::is_special(path) => "npz".to_string(),
        format => format,
    };
    let bytes = match (format.as_str(), tensors) {
        ("safetensors", _) => safetensors::serialize(tensors)?,
        ("npy", [(_, tensor)]) => npy::serialize(tensor)?,
        ("npy", _) => {
            return Err(Error::usage(
                "a .npy file holds one tensor; use .npz or .safetensors",
            ));
        }
        ("npz", _) => npy::serialize_archive(tensors)?,
        (other, _) => {
            return Err(Error::usage(format!(
                "cannot write {other:?}: use .npy, .npz or .safetensors"
            )));
        }
    };
    files::write(path, &bytes)
}

fn extension(path: &Path) -> String {
    path.extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase()
}
