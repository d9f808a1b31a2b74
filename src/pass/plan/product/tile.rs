//! Products of matrices where subgroups are the lanes of a vector: what costs a software rasteriser time is reading memory.

mod extent;
mod held;
mod left;
mod right;

use self::extent::of_values;
pub use self::extent::{Extent, Packed, RUNS, Rows, Sums, Whole, extents};
use self::held::{Held, handed};
pub use self::right::{Right, weight};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Graph, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Pool, Type};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Panels, Texel, TextureLimits};
use crate::pass::plan::cost::example;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::{QUAD, is_whole, part, quad};
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::turns::{Lines, in_turns};
use crate::pass::plan::kernel::{Lowered, below, guarded, pieces, repeat, repeat_as_one};
use crate::pass::plan::lanes;
use crate::pass::plan::product::dot::named;
use crate::pass::plan::product::{Covering, Product};
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../../../shaders/tile.wgsl");

/// The number of an invocation where nothing is handed on by it. What the driver knows while it compiles it would read from
/// memory for each column of a wide round.
const LANE: &str = "    @builtin(local_invocation_index) local: u32,\n";
/// Columns that are worth a whole subgroup.
const NARROWEST: usize = 16;

/// A step of a sum, and where it is one; absent if it is known to be.
pub type Step = (Index, Option<Expr>);

/// Four steps of a row of the left factor, by what is in front of rows and columns, the row's coordinates, and the taps
/// around the steps.
type Left<'s> = &'s dyn Fn(&mut Scope, [&[Index]; 2], (&[Index], &[Step])) -> Result<Expr>;

/// Statements that write four columns of a row with the epilogue, by what is in front of rows and columns, the row's
/// coordinates, the first column, and the numbers.
type Write<'s> = &'s dyn Fn(&mut Scope, [&[Index]; 2], &Index, Expr) -> Result<Vec<Statement>>;

/// A product of matrices as it is laid over tiles.
pub struct Tiling<'s> {
    /// What is in front of rows and columns.
    pub outer: Shape,
    /// Rows of the left factor.
    pub rows: Dim,
    /// What they are the places of, in row-major order.
    pub spread: Shape,
    /// Columns of the right factor.
    pub columns: Dim,
    /// Loops around the steps of a sum.
    pub taps: Shape,
    /// Steps of a sum.
    pub depth: Dim,
    /// By row and steps.
    pub left: Left<'s>,
    /// By step and column.
    pub right: Right<'s>,
    /// By row and column.
    pub write: Write<'s>,
    /// What the epilogue costs for an element.
    pub epilogue: u32,
    /// True if columns come in quads, all of which are written, those beyond the edge as zeros.
    pub in_quads: bool,
}

/// True if this is the better way to compute a product on a device.
pub fn suits(
    capabilities: &Capabilities,
    dtype: DType,
    [rows, columns, depth]: [usize; 3],
) -> bool {
    capabilities.lanes().is_some()
        && dtype == DType::F32
        && columns >= NARROWEST
        && depth >= 2 * QUAD
        && rows > 0
}

/// True if textures of these limits are of use, and one can hold these panels.
pub fn holds(limits: TextureLimits, panels: &Panels) -> bool {
    limits.bindings > 0 && limits.hold(panels.extent(Texel::F32))
}

/// A product with its epilogue.
pub fn lower<'a>(
    mut scope: Scope<'a>,
    group: &Group,
    product: &Product,
    extent: Extent,
) -> Result<Lowered<'a>> {
    let right = match weight(&mut scope, product, extent)? {
        Some((weight, packed)) => Right::Panels(weight, packed, &|_| Index::zero()),
        None => Right::Values(product),
    };
    by(scope, group, product, right)
}

/// The same of values that lie as they like.
pub fn by_values<'a>(scope: Scope<'a>, group: &Group, product: &Product) -> Result<Lowered<'a>> {
    by(scope, group, product, Right::Values(product))
}

/// The same with the right factor in panels of a weight.
pub fn by_panels<'a>(
    scope: Scope<'a>,
    group: &Group,
    product: &Product,
    (weight, packed): (ValueId, Packed),
) -> Result<Lowered<'a>> {
    let right = Right::Panels(weight, packed, &|_| Index::zero());
    by(scope, group, product, right)
}

