//! Warnings of calls that make a trace valid for the example's sizes only.

use crate::aten::Operator;
use crate::ir::{Argument, Builder};
use crate::shape::wrap_dim;
use crate::trace::check::Id;

use super::Recorder;

impl Recorder {
    /// Warns of `unbind` along a symbolic axis, which records one value for each element of the example.
    pub(super) fn warn_of_iteration(
        &self,
        operator: &Operator,
        arguments: &[Argument],
        builder: &Builder,
    ) {
        let ("unbind", [Argument::Value(x), Argument::Number(dim)]) =
            (operator.schema.name.as_str(), arguments)
        else {
            return;
        };
        let shape = builder.ty(*x).shape;
        let axis = wrap_dim(dim.to_i64(), shape.len());
        let size = axis.ok().and_then(|axis| shape.get(axis));
        if let Some(size) = size.filter(|size| size.as_const().is_none()) {
            let number = builder.symbols().hint(size).unwrap_or_default();
            let message = format!("the size {size} is fixed to the example's {number}");
            self.warn(Id::DynamicIteration, message, &builder.place());
        }
    }

    /// Warns of arguments that are sizes before a call and numbers after it, because the operator takes only a number.
    pub(super) fn warn_of_frozen_arguments(
        &self,
        operator: &Operator,
        arguments: &[Argument],
        builder: &Builder,
    ) {
        for (parameter, argument) in operator.schema.parameters.iter().zip(arguments) {
            let Argument::Size(size) = argument else {
                continue;
            };
            if let Some(number) = builder.symbols().resolve(size).as_const() {
                let message = format!(
                    "{} of {} is a number: the size {size} is fixed to {number}",
                    parameter.name, operator.name
                );
                self.warn(Id::FrozenSize, message, &builder.place());
            }
        }
    }
}
