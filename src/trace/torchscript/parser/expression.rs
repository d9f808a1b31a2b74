//! Parser of expressions: literals, names, calls and indexing. There are no infix operators.

use super::*;
use crate::trace::script::ast::{CallExpr, Callee};

/// Positional arguments and keyword arguments of a call.
type ParsedArguments = (Vec<AstExpr>, Vec<(String, AstExpr)>);

impl<'a> Parser<'a> {
    /// Parses an expression.
    pub(super) fn expression(&mut self) -> Result<AstExpr> {
        let max_sibling_height = std::mem::take(&mut self.max_height);
        let value = self.nested(Self::postfix)?;
        self.max_height = max_sibling_height.max(self.max_height + 1);
        Ok(value)
    }

    /// Parses an atom and its suffixes: attributes, calls, indices. Each suffix adds a level to the tree.
    fn postfix(&mut self) -> Result<AstExpr> {
        let mut value = self.atom()?;
        loop {
            let offset = value.offset;
            let kind = if self.eat('.') {
                self.member_of(value)?
            } else if self.eat('[') {
                self.subscript_of(value)?
            } else if self.peek_is('(') {
                self.call_of(value)?
            } else {
                return Ok(value);
            };
            value = AstExpr { offset, kind };
            self.max_height += 1;
            self.check_depth(self.max_height + 1, value.offset)?;
        }
    }

    /// Parses an attribute or a method call of an object, after `.`.
    fn member_of(&mut self, object: AstExpr) -> Result<AstExprKind> {
        let name = self.name()?;
        if self.peek_is('(') {
            return self.call(Callee::Method(object, name));
        }
        Ok(AstExprKind::Attribute(Box::new(object), name))
    }

    /// Parses `index]`, or `start:end]` of a tuple, whose bounds are integers.
    fn subscript_of(&mut self, value: AstExpr) -> Result<AstExprKind> {
        let index = self.expression()?;
        let kind = match (self.eat(':'), &index.kind) {
            (false, _) => AstExprKind::Subscript(Box::new(value), Box::new(index)),
            (true, AstExprKind::Int(start)) => match self.expression()?.kind {
                AstExprKind::Int(end) => AstExprKind::TupleSlice(Box::new(value), *start, end),
                _ => {
                    return self
                        .error_at(index.offset, "the end of a tuple slice must be an integer");
                }
            },
            _ => {
                return self.error_at(
                    index.offset,
                    "the start of a tuple slice must be an integer",
                );
            }
        };
        self.expect(']')?;
        Ok(kind)
    }

    /// Parses a call of an expression.
    fn call_of(&mut self, callee: AstExpr) -> Result<AstExprKind> {
        match callee.kind {
            AstExprKind::Name(name) => self.call(Callee::Name(name)),
            AstExprKind::Qualified(name) => self.call(Callee::Qualified(name)),
            _ => self.error_at(callee.offset, "this can't be called"),
        }
    }

    /// Parses the arguments of a call.
    fn call(&mut self, callee: Callee) -> Result<AstExprKind> {
        let (arguments, keywords) = self.arguments()?;
        Ok(AstExprKind::Call(Box::new(CallExpr {
            callee,
            arguments,
            keywords,
        })))
    }

    /// Parses arguments in parentheses.
    fn arguments(&mut self) -> Result<ParsedArguments> {
        self.expect('(')?;
        let mut arguments = Vec::new();
        let mut keywords = Vec::new();
        self.list(')', |parser| {
            if *parser.peek_at(1) == TokenKind::Punctuation('=') {
                let name = parser.name()?;
                parser.expect('=')?;
                keywords.push((name, parser.expression()?));
            } else if keywords.is_empty() {
                arguments.push(parser.expression()?);
            } else {
                return parser.expected("an argument with its name");
            }
            Ok(())
        })?;
        Ok((arguments, keywords))
    }

