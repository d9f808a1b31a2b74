//! Traversal of the expressions of a function.

use super::{AstExpr, AstExprKind, CallExpr, Callee, FunctionDef, Stmt, StmtKind};

impl FunctionDef {
    /// Visits every expression of the body in source order, including nested expressions and those of nested functions.
    pub fn visit_exprs<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        visit_statements(&self.body, visit);
    }
}

fn visit_statements<'a>(statements: &'a [Stmt], visit: &mut dyn FnMut(&'a AstExpr)) {
    for statement in statements {
        statement.visit_exprs(visit);
    }
}

impl Stmt {
    fn visit_exprs<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        match &self.kind {
            StmtKind::Assign { value, .. }
            | StmtKind::Unpack { value, .. }
            | StmtKind::Return(value)
            | StmtKind::Evaluate(value) => value.visit(visit),
            StmtKind::AssignAll { values, .. } => values.iter().for_each(|v| v.visit(visit)),
            StmtKind::SetAttribute { object, value, .. } => {
                object.visit(visit);
                value.visit(visit);
            }
            StmtKind::If {
                condition,
                then,
                otherwise,
            } => {
                condition.visit(visit);
                visit_statements(then, visit);
                visit_statements(otherwise, visit);
            }
            StmtKind::While {
                condition: head,
                body,
            }
            | StmtKind::For {
                count: head, body, ..
            }
            | StmtKind::With {
                context: head,
                body,
                ..
            } => {
                head.visit(visit);
                visit_statements(body, visit);
            }
            StmtKind::Define(function) => function.visit_exprs(visit),
            StmtKind::Pass => {}
        }
    }
}

impl AstExpr {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        visit(self);
        match &self.kind {
            AstExprKind::Attribute(inner, _)
            | AstExprKind::Annotate(_, inner)
            | AstExprKind::UncheckedCast(_, inner)
            | AstExprKind::TupleSlice(inner, ..)
            | AstExprKind::IsInstance(inner, _) => inner.visit(visit),
            AstExprKind::Subscript(value, index) => {
                value.visit(visit);
                index.visit(visit);
            }
            AstExprKind::Call(call) => call.visit(visit),
            AstExprKind::List(items) | AstExprKind::Tuple(items) => {
                items.iter().for_each(|item| item.visit(visit));
            }
            AstExprKind::Dict(entries) => entries.iter().for_each(|(key, value)| {
                key.visit(visit);
                value.visit(visit);
            }),
            AstExprKind::Name(_)
            | AstExprKind::Qualified(_)
            | AstExprKind::Constant(_)
            | AstExprKind::None
            | AstExprKind::Bool(_)
            | AstExprKind::Int(_)
            | AstExprKind::Float(_)
            | AstExprKind::Complex(..)
            | AstExprKind::Str(_)
            | AstExprKind::Uninitialized(_) => {}
        }
    }
}

impl CallExpr {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        if let Callee::Method(object, _) = &self.callee {
            object.visit(visit);
        }
        let keywords = self.keywords.iter().map(|(_, value)| value);
        self.arguments
            .iter()
            .chain(keywords)
            .for_each(|value| value.visit(visit));
    }
}
