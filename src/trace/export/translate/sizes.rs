//! Expressions on sizes of inputs, and the statements that refuse inputs for which a program was not exported.

use std::collections::HashMap;

use super::Translator;
use crate::error::{Error, Result};
use crate::trace::export::size_expr::SizeExpr;
use crate::trace::script::ast::{AstExpr, AstExprKind, Stmt};

/// Key of the inputs in order, without their structure.
const FLAT_INPUTS: &str = "flat_args";

/// Values that expressions name.
#[derive(Default)]
pub(super) struct SizeNames {
    /// Sizes by their symbols.
    pub symbols: HashMap<String, AstExpr>,
    /// The user's inputs in order: keys within the structure of the arguments, and values.
    pub inputs: Vec<(Vec<String>, AstExpr)>,
}

impl SizeNames {
    /// The value of an input: by its keys, by its position, or as an element of `*args` by the parameter's name.
    fn input(&self, keys: &[String]) -> Option<&AstExpr> {
        if let [first, position] = keys
            && first == FLAT_INPUTS
        {
            let (_, value) = self.inputs.get(position.parse::<usize>().ok()?)?;
            return Some(value);
        }
        let joined = [keys.join("_")];
        let find = |wanted: &[String]| self.inputs.iter().find(|(keys, _)| keys == wanted);
        let (_, value) = find(keys).or_else(|| find(&joined))?;
        Some(value)
    }
}

impl Translator {
    /// Adds a statement for each condition (`guards_code`) on the inputs.
    pub(super) fn guards(
        &mut self,
        conditions: &[String],
        names: &SizeNames,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        for text in conditions {
            let condition = self.size_value(&SizeExpr::parse(text)?, names, body)?;
            // `{}` would stand for a number.
            let text = text.replace(['{', '}'], "");
            let message = format!("the program was exported for inputs with {text}");
            let help = "export it again with an example for which the condition is as here, or without the branch or the \
                        Python number that depends on the size";
            body.push(self.require_input(condition, &message, help, Vec::new()));
        }
        Ok(())
    }

    /// The value of an expression. A choice is made by statements.
    pub(super) fn size_value(
        &mut self,
        expr: &SizeExpr,
        names: &SizeNames,
        body: &mut Vec<Stmt>,
    ) -> Result<AstExpr> {
        Ok(match expr {
            SizeExpr::Int(value) => self.int(*value),
            SizeExpr::Float(value) => self.expr(AstExprKind::Float(*value)),
            SizeExpr::Symbol(name) => {
                let known = names.symbols.get(name).cloned();
                known.ok_or_else(|| unknown(&format!("{name}, which is no size of an input")))?
            }
            SizeExpr::Size(keys, axis) => {
                let input = names.input(keys).cloned();
                let input = input.ok_or_else(|| unknown(&keys.join(".")))?;
                self.call("aten::size", [input, self.int(*axis)])
            }
            SizeExpr::Call(name, arguments) => {
                let arguments = self.size_values(arguments, names, body)?;
                self.folded(name, arguments, body)?
            }
            SizeExpr::Choice(parts) => {
                let parts = self.size_values(parts.as_slice(), names, body)?;
                self.choice(parts, body)?
            }
        })
    }

    fn size_values(
        &mut self,
        exprs: &[SizeExpr],
        names: &SizeNames,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let values = exprs.iter().map(|expr| self.size_value(expr, names, body));
        values.collect()
    }

    /// The call of a function; of more than two arguments, such as those of `Add` and `max`, two by two.
    fn folded(
        &mut self,
        name: &str,
        arguments: Vec<AstExpr>,
        body: &mut Vec<Stmt>,
    ) -> Result<AstExpr> {
        if arguments.len() < 3 {
            return self.function(name, arguments, body);
        }
        let mut rest = arguments.into_iter();
        let first = rest.next().into_iter().collect::<Vec<AstExpr>>();
        let values = rest.try_fold(first, |mut values, next| {
            values.push(next);
            Ok::<_, Error>(vec![self.function(name, values, body)?])
        })?;
        values.into_iter().next().ok_or_else(|| unknown(name))
    }
}

fn unknown(what: &str) -> Error {
    Error::unsupported(format!("a size of an input depends on {what}"))
}
