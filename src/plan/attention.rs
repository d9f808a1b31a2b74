//! Fused attention for devices whose subgroups are the lanes of a CPU vector: scores, softmax and the product with the
//! values in one kernel. The kernel takes a block of keys at a time, so that scores stay in registers.
//!
//! The softmax follows Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): the running sums are
//! rescaled whenever a larger score comes. Each invocation owns whole query rows, so that invocations exchange only the
//! keys and values that they have read.

mod block;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::op::ReduceFunction;
use crate::plan::cost::example_size;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple, is_multiple_of_4};
use crate::plan::element::{KernelScope, scalar};
use crate::plan::group::{AttentionPattern, Group};
use crate::plan::kernel::epilogue_loop::{LineEpilogue, write_lines};
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, repeat_to};
use crate::plan::product::dot::with_label;
use crate::plan::product::{Product, Side, TileGrid};
use crate::plan::{lanes, variant};

const TEMPLATE: &str = include_str!("../../shaders/attention.wgsl");

/// Most products of an invocation in one block: rows × keys × channels. The source has them unrolled, one statement for
/// four of them.
const MAX_BLOCK_PRODUCTS: usize = 2048;
/// Most channels of a query and of the values together. With more, an invocation can hold so few rows that three
/// separate kernels are faster.
const MAX_CHANNELS: usize = 320;
/// Most rows of an invocation: more rows share each load, but no longer fit into registers.
const MAX_ROWS: usize = 4;
/// Fewest tiles that keep all threads busy.
const MIN_TILES: usize = 8;
/// Fewest queries and keys for which the fused kernel pays off, though some of sixteen lanes are idle then.
const MIN_QUERIES_AND_KEYS: usize = 8;

/// Number of query rows and keys that an invocation processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttentionTileShape {
    /// Rows of an invocation. The distance between neighbouring ones is the number of invocations.
    rows: usize,
    /// Keys of a block.
    keys: usize,
}

/// Returns whether the fused kernel is the better way to compute scores, softmax and product, judging by their sizes.
pub fn is_preferred(
    graph: &Graph,
    capabilities: &Capabilities,
    anchor: usize,
    attention: &AttentionPattern,
) -> Result<bool> {
    let [scores, values] = products(graph, anchor, attention)?;
    let sizes = [&values.rows, &values.k_size].map(|size| example_size(graph, size));
    let has_enough = sizes.iter().all(|size| *size >= MIN_QUERIES_AND_KEYS);
    let tile_shape_for = |lanes| tile_shape(graph, lanes, [&scores, &values]);
    Ok(has_enough && capabilities.simd_lanes().and_then(tile_shape_for).is_some())
}

/// Returns whether keys and values can be read as vec4s, along channels or along keys, from memory that
/// does not belong to a weight. The kernel reads them many times.
pub fn can_read_operands(
    scope: &mut KernelScope,
    anchor: usize,
    attention: &AttentionPattern,
) -> Result<bool> {
    let graph = scope.graph;
    let mut is_readable = true;
    for product in products(graph, anchor, attention)? {
        is_readable &= product
            .factor_layout(scope, Side::Right)?
            .is_some_and(|layout| {
                let is_not_weight =
                    !matches!(graph.value(layout.base).definition, Definition::Weight(_));
                is_not_weight && (layout.is_k_contiguous || layout.is_line_contiguous)
            });
    }
    Ok(is_readable)
}

/// Returns the product of queries and keys, and the product of softmax weights and values.
fn products(graph: &Graph, anchor: usize, attention: &AttentionPattern) -> Result<[Product; 2]> {
    let [scores, values] = [attention.scores, anchor].map(|node| &graph.nodes[node]);
    let (scores, values) = (Product::of(graph, scores)?, Product::of(graph, values)?);
    let values = match attention.is_transposed {
        true => values.transposed()?,
        false => values,
    };
    Ok([scores, values])
}

/// Chooses as many rows and keys as registers hold, such that every thread gets some tiles. `None` if the channel
/// counts of queries and values are unknown, do not fit the vec4s that are read, or are too large.
fn tile_shape(
    graph: &Graph,
    lanes: usize,
    [scores, values]: [&Product; 2],
) -> Option<AttentionTileShape> {
    let sizes = [&scores.k_size, &values.columns].map(Dim::as_const);
    let [Some(query_channels), Some(value_channels)] = sizes else {
        return None;
    };
    let channels = usize::try_from(query_channels + value_channels).ok();
    let channels = channels.filter(|channels| *channels <= MAX_CHANNELS)?;
    let batch = example_size(graph, &Dim::product(&values.batch));
    let rows = example_size(graph, &values.rows);
    let is_useful = |rows_per_invocation: &usize| {
        let tiles = batch * rows.div_ceil(rows_per_invocation * lanes);
        *rows_per_invocation == 1 || (rows_per_invocation - 1) * lanes < rows && tiles >= MIN_TILES
    };
    let fills_vec4s = |keys: &usize| {
        let channels_per_load = VEC4_LEN * lanes / keys;
        is_multiple(&scores.k_size, channels_per_load)
            && is_multiple(&values.columns, channels_per_load)
    };
    // Try more rows first: all rows of an invocation share the keys and values that are read.
    let row_counts = [MAX_ROWS, MAX_ROWS / 2, 1].into_iter().filter(is_useful);
    let mut shapes = row_counts.flat_map(|rows| {
        let keys = [lanes, lanes / 2].into_iter().filter(fills_vec4s);
        keys.map(move |keys| AttentionTileShape { rows, keys })
    });
    shapes.find(|shape| shape.rows * shape.keys * channels <= MAX_BLOCK_PRODUCTS)
}

