use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::op::{Conv, ConvAxis, Dot};

use super::Value;

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
}
