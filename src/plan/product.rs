//! Contractions and convolutions as batched matrix products.
//!
//! A line of a factor is a row of the left factor, or a column of the right one.
//!
//! A convolution is the product of its filters (a row is an output channel) and the patches of its input (a column is a
//! position in one of the images). K runs over input channels and taps.

pub mod dot;
pub mod matrix;
pub mod tile;
pub mod vector;
pub mod workgroup;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::Conv;
use crate::plan::conv::ConvSizes;
use crate::plan::cost::is_plain_view;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, ElementRef, VEC4_LEN, is_multiple_of_4};
use crate::plan::element::{self, KernelScope, operand};
use crate::plan::group::Group;
use crate::plan::kernel::{bounds_guard, clamped_index, epilogue, invocation};
use crate::shape::Shape;

/// A batched matrix product.
pub struct Product {
    /// Result of the product, before the epilogue.
    pub result: ValueId,
    /// Batch axes, in front of rows and columns.
    pub batch: Shape,
    /// Rows of the left factor.
    pub rows: Dim,
    /// Columns of the right factor.
    pub columns: Dim,
    /// Length of the reduction (K).
    pub k_size: Dim,
    factors: Factors,
}

/// One of the two factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Indexed by row and K.
    Left,
    /// Indexed by K and column.
    Right,
}

impl Side {
    /// Returns the name of the array in workgroup memory that holds a K block of the factor.
    pub fn array(self) -> &'static str {
        match self {
            Side::Left => "left",
            Side::Right => "right",
        }
    }
}

/// Memory layout of a factor. An axis is contiguous if its neighbours are neighbours in memory.
pub struct FactorLayout {
    /// Value of which the factor is a view.
    pub base: ValueId,
    /// True if K is contiguous.
    pub is_k_contiguous: bool,
    /// True if rows (of the left factor) or columns (of the right one) are contiguous.
    pub is_line_contiguous: bool,
}

/// Sources of the left and the right factor.
enum Factors {
    /// Matrices indexed by row and K, and by K and column.
    Matrices(ValueId, ValueId),
    /// Matrices indexed by K and row, and by column and K.
    Transposed(ValueId, ValueId),
    /// Filter and input patches of a convolution.
    Patches(Box<ConvSizes>),
}

impl Product {
    /// Returns the product that a node computes; an error if it is neither contraction nor convolution.
    pub fn of(graph: &Graph, node: &Node) -> Result<Product> {
        match &node.op {
            Op::Primitive(Primitive::Dot(_)) => Product::matrices(graph, node),
            Op::Primitive(Primitive::Conv(conv)) => Product::patches(graph, node, conv),
            _ => Err(element::not_planned(node)),
        }
    }

    /// Returns the product of a contraction.
    fn matrices(graph: &Graph, node: &Node) -> Result<Product> {
        let (a, b) = (operand(node, 0)?, operand(node, 1)?);
        let result = node.results.first().copied().unwrap_or(a);
        let ([batch @ .., rows, columns], Some(k_size)) =
            (graph.ty(result).shape.as_slice(), graph.ty(a).shape.last())
        else {
            return Err(Error::internal("operands of dot have too few axes"));
        };
        Ok(Product {
            result,
            batch: batch.to_vec(),
            rows: rows.clone(),
            columns: columns.clone(),
            k_size: k_size.clone(),
            factors: Factors::Matrices(a, b),
        })
    }

    /// Exchanges rows and columns: swaps the factors and transposes both.
    pub fn transposed(self) -> Result<Product> {
        let factors = match self.factors {
            Factors::Matrices(a, b) => Factors::Transposed(b, a),
            Factors::Transposed(b, a) => Factors::Matrices(a, b),
            Factors::Patches(_) => {
                return Err(Error::internal(
                    "a convolution cannot be computed with transposed factors",
                ));
            }
        };
        Ok(Product {
            rows: self.columns,
            columns: self.rows,
            factors,
            ..self
        })
    }

    /// Returns the product of a convolution.
    fn patches(graph: &Graph, node: &Node, conv: &Conv) -> Result<Product> {
        let sizes = ConvSizes::new(graph, node, conv)?;
        Ok(Product {
            result: sizes.result,
            batch: vec![sizes.groups.clone()],
            rows: sizes.outputs.clone(),
            columns: &sizes.batch * &sizes.positions,
            k_size: Dim::product(&sizes.reduction_shape()),
            factors: Factors::Patches(Box::new(sizes)),
        })
    }