/// Lowers a fused attention group.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    attention: &AttentionPattern,
) -> Result<LoweredKernel<'a>> {
    let graph = scope.graph;
    let missing =
        || Error::internal("a fused attention group needs an anchor, subgroups and a tile shape");
    let anchor = group.anchor.ok_or_else(missing)?;
    let [scores, values] = products(graph, anchor, attention)?;
    let node = &graph.nodes[anchor];
    let lanes = scope.capabilities.simd_lanes().ok_or_else(missing)?;
    let shape = tile_shape(graph, lanes, [&scores, &values]).ok_or_else(missing)?;
    let description = format!(
        "tiles of {} queries, blocks of {} keys",
        shape.rows * lanes,
        shape.keys
    );
    let choice = variant::subgroup_tile_choice(&scope, node, &description)?;
    let tiles = ceil_div(&values.rows, shape.rows * lanes);
    let grid = TileGrid::new(&mut scope, &values.batch, [tiles, Dim::ONE]);
    let products = [&scores, &values];
    let tile = AttentionTile::new(&mut scope, attention, lanes, shape, products, &grid)?;
    let mut statements = vec![grid.surplus.clone()];
    statements.extend(tile.declare_rows(&mut scope));
    let blocks = ceil_div(&values.k_size, shape.keys);
    let end = tile.visible_blocks(&mut scope, &grid, &blocks);
    let blocks = repeat_to(&mut scope, "block", &blocks, end, |scope, block| {
        tile.add_block(scope, &block)
    })?;
    statements.extend(blocks);
    statements.extend(tile.write(&mut scope, group)?);
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, grid.count);
    lowered.template_values.push(lanes::workgroup_size(lanes));
    lowered.title = Some("attention");
    lowered.choice = choice;
    Ok(lowered)
}

/// The axis along which four neighbours of keys or values are read as one vec4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VectorAxis {
    /// Four channels of a key.
    Channels,
    /// A channel of four keys.
    Keys,
}

impl VectorAxis {
    /// Returns the contiguous axis of keys and that of values.
    fn contiguous(
        scope: &mut KernelScope,
        [scores, values]: [&Product; 2],
    ) -> Result<[VectorAxis; 2]> {
        let has_whole_vec4s = is_multiple_of_4(&values.k_size);
        let keys = scores.factor_layout(scope, Side::Right)?;
        let keys = keys.is_some_and(|layout| layout.is_line_contiguous && !layout.is_k_contiguous);
        let values = values.factor_layout(scope, Side::Right)?;
        let values =
            values.is_some_and(|layout| layout.is_k_contiguous && !layout.is_line_contiguous);
        Ok(
            [keys, values].map(|are_keys| match are_keys && has_whole_vec4s {
                true => VectorAxis::Keys,
                false => VectorAxis::Channels,
            }),
        )
    }
}

/// A tile of query rows, which one subgroup computes.
struct AttentionTile<'p> {
    attention: &'p AttentionPattern,
    /// Number of invocations of the subgroup.
    lanes: usize,
    shape: AttentionTileShape,
    /// Vec4 axes of keys and of values.
    vector_axes: [VectorAxis; 2],
    /// Product of queries and keys.
    scores: &'p Product,
    /// Product of softmax weights and values.
    values: &'p Product,
    /// Batch coordinates of the product with the values.
    batch: Vec<Index>,
    /// Index of the invocation.
    lane: Index,
    /// Rows of the invocation.
    rows: Vec<QueryRow>,
    /// Minus infinity.
    minus_infinity: Expr,
}

/// A query row of an invocation.
struct QueryRow {
    /// Index of the row, which may lie beyond the last row.
    index: Index,
    /// Variable with the largest score so far.
    running_max: Expr,
    /// Variable with the sum of the exponentials relative to the largest score.
    running_sum: Expr,
    /// Variables with the weighted sum of the values, as vec4s of channels.
    output: Vec<Expr>,
}

impl QueryRow {
    /// Creates the variables of the invocation's row `r`.
    fn new(scope: &mut KernelScope, r: usize, index: Index, vec4s: usize) -> QueryRow {
        let mut variable = |name: String, ty| scope.pool.variable(&name, ty);
        QueryRow {
            index,
            running_max: variable(format!("largest{r}"), WgslType::F32),
            running_sum: variable(format!("total{r}"), WgslType::F32),
            output: (0..vec4s)
                .map(|q| variable(format!("output{r}_{q}"), WgslType::F32x4))
                .collect(),
        }
    }

