//! The three stages of a workgroup of a Winograd convolution: transform the input of its tiles, multiply by the
//! filters, and transform the products into output positions with the epilogue.

use super::partition::WorkPartition;
use super::scratch::{self, Scratch};
use super::transform::{ExprMatrix, TileTransform, try_matrix};
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
use crate::plan::kernel::{
    bounds_guard, ceil_div, clamped_index, offset_bounds_guard, repeat, repeat_to,
};
use crate::plan::product::TileGrid;
use crate::plan::product::dot::with_label;
use crate::plan::product::tile::{self, PackedWeight, RightFactor, TileShape, TiledProduct};

/// A workgroup, which consists of one subgroup.
pub(super) struct WinogradWorkgroup<'s> {
    sizes: &'s ConvSizes,
    /// Size of a tile.
    output_tile: OutputTile,
    /// Transformed filters.
    packed: PackedWeight,
    /// Invocations of the workgroup.
    pub(super) lanes: usize,
    /// Division of the work among workgroups.
    partition: WorkPartition,
    /// Workgroups of the dispatch.
    pub(super) count: Dim,
    /// Statement that ends surplus workgroups.
    pub(super) surplus: Statement,
    /// Index of the channel group.
    group: Index,
    /// Index of the block of output channels.
    channel_block: Index,
    /// Index of the workgroup among those that share the parts of the tiles.
    part_workgroup: Index,
    /// Index of the first tile of the current part.
    first_tile: Index,
    /// Number of images, and of tiles along both axes.
    tile_grid: [Dim; 3],
    /// Results of the first stage.
    transformed_input: Scratch,
    /// Results of the second stage.
    products: Scratch,
}

