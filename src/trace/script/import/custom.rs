//! Calls of operators that the user of the library defines.

use crate::error::{Error, Result};
use crate::ir::Argument;
use crate::op::rules_of;
use crate::shape::TensorType;

use super::Importer;
use super::call::Arguments;
use super::datum::Datum;

impl Importer<'_> {
    /// Adds a call of a registered operator as a node; none if no operator of the name is registered.
    pub(super) fn custom_operator(
        &mut self,
        name: &str,
        arguments: &Arguments,
    ) -> Result<Option<Datum>> {
        let Some(rules) = rules_of(name) else {
            return Ok(None);
        };
        let named = arguments.named.iter().map(|(_, value)| value);
        let mut operands = Vec::new();
        for value in arguments.positional.iter().chain(named) {
            let Datum::Tensor(tensor) = value else {
                let message = format!("{name} with a {} among its arguments", value.describe());
                let help = "operators that are registered with CustomOperator take tensors only";
                return Err(Error::unsupported(message).help(help));
            };
            operands.push(self.read(tensor)?);
        }
        let builder = self.builder();
        let types: Vec<TensorType> = operands.iter().map(|id| builder.ty(*id)).collect();
        let operator = rules.operator(name, &types)?;
        let operands = operands.into_iter().map(Argument::Value).collect();
        let results = builder.try_apply(operator, operands)?;
        let ids: Vec<_> = results.into_iter().map(|value| value.id()).collect();
        drop(builder);
        let tensors = ids.into_iter().map(|id| Datum::Tensor(self.new_tensor(id)));
        let mut tensors: Vec<Datum> = tensors.collect();
        Ok(Some(match tensors.len() {
            1 => tensors.remove(0),
            _ => Datum::tuple(tensors),
        }))
    }
}
