//! Views: results of operators that share memory with an operand, or are copies where PyTorch has to copy.

use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::shape::Shape;
use crate::symbols::Guard;
use crate::trace::views::{GuardedGeometry, PlacedView, ResultMemory, View, ViewCallPlacement};

use super::Importer;
use super::tensor::{StorageView, TensorRef};

impl Importer<'_> {
    /// Makes the results of a view operator: views of its operands, or copies where PyTorch has to copy. `bases` holds
    /// the operand of each result, or one operand for all results; `ids` are the results' values in the innermost graph.
    pub(super) fn view_results(
        &mut self,
        bases: &[TensorRef],
        call: &ViewCallPlacement,
        ids: &[ValueId],
    ) -> Result<Vec<TensorRef>> {
        let geometries = bases.iter().map(|base| self.geometry_of(base));
        let geometries: Vec<GuardedGeometry> = geometries.collect();
        let shapes = ids.iter().map(|id| call.builder.ty(*id).shape);
        let placed = call.place(&geometries, &shapes.collect::<Vec<Shape>>())?;
        let numbered = ids.iter().zip(placed).enumerate();
        let results = numbered.map(|(index, (id, placed))| {
            let base = bases.get(index).or(bases.first());
            let base = base.ok_or_else(|| Error::internal("a view has no operand"))?;
            Ok(self.view_result(base, *id, placed))
        });
        results.collect()
    }

    /// Makes one result of a view operator; `id` is its value.
    fn view_result(&self, base: &TensorRef, id: ValueId, placed: PlacedView) -> TensorRef {
        base.storage().add_conditions(&placed.conditions);
        match placed.memory {
            ResultMemory::Operand => base.clone(),
            ResultMemory::Copy(guarded) => {
                let copy = self.new_tensor_of_geometry(id, guarded);
                copy.storage().add_conditions(&placed.conditions);
                copy
            }
            ResultMemory::View(step, guarded) => {
                let mut view = base.view();
                view.view.steps.push(*step);
                view.view.guarded = guarded;
                self.view_of(view, Some(id))
            }
        }
    }

    /// Returns a view of a tensor's whole storage as a vector, in the order of its memory. Fails if the memory has gaps
    /// or overlaps.
    pub(super) fn memory_of(&mut self, tensor: &TensorRef) -> Result<TensorRef> {
        let storage = tensor.storage();
        let view = View::of_memory(&self.builder(), &storage.guarded)?;
        Ok(self.view_of(StorageView { storage, view }, None))
    }

    /// Turns the conditions under which other tensors share this tensor's memory into guards.
    pub(super) fn assume_sharing_conditions(&self, tensor: &TensorRef) -> Result<()> {
        let conditions = tensor.storage().take_conditions();
        self.assume(&conditions)
    }

    /// Turns conditions into guards.
    pub(super) fn assume(&self, conditions: &[Guard]) -> Result<()> {
        self.builder().symbols().assume(conditions)
    }
}
