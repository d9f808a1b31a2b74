//! The text form of signatures: `(#0, {"mask": none})`.

use crate::error::Result;
use crate::ir::tree::{TreeConstant, TreeSpec};

use super::parse::Parser;
use super::quote::{json_string, quoted, size};
use super::scan::number;

/// The text of a tree.
pub(super) fn print_tree(tree: &TreeSpec) -> String {
    let list = |items: &[TreeSpec]| items.iter().map(print_tree).collect::<Vec<_>>().join(", ");
    let fields = |items: &[(String, TreeSpec)], separator: &str, name: fn(&str) -> String| {
        let field = |(key, item): &(String, TreeSpec)| {
            format!("{}{separator}{}", name(key), print_tree(item))
        };
        items.iter().map(field).collect::<Vec<_>>().join(", ")
    };
    match tree {
        TreeSpec::Tensor(index) => format!("#{index}"),
        TreeSpec::Number(index) => format!("number #{index}"),
        TreeSpec::Constant(TreeConstant::Str(text)) => json_string(text),
        TreeSpec::Constant(constant) => constant.to_string(),
        TreeSpec::Size(dim) => size(dim, &|name| name == "namedtuple" || name == "number"),
        TreeSpec::Tuple(items) if items.len() == 1 => format!("({},)", list(items)),
        TreeSpec::Tuple(items) => format!("({})", list(items)),
        TreeSpec::List(items) => format!("[{}]", list(items)),
        TreeSpec::Dict(items) => format!("{{{}}}", fields(items, ": ", json_string)),
        TreeSpec::NamedTuple(name, items) => {
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
    pub(super) fn tree(&mut self) -> Result<TreeSpec> {
        let item: &mut dyn FnMut(&mut Parser<'a>) -> Result<TreeSpec> =
            &mut |parser| parser.nested(Parser::tree);
        match self.scanner.peek() {
            Some('(') => self
                .items("(", ")", item)
                .map(|(items, _)| TreeSpec::Tuple(items)),
            Some('[') => self
                .items("[", "]", item)
                .map(|(items, _)| TreeSpec::List(items)),
            Some('{') => self.fields("{", "}", ":").map(TreeSpec::Dict),
            Some('"') => self
                .scanner
                .quoted()
                .map(|text| TreeSpec::Constant(TreeConstant::Str(text))),
            Some('#') => Ok(TreeSpec::Tensor(self.output_index()?)),
            _ => self.leaf_or_named(),
        }
    }

    fn fields(
        &mut self,
        open: &str,
        close: &str,
        separator: &str,
    ) -> Result<Vec<(String, TreeSpec)>> {
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
        index.map_err(|_| self.scanner.error_at(start, "expected an index such as #0"))
    }

    fn leaf_or_named(&mut self) -> Result<TreeSpec> {
        let start = self.scanner.position();
        if self.scanner.word() == Some("namedtuple") {
            let name = self.scanner.name()?;
            return Ok(TreeSpec::NamedTuple(name, self.fields("(", ")", "=")?));
        }
        self.scanner.go_back(start);
        if self.scanner.word() == Some("number") {
            return Ok(TreeSpec::Number(self.output_index()?));
        }
        self.scanner.go_back(start);
        let text = self.scanner.until(",)]}");
        if text == "none" {
            return Ok(TreeSpec::Constant(TreeConstant::None));
        }
        if let Some(number) = number(text) {
            return Ok(TreeSpec::Constant(TreeConstant::Number(number)));
        }
        let size = text
            .strip_prefix("size(")
            .and_then(|rest| rest.strip_suffix(')'));
        let dim = self.scanner.locate(start, size.unwrap_or(text).parse())?;
        Ok(TreeSpec::Size(dim))
    }
}
