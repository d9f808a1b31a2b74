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

/// Size of a tile, and how many rows and columns of it an invocation computes.
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
            .find(|shape| shape.side == side as usize)
    }

    /// Returns the number of invocations of a workgroup.
    fn invocations(self) -> usize {
        self.side * self.side / (self.height * self.width)
    }

    /// Returns the number of vec4s of rows, and of vec4s of columns, of the tile.
    fn side_vec4s(self) -> usize {
        self.side / VEC4_LEN
    }

    /// Returns the bytes of a K block of both factors.
    fn memory(self) -> usize {
        2 * self.side * K_BLOCK * size_of::<f32>()
    }

    /// Returns whether a device has enough workgroup memory and invocations for a tile.
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
    shape: WorkgroupTileShape,
) -> Result<LoweredKernel<'a>> {
    let tile = WorkgroupTile::new(&mut scope, product, shape)?;
    let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
    let mut statements = vec![tile.surplus.clone()];
    statements.extend(tile.label_shared(&mut scope));
    let declared = tile.sums.iter().flatten().chain(&tile.block);
    statements.extend(declared.map(|variable| Statement::Declare(*variable, zero)));
    statements.extend(tile.k_loop(&mut scope)?);
    for q in 0..shape.width / VEC4_LEN {
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
    /// Number of K blocks that workgroup memory holds at a time. With two (double buffering), one is loaded while the
    /// other is multiplied.
    buffers: usize,
    /// Number of K blocks.
    k_blocks: Dim,
    /// Number of workgroups.
    count: Dim,
    /// Statement that ends surplus workgroups.
    surplus: Statement,
    /// Batch coordinates.
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
    /// Accumulator variables of the invocation, by row and vec4 of columns.
    sums: Vec<Vec<Expr>>,
    /// Variables with the block that the invocation has loaded: four lines for each of four K elements.
    block: Vec<Expr>,
}

