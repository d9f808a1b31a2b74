//! Matrix products with cooperative matrices (tensor cores and the like): a subgroup multiplies small matrices with one
//! instruction. Factors in half precision are multiplied as they are and accumulated in single precision.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::capabilities::{Capabilities, CooperativeMatrix};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{self, VEC4_LEN, is_multiple_of_4};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, repeat};
use crate::plan::product::{Product, Side, TileGrid, vec4_indices};

const TEMPLATE: &str = include_str!("../../../shaders/matrix.wgsl");

/// Rows and columns of a tile.
const TILE_SIDE: usize = 64;
/// Rows and columns of the quadrant that a subgroup computes.
const QUADRANT_SIDE: usize = TILE_SIDE / 2;
/// Subgroups of a workgroup.
const SUBGROUPS: usize = 4;
/// K elements of a K block, of which workgroup memory holds one at a time.
const K_BLOCK: usize = 16;
/// 4×4 blocks of a factor in one K block.
const BLOCKS_PER_FACTOR: usize = TILE_SIDE / VEC4_LEN * (K_BLOCK / VEC4_LEN);

/// Returns the matrix unit of a size and dtype, if the device has it and a workgroup has enough memory and invocations.
pub fn matrix_unit(
    capabilities: &Capabilities,
    size: u32,
    dtype: DType,
) -> Option<CooperativeMatrix> {
    let half = match dtype {
        DType::F16 => true,
        DType::F32 => false,
        _ => return None,
    };
    let unit = CooperativeMatrix { size, half };
    let bytes = if half { 2 } else { 4 };
    let memory = 2 * TILE_SIDE * K_BLOCK * bytes + TILE_SIDE * TILE_SIDE * size_of::<f32>();
    let invocations = SUBGROUPS as u32 * capabilities.subgroup_size;
    let fits = memory <= capabilities.max_workgroup_memory as usize
        && (1..=capabilities.max_invocations).contains(&invocations);
    (fits && capabilities.cooperative_matrices.contains(&unit)).then_some(unit)
}

/// Lowers a product with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
    unit: CooperativeMatrix,
) -> Result<LoweredKernel<'a>> {
    let tile = MatrixTile::new(&mut scope, product, unit)?;
    let mut statements = vec![tile.surplus.clone()];
    statements.extend(tile.label_quadrant(&mut scope));
    statements
        .extend(tile.for_each_sum(|i, j| format!("var sum{i}{j}: {};", tile.matrix_type("C"))));
    let k_blocks = ceil_div(&product.k_size, K_BLOCK);
    statements.extend(repeat(&mut scope, "piece", &k_blocks, |scope, k_block| {
        let barrier = Statement::Line(String::from("workgroupBarrier();"));
        let load = tile.load_k_block(scope, &k_block)?;
        Ok(vec![barrier.clone(), load, barrier, tile.multiply_block()])
    })?);
    statements.extend(tile.for_each_sum(|i, j| {
        let place = element_index(
            "tile_row",
            i * unit.size as usize,
            TILE_SIDE,
            "tile_column",
            j * unit.size as usize,
        );
        format!("coopStoreT(sum{i}{j}, &tile[{place}], {TILE_SIDE}u);")
    }));
    statements.push(Statement::Line(String::from("workgroupBarrier();")));
    statements.push(tile.write(&mut scope, group)?);
    let memory = tile.memory();
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, tile.count);
    lowered.template_values.push(("memory", memory));
    Ok(lowered)
}

/// A tile of the result, which one workgroup computes.
struct MatrixTile<'p> {
    product: &'p Product,
    unit: CooperativeMatrix,
    /// Invocations of the workgroup.
    invocations: usize,
    /// Number of workgroups.
    count: Dim,
    /// Statement that ends surplus workgroups.
    surplus: Statement,
    /// Batch coordinates.
    batch: Vec<Index>,
    /// First row and first column.
    first: [Index; 2],
    /// Index of the invocation.
    local: Expr,
    /// For each factor, whether K is the contiguous axis.
    is_k_contiguous: [bool; 2],
}

