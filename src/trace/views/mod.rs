//! Views of a storage: which tensors share memory, how a view is read, and how a write to it changes the storage. Both front
//! ends use it: the importer of TorchScript and the tracer of Rust programs.
//!
//! A graph has no writes. A storage therefore has a *current value*, and a tensor is a storage with a [`View`] of it. Reading a
//! view replays its steps on the storage's value. A write propagates the new elements through the steps backwards
//! ([`write_through`]), and the result becomes the storage's value. The geometry of each view says which tensors share
//! memory, as in PyTorch.

mod placement;
mod step;
mod write;

use crate::error::{Error, Result};
use crate::geometry::{Assumptions, Geometry};
use crate::ir::Builder;
use crate::op::{Permute, Reshape};
use crate::shape::Shape;
use crate::symbols::Guard;

pub use placement::{PlacedView, ResultMemory, ViewCallPlacement, new_geometries};
pub use step::ViewStep;
pub use write::write_through;

/// A view of a storage.
#[derive(Clone, Debug)]
pub struct View {
    /// Steps from the storage's value to the tensor's.
    pub steps: Vec<ViewStep>,
    /// Geometry of the elements in the storage.
    pub guarded: GuardedGeometry,
}

/// A geometry, and the conditions on sizes under which it holds.
#[derive(Clone, Debug)]
pub struct GuardedGeometry {
    /// Sizes, strides and offset.
    pub geometry: Geometry,
    /// The conditions. They become guards where something depends on the geometry.
    pub assumed: Vec<Guard>,
}

impl View {
    /// The whole storage in the storage's own geometry.
    pub fn whole(guarded: GuardedGeometry) -> View {
        View {
            steps: Vec::new(),
            guarded,
        }
    }

    /// True if the view is the whole storage in the storage's own geometry.
    pub fn is_whole(&self) -> bool {
        self.steps.is_empty()
    }

    /// A view of a whole storage as a vector, in the order of its memory. `storage` is the geometry of the storage's value.
    ///
    /// # Errors
    /// The memory has gaps or overlaps.
    pub fn of_memory(builder: &Builder, storage: &GuardedGeometry) -> Result<View> {
        let assumptions = Assumptions::new(builder.symbols(), &storage.assumed);
        let order = storage.geometry.dense_order(&assumptions)?;
        builder.symbols().assume(&assumptions.into_guards())?;
        let Some(mut axes) = order else {
            let message =
                "an operator on the storage of a tensor whose memory has gaps or overlaps";
            return Err(Error::unsupported(message));
        };
        axes.reverse();
        let in_memory_order = storage.geometry.permute(&axes);
        let numel = in_memory_order.numel();
        let mut primitives = Vec::new();
        if !axes.iter().copied().eq(0..axes.len()) {
            primitives.push((Permute { axes }.into(), in_memory_order.sizes));
        }
        if storage.geometry.rank() != 1 {
            let shape = vec![numel.clone()];
            let reshape = Reshape {
                shape: shape.clone(),
            };
            primitives.push((reshape.into(), shape));
        }
        let mut geometry = Geometry::contiguous(vec![numel]);
        geometry.offset = storage.geometry.offset.clone();
        Ok(View {
            steps: match primitives.is_empty() {
                true => Vec::new(),
                false => vec![ViewStep::from_primitives(primitives)],
            },
            guarded: GuardedGeometry {
                geometry,
                assumed: Vec::new(),
            },
        })
    }
}

impl GuardedGeometry {
    /// A contiguous geometry, for all sizes.
    pub fn contiguous(sizes: Shape) -> GuardedGeometry {
        GuardedGeometry {
            geometry: Geometry::contiguous(sizes),
            assumed: Vec::new(),
        }
    }

    /// Derives another geometry from this one by a rule. Returns it with all conditions that either geometry assumes.
    pub fn derive(
        &self,
        builder: &Builder,
        rule: impl FnOnce(&Geometry, &Assumptions) -> Result<Option<Geometry>>,
    ) -> Result<(Option<Geometry>, Vec<Guard>)> {
        let assumptions = Assumptions::new(builder.symbols(), &self.assumed);
        let derived = rule(&self.geometry, &assumptions)?;
        Ok((derived, assumptions.into_guards()))
    }

    /// The geometry with symbols replaced whose values have become known.
    pub fn resolve(mut self, builder: &Builder) -> GuardedGeometry {
        self.geometry
            .map_sizes(&mut |size| builder.symbols().resolve(size));
        self
    }
}
