//! Matrix products for software rasterisers, on which the invocations of a subgroup are the lanes of a CPU vector.
//! Loads from memory take most of the time there. So invocations share what they load, by shuffles.
//!
//! A subgroup computes a tile of the result. The rows of a tile are divided into bands, see [`TileShape::bands`]. The
//! columns are divided into vec4s. A convolution is a product for each tap, a position in its window; their sum is the
//! result.

mod left_factor;
mod right_factor;
mod shape_choice;
mod shuffle;
mod tile_shape;
mod write;

pub use self::left_factor::LeftFactor;
use self::left_factor::Neighbours;
pub use self::right_factor::{RightFactor, packed_weight};
pub use self::shape_choice::{EnclosingKernel, RUNS_PER_START, WeightProduct, choose_shapes};
use self::shuffle::{ShuffledVector, shuffled};
use self::tile_shape::shape_for_values;
pub use self::tile_shape::{LeftLayout, PackedWeight, TileShape, cycles_of_values};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Graph, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, Texel, TextureLimits};
use crate::plan::cost::example_size;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, ceil_div, repeat, repeat_flattened};
use crate::plan::lanes;
use crate::plan::product::dot::with_label;
use crate::plan::product::{Product, TileGrid};
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../../shaders/tile.wgsl");

/// Parameter with the invocation index, for tiles of one band. The driver knows `subgroup_invocation_id` at compile
/// time, and would load it as a constant from memory for each column of a wide iteration, see
/// [`SubgroupTile::load_rows_wide`].
const LANE_PARAMETER: &str = "    @builtin(local_invocation_index) local: u32,\n";
/// Fewest cycles of a tile for which a dynamic schedule pays off: it takes up to 1,600 for each tile.
const MIN_DYNAMIC_CYCLES: u64 = 16_000;
/// Fewest columns for which a whole subgroup pays off.
const MIN_COLUMNS: usize = 16;

/// Writes four columns of a row with the epilogue. Takes the batch coordinates and the row's coordinates, then the first
/// column and the vector.
type RowWriter<'s> =
    &'s dyn Fn(&mut KernelScope, [&[Index]; 2], &Index, Expr) -> Result<Vec<Statement>>;

/// A matrix product that is computed in tiles.
pub struct TiledProduct<'s> {
    /// Sizes of the batch axes.
    pub batch: Shape,
    /// Rows of the left factor.
    pub rows: Dim,
    /// Shape whose positions in row-major order are the rows.
    pub row_shape: Shape,
    /// Columns of the right factor.
    pub columns: Dim,
    /// Sizes of the reduction loops around K, of which each iteration is a tap. Empty if there are none.
    pub taps: Shape,
    /// Length of the innermost reduction (K).
    pub k_size: Dim,
    /// Left factor.
    pub left: LeftFactor<'s>,
    /// Right factor.
    pub right: RightFactor<'s>,
    /// Writer of the result.
    pub write: RowWriter<'s>,
    /// Cost of the epilogue for an element, in simple operations.
    pub epilogue_cost: u32,
    /// True if `write` writes whole vec4s. Then the tile tests the bounds of each vec4, and sums of columns beyond the
    /// edge are zeros. If false, `write` tests the bounds of each column.
    pub writes_whole_vec4: bool,
}

/// Returns whether this kernel is the best one for a product on a device.
pub fn is_preferred(
    capabilities: &Capabilities,
    dtype: DType,
    [rows, columns, k_size]: [usize; 3],
) -> bool {
    capabilities.simd_lanes().is_some()
        && dtype == DType::F32
        && columns >= MIN_COLUMNS
        && k_size >= 2 * VEC4_LEN
        && rows > 0
}

/// Returns whether a device uses textures, and one of them can hold these panels.
pub fn fits_texture(limits: TextureLimits, panels: &Panels) -> bool {
    limits.bindings > 0 && limits.fits(panels.extent(Texel::F32))
}

/// Lowers a product with its epilogue. If the right factor is a weight, it is read from panels.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
    tile_shape: TileShape,
) -> Result<LoweredKernel<'a>> {
    let right = match packed_weight(&mut scope, product, tile_shape)? {
        Some((weight, packed)) => RightFactor::Panels(weight, packed, &|_| Index::zero()),
        None => RightFactor::Values(product),
    };
    lower_right_factor(scope, group, product, right)
}

/// Lowers a product whose right factor is read from any layout.
pub fn lower_values<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
) -> Result<LoweredKernel<'a>> {
    lower_right_factor(scope, group, product, RightFactor::Values(product))
}

/// Lowers a product whose right factor is a weight in panels.
pub fn lower_panels<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
    weight: ValueId,
    packed: PackedWeight,
) -> Result<LoweredKernel<'a>> {
    let right = RightFactor::Panels(weight, packed, &|_| Index::zero());
    lower_right_factor(scope, group, product, right)
}

