use crate::dim::Dim;
use crate::error::{Error, Location, Result, SourcePlace};
use crate::scalar::Scalar;
use crate::shape::TensorType;

/// A position in a text, which moves forward while reading.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn go_back(&mut self, position: usize) {
        self.at = position;
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips whitespace and comments within a line.
    pub(super) fn skip_spaces(&mut self) {
        self.skip(|c| c.is_whitespace() && c != '\n');
    }

    /// Skips whitespace, comments and line ends.
    pub(super) fn skip_blank(&mut self) {
        self.skip(char::is_whitespace);
    }

    fn skip(&mut self, is_blank: impl Fn(char) -> bool + Copy) {
        loop {
            self.at = self.text.len() - self.rest().trim_start_matches(is_blank).len();
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// The next character after whitespace within the line.
    pub(super) fn peek(&mut self) -> Option<char> {
        self.skip_spaces();
        self.rest().chars().next()
    }

    /// Takes a token if it comes next after whitespace within the line.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.expected(&format!("{token:?}")))
        }
    }

    /// The error for unexpected text.
    pub(super) fn expected(&self, what: &str) -> Error {
        let found: String = self
            .rest()
            .chars()
            .take_while(|c| *c != '\n')
            .take(20)
            .collect();
        let found = match (found.is_empty(), self.rest().is_empty()) {
            (_, true) => "the end of the text".to_string(),
            (true, _) => "the end of the line".to_string(),
            _ => format!("{found:?}"),
        };
        self.error_at(self.at, format!("expected {what}, found {found}"))
    }

    /// An error with line and column, both counted from 1.
    pub(super) fn error_at(&self, position: usize, message: impl Into<String>) -> Error {
        let before = self.text.get(..position).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        Error::format(message).at(format!("line {line}, column {column}"))
    }

    /// Adds the position at which the text begins to an error of another parser.
    pub(super) fn locate<T>(&self, position: usize, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.error_at(position, error.to_string()))
    }

    /// A word of letters, digits, `_` and `.` that does not begin with a digit.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.skip_spaces();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(rest.len());
        let word = rest.get(..end)?;
        if !word.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return None;
        }
        self.at += end;
        Some(word)
    }

    /// A name: a word or quoted text.
    pub(super) fn name(&mut self) -> Result<String> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let word = self.word().map(str::to_string);
        word.ok_or_else(|| self.expected("a name"))
    }

    /// Quoted text with JSON's escapes.
    pub(super) fn quoted(&mut self) -> Result<String> {
        self.skip_spaces();
        let start = self.at;
        let mut escaped = false;
        let inside = self.rest().strip_prefix('"').unwrap_or_default();
        let end = inside.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.ok_or_else(|| self.expected("text in quotes"))?;
        self.at += end + 2;
        let text = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str(text).map_err(|error| self.error_at(start, error.to_string()))
    }

    /// The text up to one of the characters outside parentheses, a comment, or the end of the line.
    pub(super) fn until(&mut self, ends: &str) -> &'a str {
        self.skip_spaces();
        let rest = self.rest();
        let mut depth = 0usize;
        let end = rest.char_indices().find(|(index, c)| {
            let is_end = depth == 0 && ends.contains(*c);
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let comment = || {
                rest.get(*index..)
                    .is_some_and(|rest| rest.starts_with("//"))
            };
            is_end || *c == '\n' || comment()
        });
        let end = end.map_or(rest.len(), |(index, _)| index);
        self.at += end;
        rest.get(..end).unwrap_or_default().trim_end()
    }

    /// An integer.
    pub(super) fn integer(&mut self) -> Result<i64> {
        self.skip_spaces();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '-')
            .unwrap_or(rest.len());
        let digits = rest.get(..end).unwrap_or_default();
        let number = digits
            .parse()
            .map_err(|_| self.expected("a whole number"))?;
        self.at += end;
        Ok(number)
    }

    /// `f32[B, 3]`
    pub(super) fn tensor_type(&mut self) -> Result<TensorType> {
        self.skip_spaces();
        let start = self.at;
        let end = self
            .rest()
            .find(']')
            .ok_or_else(|| self.expected("a type"))?;
        let text = self.rest().get(..=end).unwrap_or_default();
        let ty = self.locate(start, text.parse())?;
        self.at += end + 1;
        Ok(ty)
    }

    /// A size up to one of the characters.
    pub(super) fn dim(&mut self, ends: &str) -> Result<Dim> {
        self.skip_spaces();
        let start = self.at;
        let text = self.until(ends);
        self.locate(start, text.parse())
    }

    /// `@ file:line (module)`, or nothing.
    pub(super) fn place(&mut self) -> Result<SourcePlace> {
        let mut place = SourcePlace::default();
        if !self.eat("@") {
            return Ok(place);
        }
        if self.peek() != Some('(') {
            place.location = Some(self.location()?);
        }
        if self.eat("(") {
            place.module = if self.peek() == Some('"') {
                self.quoted()?
            } else {
                let rest = self.rest();
                let end = rest.find([')', '\n']).unwrap_or(rest.len());
                self.at += end;
                rest.get(..end).unwrap_or_default().to_string()
            };
            self.expect(")")?;
        }
        Ok(place)
    }

    fn location(&mut self) -> Result<Location> {
        if self.peek() == Some('"') {
            let file = self.quoted()?;
            self.expect(":")?;
            let line = self.line_number()?;
            return Ok(Location::new(file, line));
        }
        let rest = self.rest();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let file = rest.get(..end).and_then(|text| text.rsplit_once(':'));
        let (file, _) = file.ok_or_else(|| self.expected("a place such as model.py:12"))?;
        self.at += file.len() + 1;
        let line = self.line_number()?;
        Ok(Location::new(file, line))
    }

    fn line_number(&mut self) -> Result<u32> {
        let start = self.at;
        let number = self.integer()?;
        u32::try_from(number)
            .map_err(|_| self.error_at(start, format!("{number} is not a line number")))
    }
}

/// `2`, `-0.5`, `nan`, `true`; `None` for other text.
pub(super) fn number(text: &str) -> Option<Scalar> {
    match text {
        "true" => Some(Scalar::Bool(true)),
        "false" => Some(Scalar::Bool(false)),
        "nan" => Some(Scalar::Float(f64::NAN)),
        "inf" => Some(Scalar::Float(f64::INFINITY)),
        "-inf" => Some(Scalar::Float(f64::NEG_INFINITY)),
        _ => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let integer = || text.parse().ok().map(Scalar::Int);
            let float = || text.parse().ok().map(Scalar::Float);
            let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
            is_number.then(|| integer().or_else(float))?
        }
    }
}
