//! Outputs: files that are whole or not there at all.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::temporary::Temporary;
use crate::error::{Error, Result};

/// Standard output under the name that Unix systems give it.
const STANDARD_OUTPUT: &str = "/dev/stdout";

/// A file that is being written. Dropping it leaves the old file as it was.
pub struct Output {
    path: PathBuf,
    /// `None` for a special file, which is written in place.
    temporary: Option<Temporary>,
}

impl Output {
    /// Begins to write a file. Replaces it when [`Output::finish`] is called. A FIFO or a device is written in place.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new(path: &Path) -> Result<Output> {
        let temporary = match is_special(path) {
            true => None,
            false => Some(Temporary::file_beside(path).map_err(|error| Error::io(path, error))?),
        };
        let path = path.to_path_buf();
        Ok(Output { path, temporary })
    }

    /// The file to write to until [`Output::finish`] is called.
    pub fn path(&self) -> &Path {
        match &self.temporary {
            Some(temporary) => &temporary.path,
            None => &self.path,
        }
    }

    /// Writes bytes after those that were written.
    ///
    /// # Errors
    /// The disk is full, for instance.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let temporary = self.temporary.as_ref();
        let written = match temporary.and_then(|temporary| temporary.file.as_ref()) {
            Some(mut file) => file.write_all(bytes),
            None => write_in_place(&self.path, bytes),
        };
        written.map_err(|error| Error::io(&self.path, error))
    }

    /// Brings the content to the disk, and replaces the file.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn finish(self) -> Result<()> {
        let Output { path, temporary } = self;
        let renamed = temporary.map_or(Ok(()), |temporary| temporary.rename(&path));
        renamed.map_err(|error| Error::io(path, error))
    }
}

/// A folder that is being written. Dropping it leaves nothing.
pub struct OutputFolder {
    path: PathBuf,
    temporary: Temporary,
}

impl OutputFolder {
    /// Begins to write a folder that does not exist or is empty.
    ///
    /// # Errors
    /// The folder above it cannot be written.
    pub fn new(path: &Path) -> Result<OutputFolder> {
        let temporary = Temporary::folder_beside(path).map_err(|error| Error::io(path, error))?;
        let path = path.to_path_buf();
        Ok(OutputFolder { path, temporary })
    }

    /// The folder to write into until [`OutputFolder::finish`] is called.
    pub fn path(&self) -> &Path {
        &self.temporary.path
    }

    /// Gives the folder its name.
    ///
    /// # Errors
    /// There is a folder of that name, and it is not empty.
    pub fn finish(self) -> Result<()> {
        // Not every system renames a folder over an empty one.
        let _ = std::fs::remove_dir(&self.path);
        let renamed = self.temporary.rename(&self.path);
        renamed.map_err(|error| Error::io(self.path, error))
    }
}

/// True for files that are written in place: FIFOs, devices, and what programs find in `/dev`, such as `/dev/stdout`.
pub fn is_special(path: &Path) -> bool {
    let is_device = path.starts_with("/dev") || path.starts_with("/proc");
    match std::fs::metadata(path) {
        Ok(found) => !found.is_dir() && (is_device || !found.is_file()),
        Err(_) => false,
    }
}

/// Writes a file; see [`Output`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_all(&[(path, bytes)])
}

/// Writes several files: all of them before it replaces any, so that a full disk leaves the old ones intact.
pub fn write_all(files: &[(&Path, &[u8])]) -> Result<()> {
    let mut outputs = Vec::new();
    for (path, bytes) in files {
        let mut output = Output::new(path)?;
        output.write(bytes)?;
        outputs.push(output);
    }
    outputs.into_iter().try_for_each(Output::finish)
}

/// True for the name of standard output.
pub fn is_standard_output(path: &Path) -> bool {
    path == Path::new(STANDARD_OUTPUT)
}

fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_standard_output(path) {
        return write_standard_output(bytes);
    }
    OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

/// Writes to standard output behind everything that was printed before. A closed pipe is not an error.
fn write_standard_output(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
