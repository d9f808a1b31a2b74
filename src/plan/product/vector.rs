//! Products of a few rows with a matrix, on GPUs. Reading the matrix takes most of the time. So many invocations share
//! each column, each for some K elements, and then add up their partial sums.

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, invocation, repeat};
use crate::plan::product::{Product, Side, accumulate, vec4_indices};

const TEMPLATE: &str = include_str!("../../../shaders/vector.wgsl");

/// Invocations of a workgroup.
const INVOCATIONS: usize = 64;
/// Vec4s of columns of a workgroup if columns are the contiguous axis: neighbouring invocations read neighbouring
/// vec4s.
const MAX_COLUMN_VEC4S: usize = 4;
/// Most rows that an invocation computes.
pub const MAX_ROWS: i64 = 4;

/// Lowers a product with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    product: &Product,
) -> Result<LoweredKernel<'a>> {
    let strip = ColumnStrip::new(&mut scope, product)?;
    let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
    let mut statements = vec![strip.surplus.clone()];
    let sums = strip.sums.iter();
    statements.extend(sums.map(|sum| Statement::Declare(*sum, zero)));
    let iterations = ceil_div(&product.k_size, strip.column_lanes() * VEC4_LEN);
    statements.extend(repeat(
        &mut scope,
        "trip",
        &iterations,
        |scope, iteration| strip.k_iteration(scope, &iteration),
    )?);
    statements.extend(strip.sums.iter().map(|sum| Statement::Freeze(*sum)));
    let (reduction, totals) = if strip.uses_subgroups {
        strip.reduce_in_subgroups(&mut scope)
    } else {
        strip.reduce_in_workgroup(&mut scope)
    };
    statements.extend(reduction);
    statements.push(strip.write(&mut scope, group, &totals)?);
    let values = strip.holes();
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, strip.count);
    lowered.template_values.extend(values);
    Ok(lowered)
}

/// All rows of some columns, which one workgroup computes.
struct ColumnStrip<'p> {
    product: &'p Product,
    /// Number of workgroups.
    count: Dim,
    /// Statement that ends surplus workgroups.
    surplus: Statement,
    /// Batch coordinates.
    batch: Vec<Index>,
    /// First column of the invocation.
    column: Index,
    /// Index of the invocation.
    local: Expr,
    /// Index of the invocation among those that share its columns.
    lane: Index,
    /// Number of vec4s of columns of the workgroup.
    column_vec4s: usize,
    /// True if the partial sums are added up by subgroup operations.
    uses_subgroups: bool,
    rows: Vec<Index>,
    /// Variable with the invocation's partial sum of each row, a vec4 of columns.
    sums: Vec<Expr>,
}

