//! Source for operator calls.

use crate::aten::{Operator, SchemaParameter};
use crate::error::{Error, Result};
use crate::ir::Argument;
use crate::trace::native::methods::{Binding, bindings};

use super::SourceWriter;
use super::literal::argument_source;

impl SourceWriter<'_> {
    /// The source of a call of the method or function for an operator.
    pub(super) fn operator_call(
        &self,
        operator: &'static Operator,
        given: &[Argument],
    ) -> Result<String> {
        let binding = binding(&operator.name)?;
        let mut pairs = operator.schema.parameters.iter().zip(given);
        let callee_prefix = match binding.on_tensor {
            false => "ops::".to_string(),
            true => match pairs.next() {
                Some((_, Argument::Value(id))) => format!("{}.", self.tensor_expr(*id)?.text),
                _ => return Err(Error::unsupported("a method of a number")),
            },
        };
        let (mut arguments, mut named) = (Vec::new(), Vec::new());
        for (parameter, given) in pairs {
            let text = argument_source(&parameter.ty, given, &|id| self.borrowed(id))?;
            if parameter.is_required() {
                arguments.push(text);
            } else if differs_from_default(parameter, given) {
                named.push(format!("{} = {text}", parameter.name));
            }
        }
        let name_suffix = if named.is_empty() { "" } else { "_with" };
        if !named.is_empty() {
            arguments.push(format!("kw!({})", named.join(", ")));
        }
        let (name, arguments) = (binding.name, arguments.join(", "));
        Ok(format!("{callee_prefix}{name}{name_suffix}({arguments})"))
    }
}

/// True for an argument that differs from the parameter's default.
fn differs_from_default(parameter: &SchemaParameter, given: &Argument) -> bool {
    !parameter.is_ignored() && parameter.default.as_ref() != Some(given)
}

/// The method or function for an operator.
fn binding(operator: &str) -> Result<&'static Binding> {
    let mut bindings = bindings().iter();
    let binding_of_operator = bindings.find(|binding| binding.operators.contains(&operator));
    binding_of_operator.ok_or_else(|| Error::internal(format!("{operator} has no method")))
}
