use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::binary::{maximum, minimum};
use super::sort::SortKeys;
use super::table::undefined;
use super::{Operand, Rules, check_axis, operands, strided, values};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

/// Reduces axes, which disappear. Sums and products of `f16` and `bf16` accumulate in `f32`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// The reduction.
    pub function: ReduceFunction,
    /// The axes to reduce, in ascending order.
    pub axes: Vec<usize>,
}

/// An associative function. The result for no elements comes after the semicolon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReduceFunction {
    /// Sum; 0. Not for `bool`.
    Sum,
    /// Product; 1. Not for `bool`.
    Prod,
    /// Largest element, or not-a-number if there is one; lowest value of the dtype. For `bool`: any.
    Max,
    /// Smallest element, or not-a-number if there is one; highest value of the dtype. For `bool`: all.
    Min,
}

/// The index of an extreme element along an axis, which disappears. Returns the first of equals; not-a-number wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgReduce {
    /// The extreme.
    pub function: ArgReduceFunction,
    /// The axis to reduce; not empty.
    pub axis: usize,
}

/// The extreme whose index is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgReduceFunction {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl ReduceFunction {
    /// The result for no elements, as a float.
    pub fn identity(self, dtype: DType) -> f64 {
        let (low, high) = match dtype.integer_range() {
            Some((low, high)) => (low as f64, high as f64),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        };
        match self {
            ReduceFunction::Sum => 0.0,
            ReduceFunction::Prod => 1.0,
            ReduceFunction::Max => low,
            ReduceFunction::Min => high,
        }
    }

    /// The result for no elements of an integer dtype.
    pub fn identity_integer(self, dtype: DType) -> i64 {
        let (low, high) = dtype.integer_range().unwrap_or((0, 0));
        match self {
            ReduceFunction::Sum => 0,
            ReduceFunction::Prod => 1,
            ReduceFunction::Max => low,
            ReduceFunction::Min => high,
        }
    }

    pub(super) fn host_combiner(self) -> HostCombiner {
        match self {
            ReduceFunction::Sum => HostCombiner::of(|x, y| x + y, i64::wrapping_add),
            ReduceFunction::Prod => HostCombiner::of(|x, y| x * y, i64::wrapping_mul),
            ReduceFunction::Max => HostCombiner::of(maximum, i64::max),
            ReduceFunction::Min => HostCombiner::of(minimum, i64::min),
        }
    }
}

/// Host functions of two elements, which reductions, scans and scatters share.
pub(super) struct HostCombiner {
    pub(super) floats: fn(f64, f64) -> f64,
    pub(super) integers: fn(i64, i64) -> i64,
}

impl HostCombiner {
    pub(super) fn of(floats: fn(f64, f64) -> f64, integers: fn(i64, i64) -> i64) -> HostCombiner {
        HostCombiner { floats, integers }
    }
}

impl Rules for Reduce {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        if !self.axes.is_sorted_by(|a, b| a < b)
            || self.axes.last().is_some_and(|axis| *axis >= x.rank())
        {
            return Err(Error::operator(format!(
                "axes {:?} of {x} must be in range and in ascending order",
                self.axes
            )));
        }
        let adds = matches!(self.function, ReduceFunction::Sum | ReduceFunction::Prod);
        if adds && x.dtype == DType::Bool {
            return Err(undefined(&format!("{:?}", self.function), x.dtype));
        }
        let kept = x
            .shape
            .iter()
            .enumerate()
            .filter(|(axis, _)| !self.axes.contains(axis));
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape: kept.map(|(_, size)| size.clone()).collect(),
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let kept: Vec<usize> = (0..x.shape().len())
            .filter(|axis| !self.axes.contains(axis))
            .collect();
        let shape: Vec<usize> = kept.iter().map(|axis| x.shape()[*axis]).collect();
        // The result's strides in terms of the operand's axes: reduced axes have stride 0.
        let mut strides = vec![0i64; x.shape().len()];
        for (axis, stride) in kept.iter().zip(strided::strides(&shape)) {
            strides[*axis] = stride;
        }
        let numel = numel(&shape)?;
        let HostCombiner { floats, integers } = self.function.host_combiner();
        let result = if x.dtype().is_float() {
            let start = vec![self.function.identity(x.dtype()); numel];
            let folded = fold(x.shape(), &strides, x.to_f64(), start, floats)?;
            Tensor::from_f64(x.dtype(), shape, folded)?
        } else {
            let start = vec![self.function.identity_integer(x.dtype()); numel];
            let folded = fold(x.shape(), &strides, x.to_i64(), start, integers)?;
            Tensor::from_i64(x.dtype(), shape, folded)?
        };
        Ok(vec![result])
    }
}

/// Reduces the elements of a shape into those of a result, which strides address.
fn fold<T: Copy>(
    shape: &[usize],
    strides: &[i64],
    data: Vec<T>,
    mut out: Vec<T>,
    function: fn(T, T) -> T,
) -> Result<Vec<T>> {
    let mut data = data.as_slice();
    strided::for_each_line(shape, strides, 0, |offset, length, step| {
        let (line, rest) = data.split_at(length.min(data.len()));
        data = rest;
        let slots = out.get_mut(offset as usize..).unwrap_or_default();
        match (slots.first_mut(), step) {
            (Some(slot), 0) => *slot = line.iter().fold(*slot, |x, y| function(x, *y)),
            _ => {
                for (slot, value) in slots.iter_mut().step_by(step.max(1) as usize).zip(line) {
                    *slot = function(*slot, *value);
                }
            }
        }
        Ok(())
    })?;
    Ok(out)
}

impl Rules for ArgReduce {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        check_axis(self.axis, x.rank())?;
        let mut shape = x.shape.clone();
        if !symbols.positive(&shape.remove(self.axis))? {
            return Err(Error::operator(format!(
                "axis {} of {x} is empty",
                self.axis
            )));
        }
        Ok(vec![TensorType {
            dtype: DType::I64,
            shape,
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let (before, size, after) = strided::split_at_axis(x.shape(), self.axis)?;
        let keys = SortKeys::of(x);
        let better = |x: usize, y: usize| match self.function {
            ArgReduceFunction::Max => keys.compare(x, y) == Ordering::Greater,
            ArgReduceFunction::Min if keys.is_nan(y) => false,
            ArgReduceFunction::Min => keys.is_nan(x) || keys.compare(x, y) == Ordering::Less,
        };
        let best = |row: usize, column: usize| {
            let at = |index: usize| (row * size + index) * after + column;
            (1..size).fold(0, |best, index| {
                if better(at(index), at(best)) {
                    index
                } else {
                    best
                }
            })
        };
        let mut out = Vec::with_capacity(before * after);
        for row in 0..before {
            out.extend((0..after).map(|column| best(row, column) as i64));
        }
        let mut shape = x.shape().to_vec();
        shape.remove(self.axis);
        Ok(vec![Tensor::from_vec(shape, out)?])
    }
}