fn by<'a>(scope: Scope<'a>, group: &Group, product: &Product, right: Right) -> Result<Lowered<'a>> {
    let tiling = Tiling {
        outer: product.outer.clone(),
        rows: product.rows.clone(),
        spread: vec![product.rows.clone()],
        columns: product.columns.clone(),
        taps: Vec::new(),
        depth: product.depth.clone(),
        left: &|scope, [outer, row], (_, steps)| {
            let factor = |(step, guard): &Step| (product.left(outer, &row[0], step), *guard);
            quad(scope, &steps.iter().map(factor).collect::<Vec<_>>())
        },
        right,
        write: &|scope, [outer, row], first, vector| {
            product.write(scope, group, (outer, &row[0], first), vector)
        },
        epilogue: group.epilogue_cost(scope.graph),
        in_quads: is_whole(&product.columns),
    };
    lay(scope, &tiling)
}

/// Tiles that cover a product.
pub fn lay<'a>(mut scope: Scope<'a>, product: &Tiling) -> Result<Lowered<'a>> {
    let lanes = lanes(&scope)?;
    let extent = product.extent(scope.graph, lanes);
    let sizes = [extent.width(lanes), extent.height()];
    // Neighbours share columns, which are read more often than rows.
    let tiles = [
        pieces(&product.columns, sizes[0]),
        pieces(&product.rows, sizes[1]),
    ];
    let covering = Covering::new(&mut scope, &product.outer, tiles);
    let [column, row] = covering.numbers;
    let place = Place {
        outer: covering.outer,
        row: row.scale(&Dim::from(sizes[1])),
        column: column.scale(&Dim::from(sizes[0])),
        panel: column,
    };
    let mut statements = vec![covering.surplus];
    statements.extend(sums(&mut scope, product, place)?);
    let mut lowered = Lowered::of_workgroups(scope, TEMPLATE, statements, covering.count);
    lowered.holes = holes(lanes, extent.bands);
    Ok(lowered)
}

/// The tile of a product that lies at a place.
pub fn sums(scope: &mut Scope, product: &Tiling, place: Place) -> Result<Vec<Statement>> {
    let tile = Tile::new(scope, product, place)?;
    let sums: Vec<Vec<Expr>> = (0..tile.extent.rows)
        .map(|i| {
            let sum = |q| scope.pool.variable(&format!("sum{i}_{q}"), Type::F32x4);
            (0..tile.extent.quads).map(sum).collect()
        })
        .collect();
    let zero = scope.pool.call("vec4<f32>()", Type::F32x4, &[]);
    let all = sums.iter().flatten().copied();
    let mut statements: Vec<Statement> = all.map(|sum| Statement::Declare(sum, zero)).collect();
    statements.extend(tile.rounds(scope, product, &sums)?);
    statements.extend(tile.write(scope, product, &sums)?);
    Ok(statements)
}

/// The holes of a shader whose workgroups are subgroups of so many lanes, which compute tiles of so many bands.
pub fn holes(lanes: usize, bands: usize) -> Vec<(&'static str, String)> {
    let mut holes = vec![lanes::size(lanes)];
    if bands == 1 {
        holes.push(("lane", LANE.into()));
    }
    holes
}

/// Invocations of a subgroup.
fn lanes(scope: &Scope) -> Result<usize> {
    let missing = || Error::internal("no subgroups to compute tiles");
    scope.capabilities.lanes().ok_or_else(missing)
}

/// Where a tile is.
pub struct Place {
    /// In front of rows and columns.
    pub outer: Vec<Index>,
    /// Its first row.
    pub row: Index,
    /// Its first column.
    pub column: Index,
    /// The number of its columns among the panels.
    pub panel: Index,
}

impl Place {
    /// The only tile of a product whose columns are those of a panel.
    pub fn of_panel(panel: Index) -> Place {
        Place {
            outer: Vec::new(),
            row: Index::zero(),
            column: Index::zero(),
            panel,
        }
    }
}

/// Four steps of a round.
struct Part {
    /// The steps of each row.
    rows: Vec<Held>,
    /// By quad of columns, the columns of each step.
    columns: Vec<Vec<Held>>,
}

/// What a subgroup computes.
struct Tile {
    /// Invocations of the subgroup.
    lanes: usize,
    outer: Vec<Index>,
    /// First row of the band.
    row: Index,
    /// The number of its columns among the panels.
    panel: Index,
    /// First column.
    column: Index,
    /// The number of the invocation's band, and that of the invocation in it.
    band: Index,
    lane: Index,
    extent: Extent,
}

