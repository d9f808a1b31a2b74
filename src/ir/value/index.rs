use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Error;
use crate::op::{Gather, Scatter, ScatterFunction};

use super::Value;

impl<'g> Value<'g> {
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
