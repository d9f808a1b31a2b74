//! Parser of one file of source into its classes and functions.

use std::sync::Arc;

use crate::budget::Budget;
use crate::error::Result;
use crate::trace::script::ast::{
    AstExpr, AstExprKind, BaseClass, ClassDef, ConstantDef, ForwardHooks, FunctionDef,
    ParameterDef, Stmt, StmtKind, TypeExpr,
};
use crate::trace::torchscript::lexer::{self, Token, TokenKind};

mod expression;
mod statement;
mod types;

/// Declarations of a file.
#[derive(Debug, Default)]
pub struct SourceFile {
    /// Classes in order, with qualified names.
    pub classes: Vec<ClassDef>,
    /// Free functions in order, with qualified names.
    pub functions: Vec<FunctionDef>,
}

/// Parses the file of a module such as `__torch__.torch.nn.modules.linear`. `file` is its name in messages.
pub fn parse_file(file: &str, module: &str, text: &str, budget: &Budget) -> Result<SourceFile> {
    Parser::new(file, text, budget)?.file(module)
}

/// Parses a static type alone, such as the type tag `Dict[str, int]` of a pickle.
pub fn parse_type(text: &str) -> Result<TypeExpr> {
    let budget = Budget::default();
    let mut parser = Parser::new("type", text, &budget)?;
    let ty = parser.ty()?;
    parser.end_of_line()?;
    match parser.peek() {
        TokenKind::End => Ok(ty),
        _ => parser.expected("the end of the type"),
    }
}

/// A recursive-descent parser. Each method parses from the next token on; an error has the position of a token.
struct Parser<'a> {
    /// Name of the file in messages.
    file: Arc<str>,
    text: &'a str,
    budget: &'a Budget,
    tokens: Vec<Token<'a>>,
    /// Index of the next token.
    position: usize,
    /// Number of blocks, expressions and types in progress, each nested in the previous one.
    depth: usize,
    /// Height of the tallest subexpression of the expression that is being parsed. `depth` alone does not bound the
    /// tree: chains such as `x[0][0]` grow it without recursion.
    max_height: usize,
}

