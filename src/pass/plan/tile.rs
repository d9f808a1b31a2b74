//! Products of matrices where subgroups are eight invocations: a software rasteriser runs them as the lanes of a vector,
//! and what costs time is reading memory.

use super::dot::named;
use super::element::Scope;
use super::fuse::Group;
use super::kernel::{Lowered, below, guarded, invocation, limited, pieces, repeat};
use super::product::Product;
use super::quad::{QUAD, is_whole, quad};
use super::variant::expected;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::{self, Index};
use crate::kernel::plan::Capabilities;

const TEMPLATE: &str = include_str!("../../../shaders/tile.wgsl");

/// Invocations of a subgroup.
const LANES: usize = 8;
/// Rows of a tile: with more the loop grows too long for the driver.
const TALLEST: usize = 32;
/// Tiles that keep all threads busy.
const ENOUGH: usize = 8;
/// Columns that a subgroup computes for each quad of an invocation.
const SPAN: usize = LANES * QUAD;

/// True if this is the better way to compute a product on a device.
pub fn suits(
    capabilities: &Capabilities,
    dtype: DType,
    [rows, columns, depth]: [usize; 3],
) -> bool {
    capabilities.software
        && capabilities.subgroup_size as usize == LANES
        && dtype == DType::F32
        // Fewer numbers are not worth a whole subgroup.
        && columns >= SPAN / 2
        && depth >= 2 * QUAD
        && (rows >= QUAD || rows == 1)
}

/// A product with its epilogue.
pub fn lower<'a>(mut scope: Scope<'a>, group: &Group, product: &Product) -> Result<Lowered<'a>> {
    let tile = Tile::new(&mut scope, product);
    let sums: Vec<Vec<Expr>> = (0..tile.height)
        .map(|i| {
            let sum = |q| scope.pool.variable(&format!("sum{i}_{q}"), Type::F32x4);
            (0..tile.quads).map(sum).collect()
        })
        .collect();
    let zero = scope.pool.call("vec4<f32>()", Type::F32x4, &[]);
    let mut statements = vec![tile.surplus.clone()];
    let all = || sums.iter().flatten().copied();
    statements.extend(all().map(|sum| Statement::Declare(sum, zero)));
    let rounds = pieces(&product.depth, QUAD);
    statements.extend(repeat(&mut scope, "round", &rounds, |scope, round| {
        tile.round(scope, product, &round.scale(&Dim::from(QUAD)), &sums)
    })?);
    statements.extend(all().map(Statement::Freeze));
    for q in 0..tile.quads {
        statements.extend(tile.write(&mut scope, group, product, q, &sums)?);
    }
    Ok(Lowered::of_workgroups(
        scope, TEMPLATE, statements, tile.count,
    ))
}

/// What a subgroup computes.
struct Tile {
    count: Dim,
    surplus: Statement,
    outer: Vec<Index>,
    /// First row.
    row: Index,
    /// First column.
    column: Index,
    lane: Index,
    height: usize,
    quads: usize,
}

impl Tile {
    fn new(scope: &mut Scope, product: &Product) -> Tile {
        let (height, quads) = extent(scope, product);
        let mut tiles: Vec<Dim> = product.outer.clone();
        // Neighbours share columns, which are read more often than rows.
        tiles.push(pieces(&product.columns, quads * SPAN));
        tiles.push(pieces(&product.rows, height));
        let count = Dim::product(&tiles);
        let (index, surplus) = invocation(scope, &count);
        let mut outer = index::coordinates(&index, &tiles);
        let row = outer.pop().unwrap_or_else(Index::zero);
        let column = outer.pop().unwrap_or_else(Index::zero);
        let (_, lane) = scope.counter("local", &Dim::from(LANES));
        Tile {
            count,
            surplus,
            outer,
            row: named(scope, &row.scale(&Dim::from(height)), "row"),
            column: named(scope, &column.scale(&Dim::from(quads * SPAN)), "column"),
            lane,
            height,
            quads,
        }
    }

    /// Four steps of all sums.
    fn round(
        &self,
        scope: &mut Scope,
        product: &Product,
        from: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let steps = steps(scope, from, &product.depth);
        let mut left = Vec::new();
        for first in (0..self.height).step_by(LANES) {
            left.push(self.left(scope, product, &steps, first)?);
        }
        let mut right = Vec::new();
        for q in 0..self.quads {
            right.push(self.right(scope, product, &steps, q)?);
        }
        let mut statements = Vec::new();
        for (i, sums) in sums.iter().enumerate() {
            let numbers = self.numbers(scope, left[i / LANES], i);
            for (sum, right) in sums.iter().zip(&right) {
                let total = four(scope, &numbers, right);
                let total = scope.pool.call("x + y", Type::F32x4, &[*sum, total]);
                statements.push(Statement::Assign(*sum, total));
            }
        }
        Ok(statements)
    }

