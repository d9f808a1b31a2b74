use super::{AstExprKind, CallExpr, Callee, AstExpr, FunctionDef, Stmt, StmtKind};

impl FunctionDef {
    /// Visits every expression of the body in source order, including nested expressions and those of nested functions.
    pub fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        visit_statements(&self.body, visit);
    }
}

fn visit_statements<'a>(statements: &'a [Stmt], visit: &mut dyn FnMut(&'a AstExpr)) {
    for statement in statements {
        statement.each_expr(visit);
    }
}

impl Stmt {
    fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        match &self.kind {
            StmtKind::Assign { value, .. }
            | StmtKind::Unpack { value, .. }
            | StmtKind::Return(value)
            | StmtKind::Evaluate(value) => value.each(visit),
            StmtKind::AssignAll { values, .. } => values.iter().for_each(|v| v.each(visit)),
            StmtKind::SetAttribute { object, value, .. } => {
                object.each(visit);
                value.each(visit);
            }
            StmtKind::If {
                condition,
                then,
                otherwise,
            } => {
                condition.each(visit);
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
                head.each(visit);
                visit_statements(body, visit);
            }
            StmtKind::Define(function) => function.each_expr(visit),
            StmtKind::Pass => {}
        }
    }
}

impl AstExpr {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        visit(self);
        match &self.kind {
            AstExprKind::Attribute(inner, _)
            | AstExprKind::Annotate(_, inner)
            | AstExprKind::UncheckedCast(_, inner)
            | AstExprKind::TupleSlice(inner, ..)
            | AstExprKind::IsInstance(inner, _) => inner.each(visit),
            AstExprKind::Subscript(value, index) => {
                value.each(visit);
                index.each(visit);
            }
            AstExprKind::Call(call) => call.each(visit),
            AstExprKind::List(items) | AstExprKind::Tuple(items) => {
                items.iter().for_each(|item| item.each(visit));
            }
            AstExprKind::Dict(entries) => entries.iter().for_each(|(key, value)| {
                key.each(visit);
                value.each(visit);
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
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a AstExpr)) {
        if let Callee::Method(object, _) = &self.callee {
            object.each(visit);
        }
        let keywords = self.keywords.iter().map(|(_, value)| value);
        self.arguments
            .iter()
            .chain(keywords)
            .for_each(|value| value.each(visit));
    }
}
