//! The right factor of a tile: four neighbouring columns for an invocation, out of panels of a weight or out of values.

use super::left::steps;
use super::{Tile, extent, rows_by_panels, span};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, ValueId};
use crate::kernel::expr::Expr;
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, Run};
use crate::pass::plan::cost::example;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::{QUAD, is_whole, quad};
use crate::pass::plan::kernel::limited;
use crate::pass::plan::product::Product;
use crate::pass::plan::product::tile::holds;

/// Where the right factor is.
pub enum Right<'s> {
    /// In values that kernels have written.
    Values(&'s Product),
    /// In a weight of which panels are made. The function gives the matrix by what is in front of rows and columns.
    Panels(ValueId, Panels, &'s dyn Fn(&[Index]) -> Index),
}

impl Right<'_> {
    /// Steps of a round.
    pub(super) fn round(&self) -> usize {
        match self {
            Right::Values(_) => QUAD,
            Right::Panels(_, panels, _) => panels.round,
        }
    }
}

/// Steps of a wide round times rows: with more the text of a round grows too long.
const WIDEST: usize = 256;

/// Panels of a weight for a product of so many matrices, rows and columns in the example, on a device of so many lanes. Few
/// rows take wide rounds, unless these would be filled up with many zeros.
pub fn panels(
    lanes: usize,
    outer: Run,
    (depth, columns): (Vec<Run>, Run),
    [matrices, rows]: [usize; 2],
) -> Panels {
    let steps = depth.last().map_or(1, |run| run.count);
    let wide = span(lanes);
    let is_filled = steps.next_multiple_of(wide) <= steps + steps / 4;
    let (round, quads) = if rows * wide < WIDEST && is_filled {
        (wide, 1)
    } else {
        // Around taps a second quad of steps gains nothing and takes the driver longer.
        let is_even = steps.div_ceil(QUAD).is_multiple_of(2) && depth.len() == 1;
        let tallest = |quads| rows_by_panels(lanes, quads);
        let (_, quads) = extent(lanes, tallest, [matrices, rows, columns.count]);
        (if is_even { 2 * QUAD } else { QUAD }, quads)
    };
    Panels {
        outer,
        depth,
        columns,
        round,
        width: quads * span(lanes),
        transformed: None,
    }
}

/// The weight that a right factor is a view of, the same for all that is in front of rows and columns, and its panels.
pub fn weight(scope: &mut Scope, product: &Product) -> Result<Option<(ValueId, Panels)>> {
    let mut outer = Vec::new();
    for (axis, size) in product.outer.iter().enumerate() {
        outer.push(scope.counter(&format!("outer{axis}"), size).1);
    }
    let (step, k) = scope.counter("k", &product.depth);
    let (column, j) = scope.counter("j", &product.columns);
    let ((value, position), _) = product.right(scope, &outer, &k, &j);
    let Some((base, place)) = scope.origin(value, &position)? else {
        return Ok(None);
    };
    let (info, strides) = (scope.graph.value(base), place.factors(&[step, column]));
    let run = |size: &Dim, stride: Option<&usize>| {
        let count = usize::try_from(size.as_const()?).ok()?;
        let stride = *stride?;
        Some(Run { count, stride })
    };
    let strides = strides.unwrap_or_default();
    let strides: Vec<usize> = strides
        .iter()
        .filter_map(|x| usize::try_from(*x).ok())
        .collect();
    let (true, Some(lanes), Some(depth), Some(columns)) = (
        matches!(info.definition, Definition::Weight(_)) && info.ty.dtype == DType::F32,
        scope.capabilities.lanes(),
        run(&product.depth, strides.first()),
        run(&product.columns, strides.get(1)),
    ) else {
        return Ok(None);
    };
    let alone = Run {
        count: 1,
        stride: 0,
    };
    let sizes = [&Dim::product(&product.outer), &product.rows];
    let sizes = sizes.map(|size| example(scope.graph, size));
    let panels = panels(lanes, alone, (vec![depth], columns), sizes);
    let fits = holds(scope.capabilities, &panels);
    Ok(fits.then_some((base, panels)))
}

impl Tile {
    /// For each of four steps four columns, which are a texel of a panel. Steps that no round has are left out.
    pub(super) fn panel(
        &self,
        scope: &mut Scope,
        (weight, panels): (ValueId, &Panels),
        [row, panel]: [&Index; 2],
        [from, q]: [usize; 2],
    ) -> Result<Vec<Expr>> {
        let texture = scope.in_panels(weight, panels)?;
        let pool = &mut scope.pool;
        let texel = |k: usize| {
            let before = (from + k) * panels.width / QUAD + q * self.lanes;
            let x = self.lane.add_size(&Dim::from(before));
            let at = [&x, row, panel].map(|index| index.emit(pool));
            let texel = pool.texel(texture, at);
            pool.set_label(texel, &format!("b{}_{q}", from + k));
            texel
        };
        let last = panels.depth.last().map_or(QUAD, |run| run.count);
        Ok((0..QUAD.min(last)).map(texel).collect())
    }

    /// For each of four steps four columns.
    pub(super) fn right(
        &self,
        scope: &mut Scope,
        product: &Product,
        first: &Index,
        q: usize,
    ) -> Result<Vec<Expr>> {
        let steps = steps(scope, first, &product.depth, QUAD);
        let columns: Vec<Index> = (0..QUAD)
            .map(|i| self.column_of(scope, product, q, i))
            .collect();
        let mut quads = Vec::new();
        for (step, guard) in &steps {
            let mut line = Vec::new();
            for column in &columns {
                let (factor, inside) = product.right(scope, &self.outer, step, column);
                let inside = inside.map(|inside| scope.pool.both(*guard, inside));
                line.push((factor, inside.or(*guard)));
            }
            quads.push(quad(scope, &line)?);
        }
        for (k, quad) in quads.iter().enumerate() {
            scope.pool.set_label(*quad, &format!("b{k}_{q}"));
        }
        Ok(quads)
    }

    /// A column of an invocation, kept below the edge.
    fn column_of(&self, scope: &mut Scope, product: &Product, q: usize, i: usize) -> Index {
        let (first, offset) = (self.quad_of(q), Dim::from(i));
        if is_whole(&product.columns) {
            let whole = Dim::from(QUAD);
            let quads = product.columns.floor_div(&whole);
            let quad = limited(scope, &first.div(&whole), &quads);
            return quad.scale(&whole).add_size(&offset);
        }
        limited(scope, &first.add_size(&offset), &product.columns)
    }
}
