//! Statements that refuse inputs for which a program was not exported.

use std::collections::HashMap;

use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::trace::export::guards::GuardExpr;
use crate::trace::script::ast::{AstExpr, AstExprKind, Stmt};

/// The user's inputs by the names that conditions give them.
pub(super) struct GuardedInputs<'a> {
    /// Parameters of `forward`.
    pub parameters: &'a HashMap<String, AstExpr>,
    /// Names of the graph's inputs in order; none for values of Python.
    pub leaves: &'a [Option<String>],
    pub scope: &'a Scope,
}

impl Translator {
    /// Adds a statement for each condition.
    pub(super) fn guards(
        &mut self,
        conditions: &[String],
        inputs: &GuardedInputs<'_>,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        for text in conditions {
            let condition = self.guard(&GuardExpr::parse(text)?, inputs, body)?;
            let message = format!("the program was exported for inputs with {}", braces(text));
            let help = "export it again with an example for which the condition is as here, or without the branch or the \
                        Python number that depends on the size";
            body.push(self.require_input(condition, &message, help, Vec::new()));
        }
        Ok(())
    }

    fn guard(
        &mut self,
        expr: &GuardExpr,
        inputs: &GuardedInputs<'_>,
        body: &mut Vec<Stmt>,
    ) -> Result<AstExpr> {
        Ok(match expr {
            GuardExpr::Int(value) => self.int(*value),
            GuardExpr::Float(value) => self.expr(AstExprKind::Float(*value)),
            GuardExpr::Size(keys, axis) => {
                let tensor = self.guarded_input(keys, inputs)?;
                self.call("aten::size", [tensor, self.int(*axis)])
            }
            GuardExpr::Call(name, arguments) => {
                let arguments = arguments.iter();
                let arguments = arguments.map(|argument| self.guard(argument, inputs, body));
                let arguments = arguments.collect::<Result<_>>()?;
                self.function(name, arguments, body)?
            }
            GuardExpr::Choice(parts) => {
                let parts = parts.iter().map(|part| self.guard(part, inputs, body));
                let parts = parts.collect::<Result<_>>()?;
                self.choice(parts, body)?
            }
        })
    }

    /// An input by its keys: `x`, `batch` and `y`, or `flat_args` and its position.
    fn guarded_input(&self, keys: &[String], inputs: &GuardedInputs<'_>) -> Result<AstExpr> {
        let unknown = || {
            let message = format!("a condition on the input {}", keys.join("."));
            Error::unsupported(message)
        };
        if let [first, position] = keys
            && first == "flat_args"
        {
            let position: usize = position.parse().map_err(|_| unknown())?;
            let name = inputs.leaves.get(position).and_then(Option::as_deref);
            return self.value(name.ok_or_else(unknown)?, inputs.scope);
        }
        let (first, rest) = keys.split_first().ok_or_else(unknown)?;
        let Some(parameter) = inputs.parameters.get(first) else {
            // The elements of `*args` and `**kwargs` are inputs of the graph by such names.
            return self
                .value(&keys.join("_"), inputs.scope)
                .map_err(|_| unknown());
        };
        let element = |value: AstExpr, key: &String| {
            let key = match key.parse() {
                Ok(position) => self.int(position),
                Err(_) => self.text(key.as_str()),
            };
            self.expr(AstExprKind::Subscript(Box::new(value), Box::new(key)))
        };
        Ok(rest.iter().fold(parameter.clone(), element))
    }
}

/// A text for a message in which `{}` stands for numbers.
fn braces(text: &str) -> String {
    text.replace(['{', '}'], "")
}
