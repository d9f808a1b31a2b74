//! Batches of matrices in the last two dimensions, `[.., rows, columns]`.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

/// Largest number of rows or columns: the unrolled graph of a larger matrix would have too many nodes.
const MAX_SIZE: i64 = 128;

/// A batch of matrices: a float tensor `[.., rows, columns]` whose last two sizes are known numbers.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'g> {
    /// The tensor, of rank 2 or more.
    pub value: Value<'g>,
    /// Size of the second to last dimension.
    pub rows: i64,
    /// Size of the last dimension.
    pub columns: i64,
}

impl<'g> Matrix<'g> {
    /// Specialises the last two sizes of a float tensor. Fails for other tensors, and above [`MAX_SIZE`].
    pub fn new(value: Value<'g>) -> Result<Matrix<'g>> {
        let builder = value.builder();
        builder.check()?;
        if value.rank() < 2 || !value.dtype().is_float() {
            return Err(Error::operator(format!(
                "expected a matrix of floats, found {}",
                value.ty()
            )));
        }
        let (rows, columns) = (value.size(-2), value.size(-1));
        let (rows, columns) = (
            builder.symbols().specialize(&rows)?,
            builder.symbols().specialize(&columns)?,
        );
        if MAX_SIZE < rows.max(columns) {
            return Err(Error::unsupported(format!(
                "factorizations of matrices larger than {MAX_SIZE}, such as {}",
                value.ty()
            )));
        }
        Ok(Matrix {
            value,
            rows,
            columns,
        })
    }

    /// [`Matrix::new`] for a matrix that must be square.
    pub fn square(value: Value<'g>) -> Result<Matrix<'g>> {
        let matrix = Matrix::new(value)?;
        if matrix.rows == matrix.columns {
            Ok(matrix)
        } else {
            Err(Error::operator(format!("{} is not square", value.ty())))
        }
    }

    /// Number of elimination steps: the smaller of rows and columns.
    pub fn steps(&self) -> i64 {
        self.rows.min(self.columns)
    }

    /// Sizes of the dimensions before the last two.
    pub fn batch(&self) -> Vec<Dim> {
        let mut shape = self.value.shape();
        shape.truncate(shape.len().saturating_sub(2));
        shape
    }

    /// Row indices, `[rows, 1]`.
    pub fn row_indices(&self) -> Value<'g> {
        let shape = vec![Dim::from(self.rows), Dim::ONE];
        self.value.builder().iota(DType::I64, shape, 0)
    }

    /// Column indices, `[1, columns]`.
    pub fn column_indices(&self) -> Value<'g> {
        let shape = vec![Dim::ONE, Dim::from(self.columns)];
        self.value.builder().iota(DType::I64, shape, 1)
    }

    /// The element at a row and a column, `[.., 1, 1]`.
    pub fn element(&self, row: i64, column: i64) -> Value<'g> {
        self.value.narrow(-2, row, 1).narrow(-1, column, 1)
    }

    /// Replaces the tensor by another one of the same shape.
    pub fn with_value(&self, value: Value<'g>) -> Matrix<'g> {
        Matrix { value, ..*self }
    }

    /// The elements on the diagonal, `[.., steps]`.
    pub fn diagonal(&self) -> Value<'g> {
        let shape = [self.batch(), vec![Dim::ONE, Dim::from(self.steps())]].concat();
        let index =
            self.value
                .builder()
                .iota(DType::I64, shape, self.value.rank().saturating_sub(1));
        let leading_columns = self.value.narrow(-1, 0, self.steps());
        leading_columns.gather(-2, index).squeeze(&[-2])
    }

    /// Mask `[rows, columns]` that is true on and below the diagonal; with `upper`, on and above it.
    pub fn in_triangle(&self, upper: bool) -> Value<'g> {
        let (row_index, column_index) = (self.row_indices(), self.column_indices());
        if upper {
            row_index.le(column_index)
        } else {
            column_index.le(row_index)
        }
    }

    /// The matrix with zeros above the diagonal; with `upper`, below it.
    pub fn triangle(&self, upper: bool) -> Value<'g> {
        self.in_triangle(upper).where_(self.value, 0.0)
    }

    /// Exchanges rows and columns.
    pub fn transposed(&self) -> Matrix<'g> {
        Matrix {
            value: self.value.transpose(-1, -2),
            rows: self.columns,
            columns: self.rows,
        }
    }

    /// An identity matrix `[.., rows, columns]` with the batch sizes and the dtype of this matrix.
    pub fn identity(&self, rows: i64, columns: i64) -> Matrix<'g> {
        let template = Matrix {
            rows,
            columns,
            ..*self
        };
        let builder = self.value.builder();
        let sizes = [self.batch(), vec![Dim::from(rows), Dim::from(columns)]].concat();
        let zeros = builder.full(self.value.dtype(), sizes, 0.0);
        template.with_value(
            template
                .row_indices()
                .eq(template.column_indices())
                .where_(1.0, zeros),
        )
    }
}
