//! Scratch memory: a workgroup stores vectors of four channels there between its stages. No other workgroup reads them.

use super::transform::{ExprMatrix, enumerate_matrix, try_matrix};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::Layout;
use crate::kernel::winograd::OutputTile;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::is_multiple;
use crate::plan::kernel::{bounds_guard, ceil_div, repeat};
use crate::plan::product::dot::with_label;

/// Vectors indexed by workgroup, matrix, vec4 of channels and tile. Each is written once and read after a barrier. A
/// kernel may read them from a texture that aliases the buffer. The driver does not know that both are the same memory,
/// but Mesa's rasteriser keeps loads in order, and most of them are in loops after the barrier.
pub(super) struct Scratch {
    /// Result of the convolution, which identifies this memory.
    value: ValueId,
    /// Name of the buffer.
    name: &'static str,
    /// Number of workgroups.
    workgroups: Dim,
    output_tile: OutputTile,
    /// Number of vectors of a matrix.
    pub(super) vectors_per_matrix: Dim,
    /// Index of the workgroup.
    workgroup: Index,
}

impl Scratch {
    pub(super) fn new(
        value: ValueId,
        name: &'static str,
        output_tile: OutputTile,
        workgroup: &Index,
        workgroups: &Dim,
        vectors_per_matrix: Dim,
    ) -> Scratch {
        Scratch {
            value,
            name,
            workgroups: workgroups.clone(),
            output_tile,
            vectors_per_matrix,
            workgroup: workgroup.clone(),
        }
    }

    fn layout(&self) -> Layout {
        Layout::Scratch {
            name: self.name,
            sizes: vec![
                self.workgroups.clone(),
                self.output_tile.matrices().into(),
                self.vectors_per_matrix.clone(),
            ],
        }
    }

    /// Returns the index of a matrix by its row and column in the transformed tile. If the number of vectors is
    /// symbolic, the index is a separate expression: folded into symbolic sizes it would give one more size for each
    /// matrix.
    pub(super) fn matrix_index(&self, scope: &mut KernelScope, [y, x]: [usize; 2]) -> Index {
        let matrix = y * self.output_tile.input_size() + x;
        if matrix < 2 || self.vectors_per_matrix.as_const().is_some() {
            return matrix.into();
        }
        let number = scope.pool.index(u32::try_from(matrix).unwrap_or_default());
        Index::expr(number, &self.output_tile.matrices().into())
    }

    /// Returns the index of a vector in the buffer, by its matrix and its number in that matrix.
    fn vector_index(&self, scope: &mut KernelScope, matrix: &Index, number: &Index) -> Expr {
        let workgroup_vectors = Dim::from(self.output_tile.matrices()) * &self.vectors_per_matrix;
        let first = self.workgroup.scale(&workgroup_vectors);
        let index = first
            .add(&matrix.scale(&self.vectors_per_matrix))
            .add(number);
        index.emit(&mut scope.pool)
    }

    /// Loads a vector; zeros where a guard is false.
    pub(super) fn load(
        &self,
        scope: &mut KernelScope,
        matrix: &Index,
        number: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let (buffer, _) = scope.bind_vec4(self.value, &self.layout())?;
        let index = self.vector_index(scope, matrix, number);
        let pool = &mut scope.pool;
        let Some(guard) = guard else {
            return Ok(pool.load(buffer, WgslType::F32x4, index));
        };
        let (first_index, zero) = (
            pool.index(0),
            pool.call("vec4<f32>()", WgslType::F32x4, &[]),
        );
        let index = pool.select(guard, index, first_index);
        let vector = pool.load(buffer, WgslType::F32x4, index);
        Ok(pool.select(guard, vector, zero))
    }

    /// Loads the vectors with a number in all matrices, by row and column of the transformed tile.
    pub(super) fn load_tile(&self, scope: &mut KernelScope, number: &Index) -> Result<ExprMatrix> {
        try_matrix(self.output_tile.input_size(), |y, x| {
            let matrix = self.matrix_index(scope, [y, x]);
            let vector = self.load(scope, &matrix, number, None)?;
            scope.pool.set_label(vector, &format!("m{y}{x}"));
            Ok(vector)
        })
    }

    /// Stores the vectors with a number in all matrices, by row and column of the transformed tile.
    pub(super) fn store_tile(
        &self,
        scope: &mut KernelScope,
        number: &Index,
        vectors: &ExprMatrix,
    ) -> Result<Vec<Statement>> {
        let store = |(y, x, vector)| {
            let matrix = self.matrix_index(scope, [y, x]);
            self.store(scope, &matrix, number, vector)
        };
        enumerate_matrix(vectors).map(store).collect()
    }

    /// Stores a vector, as 64-bit words where a device writes these faster.
    pub(super) fn store(
        &self,
        scope: &mut KernelScope,
        matrix: &Index,
        number: &Index,
        vector: Expr,
    ) -> Result<Statement> {
        let layout = self.layout();
        let (buffer, value) = match scope.bind_u64(self.value, &layout)? {
            Some((buffer, _)) => (buffer, scope.words_of_vec4(vector)),
            None => (scope.bind_vec4(self.value, &layout)?.0, vector),
        };
        let index = self.vector_index(scope, matrix, number);
        Ok(Statement::Store {
            buffer,
            index,
            value,
        })
    }
}

/// Returns the statement that makes the writes of a workgroup visible to it. The workgroup is a subgroup, whose lanes run in
/// lockstep.
pub(super) fn barrier() -> Statement {
    Statement::Line(String::from("subgroupBarrier();"))
}

/// Emits a loop over vectors, one for each of the `lanes` invocations at a time. `make` emits its body from the number of the
/// vector.
pub(super) fn for_each_vector(
    scope: &mut KernelScope,
    name: &str,
    lanes: usize,
    vectors: &Dim,
    make: impl FnOnce(&mut KernelScope, &Index) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    let trips = ceil_div(vectors, lanes);
    repeat(scope, name, &trips, |scope, trip| {
        let (_, local) = scope.counter("local", &Dim::from(lanes));
        let number = trip.scale(&Dim::from(lanes)).add(&local);
        let number = with_label(scope, &number, "number");
        let statements = make(scope, &number)?;
        Ok(match is_multiple(vectors, lanes) {
            true => statements,
            false => bounds_guard(scope, &number, vectors, statements),
        })
    })
}
