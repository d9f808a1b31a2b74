use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};
use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, values, workspace};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

/// Matrix product of the last two axes, `[.., M, K] × [.., K, N] -> [.., M, N]`; the leading axes must be equal.
/// `f16` and `bf16` accumulate in `f32`; integers wrap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dot {}

impl Rules for Dot {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [a, b] = values(found)?;
        let complain = || format!("{a} and {b} do not multiply as matrices");
        let ([batch_a @ .., m, inner_a], [batch_b @ .., inner_b, n]) =
            (a.shape.as_slice(), b.shape.as_slice())
        else {
            return Err(Error::operator(complain()));
        };
        if a.dtype != b.dtype {
            let (left, right) = (a.dtype, b.dtype);
            let message = format!("{left} and {right} do not multiply");
            return Err(Error::operator(message).help("convert one of the matrices by `to`"));
        }
        if a.dtype == DType::Bool {
            return Err(Error::operator("matrices of bool do not multiply"));
        }
        if a.rank() != b.rank() {
            return Err(Error::operator(complain()));
        }
        for (left, right) in batch_a.iter().zip(batch_b).chain([(inner_a, inner_b)]) {
            symbols.require_equal(left, right, complain)?;
        }
        Ok(vec![TensorType {
            dtype: a.dtype,
            shape: batch_a.iter().chain([m, n]).cloned().collect(),
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [a, b] = operands::<_, 2>(found)?;
        let ([batch @ .., m, k], [.., n]) = (a.shape(), b.shape()) else {
            return Err(Error::internal("operands of dot have too few axes"));
        };
        let shape: Vec<usize> = batch.iter().chain([m, n]).copied().collect();
        numel(&shape)?;
        let size = GemmSize {
            batch: batch.iter().product(),
            m: *m,
            k: *k,
            n: *n,
        };
        let result = match a.dtype() {
            DType::F64 => Tensor::from_vec(shape, product(&a.to_f64(), &b.to_f64(), size))?,
            dtype if dtype.is_float() => {
                let product = product(&a.to_f32(), &b.to_f32(), size);
                Tensor::from_vec(shape, product)?.cast(dtype)?
            }
            dtype => Tensor::from_i64(dtype, shape, product_i64(&a.to_i64(), &b.to_i64(), size))?,
        };
        Ok(vec![result])
    }

    fn workspace(&self, operands: &[HostType], results: &[HostType]) -> u64 {
        workspace::product(operands, results)
    }
}

/// Sizes of a batch of matrix products.
#[derive(Clone, Copy)]
pub(super) struct GemmSize {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

/// Products of row-major matrices by `ndarray`'s GEMM; an operand of the wrong length gives zeros.
pub(super) fn product<T: LinalgScalar>(a: &[T], b: &[T], size: GemmSize) -> Vec<T> {
    let GemmSize { batch, m, k, n } = size;
    let mut out = vec![T::zero(); batch * m * n];
    if out.is_empty() || k == 0 {
        return out;
    }
    let operands = a.chunks_exact(m * k).zip(b.chunks_exact(k * n));
    for (c, (a, b)) in out.chunks_exact_mut(m * n).zip(operands) {
        let views = (
            ArrayView2::from_shape((m, k), a),
            ArrayView2::from_shape((k, n), b),
        );
        if let ((Ok(a), Ok(b)), Ok(mut c)) = (views, ArrayViewMut2::from_shape((m, n), c)) {
            general_mat_mul(T::one(), &a, &b, T::zero(), &mut c);
        }
    }
    out
}

fn product_i64(a: &[i64], b: &[i64], size: GemmSize) -> Vec<i64> {
    let GemmSize { batch, m, k, n } = size;
    let mut out = vec![0i64; batch * m * n];
    for (index, slot) in out.iter_mut().enumerate() {
        let (matrix, row, column) = (index / (m * n), index / n % m, index % n);
        *slot = (0..k).fold(0i64, |sum, inner| {
            let left = a[(matrix * m + row) * k + inner];
            let right = b[(matrix * k + inner) * n + column];
            sum.wrapping_add(left.wrapping_mul(right))
        });
    }
    out
}
