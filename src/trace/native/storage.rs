//! The memory of traced tensors, and views of it.
//!
//! As in PyTorch, tensors can share a storage: a write to one of them changes all. [`crate::trace::views`] describes views.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::dim::Dim;
use crate::error::{Error, Result, SourcePlace};
use crate::symbols::Guard;
use crate::tensor::Tensor;
use crate::trace::scope_stack::ValueRef;
use crate::trace::views::{GuardedGeometry, View};

use super::recorder;

/// Version of the next contents of any storage.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(0);

/// Origin of a storage, which decides how a trace refers to its contents.
#[derive(Clone, Debug)]
pub(super) enum TracedOrigin {
    /// Created outside of any trace.
    Host,
    /// Created from data while a trace was active, at this place.
    Data(SourcePlace),
    /// A parameter or buffer of a module, whose value can be loaded.
    Parameter,
    /// A value of the trace with this number.
    Recorded(u64, ValueRef),
}

/// The memory of tensors.
pub(super) struct TracedStorage {
    contents: RwLock<Contents>,
    /// Origin of the contents.
    pub origin: TracedOrigin,
    /// Geometry of the value.
    pub geometry: Geometries,
    /// The trace and the scope of its graph in which the storage was made; none outside of traces.
    pub scope: Option<(u64, u32)>,
    /// Conditions on sizes of a trace that decide whether other tensors share this memory. They become guards when it is
    /// written in that trace.
    sharing_conditions: Mutex<Vec<(u64, Guard)>>,
}

/// Geometry of a tensor, for the example and for all sizes.
#[derive(Clone)]
pub(super) struct Geometries {
    /// The geometry with the sizes of the example.
    pub concrete: GuardedGeometry,
    /// The geometry with symbolic sizes, and the trace that they belong to; none outside of traces.
    pub symbolic: Option<(u64, GuardedGeometry)>,
}

/// Contents of a storage outside of traces, or before any write in a trace.
#[derive(Clone)]
pub(super) struct Contents {
    /// The value, or the error of an operation that computed it.
    pub value: Result<Tensor>,
    /// Differs from the versions of all other contents.
    pub version: u64,
}

/// A view of a storage.
#[derive(Clone)]
pub(super) struct TracedView {
    /// The memory.
    pub storage: Arc<TracedStorage>,
    /// The view with the sizes of the example.
    pub concrete: View,
    /// The view with symbolic sizes, and the trace that they belong to; none if the view was made outside of traces.
    pub symbolic: Option<(u64, View)>,
}

impl Contents {
    /// New contents.
    pub fn new(value: Result<Tensor>) -> Contents {
        Contents {
            value,
            version: next_version(),
        }
    }
}

/// A version that no other contents have.
pub(super) fn next_version() -> u64 {
    NEXT_VERSION.fetch_add(1, Ordering::Relaxed)
}

impl TracedStorage {
    /// New memory.
    pub fn new(
        value: Result<Tensor>,
        origin: TracedOrigin,
        geometry: Geometries,
    ) -> Arc<TracedStorage> {
        Arc::new(TracedStorage {
            contents: RwLock::new(Contents::new(value)),
            origin,
            geometry,
            scope: recorder::scope(),
            sharing_conditions: Mutex::default(),
        })
    }

    /// The contents, without writes of an active trace.
    pub fn contents(&self) -> Contents {
        let contents = self.contents.read();
        contents.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the contents.
    pub fn set_contents(&self, contents: Contents) {
        *self
            .contents
            .write()
            .unwrap_or_else(PoisonError::into_inner) = contents;
    }

    /// Address that identifies the storage while it lives.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Adds conditions that become guards when the storage is written in a trace.
    pub fn add_conditions(&self, trace: u64, conditions: &[Guard]) {
        let mut known = self.conditions();
        for condition in conditions {
            let condition = (trace, condition.clone());
            if !known.contains(&condition) {
                known.push(condition);
            }
        }
    }

    /// Takes the conditions of a trace so far, to make guards of them.
    pub fn take_conditions(&self, trace: u64) -> Vec<Guard> {
        let conditions = std::mem::take(&mut *self.conditions());
        let of_trace = conditions.into_iter().filter(|(own, _)| *own == trace);
        of_trace.map(|(_, condition)| condition).collect()
    }

    fn conditions(&self) -> MutexGuard<'_, Vec<(u64, Guard)>> {
        let conditions = self.sharing_conditions.lock();
        conditions.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Geometries {
    /// A contiguous tensor of these sizes, outside of traces.
    pub fn contiguous(sizes: &[usize]) -> Geometries {
        let sizes = sizes.iter().copied().map(Dim::from).collect();
        Geometries {
            concrete: GuardedGeometry::contiguous(sizes),
            symbolic: None,
        }
    }
}

impl TracedView {
    /// The whole of a storage.
    pub fn whole(storage: Arc<TracedStorage>) -> TracedView {
        let Geometries { concrete, symbolic } = storage.geometry.clone();
        TracedView {
            storage,
            concrete: View::whole(concrete),
            symbolic: symbolic.map(|(trace, guarded)| (trace, View::whole(guarded))),
        }
    }

    /// True if the view is the whole storage in the storage's own geometry.
    pub fn is_whole(&self) -> bool {
        self.concrete.is_whole()
    }

    /// The view for use in a trace.
    ///
    /// # Errors
    /// The view was made in another trace.
    pub fn in_trace(&self, trace: u64) -> Result<&View> {
        match &self.symbolic {
            Some((own, view)) if *own == trace => Ok(view),
            Some(_) => Err(other_trace()),
            None => Ok(&self.concrete),
        }
    }
}

/// The error for a tensor of another trace.
pub(super) fn other_trace() -> Error {
    Error::usage("a tensor of another trace is used")
        .help("pass it as an input, or make a constant of its value outside of the trace")
}
