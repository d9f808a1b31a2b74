//! Values written to storages during a trace. Those written within branches and loops are additional results of the region.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tensor::Tensor;
use crate::trace::scope_stack::ValueRef;

use super::storage::{Contents, TracedStorage, next_version};
use super::undo_log;

/// A value of the active trace, with its value in the example.
#[derive(Clone, Debug)]
pub(super) struct RecordedValue {
    /// The value in one of the open graphs.
    pub id: ValueRef,
    /// The value in the example.
    pub example: Tensor,
}

/// Current values of the storages that were written, by the storage's address.
#[derive(Clone, Default)]
pub(super) struct StorageValues(BTreeMap<usize, StorageValue>);

/// The current value of a storage.
#[derive(Clone)]
pub(super) struct StorageValue {
    /// The storage.
    pub storage: Arc<TracedStorage>,
    /// Its value.
    pub value: RecordedValue,
    /// Differs from the versions of all other values and contents of storages.
    pub version: u64,
}

impl StorageValues {
    /// Sets the current value of a storage.
    pub fn insert(&mut self, storage: Arc<TracedStorage>, value: RecordedValue) {
        let version = next_version();
        let address = storage.address();
        let written = StorageValue {
            storage,
            value,
            version,
        };
        self.0.insert(address, written);
    }

    /// The value written last; none if the storage was not written.
    pub fn get(&self, storage: &TracedStorage) -> Option<&StorageValue> {
        self.0.get(&storage.address())
    }

    /// Storages whose values differ from those in `before`.
    pub fn changed_since<'a>(
        &'a self,
        before: &'a StorageValues,
    ) -> impl Iterator<Item = &'a StorageValue> {
        let version = |values: &StorageValues, storage| {
            let value = values.get(storage);
            value.map(|value| value.version)
        };
        let written = self.0.values();
        written.filter(move |one| version(before, &one.storage) != Some(one.version))
    }

    /// All storages that were written.
    pub fn into_values(self) -> impl Iterator<Item = StorageValue> {
        self.0.into_values()
    }

    /// Writes the values to the storages themselves, outside of the trace.
    pub fn write(&self) {
        for written in self.0.values() {
            let contents = Contents {
                value: Ok(written.value.example.clone()),
                version: written.version,
            };
            undo_log::set_contents(&written.storage, contents);
        }
    }
}
