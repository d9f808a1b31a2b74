//! Matrix products on GPUs: a workgroup computes a square tile of the result. Its invocations load K blocks of both
//! factors into workgroup memory together.

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{self, VEC4_LEN, is_multiple_of_4};
use crate::plan::group::Group;
use crate::plan::kernel::epilogue_loop::{LineEpilogue, write_lines};
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, repeat};
use crate::plan::product::{Product, Side, TileGrid, vec4_indices};

const TEMPLATE: &str = include_str!("../../../shaders/workgroup_tile.wgsl");

/// K elements of a block in workgroup memory.
const K_BLOCK: usize = 16;
/// Vec4s of K elements of a block.
const K_VEC4S: usize = K_BLOCK / VEC4_LEN;

/// Size of a tile, and the part of it that an invocation computes.
#[derive(Clone, Copy)]
pub struct WorkgroupTileShape {
    /// Rows and columns of the tile.
    side: usize,
    /// Rows of an invocation.
    height: usize,
    /// Columns of an invocation.
    width: usize,
}

/// All tile shapes. Each has as many invocations as a K block of both factors has blocks of 4×4 elements.
const TILE_SHAPES: [WorkgroupTileShape; 3] = [
    WorkgroupTileShape::new(32, 4, 4),
    WorkgroupTileShape::new(64, 8, 4),
    WorkgroupTileShape::new(128, 8, 8),
];

impl WorkgroupTileShape {
    const fn new(side: usize, height: usize, width: usize) -> WorkgroupTileShape {
        WorkgroupTileShape {
            side,
            height,
            width,
        }
    }

    /// Returns the tile shape with this side; `None` if there is none.
    pub fn of(side: u32) -> Option<WorkgroupTileShape> {
        TILE_SHAPES
            .into_iter()
            .find(|extent| extent.side == side as usize)
    }

    fn invocations(self) -> usize {
        self.side * self.side / (self.height * self.width)
    }

    /// Returns the vec4s of rows, and of columns, of the tile.
    fn side_vec4s(self) -> usize {
        self.side / VEC4_LEN
    }

    /// Returns the bytes of a K block of both factors.
    fn memory(self) -> usize {
        2 * self.side * K_BLOCK * size_of::<f32>()
    }

    /// Returns whether a device has the memory and the invocations.
    pub fn fits(self, capabilities: &Capabilities) -> bool {
        self.invocations() <= capabilities.max_invocations as usize
            && self.memory() <= capabilities.max_workgroup_memory as usize
    }
}

/// Lowers a product with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
    extent: WorkgroupTileShape,
) -> Result<LoweredKernel<'a>> {
    let tile = WorkgroupTile::new(&mut scope, product, extent)?;
    let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
    let mut statements = vec![tile.surplus.clone()];
    statements.extend(tile.label_shared(&mut scope));
    let declared = tile.sums.iter().flatten().chain(&tile.block);
    statements.extend(declared.map(|variable| Statement::Declare(*variable, zero)));
    statements.extend(tile.k_loop(&mut scope)?);
    for q in 0..extent.width / VEC4_LEN {
        statements.extend(tile.write(&mut scope, group, q)?);
    }
    let memory = tile.memory();
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, tile.count);
    lowered.template_values.push(("memory", memory));
    Ok(lowered)
}

/// A tile of the result, which one workgroup computes.
struct WorkgroupTile<'p> {
    product: &'p Product,
    shape: WorkgroupTileShape,
    /// K blocks in workgroup memory at a time. With two (double buffering), one is loaded while the other is multiplied.
    buffers: usize,
    /// All K blocks.
    k_blocks: Dim,
    count: Dim,
    surplus: Statement,
    batch: Vec<Index>,
    /// First row and first column.
    first: [Index; 2],
    /// Row and column of the invocation in the tile's grid of invocations.
    invocation_position: [Index; 2],
    /// Index of the 4×4 block that the invocation loads, among those of its factor.
    block_index: Index,
    /// True where the invocation loads the left factor.
    is_left: Expr,
    /// For each factor, whether K is the contiguous axis.
    is_k_contiguous: [bool; 2],
    sums: Vec<Vec<Expr>>,
    /// The block that the invocation has loaded: four rows or columns for each of four K elements.
    block: Vec<Expr>,
}