impl<'p> WorkgroupTile<'p> {
    fn new(
        scope: &mut KernelScope,
        product: &'p Product,
        shape: WorkgroupTileShape,
    ) -> Result<WorkgroupTile<'p>> {
        let tiles = [&product.rows, &product.columns].map(|size| ceil_div(size, shape.side));
        let grid = TileGrid::new(scope, &product.batch, tiles);
        let side = Dim::from(shape.side);
        let (local, index) = scope.counter("local", &Dim::from(shape.invocations()));
        let factor_blocks = shape.side_vec4s() * K_VEC4S;
        let column_invocations = Dim::from(shape.side / shape.width);
        let buffers =
            1 + usize::from(2 * shape.memory() <= scope.capabilities.max_workgroup_memory as usize);
        let block_count = scope.pool.index(factor_blocks as u32);
        let is_left = scope
            .pool
            .call("x < y", WgslType::Bool, &[local, block_count]);
        scope.pool.set_label(is_left, "reads_left");
        let is_k_contiguous =
            [Side::Left, Side::Right].map(|side| product.is_k_contiguous(scope, side));
        let [left, right] = is_k_contiguous;
        Ok(WorkgroupTile {
            product,
            shape,
            buffers,
            k_blocks: ceil_div(&product.k_size, K_BLOCK),
            count: grid.count,
            surplus: grid.surplus,
            batch: grid.batch,
            first: grid.tile.map(|tile| tile.scale(&side)),
            invocation_position: [
                index.div(&column_invocations),
                index.rem(&column_invocations),
            ],
            block_index: label_block_index(scope, &index, factor_blocks),
            is_left,
            is_k_contiguous: [left?, right?],
            sums: sums(scope, shape),
            block: (0..VEC4_LEN)
                .map(|k| scope.pool.variable(&format!("block{k}"), WgslType::F32x4))
                .collect(),
        })
    }

    /// Emits labelled expressions that several parts of the kernel use.
    fn label_shared(&self, scope: &mut KernelScope) -> Vec<Statement> {
        let mut named = vec![("row", self.first[0].clone())];
        named.push(("column", self.first[1].clone()));
        named.push(("my_row", self.invocation_position[0].clone()));
        named.push(("my_column", self.invocation_position[1].clone()));
        for side in [Side::Left, Side::Right] {
            let (line_vec4, k_vec4) = self.block_position(side);
            named.extend([("quad", line_vec4), ("four", k_vec4)]);
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
        let iterations = &self.k_blocks + &Dim::ONE;
        repeat(scope, "piece", &iterations, |scope, iteration| {
            let number = iteration.emit(&mut scope.pool);
            let k_block = Index::expr(number, &self.k_blocks);
            let two = Dim::from(2);
            let (buffer, previous_buffer) =
                (k_block.rem(&two), iteration.add_size(&Dim::ONE).rem(&two));
            let load =
                self.for_each_factor(scope, |scope, side| self.load_block(scope, &k_block, side))?;
            let store = self.for_each_factor(scope, |scope, side| {
                Ok(self.store_block(scope, &buffer, side))
            })?;
            let multiply = self.multiply_block(scope, &previous_buffer);
            let pool = &mut scope.pool;
            let (zero, end) = (pool.index(0), pool.size(&self.k_blocks));
            let has_previous = pool.call("x > y", WgslType::Bool, &[number, zero]);
            let has_block = pool.call("x < y", WgslType::Bool, &[number, end]);
            scope.pool.set_label(has_block, "is_piece");
            let barrier = Statement::Line(String::from("workgroupBarrier();"));
            let mut statements = vec![
                Statement::If(has_block, vec![load]),
                Statement::If(has_previous, vec![multiply]),
            ];
            statements.extend((self.buffers == 1).then(|| barrier.clone()));
            statements.extend([Statement::If(has_block, vec![store]), barrier]);
            Ok(statements)
        })
    }

    /// Emits a statement per factor for the invocation's block: half of the invocations handle the left factor, half
    /// the right one.
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
        k_block: &Index,
        side: Side,
    ) -> Result<Vec<Statement>> {
        let lines = self.block_lines(scope, side);
        let (_, k_vec4) = self.block_position(side);
        let first_k_vec4 = k_block.scale(&Dim::from(K_VEC4S)).add(&k_vec4);
        let k_indices = self.product.k_indices(scope, &first_k_vec4, K_BLOCK);
        let block = self
            .product
            .load_block(scope, side, &self.batch, &lines, &k_indices)?;
        let pairs = self.block.iter().zip(block);
        Ok(pairs
            .map(|(variable, vector)| Statement::Assign(*variable, vector))
            .collect())
    }

    /// Returns the four lines of the invocation's block, clamped to the last one.
    fn block_lines(&self, scope: &mut KernelScope, side: Side) -> Vec<Index> {
        let (line_vec4, _) = self.block_position(side);
        let size = match side {
            Side::Left => &self.product.rows,
            Side::Right => &self.product.columns,
        };
        let first = self.first[side as usize].add(&line_vec4.scale(&Dim::from(VEC4_LEN)));
        vec4_indices(scope, &first.div(&Dim::from(VEC4_LEN)), size)
    }

    /// Returns the vec4 of lines and the vec4 of K elements that the invocation loads. Neighbouring invocations load
    /// neighbours in memory.
    fn block_position(&self, side: Side) -> (Index, Index) {
        let (line_vec4s, k_vec4s) = (Dim::from(self.shape.side_vec4s()), Dim::from(K_VEC4S));
        if self.is_k_contiguous[side as usize] {
            (
                self.block_index.div(&k_vec4s),
                self.block_index.rem(&k_vec4s),
            )
        } else {
            (
                self.block_index.rem(&line_vec4s),
                self.block_index.div(&line_vec4s),
            )
        }
    }

    /// Stores the invocation's block in workgroup memory. `buffer` is the index of the K block there.
    fn store_block(&self, scope: &mut KernelScope, buffer: &Index, side: Side) -> Vec<Statement> {
        let (line_vec4, k_vec4) = self.block_position(side);
        let first_k = k_vec4.scale(&Dim::from(VEC4_LEN));
        let mut statements = Vec::new();
        for (k, value) in self.block.iter().enumerate() {
            let k_index = first_k.add_size(&Dim::from(k));
            statements.push(Statement::WorkgroupStore {
                array: side.array(),
                index: self.shared_index(scope, side, buffer, &k_index, &line_vec4),
                value: *value,
            });
        }
        statements
    }

    /// Returns the index in workgroup memory of a vec4 of lines at K element `k` of the K block in a buffer. If
    /// neighbouring invocations have loaded neighbouring K elements, the vec4s of a K element are permuted by its
    /// index, so that writes go to different banks.
    fn shared_index(
        &self,
        scope: &mut KernelScope,
        side: Side,
        buffer: &Index,
        k: &Index,
        line_vec4: &Index,
    ) -> Expr {
        let line_vec4s = Dim::from(self.shape.side_vec4s());
        let mut index = k.scale(&line_vec4s);
        if self.buffers == 2 {
            let first_k = buffer.scale(&Dim::from(K_BLOCK));
            index = index.add(&first_k.scale(&line_vec4s));
        }
        if self.is_k_contiguous[side as usize] {
            let swizzle = k.div(&Dim::from(VEC4_LEN)).scale(&Dim::from(2));
            let pool = &mut scope.pool;
            let (line_vec4, swizzle) = (line_vec4.emit(pool), swizzle.emit(pool));
            let permuted = pool.call("x ^ y", WgslType::U32, &[line_vec4, swizzle]);
            index = index.add(&Index::expr(permuted, &line_vec4s));
        } else {
            index = index.add(line_vec4);
        }
        index.emit(&mut scope.pool)
    }

    /// Adds the products of the K block in a buffer.
    fn multiply_block(&self, scope: &mut KernelScope, buffer: &Index) -> Statement {
        let (variable, k) = scope.counter("k", &Dim::from(K_BLOCK));
        let [left, right] = [Side::Left, Side::Right].map(|side| {
            let line_vec4s = self.invocation_vec4s(side);
            let vectors = line_vec4s.iter().enumerate().map(|(number, line_vec4)| {
                let index = self.shared_index(scope, side, buffer, &k, line_vec4);
                let array = format!("{}[x]", side.array());
                let vector = scope.pool.call(array, WgslType::F32x4, &[index]);
                let letter = if side == Side::Left { "a" } else { "b" };
                scope.pool.set_label(vector, &format!("{letter}{number}"));
                vector
            });
            vectors.collect::<Vec<Expr>>()
        });
        let mut body = Vec::new();
        for (i, sums) in self.sums.iter().enumerate() {
            let pool = &mut scope.pool;
            let row = vec4::component(pool, left[i / VEC4_LEN], i % VEC4_LEN, WgslType::F32);
            for (sum, vector) in sums.iter().zip(&right) {
                let term = pool.call("x * y", WgslType::F32x4, &[row, *vector]);
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

    /// Returns the vec4s of lines of the tile that the invocation computes.
    fn invocation_vec4s(&self, side: Side) -> Vec<Index> {
        let numbers = 0..self.invocation_lines(side) / VEC4_LEN;
        numbers
            .map(|number| self.invocation_vec4(side, &number.into()))
            .collect()
    }

    /// Returns one of the vec4s of lines that the invocation computes, by its number. They are as far apart as
    /// possible, so that neighbouring invocations compute neighbouring vec4s.
    fn invocation_vec4(&self, side: Side, number: &Index) -> Index {
        let distance = Dim::from(self.shape.side / self.invocation_lines(side));
        self.invocation_position[side as usize].add(&number.scale(&distance))
    }

    /// Returns the number of lines that an invocation computes.
    fn invocation_lines(&self, side: Side) -> usize {
        match side {
            Side::Left => self.shape.height,
            Side::Right => self.shape.width,
        }
    }

    /// Writes vec4 `q` of the invocation's columns in all its rows.
    fn write(&self, scope: &mut KernelScope, group: &Group, q: usize) -> Result<Vec<Statement>> {
        let Product { rows, columns, .. } = self.product;
        let vec4_len = Dim::from(VEC4_LEN);
        let column = self.first[1].add(
            &self
                .invocation_vec4(Side::Right, &q.into())
                .scale(&vec4_len),
        );
        let row_vec4s = self.sums.chunks(VEC4_LEN);
        let registers: Vec<Vec<Expr>> = row_vec4s
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
                    self.first[0].add(&self.invocation_vec4(Side::Left, number).scale(&vec4_len));
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
fn sums(scope: &mut KernelScope, shape: WorkgroupTileShape) -> Vec<Vec<Expr>> {
    let mut row = |i: usize| {
        (0..shape.width / VEC4_LEN)
            .map(|q| scope.pool.variable(&format!("sum{i}_{q}"), WgslType::F32x4))
            .collect()
    };
    (0..shape.height).map(&mut row).collect()
}

/// Returns the index of an invocation among those that load the same factor, as a labelled expression. Each of them
/// loads one of the factor's `blocks` blocks.
fn label_block_index(scope: &mut KernelScope, local: &Index, blocks: usize) -> Index {
    let blocks = Dim::from(blocks);
    let number = local.rem(&blocks).emit(&mut scope.pool);
    scope.pool.set_label(number, "number");
    Index::expr(number, &blocks)
}
