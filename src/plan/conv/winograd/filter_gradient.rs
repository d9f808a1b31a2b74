//! Gradients of filters by Winograd tiles: see [`winograd`](crate::kernel::winograd).
//!
//! One kernel. A workgroup computes the gradients of a block of input channels, from the tiles of a part of the images. It
//! takes the output channels in blocks, one after the other, and the tiles in chunks: it transforms the tiles of both images,
//! and adds their products to sums in memory, which no other workgroup reads. At the end of a block it transforms the sums.

pub mod partition;

use self::partition::{GradientPartition, PartCount};
use super::F32_BYTES;
use super::scratch::{Scratch, barrier, for_each_vector};
use super::transform::{TileTransform, enumerate_matrix, try_matrix};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Node, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::winograd::{OutputTile, TAPS};
use crate::kernel::work::Work;
use crate::plan::conv::filter_gradient::FilterGradient;
use crate::plan::conv::implicit_gemm;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::VEC4_LEN;
use crate::plan::group::Group;
use crate::plan::kernel::work::epilogue_work;
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, clamped_index, repeat};
use crate::plan::product::tile::{self, LeftFactor, RightFactor, TilePosition, TiledProduct};
use crate::plan::product::{Product, TileGrid};

const TEMPLATE: &str = include_str!("../../../../shaders/winograd_filter_gradient.wgsl");

/// Lowers the gradient of a filter with its epilogue, by tiles of a size.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    output_tile: OutputTile,
) -> Result<LoweredKernel<'a>> {
    let missing = || Error::internal("the gradient of a filter has no tiles");
    let gradient = FilterGradient::of(scope.graph, node).ok_or_else(missing)?;
    let parts = PartCount::Given;
    let partition = GradientPartition::best(scope.capabilities, &gradient, output_tile, parts);
    let partition = partition.ok_or_else(missing)?;
    let product = Product::of(scope.graph, node)?;
    let workgroup = GradientWorkgroup::new(&mut scope, &gradient, &product, &partition)?;
    let mut statements = vec![workgroup.surplus.clone()];
    statements.extend(workgroup.gradients(&mut scope, group, &product)?);
    let work = workgroup.work(&scope, group)?;
    let (lanes, bands) = (workgroup.lanes, partition.tile_shape.bands);
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, workgroup.count);
    lowered.template_values = tile::holes(lanes, bands);
    lowered.has_dynamic_schedule = true;
    Ok(LoweredKernel {
        title: Some("winograd_filter_gradient"),
        work: Some(work),
        ..lowered
    })
}

/// A workgroup, which consists of one subgroup.
struct GradientWorkgroup<'s> {
    gradient: &'s FilterGradient,
    partition: &'s GradientPartition,
    lanes: usize,
    /// Workgroups of the dispatch.
    count: Dim,
    /// Statement that ends surplus workgroups.
    surplus: Statement,
    /// Batch coordinates of the product.
    batch: Vec<Index>,
    /// Index of the channel group.
    group: Index,
    /// Number of images of a part, and of tiles along both axes.
    tile_grid: [Dim; 3],
    /// Index of the first image of the part.
    first_image: Index,
    /// Index of the block of input channels.
    row_block: Index,
    /// Transformed tiles of the input.
    inputs: TransformedImage,
    /// Transformed tiles of the gradient of the output.
    output_gradients: TransformedImage,
    /// Transformed tiles of both images.
    tiles: Scratch,
    /// Products summed over tiles: rows are input channels, columns are vec4s of output channels.
    sums: Scratch,
}

/// An image, of which a workgroup transforms the tiles of a block of channels.
struct TransformedImage {
    image: ValueId,
    /// Height and width.
    space: [Dim; 2],
    /// Rows and columns between the image's start and the first tile's.
    low: [Dim; 2],
    /// Side of a tile.
    side: usize,
    /// Matrix that transforms a tile.
    matrix: Vec<Vec<f64>>,
    /// Vec4s of channels of a block.
    block_vec4s: Dim,
    /// Vec4s of channels of a group.
    group_vec4s: Dim,
    /// Number of its vectors of a matrix: of each vec4 of channels, those of all tiles of a chunk.
    vectors: Dim,
    /// Index of the first of them in the memory that both images share.
    first_vector: Dim,
}

impl TransformedImage {
    /// The input of the convolution.
    fn input(
        scope: &KernelScope,
        gradient: &FilterGradient,
        partition: &GradientPartition,
    ) -> TransformedImage {
        let matrix = partition.output_tile.input_transform();
        let shape = &scope.graph.ty(gradient.input).shape;
        let block_vec4s = partition.block_sizes[0] / VEC4_LEN;
        TransformedImage {
            image: gradient.input,
            space: [2, 3].map(|axis| shape[axis].clone()),
            low: gradient.low.clone(),
            side: partition.output_tile.input_size(),
            matrix: matrix.iter().map(|row| row.to_vec()).collect(),
            block_vec4s: Dim::from(block_vec4s),
            group_vec4s: ceil_div(&gradient.channels, VEC4_LEN),
            vectors: Dim::from(block_vec4s * partition.chunk_tiles),
            first_vector: Dim::ZERO,
        }
    }