impl Tile {
    fn new(scope: &mut Scope, product: &Tiling, place: Place) -> Result<Tile> {
        let lanes = lanes(scope)?;
        let extent = product.extent(scope.graph, lanes);
        let (_, lane) = scope.counter("local", &Dim::from(lanes));
        let of_band = Dim::from(lanes / extent.bands);
        let band = lane.div(&of_band);
        let row = place.row.add(&band.scale(&Dim::from(extent.rows)));
        Ok(Tile {
            lanes,
            outer: place.outer,
            panel: place.panel,
            row: named(scope, &row, "row"),
            column: named(scope, &place.column, "column"),
            lane: lane.rem(&of_band),
            band,
            extent,
        })
    }

    /// All rounds of all sums. Those of panels are one loop: a texture has no more rows than a loop may have iterations.
    fn rounds(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let rounds = pieces(&product.depth, product.right.round());
        if let Right::Values(_) = product.right {
            return repeat(scope, "trip", &rounds, |scope, round| {
                self.round(scope, product, (&[], &round), &round, sums)
            });
        }
        let mut names: Vec<String> = (0..product.taps.len()).map(|i| format!("tap{i}")).collect();
        names.push(String::from("trip"));
        let shape = [product.taps.as_slice(), &[rounds]].concat();
        let body = |scope: &mut Scope, row: &Index, at: &[Index]| match at.split_last() {
            Some((round, taps)) => self.round(scope, product, (taps, round), row, sums),
            None => Ok(Vec::new()),
        };
        repeat_as_one(scope, ("row_of_panel", &names), &shape, body)
    }

    /// The steps of a round of all sums, for which panels have a row of texels.
    fn round(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        (taps, round): (&[Index], &Index),
        row: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let count = product.right.round();
        let parts = (0..count).step_by(QUAD);
        let parts = parts.map(|from| self.part(scope, product, (taps, round), row, from));
        let parts: Vec<Part> = parts.collect::<Result<_>>()?;
        let mut statements = reads(&parts);
        for part in &parts {
            let rows = handed(scope, &part.rows, |i| format!("row{i}"));
            let columns = part.columns.iter().enumerate();
            let columns: Vec<Vec<Expr>> = columns
                .map(|(q, columns)| handed(scope, columns, |k| format!("columns{q}_{k}")))
                .collect();
            for [i, q] in in_order(self.lanes, [rows.len(), columns.len()]) {
                let step = four(&mut scope.pool, rows[i], &columns[q]);
                let total = scope.pool.call("x + y", Type::F32x4, &[sums[i][q], step]);
                statements.push(Statement::Assign(sums[i][q], total));
            }
        }
        Ok(statements)
    }

    /// Four steps of a round, from one of them on.
    fn part(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        (taps, round): (&[Index], &Index),
        row: &Index,
        from: usize,
    ) -> Result<Part> {
        let count = product.right.round();
        let rows = if count == span(self.lanes) {
            self.wide(scope, product, (taps, round), from)?
        } else {
            self.rows(scope, product, (taps, round), from)?
        };
        let first = round.scale(&Dim::from(count)).add_size(&Dim::from(from));
        let mut columns = Vec::new();
        for q in 0..self.extent.quads {
            columns.push(match &product.right {
                Right::Values(product) => self.right(scope, product, &first, q)?,
                Right::Panels(weight, Packed { panels, .. }, matrix) => {
                    let matrix = matrix(&self.outer);
                    let of_matrix = pieces(&product.columns, panels.width);
                    let panel = matrix.scale(&of_matrix).add(&self.panel);
                    self.panel(scope, (*weight, panels), [row, &panel], [from, q])?
                }
            });
        }
        Ok(Part { rows, columns })
    }

    /// The first column of a quad of an invocation, which may lie beyond the edge.
    fn quad_of(&self, q: &Index) -> Index {
        let quad = self.lane.scale(&Dim::from(QUAD));
        let strip = q.scale(&Dim::from(span(self.of_band())));
        self.column.add(&quad).add(&strip)
    }

    /// Writes all rows, of the first quad of columns at first: what lies together is written in a row, for a cache may hold no
    /// more than the places of one quad's columns.
    fn write(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let of_quad = |q: usize| sums.iter().map(|sums| sums[q]).collect();
        let quads: Vec<Vec<Expr>> = (0..self.extent.quads).map(of_quad).collect();
        let cost = (Lines::Long, product.epilogue);
        in_turns(scope, cost, &quads, &mut |scope, q, sums| {
            let first = self.quad_of(q);
            let rows = self.write_rows(scope, product, &first, sums)?;
            Ok(match product.in_quads {
                true => below(scope, &first, &product.columns, rows),
                false => rows,
            })
        })
    }

