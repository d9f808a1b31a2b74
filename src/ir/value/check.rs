use crate::dim::Dim;
use crate::op::{Check, Requirement};

use super::Value;
use crate::ir::Argument;

impl<'g> Value<'g> {
    /// The value, checked to have integers in `low..end`; see [`Check`] for the message.
    pub fn check_in_range(self, low: Dim, end: &Dim, message: impl Into<String>) -> Value<'g> {
        let bounds = [low.into(), end.clone().into()];
        self.check(Requirement::Within, &bounds, message.into())
    }

    /// The value, checked to have no integer zeros.
    pub fn check_nonzero(self, message: impl Into<String>) -> Value<'g> {
        self.check(Requirement::Nonzero, &[], message.into())
    }

    /// The value, asserted to be true.
    pub fn check_true(self, message: impl Into<String>) -> Value<'g> {
        self.to_bool()
            .check(Requirement::Holds, &[], message.into())
    }

    fn check(self, require: Requirement, bounds: &[Argument], message: String) -> Value<'g> {
        let arguments = [&[self.into()], bounds].concat();
        self.builder.apply(Check { require, message }, arguments)
    }
}
