//! What a workgroup keeps of its tiles from one stage to the next: vectors of four channels, which no other workgroup reads.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;
use crate::kernel::layout::Layout;
use crate::kernel::winograd::Places;
use crate::pass::plan::element::Scope;

/// Vectors by workgroup, matrix, quad of channels and tile. Each is written once, and read behind a barrier. Where buffers are
/// read as textures nothing tells the driver that both are the same memory: Mesa's rasteriser leaves its loads in their order,
/// and most of them are in loops behind the barrier.
pub(super) struct Scratch {
    /// What the convolution gives, by which this memory is known.
    value: ValueId,
    name: &'static str,
    workgroups: Dim,
    places: Places,
    /// Vectors of a matrix.
    pub(super) count: Dim,
    /// The number of the workgroup.
    workgroup: Index,
}

impl Scratch {
    pub(super) fn new(
        (value, name): (ValueId, &'static str),
        places: Places,
        (workgroup, workgroups): (&Index, &Dim),
        count: Dim,
    ) -> Scratch {
        Scratch {
            value,
            name,
            workgroups: workgroups.clone(),
            places,
            count,
            workgroup: workgroup.clone(),
        }
    }

    fn layout(&self) -> Layout {
        Layout::Scratch {
            name: self.name,
            sizes: vec![
                self.workgroups.clone(),
                self.places.matrices().into(),
                self.count.clone(),
            ],
        }
    }

    /// A matrix by its row and column. Where sizes are symbolic it is no part of them, of which there would be one for each
    /// matrix.
    pub(super) fn matrix(&self, scope: &mut Scope, [y, x]: [usize; 2]) -> Index {
        let matrix = y * self.places.side() + x;
        if matrix < 2 || self.count.as_const().is_some() {
            return matrix.into();
        }
        let number = scope.pool.number(u32::try_from(matrix).unwrap_or_default());
        Index::expr(number, &self.places.matrices().into())
    }

    /// Where a vector is by its matrix and its number there.
    fn at(&self, scope: &mut Scope, matrix: &Index, number: &Index) -> Expr {
        let of_workgroup = Dim::from(self.places.matrices()) * &self.count;
        let first = self.workgroup.scale(&of_workgroup);
        let at = first.add(&matrix.scale(&self.count)).add(number);
        at.emit(&mut scope.pool)
    }

    /// A vector; zeros where a guard is false.
    pub(super) fn load(
        &self,
        scope: &mut Scope,
        (matrix, number): (&Index, &Index),
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let (buffer, _) = scope.in_vectors(self.value, &self.layout())?;
        let index = self.at(scope, matrix, number);
        let pool = &mut scope.pool;
        let Some(guard) = guard else {
            return Ok(pool.load(buffer, Type::F32x4, index));
        };
        let (none, zero) = (pool.number(0), pool.call("vec4<f32>()", Type::F32x4, &[]));
        let index = pool.select(guard, index, none);
        let vector = pool.load(buffer, Type::F32x4, index);
        Ok(pool.select(guard, vector, zero))
    }

    /// Keeps a vector, in words of two numbers where a device writes these faster.
    pub(super) fn store(
        &self,
        scope: &mut Scope,
        (matrix, number): (&Index, &Index),
        vector: Expr,
    ) -> Result<Statement> {
        let layout = self.layout();
        let (buffer, value) = match scope.in_words(self.value, &layout)? {
            Some((buffer, words)) => {
                let value = scope.pool.call("words_of_four(x)", words, &[vector]);
                (buffer, value)
            }
            None => (scope.in_vectors(self.value, &layout)?.0, vector),
        };
        let index = self.at(scope, matrix, number);
        Ok(Statement::Store {
            buffer,
            index,
            value,
        })
    }
}
