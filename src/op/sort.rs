use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{Operand, Rules, check_axis, operands, strided, values};
use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Sorts along an axis, stably; not-a-number counts as the largest. Results: the sorted values and their `i64` indices,
/// limited to the first `k` of each row if `k` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sort {
    /// The axis to sort along.
    pub axis: usize,
    /// Largest first.
    pub descending: bool,
    /// Number of leading elements to return; rows must have at least that many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<usize>,
}

impl Rules for Sort {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        check_axis(self.axis, x.rank())?;
        let mut shape = x.shape.clone();
        if let Some(k) = self.k.map(Dim::from) {
            if !symbols.less_equal(&k, &shape[self.axis])? {
                let axis = self.axis;
                return Err(Error::operator(format!(
                    "k = {k} exceeds the size of axis {axis} of {x}"
                )));
            }
            shape[self.axis] = k;
        }
        let of = |dtype| TensorType {
            dtype,
            shape: shape.clone(),
        };
        Ok(vec![of(x.dtype), of(DType::I64)])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let (before, size, after) = strided::split_at_axis(x.shape(), self.axis)?;
        let keys = SortKeys::of(x);
        let k = self.k.unwrap_or(size).min(size);
        let mut indices = vec![0i64; before * k * after];
        for row in 0..before {
            for column in 0..after {
                let at = |index: usize| (row * size + index) * after + column;
                let mut order: Vec<usize> = (0..size).collect();
                order.sort_by(|a, b| {
                    let ordering = keys.compare(at(*a), at(*b));
                    if self.descending {
                        ordering.reverse()
                    } else {
                        ordering
                    }
                });
                for (rank, index) in order.into_iter().take(k).enumerate() {
                    indices[(row * k + rank) * after + column] = index as i64;
                }
            }
        }
        let mut shape = x.shape().to_vec();
        shape[self.axis] = k;
        let indices = Tensor::from_vec(shape, indices)?;
        let gather = super::Gather { axis: self.axis };
        let mut results = gather.eval(&[x.clone(), indices.clone()], &Bindings::new())?;
        results.push(indices);
        Ok(results)
    }
}

/// Sort keys: floats in PyTorch's order, integers exactly.
pub(super) enum SortKeys {
    Float(Vec<f64>),
    Integer(Vec<i64>),
}

impl SortKeys {
    pub(super) fn of(x: &Tensor) -> SortKeys {
        if x.dtype().is_float() {
            SortKeys::Float(x.to_f64())
        } else {
            SortKeys::Integer(x.to_i64())
        }
    }

    pub(super) fn compare(&self, a: usize, b: usize) -> Ordering {
        match self {
            SortKeys::Float(keys) => {
                let (x, y) = (keys[a], keys[b]);
                x.partial_cmp(&y)
                    .unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
            }
            SortKeys::Integer(keys) => keys[a].cmp(&keys[b]),
        }
    }

    pub(super) fn is_nan(&self, index: usize) -> bool {
        match self {
            SortKeys::Float(keys) => keys[index].is_nan(),
            SortKeys::Integer(_) => false,
        }
    }
}
