//! The file of a document's weights: its name, and its replacement together with the document.

use std::path::Path;

use serde::Deserialize;

use crate::digest::Digest;
use crate::error::Result;
use crate::files::{self, FolderLock, Output};
use crate::ir::graph::{GraphModule, Weights};
use crate::tensor_file::{checksummed, safetensors};

/// Number of hexadecimal digits of the content's digest in the name.
const DIGEST_DIGITS: usize = 16;
const SUFFIX: &str = ".safetensors";

/// Weights that are about to be written.
pub(super) struct WeightsFile<'a> {
    /// A plain name that follows from the document's name and the content.
    pub(super) name: String,
    weights: &'a Weights,
}

impl WeightsFile<'_> {
    /// The weights of a module; `None` if it has none.
    pub(super) fn of<'a>(
        module: &'a GraphModule,
        document: &Path,
    ) -> Result<Option<WeightsFile<'a>>> {
        if module.weights.is_empty() {
            return Ok(None);
        }
        let mut content = String::new();
        for (name, tensor) in &module.weights {
            content += &format!("{} of {name:?}\n", Digest::of_tensor(tensor)?);
        }
        let stem = document.file_stem().unwrap_or_default().to_string_lossy();
        let digest = Digest::of(content.as_bytes()).to_string();
        let digits = digest.get(..DIGEST_DIGITS).unwrap_or_default();
        Ok(Some(WeightsFile {
            name: format!("{stem}-{digits}{SUFFIX}"),
            weights: &module.weights,
        }))
    }
}

/// Replaces a document that was written, and its weights: the document last. Removes the weights that the old document names,
/// if nothing names them any more.
pub(super) fn replace(path: &Path, document: Output, weights: Option<WeightsFile>) -> Result<()> {
    if files::is_special(path) {
        return document.finish();
    }
    let written = weights.map(|weights| {
        let output = Output::new(&path.with_file_name(&weights.name))?;
        safetensors::write(output.path(), weights.weights.iter())?;
        Ok((weights.name, output))
    });
    let (name, written) = written.transpose()?.unzip();
    // Another save must neither remove these weights before the document names them, nor be robbed of its own.
    let _lock = FolderLock::exclusive(files::folder_of(path));
    let old = named_weights(path).filter(|old| Some(old) != name.as_ref());
    written.map_or(Ok(()), Output::finish)?;
    document.finish()?;
    if let Some(old) = old {
        remove_unnamed(path, &old);
    }
    Ok(())
}

/// True for a file name without a folder.
pub(super) fn is_plain_name(name: &str) -> bool {
    Path::new(name).file_name() == Some(name.as_ref())
}

/// The weights file that a document names.
fn named_weights(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        weights: Option<File>,
    }
    #[derive(Deserialize)]
    struct File {
        file: String,
    }
    let named: Named = serde_json::from_slice(&files::read(path).ok()?).ok()?;
    named.weights.map(|weights| weights.file)
}

/// Removes a file of weights if this crate wrote it and no document in the folder names it. Failures are ignored: the file takes
/// space, but does no harm.
fn remove_unnamed(document: &Path, name: &str) {
    let path = document.with_file_name(name);
    let is_ours = is_written_name(name) && checksummed::has_kind_prefix(&path, safetensors::KIND);
    if is_ours && !is_named_in(files::folder_of(document), name) {
        let _ = std::fs::remove_file(path);
    }
}

/// True for the names that [`WeightsFile::of`] gives.
fn is_written_name(name: &str) -> bool {
    let digits = name
        .strip_suffix(SUFFIX)
        .and_then(|rest| rest.rsplit_once('-'));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_digest = |digits: &str| digits.len() == DIGEST_DIGITS && digits.bytes().all(is_digit);
    is_plain_name(name) && digits.is_some_and(|(_, digits)| is_digest(digits))
}

/// True if a `.json` file in a folder has a name in it, or cannot be read.
fn is_named_in(folder: &Path, name: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return true;
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut documents =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    documents.any(|path| match files::read(&path) {
        Ok(text) => String::from_utf8_lossy(&text).contains(name),
        Err(_) => !files::is_special(&path),
    })
}