    /// Returns the element of a factor at a line and a K index, and the condition under which it exists: elsewhere it
    /// is zero.
    pub fn factor_element(
        &self,
        scope: &mut KernelScope,
        side: Side,
        batch: &[Index],
        line: &Index,
        k: &Index,
    ) -> (ElementRef, Option<Expr>) {
        match side {
            Side::Left => (self.left_element(batch, line, k), None),
            Side::Right => self.right_element(scope, batch, k, line),
        }
    }

    /// Returns the K indices of the vec4 with index `k_vec4`, clamped to the last one, each with the condition that it
    /// is below K. The condition is absent if K is a multiple of `block_size`: the caller never reads beyond the last
    /// block.
    pub fn k_indices(
        &self,
        scope: &mut KernelScope,
        k_vec4: &Index,
        block_size: usize,
    ) -> Vec<(Index, Option<Expr>)> {
        let k_size = self.k_size.as_const();
        if k_size.is_some_and(|k_size| k_size % block_size as i64 == 0) {
            let indices = vec4_indices(scope, k_vec4, &self.k_size).into_iter();
            return indices.map(|index| (index, None)).collect();
        }
        let vec4_len = Dim::from(VEC4_LEN);
        let indices = vec4_indices(scope, k_vec4, &self.k_size);
        let mut guard = |k: usize| {
            if is_multiple_of_4(&self.k_size) {
                return scope.is_below(k_vec4, &self.k_size.floor_div(&vec4_len));
            }
            let index = k_vec4.scale(&vec4_len).add_size(&Dim::from(k));
            scope.is_below(&index, &self.k_size)
        };
        let guards: Vec<Expr> = (0..VEC4_LEN).map(&mut guard).collect();
        indices
            .into_iter()
            .zip(guards.into_iter().map(Some))
            .collect()
    }

    /// Loads a vector of four lines of a factor for each of four K indices. Gives zeros beyond K.
    pub fn load_block(
        &self,
        scope: &mut KernelScope,
        side: Side,
        batch: &[Index],
        lines: &[Index],
        k_indices: &[(Index, Option<Expr>)],
    ) -> Result<Vec<Expr>> {
        let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
        let mut block = Vec::new();
        for (k, guard) in k_indices {
            let elements: Vec<_> = lines
                .iter()
                .map(|line| self.factor_element(scope, side, batch, line, k))
                .collect();
            let vector = vec4::load_vec4(scope, &elements)?;
            block.push(match guard {
                Some(guard) => scope.pool.select(*guard, vector, zero),
                None => vector,
            });
        }
        Ok(block)
    }

    /// Loads one line of a factor at four K indices, as scalars. Gives zeros beyond K.
    pub fn load_line(
        &self,
        scope: &mut KernelScope,
        side: Side,
        batch: &[Index],
        line: &Index,
        k_indices: &[(Index, Option<Expr>)],
    ) -> Result<Vec<Expr>> {
        let mut elements = Vec::new();
        for (k_index, _) in k_indices {
            elements.push(self.factor_element(scope, side, batch, line, k_index));
        }
        let mut vector = vec4::load_vec4(scope, &elements)?;
        let guards: Vec<Expr> = k_indices.iter().filter_map(|(_, guard)| *guard).collect();
        let pool = &mut scope.pool;
        if let [guard, rest @ ..] = guards.as_slice() {
            let zero = pool.call("vec4<f32>()", WgslType::F32x4, &[]);
            let guard = if rest.iter().all(|other| other == guard) {
                *guard
            } else {
                pool.call("vec4(x, y, z, w)", WgslType::F32x4, &guards)
            };
            vector = pool.select(guard, vector, zero);
        }
        pool.set_label(vector, "a");
        Ok((0..VEC4_LEN)
            .map(|k| vec4::component(pool, vector, k, WgslType::F32))
            .collect())
    }

    /// Returns whether K is the contiguous axis of a factor.
    pub fn is_k_contiguous(&self, scope: &mut KernelScope, side: Side) -> Result<bool> {
        Ok(self
            .factor_layout(scope, side)?
            .is_some_and(|layout| layout.is_k_contiguous))
    }

