use serde::{Deserialize, Serialize};

use super::{Operand, Rules, check_axis, operands, strided, values};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Running combination along an axis, each element included: `cumsum` and its relatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    /// How elements are combined.
    pub function: ScanFunction,
    /// The axis along which they are.
    pub axis: usize,
}

/// The running function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanFunction {
    /// Running sum.
    Sum,
    /// Running product.
    Prod,
    /// Running maximum; not-a-number from the first one on.
    Max,
    /// Running minimum; not-a-number from the first one on.
    Min,
    /// `log(Σ exp)`, computed without overflow; floats only.
    LogSumExp,
}

impl Rules for Scan {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        check_axis(self.axis, x.rank())?;
        let float_only = self.function == ScanFunction::LogSumExp;
        if x.dtype == DType::Bool || (float_only && !x.dtype.is_float()) {
            return Err(Error::operator(format!("is not defined for {}", x.dtype)));
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let around = strided::around(x.shape(), self.axis)?;
        let result = if x.dtype().is_float() {
            Tensor::from_f64(
                x.dtype(),
                x.shape(),
                run(x.to_f64(), around, |x, y| self.function.on_floats(x, y)),
            )?
        } else {
            Tensor::from_i64(
                x.dtype(),
                x.shape(),
                run(x.to_i64(), around, |x, y| self.function.on_integers(x, y)),
            )?
        };
        Ok(vec![result])
    }
}

fn run<T: Copy>(
    mut data: Vec<T>,
    (before, size, after): (usize, usize, usize),
    function: impl Fn(T, T) -> T,
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

impl ScanFunction {
    fn on_floats(self, x: f64, y: f64) -> f64 {
        match self {
            ScanFunction::Sum => x + y,
            ScanFunction::Prod => x * y,
            ScanFunction::Max => {
                if x.is_nan() || y.is_nan() {
                    f64::NAN
                } else {
                    x.max(y)
                }
            }
            ScanFunction::Min => {
                if x.is_nan() || y.is_nan() {
                    f64::NAN
                } else {
                    x.min(y)
                }
            }
            ScanFunction::LogSumExp => log_add_exp(x, y),
        }
    }

    fn on_integers(self, x: i64, y: i64) -> i64 {
        match self {
            ScanFunction::Sum | ScanFunction::LogSumExp => x.wrapping_add(y),
            ScanFunction::Prod => x.wrapping_mul(y),
            ScanFunction::Max => x.max(y),
            ScanFunction::Min => x.min(y),
        }
    }
}

fn log_add_exp(x: f64, y: f64) -> f64 {
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    if high.is_infinite() || low.is_nan() || high.is_nan() {
        x.max(y)
            + if x.is_nan() || y.is_nan() {
                f64::NAN
            } else {
                0.0
            }
    } else {
        high + (low - high).exp().ln_1p()
    }
}