impl<'p> ColumnStrip<'p> {
    fn new(scope: &mut KernelScope, product: &'p Product) -> Result<ColumnStrip<'p>> {
        let is_k_contiguous = product.is_k_contiguous(scope, Side::Right)?;
        let column_vec4s = if is_k_contiguous { 1 } else { MAX_COLUMN_VEC4S };
        let mut tiles: Vec<Dim> = product.batch.clone();
        tiles.push(ceil_div(&product.columns, column_vec4s * VEC4_LEN));
        let count = Dim::product(&tiles);
        let (index, surplus) = invocation(scope, &count);
        let mut coordinates = index::delinearize(&index, &tiles);
        let tile = coordinates.pop().unwrap_or_else(Index::zero);
        let (local, local_index) = scope.counter("local", &Dim::from(INVOCATIONS));
        let (width, vec4_len) = (Dim::from(column_vec4s), Dim::from(VEC4_LEN));
        let vec4_index = tile.scale(&width).add(&local_index.rem(&width));
        let height = product.rows.as_const().unwrap_or(1);
        Ok(ColumnStrip {
            product,
            count,
            surplus,
            batch: coordinates,
            column: vec4_index.scale(&vec4_len),
            local,
            lane: local_index.div(&width),
            column_vec4s,
            uses_subgroups: column_vec4s == 1 && scope.capabilities.subgroups,
            rows: (0..height).map(|row| Dim::from(row).into()).collect(),
            sums: (0..height)
                .map(|row| scope.pool.variable(&format!("sum{row}"), WgslType::F32x4))
                .collect(),
        })
    }

    /// Returns the number of invocations that share a column.
    fn column_lanes(&self) -> usize {
        INVOCATIONS / self.column_vec4s
    }

    /// Adds four K elements to all sums of each invocation.
    fn k_iteration(&self, scope: &mut KernelScope, iteration: &Index) -> Result<Vec<Statement>> {
        let (product, batch) = (self.product, self.batch.as_slice());
        let k_vec4 = iteration
            .scale(&Dim::from(self.column_lanes()))
            .add(&self.lane);
        let columns = vec4_indices(
            scope,
            &self.column.div(&Dim::from(VEC4_LEN)),
            &product.columns,
        );
        let k_indices = product.k_indices(scope, &k_vec4, self.column_lanes() * VEC4_LEN);
        let right = product.load_block(scope, Side::Right, batch, &columns, &k_indices)?;
        let mut statements = Vec::new();
        for (row, sum) in self.rows.iter().zip(&self.sums) {
            let left = product.load_line(scope, Side::Left, batch, row, &k_indices)?;
            let pool = &mut scope.pool;
            let terms: Vec<Expr> = left
                .iter()
                .zip(&right)
                .map(|(component, vector)| {
                    pool.call("x * y", WgslType::F32x4, &[*component, *vector])
                })
                .collect();
            statements.push(accumulate(pool, *sum, &terms));
        }
        Ok(statements)
    }

    /// Reduces in workgroup memory: the lower half of the invocations adds the sums of the upper half, until one
    /// invocation is left for each column.
    fn reduce_in_workgroup(&self, scope: &mut KernelScope) -> (Vec<Statement>, Vec<Expr>) {
        let line = |text: String| Statement::Line(text);
        let mut statements = self.store_shared(scope, "local", &self.sums);
        let height = self.sums.len();
        let mut additions: Vec<Statement> = (0..height)
            .map(|row| {
                line(format!(
                    "{} += {};",
                    shared_element(row, "local"),
                    shared_element(row, "local + width")
                ))
            })
            .collect();
        let head = format!(
            "for (var width = {}u; width >= {}u; width /= 2u)",
            INVOCATIONS / 2,
            self.column_vec4s
        );
        let barrier = line(String::from("workgroupBarrier();"));
        let body = vec![
            Statement::Block(
                String::from("if local < width"),
                std::mem::take(&mut additions),
            ),
            barrier.clone(),
        ];
        statements.extend([barrier, Statement::Block(head, body)]);
        let totals = (0..height)
            .map(|row| {
                scope
                    .pool
                    .variable(&shared_element(row, "local"), WgslType::F32x4)
            })
            .collect::<Vec<Expr>>();
        statements.extend(totals.iter().map(|total| Statement::Freeze(*total)));
        (statements, totals)
    }

    /// Reduces within subgroups, then over subgroups.
    fn reduce_in_subgroups(&self, scope: &mut KernelScope) -> (Vec<Statement>, Vec<Expr>) {
        let line = |text: &str| Statement::Line(text.to_string());
        let mut totals = Vec::new();
        let mut statements = Vec::new();
        for sum in &self.sums {
            let total = scope.pool.call("subgroupAdd(x)", WgslType::F32x4, &[*sum]);
            scope.pool.set_label(total, "total");
            statements.push(Statement::Let(total));
            totals.push(total);
        }
        statements.push(Statement::Block(
            String::from("if lane == 0u"),
            self.store_shared(scope, "subgroup", &totals),
        ));
        statements.push(line("workgroupBarrier();"));
        let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
        let mut additions = Vec::new();
        let mut workgroup_totals = Vec::new();
        for row in 0..self.sums.len() {
            let workgroup_total = scope.pool.variable(&format!("whole{row}"), WgslType::F32x4);
            statements.push(Statement::Declare(workgroup_total, zero));
            let share = shared_element(row, "part");
            additions.push(line(&format!("whole{row} += {share};")));
            workgroup_totals.push(workgroup_total);
        }
        let head = String::from("for (var part = 0u; part < subgroups; part++)");
        statements.push(Statement::Block(head, additions));
        statements.extend(
            workgroup_totals
                .iter()
                .map(|workgroup_total| Statement::Freeze(*workgroup_total)),
        );
        (statements, workgroup_totals)
    }

    /// Stores a vector for each row in workgroup memory, at the position that the `u32` variable named `position`
    /// holds.
    fn store_shared(
        &self,
        scope: &mut KernelScope,
        position: &str,
        vectors: &[Expr],
    ) -> Vec<Statement> {
        let position = scope.pool.variable(position, WgslType::U32);
        let position = Index::expr(position, &Dim::from(INVOCATIONS));
        let rows = vectors.iter().enumerate();
        rows.map(|(row, vector)| Statement::WorkgroupStore {
            array: "shares",
            index: position
                .add_size(&Dim::from(row * INVOCATIONS))
                .emit(&mut scope.pool),
            value: *vector,
        })
        .collect()
    }

    /// Writes each column by its first invocation.
    fn write(&self, scope: &mut KernelScope, group: &Group, totals: &[Expr]) -> Result<Statement> {
        let mut statements = Vec::new();
        for (row, total) in self.rows.iter().zip(totals) {
            let (batch, column) = (&self.batch, &self.column);
            let product = self.product;
            statements.extend(product.write_vec4(scope, group, batch, row, column, *total)?);
        }
        let columns = &self.product.columns;
        if is_multiple_of_4(columns) {
            statements = bounds_guard(scope, &self.column, columns, statements);
        }
        let column_vec4s = scope.pool.index(self.column_vec4s as u32);
        let is_first = scope
            .pool
            .call("x < y", WgslType::Bool, &[self.local, column_vec4s]);
        Ok(Statement::If(is_first, statements))
    }

    /// Returns the values of the template's placeholders.
    fn holes(&self) -> Vec<(&'static str, String)> {
        let vectors = self.sums.len() * INVOCATIONS;
        let builtins = "    @builtin(subgroup_id) subgroup: u32,\n    @builtin(num_subgroups) subgroups: u32,\n    \
                        @builtin(subgroup_invocation_id) lane: u32,\n";
        let memory = format!("var<workgroup> shares: array<vec4<f32>, {vectors}>;\n");
        let builtins = if self.uses_subgroups { builtins } else { "" };
        vec![("memory", memory), ("subgroups", String::from(builtins))]
    }
}

/// Returns the WGSL expression of the element of workgroup memory that holds a sum of a row. `at` is the WGSL
/// expression of the index of its invocation or subgroup.
fn shared_element(row: usize, at: &str) -> String {
    match row {
        0 => format!("shares[{at}]"),
        row => format!("shares[{}u + {at}]", row * INVOCATIONS),
    }
}
