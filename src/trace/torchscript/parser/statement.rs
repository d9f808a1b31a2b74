//! Parser of statements.

use super::*;

impl Parser<'_> {
    /// Parses `:` and the statements of a block.
    pub(super) fn body(&mut self) -> Result<Vec<Stmt>> {
        let mut statements = Vec::new();
        self.block(|parser| {
            statements.push(parser.nested(Self::statement)?);
            Ok(())
        })?;
        Ok(statements)
    }

    /// Parses a statement.
    fn statement(&mut self) -> Result<Stmt> {
        let offset = self.offset();
        let kind = match self.peek() {
            TokenKind::Name("if") => self.branch()?,
            TokenKind::Name("while") => self.while_loop()?,
            TokenKind::Name("for") => self.for_loop()?,
            TokenKind::Name("with") => self.with()?,
            TokenKind::Name("def") => StmtKind::Define(self.function()?),
            _ => {
                let kind = self.simple_statement()?;
                self.end_of_line()?;
                kind
            }
        };
        Ok(Stmt { offset, kind })
    }

    fn branch(&mut self) -> Result<StmtKind> {
        self.expect_keyword("if")?;
        let condition = self.expression()?;
        let then = self.body()?;
        let otherwise = self.eat_keyword("else").then(|| self.body()).transpose()?;
        Ok(StmtKind::If {
            condition,
            then,
            otherwise: otherwise.unwrap_or_default(),
        })
    }

    fn while_loop(&mut self) -> Result<StmtKind> {
        self.expect_keyword("while")?;
        let condition = self.expression()?;
        let body = self.body()?;
        Ok(StmtKind::While { condition, body })
    }

    fn for_loop(&mut self) -> Result<StmtKind> {
        self.expect_keyword("for")?;
        let variable = self.name()?;
        self.expect_keyword("in")?;
        self.expect_keyword("range")?;
        self.expect('(')?;
        let count = self.expression()?;
        self.expect(')')?;
        Ok(StmtKind::For {
            variable,
            count,
            body: self.body()?,
        })
    }

    fn with(&mut self) -> Result<StmtKind> {
        self.expect_keyword("with")?;
        let context = self.expression()?;
        let name = self.eat_keyword("as").then(|| self.name()).transpose()?;
        let body = self.body()?;
        Ok(StmtKind::With {
            context,
            name,
            body,
        })
    }

    /// Parses a statement of one line.
    fn simple_statement(&mut self) -> Result<StmtKind> {
        if self.eat_keyword("pass") {
            return Ok(StmtKind::Pass);
        }
        if self.eat_keyword("return") {
            let value = self.expressions()?;
            return Ok(StmtKind::Return(value));
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
            return Ok(StmtKind::Evaluate(target));
        }
        self.assign(target)
    }

    /// Parses one expression, or several without parentheses as a tuple.
    fn expressions(&mut self) -> Result<AstExpr> {
        let first = self.expression()?;
        if !self.peek_is(',') {
            return Ok(first);
        }
        let offset = first.offset;
        let mut items = vec![first];
        while self.eat(',') && *self.peek() != TokenKind::Newline {
            items.push(self.expression()?);
        }
        let kind = AstExprKind::Tuple(items);
        Ok(AstExpr { offset, kind })
    }

    /// Parses the value of an assignment to a variable or attribute.
    fn assign(&mut self, target: AstExpr) -> Result<StmtKind> {
        match target.kind {
            AstExprKind::Name(name) => {
                let value = self.expressions()?;
                let ty = None;
                Ok(StmtKind::Assign { name, ty, value })
            }
            AstExprKind::Attribute(object, attribute) => Ok(StmtKind::SetAttribute {
                object: *object,
                attribute,
                value: self.expressions()?,
            }),
            _ => self.error_at(target.offset, "nothing can be assigned to this"),
        }
    }

    /// Parses `name : T = value`.
    fn assign_typed(&mut self) -> Result<StmtKind> {
        let name = self.name()?;
        self.expect(':')?;
        let ty = Some(self.ty()?);
        self.expect('=')?;
        let value = self.expressions()?;
        Ok(StmtKind::Assign { name, ty, value })
    }

    /// Parses `a, b, = value`, which unpacks a value, or `a, b = x, y`, which assigns one by one.
    fn assign_names(&mut self) -> Result<StmtKind> {
        let offset = self.offset();
        let mut names = vec![self.name()?];
        while self.eat(',') && !self.peek_is('=') {
            names.push(self.name()?);
        }
        self.expect('=')?;
        let value = self.expression()?;
        if !self.peek_is(',') {
            return Ok(StmtKind::Unpack { names, value });
        }
        let mut values = vec![value];
        while self.eat(',') && *self.peek() != TokenKind::Newline {
            values.push(self.expression()?);
        }
        if names.len() != values.len() {
            let message = format!("{} names for {} values", names.len(), values.len());
            return self.error_at(offset, message);
        }
        Ok(StmtKind::AssignAll { names, values })
    }
}
