//! The result of a program: tensors in the structure of the user's results, after the writes to buffers and inputs.

use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::trace::export::pytree::Pytree;
use crate::trace::export::schema::{SerializedOutput, SerializedProgram};
use crate::trace::script::ast::{AstExpr, AstExprKind, CallExpr, Callee, Stmt, StmtKind};

impl Translator {
    /// Adds the writes and the `return` of a program.
    pub(super) fn results(
        &mut self,
        program: &SerializedProgram,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        let module = &program.graph_module;
        let mut results = Vec::new();
        let mut gradients = Vec::new();
        for output in &module.signature.output_specs {
            match output {
                SerializedOutput::UserOutput { arg } => results.push(self.argument(arg, scope)?),
                SerializedOutput::LossOutput { arg } => results.push(self.value(&arg.name, scope)?),
                SerializedOutput::GradientToParameter {
                    arg,
                    parameter_name: name,
                }
                | SerializedOutput::GradientToUserInput {
                    arg,
                    user_input_name: name,
                } => gradients.push((self.text(name.as_str()), self.value(&arg.name, scope)?)),
                SerializedOutput::BufferMutation {
                    arg,
                    buffer_name: path,
                }
                | SerializedOutput::ParameterMutation {
                    arg,
                    parameter_name: path,
                } => {
                    let value = self.value(&arg.name, scope)?;
                    let write = self.call("aten::copy_", [self.weight(path), value]);
                    body.push(self.statement(StmtKind::Evaluate(write)));
                }
                SerializedOutput::UserInputMutation {
                    arg,
                    user_input_name,
                } => {
                    let target = self.value(user_input_name, scope)?;
                    let write = self.call("aten::copy_", [target, self.value(&arg.name, scope)?]);
                    body.push(self.statement(StmtKind::Evaluate(write)));
                }
                SerializedOutput::Token {} => {}
            }
        }
        let signature = module.module_call_graph.first();
        let signature = signature.and_then(|call| call.signature.as_ref());
        let mut leaves = results.into_iter();
        let result = match signature {
            Some(signature) => {
                let tree = Pytree::parse(&signature.out_spec, &module.treespec_namedtuple_fields)?;
                self.declare_records(&tree);
                self.structured(&tree, &mut leaves)?
            }
            None => self.expr(AstExprKind::Tuple(leaves.by_ref().collect())),
        };
        if leaves.next().is_some() {
            return Err(Error::format(
                "the program has more results than its structure",
            ));
        }
        let result = match gradients.is_empty() {
            true => result,
            false => {
                let gradients = self.expr(AstExprKind::Dict(gradients));
                self.expr(AstExprKind::Tuple(vec![result, gradients]))
            }
        };
        body.push(self.statement(StmtKind::Return(result)));
        Ok(())
    }

    /// The expression of a structure of results.
    fn structured(
        &self,
        tree: &Pytree,
        leaves: &mut impl Iterator<Item = AstExpr>,
    ) -> Result<AstExpr> {
        let mut all = |items: &[Pytree]| {
            let items = items.iter().map(|item| self.structured(item, leaves));
            items.collect::<Result<Vec<AstExpr>>>()
        };
        Ok(match tree {
            Pytree::Leaf => {
                let missing = || Error::format("the program has fewer results than its structure");
                leaves.next().ok_or_else(missing)?
            }
            Pytree::Tuple(items) => self.expr(AstExprKind::Tuple(all(items)?)),
            Pytree::List(items) => self.expr(AstExprKind::List(all(items)?)),
            Pytree::Dict(items) => {
                let entry = |(name, item): &(String, Pytree)| {
                    Ok((self.text(name.as_str()), self.structured(item, leaves)?))
                };
                let entries = items.iter().map(entry).collect::<Result<_>>()?;
                self.expr(AstExprKind::Dict(entries))
            }
            Pytree::Record(class, fields) => {
                let field = |(_, item): &(String, Pytree)| self.structured(item, leaves);
                self.expr(AstExprKind::Call(Box::new(CallExpr {
                    callee: Callee::Qualified(class.clone()),
                    arguments: fields.iter().map(field).collect::<Result<_>>()?,
                    keywords: Vec::new(),
                })))
            }
        })
    }
}
