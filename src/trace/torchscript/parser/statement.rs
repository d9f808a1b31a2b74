//! Parser of statements.

use super::*;

impl Parser<'_> {
    pub(super) fn body(&mut self) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        self.block(|parser| {
            statements.push(parser.nested(Self::statement)?);
            Ok(())
        })?;
        Ok(statements)
    }

    fn statement(&mut self) -> Result<Statement> {
        let offset = self.offset();
        let kind = match self.peek() {
            TokenKind::Name("if") => self.branch()?,
            TokenKind::Name("while") => self.while_loop()?,
            TokenKind::Name("for") => self.for_loop()?,
            TokenKind::Name("with") => self.with()?,
            TokenKind::Name("def") => StatementKind::Define(self.function()?),
            _ => {
                let kind = self.simple_statement()?;
                self.end_of_line()?;
                kind
            }
        };
        Ok(Statement { offset, kind })
    }

    fn branch(&mut self) -> Result<StatementKind> {
        self.expect_word("if")?;
        let condition = self.expression()?;
        let then = self.body()?;
        let otherwise = self.eat_word("else").then(|| self.body()).transpose()?;
        Ok(StatementKind::If {
            condition,
            then,
            otherwise: otherwise.unwrap_or_default(),
        })
    }

    fn while_loop(&mut self) -> Result<StatementKind> {
        self.expect_word("while")?;
        let condition = self.expression()?;
        let body = self.body()?;
        Ok(StatementKind::While { condition, body })
    }

    fn for_loop(&mut self) -> Result<StatementKind> {
        self.expect_word("for")?;
        let variable = self.name()?;
        self.expect_word("in")?;
        self.expect_word("range")?;
        self.expect('(')?;
        let count = self.expression()?;
        self.expect(')')?;
        Ok(StatementKind::For {
            variable,
            count,
            body: self.body()?,
        })
    }

    fn with(&mut self) -> Result<StatementKind> {
        self.expect_word("with")?;
        let context = self.expression()?;
        let name = self.eat_word("as").then(|| self.name()).transpose()?;
        let body = self.body()?;
        Ok(StatementKind::With {
            context,
            name,
            body,
        })
    }

    fn simple_statement(&mut self) -> Result<StatementKind> {
        if self.eat_word("pass") {
            return Ok(StatementKind::Pass);
        }
        if self.eat_word("return") {
            let value = self.expressions()?;
            return Ok(StatementKind::Return(value));
        }
        if matches!(self.peek(), TokenKind::Name(_)) {
            match self.peek_at(1) {
                TokenKind::Punctuation(',') => return self.assign_names(),
                TokenKind::Punctuation(':') => return self.assign_typed(),
                _ => {}
            }
        }
        let target = self.expression()?;
        if !self.eat('=') {
            return Ok(StatementKind::Evaluate(target));
        }
        self.assign(target)
    }

    /// Parses one expression, or several without parentheses as a tuple.
    fn expressions(&mut self) -> Result<Expr> {
        let first = self.expression()?;
        if !self.is(',') {
            return Ok(first);
        }
        let offset = first.offset;
        let mut items = vec![first];
        while self.eat(',') && *self.peek() != TokenKind::Newline {
            items.push(self.expression()?);
        }
        let kind = ExprKind::Tuple(items);
        Ok(Expr { offset, kind })
    }

    fn assign(&mut self, target: Expr) -> Result<StatementKind> {
        match target.kind {
            ExprKind::Name(name) => {
                let value = self.expressions()?;
                let ty = None;
                Ok(StatementKind::Assign { name, ty, value })
            }
            ExprKind::Attribute(object, attribute) => Ok(StatementKind::SetAttribute {
                object: *object,
                attribute,
                value: self.expressions()?,
            }),
            _ => self.error_at(target.offset, "nothing can be assigned to this"),
        }
    }

    fn assign_typed(&mut self) -> Result<StatementKind> {
        let name = self.name()?;
        self.expect(':')?;
        let ty = Some(self.ty()?);
        self.expect('=')?;
        let value = self.expressions()?;
        Ok(StatementKind::Assign { name, ty, value })
    }

    /// Parses `a, b, = value`, which unpacks a value, or `a, b = x, y`, which assigns one by one.
    fn assign_names(&mut self) -> Result<StatementKind> {
        let offset = self.offset();
        let mut names = vec![self.name()?];
        while self.eat(',') && !self.is('=') {
            names.push(self.name()?);
        }
        self.expect('=')?;
        let value = self.expression()?;
        if !self.is(',') {
            return Ok(StatementKind::Unpack { names, value });
        }
        let mut values = vec![value];
        while self.eat(',') && *self.peek() != TokenKind::Newline {
            values.push(self.expression()?);
        }
        if names.len() != values.len() {
            let message = format!("{} names for {} values", names.len(), values.len());
            return self.error_at(offset, message);
        }
        Ok(StatementKind::AssignAll { names, values })
    }
}
