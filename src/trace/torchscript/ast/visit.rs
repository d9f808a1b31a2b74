use super::{Call, Callee, Expr, ExprKind, Function, Statement, StatementKind};

impl Function {
    /// Visits every expression of the body in source order, including nested expressions and those of nested functions.
    pub fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        each_statement(&self.body, visit);
    }
}

fn each_statement<'a>(statements: &'a [Statement], visit: &mut dyn FnMut(&'a Expr)) {
    for statement in statements {
        statement.each_expr(visit);
    }
}

impl Statement {
    fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match &self.kind {
            StatementKind::Assign { value, .. }
            | StatementKind::Unpack { value, .. }
            | StatementKind::Return(value)
            | StatementKind::Evaluate(value) => value.each(visit),
            StatementKind::AssignAll { values, .. } => values.iter().for_each(|v| v.each(visit)),
            StatementKind::SetAttribute { object, value, .. } => {
                object.each(visit);
                value.each(visit);
            }
            StatementKind::If {
                condition,
                then,
                otherwise,
            } => {
                condition.each(visit);
                each_statement(then, visit);
                each_statement(otherwise, visit);
            }
            StatementKind::While {
                condition: head,
                body,
            }
            | StatementKind::For {
                count: head, body, ..
            }
            | StatementKind::With {
                context: head,
                body,
                ..
            } => {
                head.each(visit);
                each_statement(body, visit);
            }
            StatementKind::Define(function) => function.each_expr(visit),
            StatementKind::Pass => {}
        }
    }
}

impl Expr {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        match &self.kind {
            ExprKind::Attribute(inner, _)
            | ExprKind::Annotate(_, inner)
            | ExprKind::UncheckedCast(_, inner)
            | ExprKind::TupleSlice(inner, ..)
            | ExprKind::IsInstance(inner, _) => inner.each(visit),
            ExprKind::Subscript(value, index) => {
                value.each(visit);
                index.each(visit);
            }
            ExprKind::Call(call) => call.each(visit),
            ExprKind::List(items) | ExprKind::Tuple(items) => {
                items.iter().for_each(|item| item.each(visit));
            }
            ExprKind::Dict(entries) => entries.iter().for_each(|(key, value)| {
                key.each(visit);
                value.each(visit);
            }),
            ExprKind::Name(_)
            | ExprKind::Qualified(_)
            | ExprKind::Constant(_)
            | ExprKind::None
            | ExprKind::Bool(_)
            | ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Complex(..)
            | ExprKind::Str(_)
            | ExprKind::Uninitialized(_) => {}
        }
    }
}

impl Call {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
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