    /// The gradient of the output, whose vectors follow those of the input.
    fn output_gradient(
        gradient: &FilterGradient,
        partition: &GradientPartition,
        input: &TransformedImage,
    ) -> TransformedImage {
        let block_vec4s = partition.block_sizes[1] / VEC4_LEN;
        TransformedImage {
            image: gradient.output_gradient,
            space: gradient.space.clone(),
            low: [Dim::ZERO, Dim::ZERO],
            side: partition.output_tile.size(),
            matrix: partition.output_tile.output_gradient_transform(),
            block_vec4s: Dim::from(block_vec4s),
            group_vec4s: ceil_div(&gradient.outputs, VEC4_LEN),
            vectors: Dim::from(block_vec4s * partition.chunk_tiles),
            first_vector: input.vectors.clone(),
        }
    }
}

impl<'s> GradientWorkgroup<'s> {
    fn new(
        scope: &mut KernelScope,
        gradient: &'s FilterGradient,
        product: &Product,
        partition: &'s GradientPartition,
    ) -> Result<GradientWorkgroup<'s>> {
        let missing = || Error::internal("the gradient of a filter needs subgroups");
        let lanes = scope.capabilities.simd_lanes().ok_or_else(missing)?;
        let row_blocks = Dim::from(partition.blocks[0]);
        let grid = TileGrid::new(scope, &product.batch, [row_blocks, Dim::ONE]);
        let output_tile = partition.output_tile;
        let scratch = |name, vectors: Dim| {
            let (result, workgroup) = (product.result, &grid.workgroup);
            Scratch::new(result, name, output_tile, workgroup, &grid.count, vectors)
        };
        let inputs = TransformedImage::input(scope, gradient, partition);
        let output_gradients = TransformedImage::output_gradient(gradient, partition, &inputs);
        let [rows, columns] = partition.block_sizes;
        let images = gradient.images.floor_div(&gradient.parts);
        let side = Dim::from(output_tile.size());
        let [height, width] = gradient.space.each_ref().map(|size| size.ceil_div(&side));
        let batch_index = |axis: usize| grid.batch.get(axis).cloned().unwrap_or_else(Index::zero);
        Ok(GradientWorkgroup {
            tiles: scratch("seen", &inputs.vectors + &output_gradients.vectors),
            sums: scratch("summed", Dim::from(rows * columns / VEC4_LEN)),
            inputs,
            output_gradients,
            group: batch_index(0),
            first_image: batch_index(1).scale(&images),
            row_block: grid.tile[0].clone(),
            tile_grid: [images, height, width],
            count: grid.count,
            surplus: grid.surplus,
            batch: grid.batch,
            gradient,
            partition,
            lanes,
        })
    }

    /// Emits the loop over blocks of output channels. If the workgroup has a single chunk of tiles, the transformed input
    /// serves all blocks.
    fn gradients(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        product: &Product,
    ) -> Result<Vec<Statement>> {
        let [chunks, blocks] = [self.partition.chunks, self.partition.blocks[1]].map(Dim::from);
        let mut statements = Vec::new();
        if chunks.is(1) {
            statements.extend(self.transform_input(scope, &Index::zero())?);
        }
        statements.extend(repeat(scope, "column_block", &blocks, |scope, block| {
            let mut statements = repeat(scope, "chunk", &chunks, |scope, chunk| {
                self.add_chunk(scope, &chunk, &block)
            })?;
            statements.extend(self.write(scope, group, product, &block)?);
            Ok(statements)
        })?);
        Ok(statements)
    }

    /// Adds the products of a chunk of tiles to the sums of a block of output channels.
    fn add_chunk(
        &self,
        scope: &mut KernelScope,
        chunk: &Index,
        column_block: &Index,
    ) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        if self.partition.chunks > 1 {
            statements.extend(self.transform_input(scope, chunk)?);
        }
        let image = &self.output_gradients;
        statements.extend(self.transform(scope, chunk, image, column_block, "slope_trip")?);
        statements.push(barrier());
        statements.extend(self.multiply(scope, chunk)?);
        statements.push(barrier());
        Ok(statements)
    }

    fn transform_input(&self, scope: &mut KernelScope, chunk: &Index) -> Result<Vec<Statement>> {
        self.transform(scope, chunk, &self.inputs, &self.row_block, "seen_trip")
    }

    /// Transforms the tiles of a chunk of an image. An invocation transforms four channels of a tile. Tiles beyond the
    /// last one are zeros.
    fn transform(
        &self,
        scope: &mut KernelScope,
        chunk: &Index,
        image: &TransformedImage,
        block: &Index,
        name: &str,
    ) -> Result<Vec<Statement>> {
        let chunk_tiles = Dim::from(self.partition.chunk_tiles);
        for_each_vector(scope, name, self.lanes, &image.vectors, |scope, number| {
            let tile = chunk.scale(&chunk_tiles).add(&number.rem(&chunk_tiles));
            let tiles = Dim::product(&self.tile_grid);
            let is_tile = (!tile.is_less_than(&tiles)).then(|| scope.is_below(&tile, &tiles));
            let vec4 = block
                .scale(&image.block_vec4s)
                .add(&number.div(&chunk_tiles));
            let vec4 = clamped_index(scope, &vec4, &image.group_vec4s);
            let vec4 = self.group.scale(&image.group_vec4s).add(&vec4);
            // Tiles are read as 64-bit words where that is faster. The factors of products are not.
            scope.reads_u64 = true;
            let tile = self.load_tile(scope, image, &tile, &vec4, is_tile)?;
            scope.reads_u64 = false;
            let transform = TileTransform::new(&mut scope.pool, &image.matrix, &tile);
            let mut statements = transform.statements;
            let number = number.add_size(&image.first_vector);
            statements.extend(self.tiles.store_tile(scope, &number, &transform.results)?);
            Ok(statements)
        })
    }

    /// Loads four channels of a tile, by row and column.
    fn load_tile(
        &self,
        scope: &mut KernelScope,
        image: &TransformedImage,
        tile: &Index,
        vec4: &Index,
        is_tile: Option<Expr>,
    ) -> Result<Vec<Vec<Expr>>> {
        let at = index::delinearize(tile, &self.tile_grid);
        let number = self.first_image.add(&at[0]);
        let step = Dim::from(self.partition.output_tile.size());
        let coordinate = |scope: &mut KernelScope, axis: usize, offset: usize| {
            let first = at[axis + 1].scale(&step).add_size(&-&image.low[axis]);
            let coordinate = first.add_size(&Dim::from(offset));
            let inside = scope.is_below(&coordinate, &image.space[axis]);
            (coordinate, inside)
        };
        try_matrix(image.side, |y, x| {
            let (row, is_row) = coordinate(scope, 0, y);
            let (column, is_column) = coordinate(scope, 1, x);
            let is_row = scope.pool.and(is_tile, is_row);
            let inside = scope.pool.and(Some(is_row), is_column);
            let coordinates = [number.clone(), vec4.clone(), row, column];
            let vector =
                implicit_gemm::load_channels(scope, image.image, &coordinates, Some(inside))?;
            scope.pool.set_label(vector, &format!("d{y}{x}"));
            Ok(vector)
        })
    }

    /// Multiplies the transformed tiles: one product for each element of a tile, in tiles of rows and columns.
    fn multiply(&self, scope: &mut KernelScope, chunk: &Index) -> Result<Vec<Statement>> {
        let GradientPartition {
            output_tile,
            tile_shape,
            block_sizes,
            ..
        } = self.partition;
        let matrices = Dim::from(output_tile.matrices());
        let sizes = [tile_shape.height(), tile_shape.width(self.lanes)];
        let [row_tiles, column_tiles] =
            [0, 1].map(|side| Dim::from(block_sizes[side] / sizes[side]));
        let [height, width] = sizes.map(Dim::from);
        repeat(scope, "matrix", &matrices, |scope, matrix| {
            repeat(scope, "row_tile", &row_tiles, |scope, row| {
                repeat(scope, "column_tile", &column_tiles, |scope, column| {
                    let position = TilePosition {
                        batch: Vec::new(),
                        row: row.scale(&height),
                        column: column.scale(&width),
                        panel: Index::zero(),
                    };
                    self.multiply_tile(scope, chunk, &matrix, position)
                })
            })
        })
    }

    /// Adds a tile of the product of a matrix to the sums.
    fn multiply_tile(
        &self,
        scope: &mut KernelScope,
        chunk: &Index,
        matrix: &Index,
        position: TilePosition,
    ) -> Result<Vec<Statement>> {
        let [rows, columns] = self.partition.block_sizes.map(Dim::from);
        let (chunk_tiles, vec4_len) = (Dim::from(self.partition.chunk_tiles), Dim::from(VEC4_LEN));
        let load = |scope: &mut KernelScope, image: &TransformedImage, first: &Index, k: &Index| {
            let number = first.div(&vec4_len).scale(&chunk_tiles).add(k);
            let number = number.add_size(&image.first_vector);
            self.tiles.load(scope, matrix, &number, None)
        };
        let tiling = TiledProduct {
            batch: Vec::new(),
            rows: rows.clone(),
            row_shape: vec![rows],
            taps: Vec::new(),
            k_size: chunk_tiles.clone(),
            left: LeftFactor::Rows(&|scope, row, k| load(scope, &self.inputs, row, k)),
            right: RightFactor::Columns(self.partition.tile_shape, &|scope, k, column| {
                load(scope, &self.output_gradients, column, k)
            }),
            write: &|scope, [_, row], first, vector| {
                let row_vec4s = columns.floor_div(&vec4_len);
                let number = row[0].scale(&row_vec4s).add(&first.div(&vec4_len));
                Ok(vec![
                    self.add_to_sum(scope, chunk, matrix, &number, vector)?,
                ])
            },
            epilogue_cost: 0,
            writes_whole_vec4: true,
            columns: columns.clone(),
        };
        tile::tile_statements(scope, &tiling, position)
    }

    /// Adds a vector to the sum of the chunks before.
    fn add_to_sum(
        &self,
        scope: &mut KernelScope,
        chunk: &Index,
        matrix: &Index,
        number: &Index,
        vector: Expr,
    ) -> Result<Statement> {
        let total = if self.partition.chunks == 1 {
            vector
        } else {
            let (chunk, first) = (chunk.emit(&mut scope.pool), scope.pool.index(0));
            let is_later = scope.pool.call("x > y", WgslType::Bool, &[chunk, first]);
            let sum = self.sums.load(scope, matrix, number, Some(is_later))?;
            scope.pool.call("x + y", WgslType::F32x4, &[sum, vector])
        };
        self.sums.store(scope, matrix, number, total)
    }

    /// Transforms the sums to gradients of taps, and writes them with the epilogue. An invocation transforms four output
    /// channels of an input channel.
    fn write(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        product: &Product,
        column_block: &Index,
    ) -> Result<Vec<Statement>> {
        let [rows, columns] = self.partition.block_sizes;
        let column_vec4s = Dim::from(columns / VEC4_LEN);
        let matrix = self.partition.output_tile.filter_gradient_transform();
        let first_vec4 = column_block.scale(&column_vec4s);
        let first_channel = self.row_block.scale(&Dim::from(rows));
        let vectors = &column_vec4s * rows as i64;
        for_each_vector(
            scope,
            "output_trip",
            self.lanes,
            &vectors,
            |scope, number| {
                let sums = self.sums.load_tile(scope, number)?;
                let transform = TileTransform::new(&mut scope.pool, &matrix, &sums);
                let channel = first_channel.add(&number.div(&column_vec4s));
                let vec4 = first_vec4.add(&number.rem(&column_vec4s));
                let first = vec4.scale(&Dim::from(VEC4_LEN));
                let mut stores = transform.statements;
                for (y, x, vector) in enumerate_matrix(&transform.results) {
                    let tap = Dim::from(y * TAPS + x);
                    let row = channel.add_size(&(&tap * &self.gradient.channels));
                    stores.extend(product.write_vec4(
                        scope,
                        group,
                        &self.batch,
                        &row,
                        &first,
                        vector,
                    )?);
                }
                let stores = bounds_guard(scope, &vec4, &self.output_gradients.group_vec4s, stores);
                Ok(bounds_guard(
                    scope,
                    &channel,
                    &self.gradient.channels,
                    stores,
                ))
            },
        )
    }

    /// Counts the operations and bytes of the kernel: transforms, products and epilogue, and the memory that it shares
    /// with other kernels.
    fn work(&self, scope: &KernelScope, group: &Group) -> Result<Work> {
        let epilogue = epilogue_work(scope, group)?;
        let GradientPartition {
            output_tile,
            blocks: [_, column_blocks],
            block_sizes: [rows, columns],
            chunks,
            chunk_tiles,
            ..
        } = *self.partition;
        let tiles = chunks * chunk_tiles;
        let channels_of_tiles = [
            (
                self.partition.input_transforms() * rows * chunk_tiles,
                &self.inputs.matrix,
            ),
            (
                column_blocks * columns * tiles,
                &self.output_gradients.matrix,
            ),
            (
                column_blocks * columns * rows,
                &output_tile.filter_gradient_transform(),
            ),
        ];
        let transforms =
            channels_of_tiles.map(|(count, matrix)| count * TileTransform::operations(matrix));
        let products = 2 * output_tile.matrices() * rows * columns * column_blocks * tiles;
        let operations = transforms.iter().sum::<usize>() + products;
        let images = [self.gradient.input, self.gradient.output_gradient];
        let numel = images.map(|image| scope.graph.ty(image).numel());
        Ok(Work {
            operations: &self.count * operations as i64 + epilogue.operations,
            bytes: (&numel[0] + &numel[1]) * F32_BYTES + epilogue.bytes,
            ..Work::default()
        })
    }
}
