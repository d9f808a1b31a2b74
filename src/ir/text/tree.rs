//! The text form of signatures: `(#0, {"mask": none})`.

use crate::error::Result;
use crate::ir::tree::{Constant, Tree};

use super::parse::Parser;
use super::print::{json_string, quoted, size};
use super::scan::number;

/// The text of a tree.
pub(super) fn print_tree(tree: &Tree) -> String {
    let list = |items: &[Tree]| items.iter().map(print_tree).collect::<Vec<_>>().join(", ");
    let fields = |items: &[(String, Tree)], separator: &str, name: fn(&str) -> String| {
        let field =
            |(key, item): &(String, Tree)| format!("{}{separator}{}", name(key), print_tree(item));
        items.iter().map(field).collect::<Vec<_>>().join(", ")
    };
    match tree {
        Tree::Tensor(index) => format!("#{index}"),
        Tree::Number(index) => format!("number #{index}"),
        Tree::Constant(Constant::Str(text)) => json_string(text),
        Tree::Constant(constant) => constant.to_string(),
        Tree::Size(dim) => size(dim, &|name| name == "namedtuple" || name == "number"),
        Tree::Tuple(items) if items.len() == 1 => format!("({},)", list(items)),
        Tree::Tuple(items) => format!("({})", list(items)),
        Tree::List(items) => format!("[{}]", list(items)),
        Tree::Dict(items) => format!("{{{}}}", fields(items, ": ", json_string)),
        Tree::NamedTuple(name, items) => {
            format!(
                "namedtuple {}({})",
                quoted(name),
                fields(items, "=", quoted)
            )
        }
    }
}

impl<'a> Parser<'a> {
    /// Reads a tree.
    pub(super) fn tree(&mut self) -> Result<Tree> {
        let item: &mut dyn FnMut(&mut Parser<'a>) -> Result<Tree> =
            &mut |parser| parser.nested(Parser::tree);
        match self.scanner.peek() {
            Some('(') => self
                .items("(", ")", item)
                .map(|(items, _)| Tree::Tuple(items)),
            Some('[') => self
                .items("[", "]", item)
                .map(|(items, _)| Tree::List(items)),
            Some('{') => self.fields("{", "}", ":").map(Tree::Dict),
            Some('"') => self
                .scanner
                .quoted()
                .map(|text| Tree::Constant(Constant::Str(text))),
            Some('#') => Ok(Tree::Tensor(self.output_index()?)),
            _ => self.leaf_or_named(),
        }
    }

    fn fields(&mut self, open: &str, close: &str, separator: &str) -> Result<Vec<(String, Tree)>> {
        let read = &mut |parser: &mut Parser<'a>| {
            let key = parser.scanner.name()?;
            parser.scanner.expect(separator)?;
            Ok((key, parser.nested(Parser::tree)?))
        };
        self.items(open, close, read).map(|(items, _)| items)
    }

    fn output_index(&mut self) -> Result<usize> {
        self.scanner.expect("#")?;
        let start = self.scanner.position();
        let index = usize::try_from(self.scanner.integer()?);
        index.map_err(|_| self.scanner.error_at(start, "this is no index"))
    }

    fn leaf_or_named(&mut self) -> Result<Tree> {
        let start = self.scanner.position();
        if self.scanner.word() == Some("namedtuple") {
            let name = self.scanner.name()?;
            return Ok(Tree::NamedTuple(name, self.fields("(", ")", "=")?));
        }
        self.scanner.go_back(start);
        if self.scanner.word() == Some("number") {
            return Ok(Tree::Number(self.output_index()?));
        }
        self.scanner.go_back(start);
        let text = self.scanner.until(",)]}");
        if text == "none" {
            return Ok(Tree::Constant(Constant::None));
        }
        if let Some(number) = number(text) {
            return Ok(Tree::Constant(Constant::Number(number)));
        }
        let size = text
            .strip_prefix("size(")
            .and_then(|rest| rest.strip_suffix(')'));
        let dim = self.scanner.locate(start, size.unwrap_or(text).parse())?;
        Ok(Tree::Size(dim))
    }
}
