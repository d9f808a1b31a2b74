//! The three stages of a workgroup of a Winograd convolution: transform the input of its tiles, multiply by the filters,
//! and transform the products into output positions with the epilogue.

use super::partition::WorkPartition;
use super::scratch::Scratch;
use super::transform::{ExprMatrix, TileTransform};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::winograd::OutputTile;
use crate::plan::conv::{ConvSizes, implicit_gemm};
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::VEC4_LEN;
use crate::plan::group::Group;
use crate::plan::kernel::epilogue_loop::{LineEpilogue, write_lines};
use crate::plan::kernel::{bounds_guard, ceil_div, offset_bounds_guard, repeat, repeat_to};
use crate::plan::product::TileGrid;
use crate::plan::product::dot::with_label;
use crate::plan::product::tile::{self, Extent, PackedWeight, RightFactor, TiledProduct};

/// A workgroup, which consists of one subgroup.
pub(super) struct WinogradWorkgroup<'s> {
    sizes: &'s ConvSizes,
    output_tile: OutputTile,
    packed: PackedWeight,
    /// Invocations of the workgroup.
    pub(super) lanes: usize,
    partition: WorkPartition,
    /// Workgroups of the dispatch.
    pub(super) count: Dim,
    /// Statement that ends surplus workgroups.
    pub(super) surplus: Statement,
    /// Index of the channel group, and of the block of output channels.
    group: Index,
    channel_block: Index,
    /// First tile.
    first_tile: Index,
    /// Number of images, and of tiles along both axes.
    tile_grid: [Dim; 3],
    transformed_input: Scratch,
    products: Scratch,
}

/// A tile of four channels.
struct WinogradTile {
    /// Index of the tile.
    index: Index,
    image: Index,
    /// First row and first column of its output positions.
    first_position: [Index; 2],
    /// Bound of the rows, and tiles in a row.
    bounds: [Dim; 2],
}

impl WinogradTile {
    /// Returns an output position by its row and column in the tile.
    fn position(&self, scope: &mut KernelScope, [y, x]: [&Index; 2]) -> [Index; 2] {
        let row = scope.separate(self.first_position[0].add(y), &self.bounds);
        [row, self.first_position[1].add(x)]
    }
}