fn lower_right_factor<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
    right: RightFactor,
) -> Result<LoweredKernel<'a>> {
    // Each band needs four rows of its own.
    let has_rows = example_size(scope.graph, &product.rows) >= subgroup_lanes(&scope)?;
    let shares_rows = has_rows && matches!(right, RightFactor::Values(_));
    let tiling = TiledProduct {
        batch: product.batch.clone(),
        rows: product.rows.clone(),
        row_shape: vec![product.rows.clone()],
        columns: product.columns.clone(),
        taps: Vec::new(),
        k_size: product.k_size.clone(),
        left: LeftFactor::of_values(&mut scope, product, shares_rows)?,
        right,
        write: &|scope, [outer, row], first, vector| {
            product.write_vec4(scope, group, outer, &row[0], first, vector)
        },
        epilogue_cost: group.epilogue_cost(scope.graph),
        writes_whole_vec4: is_multiple_of_4(&product.columns),
    };
    lower_tiles(scope, &tiling)
}

/// Lowers a product as a grid of tiles.
pub fn lower_tiles<'a>(
    mut scope: KernelScope<'a>,
    product: &TiledProduct,
) -> Result<LoweredKernel<'a>> {
    let lanes = subgroup_lanes(&scope)?;
    let shape = product.tile_shape(scope.graph, lanes);
    let sizes = [shape.width(lanes), shape.height()];
    // Neighbouring workgroups share columns, which are loaded more often than rows.
    let tiles = [
        ceil_div(&product.columns, sizes[0]),
        ceil_div(&product.rows, sizes[1]),
    ];
    let grid = TileGrid::new(&mut scope, &product.batch, tiles);
    let [column, row] = grid.tile;
    let place = TilePosition {
        batch: grid.batch,
        row: row.scale(&Dim::from(sizes[1])),
        column: column.scale(&Dim::from(sizes[0])),
        panel: column,
    };
    let k_vec4s = product.k_vec4s(scope.graph);
    let tile_cycles = shape.k_loop_cycles(lanes, LeftLayout::Contiguous, k_vec4s);
    let mut statements = vec![grid.surplus];
    statements.extend(tile_statements(&mut scope, product, place)?);
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, grid.count);
    lowered.template_values = holes(lanes, shape.bands);
    lowered.has_dynamic_schedule = tile_cycles >= MIN_DYNAMIC_CYCLES;
    Ok(lowered)
}

/// Emits the tile of a product at a position.
pub fn tile_statements(
    scope: &mut KernelScope,
    product: &TiledProduct,
    place: TilePosition,
) -> Result<Vec<Statement>> {
    let tile = SubgroupTile::new(scope, product, place)?;
    let sums: Vec<Vec<Expr>> = (0..tile.shape.rows)
        .map(|i| {
            let sum = |q| scope.pool.variable(&format!("sum{i}_{q}"), WgslType::F32x4);
            (0..tile.shape.column_vec4s).map(sum).collect()
        })
        .collect();
    let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
    let all = sums.iter().flatten().copied();
    let mut statements: Vec<Statement> = all.map(|sum| Statement::Declare(sum, zero)).collect();
    statements.extend(tile.k_loop(scope, product, &sums)?);
    statements.extend(tile.write(scope, product, &sums)?);
    Ok(statements)
}

/// Returns the template values for workgroups that are subgroups of `lanes` invocations and compute tiles of `bands`
/// bands.
pub fn holes(lanes: usize, bands: usize) -> Vec<(&'static str, String)> {
    let mut values = vec![lanes::workgroup_size(lanes)];
    if bands == 1 {
        values.push(("lane", LANE_PARAMETER.into()));
    }
    values
}

/// Returns the number of invocations of a subgroup.
fn subgroup_lanes(scope: &KernelScope) -> Result<usize> {
    let missing = || Error::internal("the tile kernel needs a device with subgroups");
    scope.capabilities.simd_lanes().ok_or_else(missing)
}

/// Position of a tile.
pub struct TilePosition {
    /// Batch coordinates.
    pub batch: Vec<Index>,
    /// First row.
    pub row: Index,
    /// First column.
    pub column: Index,
    /// Index of the panel that holds its columns.
    pub panel: Index,
}

impl TilePosition {
    /// Returns the position of the only tile of a product whose columns are one panel.
    pub fn of_panel(panel: Index) -> TilePosition {
        TilePosition {
            batch: Vec::new(),
            row: Index::zero(),
            column: Index::zero(),
            panel,
        }
    }
}