    /// Parses an expression without suffixes.
    fn atom(&mut self) -> Result<AstExpr> {
        let offset = self.offset();
        let kind = match *self.peek() {
            TokenKind::Name(name) => {
                self.position += 1;
                self.keyword_or_name(name)?
            }
            TokenKind::Qualified(name) => {
                self.position += 1;
                AstExprKind::Qualified(name.to_owned())
            }
            TokenKind::Number(number) => {
                self.position += 1;
                self.number(number, offset)?
            }
            TokenKind::Str(_) => AstExprKind::Str(self.string()?),
            TokenKind::Punctuation('-') => {
                self.position += 1;
                self.negative(offset)?
            }
            TokenKind::Punctuation('^') => {
                self.position += 1;
                self.python_function_call()?
            }
            TokenKind::Punctuation('(') => return self.parenthesised(),
            TokenKind::Punctuation('[') => {
                self.position += 1;
                AstExprKind::List(self.list(']', Self::expression)?)
            }
            TokenKind::Punctuation('{') => {
                self.position += 1;
                AstExprKind::Dict(self.list('}', Self::entry)?)
            }
            _ => return self.expected("an expression"),
        };
        let kind = self.imaginary_part(kind)?;
        Ok(AstExpr { offset, kind })
    }

    /// Parses the imaginary part that may follow a real part: `-2.j`, `+infj`. The program has no infix operators, so a
    /// sign after a number always starts an imaginary part.
    fn imaginary_part(&mut self, kind: AstExprKind) -> Result<AstExprKind> {
        let real = match kind {
            AstExprKind::Float(real) => real,
            AstExprKind::Int(real) => real as f64,
            _ => return Ok(kind),
        };
        let sign = match self.peek() {
            TokenKind::Punctuation('+') => 1.0,
            TokenKind::Punctuation('-') => -1.0,
            _ => return Ok(kind),
        };
        self.position += 1;
        let imaginary = match *self.peek() {
            TokenKind::Number(number) => number.strip_suffix('j').and_then(|n| n.parse().ok()),
            TokenKind::Name("infj") => Some(f64::INFINITY),
            TokenKind::Name("nanj") => Some(f64::NAN),
            _ => None,
        };
        match imaginary {
            Some(imaginary) => {
                self.position += 1;
                Ok(AstExprKind::Complex(real, sign * imaginary))
            }
            None => self.expected("an imaginary part"),
        }
    }

    /// Parses `^Foo(2)(x)`, a call of Python's `autograd.Function`, after `^`. The first parentheses hold the arguments
    /// that are not tensors. They are dropped.
    fn python_function_call(&mut self) -> Result<AstExprKind> {
        let name = self.name()?;
        self.arguments()?;
        self.call(Callee::Name(format!("^{name}")))
    }

    /// Parses an entry of a dict.
    fn entry(&mut self) -> Result<(AstExpr, AstExpr)> {
        let key = self.expression()?;
        self.expect(':')?;
        Ok((key, self.expression()?))
    }

    /// Parses an expression in parentheses. `(a)` is `a` itself; `()`, `(a,)` and `(a, b)` are tuples.
    fn parenthesised(&mut self) -> Result<AstExpr> {
        let offset = self.offset();
        self.expect('(')?;
        let mut commas = 0;
        let mut items = Vec::new();
        while !self.eat(')') {
            items.push(self.expression()?);
            if self.eat(',') {
                commas += 1;
            } else if !self.peek_is(')') {
                return self.expected("`,` or `)`");
            }
        }
        match (commas, items.pop()) {
            (0, Some(single)) if items.is_empty() => Ok(single),
            (_, last) => {
                items.extend(last);
                let kind = AstExprKind::Tuple(items);
                Ok(AstExpr { offset, kind })
            }
        }
    }

    /// Parses a number after `-`.
    fn negative(&mut self, offset: usize) -> Result<AstExprKind> {
        match *self.peek() {
            TokenKind::Number(number) => {
                self.position += 1;
                self.number(&format!("-{number}"), offset)
            }
            TokenKind::Name("inf") => {
                self.position += 1;
                Ok(AstExprKind::Float(f64::NEG_INFINITY))
            }
            TokenKind::Name("nan") => {
                self.position += 1;
                Ok(AstExprKind::Float(f64::NAN))
            }
            _ => self.expected("a number"),
        }
    }

