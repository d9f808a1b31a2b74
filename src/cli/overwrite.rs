//! Checks whether a command may write a file: a new one, or one that this program wrote.
//!
//! Files of this program carry a mark: JSON a field `format` that begins with `onionskin`, safetensors the entry `kind` of
//! its metadata, a `.npz` file its comment, a page its generator, a text report its first line. A `.npy` file cannot carry
//! one and is overwritten only with `--force`. A file that the command reads is never overwritten.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use clap::Args;

use super::argument_errors::check_folder;
use super::output;
use crate::error::{Error, Result};
use crate::files;

/// `--force`, for commands that write files.
#[derive(Args)]
pub(super) struct Overwrite {
    /// Overwrite files that are not marked as written by onionskin, and write files with unusual extensions.
    #[arg(long)]
    force: bool,
}

/// Generator tag of HTML pages.
pub(super) const PAGE_MARK: &str = "<meta name=\"generator\" content=\"onionskin\">";
/// First line of text reports.
pub(super) const REPORT_MARK: &str = "# written by onionskin";

/// Number of bytes at either end of a file that are searched for the mark.
const MARK_SEARCH_BYTES: u64 = 4096;

impl Overwrite {
    /// Checks that a file may be written.
    ///
    /// # Errors
    /// The command reads the file; or, without `--force`, another program wrote the file or its extension is unusual.
    pub(super) fn check(&self, path: &Path, endings: &[&str], read: &[PathBuf]) -> Result<()> {
        let shown = path.display();
        if read.iter().any(|read| is_same(read, path)) {
            let message = format!("{shown} is an input of this command and cannot be its output");
            return Err(Error::usage(message).help("name another file"));
        }
        check_folder(path)?;
        if files::is_standard_output(path) {
            output::give_up_standard_output();
        }
        if path.is_dir() {
            let message = format!("{shown} is a folder");
            return Err(Error::usage(message).help("name a file, such as one in it"));
        }
        if self.force || files::is_special(path) {
            return Ok(());
        }
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if !endings.contains(&ending.to_lowercase().as_str()) {
            let message = format!("{shown} does not end in .{}", endings.join(" or ."));
            return Err(
                Error::usage(message).help("name another file, or write to this one with --force")
            );
        }
        if path.exists() && !is_ours(path) {
            let message = format!("{shown} exists and is not marked as written by onionskin");
            return Err(
                Error::usage(message).help("name another file, or overwrite it with --force")
            );
        }
        Ok(())
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// True if a file carries the mark of this program.
fn is_ours(path: &Path) -> bool {
    let Ok((head, tail)) = ends(path) else {
        return false;
    };
    let text = String::from_utf8_lossy(&head);
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let is_json = dense.starts_with('{') && dense.contains("\"format\":\"onionskin");
    let metadata = head.get(8..).unwrap_or_default();
    let metadata = String::from_utf8_lossy(metadata);
    let kind = metadata.strip_prefix("{\"__metadata__\":{\"kind\":\"");
    let is_tensors = kind
        .and_then(|kind| kind.split('"').next())
        .is_some_and(|kind| kind.contains("onionskin"));
    let is_page = text.starts_with("<!DOCTYPE html>") && text.contains(PAGE_MARK);
    let is_archive =
        head.starts_with(b"PK") && tail.ends_with(crate::tensor_file::npy::COMMENT.as_bytes());
    is_json || is_tensors || is_page || is_archive || text.starts_with(REPORT_MARK)
}

/// Reads the first and the last [`MARK_SEARCH_BYTES`] bytes of a file.
fn ends(path: &Path) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let mut file = files::open(path)?;
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    (&mut file).take(MARK_SEARCH_BYTES).read_to_end(&mut head)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MARK_SEARCH_BYTES)))?;
    file.take(MARK_SEARCH_BYTES).read_to_end(&mut tail)?;
    Ok((head, tail))
}