/// Loads for four K elements of an iteration.
struct KLoads {
    /// K elements of each row.
    rows: Vec<ShuffledVector>,
    /// Columns at each K element, by vec4 of columns.
    columns: Vec<Vec<ShuffledVector>>,
}

/// A tile of the result, which one subgroup computes.
struct SubgroupTile {
    /// Invocations of the subgroup.
    lanes: usize,
    batch: Vec<Index>,
    /// First row of the invocation's band.
    row: Index,
    /// Index of the panel that holds the tile's columns.
    panel: Index,
    /// First column of the tile.
    column: Index,
    /// Index of the invocation's band.
    band: Index,
    /// Index of the invocation in its band.
    lane: Index,
    shape: TileShape,
}

impl SubgroupTile {
    fn new(
        scope: &mut KernelScope,
        product: &TiledProduct,
        place: TilePosition,
    ) -> Result<SubgroupTile> {
        let lanes = subgroup_lanes(scope)?;
        let tile_shape = product.tile_shape(scope.graph, lanes);
        let (_, lane) = scope.counter("local", &Dim::from(lanes));
        let band_lanes = Dim::from(lanes / tile_shape.bands);
        let band = lane.div(&band_lanes);
        let row = place.row.add(&band.scale(&Dim::from(tile_shape.rows)));
        Ok(SubgroupTile {
            lanes,
            batch: place.batch,
            panel: place.panel,
            row: with_label(scope, &row, "row"),
            column: with_label(scope, &place.column, "column"),
            lane: lane.rem(&band_lanes),
            band,
            shape: tile_shape,
        })
    }

    /// Emits the loop over K. For panels, one loop runs over the taps and the K blocks of each, which are rows of a
    /// texture: it has no more rows than a loop may have iterations.
    fn k_loop(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let iterations = ceil_div(&product.k_size, product.right.k_block());
        if !matches!(product.right, RightFactor::Panels(..)) {
            return repeat(scope, "trip", &iterations, |scope, iteration| {
                self.k_iteration(scope, product, &[], &iteration, &iteration, sums)
            });
        }
        let mut names: Vec<String> = (0..product.taps.len()).map(|i| format!("tap{i}")).collect();
        names.push(String::from("trip"));
        let shape = [product.taps.as_slice(), &[iterations]].concat();
        let body = |scope: &mut KernelScope, texel_row: &Index, at: &[Index]| match at.split_last()
        {
            Some((iteration, taps)) => {
                self.k_iteration(scope, product, taps, iteration, texel_row, sums)
            }
            None => Ok(Vec::new()),
        };
        repeat_flattened(scope, "row_of_panel", &names, &shape, body)
    }

    /// Emits an iteration over K. `iteration` counts the iterations of a tap. Of panels, it reads the row `texel_row`
    /// of the texture.
    fn k_iteration(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        taps: &[Index],
        iteration: &Index,
        texel_row: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let k_elements = product.right.k_block();
        let parts = (0..k_elements).step_by(VEC4_LEN);
        let parts = parts
            .map(|from| self.load_k_elements(scope, product, taps, iteration, texel_row, from));
        let parts: Vec<KLoads> = parts.collect::<Result<_>>()?;
        let mut statements = loads(&parts);
        for part in &parts {
            let rows = shuffled(scope, &part.rows, |i| format!("row{i}"));
            let columns = part.columns.iter().enumerate();
            let columns: Vec<Vec<Expr>> = columns
                .map(|(q, columns)| shuffled(scope, columns, |k| format!("columns{q}_{k}")))
                .collect();
            for [i, q] in accumulation_order(self.lanes, [rows.len(), columns.len()]) {
                let pool = &mut scope.pool;
                let numbers = self.k_elements_of_row(pool, product.left.neighbours(), &rows, i);
                let step = multiply_vec4(pool, &numbers, &columns[q]);
                let total = scope
                    .pool
                    .call("x + y", WgslType::F32x4, &[sums[i][q], step]);
                statements.push(Statement::Assign(sums[i][q], total));
            }
        }
        Ok(statements)
    }

    /// Loads four K elements of an iteration, starting with element `from`.
    fn load_k_elements(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        taps: &[Index],
        iteration: &Index,
        texel_row: &Index,
        from: usize,
    ) -> Result<KLoads> {
        let k_elements = product.right.k_block();
        let rows = if k_elements == columns_per_vec4(self.lanes) {
            self.load_rows_wide(scope, product, taps, iteration, from)?
        } else {
            self.load_rows(scope, product, taps, iteration, from)?
        };
        let first = iteration
            .scale(&Dim::from(k_elements))
            .add_size(&Dim::from(from));
        let mut columns = Vec::new();
        for q in 0..self.shape.column_vec4s {
            columns.push(match &product.right {
                RightFactor::Values(product) => self.load_from_values(scope, product, &first, q)?,
                RightFactor::Columns(_, load) => self.load_by_columns(scope, load, &first, q)?,
                RightFactor::Panels(weight, PackedWeight { panels, .. }, matrix) => {
                    let matrix = matrix(&self.batch);
                    let panels_per_matrix = ceil_div(&product.columns, panels.width);
                    let panel = matrix.scale(&panels_per_matrix).add(&self.panel);
                    self.load_from_panel(scope, *weight, panels, [texel_row, &panel], [from, q])?
                }
            });
        }
        Ok(KLoads { rows, columns })
    }

