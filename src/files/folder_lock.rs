//! Locks of folders, for files that belong together.

use std::fs::File;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Threads of this process that write several files into a folder, or read them.
static THREADS: RwLock<()> = RwLock::new(());

/// A lock of a folder, among this crate's processes on Unix and among the threads of this process everywhere. A file system
/// without locks has the second one only.
#[derive(Debug)]
pub struct FolderLock {
    _folder: Option<File>,
    _threads: Threads,
}

#[derive(Debug)]
enum Threads {
    One {
        _guard: RwLockWriteGuard<'static, ()>,
    },
    Many {
        _guard: RwLockReadGuard<'static, ()>,
    },
}

impl FolderLock {
    /// Waits until nobody else has the lock.
    pub fn exclusive(folder: &Path) -> FolderLock {
        let guard = THREADS.write().unwrap_or_else(PoisonError::into_inner);
        let locked = open(folder).filter(|folder| folder.lock().is_ok());
        FolderLock {
            _folder: locked,
            _threads: Threads::One { _guard: guard },
        }
    }

    /// Waits until nobody has the exclusive lock.
    pub fn shared(folder: &Path) -> FolderLock {
        let guard = THREADS.read().unwrap_or_else(PoisonError::into_inner);
        let locked = open(folder).filter(|folder| folder.lock_shared().is_ok());
        FolderLock {
            _folder: locked,
            _threads: Threads::Many { _guard: guard },
        }
    }
}

#[cfg(unix)]
fn open(folder: &Path) -> Option<File> {
    File::open(folder).ok()
}

/// Other systems do not lock folders.
#[cfg(not(unix))]
fn open(_: &Path) -> Option<File> {
    None
}
