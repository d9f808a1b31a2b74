//! Temporary files and folders, whose names are unique among all threads and processes.

use std::collections::VecDeque;
#[cfg(unix)]
use std::fs::TryLockError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::folder_of;

const PREFIX: &str = ".onionskin-";
const SUFFIX: &str = ".tmp";
/// Number of folders that are known to hold no abandoned files.
const MAX_KNOWN_FOLDERS: usize = 16;

/// A file or a folder under a temporary name, which is removed when this is dropped. It is locked until then: the lock of a
/// process that is killed ends with it, and the next process that writes beside it removes it.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    /// `None` for a folder on systems that do not open folders.
    pub(super) file: Option<File>,
    is_renamed: bool,
}

impl Temporary {
    /// Creates a file beside another.
    pub(super) fn file_beside(path: &Path) -> Result<Temporary> {
        Temporary::beside(path, |path| {
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            Ok(Some(file))
        })
    }

    /// Creates a folder beside another.
    pub(super) fn folder_beside(path: &Path) -> Result<Temporary> {
        Temporary::beside(path, |path| {
            std::fs::create_dir(path)?;
            Ok(File::open(path).ok().filter(|_| cfg!(unix)))
        })
    }

    fn beside(path: &Path, create: impl Fn(&Path) -> Result<Option<File>>) -> Result<Temporary> {
        static CREATED: AtomicUsize = AtomicUsize::new(0);
        let folder = folder_of(path);
        if is_new(folder) {
            remove_abandoned(folder);
        }
        loop {
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id());
            let path = folder.join(name);
            let file = match create(&path) {
                // A process with this number left it behind, or works on another machine.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            let made = Temporary {
                path,
                file,
                is_renamed: false,
            };
            if made.is_locked() {
                return Ok(made);
            }
        }
    }

    /// Locks the file. False if another process has taken it for an abandoned one before it was locked.
    #[cfg(unix)]
    fn is_locked(&self) -> bool {
        // Where a file system has no locks, nobody takes a file for abandoned.
        let locked = self.file.as_ref().map(File::try_lock);
        !matches!(locked, Some(Err(TryLockError::WouldBlock))) && self.path.exists()
    }

    /// Locks of other systems forbid to write to the file by its name.
    #[cfg(not(unix))]
    fn is_locked(&self) -> bool {
        true
    }

    /// Brings the content to the disk and gives it its name.
    pub(super) fn rename(mut self, path: &Path) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), sync)?;
        std::fs::rename(&self.path, path)?;
        self.is_renamed = true;
        sync_folder(folder_of(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Brings a file, or the names in a folder, to the disk. Some file systems cannot do that for folders, and need not.
fn sync(file: &File) -> Result<()> {
    match file.sync_all() {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Brings the names in a folder to the disk.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> Result<()> {
    sync(&File::open(folder)?)
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}

/// True unless this process has lately written to the folder. Listing a folder at each write would take the square of the
/// number of its files.
fn is_new(folder: &Path) -> bool {
    static LATEST: Mutex<VecDeque<PathBuf>> = Mutex::new(VecDeque::new());
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    if latest.iter().any(|known| known == folder) {
        return false;
    }
    latest.truncate(MAX_KNOWN_FOLDERS - 1);
    latest.push_front(folder.to_owned());
    true
}

/// Removes what processes that have ended left behind. Failures are ignored: the next process tries again.
#[cfg(unix)]
fn remove_abandoned(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| is_temporary(&entry.file_name().to_string_lossy()));
    for path in ours.map(|entry| entry.path()) {
        let is_folder = path.is_dir() && !path.is_symlink();
        let opened = match is_folder {
            true => File::open(&path),
            false => super::open(&path),
        };
        // It is removed while it is locked, so that no other process can begin to use it.
        let locked = opened.ok().filter(|file| file.try_lock().is_ok());
        let _ = match (locked.is_some(), is_folder) {
            (true, true) => std::fs::remove_dir_all(&path),
            (true, false) => std::fs::remove_file(&path),
            (false, _) => Ok(()),
        };
    }
}

#[cfg(not(unix))]
fn remove_abandoned(_: &Path) {}

/// True for the names that [`Temporary::file_beside`] gives.
#[cfg(unix)]
fn is_temporary(name: &str) -> bool {
    let numbers = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .and_then(|rest| rest.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_files_are_removed() {
        let folder = std::env::temp_dir().join(format!("onionskin-left-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let names = [
            ".onionskin-1-2.tmp",
            ".onionskin-1-x.tmp",
            "onionskin-1-2.tmp",
        ];
        for name in names {
            std::fs::write(folder.join(name), "x").unwrap();
        }
        let left = folder.join(".onionskin-7-0.tmp");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("x"), "x").unwrap();
        let kept = Temporary::folder_beside(&folder.join("b")).unwrap();
        let first = Temporary::file_beside(&folder.join("a")).unwrap();
        let second = Temporary::file_beside(&folder.join("a")).unwrap();
        let exist = names.map(|name| folder.join(name).exists());
        assert_eq!(exist, [false, true, true]);
        assert!(first.path != second.path && first.path.exists() && second.path.exists());
        assert!(kept.path.exists() && !left.exists());
        let paths = [second.path.clone(), kept.path.clone()];
        drop((second, kept));
        assert!(paths.iter().all(|path| !path.exists()));
        first.rename(&folder.join("a")).unwrap();
        assert!(folder.join("a").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