impl<'s> WinogradWorkgroup<'s> {
    pub(super) fn new(
        scope: &mut KernelScope,
        sizes: &'s ConvSizes,
        places: OutputTile,
        packed: PackedWeight,
    ) -> Result<WinogradWorkgroup<'s>> {
        let missing = || {
            Error::internal("the Winograd kernel needs subgroups and a two-dimensional convolution")
        };
        let lanes = scope.capabilities.simd_lanes().ok_or_else(missing)?;
        let extent = packed.tile_shape(lanes);
        let tiles =
            super::tile_grid(&scope.graph.ty(sizes.result).shape, places).ok_or_else(missing)?;
        let of_all = [
            &sizes.groups,
            &Dim::product(&tiles),
            &sizes.channels,
            &sizes.outputs,
        ];
        let share = WorkPartition::new(places, extent, lanes, of_all);
        let parts = [share.tile_parts.clone(), share.channel_blocks.clone()];
        let covering = TileGrid::new(scope, std::slice::from_ref(&sizes.groups), parts);
        let [part, block] = covering.tile;
        let height = Dim::from(extent.height());
        let scratch = |name, channels| {
            let count = ceil_div(channels, VEC4_LEN) * &height;
            Scratch::new(
                sizes.result,
                name,
                places,
                &covering.workgroup,
                &covering.count,
                count,
            )
        };
        Ok(WinogradWorkgroup {
            transformed_input: scratch("seen", &sizes.channels),
            products: scratch("summed", &share.block_columns),
            group: covering
                .batch
                .into_iter()
                .next()
                .unwrap_or_else(Index::zero),
            first_tile: with_label(scope, &part.scale(&height), "first"),
            count: covering.count,
            surplus: covering.surplus,
            sizes,
            output_tile: places,
            packed,
            lanes,
            partition: share,
            channel_block: block,
            tile_grid: tiles,
        })
    }

    fn extent(&self) -> Extent {
        self.packed.tile_shape(self.lanes)
    }

    /// Emits a loop over the `quads` vec4s of channels of the workgroup's tiles, one for each invocation at a time.
    /// `make` gets the index of the vec4 among the channels, its number in the scratch memory, and the tile.
    fn for_each_tile(
        &self,
        scope: &mut KernelScope,
        name: &str,
        quads: &Dim,
        make: impl FnOnce(&mut KernelScope, &Index, (&Index, &WinogradTile)) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        let trips = ceil_div(quads, self.lanes);
        repeat(scope, name, &trips, |scope, trip| {
            let (_, local) = scope.counter("local", &Dim::from(self.lanes));
            let number = trip.scale(&Dim::from(self.lanes)).add(&local);
            let number = with_label(scope, &number, "number");
            let height = Dim::from(self.extent().height());
            let tile = self.first_tile.add(&number.rem(&height));
            let tile = with_label(scope, &tile, "tile");
            let place = self.tile_at(tile)?;
            let made = make(scope, &number.div(&height), (&number, &place))?;
            let made = bounds_guard(scope, &place.index, &self.tile_count(), made);
            Ok(bounds_guard(scope, &number, quads, made))
        })
    }

    /// Returns the position of a tile.
    fn tile_at(&self, tile: Index) -> Result<WinogradTile> {
        let place = index::delinearize(&tile, &self.tile_grid);
        let [image, down, across] = <[Index; 3]>::try_from(place).map_err(|_| {
            Error::internal("a Winograd tile must have three coordinates: image, row and column")
        })?;
        let of_tile = self.output_tile.size();
        let height = &self.tile_grid[1] * of_tile as i64 + self.output_tile.input_size() as i64;
        Ok(WinogradTile {
            index: tile,
            image,
            first_position: [down, across].map(|tile| tile.scale(&Dim::from(of_tile))),
            bounds: [height, self.tile_grid[2].clone()],
        })
    }

    /// First stage: transforms the input. An invocation transforms four channels of a tile.
    pub(super) fn transform_input(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let channels = ceil_div(&self.sizes.channels, VEC4_LEN);
        self.for_each_tile(
            scope,
            "seen_trip",
            &self.transformed_input.vectors_per_matrix,
            |scope, quad, (number, place)| {
                let quad = self.group.scale(&channels).add(quad);
                let tap = [Index::zero(), Index::zero()];
                let positions = try_matrix(self.output_tile.input_size(), |y, x| {
                    let position = place.position(scope, [&y.into(), &x.into()]);
                    let quad = [place.image.clone(), quad.clone()];
                    let seen =
                        implicit_gemm::load_input(scope, self.sizes, quad, None, &position, &tap)?;
                    scope.pool.set_label(seen, &format!("d{y}{x}"));
                    Ok(seen)
                })?;
                let made = TileTransform::new(
                    &mut scope.pool,
                    self.output_tile.input_transform(),
                    &positions,
                );
                let mut statements = made.statements;
                for (y, x, vector) in enumerate_matrix(&made.results) {
                    let matrix = self.transformed_input.matrix_index(scope, [y, x]);
                    statements.push(
                        self.transformed_input
                            .store(scope, &matrix, number, vector)?,
                    );
                }
                Ok(statements)
            },
        )
    }

    /// Second stage: one matrix product for each element of the transformed tile. Rows are tiles, columns are output
    /// channels.
    pub(super) fn multiply(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let matrices = Dim::from(self.output_tile.matrices());
        let first = self.channel_block.scale(&self.partition.block_panels);
        let rest = self.remaining(scope, &first);
        repeat(scope, "matrix", &matrices, |scope, matrix| {
            let most = &self.partition.block_panels;
            repeat_to(scope, "panel", most, rest, |scope, panel| {
                self.multiply_panel(scope, &matrix, &first, &panel)
            })
        })
    }

    /// Returns how many panels the workgroup has, starting at `first`: the last block of a group may have fewer.
    fn remaining(&self, scope: &mut KernelScope, first: &Index) -> Expr {
        let (first, pool) = (first.emit(&mut scope.pool), &mut scope.pool);
        let [all, most] = [&self.partition.group_panels, &self.partition.block_panels]
            .map(|size| pool.size(size));
        let rest = pool.call("x - y", WgslType::U32, &[all, first]);
        pool.call("min(x, y)", WgslType::U32, &[rest, most])
    }

    /// Multiplies a matrix by a panel of filters. `panel` counts from the workgroup's first panel.
    fn multiply_panel(
        &self,
        scope: &mut KernelScope,
        matrix: &Index,
        first: &Index,
        panel: &Index,
    ) -> Result<Vec<Statement>> {
        let (extent, quad) = (self.extent(), Dim::from(VEC4_LEN));
        let [rows, columns] = [extent.height(), extent.width(self.lanes)].map(Dim::from);
        let strip = panel.scale(&columns.floor_div(&quad));
        let tiling = TiledProduct {
            batch: Vec::new(),
            rows: rows.clone(),
            row_shape: vec![rows.clone()],
            columns,
            taps: Vec::new(),
            k_size: self.sizes.channels.clone(),
            left: &|scope, [_, row], (_, steps)| {
                let [(channel, guard), ..] = steps else {
                    return Err(Error::internal(
                        "an iteration of a Winograd product has no K elements",
                    ));
                };
                let number = channel.div(&quad).scale(&rows).add(&row[0]);
                self.transformed_input.load(scope, matrix, &number, *guard)
            },
            right: RightFactor::Panels(self.sizes.filter, self.packed.clone(), &|_| {
                let of_group = matrix.scale(&self.sizes.groups).add(&self.group);
                of_group.scale(&self.partition.group_panels)
            }),
            write: &|scope, [_, row], first, vector| {
                let number = strip.add(&first.div(&quad)).scale(&rows).add(&row[0]);
                Ok(vec![self.products.store(scope, matrix, &number, vector)?])
            },
            epilogue_cost: 0,
            writes_whole_vec4: true,
        };
        tile::tile_statements(
            scope,
            &tiling,
            tile::TilePosition::of_panel(first.add(panel)),
        )
    }

    /// Last stage: transforms the products into output positions and applies the epilogue. An invocation transforms four
    /// channels of a tile.
    pub(super) fn transform_output(
        &self,
        scope: &mut KernelScope,
        group: &Group,
    ) -> Result<Vec<Statement>> {
        let of_block = self.partition.block_columns.floor_div(&Dim::from(VEC4_LEN));
        let all = ceil_div(&self.sizes.outputs, VEC4_LEN);
        self.for_each_tile(
            scope,
            "output_trip",
            &self.products.vectors_per_matrix,
            |scope, quad, (number, place)| {
                let quad = self.channel_block.scale(&of_block).add(quad);
                let sums = try_matrix(self.output_tile.input_size(), |y, x| {
                    let matrix = self.products.matrix_index(scope, [y, x]);
                    let sum = self.products.load(scope, &matrix, number, None)?;
                    scope.pool.set_label(sum, &format!("m{y}{x}"));
                    Ok(sum)
                })?;
                let made =
                    TileTransform::new(&mut scope.pool, self.output_tile.output_transform(), &sums);
                let channels = [place.image.clone(), self.group.scale(&all).add(&quad)];
                let statements = self.write_tile(scope, group, &channels, place, made)?;
                Ok(bounds_guard(scope, &quad, &all, statements))
            },
        )
    }

    /// Writes the positions of a tile.
    fn write_tile(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        channels: &[Index; 2],
        place: &WinogradTile,
        made: TileTransform,
    ) -> Result<Vec<Statement>> {
        let held = position_variables(&mut scope.pool, &made.results);
        let numbers = held.iter().flatten().zip(made.results.iter().flatten());
        let declared = numbers.map(|(held, number)| Statement::Declare(*held, *number));
        let mut statements: Vec<Statement> = made.statements.into_iter().chain(declared).collect();
        let cost = group.epilogue_cost(scope.graph);
        let (first, space) = (&place.first_position, &self.sizes.space);
        statements.extend(write_lines(
            scope,
            LineEpilogue::Unrolled,
            cost,
            &held,
            &mut |scope, y, held| {
                let mut line = Vec::new();
                for (x, vector) in held.iter().enumerate() {
                    let position = place.position(scope, [y, &x.into()]);
                    let quad = [channels.as_slice(), &position].concat();
                    let written =
                        implicit_gemm::write_vec4(scope, group, self.sizes, &quad, *vector)?;
                    line.extend(offset_bounds_guard(scope, &first[1], x, &space[1], written));
                }
                Ok(offset_bounds_guard(
                    scope,
                    &first[0],
                    y.clone(),
                    &space[0],
                    line,
                ))
            },
        )?);
        Ok(statements)
    }

    /// Returns the number of tiles of all images.
    pub(super) fn tile_count(&self) -> Dim {
        Dim::product(&self.tile_grid)
    }

    /// Returns the operations of all transforms of all workgroups.
    pub(super) fn transform_operations(&self) -> Dim {
        let of = [
            (
                &self.transformed_input.vectors_per_matrix,
                self.output_tile.input_transform(),
            ),
            (
                &self.products.vectors_per_matrix,
                self.output_tile.output_transform(),
            ),
        ];
        let of_workgroup =
            of.map(|(count, by)| count * (VEC4_LEN * TileTransform::operations(by)) as i64);
        let [seen, summed] = of_workgroup;
        (seen + summed) * &self.count
    }
}

/// Calls `make` for each row and column of a tile.
fn try_matrix(
    side: usize,
    mut make: impl FnMut(usize, usize) -> Result<Expr>,
) -> Result<ExprMatrix> {
    let row = |y| (0..side).map(|x| make(y, x)).collect();
    (0..side).map(row).collect()
}

/// Iterates over vectors with their rows and columns.
fn enumerate_matrix(vectors: &ExprMatrix) -> impl Iterator<Item = (usize, usize, Expr)> + '_ {
    let rows = vectors.iter().enumerate();
    rows.flat_map(|(y, row)| {
        row.iter()
            .enumerate()
            .map(move |(x, vector)| (y, x, *vector))
    })
}

/// Creates variables for the positions of a tile, by row and column.
fn position_variables(pool: &mut ExprPool, numbers: &ExprMatrix) -> ExprMatrix {
    let rows = numbers.iter().enumerate().map(|(y, row)| {
        let name = |x: usize| format!("y{y}{x}");
        let variable = |x| pool.variable(&name(x), WgslType::F32x4);
        (0..row.len()).map(variable).collect()
    });
    rows.collect()
}
