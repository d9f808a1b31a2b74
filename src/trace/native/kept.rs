//! What buffers keep from some point of a trace on. Within branches and loops that is a further result of the region.

use std::collections::BTreeMap;

use crate::error::Result;

use super::module;
use super::tensor::TracedTensor;

/// Buffers and the values that they keep, by the addresses of the buffers.
#[derive(Clone, Default)]
pub(super) struct Kept(BTreeMap<usize, Stored>);

/// What a buffer keeps.
#[derive(Clone)]
pub(super) struct Stored {
    /// The buffer's name.
    pub name: String,
    pub buffer: TracedTensor,
    pub value: TracedTensor,
}

impl Kept {
    /// From here on a buffer keeps this value.
    pub fn insert(&mut self, stored: Stored) {
        self.0.insert(stored.buffer.address(), stored);
    }

    /// What a tensor is by now: a buffer may have been given another value.
    pub fn current(&self, tensor: &TracedTensor) -> TracedTensor {
        let found = self.0.get(&tensor.address());
        found.map_or_else(|| tensor.clone(), |stored| stored.value.clone())
    }

    /// Buffers that keep other values than they did before.
    pub fn changed_since<'a>(&'a self, before: &'a Kept) -> impl Iterator<Item = &'a Stored> {
        let stored = self.0.values();
        stored.filter(|stored| !before.current(&stored.buffer).is(&stored.value))
    }

    pub fn into_values(self) -> impl Iterator<Item = Stored> {
        self.0.into_values()
    }

    /// Gives the buffers their values, apart from any trace.
    pub fn write(&self) -> Result<()> {
        let mut stored = self.0.values();
        stored.try_for_each(|stored| module::store(&stored.buffer, &stored.value.value()?))
    }
}
