//! Values stored to buffers during a trace. Within branches and loops they are additional results of the region.

use std::collections::BTreeMap;

use crate::error::Result;

use super::module;
use super::tensor::TracedTensor;

/// Current values of buffers, by the buffer's address.
#[derive(Clone, Default)]
pub(super) struct BufferValues(BTreeMap<usize, BufferValue>);

/// The value stored to a buffer.
#[derive(Clone)]
pub(super) struct BufferValue {
    /// The buffer's name.
    pub name: String,
    /// The buffer itself.
    pub buffer: TracedTensor,
    /// The value stored last.
    pub value: TracedTensor,
}

impl BufferValues {
    /// Sets the current value of a buffer.
    pub fn insert(&mut self, stored: BufferValue) {
        self.0.insert(stored.buffer.address(), stored);
    }

    /// The current value of a tensor: the last one stored if it is a buffer, else the tensor itself.
    pub fn current(&self, tensor: &TracedTensor) -> TracedTensor {
        let stored_value = self.0.get(&tensor.address());
        stored_value.map_or_else(|| tensor.clone(), |stored| stored.value.clone())
    }

    /// Buffers whose values differ from those in `before`.
    pub fn changed_since<'a>(
        &'a self,
        before: &'a BufferValues,
    ) -> impl Iterator<Item = &'a BufferValue> {
        let stored = self.0.values();
        stored.filter(|stored| !before.current(&stored.buffer).is(&stored.value))
    }

    /// All buffers that were stored to.
    pub fn into_values(self) -> impl Iterator<Item = BufferValue> {
        self.0.into_values()
    }

    /// Writes the values to the buffers themselves, outside of the trace.
    pub fn write(&self) -> Result<()> {
        let mut stored = self.0.values();
        stored.try_for_each(|stored| module::store(&stored.buffer, &stored.value.value()?))
    }
}
