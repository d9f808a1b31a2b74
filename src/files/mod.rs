//! Files: all reads and writes of the crate.
//!
//! Inputs are regular files: anything else is refused before it is opened, since opening a FIFO may wait for ever. Outputs are
//! whole or not there at all: they are written under a temporary name beside the file, which is then renamed.

mod folder_lock;
mod input;
mod output;
mod temporary;

pub use folder_lock::FolderLock;
pub use input::{open, read, read_to_string};
pub use output::{Output, OutputFolder, is_special, is_standard_output, write, write_all};

use std::path::Path;

/// The folder of a file; `.` for a plain name.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let named = folder.filter(|folder| !folder.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}
