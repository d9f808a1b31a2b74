use serde::{Deserialize, Serialize};

use super::gather::{check_index, for_each_position};
use super::{Operand, Rules, operands, values};
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// `torch.scatter` and `scatter_reduce`: the first operand with the third combined into it at the positions that the second
/// names along an axis. Later elements win for [`ScatterFunction::Set`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scatter {
    /// The axis that is indexed.
    pub axis: usize,
    /// How an element is combined with what stands there.
    pub function: ScatterFunction,
}

/// How scattered elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScatterFunction {
    /// The last one stays.
    Set,
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Larger; not-a-number if either is.
    Max,
    /// Smaller; not-a-number if either is.
    Min,
}

impl Rules for Scatter {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x, index, source] = values(found)?;
        check_index(symbols, self.axis, x, index)?;
        let complain = || format!("{source} does not scatter into {x} at {index}");
        if source.dtype != x.dtype || source.rank() != index.rank() {
            return Err(Error::operator(complain()));
        }
        for (left, right) in source.shape.iter().zip(&index.shape) {
            symbols.require_equal(left, right, complain)?;
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x, index, source] = operands::<_, 3>(found)?;
        let mut positions = Vec::with_capacity(index.numel());
        for_each_position(x.shape(), index, self.axis, |position| {
            positions.push(position)
        })?;
        let result = if x.dtype().is_float() {
            let data = combine(x.to_f64(), source.to_f64(), &positions, |x, y| {
                self.function.on_floats(x, y)
            });
            Tensor::from_f64(x.dtype(), x.shape(), data)?
        } else {
            let data = combine(x.to_i64(), source.to_i64(), &positions, |x, y| {
                self.function.on_integers(x, y)
            });
            Tensor::from_i64(x.dtype(), x.shape(), data)?
        };
        Ok(vec![result])
    }
}

fn combine<T: Copy>(
    mut data: Vec<T>,
    source: Vec<T>,
    positions: &[usize],
    function: impl Fn(T, T) -> T,
) -> Vec<T> {
    for (value, position) in source.into_iter().zip(positions) {
        data[*position] = function(data[*position], value);
    }
    data
}

impl ScatterFunction {
    fn on_floats(self, x: f64, y: f64) -> f64 {
        match self {
            ScatterFunction::Set => y,
            ScatterFunction::Add => x + y,
            ScatterFunction::Mul => x * y,
            ScatterFunction::Max => {
                if x.is_nan() || y.is_nan() {
                    f64::NAN
                } else {
                    x.max(y)
                }
            }
            ScatterFunction::Min => {
                if x.is_nan() || y.is_nan() {
                    f64::NAN
                } else {
                    x.min(y)
                }
            }
        }
    }

    fn on_integers(self, x: i64, y: i64) -> i64 {
        match self {
            ScatterFunction::Set => y,
            ScatterFunction::Add => x.wrapping_add(y),
            ScatterFunction::Mul => x.wrapping_mul(y),
            ScatterFunction::Max => x.max(y),
            ScatterFunction::Min => x.min(y),
        }
    }
}