    fn variables(&self) -> impl Iterator<Item = Expr> {
        let softmax_variables = [self.running_max, self.running_sum].into_iter();
        softmax_variables.chain(self.output.iter().copied())
    }
}

impl<'p> AttentionTile<'p> {
    fn new(
        scope: &mut KernelScope,
        attention: &'p AttentionPattern,
        lanes: usize,
        shape: AttentionTileShape,
        [scores, values]: [&'p Product; 2],
        grid: &TileGrid,
    ) -> Result<AttentionTile<'p>> {
        let (_, lane) = scope.counter("local", &Dim::from(lanes));
        let first_row = grid.tile[0].scale(&Dim::from(shape.rows * lanes));
        let first_row = with_label(scope, &first_row.add(&lane), "row");
        let vec4s = example_size(scope.graph, &values.columns) / VEC4_LEN;
        let row_index = |r: usize| first_row.add_size(&Dim::from(r * lanes));
        let rows = (0..shape.rows).map(|r| QueryRow::new(scope, r, row_index(r), vec4s));
        let rows = rows.collect();
        let (max, capabilities) = (ReduceFunction::Max, scope.capabilities);
        Ok(AttentionTile {
            attention,
            lanes,
            shape,
            vector_axes: VectorAxis::contiguous(scope, [scores, values])?,
            scores,
            values,
            batch: grid.batch.clone(),
            lane,
            rows,
            minus_infinity: scalar::identity(&mut scope.pool, max, DType::F32, capabilities)?,
        })
    }

    /// Returns the number of key blocks that contain an unmasked key of any row of the tile. A tile's row count is a
    /// multiple of a block's key count.
    fn visible_blocks(&self, scope: &mut KernelScope, grid: &TileGrid, blocks: &Dim) -> Expr {
        let block_count = scope.pool.size(blocks);
        if !self.attention.is_causal {
            return block_count;
        }
        let blocks_per_tile = Dim::from(self.shape.rows * self.lanes / self.shape.keys);
        let end = grid.tile[0].add_size(&Dim::ONE).scale(&blocks_per_tile);
        let end = end.emit(&mut scope.pool);
        scope
            .pool
            .call("min(x, y)", WgslType::U32, &[end, block_count])
    }

    /// Declares the running maximum, sum and output of every row.
    fn declare_rows(&self, scope: &mut KernelScope) -> Vec<Statement> {
        let zero = scope.pool.literal(WgslType::F32, 0.0);
        let zeros = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
        let declare_row = |row: &QueryRow| {
            let initial_values = [self.minus_infinity, zero].into_iter();
            let initial_values = initial_values.chain(row.output.iter().map(|_| zeros));
            let declare = |(variable, initial_value)| Statement::Declare(variable, initial_value);
            row.variables()
                .zip(initial_values)
                .map(declare)
                .collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(declare_row).collect()
    }

    /// Writes the rows with the epilogue.
    fn write(&self, scope: &mut KernelScope, group: &Group) -> Result<Vec<Statement>> {
        let cost = group.epilogue_cost(scope.graph);
        let mut statements = Vec::new();
        for row in &self.rows {
            statements.extend([row.running_max, row.running_sum].map(Statement::Freeze));
            let is_empty = self.is_fully_masked(scope, row);
            let outputs: Vec<Vec<Expr>> = row.output.iter().map(|output| vec![*output]).collect();
            let line = write_lines(
                scope,
                LineEpilogue::Unrolled,
                cost,
                &outputs,
                &mut |scope, q, outputs| {
                    let mean = self.normalized(scope, row, outputs[0], is_empty);
                    let first = q.scale(&Dim::from(VEC4_LEN));
                    self.values
                        .write_vec4(scope, group, &self.batch, &row.index, &first, mean)
                },
            )?;
            statements.extend(bounds_guard(scope, &row.index, &self.values.rows, line));
        }
        Ok(statements)
    }

    /// Divides four weighted sums of a row by the row's total. A row without any unmasked key gives zeros.
    fn normalized(
        &self,
        scope: &mut KernelScope,
        row: &QueryRow,
        sums: Expr,
        is_empty: Option<Expr>,
    ) -> Expr {
        let pool = &mut scope.pool;
        let mean = pool.call("x / y", WgslType::F32x4, &[sums, row.running_sum]);
        let zeros = pool.call("vec4<f32>()", WgslType::F32x4, &[]);
        is_empty.map_or(mean, |is_empty| pool.select(is_empty, zeros, mean))
    }

    /// Returns the condition under which a row gives zeros, because all its keys are masked or there are none. `None`
    /// if that cannot happen.
    fn is_fully_masked(&self, scope: &mut KernelScope, row: &QueryRow) -> Option<Expr> {
        let pool = &mut scope.pool;
        let keys = &self.values.k_size;
        if self.attention.is_safe {
            return Some(pool.call(
                "x == y",
                WgslType::Bool,
                &[row.running_max, self.minus_infinity],
            ));
        }
        let (count, zero) = (pool.size(keys), pool.index(0));
        let may_be_empty = keys.as_const().is_none();
        may_be_empty.then(|| pool.call("x == y", WgslType::Bool, &[count, zero]))
    }
}
