//! The left factor of a tile: an invocation reads four steps of some row, and hands them to all.

use super::{Step, Tile, Tiling, span};
use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::expr::{Expr, Pool, Type};
use crate::kernel::index::{self, Index};
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::{QUAD, is_multiple, is_whole};
use crate::pass::plan::kernel::limited;

/// Four steps of a row, and the invocation of the band that has read them; none if each has.
pub(super) type Held = (Expr, Option<usize>);

impl Tile {
    /// The row of an invocation, one of as many as its band has invocations.
    pub(super) fn mine(&self, first: usize) -> Index {
        let mine = if self.extent.rows == 1 {
            self.row.clone()
        } else {
            self.row.add(&self.lane)
        };
        mine.add_size(&Dim::from(first))
    }

    /// The coordinates of a row, kept below the edge.
    pub(super) fn coordinates(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        row: &Index,
    ) -> Vec<Index> {
        let row = limited(scope, row, &product.rows);
        index::coordinates(&row, &product.spread)
    }

    /// Four steps of each row, from a step of the round on. Of as many rows as a band has invocations each reads one.
    pub(super) fn rows(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        (taps, round): (&[Index], &Index),
        from: usize,
    ) -> Result<Vec<Held>> {
        let count = Dim::from(product.right.round());
        let first = round.scale(&count).add_size(&Dim::from(from));
        let steps = steps(scope, &first, &product.depth, QUAD);
        let is_shared = self.extent.rows > 1;
        let mut held = Vec::new();
        for first in (0..self.extent.rows).step_by(self.of_band()) {
            let quad = self.left(scope, product, (taps, &steps), &self.mine(first))?;
            let count = self.of_band().min(self.extent.rows - first);
            let lanes = (0..count).map(|lane| is_shared.then_some(lane));
            held.extend(lanes.map(|lane| (quad, lane)));
        }
        Ok(held)
    }

    /// Four steps of each row, from a step of the round on. An invocation reads four steps of every row.
    pub(super) fn wide(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        (taps, round): (&[Index], &Index),
        from: usize,
    ) -> Result<Vec<Held>> {
        let mine = self.lane.scale(&Dim::from(QUAD));
        let round_of = span(self.lanes);
        let first = round.scale(&Dim::from(round_of)).add(&mine);
        let steps = steps(scope, &first, &product.depth, round_of);
        let mut held = Vec::new();
        for i in 0..self.extent.rows {
            let row = self.row.add_size(&Dim::from(i));
            let quad = self.left(scope, product, (taps, &steps), &row)?;
            held.push((quad, Some(from / QUAD)));
        }
        Ok(held)
    }

    /// Four steps of a row.
    pub(super) fn left(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        steps: (&[Index], &[Step]),
        row: &Index,
    ) -> Result<Expr> {
        let row = self.coordinates(scope, product, row);
        let quad = (product.left)(scope, [&self.outer, &row], steps)?;
        scope.pool.set_label(quad, "a");
        Ok(quad)
    }

    /// The numbers of a row, handed to all invocations of its band.
    pub(super) fn numbers(&self, scope: &mut Scope, (quad, lane): Held, row: usize) -> Vec<Expr> {
        let pool = &mut scope.pool;
        let part = |k: usize| {
            let number = pool.call(format!("x[{k}]"), Type::F32, &[quad]);
            pool.set_label(number, &format!("a_{k}"));
            let Some(lane) = lane else {
                return number;
            };
            let number = self.handed(pool, number, lane);
            pool.set_label(number, &format!("a{row}_{k}"));
            number
        };
        (0..QUAD).map(part).collect()
    }

    /// What an invocation of each band has, to the others of it. The driver hands numbers of one invocation to all, none but
    /// those of a constant one fast.
    fn handed(&self, pool: &mut Pool, number: Expr, lane: usize) -> Expr {
        let of = |pool: &mut Pool, lane: usize| {
            let lane = pool.number(lane as u32);
            pool.call("subgroupShuffle(x, y)", Type::F32, &[number, lane])
        };
        let mut handed = of(pool, lane);
        for (band, is_behind) in self.is_behind.iter().enumerate() {
            let next = of(pool, lane + (band + 1) * self.of_band());
            handed = pool.call("select(x, y, z)", Type::F32, &[handed, next, *is_behind]);
        }
        handed
    }
}

/// Four steps of a sum, and where each lies within it; absent if it is known to. They are part of so many steps of which
/// the first one does.
pub(super) fn steps(scope: &mut Scope, from: &Index, depth: &Dim, of: usize) -> Vec<Step> {
    let is_known = is_multiple(depth, of);
    let mut guards = Vec::new();
    for k in 0..QUAD {
        let step = from.add_size(&Dim::from(k));
        let guard = match guards.first() {
            None => (!is_known && of > QUAD).then(|| scope.is_below(&step, depth)),
            Some((_, first)) if is_whole(depth) => *first,
            Some(_) => Some(scope.is_below(&step, depth)),
        };
        guards.push((step, guard));
    }
    guards
}