    /// Converts the text of a number. `offset` is its position for messages.
    fn number(&self, number: &str, offset: usize) -> Result<AstExprKind> {
        let digits = number.strip_prefix('-').unwrap_or(number);
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return match number.parse() {
                Ok(value) => Ok(AstExprKind::Int(value)),
                Err(_) => self.error_at(offset, "this integer has more than 64 bits"),
            };
        }
        match number.parse() {
            Ok(value) => Ok(AstExprKind::Float(value)),
            Err(_) => self.error_at(offset, "this is not a number"),
        }
    }

    /// Parses an expression that starts with a name. The serialiser never uses the names listed here for variables.
    fn keyword_or_name(&mut self, name: &str) -> Result<AstExprKind> {
        match name {
            "None" => Ok(AstExprKind::None),
            "True" => Ok(AstExprKind::Bool(true)),
            "False" => Ok(AstExprKind::Bool(false)),
            "inf" => Ok(AstExprKind::Float(f64::INFINITY)),
            "nan" => Ok(AstExprKind::Float(f64::NAN)),
            "torch" => self.operator("aten"),
            "ops" => {
                self.expect('.')?;
                let namespace = self.name()?;
                self.operator(&namespace)
            }
            "CONSTANTS" => self.constant(),
            "annotate" | "unchecked_cast" | "uninitialized" if self.peek_is('(') => {
                self.typed_expression(name)
            }
            "isinstance" if self.peek_is('(') => self.is_instance(),
            "getattr" if self.peek_is('(') => self.get_attribute(),
            _ => Ok(AstExprKind::Name(name.to_owned())),
        }
    }

    /// Parses a call of an operator after the prefix of its namespace.
    fn operator(&mut self, namespace: &str) -> Result<AstExprKind> {
        self.expect('.')?;
        let mut name = format!("{namespace}::{}", self.name()?);
        // The serialiser writes no names of overloads. A further dot belongs to a nested namespace,
        // `torch.linalg.norm`.
        while self.eat('.') {
            name = format!("{name}.{}", self.name()?);
        }
        self.call(Callee::Operator(name))
    }

    /// Parses `.c3` after `CONSTANTS`.
    fn constant(&mut self) -> Result<AstExprKind> {
        self.expect('.')?;
        let offset = self.offset();
        let name = self.name()?;
        let index = name.strip_prefix('c').and_then(|index| index.parse().ok());
        match index {
            Some(index) => Ok(AstExprKind::Constant(index)),
            None => self.error_at(offset, "constants are named `c0`, `c1` and so on"),
        }
    }

    /// Parses the arguments of `annotate`, `unchecked_cast` or `uninitialized`.
    fn typed_expression(&mut self, keyword: &str) -> Result<AstExprKind> {
        self.expect('(')?;
        let ty = self.ty()?;
        if keyword == "uninitialized" {
            self.expect(')')?;
            return Ok(AstExprKind::Uninitialized(ty));
        }
        self.expect(',')?;
        let value = Box::new(self.expression()?);
        self.expect(')')?;
        Ok(match keyword {
            "annotate" => AstExprKind::Annotate(ty, value),
            _ => AstExprKind::UncheckedCast(ty, value),
        })
    }

    /// Parses the arguments of `isinstance`.
    fn is_instance(&mut self) -> Result<AstExprKind> {
        self.expect('(')?;
        let value = Box::new(self.expression()?);
        self.expect(',')?;
        let types = if self.eat('(') {
            self.list(')', Self::ty)?
        } else if self.eat('[') {
            self.list(']', Self::ty)?
        } else {
            vec![self.ty()?]
        };
        self.expect(')')?;
        Ok(AstExprKind::IsInstance(value, types))
    }

    /// Parses the arguments of `getattr`.
    fn get_attribute(&mut self) -> Result<AstExprKind> {
        self.expect('(')?;
        let object = Box::new(self.expression()?);
        self.expect(',')?;
        let name = self.string()?;
        self.expect(')')?;
        Ok(AstExprKind::Attribute(object, name))
    }
}
