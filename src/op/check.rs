use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Returns the first operand unchanged. A run ends with an error if an element violates the requirement.
///
/// A requirement on a number is checked where the number is computed, and not at all if nothing reads it.
/// [`Requirement::Holds`] is for the user's own assertions: it is checked even if nothing reads its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The condition that every element must satisfy.
    pub require: Requirement,
    /// The error message. For numbers, `{value}` stands for the element and `{size}` for the end of the range.
    pub message: String,
}

/// The condition on elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// A `bool` is true.
    Holds,
    /// An integer is not zero.
    Nonzero,
    /// An integer is at least the second operand and less than the third, which are numbers or sizes.
    Within,
}

impl Check {
    /// True for an assertion of the user's, which is checked even if nothing reads its result.
    pub fn is_assertion(&self) -> bool {
        self.require == Requirement::Holds
    }

    /// The error for an element; `end` is the end of the allowed range.
    pub fn fault(&self, element: i64, end: Option<i64>) -> Error {
        match self.require {
            Requirement::Holds => Error::new(
                ErrorKind::Raised,
                format!("the model raises {:?}", self.message),
            ),
            _ => Error::raised(&self.message, element, end),
        }
    }
}

impl Requirement {
    fn operands(self) -> usize {
        match self {
            Requirement::Holds | Requirement::Nonzero => 1,
            Requirement::Within => 3,
        }
    }

    fn takes(self, dtype: DType) -> bool {
        match self {
            Requirement::Holds => dtype == DType::Bool,
            Requirement::Nonzero | Requirement::Within => dtype.is_integer(),
        }
    }

    fn is_met(self, element: i64, bounds: [i64; 2]) -> bool {
        match self {
            Requirement::Holds | Requirement::Nonzero => element != 0,
            Requirement::Within => (bounds[0]..bounds[1]).contains(&element),
        }
    }
}

impl Rules for Check {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [Operand::Value(x), bounds @ ..] = found else {
            return Err(Error::operator("checks a value"));
        };
        if found.len() != self.require.operands() {
            let (wanted, given) = (self.require.operands(), found.len());
            return Err(Error::operator(format!(
                "takes {wanted} operands, not {given}"
            )));
        }
        let is_whole =
            |bound: &Operand| matches!(bound, Operand::Number(Scalar::Int(_)) | Operand::Size(_));
        if !bounds.iter().all(is_whole) {
            return Err(Error::operator("bounds are whole numbers and sizes"));
        }
        if !self.require.takes(x.dtype) {
            return Err(Error::operator(format!("does not check {x}")));
        }
        Ok(vec![(*x).clone()])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x, bounds @ ..] = found else {
            return Err(Error::operator("checks a value"));
        };
        let bound = |index: usize| bounds.get(index)?.to_i64().first().copied();
        let (low, end) = (bound(0), bound(1));
        let limits = [low, end].map(Option::unwrap_or_default);
        let mut elements = x.to_i64().into_iter();
        match elements.find(|element| !self.require.is_met(*element, limits)) {
            Some(element) => Err(self.fault(element, end)),
            None => Ok(vec![x.clone()]),
        }
    }

    fn shares_operand(&self) -> bool {
        true
    }

    fn workspace(&self, _: &[HostType], _: &[HostType]) -> u64 {
        0
    }
}
