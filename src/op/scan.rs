use serde::{Deserialize, Serialize};

use super::binary::maximum;
use super::reduce::{HostCombiner, ReduceFunction};
use super::table::undefined;
use super::{Operand, Rules, check_axis, operands, strided, values};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Cumulative reduction along an axis, each element included: `cumsum` and its relatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    /// The cumulative function.
    pub function: ScanFunction,
    /// The axis of the scan.
    pub axis: usize,
}

/// The function of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanFunction {
    /// Running sum.
    Sum,
    /// Running product.
    Prod,
    /// Running maximum; not-a-number from the first not-a-number on.
    Max,
    /// Running minimum; not-a-number from the first not-a-number on.
    Min,
    /// `log(Σ exp)`, computed without overflow; floats only.
    LogSumExp,
}

impl ScanFunction {
    /// The reduction whose partial results the scan returns; `None` for `log(Σ exp)`.
    pub fn reduction(self) -> Option<ReduceFunction> {
        match self {
            ScanFunction::Sum => Some(ReduceFunction::Sum),
            ScanFunction::Prod => Some(ReduceFunction::Prod),
            ScanFunction::Max => Some(ReduceFunction::Max),
            ScanFunction::Min => Some(ReduceFunction::Min),
            ScanFunction::LogSumExp => None,
        }
    }

    fn host_combiner(self) -> HostCombiner {
        match self.reduction() {
            Some(reduction) => reduction.host_combiner(),
            None => HostCombiner::of(log_add_exp, i64::wrapping_add),
        }
    }
}

impl Rules for Scan {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        check_axis(self.axis, x.rank())?;
        let float_only = self.function == ScanFunction::LogSumExp;
        if x.dtype == DType::Bool || (float_only && !x.dtype.is_float()) {
            return Err(undefined(&format!("{:?}", self.function), x.dtype));
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let (before, size, after) = strided::split_at_axis(x.shape(), self.axis)?;
        let HostCombiner { floats, integers } = self.function.host_combiner();
        let result = if x.dtype().is_float() {
            Tensor::from_f64(
                x.dtype(),
                x.shape(),
                run(x.to_f64(), before, size, after, floats),
            )?
        } else {
            Tensor::from_i64(
                x.dtype(),
                x.shape(),
                run(x.to_i64(), before, size, after, integers),
            )?
        };
        Ok(vec![result])
    }
}

fn run<T: Copy>(
    mut data: Vec<T>,
    before: usize,
    size: usize,
    after: usize,
    function: fn(T, T) -> T,
) -> Vec<T> {
    for row in 0..before {
        for index in 1..size {
            for column in 0..after {
                let here = (row * size + index) * after + column;
                data[here] = function(data[here - after], data[here]);
            }
        }
    }
    data
}

fn log_add_exp(x: f64, y: f64) -> f64 {
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    if high.is_infinite() || low.is_nan() || high.is_nan() {
        maximum(x, y)
    } else {
        high + (low - high).exp().ln_1p()
    }
}