impl<'a> Parser<'a> {
    fn new(file: &str, text: &'a str, budget: &'a Budget) -> Result<Parser<'a>> {
        Ok(Parser {
            file: file.into(),
            text,
            budget,
            tokens: lexer::tokenize(file, text, budget)?,
            position: 0,
            depth: 0,
            max_height: 0,
        })
    }

    /// Returns the next token without consuming it.
    fn peek(&self) -> &TokenKind<'a> {
        self.peek_at(0)
    }

    /// Returns the token that follows after `ahead` others.
    fn peek_at(&self, ahead: usize) -> &TokenKind<'a> {
        let token = self.tokens.get(self.position + ahead);
        token.map_or(&TokenKind::End, |token| &token.kind)
    }

    /// Byte offset of the next token.
    fn offset(&self) -> usize {
        let token = self.tokens.get(self.position);
        token.map_or(self.text.len(), |token| token.offset)
    }

    /// Consumes the next token and returns it. The list keeps a placeholder in its place, since no token is read twice.
    fn advance(&mut self) -> TokenKind<'a> {
        let token = self.tokens.get_mut(self.position);
        self.position += 1;
        token.map_or(TokenKind::End, |token| {
            std::mem::replace(&mut token.kind, TokenKind::Newline)
        })
    }

    fn error_at<T>(&self, offset: usize, message: impl Into<String>) -> Result<T> {
        Err(lexer::error_at(&self.file, self.text, offset, message))
    }

    /// Fails with the next token in place of the expected one.
    fn expected<T>(&self, what: &str) -> Result<T> {
        let message = format!("expected {what}, found {}", self.peek());
        self.error_at(self.offset(), message)
    }

    fn peek_is(&self, sign: char) -> bool {
        *self.peek() == TokenKind::Punctuation(sign)
    }

    fn peek_is_keyword(&self, keyword: &str) -> bool {
        *self.peek() == TokenKind::Name(keyword)
    }

    /// Consumes the next token if it is this sign. Returns true if it is.
    fn eat(&mut self, sign: char) -> bool {
        let is_next = self.peek_is(sign);
        self.position += usize::from(is_next);
        is_next
    }

    /// Consumes the next token if it is this keyword. Returns true if it is.
    fn eat_keyword(&mut self, keyword: &str) -> bool {
        let is_next = self.peek_is_keyword(keyword);
        self.position += usize::from(is_next);
        is_next
    }

    /// Consumes a sign. Fails if another token is next.
    fn expect(&mut self, sign: char) -> Result<()> {
        if self.eat(sign) {
            return Ok(());
        }
        self.expected(&format!("`{sign}`"))
    }

    /// Consumes a keyword. Fails if another token is next.
    fn expect_keyword(&mut self, keyword: &str) -> Result<()> {
        if self.eat_keyword(keyword) {
            return Ok(());
        }
        self.expected(&format!("`{keyword}`"))
    }

    fn name(&mut self) -> Result<String> {
        match *self.peek() {
            TokenKind::Name(name) => {
                self.position += 1;
                Ok(name.to_owned())
            }
            _ => self.expected("a name"),
        }
    }

    fn string(&mut self) -> Result<String> {
        if !matches!(self.peek(), TokenKind::Str(_)) {
            return self.expected("a string");
        }
        match self.advance() {
            TokenKind::Str(text) => Ok(text),
            _ => Ok(String::new()),
        }
    }

    fn end_of_line(&mut self) -> Result<()> {
        if *self.peek() == TokenKind::Newline {
            self.position += 1;
            return Ok(());
        }
        self.expected("the end of the line")
    }

    /// Checks the number of levels of blocks, expressions and types in progress, or the height of an expression.
    fn check_depth(&self, depth: usize, offset: usize) -> Result<()> {
        let checked = self.budget.check_depth(depth);
        checked.or_else(|error| self.error_at(offset, error.message()))
    }

    /// Runs a parser one nesting level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_depth(self.depth + 1, self.offset())?;
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Parses items up to a closing sign. Commas separate them, and one may follow the last item.
    fn list<T>(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(item(self)?);
            if !self.eat(',') && !self.peek_is(close) {
                return self.expected(&format!("`,` or `{close}`"));
            }
        }
        Ok(items)
    }

    /// Parses the declarations of a file.
    fn file(&mut self, module: &str) -> Result<SourceFile> {
        let mut file = SourceFile::default();
        loop {
            match self.peek() {
                TokenKind::Name("class") => file.classes.push(self.class(module)?),
                TokenKind::Name("def") => {
                    let mut function = self.nested(Self::function)?;
                    function.name = format!("{module}.{}", function.name);
                    file.functions.push(function);
                }
                TokenKind::Newline => self.position += 1,
                TokenKind::End => return Ok(file),
                _ => return self.expected("`class` or `def`"),
            }
        }
    }

    /// Parses a class.
    fn class(&mut self, module: &str) -> Result<ClassDef> {
        let offset = self.offset();
        self.expect_keyword("class")?;
        let name = format!("{module}.{}", self.name()?);
        let base = self.base()?;
        let mut class = ClassDef {
            name,
            base,
            attributes: Vec::new(),
            constants: Vec::new(),
            parameters: Vec::new(),
            buffers: Vec::new(),
            hooks: ForwardHooks::default(),
            methods: Vec::new(),
            file: self.file.clone(),
            offset,
        };
        self.block(|parser| parser.member(&mut class))?;
        Ok(class)
    }

    /// Parses the parenthesised base of a class, if there is one.
    fn base(&mut self) -> Result<BaseClass> {
        if !self.eat('(') {
            return Ok(BaseClass::None);
        }
        let base = match self.peek() {
            TokenKind::Punctuation(')') => BaseClass::None,
            TokenKind::Name("Module") => BaseClass::Module,
            TokenKind::Name("NamedTuple") => BaseClass::NamedTuple,
            TokenKind::Name("Enum") => BaseClass::Enum,
            TokenKind::Name("Interface" | "ModuleInterface") => BaseClass::Interface,
            _ => return self.expected("`Module`, `NamedTuple`, `Enum` or an interface"),
        };
        self.position += usize::from(base != BaseClass::None);
        self.expect(')')?;
        Ok(base)
    }

    /// Parses a line in a class: a method or a declaration.
    fn member(&mut self, class: &mut ClassDef) -> Result<()> {
        if self.peek_is_keyword("def") {
            let method = self.nested(Self::function)?;
            class.methods.push(method);
            return Ok(());
        }
        if !self.eat_keyword("pass") {
            let name = self.name()?;
            self.declaration(class, name)?;
        }
        self.end_of_line()
    }

    /// Parses the rest of a member after its name: a list of names, an attribute, a constant, or a member of an enumeration.
    fn declaration(&mut self, class: &mut ClassDef, name: String) -> Result<()> {
        match name.as_str() {
            "__parameters__" => class.parameters = self.names_list()?,
            "__buffers__" => class.buffers = self.names_list()?,
            "__forward_pre_hooks__" => class.hooks.pre = self.names_list()?,
            "__forward_hooks__" => class.hooks.post = self.names_list()?,
            // `__annotations__ = []` precedes the first attribute whose name is not an identifier.
            "__annotations__" if self.peek_is('=') => drop(self.names_list()?),
            "__annotations__" => {
                self.expect('[')?;
                let name = self.string()?;
                self.expect(']')?;
                self.expect('=')?;
                class.attributes.push((name, self.ty()?));
            }
            _ if self.eat(':') => return self.typed_member(class, name),
            _ => {
                self.expect('=')?;
                let value = self.expression()?;
                let ty = TypeExpr::Any;
                class.constants.push(ConstantDef { name, ty, value });
            }
        }
        Ok(())
    }

    /// Parses `= ["a", "b"]`.
    fn names_list(&mut self) -> Result<Vec<String>> {
        self.expect('=')?;
        self.expect('[')?;
        self.list(']', Self::string)
    }

    /// Parses an attribute or a constant (`Final`) after its name and `:`.
    fn typed_member(&mut self, class: &mut ClassDef, name: String) -> Result<()> {
        if !self.eat_keyword("Final") {
            let ty = self.ty()?;
            class.attributes.push((name, ty));
            return Ok(());
        }
        self.expect('[')?;
        let ty = self.ty()?;
        self.expect(']')?;
        self.expect('=')?;
        let value = self.expression()?;
        class.constants.push(ConstantDef { name, ty, value });
        Ok(())
    }

    /// Parses a function or method. Its name is not qualified.
    fn function(&mut self) -> Result<FunctionDef> {
        let offset = self.offset();
        self.expect_keyword("def")?;
        let name = self.name()?;
        self.expect('(')?;
        let parameters = self.list(')', Self::parameter)?;
        let has_arrow = *self.peek() == TokenKind::Arrow;
        self.position += usize::from(has_arrow);
        let returns = if has_arrow { self.ty()? } else { TypeExpr::Any };
        Ok(FunctionDef {
            name,
            parameters,
            returns,
            body: self.body()?,
            file: self.file.clone(),
            offset,
        })
    }

    /// Parses a parameter with its type and default.
    fn parameter(&mut self) -> Result<ParameterDef> {
        let name = self.name()?;
        let ty = if self.eat(':') {
            self.ty()?
        } else {
            TypeExpr::Any
        };
        let default = self.eat('=').then(|| self.expression()).transpose()?;
        Ok(ParameterDef { name, ty, default })
    }

    /// Parses `:` and an indented block. `line` parses one line or compound statement of the block.
    fn block(&mut self, mut line: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(':')?;
        self.end_of_line()?;
        if *self.peek() != TokenKind::Indent {
            return self.expected("an indented line");
        }
        self.position += 1;
        while *self.peek() != TokenKind::Dedent {
            line(self)?;
        }
        self.position += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
