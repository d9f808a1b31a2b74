//! Functions of Python on symbolic numbers.

use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::trace::export::schema::SerializedNode;
use crate::trace::script::ast::{AstExpr, AstExprKind, CallExpr, Callee, Stmt, StmtKind};

impl Translator {
    /// The call of a function of Python, such as `_operator.add`. A choice is made by statements.
    pub(super) fn scalar_call(
        &mut self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<AstExpr> {
        let arguments = node.inputs.iter();
        let arguments = arguments.map(|argument| self.argument(&argument.arg, scope));
        let arguments: Vec<AstExpr> = arguments.collect::<Result<_>>()?;
        self.function(&node.target, arguments, body)
    }

    /// The call of a function of Python by its qualified name.
    pub(super) fn function(
        &mut self,
        name: &str,
        arguments: Vec<AstExpr>,
        body: &mut Vec<Stmt>,
    ) -> Result<AstExpr> {
        if let Some(builtin) = builtin(name) {
            return Ok(self.expr(AstExprKind::Call(Box::new(CallExpr {
                callee: Callee::Name(builtin.to_string()),
                arguments,
                keywords: Vec::new(),
            }))));
        }
        if name == "torch.sym_ite" {
            return self.choice(arguments, body);
        }
        if name == "_operator.pos" {
            let first = arguments.into_iter().next();
            return first.ok_or_else(|| Error::format("_operator.pos has no argument"));
        }
        Ok(match operator(name) {
            Some(operator) => self.call(operator, arguments),
            // The importer lists it with whatever else is not supported.
            None => self.call(name, arguments),
        })
    }

    /// `sym_ite(condition, then, otherwise)`
    pub(super) fn choice(
        &mut self,
        arguments: Vec<AstExpr>,
        body: &mut Vec<Stmt>,
    ) -> Result<AstExpr> {
        let Ok([condition, then, otherwise]) = <[AstExpr; 3]>::try_from(arguments) else {
            return Err(Error::format("sym_ite has other than three arguments"));
        };
        let chosen = self.fresh("chosen");
        let kind = StmtKind::If {
            condition,
            then: vec![self.assign(chosen.clone(), then)],
            otherwise: vec![self.assign(chosen.clone(), otherwise)],
        };
        body.push(self.statement(kind));
        Ok(self.variable(&chosen))
    }
}

/// The conversion of numbers that a function does.
fn builtin(name: &str) -> Option<&'static str> {
    Some(match name {
        "torch.sym_int" | "math.trunc" => "int",
        "torch.sym_float" => "float",
        _ => return None,
    })
}

/// The operator on numbers that a function of Python or SymPy stands for.
fn operator(name: &str) -> Option<&'static str> {
    Some(match name {
        "_operator.add" | "Add" => "aten::add",
        "_operator.sub" => "aten::sub",
        "_operator.mul" | "Mul" => "aten::mul",
        "_operator.floordiv" | "FloorDiv" | "CleanDiv" => "aten::floordiv",
        "_operator.truediv" => "aten::div",
        "_operator.mod" | "Mod" | "PythonMod" => "aten::remainder",
        "_operator.pow" | "Pow" | "PowByNatural" => "aten::pow",
        "_operator.neg" => "aten::neg",
        "_operator.eq" => "aten::eq",
        "_operator.ne" => "aten::ne",
        "_operator.lt" => "aten::lt",
        "_operator.le" => "aten::le",
        "_operator.gt" => "aten::gt",
        "_operator.ge" => "aten::ge",
        "_operator.and_" => "aten::__and__",
        "_operator.or_" => "aten::__or__",
        "_operator.lshift" => "aten::__lshift__",
        "_operator.rshift" => "aten::__rshift__",
        "torch.sym_not" => "aten::__not__",
        "torch.sym_max" | "max" | "Max" => "prim::max",
        "torch.sym_min" | "min" | "Min" => "prim::min",
        "torch.sym_sqrt" | "torch._sym_sqrt" | "math.sqrt" => "aten::sqrt",
        "math.ceil" => "aten::ceil",
        "math.floor" => "aten::floor",
        _ => return None,
    })
}
