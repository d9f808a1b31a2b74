use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Check, Conv, ConvAxis, Dot, Gather, Requirement, Scatter, ScatterFunction};

use super::Value;
use crate::ir::Argument;

impl<'g> Value<'g> {
    /// Matrix product with equal batch axes.
    pub fn dot(self, other: Value<'g>) -> Value<'g> {
        self.builder.apply(Dot {}, vec![self.into(), other.into()])
    }

    /// `torch.matmul`: vectors are converted to matrices, and batch axes broadcast.
    pub fn matmul(self, other: Value<'g>) -> Value<'g> {
        self.try_matmul(other)
            .unwrap_or_else(|error| self.failed(error))
    }

    fn try_matmul(self, other: Value<'g>) -> Result<Value<'g>> {
        self.builder.check()?;
        if self.rank() == 0 || other.rank() == 0 {
            return Err(Error::operator(format!(
                "matmul of {} and {}",
                self.ty(),
                other.ty()
            )));
        }
        let (is_row, is_column) = (self.rank() == 1, other.rank() == 1);
        let left = if is_row { self.unsqueeze(0) } else { self };
        let right = if is_column { other.unsqueeze(1) } else { other };
        let product = left.batched_dot(right)?;
        self.builder.check()?;
        let added = [is_row.then_some(-2), is_column.then_some(-1)];
        Ok(product.squeeze(&added.into_iter().flatten().collect::<Vec<i64>>()))
    }

    /// Folds batch axes that only the left operand has into its rows, so that one matrix product remains.
    fn batched_dot(self, other: Value<'g>) -> Result<Value<'g>> {
        let (left, right) = (self.shape(), other.shape());
        let (Some((batch_left, [rows, inner])), Some((batch_right, [height, columns]))) =
            (left.split_last_chunk(), right.split_last_chunk())
        else {
            return Err(Error::operator("matmul of scalars"));
        };
        if batch_right.is_empty() {
            let flat = self
                .reshape(vec![&Dim::product(batch_left) * rows, inner.clone()])
                .dot(other);
            return Ok(flat.reshape([batch_left, &[rows.clone(), columns.clone()]].concat()));
        }
        let batch = self
            .builder
            .symbols()
            .broadcast_shapes(&[batch_left.to_vec(), batch_right.to_vec()])?;
        let sized = |matrix: [&Dim; 2]| [batch.as_slice(), &matrix.map(Dim::clone)].concat();
        let left = self.expand(sized([rows, inner]));
        Ok(left.dot(other.expand(sized([height, columns]))))
    }

    /// Convolution with a filter; see [`Conv`].
    pub fn conv(self, filter: Value<'g>, axes: Vec<ConvAxis>, groups: i64) -> Value<'g> {
        self.builder
            .apply(Conv { axes, groups }, vec![self.into(), filter.into()])
    }

    /// `torch.gather` along an axis; see [`Gather`].
    pub fn gather(self, dim: i64, index: Value<'g>) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        self.builder
            .apply(Gather { axis }, vec![self.into(), index.into()])
    }

    /// Slices along an axis by a vector of indices: `torch.index_select`.
    pub fn index_select(self, dim: i64, index: Value<'g>) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        let (mut shape, mut lined_up) = (self.shape(), vec![Dim::ONE; self.rank()]);
        let (Some(size), Some(place)) = (shape.get_mut(axis), lined_up.get_mut(axis)) else {
            return self.failed(Error::operator("cannot index a scalar"));
        };
        *size = index.numel();
        *place = index.numel();
        self.gather(dim, index.reshape(lined_up).expand(shape))
    }

    /// `torch.scatter` along an axis; see [`Scatter`].
    pub fn scatter(
        self,
        dim: i64,
        index: Value<'g>,
        source: Value<'g>,
        function: ScatterFunction,
    ) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        let source = source.to(self.dtype());
        self.builder.apply(
            Scatter { axis, function },
            vec![self.into(), index.into(), source.into()],
        )
    }

    /// The value, checked to have integers in `low..end`; see [`Check`] for the message.
    pub fn check_in_range(self, low: Dim, end: &Dim, message: impl Into<String>) -> Value<'g> {
        let bounds = [low.into(), end.clone().into()];
        self.check(Requirement::Within, &bounds, message.into())
    }

    /// The value, checked to have no integer zeros.
    pub fn check_nonzero(self, message: impl Into<String>) -> Value<'g> {
        self.check(Requirement::Nonzero, &[], message.into())
    }

    /// The value, asserted to be true.
    pub fn check_true(self, message: impl Into<String>) -> Value<'g> {
        self.to_bool()
            .check(Requirement::Holds, &[], message.into())
    }

    fn check(self, require: Requirement, bounds: &[Argument], message: String) -> Value<'g> {
        let arguments = [&[self.into()], bounds].concat();
        self.builder.apply(Check { require, message }, arguments)
    }

    /// Indices `0..size` of an axis, shaped so that they broadcast against the value.
    pub fn positions(self, dim: i64) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        let mut shape = vec![Dim::ONE; self.rank().max(1)];
        if let Some(size) = shape.get_mut(axis) {
            *size = self.size(dim);
        }
        self.builder.iota(DType::I64, shape, axis)
    }
}