    /// Writes four columns of all rows.
    fn write_rows(
        &self,
        scope: &mut Scope,
        product: &Tiling,
        first: &Index,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let (cost, all) = ((Lines::Short, product.epilogue), &product.rows);
        let held: Vec<Vec<Expr>> = sums.iter().map(|sum| vec![*sum]).collect();
        in_turns(scope, cost, &held, &mut |scope, number, sums| {
            let place = self.row_to_write(scope, product, number);
            let quad = (product.write)(scope, [&self.outer, &place], first, sums[0])?;
            Ok(match self.extent.bands {
                1 => guarded(scope, &self.row, number.clone(), all, quad),
                // The first row of a tile is there, that of a band behind it may not be.
                _ => below(scope, &self.row.add(number), all, quad),
            })
        })
    }

    /// The coordinates of a row by its number in the tile. Where the length of a row is symbolic it is one number, so that
    /// places are products with that length, not sums with a further size for each row.
    fn row_to_write(&self, scope: &mut Scope, product: &Tiling, number: &Index) -> Vec<Index> {
        let row = self.row.add(number);
        if number.is(0) || product.columns.as_const().is_some() {
            return index::coordinates(&row, &product.spread);
        }
        let at = row.emit(&mut scope.pool);
        if let Some(i) = number.as_const() {
            scope.pool.set_label(at, &format!("row{i}"));
        }
        index::coordinates(&Index::expr(at, &product.rows), &product.spread)
    }
}

impl Tiling<'_> {
    /// The shape of tiles.
    fn extent(&self, graph: &Graph, lanes: usize) -> Extent {
        match &self.right {
            Right::Values(_) => {
                let outer = Dim::product(&self.outer);
                let sizes = [&outer, &self.rows, &self.columns];
                of_values(lanes, sizes.map(|size| example(graph, size)))
            }
            Right::Panels(_, packed, _) => packed.extent(lanes),
        }
    }
}

/// Reads all of a round before anything of it is computed. The rasteriser's compiler leaves it so, and a tile takes up to 8
/// hundredths less time than if each number is read where it is needed first. All steps of a row are read at once: a cache may
/// hold no more than some of the tile's rows, where these lie a power of two apart.
fn reads(parts: &[Part]) -> Vec<Statement> {
    let height = parts.first().map_or(0, |part| part.rows.len());
    let rows = (0..height).flat_map(|row| parts.iter().map(move |part| part.rows[row].quad));
    let columns = parts.iter().flat_map(|part| part.columns.iter().flatten());
    let columns = columns.map(|held| held.quad);
    rows.chain(columns).map(Statement::Let).collect()
}

/// The numbers of a row and a quad of columns of each sum, as they follow each other. The columns of a quad in its four steps are
/// sixteen vectors: where lanes are sixteen a processor has 32 registers, and keeps them from row to row. Where it has 16 that
/// leaves none, so that a row's four steps are kept, and columns are read from memory by the instructions that multiply them:
/// the loop over 8 rows and 4 quads has 2144 instructions of AVX2 instead of 2425.
fn in_order(lanes: usize, [rows, quads]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..rows * quads).map(move |n| match lanes {
        16.. => [n % rows, n / rows],
        _ => [n / quads, n % quads],
    })
}

/// Columns that so many invocations compute for each quad of an invocation. So many are the steps of a row of which each of
/// them reads four, too.
fn span(lanes: usize) -> usize {
    lanes * QUAD
}

/// The sum of up to four products: of the numbers of a row and columns of as many steps.
fn four(pool: &mut Pool, row: Expr, columns: &[Expr]) -> Expr {
    let products = columns.iter().enumerate().map(|(k, columns)| {
        let number = part(pool, row, k, Type::F32);
        pool.call("x * y", Type::F32x4, &[number, *columns])
    });
    let products: Vec<Expr> = products.collect();
    let pairs: Vec<Expr> = products.chunks(2).map(|pair| added(pool, pair)).collect();
    let sum = added(pool, &pairs);
    pool.set_label(sum, "steps");
    sum
}

fn added(pool: &mut Pool, terms: &[Expr]) -> Expr {
    let terms = terms.iter().copied();
    let sum = terms.reduce(|x, y| pool.call("x + y", Type::F32x4, &[x, y]));
    sum.unwrap_or_else(|| pool.call("vec4<f32>()", Type::F32x4, &[]))
}
