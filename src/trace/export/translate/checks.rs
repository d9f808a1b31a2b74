//! Assertions of exported programs: conditions that raise. Those on sizes become guards, those on values checks of the running
//! graph.

use super::{Scope, Translator};
use crate::error::Result;
use crate::trace::export::schema::{SerializedArgument, SerializedNode};
use crate::trace::script::ast::{AstExpr, AstExprKind, Stmt, StmtKind};

impl Translator {
    /// Adds the statements of a node that is an assertion. Returns false for other nodes.
    pub(super) fn check(
        &self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<bool> {
        let argument = |name: &str, position: usize| {
            let by_name = node.inputs.iter().find(|argument| argument.name == name);
            by_name.or_else(|| {
                node.inputs
                    .get(position)
                    .filter(|argument| argument.name.is_empty())
            })
        };
        let value = |name: &str, position: usize| {
            let given = argument(name, position).map(|argument| &argument.arg);
            let given = given.filter(|argument| !matches!(argument, SerializedArgument::None));
            given.map(|given| self.argument(given, scope)).transpose()
        };
        let name = node.target.strip_prefix("torch.ops.aten.").unwrap_or("");
        match name.split('.').next().unwrap_or("") {
            "_assert_scalar" | "_assert_async" | "_functional_assert_async" => {
                let message = match argument("assert_msg", 1).map(|argument| &argument.arg) {
                    Some(SerializedArgument::Str(message)) => message.clone(),
                    _ => "an assertion does not hold".to_string(),
                };
                if let Some(condition) = value("self", 0)? {
                    body.push(self.require(condition, message));
                }
            }
            "sym_constrain_range" | "sym_constrain_range_for_size" => {
                let Some(size) = value("size", 0)? else {
                    return Ok(true);
                };
                for (bound, position, operator, relation) in [
                    ("min", 1, "aten::ge", "at least"),
                    ("max", 2, "aten::le", "at most"),
                ] {
                    if let Some(limit) = value(bound, position)? {
                        let message = match &limit.kind {
                            AstExprKind::Int(limit) => {
                                format!("the value must be {relation} {limit}")
                            }
                            _ => format!("the value exceeds its bound ({bound})"),
                        };
                        let condition = self.call(operator, [size.clone(), limit]);
                        body.push(self.require(condition, message));
                    }
                }
            }
            "_assert_tensor_metadata" => {
                let Some(tensor) = value("a", 0)? else {
                    return Ok(true);
                };
                self.metadata_checks(&tensor, value("size", 1)?, value("dtype", 3)?, body);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks of the sizes and the element type of a tensor. Strides and devices are the importer's own.
    fn metadata_checks(
        &self,
        tensor: &AstExpr,
        sizes: Option<AstExpr>,
        dtype: Option<AstExpr>,
        body: &mut Vec<Stmt>,
    ) {
        if let Some(dtype) = dtype {
            let actual = self.call("prim::dtype", [tensor.clone()]);
            let condition = self.call("aten::eq", [actual, dtype]);
            body.push(self.require(
                condition,
                "the tensor has another element type than at export",
            ));
        }
        if let Some(AstExprKind::List(sizes)) = sizes.map(|sizes| sizes.kind) {
            for (axis, size) in (0..).zip(sizes) {
                let actual = self.call("aten::size", [tensor.clone(), self.int(axis)]);
                let condition = self.call("aten::eq", [actual, size]);
                body.push(self.require(condition, "the tensor has other sizes than at export"));
            }
        }
    }

    /// A statement that raises unless a condition holds.
    pub(super) fn require(&self, condition: AstExpr, message: impl Into<String>) -> Stmt {
        let raise = self.call("prim::RaiseException", [self.text(message)]);
        self.statement(StmtKind::If {
            condition,
            then: Vec::new(),
            otherwise: vec![self.statement(StmtKind::Evaluate(raise))],
        })
    }
}