    /// Returns the memory layout of a factor that is a view of a materialised value. In a vec4 layout no axis counts as
    /// contiguous.
    pub fn factor_layout(
        &self,
        scope: &mut KernelScope,
        side: Side,
    ) -> Result<Option<FactorLayout>> {
        let line_count = match side {
            Side::Left => &self.rows,
            Side::Right => &self.columns,
        };
        let batch: Vec<Index> = self.batch.iter().map(|_| Index::zero()).collect();
        let (_, line) = scope.counter("line", line_count);
        let (_, k) = scope.counter("step", &self.k_size);
        let mut memory_index = |line: &Index, k: &Index| {
            let ((value, position), _) = self.factor_element(scope, side, &batch, line, k);
            scope.resolve_views(value, &position)
        };
        let Some((base, first)) = memory_index(&line, &k)? else {
            return Ok(None);
        };
        let next_element = Some((base, first.add_size(&Dim::ONE)));
        let is_k_next = memory_index(&line, &k.add_size(&Dim::ONE))? == next_element;
        let is_line_next = memory_index(&line.add_size(&Dim::ONE), &k)? == next_element;
        let is_in_rows = scope.layout(base).is_row_major();
        Ok(Some(FactorLayout {
            base,
            is_k_contiguous: is_k_next && is_in_rows,
            is_line_contiguous: is_line_next && is_in_rows,
        }))
    }

    /// Returns the element of the left factor at a row and a K index.
    pub fn left_element(&self, batch: &[Index], row: &Index, k: &Index) -> ElementRef {
        match &self.factors {
            Factors::Matrices(a, _) => (*a, matrix_position(batch, row, k)),
            Factors::Transposed(a, _) => (*a, matrix_position(batch, k, row)),
            Factors::Patches(sizes) => {
                let channel = batch.iter().fold(row.clone(), |row, group| {
                    group.scale(&sizes.outputs).add(&row)
                });
                let index = channel.scale(&self.k_size).add(k);
                (sizes.filter, Position::from_index(index))
            }
        }
    }

    /// Returns the element of the right factor at a K index and a column, and the condition under which it exists:
    /// elsewhere it is zero.
    pub fn right_element(
        &self,
        scope: &mut KernelScope,
        batch: &[Index],
        k: &Index,
        column: &Index,
    ) -> (ElementRef, Option<Expr>) {
        match &self.factors {
            Factors::Matrices(_, b) => ((*b, matrix_position(batch, k, column)), None),
            Factors::Transposed(_, b) => ((*b, matrix_position(batch, column, k)), None),
            Factors::Patches(sizes) => {
                let group = batch.first().cloned().unwrap_or_else(Index::zero);
                let mut taps = index::delinearize(k, &sizes.reduction_shape());
                let mut position = index::delinearize(column, &sizes.column_shape());
                let (channel, image) = (taps.remove(0), position.remove(0));
                let image_and_channel = [image, group.scale(&sizes.channels).add(&channel)];
                let (input_position, inside) =
                    sizes.input_position(scope, image_and_channel, &taps, &position);
                ((sizes.x, input_position), inside)
            }
        }
    }

    /// Returns the position of a row and a column in the result.
    pub fn result_position(&self, batch: &[Index], row: &Index, column: &Index) -> Position {
        match &self.factors {
            Factors::Matrices(..) => matrix_position(batch, row, column),
            Factors::Transposed(..) => matrix_position(batch, column, row),
            Factors::Patches(sizes) => {
                let channel = batch.iter().fold(row.clone(), |row, group| {
                    group.scale(&sizes.outputs).add(&row)
                });
                let mut coordinates = index::delinearize(column, &sizes.column_shape());
                coordinates.insert(1, channel);
                Position::from_coordinates(coordinates)
            }
        }
    }

    /// Writes a vector of four columns of a row, starting at column `first`, with the epilogue.
    pub fn write_vec4(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        batch: &[Index],
        row: &Index,
        first: &Index,
        vector: Expr,
    ) -> Result<Vec<Statement>> {
        let position_of = |column: &Index| self.result_position(batch, row, column);
        write_vec4(
            scope,
            group,
            self.result,
            first,
            &self.columns,
            vector,
            &position_of,
        )
    }
}

/// Adds terms to a sum. The terms are added to each other first.
pub fn accumulate(pool: &mut ExprPool, sum: Expr, terms: &[Expr]) -> Statement {
    let mut total = None;
    for term in terms {
        total = Some(match total {
            Some(total) => pool.call("x + y", WgslType::F32x4, &[total, *term]),
            None => *term,
        });
    }
    let total = total.map_or(sum, |terms| {
        pool.call("x + y", WgslType::F32x4, &[sum, terms])
    });
    Statement::Assign(sum, total)
}