    /// Returns the first column of vec4 `q` of the invocation, which may lie beyond the edge.
    fn first_column(&self, q: &Index) -> Index {
        let lane_offset = self.lane.scale(&Dim::from(VEC4_LEN));
        let vec4_offset = q.scale(&Dim::from(columns_per_vec4(self.band_lanes())));
        self.column.add(&lane_offset).add(&vec4_offset)
    }
}

impl TiledProduct<'_> {
    /// Returns K in units of four, over all taps, in the example's sizes.
    fn k_vec4s(&self, graph: &Graph) -> usize {
        let taps = example_size(graph, &Dim::product(&self.taps));
        taps * example_size(graph, &self.k_size).div_ceil(VEC4_LEN)
    }

    /// Returns the shape of the tiles.
    fn tile_shape(&self, graph: &Graph, lanes: usize) -> TileShape {
        match &self.right {
            RightFactor::Values(_) => {
                let outer = Dim::product(&self.batch);
                let sizes = [&outer, &self.rows, &self.columns];
                let row_multiple = match self.left.neighbours() {
                    Neighbours::KElements => 1,
                    Neighbours::Rows => VEC4_LEN,
                };
                let sizes = sizes.map(|size| example_size(graph, size));
                shape_for_values(lanes, sizes, row_multiple)
            }
            RightFactor::Panels(_, packed, _) => packed.tile_shape(lanes),
            RightFactor::Columns(tile_shape, _) => *tile_shape,
        }
    }
}

/// Emits all loads of an iteration before its arithmetic. The rasteriser's compiler keeps this order, and a tile takes
/// up to 8 % less time than with each load at its first use. All K elements of a row are loaded together: a cache may
/// hold no more than some of the tile's rows, where these lie a power of two apart.
fn loads(parts: &[KLoads]) -> Vec<Statement> {
    let height = parts.first().map_or(0, |part| part.rows.len());
    let rows = (0..height).flat_map(|row| parts.iter().map(move |part| part.rows[row].vector));
    let columns = parts.iter().flat_map(|part| part.columns.iter().flatten());
    let columns = columns.map(|loaded| loaded.vector);
    rows.chain(columns).map(Statement::Let).collect()
}

/// Yields row and vec4 of columns of each sum in the order of accumulation. A vec4 of columns at four K elements takes
/// sixteen vector registers of the processor. A processor with sixteen lanes has 32 registers, and keeps these columns
/// from row to row. One with eight lanes has 16, which leaves none. A row's four K elements are kept instead, and the
/// multiply instructions load the columns from memory: the loop over 8 rows and 4 vec4s has 2144 instructions of AVX2
/// instead of 2425.
fn accumulation_order(lanes: usize, [rows, vec4s]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..rows * vec4s).map(move |n| match lanes {
        16.. => [n % rows, n / rows],
        _ => [n / vec4s, n % vec4s],
    })
}

/// Returns the columns that `lanes` invocations cover with one vec4 each. It is also the number of K elements that they
/// cover if each loads four.
fn columns_per_vec4(lanes: usize) -> usize {
    lanes * VEC4_LEN
}

/// Returns the sum of up to four products: K elements of a row times the columns at these elements.
fn multiply_vec4(pool: &mut ExprPool, row: &[Expr], columns: &[Expr]) -> Expr {
    let products = row
        .iter()
        .zip(columns)
        .map(|(number, columns)| pool.call("x * y", WgslType::F32x4, &[*number, *columns]));
    let products: Vec<Expr> = products.collect();
    let pairs: Vec<Expr> = products.chunks(2).map(|pair| sum_of(pool, pair)).collect();
    let sum = sum_of(pool, &pairs);
    pool.set_label(sum, "steps");
    sum
}

fn sum_of(pool: &mut ExprPool, terms: &[Expr]) -> Expr {
    let terms = terms.iter().copied();
    let sum = terms.reduce(|x, y| pool.call("x + y", WgslType::F32x4, &[x, y]));
    sum.unwrap_or_else(|| pool.call("vec4<f32>()", WgslType::F32x4, &[]))
}
