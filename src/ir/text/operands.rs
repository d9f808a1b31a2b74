//! Parsing of a node's operands: values, numbers, sizes, lists, and named attributes.

use serde_json::{Map, Value as Json};

use super::parse::Parser;
use super::scan::number;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::assembler::{GraphAssembler, complete_call};
use crate::ir::dictionary::{ArgumentStyle, CallParameter};
use crate::ir::graph::Argument;
use crate::scalar::Scalar;

/// Positional arguments, and the unparsed values of `name=value`.
pub(super) struct Operands {
    pub(super) arguments: Vec<Argument>,
    pub(super) attributes: Map<String, Json>,
}

impl<'a> Parser<'a> {
    pub(super) fn call(
        &mut self,
        name: &str,
        parameters: &[CallParameter],
        assembler: &mut GraphAssembler,
    ) -> Result<Vec<Argument>> {
        let start = self.scanner.position();
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        while !self.is_end() {
            match self.key()? {
                Some(key) => {
                    let parameter = parameters.iter().find(|parameter| parameter.name == key);
                    let style = parameter.map_or(ArgumentStyle::Named, |parameter| parameter.style);
                    named.push((key, self.argument(assembler, style)?));
                }
                None if named.is_empty() => {
                    positional.push(self.argument(assembler, ArgumentStyle::Positional)?);
                }
                None => return Err(self.scanner.expected("name=value")),
            }
            if !self.scanner.eat(",") {
                break;
            }
        }
        self.scanner
            .locate(start, complete_call(name, parameters, positional, named))
    }

    pub(super) fn operands(&mut self, assembler: &mut GraphAssembler) -> Result<Operands> {
        let mut operands = Operands {
            arguments: Vec::new(),
            attributes: Map::new(),
        };
        while !self.is_end() {
            match self.key()? {
                Some(key) => {
                    let value = self.nested(Parser::attribute)?;
                    operands.attributes.insert(key, value);
                }
                None => operands
                    .arguments
                    .push(self.argument(assembler, ArgumentStyle::Positional)?),
            }
            if !self.scanner.eat(",") {
                break;
            }
        }
        Ok(operands)
    }

    fn is_end(&mut self) -> bool {
        matches!(self.scanner.peek(), None | Some('\n' | '@' | '{' | '}'))
    }

    /// The name before `=`, if there is one.
    fn key(&mut self) -> Result<Option<String>> {
        let start = self.scanner.position();
        if let Some(word) = self.scanner.word()
            && self.scanner.eat("=")
        {
            return Ok(Some(word.to_string()));
        }
        self.scanner.go_back(start);
        Ok(None)
    }

    fn argument(
        &mut self,
        assembler: &mut GraphAssembler,
        style: ArgumentStyle,
    ) -> Result<Argument> {
        match self.scanner.peek() {
            Some('$' | '%') => return self.value(assembler).map(Argument::Value),
            Some('"') => return self.scanner.quoted().map(Argument::Str),
            Some('[') => return self.nested(|parser| parser.list(assembler, style)),
            _ => {}
        }
        let start = self.scanner.position();
        let text = self.scanner.until(",]@{}");
        if let (ArgumentStyle::DType, Ok(dtype)) = (style, text.parse::<DType>()) {
            return Ok(Argument::Number(Scalar::Int(dtype.torch_code())));
        }
        if text == "none" {
            return Ok(Argument::None);
        }
        if let Some(number) = number(text) {
            return Ok(Argument::Number(number));
        }
        if assembler.has_value(text) {
            return Ok(Argument::Value(assembler.value(text)?));
        }
        let size = text
            .strip_prefix("size(")
            .and_then(|rest| rest.strip_suffix(')'));
        let is_word = text
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '.');
        if size.is_none() && is_word && !assembler.has_size(text) {
            let message = format!("there is no value or size {text:?}");
            return Err(self.scanner.error_at(start, message));
        }
        let dim: Dim = self.scanner.locate(start, size.unwrap_or(text).parse())?;
        Ok(Argument::from(dim))
    }

    fn list(&mut self, assembler: &mut GraphAssembler, style: ArgumentStyle) -> Result<Argument> {
        self.items("[", "]", &mut |parser| parser.argument(assembler, style))
            .map(|(items, _)| Argument::List(items))
    }

    /// Items between brackets, and whether a trailing comma follows the last one.
    pub(super) fn items<T>(
        &mut self,
        open: &str,
        close: &str,
        read: &mut dyn FnMut(&mut Parser<'a>) -> Result<T>,
    ) -> Result<(Vec<T>, bool)> {
        self.scanner.expect(open)?;
        let (mut items, mut comma) = (Vec::new(), true);
        loop {
            self.scanner.skip_blank();
            if self.scanner.eat(close) {
                return Ok((items, comma));
            }
            if !comma {
                return Err(self.scanner.expected(&format!("\",\" or {close:?}")));
            }
            items.push(read(self)?);
            self.scanner.skip_blank();
            comma = self.scanner.eat(",");
        }
    }

    /// An attribute of a primitive as JSON.
    fn attribute(&mut self) -> Result<Json> {
        match self.scanner.peek() {
            Some('[') => self
                .items("[", "]", &mut |parser| parser.nested(Parser::attribute))
                .map(|(items, _)| Json::Array(items)),
            Some('{') => {
                let (fields, _) = self.items("{", "}", &mut |parser| {
                    let key = parser.scanner.name()?;
                    parser.scanner.expect("=")?;
                    Ok((key, parser.nested(Parser::attribute)?))
                })?;
                Ok(Json::Object(fields.into_iter().collect()))
            }
            Some('"') => self.scanner.quoted().map(Json::String),
            _ => {
                let text = self.scanner.until(",]@{}");
                Ok(match number(text) {
                    Some(Scalar::Bool(value)) => Json::Bool(value),
                    Some(Scalar::Int(value)) => value.into(),
                    _ if text.is_empty() => return Err(self.scanner.expected("a value")),
                    _ => Json::String(text.to_string()),
                })
            }
        }
    }
}