/// A tile of an image.
struct WinogradTile {
    /// Index of the tile.
    index: Index,
    image: Index,
    /// First row and first column of its output positions.
    first_position: [Index; 2],
    /// Bound of the row indices, and number of tiles along a row: the sizes for [`KernelScope::separate`].
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
        output_tile: OutputTile,
        packed: PackedWeight,
    ) -> Result<WinogradWorkgroup<'s>> {
        let missing = || {
            Error::internal("the Winograd kernel needs subgroups and a two-dimensional convolution")
        };
        let lanes = scope.capabilities.simd_lanes().ok_or_else(missing)?;
        let tile_shape = packed.tile_shape(lanes);
        let tiles = super::tile_grid(&scope.graph.ty(sizes.result).shape, output_tile)
            .ok_or_else(missing)?;
        let sizes_of_work = [
            &sizes.groups,
            &Dim::product(&tiles),
            &sizes.channels,
            &sizes.outputs,
        ];
        let partition = WorkPartition::new(output_tile, tile_shape, lanes, sizes_of_work);
        let parts = [
            partition.part_workgroups.clone(),
            partition.channel_blocks.clone(),
        ];
        let grid = TileGrid::new(scope, std::slice::from_ref(&sizes.groups), parts);
        let [part, block] = grid.tile;
        let height = Dim::from(tile_shape.height());
        let scratch = |name, channels| {
            let vectors_per_matrix = ceil_div(channels, VEC4_LEN) * &height;
            Scratch::new(
                sizes.result,
                name,
                output_tile,
                &grid.workgroup,
                &grid.count,
                vectors_per_matrix,
            )
        };
        Ok(WinogradWorkgroup {
            transformed_input: scratch("seen", &sizes.channels),
            products: scratch("summed", &partition.block_columns),
            group: grid.batch.into_iter().next().unwrap_or_else(Index::zero),
            first_tile: Index::zero(),
            part_workgroup: part,
            count: grid.count,
            surplus: grid.surplus,
            sizes,
            output_tile,
            packed,
            lanes,
            partition,
            channel_block: block,
            tile_grid: tiles,
        })
    }

    /// Returns the tile shape of the products.
    fn tile_shape(&self) -> TileShape {
        self.packed.tile_shape(self.lanes)
    }

    /// Emits a loop over the parts of the tiles that the workgroup takes. `make` emits its body.
    pub(super) fn for_each_part(
        mut self,
        scope: &mut KernelScope,
        make: impl FnOnce(&mut KernelScope, &Self) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        let (parts, workgroup_parts) = (
            self.partition.tile_parts.clone(),
            self.partition.workgroup_parts.clone(),
        );
        let first = self.part_workgroup.scale(&workgroup_parts);
        let height = Dim::from(self.tile_shape().height());
        let part_statements = |scope: &mut KernelScope, part: &Index| {
            self.first_tile = with_label(scope, &part.scale(&height), "first");
            make(scope, &self)
        };
        if workgroup_parts.is(1) {
            return part_statements(scope, &first);
        }
        let (variable, part) = scope.counter("part", &parts);
        let body = part_statements(scope, &part)?;
        let (from, pool) = (first.emit(&mut scope.pool), &mut scope.pool);
        let [size, end] = [&workgroup_parts, &parts].map(|size| pool.size(size));
        let after = pool.call("x + y", WgslType::U32, &[from, size]);
        Ok(vec![Statement::Loop {
            variable,
            from,
            to: pool.call("min(x, y)", WgslType::U32, &[after, end]),
            step: 1,
            body,
        }])
    }

    /// Emits a loop over the `vec4s` vec4s of channels of the workgroup's tiles, one for each invocation at a time.
    /// `make` emits its body from the index of the vec4 among the channels, its index in a matrix of the scratch
    /// memory, and the index of the tile, which may lie beyond the last tile.
    fn for_each_tile(
        &self,
        scope: &mut KernelScope,
        name: &str,
        vec4s: &Dim,
        make: impl FnOnce(&mut KernelScope, &Index, (&Index, Index)) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        scratch::for_each_vector(scope, name, self.lanes, vec4s, |scope, vector_index| {
            let height = Dim::from(self.tile_shape().height());
            let tile = self.first_tile.add(&vector_index.rem(&height));
            let tile = with_label(scope, &tile, "tile");
            make(scope, &vector_index.div(&height), (vector_index, tile))
        })
    }

    /// Returns a tile by its index among the tiles of all images.
    fn tile_at(&self, tile: Index) -> Result<WinogradTile> {
        let coordinates = index::delinearize(&tile, &self.tile_grid);
        let [image, down, across] = <[Index; 3]>::try_from(coordinates).map_err(|_| {
            Error::internal("a Winograd tile must have three coordinates: image, row and column")
        })?;
        let tile_size = self.output_tile.size();
        let height = &self.tile_grid[1] * tile_size as i64 + self.output_tile.input_size() as i64;
        Ok(WinogradTile {
            index: tile,
            image,
            first_position: [down, across].map(|tile| tile.scale(&Dim::from(tile_size))),
            bounds: [height, self.tile_grid[2].clone()],
        })
    }

    /// First stage: transforms the input. An invocation transforms four channels of a tile. Beyond the last tile it
    /// transforms that one again, so that all lanes store.
    pub(super) fn transform_input(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let channel_vec4s = ceil_div(&self.sizes.channels, VEC4_LEN);
        self.for_each_tile(
            scope,
            "seen_trip",
            &self.transformed_input.vectors_per_matrix,
            |scope, channel_vec4, (vector_index, tile)| {
                let tile = clamped_index(scope, &tile, &self.tile_count());
                let tile = self.tile_at(tile)?;
                let channel_vec4 = self.group.scale(&channel_vec4s).add(channel_vec4);
                let first_tap = [Index::zero(), Index::zero()];
                let inputs = try_matrix(self.output_tile.input_size(), |y, x| {
                    let position = tile.position(scope, [&y.into(), &x.into()]);
                    let image_and_vec4 = [tile.image.clone(), channel_vec4.clone()];
                    let input = implicit_gemm::load_input(
                        scope,
                        self.sizes,
                        image_and_vec4,
                        None,
                        &position,
                        &first_tap,
                    )?;
                    scope.pool.set_label(input, &format!("d{y}{x}"));
                    Ok(input)
                })?;
                let transform = TileTransform::new(
                    &mut scope.pool,
                    self.output_tile.input_transform(),
                    &inputs,
                );
                let mut statements = transform.statements;
                let vectors = &transform.results;
                let stores = self
                    .transformed_input
                    .store_tile(scope, vector_index, vectors)?;
                statements.extend(stores);
                Ok(statements)
            },
        )
    }

    /// Second stage: one matrix product for each element of the transformed tile. Rows are tiles, columns are output
    /// channels.
    pub(super) fn multiply(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let matrices = Dim::from(self.output_tile.matrices());
        let first = self.channel_block.scale(&self.partition.block_panels);
        let panels = self.remaining(scope, &first);
        repeat(scope, "matrix", &matrices, |scope, matrix| {
            let max_panels = &self.partition.block_panels;
            repeat_to(scope, "panel", max_panels, panels, |scope, panel| {
                self.multiply_panel(scope, &matrix, &first, &panel)
            })
        })
    }

    /// Returns how many panels the block that starts at panel `first` has: the last block of a group may have fewer
    /// than the others.
    fn remaining(&self, scope: &mut KernelScope, first: &Index) -> Expr {
        let (first, pool) = (first.emit(&mut scope.pool), &mut scope.pool);
        let [group_panels, block_panels] =
            [&self.partition.group_panels, &self.partition.block_panels]
                .map(|size| pool.size(size));
        let rest = pool.call("x - y", WgslType::U32, &[group_panels, first]);
        pool.call("min(x, y)", WgslType::U32, &[rest, block_panels])
    }

    /// Multiplies a matrix of the transformed input by a panel of filters. `first` is the workgroup's first panel, and
    /// `panel` counts from it.
    fn multiply_panel(
        &self,
        scope: &mut KernelScope,
        matrix: &Index,
        first: &Index,
        panel: &Index,
    ) -> Result<Vec<Statement>> {
        let (tile_shape, vec4_len) = (self.tile_shape(), Dim::from(VEC4_LEN));
        let [rows, columns] = [tile_shape.height(), tile_shape.width(self.lanes)].map(Dim::from);
        let first_vec4 = panel.scale(&columns.floor_div(&vec4_len));
        let tiling = TiledProduct {
            batch: Vec::new(),
            rows: rows.clone(),
            row_shape: vec![rows.clone()],
            columns,
            taps: Vec::new(),
            k_size: self.sizes.channels.clone(),
            left: tile::LeftFactor::KElements(&|scope, [_, row], (_, steps)| {
                let [(channel, guard), ..] = steps else {
                    return Err(Error::internal(
                        "an iteration of a Winograd product has no K elements",
                    ));
                };
                let vector_index = channel.div(&vec4_len).scale(&rows).add(&row[0]);
                self.transformed_input
                    .load(scope, matrix, &vector_index, *guard)
            }),
            right: RightFactor::Panels(self.sizes.filter, self.packed.clone(), &|_| {
                let group_matrix = matrix.scale(&self.sizes.groups).add(&self.group);
                group_matrix.scale(&self.partition.group_panels)
            }),
            write: &|scope, [_, row], first, vector| {
                let vector_index = first_vec4
                    .add(&first.div(&vec4_len))
                    .scale(&rows)
                    .add(&row[0]);
                Ok(vec![self.products.store(
                    scope,
                    matrix,
                    &vector_index,
                    vector,
                )?])
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

    /// Last stage: transforms the products into output positions and applies the epilogue. An invocation transforms
    /// four channels of a tile.
    pub(super) fn transform_output(
        &self,
        scope: &mut KernelScope,
        group: &Group,
    ) -> Result<Vec<Statement>> {
        let vec4s_per_block = self.partition.block_columns.floor_div(&Dim::from(VEC4_LEN));
        let channel_vec4s = ceil_div(&self.sizes.outputs, VEC4_LEN);
        self.for_each_tile(
            scope,
            "output_trip",
            &self.products.vectors_per_matrix,
            |scope, channel_vec4, (vector_index, tile)| {
                let tile = self.tile_at(tile)?;
                let channel_vec4 = self.channel_block.scale(&vec4s_per_block).add(channel_vec4);
                let sums = self.products.load_tile(scope, vector_index)?;
                let transform =
                    TileTransform::new(&mut scope.pool, self.output_tile.output_transform(), &sums);
                let image_and_vec4 = [
                    tile.image.clone(),
                    self.group.scale(&channel_vec4s).add(&channel_vec4),
                ];
                let statements =
                    self.write_tile(scope, group, &image_and_vec4, &tile, transform)?;
                let statements = bounds_guard(scope, &channel_vec4, &channel_vec4s, statements);
                Ok(bounds_guard(
                    scope,
                    &tile.index,
                    &self.tile_count(),
                    statements,
                ))
            },
        )
    }

    /// Writes the positions of a tile. `image_and_vec4` is the image and the vec4 of output channels.
    fn write_tile(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        image_and_vec4: &[Index; 2],
        tile: &WinogradTile,
        transform: TileTransform,
    ) -> Result<Vec<Statement>> {
        let outputs = position_variables(&mut scope.pool, &transform.results);
        let pairs = outputs
            .iter()
            .flatten()
            .zip(transform.results.iter().flatten());
        let declared = pairs.map(|(output, result)| Statement::Declare(*output, *result));
        let mut statements: Vec<Statement> =
            transform.statements.into_iter().chain(declared).collect();
        let cost = group.epilogue_cost(scope.graph);
        let (first, space) = (&tile.first_position, &self.sizes.space);
        statements.extend(write_lines(
            scope,
            LineEpilogue::Unrolled,
            cost,
            &outputs,
            &mut |scope, y, outputs| {
                let mut line = Vec::new();
                for (x, vector) in outputs.iter().enumerate() {
                    let position = tile.position(scope, [y, &x.into()]);
                    let vec4_coordinates = [image_and_vec4.as_slice(), &position].concat();
                    let stores = implicit_gemm::write_vec4(
                        scope,
                        group,
                        self.sizes,
                        &vec4_coordinates,
                        *vector,
                    )?;
                    line.extend(offset_bounds_guard(scope, &first[1], x, &space[1], stores));
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
        let stages = [
            (
                &self.transformed_input.vectors_per_matrix,
                self.output_tile.input_transform(),
            ),
            (
                &self.products.vectors_per_matrix,
                self.output_tile.output_transform(),
            ),
        ];
        let workgroup_operations = stages.map(|(vectors, matrix)| {
            vectors * (VEC4_LEN * TileTransform::operations(matrix)) as i64
        });
        let [input, output] = workgroup_operations;
        let WorkPartition {
            tile_parts,
            channel_blocks,
            ..
        } = &self.partition;
        (input + output) * &self.sizes.groups * tile_parts * channel_blocks
    }
}

/// Creates variables for the vectors of a tile's positions, by row and column.
fn position_variables(pool: &mut ExprPool, vectors: &ExprMatrix) -> ExprMatrix {
    let rows = vectors.iter().enumerate().map(|(y, row)| {
        let name = |x: usize| format!("y{y}{x}");
        let variable = |x| pool.variable(&name(x), WgslType::F32x4);
        (0..row.len()).map(variable).collect()
    });
    rows.collect()
}