impl<'p> WorkgroupTile<'p> {
    fn new(
        scope: &mut KernelScope,
        product: &'p Product,
        extent: WorkgroupTileShape,
    ) -> Result<WorkgroupTile<'p>> {
        let tiles = [&product.rows, &product.columns].map(|size| ceil_div(size, extent.side));
        let covering = TileGrid::new(scope, &product.batch, tiles);
        let side = Dim::from(extent.side);
        let (local, index) = scope.counter("local", &Dim::from(extent.invocations()));
        let blocks = extent.side_vec4s() * K_VEC4S;
        let across = Dim::from(extent.side / extent.width);
        let halves = 1 + usize::from(
            2 * extent.memory() <= scope.capabilities.max_workgroup_memory as usize,
        );
        let is_left = scope.pool.index(blocks as u32);
        let is_left = scope.pool.call("x < y", WgslType::Bool, &[local, is_left]);
        scope.pool.set_label(is_left, "reads_left");
        let by_step = [Side::Left, Side::Right].map(|side| product.is_k_contiguous(scope, side));
        let [left, right] = by_step;
        Ok(WorkgroupTile {
            product,
            shape: extent,
            buffers: halves,
            k_blocks: ceil_div(&product.k_size, K_BLOCK),
            count: covering.count,
            surplus: covering.surplus,
            batch: covering.batch,
            first: covering.tile.map(|tile| tile.scale(&side)),
            invocation_position: [index.div(&across), index.rem(&across)],
            block_index: label_block_index(scope, &index, blocks),
            is_left,
            is_k_contiguous: [left?, right?],
            sums: sums(scope, extent),
            block: (0..VEC4_LEN)
                .map(|k| scope.pool.variable(&format!("block{k}"), WgslType::F32x4))
                .collect(),
        })
    }

    /// Emits names for expressions that several parts of the kernel use.
    fn label_shared(&self, scope: &mut KernelScope) -> Vec<Statement> {
        let mut named = vec![("row", self.first[0].clone())];
        named.push(("column", self.first[1].clone()));
        named.push(("my_row", self.invocation_position[0].clone()));
        named.push(("my_column", self.invocation_position[1].clone()));
        for side in [Side::Left, Side::Right] {
            let (quad, four) = self.block_position(side);
            named.extend([("quad", quad), ("four", four)]);
        }
        let pool = &mut scope.pool;
        let mut statements = Vec::new();
        for (name, index) in named {
            let expr = index.emit(pool);
            pool.set_label(expr, name);
            statements.push(Statement::Let(expr));
        }
        statements.push(Statement::Let(self.is_left));
        statements
    }

    /// Emits the loop over all K blocks. Each iteration loads a block, multiplies the previous one, and then stores the
    /// loaded one in workgroup memory.
    fn k_loop(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let rounds = &self.k_blocks + &Dim::ONE;
        repeat(scope, "piece", &rounds, |scope, round| {
            let number = round.emit(&mut scope.pool);
            let piece = Index::expr(number, &self.k_blocks);
            let two = Dim::from(2);
            let (half, before) = (piece.rem(&two), round.add_size(&Dim::ONE).rem(&two));
            let read =
                self.for_each_factor(scope, |scope, side| self.load_block(scope, &piece, side))?;
            let keep =
                self.for_each_factor(
                    scope,
                    |scope, side| Ok(self.store_block(scope, &half, side)),
                )?;
            let multiply = self.multiply_block(scope, &before);
            let pool = &mut scope.pool;
            let (zero, end) = (pool.index(0), pool.size(&self.k_blocks));
            let is_next = pool.call("x > y", WgslType::Bool, &[number, zero]);
            let is_one = pool.call("x < y", WgslType::Bool, &[number, end]);
            scope.pool.set_label(is_one, "is_piece");
            let barrier = Statement::Line(String::from("workgroupBarrier();"));
            let mut statements = vec![
                Statement::If(is_one, vec![read]),
                Statement::If(is_next, vec![multiply]),
            ];
            statements.extend((self.buffers == 1).then(|| barrier.clone()));
            statements.extend([Statement::If(is_one, vec![keep]), barrier]);
            Ok(statements)
        })
    }

    /// Emits a statement per factor for the invocation's block: half of the invocations handle the left factor, half the
    /// right one.
    fn for_each_factor(
        &self,
        scope: &mut KernelScope,
        mut body: impl FnMut(&mut KernelScope, Side) -> Result<Vec<Statement>>,
    ) -> Result<Statement> {
        let left = body(scope, Side::Left)?;
        let right = body(scope, Side::Right)?;
        Ok(Statement::IfElse(self.is_left, left, right))
    }

    /// Loads the invocation's block.
    fn load_block(
        &self,
        scope: &mut KernelScope,
        piece: &Index,
        side: Side,
    ) -> Result<Vec<Statement>> {
        let lines = self.block_lines(scope, side);
        let (_, four) = self.block_position(side);
        let from = piece.scale(&Dim::from(K_VEC4S)).add(&four);
        let steps = self.product.k_indices(scope, &from, K_BLOCK);
        let block = self
            .product
            .load_block(scope, side, &self.batch, &lines, &steps)?;
        let pairs = self.block.iter().zip(block);
        Ok(pairs
            .map(|(variable, vector)| Statement::Assign(*variable, vector))
            .collect())
    }

    /// Returns the four rows or columns of the invocation's block, clamped to the last one.
    fn block_lines(&self, scope: &mut KernelScope, side: Side) -> Vec<Index> {
        let (quad, _) = self.block_position(side);
        let size = match side {
            Side::Left => &self.product.rows,
            Side::Right => &self.product.columns,
        };
        let first = self.first[side as usize].add(&quad.scale(&Dim::from(VEC4_LEN)));
        vec4_indices(scope, &first.div(&Dim::from(VEC4_LEN)), size)
    }

    /// Returns the vec4 of rows or columns, and the vec4 of K elements, that the invocation loads. Neighbouring
    /// invocations load neighbours in memory.
    fn block_position(&self, side: Side) -> (Index, Index) {
        let (quads, fours) = (Dim::from(self.shape.side_vec4s()), Dim::from(K_VEC4S));
        if self.is_k_contiguous[side as usize] {
            (self.block_index.div(&fours), self.block_index.rem(&fours))
        } else {
            (self.block_index.rem(&quads), self.block_index.div(&quads))
        }
    }

    /// Stores the invocation's block in workgroup memory.
    fn store_block(&self, scope: &mut KernelScope, half: &Index, side: Side) -> Vec<Statement> {
        let (quad, four) = self.block_position(side);
        let step = four.scale(&Dim::from(VEC4_LEN));
        let mut statements = Vec::new();
        for (k, value) in self.block.iter().enumerate() {
            let step = step.add_size(&Dim::from(k));
            statements.push(Statement::WorkgroupStore {
                array: side.array(),
                index: self.shared_index(scope, side, half, &step, &quad),
                value: *value,
            });
        }
        statements
    }

    /// Returns the index in workgroup memory of four rows or columns at a K element. Where neighbouring invocations have
    /// loaded neighbouring K elements, the vec4s of a K element are permuted by its index, so that writes go to different
    /// banks.
    fn shared_index(
        &self,
        scope: &mut KernelScope,
        side: Side,
        half: &Index,
        step: &Index,
        quad: &Index,
    ) -> Expr {
        let quads = Dim::from(self.shape.side_vec4s());
        let mut at = step.scale(&quads);
        if self.buffers == 2 {
            let steps = half.scale(&Dim::from(K_BLOCK));
            at = at.add(&steps.scale(&quads));
        }
        if self.is_k_contiguous[side as usize] {
            let four = step.div(&Dim::from(VEC4_LEN)).scale(&Dim::from(2));
            let pool = &mut scope.pool;
            let (quad, four) = (quad.emit(pool), four.emit(pool));
            let moved = pool.call("x ^ y", WgslType::U32, &[quad, four]);
            at = at.add(&Index::expr(moved, &quads));
        } else {
            at = at.add(quad);
        }
        at.emit(&mut scope.pool)
    }

    /// Adds the products of the K block in a buffer.
    fn multiply_block(&self, scope: &mut KernelScope, half: &Index) -> Statement {
        let (variable, k) = scope.counter("k", &Dim::from(K_BLOCK));
        let [left, right] = [Side::Left, Side::Right].map(|side| {
            let quads = self.invocation_vec4s(side);
            let vectors = quads.iter().enumerate().map(|(number, quad)| {
                let at = self.shared_index(scope, side, half, &k, quad);
                let array = format!("{}[x]", side.array());
                let vector = scope.pool.call(array, WgslType::F32x4, &[at]);
                let letter = if side == Side::Left { "a" } else { "b" };
                scope.pool.set_label(vector, &format!("{letter}{number}"));
                vector
            });
            vectors.collect::<Vec<Expr>>()
        });
        let mut body = Vec::new();
        for (i, sums) in self.sums.iter().enumerate() {
            let pool = &mut scope.pool;
            let number = vec4::component(pool, left[i / VEC4_LEN], i % VEC4_LEN, WgslType::F32);
            for (sum, vector) in sums.iter().zip(&right) {
                let term = pool.call("x * y", WgslType::F32x4, &[number, *vector]);
                let total = pool.call("x + y", WgslType::F32x4, &[*sum, term]);
                body.push(Statement::Assign(*sum, total));
            }
        }
        Statement::Loop {
            variable,
            from: scope.pool.index(0),
            to: scope.pool.index(K_BLOCK as u32),
            step: 1,
            body,
        }
    }

    /// Returns the vec4s of rows or columns of the tile that the invocation computes.
    fn invocation_vec4s(&self, side: Side) -> Vec<Index> {
        let numbers = 0..self.invocation_lines(side) / VEC4_LEN;
        numbers
            .map(|number| self.invocation_vec4(side, &number.into()))
            .collect()
    }

    /// Returns one of these vec4s by its number. They are as far apart as possible, so that neighbouring invocations take
    /// neighbouring vec4s.
    fn invocation_vec4(&self, side: Side, number: &Index) -> Index {
        let apart = Dim::from(self.shape.side / self.invocation_lines(side));
        self.invocation_position[side as usize].add(&number.scale(&apart))
    }

    /// Returns the rows or columns that an invocation computes.
    fn invocation_lines(&self, side: Side) -> usize {
        match side {
            Side::Left => self.shape.height,
            Side::Right => self.shape.width,
        }
    }

    /// Writes the rows of a vec4 of columns.
    fn write(&self, scope: &mut KernelScope, group: &Group, q: usize) -> Result<Vec<Statement>> {
        let Product { rows, columns, .. } = self.product;
        let whole = Dim::from(VEC4_LEN);
        let column = self.first[1].add(&self.invocation_vec4(Side::Right, &q.into()).scale(&whole));
        let quads = self.sums.chunks(VEC4_LEN);
        let registers: Vec<Vec<Expr>> = quads
            .map(|rows| rows.iter().map(|sums| sums[q]).collect())
            .collect();
        let cost = group.epilogue_cost(scope.graph);
        let statements = write_lines(
            scope,
            LineEpilogue::Unrolled,
            cost,
            &registers,
            &mut |scope, number, sums| {
                let first =
                    self.first[0].add(&self.invocation_vec4(Side::Left, number).scale(&whole));
                let mut lines = Vec::new();
                for (i, sum) in sums.iter().enumerate() {
                    let row = first.add_size(&Dim::from(i));
                    let product = self.product;
                    let line =
                        product.write_vec4(scope, group, &self.batch, &row, &column, *sum)?;
                    lines.extend(if is_multiple_of_4(rows) {
                        line
                    } else {
                        bounds_guard(scope, &row, rows, line)
                    });
                }
                Ok(if is_multiple_of_4(rows) {
                    bounds_guard(scope, &first, rows, lines)
                } else {
                    lines
                })
            },
        )?;
        Ok(if is_multiple_of_4(columns) {
            bounds_guard(scope, &column, columns, statements)
        } else {
            statements
        })
    }

    /// Returns the declarations of the workgroup memory, and the workgroup size.
    fn memory(&self) -> String {
        let vectors = self.buffers * self.shape.side_vec4s() * K_BLOCK;
        let array = |name: &str| format!("var<workgroup> {name}: array<vec4<f32>, {vectors}>;\n");
        format!(
            "{}{}\n@compute @workgroup_size({})\n",
            array("left"),
            array("right"),
            self.shape.invocations()
        )
    }
}

/// Creates the accumulator variables of an invocation, by row and vec4 of columns.
fn sums(scope: &mut KernelScope, extent: WorkgroupTileShape) -> Vec<Vec<Expr>> {
    let mut row = |i: usize| {
        (0..extent.width / VEC4_LEN)
            .map(|q| scope.pool.variable(&format!("sum{i}_{q}"), WgslType::F32x4))
            .collect()
    };
    (0..extent.height).map(&mut row).collect()
}

/// Labels the index of an invocation among those that load the same factor.
fn label_block_index(scope: &mut KernelScope, local: &Index, blocks: usize) -> Index {
    let blocks = Dim::from(blocks);
    let number = local.rem(&blocks).emit(&mut scope.pool);
    scope.pool.set_label(number, "number");
    Index::expr(number, &blocks)
}
