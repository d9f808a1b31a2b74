use serde::{Deserialize, Serialize};

use super::gather::{check_index, for_each_position};
use super::reduce::{HostCombiner, ReduceFunction};
use super::{Operand, Rules, operands, values};
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// `torch.scatter` and `scatter_reduce`: combines the third operand into the first, at the positions along an axis that the
/// second one holds. For [`ScatterFunction::Set`], later elements win.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scatter {
    /// The axis that is indexed.
    pub axis: usize,
    /// The function that combines an element with the old one.
    pub function: ScatterFunction,
}

/// The function of a scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScatterFunction {
    /// Replacement: the last element wins.
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

impl ScatterFunction {
    /// The reduction of an element with the old one; `None` for replacement.
    pub fn reduction(self) -> Option<ReduceFunction> {
        match self {
            ScatterFunction::Set => None,
            ScatterFunction::Add => Some(ReduceFunction::Sum),
            ScatterFunction::Mul => Some(ReduceFunction::Prod),
            ScatterFunction::Max => Some(ReduceFunction::Max),
            ScatterFunction::Min => Some(ReduceFunction::Min),
        }
    }

    fn host_combiner(self) -> HostCombiner {
        match self.reduction() {
            Some(reduction) => reduction.host_combiner(),
            None => HostCombiner::of(|_, y| y, |_, y| y),
        }
    }
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
        let HostCombiner { floats, integers } = self.function.host_combiner();
        let result = if x.dtype().is_float() {
            let data = combine(x.to_f64(), source.to_f64(), &positions, floats);
            Tensor::from_f64(x.dtype(), x.shape(), data)?
        } else {
            let data = combine(x.to_i64(), source.to_i64(), &positions, integers);
            Tensor::from_i64(x.dtype(), x.shape(), data)?
        };
        Ok(vec![result])
    }
}

fn combine<T: Copy>(
    mut data: Vec<T>,
    source: Vec<T>,
    positions: &[usize],
    function: fn(T, T) -> T,
) -> Vec<T> {
    for (value, position) in source.into_iter().zip(positions) {
        data[*position] = function(data[*position], value);
    }
    data
}