    /// Four steps of eight rows, of which an invocation reads one.
    fn left(
        &self,
        scope: &mut Scope,
        product: &Product,
        steps: &[(Index, Option<Expr>)],
        first: usize,
    ) -> Result<Expr> {
        let mine = if self.height == 1 {
            self.row.clone()
        } else {
            self.row.add(&self.lane)
        };
        let row = limited(scope, &mine.add_size(&Dim::from(first)), &product.rows);
        let mut factors = Vec::new();
        for (step, guard) in steps {
            let factor = product.left(&self.outer, &row, step);
            factors.push((factor, *guard));
        }
        let quad = quad(scope, &factors)?;
        scope.pool.set_label(quad, "a");
        Ok(quad)
    }

    /// The numbers of a row, handed to all invocations.
    fn numbers(&self, scope: &mut Scope, quad: Expr, row: usize) -> Vec<Expr> {
        let pool = &mut scope.pool;
        let lane = pool.number((row % LANES) as u32);
        let part = |k: usize| {
            let number = pool.call(format!("x[{k}]"), Type::F32, &[quad]);
            pool.set_label(number, &format!("a_{k}"));
            if self.height == 1 {
                return number;
            }
            let number = pool.call("subgroupShuffle(x, y)", Type::F32, &[number, lane]);
            pool.set_label(number, &format!("a{row}_{k}"));
            number
        };
        (0..QUAD).map(part).collect()
    }

    /// For each of four steps four columns.
    fn right(
        &self,
        scope: &mut Scope,
        product: &Product,
        steps: &[(Index, Option<Expr>)],
        q: usize,
    ) -> Result<Vec<Expr>> {
        let columns: Vec<Index> = (0..QUAD)
            .map(|i| self.column_of(scope, product, q, i))
            .collect();
        let mut quads = Vec::new();
        for (step, guard) in steps {
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

    /// The first column of a quad of an invocation, which may lie beyond the edge.
    fn quad_of(&self, q: usize) -> Index {
        let quad = self.lane.scale(&Dim::from(QUAD));
        self.column.add(&quad).add_size(&Dim::from(q * SPAN))
    }

    /// Writes the rows of a quad of columns.
    fn write(
        &self,
        scope: &mut Scope,
        group: &Group,
        product: &Product,
        q: usize,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let first = self.quad_of(q);
        let mut rows = Vec::new();
        for (i, sums) in sums.iter().enumerate() {
            let row = self.row_to_write(scope, product, i);
            let line = product.write(scope, group, (&self.outer, &row, &first), sums[q])?;
            rows.extend(guarded(scope, &self.row, i, &product.rows, line));
        }
        Ok(if is_whole(&product.columns) {
            below(scope, &first, &product.columns, rows)
        } else {
            rows
        })
    }

    /// A row by its number. Where the length of a row is symbolic it is one number, so that places are products with that
    /// length, not sums with a further size for each row.
    fn row_to_write(&self, scope: &mut Scope, product: &Product, i: usize) -> Index {
        let row = self.row.add_size(&Dim::from(i));
        if i == 0 || product.columns.as_const().is_some() {
            return row;
        }
        let number = row.emit(&mut scope.pool);
        scope.pool.set_label(number, &format!("row{i}"));
        Index::expr(number, &product.rows)
    }
}

/// Rows of a tile, and quads of columns of an invocation: as many as the driver's vectors can hold, but such that every
/// thread has some tiles.
fn extent(scope: &Scope, product: &Product) -> (usize, usize) {
    let [outer, rows, columns] = [
        &Dim::product(&product.outer),
        &product.rows,
        &product.columns,
    ]
    .map(|size| expected(scope, size));
    let count = |height: usize, quads: usize| {
        outer * rows.div_ceil(height) * columns.div_ceil(quads * SPAN)
    };
    let mut height = rows.clamp(1, TALLEST);
    let quads = if columns > SPAN && count(height, 2) >= ENOUGH {
        2
    } else {
        1
    };
    while count(height, quads) < ENOUGH && height >= 2 * LANES {
        height = height.div_ceil(2);
    }
    (height, quads)
}

/// Four steps of a sum, and where each lies within it; absent if it is known to.
fn steps(scope: &mut Scope, from: &Index, depth: &Dim) -> Vec<(Index, Option<Expr>)> {
    (0..QUAD)
        .map(|k| {
            let step = from.add_size(&Dim::from(k));
            let guard = (k > 0 && !is_whole(depth)).then(|| scope.is_below(&step, depth));
            (step, guard)
        })
        .collect()
}

/// The sum of four products.
fn four(scope: &mut Scope, numbers: &[Expr], quads: &[Expr]) -> Expr {
    let pool = &mut scope.pool;
    let products: Vec<Expr> = numbers
        .iter()
        .zip(quads)
        .map(|(x, y)| pool.call("x * y", Type::F32x4, &[*x, *y]))
        .collect();
    let pairs: Vec<Expr> = products
        .chunks(2)
        .filter_map(|pair| {
            let [x, y] = pair else { return None };
            Some(pool.call("x + y", Type::F32x4, &[*x, *y]))
        })
        .collect();
    let sum = pool.call("x + y", Type::F32x4, &pairs);
    pool.set_label(sum, "step");
    sum
}
