use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{ArgReduce, ArgReduceFunction, Reduce, ReduceFunction, Scan, ScanFunction, Sort};
use crate::shape::{Shape, wrap_dim};

use super::Value;

impl<'g> Value<'g> {
    /// Reduces along axes; no axes means all of them. Sums and products do not accept `bool`.
    pub fn reduce(self, function: ReduceFunction, dims: &[i64], keepdim: bool) -> Value<'g> {
        let mut axes: Vec<usize> = if dims.is_empty() {
            (0..self.rank()).collect()
        } else {
            dims.iter()
                .filter_map(|dim| self.axis(*dim))
                .filter(|axis| *axis < self.rank())
                .collect()
        };
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair.first() == pair.last()) {
            return self.failed(Error::operator(format!(
                "an axis appears twice in {dims:?}"
            )));
        }
        let reduced = if axes.is_empty() {
            self
        } else {
            self.unary(Reduce {
                function,
                axes: axes.clone(),
            })
        };
        if keepdim {
            reduced.restore_axes(self.shape(), &axes)
        } else {
            reduced
        }
    }

    /// Gives a value that was reduced along axes of a shape (all if none are given) these axes again, with size 1.
    pub(crate) fn restore_dims(self, original: Shape, dims: &[i64]) -> Value<'g> {
        let axes: Vec<usize> = match dims {
            [] => (0..original.len()).collect(),
            dims => dims
                .iter()
                .filter_map(|dim| wrap_dim(*dim, original.len()).ok())
                .collect(),
        };
        self.restore_axes(original, &axes)
    }

    /// [`Value::restore_dims`] by axes, of which none is negative. No axes are none, not all.
    pub(crate) fn restore_axes(self, original: Shape, axes: &[usize]) -> Value<'g> {
        let shape = original.into_iter().enumerate();
        let shape = shape.map(|(axis, size)| if axes.contains(&axis) { Dim::ONE } else { size });
        self.reshape(shape.collect::<Shape>())
    }

    /// Sum along axes (all if none are given); integers and `bool` sum as `i64`.
    pub fn sum(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        self.to(self.dtype().to_sum())
            .reduce(ReduceFunction::Sum, dims, keepdim)
    }

    /// The sum over the axes along which a shape was broadcast to this value's: `Tensor.sum_to_size`.
    pub fn sum_to(self, shape: &Shape) -> Value<'g> {
        let wide = self.shape();
        let new = wide.len().saturating_sub(shape.len());
        let is_repeated = |(axis, wide): (usize, &Dim)| match axis.checked_sub(new) {
            Some(axis) => shape.get(axis).is_some_and(|size| size.is(1)) && !wide.is(1),
            None => true,
        };
        let axes = wide.iter().enumerate();
        let axes = axes.filter(|axis| is_repeated(*axis));
        let axes: Vec<i64> = axes.map(|(axis, _)| axis as i64).collect();
        let sum = match axes.as_slice() {
            [] => self,
            axes => self.sum(axes, true),
        };
        sum.reshape(shape.clone())
    }

    /// Product along axes; integers and `bool` multiply as `i64`.
    pub fn prod(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        self.to(self.dtype().to_sum())
            .reduce(ReduceFunction::Prod, dims, keepdim)
    }

    /// Largest element along axes.
    pub fn amax(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        self.reduce(ReduceFunction::Max, dims, keepdim)
    }

    /// Smallest element along axes.
    pub fn amin(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        self.reduce(ReduceFunction::Min, dims, keepdim)
    }

    /// Whether any element is true (not zero).
    pub fn any(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        self.to_bool().reduce(ReduceFunction::Max, dims, keepdim)
    }

    /// Whether all elements are true (not zero).
    pub fn all(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        self.to_bool().reduce(ReduceFunction::Min, dims, keepdim)
    }

    /// Number of elements that a reduction along the axes combines.
    pub fn count(self, dims: &[i64]) -> Dim {
        if dims.is_empty() {
            self.numel()
        } else {
            Dim::product(&dims.iter().map(|dim| self.size(*dim)).collect::<Vec<_>>())
        }
    }

    /// Whether there are elements along the axes. An answer that depends on symbols is recorded as a guard.
    pub fn has_elements(self, dims: &[i64]) -> Result<bool> {
        self.builder.symbols().positive(&self.count(dims))
    }

    /// Mean along axes; half precision sums in `f32`.
    pub fn mean(self, dims: &[i64], keepdim: bool) -> Value<'g> {
        let dtype = self.dtype();
        let wide = self.to_compute();
        (wide.sum(dims, keepdim) / self.count(dims)).to(dtype)
    }

    /// The value in the dtype in which PyTorch's CPU kernels accumulate: half precision as `f32`, others unchanged.
    pub fn to_compute(self) -> Value<'g> {
        self.to(self.dtype().to_compute())
    }

    /// Variance along axes with a correction of the divisor (1 for the unbiased estimate).
    pub fn var(self, dims: &[i64], correction: f64, keepdim: bool) -> Value<'g> {
        let dtype = self.dtype();
        let wide = self.to_compute();
        let centred = wide - wide.mean(dims, true);
        let divisor = (wide.numel_along(dims) - correction).maximum(0.0);
        ((centred * centred).sum(dims, keepdim) / divisor).to(dtype)
    }

    /// The number of elements along axes (all if none are given), as a scalar.
    pub(crate) fn numel_along(self, dims: &[i64]) -> Value<'g> {
        let count = self.count(dims);
        self.builder.full(self.dtype(), Shape::new(), count)
    }

    /// Index of the largest element along an axis.
    pub fn argmax(self, dim: i64, keepdim: bool) -> Value<'g> {
        self.arg_reduce(ArgReduceFunction::Max, dim, keepdim)
    }

    /// Index of the smallest element along an axis.
    pub fn argmin(self, dim: i64, keepdim: bool) -> Value<'g> {
        self.arg_reduce(ArgReduceFunction::Min, dim, keepdim)
    }

    fn arg_reduce(self, function: ArgReduceFunction, dim: i64, keepdim: bool) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        if self.rank() == 0 {
            return self.builder.full(DType::I64, Shape::new(), 0);
        }
        let index = self.unary(ArgReduce { function, axis });
        if keepdim {
            index.restore_axes(self.shape(), &[axis])
        } else {
            index
        }
    }

    /// Cumulative reduction along an axis.
    pub fn scan(self, function: ScanFunction, dim: i64) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        if self.rank() == 0 {
            self
        } else {
            self.unary(Scan { function, axis })
        }
    }

    /// Sorted values and their indices along an axis.
    pub fn sort(self, dim: i64, descending: bool) -> (Value<'g>, Value<'g>) {
        self.sort_first(dim, descending, None)
    }

    /// The `k` largest or smallest values along an axis in sorted order, and their indices.
    pub fn topk(self, k: usize, dim: i64, largest: bool) -> (Value<'g>, Value<'g>) {
        self.sort_first(dim, largest, Some(k))
    }

    fn sort_first(self, dim: i64, descending: bool, k: Option<usize>) -> (Value<'g>, Value<'g>) {
        let Some(axis) = self.axis(dim) else {
            return (self, self);
        };
        if self.rank() == 0 {
            return (self, self.builder.full(DType::I64, Shape::new(), 0));
        }
        let sort = Sort {
            axis,
            descending,
            k,
        };
        let results = self.builder.apply_many(sort, vec![self.into()]);
        match results.as_slice() {
            [values, indices] => (*values, *indices),
            _ => (self.builder.poison(), self.builder.poison()),
        }
    }

    /// Softmax along an axis in the value's dtype; half precision computes in `f32`.
    pub fn softmax(self, dim: i64) -> Value<'g> {
        let wide = self.to_compute();
        let shifted = (wide - wide.amax(&[dim], true)).exp();
        (shifted / shifted.sum(&[dim], true)).to(self.dtype())
    }
}