/// Writes a vector of four neighbours along an axis with the epilogue, with one store where they are contiguous.
/// `first` is the index of the first neighbour along the axis, and `position_of` returns the position of an index in
/// the result. Neighbours beyond the edge are left out, unless the size of the axis is a multiple of 4: then the caller
/// must test the bounds of the vector.
pub fn write_vec4(
    scope: &mut KernelScope,
    group: &Group,
    result: ValueId,
    first: &Index,
    size: &Dim,
    vector: Expr,
    position_of: &dyn Fn(&Index) -> Position,
) -> Result<Vec<Statement>> {
    let neighbours = vec4::neighbours(&[first.div(&Dim::from(VEC4_LEN))], 0);
    let parts = vec4::for_each_neighbour(scope, neighbours, |scope, component, index| {
        let number = vec4::component(&mut scope.pool, vector, component, WgslType::F32);
        epilogue(scope, group.root, result, number, &position_of(&index[0]))
    })?;
    let is_whole = is_multiple_of_4(size);
    if is_whole && let Some(store) = vec4::store_vec4(scope, group.root, &parts)? {
        return Ok(vec![store]);
    }
    let mut statements = Vec::new();
    for (component, (number, position)) in parts.iter().enumerate() {
        let store = element::write(scope, group.root, *number, position)?;
        if is_whole {
            statements.push(store);
        } else {
            let index = first.add_size(&Dim::from(component));
            statements.extend(bounds_guard(scope, &index, size, vec![store]));
        }
    }
    Ok(statements)
}

/// Returns the position of an element of a batch of matrices.
fn matrix_position(batch: &[Index], i: &Index, j: &Index) -> Position {
    Position::from_coordinates([batch, &[i.clone(), j.clone()]].concat())
}

/// Returns the indices of the four elements of a vec4 along an axis, clamped to its size. The vec4 is clamped as a
/// whole if the size is a multiple of 4.
pub fn vec4_indices(scope: &mut KernelScope, vec4_index: &Index, size: &Dim) -> Vec<Index> {
    let vec4_len = Dim::from(VEC4_LEN);
    if is_multiple_of_4(size) {
        let vec4_index = clamped_index(scope, vec4_index, &size.floor_div(&vec4_len));
        return (0..VEC4_LEN)
            .map(|i| vec4_index.scale(&vec4_len).add_size(&Dim::from(i)))
            .collect();
    }
    (0..VEC4_LEN)
        .map(|i| {
            clamped_index(
                scope,
                &vec4_index.scale(&vec4_len).add_size(&Dim::from(i)),
                size,
            )
        })
        .collect()
}

/// The grid of tiles that cover a product, and the tile of the workgroup.
pub struct TileGrid {
    /// Number of tiles in all batch elements, which is the number of workgroups.
    pub count: Dim,
    /// Index of the workgroup.
    pub workgroup: Index,
    /// Statement that ends surplus workgroups.
    pub surplus: Statement,
    /// Batch coordinates.
    pub batch: Vec<Index>,
    /// Coordinates of the tile along both axes.
    pub tile: [Index; 2],
}

impl TileGrid {
    /// Covers each batch element with `tiles` along both axes; the second axis varies fastest.
    pub fn new(scope: &mut KernelScope, batch_shape: &[Dim], tiles: [Dim; 2]) -> TileGrid {
        let tiles = [batch_shape, &tiles].concat();
        let count = Dim::product(&tiles);
        let (workgroup, surplus) = invocation(scope, &count);
        let mut batch = index::delinearize(&workgroup, &tiles);
        let second = batch.pop().unwrap_or_else(Index::zero);
        let first = batch.pop().unwrap_or_else(Index::zero);
        TileGrid {
            count,
            workgroup,
            surplus,
            batch,
            tile: [first, second],
        }
    }
}

impl KernelScope<'_> {
    /// Follows views and casts from an element to the materialised value that it is read from. Returns that value and
    /// the element's index in its memory; `None` if the element is computed.
    pub fn resolve_views(
        &mut self,
        value: ValueId,
        position: &Position,
    ) -> Result<Option<(ValueId, Index)>> {
        let (mut value, mut position) = (value, position.clone());
        while let Definition::Node(node, _) = self.graph.value(value).definition
            && !self.materialized[value.index()]
        {
            let node = &self.graph.nodes[node];
            match &node.op {
                Op::Primitive(view) if is_plain_view(view) => {
                    (value, position) = self.view_source(view, node, value, &position, None)?;
                }
                Op::Primitive(Primitive::Cast(_)) => value = operand(node, 0)?,
                _ => return Ok(None),
            }
        }
        Ok(Some((value, self.element_index(value, &position))))
    }
}
