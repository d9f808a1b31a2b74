//! Writes of a tile: its sums go to the epilogue, one vec4 of columns after the other.

use super::{SubgroupTile, TiledProduct};
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::kernel::index::{self, Index};
use crate::plan::element::KernelScope;
use crate::plan::kernel::epilogue_loop::{LineEpilogue, write_lines};
use crate::plan::kernel::{bounds_guard, offset_bounds_guard};

impl SubgroupTile {
    /// Writes one vec4 of columns after the other, each in all rows: a cache may hold no more than the lines of memory
    /// that all rows have at one vec4 of columns.
    pub(super) fn write(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let sums_of_vec4 = |q: usize| sums.iter().map(|sums| sums[q]).collect();
        let vec4s: Vec<Vec<Expr>> = (0..self.shape.column_vec4s).map(sums_of_vec4).collect();
        let cost = product.epilogue_cost;
        write_lines(
            scope,
            LineEpilogue::Looped,
            cost,
            &vec4s,
            &mut |scope, q, sums| {
                let first = self.first_column(q);
                let rows = self.write_vec4_rows(scope, product, &first, sums)?;
                Ok(match product.writes_whole_vec4 {
                    true => bounds_guard(scope, &first, &product.columns, rows),
                    false => rows,
                })
            },
        )
    }

    /// Writes four columns of all rows.
    fn write_vec4_rows(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        first: &Index,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let (cost, row_count) = (product.epilogue_cost, &product.rows);
        let registers: Vec<Vec<Expr>> = sums.iter().map(|sum| vec![*sum]).collect();
        write_lines(
            scope,
            LineEpilogue::Unrolled,
            cost,
            &registers,
            &mut |scope, number, sums| {
                let place = self.row_coordinates(scope, product, number);
                let stores = (product.write)(scope, [&self.batch, &place], first, sums[0])?;
                Ok(match self.shape.bands {
                    1 => offset_bounds_guard(scope, &self.row, number.clone(), row_count, stores),
                    // The first row of a tile always exists, the first row of a later band may not.
                    _ => bounds_guard(scope, &self.row.add(number), row_count, stores),
                })
            },
        )
    }

    /// Returns the coordinates of a row by its number in the invocation's band. Where the number of columns is
    /// symbolic, the row becomes one index expression. Memory indices are then products of the row and that number, not
    /// sums with a further size for each row.
    fn row_coordinates(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        number: &Index,
    ) -> Vec<Index> {
        let row = self.row.add(number);
        if number.is(0) || product.columns.as_const().is_some() {
            return index::delinearize(&row, &product.row_shape);
        }
        let at = row.emit(&mut scope.pool);
        if let Some(i) = number.as_const() {
            scope.pool.set_label(at, &format!("row{i}"));
        }
        index::delinearize(&Index::expr(at, &product.rows), &product.row_shape)
    }
}
