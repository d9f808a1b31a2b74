//! Ranges of device memory, one for each value of a plan that is materialised.

use super::capabilities::StorageType;
use super::layout::{Layout, Texel};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::shape::Shape;

/// Index of a slot in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub usize);

/// A range of device memory for one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Name of the graph value, for messages.
    pub name: String,
    /// Element type of the model.
    pub dtype: DType,
    /// Element type on the device.
    pub storage: StorageType,
    /// Shape of the value.
    pub shape: Shape,
    /// Layout of the elements. Outputs are in row-major order; inputs too, except for padding after each row.
    pub layout: Layout,
    /// Purpose of the memory.
    pub kind: SlotKind,
}

impl Slot {
    /// The texel type for reading the memory as a texture; none if no texel type fits the elements.
    pub fn texel(&self) -> Option<Texel> {
        match &self.layout {
            Layout::Panels(panels) => panels.texel(self.storage),
            _ => self.storage.texel(),
        }
    }
}

/// Purpose of a slot's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// The input of this index, uploaded before a run.
    Input(usize),
    /// The weight of this name, uploaded once.
    Weight(String),
    /// A value between two kernels. Other values may use its memory outside of the steps `first..=last`.
    Temporary {
        /// The step that writes it.
        first: usize,
        /// The last step that reads it.
        last: usize,
    },
    /// A part of the slot of an output or of a value between two kernels. It lives as long as that slot.
    Subview {
        /// Slot that contains it, which has a lower index.
        parent: SlotId,
        /// Number of elements of the parent before it.
        offset: Dim,
    },
    /// A value that the host reads. A value may be several outputs.
    Output,
    /// Words that are zero when a run starts and change by atomic operations, with memory of their own.
    Words,
}
