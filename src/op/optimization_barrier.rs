use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, values};
use crate::dim::Bindings;
use crate::error::Result;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Returns its operand. Passes before [`remove_barriers`](crate::pass::remove_barriers) do not know that, so that values which
/// are computed again are not merged with the first ones; as `optimization_barrier` of StableHLO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationBarrier {}

impl Rules for OptimizationBarrier {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        Ok(vec![x.clone()])
    }

    fn shares_operand(&self) -> bool {
        true
    }

    fn workspace(&self, _: &[HostType], _: &[HostType]) -> u64 {
        0
    }
}
