//! Writes outside of traces, which can be undone: the trace checker calls a program without changing its tensors.

use std::cell::RefCell;
use std::sync::Arc;

use super::storage::{Contents, TracedStorage};

/// Contents of storages before each write, in order.
type UndoLog = Vec<(Arc<TracedStorage>, Contents)>;

thread_local! {
    /// The writes so far, while [`with_rollback`] runs.
    static UNDO_LOG: RefCell<Option<UndoLog>> = const { RefCell::new(None) };
}

/// Replaces the contents of a storage.
pub(super) fn set_contents(storage: &Arc<TracedStorage>, contents: Contents) {
    UNDO_LOG.with_borrow_mut(|undo_log| {
        if let Some(entries) = undo_log {
            entries.push((storage.clone(), storage.contents()));
        }
    });
    storage.set_contents(contents);
}

/// Runs a part of the program, then restores all storages that it wrote, even after a panic.
pub(super) fn with_rollback<T>(program: impl FnOnce() -> T) -> T {
    let _rollback = RollbackGuard(UNDO_LOG.replace(Some(Vec::new())));
    program()
}

/// Restores the storages of the undo log when dropped, and puts the outer log back.
struct RollbackGuard(Option<UndoLog>);

impl Drop for RollbackGuard {
    fn drop(&mut self) {
        for (storage, contents) in UNDO_LOG.replace(self.0.take()).into_iter().flatten().rev() {
            storage.set_contents(contents);
        }
    }
}