impl<'p> MatrixTile<'p> {
    fn new(
        scope: &mut KernelScope,
        product: &'p Product,
        unit: CooperativeMatrix,
    ) -> Result<MatrixTile<'p>> {
        let tiles = [&product.rows, &product.columns].map(|size| ceil_div(size, TILE_SIDE));
        let grid = TileGrid::new(scope, &product.batch, tiles);
        let invocations = SUBGROUPS * scope.capabilities.subgroup_size as usize;
        let (local, _) = scope.counter("local", &Dim::from(invocations));
        let left = product.is_k_contiguous(scope, Side::Left)?;
        let right = product.is_k_contiguous(scope, Side::Right)?;
        Ok(MatrixTile {
            product,
            unit,
            invocations,
            count: grid.count,
            surplus: grid.surplus,
            batch: grid.batch,
            first: grid.tile.map(|tile| tile.scale(&Dim::from(TILE_SIDE))),
            local,
            is_k_contiguous: [left, right],
        })
    }

    /// Emits the first row and column of the quadrant that a subgroup computes, as labelled expressions.
    fn label_quadrant(&self, scope: &mut KernelScope) -> Vec<Statement> {
        let (_, subgroup) = scope.counter("subgroup", &Dim::from(SUBGROUPS));
        let (two, side) = (Dim::from(2), Dim::from(QUADRANT_SIDE));
        let quadrant = [subgroup.div(&two), subgroup.rem(&two)];
        let named = ["tile_row", "tile_column"].into_iter().zip(quadrant);
        let pool = &mut scope.pool;
        named
            .map(|(name, coordinate)| {
                let coordinate = coordinate.scale(&side).emit(pool);
                pool.set_label(coordinate, name);
                Statement::Let(coordinate)
            })
            .collect()
    }

    /// Emits a line for each accumulator matrix of a subgroup.
    fn for_each_sum(&self, line: impl Fn(usize, usize) -> String) -> Vec<Statement> {
        let count = QUADRANT_SIDE / self.unit.size as usize;
        let coordinates = (0..count).flat_map(|i| (0..count).map(move |j| (i, j)));
        coordinates
            .map(|(i, j)| Statement::Line(line(i, j)))
            .collect()
    }

    /// Returns the WGSL type of a matrix in a role: `A` and `B` are multiplied and added to `C`.
    fn matrix_type(&self, role: &str) -> String {
        let size = self.unit.size;
        let scalar = if self.unit.half && role != "C" {
            "f16"
        } else {
            "f32"
        };
        format!("coop_mat{size}x{size}<{scalar}, {role}>")
    }

    /// Loads a K block of both factors into workgroup memory, in blocks of four lines and four K elements.
    fn load_k_block(&self, scope: &mut KernelScope, k_block: &Index) -> Result<Statement> {
        let (block, _) = scope.counter("block", &Dim::from(2 * BLOCKS_PER_FACTOR));
        let left = self.load_factor(scope, k_block, block, Side::Left)?;
        let right = self.load_factor(scope, k_block, block, Side::Right)?;
        let pool = &mut scope.pool;
        let factor_blocks = pool.index(BLOCKS_PER_FACTOR as u32);
        let is_left = pool.call("x < y", WgslType::Bool, &[block, factor_blocks]);
        Ok(Statement::Loop {
            variable: block,
            from: self.local,
            to: pool.index(2 * BLOCKS_PER_FACTOR as u32),
            step: self.invocations as u32,
            body: vec![Statement::IfElse(is_left, left, right)],
        })
    }

    /// Loads one block of a factor. `block` is its index among the blocks of both factors.
    fn load_factor(
        &self,
        scope: &mut KernelScope,
        k_block: &Index,
        block: Expr,
        side: Side,
    ) -> Result<Vec<Statement>> {
        let product = self.product;
        let block_index = Index::expr(block, &Dim::from(2 * BLOCKS_PER_FACTOR))
            .rem(&Dim::from(BLOCKS_PER_FACTOR));
        let (line_vec4s, k_vec4s) = (
            Dim::from(TILE_SIDE / VEC4_LEN),
            Dim::from(K_BLOCK / VEC4_LEN),
        );
        let (line_vec4, k_vec4) = if self.is_k_contiguous[side as usize] {
            (block_index.div(&k_vec4s), block_index.rem(&k_vec4s))
        } else {
            (block_index.rem(&line_vec4s), block_index.div(&line_vec4s))
        };
        let size = match side {
            Side::Left => &product.rows,
            Side::Right => &product.columns,
        };
        let vec4_len = Dim::from(VEC4_LEN);
        let first_line_vec4 = self.first[side as usize].div(&vec4_len).add(&line_vec4);
        let lines = vec4_indices(scope, &first_line_vec4, size);
        let k_indices = product.k_indices(scope, &k_block.scale(&k_vec4s).add(&k_vec4), K_BLOCK);
        let vectors = product.load_block(scope, side, &self.batch, &lines, &k_indices)?;
        let mut statements = Vec::new();
        for (k, vector) in vectors.into_iter().enumerate() {
            for component in 0..VEC4_LEN {
                let line_and_k = [
                    line_vec4.scale(&vec4_len).add_size(&Dim::from(component)),
                    k_vec4.scale(&vec4_len).add_size(&Dim::from(k)),
                ];
                statements.push(self.store_shared(scope, side, line_and_k, vector, component));
            }
        }
        Ok(statements)
    }

    /// Stores an element of a factor in workgroup memory: component `component` of a vector of lines. The left factor
    /// is indexed by row and K, the right one by K and column.
    fn store_shared(
        &self,
        scope: &mut KernelScope,
        side: Side,
        [line, k]: [Index; 2],
        vector: Expr,
        component: usize,
    ) -> Statement {
        let index = match side {
            Side::Left => line.scale(&Dim::from(K_BLOCK)).add(&k),
            Side::Right => k.scale(&Dim::from(TILE_SIDE)).add(&line),
        };
        let pool = &mut scope.pool;
        let mut value = vec4::component(pool, vector, component, WgslType::F32);
        if self.unit.half {
            value = pool.call("f16(x)", WgslType::F16, &[value]);
        }
        Statement::WorkgroupStore {
            array: side.array(),
            index: index.emit(pool),
            value,
        }
    }

    /// Multiplies the matrices of a K block.
    fn multiply_block(&self) -> Statement {
        let size = self.unit.size as usize;
        let count = QUADRANT_SIDE / size;
        let mut body = Vec::new();
        for i in 0..count {
            let place = element_index("tile_row", i * size, K_BLOCK, "k", 0);
            body.push(format!(
                "let a{i} = coopLoadT<{}>(&left[{place}], {K_BLOCK}u);",
                self.matrix_type("A")
            ));
        }
        for j in 0..count {
            let place = element_index("k", 0, TILE_SIDE, "tile_column", j * size);
            body.push(format!(
                "let b{j} = coopLoadT<{}>(&right[{place}], {TILE_SIDE}u);",
                self.matrix_type("B")
            ));
        }
        let mut body: Vec<Statement> = body.into_iter().map(Statement::Line).collect();
        body.extend(
            self.for_each_sum(|i, j| {
                format!("sum{i}{j} = coopMultiplyAdd(a{i}, b{j}, sum{i}{j});")
            }),
        );
        Statement::Block(
            format!("for (var k = 0u; k < {K_BLOCK}u; k += {size}u)"),
            body,
        )
    }

    /// Writes the tile. Each invocation writes four neighbouring columns at a time.
    fn write(&self, scope: &mut KernelScope, group: &Group) -> Result<Statement> {
        let row_vec4s = Dim::from(TILE_SIDE / VEC4_LEN);
        let tile_vec4s = TILE_SIDE * TILE_SIDE / VEC4_LEN;
        let (variable, vec4_index) = scope.counter("part", &Dim::from(tile_vec4s));
        let vec4_len = Dim::from(VEC4_LEN);
        let (row, column_vec4) = (vec4_index.div(&row_vec4s), vec4_index.rem(&row_vec4s));
        let index = row
            .scale(&Dim::from(TILE_SIDE))
            .add(&column_vec4.scale(&vec4_len));
        let components: Vec<Expr> = (0..VEC4_LEN)
            .map(|component| {
                let index = index.add_size(&Dim::from(component)).emit(&mut scope.pool);
                scope.pool.call("tile[x]", WgslType::F32, &[index])
            })
            .collect();
        let vector = scope
            .pool
            .call("vec4(x, y, z, w)", WgslType::F32x4, &components);
        scope.pool.set_label(vector, "sums");
        let [row, column] = [
            self.first[0].add(&row),
            self.first[1].add(&column_vec4.scale(&vec4_len)),
        ];
        let Product { rows, columns, .. } = self.product;
        let mut body = self
            .product
            .write_vec4(scope, group, &self.batch, &row, &column, vector)?;
        if is_multiple_of_4(columns) {
            body = bounds_guard(scope, &column, columns, body);
        }
        Ok(Statement::Loop {
            variable,
            from: self.local,
            to: scope.pool.index(tile_vec4s as u32),
            step: self.invocations as u32,
            body: bounds_guard(scope, &row, rows, body),
        })
    }

    /// Returns the declarations of the workgroup memory, and the workgroup size.
    fn memory(&self) -> String {
        let scalar = if self.unit.half { "f16" } else { "f32" };
        let (piece, tile) = (TILE_SIDE * K_BLOCK, TILE_SIDE * TILE_SIDE);
        format!(
            "var<workgroup> left: array<{scalar}, {piece}>;\nvar<workgroup> right: array<{scalar}, {piece}>;\n\
             var<workgroup> tile: array<f32, {tile}>;\n\n@compute @workgroup_size({})\n",
            self.invocations
        )
    }
}

/// Returns the WGSL index of a matrix element with an offset in a row-major array: `(row + 8u) * 64u + column + 16u`.
/// `down` and `across` are the offsets of row and column, which are left out if they are 0.
fn element_index(row: &str, down: usize, stride: usize, column: &str, across: usize) -> String {
    let row = match down {
        0 => format!("{row} * {stride}u"),
        down => format!("({row} + {down}u) * {stride}u"),
    };
    match across {
        0 => format!("{row} + {column}"),
        across => format!("{row} + {column} + {across}u"),
    }
}
