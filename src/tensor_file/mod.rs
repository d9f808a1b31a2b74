//! Files of tensors: safetensors, NumPy's `.npy` and `.npz`, `torch.save` files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::archive;
use crate::error::{Error, ErrorContext, Result};
use crate::file_kind::FileKind;
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
/// The file cannot be read, is damaged, or holds no tensors: the message names the detected kind.
pub fn read(path: &Path) -> Result<NamedTensors> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .to_string();
    let bytes = || std::fs::read(path).map_err(|error| Error::io(path, error));
    let found = match FileKind::of(path)? {
        FileKind::Safetensors => safetensors::parse(&bytes()?),
        FileKind::Npy => npy::parse(&bytes()?).map(|tensor| vec![(stem, tensor)]),
        FileKind::Npz => npy::parse_archive(&bytes()?),
        FileKind::StateDict(_) | FileKind::TorchScript => {
            return archive::read_tensors(path);
        }
        other => return Err(other.without_tensors(path)),
    };
    found.at(|| path.display().to_string())
}

/// True if the file stores names of its tensors. A `.npy` file has one tensor, which is named after the file.
pub fn has_names(path: &Path) -> bool {
    !matches!(FileKind::of(path), Ok(FileKind::Npy))
}

/// Writes tensors to a file atomically; its extension determines the format.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let bytes = match (extension(path).as_str(), tensors) {
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
    write_atomic(path, &bytes)
}

/// Writes a file atomically: under a temporary name beside it, which is then renamed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_all_atomic(&[(path, bytes)])
}

/// Lets `write` write a file under a temporary name beside it, and renames it.
fn write_and_rename(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    // Several threads may write one file.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let temporary = temporary(path).with_extension(format!("{number}.tmp"));
    let sync = || std::fs::File::open(&temporary)?.sync_all();
    let written = write(&temporary).and_then(|()| {
        let renamed = sync().and_then(|()| std::fs::rename(&temporary, path));
        renamed.map_err(|error| Error::io(path, error))
    });
    written.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// Writes several files under temporary names before it renames any, so that a full disk leaves the old ones intact.
pub fn write_all_atomic(files: &[(&Path, &[u8])]) -> Result<()> {
    let write = |path: &Path, bytes: &[u8]| {
        let mut file = std::fs::File::create(temporary(path))?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let written = files
        .iter()
        .try_for_each(|(path, bytes)| write(path, bytes).map_err(|error| Error::io(*path, error)))
        .and_then(|()| {
            files.iter().try_for_each(|(path, _)| {
                std::fs::rename(temporary(path), path).map_err(|error| Error::io(*path, error))
            })
        });
    if written.is_err() {
        for (path, _) in files {
            let _ = std::fs::remove_file(temporary(path));
        }
    }
    written
}

fn extension(path: &Path) -> String {
    path.extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase()
}
