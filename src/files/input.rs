//! Inputs: regular files only.

use std::fs::{File, FileType, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Opens a regular file for reading. Never waits, as opening a FIFO would.
///
/// # Errors
/// The file cannot be opened, or is a folder, a FIFO, a device or a socket: the message says which.
pub fn open(path: &Path) -> Result<File> {
    // Opening a device may do something, so its type is checked first.
    check_type(std::fs::metadata(path)?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    never_wait(&mut options);
    let file = options.open(path)?;
    // Another process may have replaced the file in between.
    check_type(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file; see [`open`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file of UTF-8 text; see [`open`].
pub fn read_to_string(path: &Path) -> Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

// Miri knows no such flag.
#[cfg(all(unix, not(miri)))]
fn never_wait(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK);
}

#[cfg(any(not(unix), miri))]
fn never_wait(_: &mut OpenOptions) {}

fn check_type(found: FileType) -> Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let message = format!("expected a regular file, found {}", describe(found));
    Err(Error::new(ErrorKind::InvalidInput, message))
}

#[cfg(unix)]
fn describe(found: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match found {
        found if found.is_dir() => "a folder",
        found if found.is_fifo() => "a FIFO (a pipe)",
        found if found.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn describe(found: FileType) -> &'static str {
    match found.is_dir() {
        true => "a folder",
        false => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_devices_are_refused() {
        let told = |path| open(Path::new(path)).unwrap_err().to_string();
        assert_eq!(told("src"), "expected a regular file, found a folder");
        #[cfg(unix)]
        assert_eq!(told("/dev/null"), "expected a regular file, found a device");
        assert!(
            read(Path::new("Cargo.toml"))
                .unwrap()
                .starts_with(b"[package]")
        );
    }
}
