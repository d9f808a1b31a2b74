//! Tokens of the serialised source: the subset of Python's tokens that TorchScript writes.

use std::fmt;

use crate::budget::Budget;
use crate::error::{Error, Result};

/// A token and its byte offset.
#[derive(Clone, Debug, PartialEq)]
pub struct Token<'a> {
    /// Byte offset in the file.
    pub offset: usize,
    /// The token itself.
    pub kind: TokenKind<'a>,
}

/// A token without its position.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind<'a> {
    /// An identifier or keyword.
    Name(&'a str),
    /// A qualified name that starts with `__torch__.`, as one token. Its components may hold characters that identifiers may
    /// not.
    Qualified(&'a str),
    /// A number without sign, as written.
    Number(&'a str),
    /// A string, its escapes resolved.
    Str(String),
    /// One of `()[]{},:.=-+^`.
    Punctuation(char),
    /// `->`.
    Arrow,
    /// End of a line outside of brackets.
    Newline,
    /// The following lines are indented further.
    Indent,
    /// The following lines are indented less, by one level.
    Dedent,
    /// End of the text.
    End,
}

/// Bytes that a token and its part of the syntax tree take.
const TOKEN_BYTES: u64 = 128;

/// Splits a file into tokens, which are charged to the budget. `file` is its name in messages. The last token is [`TokenKind::End`].
pub fn tokenize<'a>(file: &str, text: &'a str, budget: &Budget) -> Result<Vec<Token<'a>>> {
    let mut lexer = Lexer {
        file,
        text,
        position: 0,
        indents: vec![0],
        brackets: 0,
        tokens: Vec::new(),
        budget,
    };
    lexer.run()?;
    Ok(lexer.tokens)
}

/// Makes an error at a position in a file. Its help shows the line with a mark below the position.
pub fn error_at(file: &str, text: &str, offset: usize, message: impl Into<String>) -> Error {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(start..).unwrap_or_default();
    let line = line.lines().next().unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let column = before.get(start..).unwrap_or_default().chars().count();
    // A long line is shown from shortly before the position.
    let skipped = column.saturating_sub(LONGEST_LINE / 2);
    let shown: String = line.chars().skip(skipped).take(LONGEST_LINE).collect();
    let margin = " ".repeat(number.to_string().len());
    let mark = format!("{margin} | {}^", " ".repeat(column - skipped));
    Error::source(message)
        .at(format!("{file}:{number}:{}", column + 1))
        .help(format!("the line is\n{number} | {shown}\n{mark}"))
}

/// Number of characters of a line that an error shows.
const LONGEST_LINE: usize = 200;

struct Lexer<'a, 'b> {
    /// Name of the file in messages.
    file: &'b str,
    text: &'a str,
    /// Byte offset of the next character.
    position: usize,
    /// Widths of the indentations of the enclosing blocks, outermost first.
    indents: Vec<usize>,
    /// Number of open brackets. Line ends within brackets are ignored.
    brackets: usize,
    /// Tokens so far.
    tokens: Vec<Token<'a>>,
    budget: &'b Budget,
}

impl<'a> Lexer<'a, '_> {
    fn run(&mut self) -> Result<()> {
        self.indentation()?;
        while let Some(byte) = self.peek() {
            let before = self.tokens.len();
            self.token(byte)?;
            let count = self.tokens.len() - before;
            self.budget.charge_bytes(count as u64 * TOKEN_BYTES)?;
        }
        if !matches!(
            self.tokens.last(),
            None | Some(Token {
                kind: TokenKind::Newline,
                ..
            })
        ) {
            self.push(self.position, TokenKind::Newline);
        }
        for _ in 1..self.indents.len() {
            self.push(self.position, TokenKind::Dedent);
        }
        self.push(self.position, TokenKind::End);
        Ok(())
    }

    /// Reads a token, white space or a comment that starts with this byte.
    fn token(&mut self, byte: u8) -> Result<()> {
        let start = self.position;
        match byte {
            b' ' | b'\t' | b'\r' => self.position += 1,
            b'#' => self.skip(|byte| byte != b'\n'),
            b'\n' => return self.newline(),
            b'"' | b'\'' => return self.string(byte),
            b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.name(),
            b'-' if self
                .text
                .get(start..)
                .is_some_and(|rest| rest.starts_with("->")) =>
            {
                self.position += 2;
                self.push(start, TokenKind::Arrow);
            }
            _ => return self.punctuation(byte),
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn push(&mut self, offset: usize, kind: TokenKind<'a>) {
        self.tokens.push(Token { offset, kind });
    }

    /// Skips bytes for as long as they meet a condition.
    fn skip(&mut self, while_true: impl Fn(u8) -> bool) {
        let rest = self
            .text
            .as_bytes()
            .get(self.position..)
            .unwrap_or_default();
        self.position += rest.iter().take_while(|byte| while_true(**byte)).count();
    }

    /// The text from an offset to the position.
    fn slice_from(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }

    fn error<T>(&self, offset: usize, message: impl Into<String>) -> Result<T> {
        Err(error_at(self.file, self.text, offset, message))
    }

    fn newline(&mut self) -> Result<()> {
        let offset = self.position;
        self.position += 1;
        if self.brackets > 0 {
            return Ok(());
        }
        self.push(offset, TokenKind::Newline);
        self.indentation()
    }

    /// Skips blank lines and measures the indentation of the first line that is not blank.
    fn indentation(&mut self) -> Result<()> {
        let mut start = self.position;
        loop {
            self.skip(|byte| byte == b' ');
            match self.peek() {
                Some(b'\n') => self.position += 1,
                Some(b'\r') if self.text.as_bytes().get(self.position + 1) == Some(&b'\n') => {
                    self.position += 2;
                }
                Some(b'#') => self.skip(|byte| byte != b'\n'),
                Some(_) => break,
                None => return Ok(()),
            }
            if self.text.as_bytes().get(self.position.wrapping_sub(1)) == Some(&b'\n') {
                start = self.position;
            }
        }
        self.indent(self.position - start)
    }

    /// Adds the tokens for a line that is indented by `width` spaces.
    fn indent(&mut self, width: usize) -> Result<()> {
        let offset = self.position;
        if self.indents.last().is_some_and(|last| *last < width) {
            self.indents.push(width);
            self.push(offset, TokenKind::Indent);
        }
        while self.indents.last().is_some_and(|last| *last > width) {
            self.indents.pop();
            self.push(offset, TokenKind::Dedent);
        }
        if self.indents.last() != Some(&width) {
            return self.error(
                offset,
                "the indentation of this line matches no enclosing block",
            );
        }
        Ok(())
    }

    fn name(&mut self) {
        let start = self.position;
        self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80);
        let name = self.slice_from(start);
        if name == "__torch__" && self.peek() == Some(b'.') {
            self.skip(|byte| !b" ,()[]{}:=\"'\r\n\t".contains(&byte));
            return self.push(start, TokenKind::Qualified(self.slice_from(start)));
        }
        self.push(start, TokenKind::Name(name));
    }

    fn number(&mut self) {
        let start = self.position;
        self.skip(|byte| byte.is_ascii_digit() || byte == b'.');
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
        }
        // Letters belong to the number: `1j` is an imaginary part, and `1x` is one malformed number rather than two tokens.
        self.skip(|byte| byte.is_ascii_alphanumeric());
        self.push(start, TokenKind::Number(self.slice_from(start)));
    }

    fn punctuation(&mut self, byte: u8) -> Result<()> {
        match byte {
            b'(' | b'[' | b'{' => self.brackets += 1,
            b')' | b']' | b'}' => self.brackets = self.brackets.saturating_sub(1),
            b',' | b':' | b'.' | b'=' | b'-' | b'+' | b'^' => {}
            _ => {
                let message = format!("unexpected character {:?}", char::from(byte));
                return self.error(self.position, message);
            }
        }
        self.push(self.position, TokenKind::Punctuation(char::from(byte)));
        self.position += 1;
        Ok(())
    }

    fn string(&mut self, quote: u8) -> Result<()> {
        let start = self.position;
        self.position += 1;
        let mut bytes = Vec::new();
        loop {
            let start_of_run = self.position;
            self.skip(|byte| byte != quote && byte != b'\\' && byte != b'\n');
            bytes.extend_from_slice(self.slice_from(start_of_run).as_bytes());
            match self.peek() {
                Some(b'\\') => bytes.push(self.escape()?),
                Some(byte) if byte == quote => break,
                _ => return self.error(start, "this string does not end"),
            }
        }
        self.position += 1;
        match String::from_utf8(bytes) {
            Ok(text) => self.push(start, TokenKind::Str(text)),
            Err(_) => return self.error(start, "this string is not UTF-8"),
        }
        Ok(())
    }

    /// Reads an escape in a string. Returns the byte that it stands for.
    fn escape(&mut self) -> Result<u8> {
        let start = self.position;
        self.position += 2;
        let letter = self.text.as_bytes().get(start + 1).copied();
        Ok(match letter {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b'v') => 11,
            Some(b'f') => 12,
            Some(byte @ (b'\\' | b'"' | b'\'')) => byte,
            Some(b'x') => return self.numeric_escape(start, 16, 2),
            Some(b'0'..=b'7') => {
                self.position -= 1;
                return self.numeric_escape(start, 8, 3);
            }
            _ => return self.error(start, "unknown escape"),
        })
    }

    /// Parses the digits of an escaped byte: at most `digits` digits of the base. `start` is the offset of the escape.
    fn numeric_escape(&mut self, start: usize, base: u32, digits: usize) -> Result<u8> {
        let first = self.position;
        while self.position < first + digits
            && self
                .peek()
                .is_some_and(|byte| char::from(byte).is_digit(base))
        {
            self.position += 1;
        }
        match u8::from_str_radix(self.slice_from(first), base) {
            Ok(code) => Ok(code),
            Err(_) => self.error(
                start,
                "this escape is not a byte: expected \\xHH or octal digits up to \\377",
            ),
        }
    }
}

impl fmt::Display for TokenKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenKind::Name(name) | TokenKind::Qualified(name) => write!(f, "`{name}`"),
            TokenKind::Number(number) => write!(f, "`{number}`"),
            TokenKind::Str(text) => write!(f, "{text:?}"),
            TokenKind::Punctuation(sign) => write!(f, "`{sign}`"),
            TokenKind::Arrow => f.write_str("`->`"),
            TokenKind::Newline => f.write_str("the end of the line"),
            TokenKind::Indent => f.write_str("an indented line"),
            TokenKind::Dedent => f.write_str("the end of the block"),
            TokenKind::End => f.write_str("the end of the file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let kinds = tokenize("t.py", text, &Budget::default()).unwrap();
        let names: Vec<_> = kinds.iter().map(|token| token.kind.to_string()).collect();
        names.join(" ").replace('`', "")
    }

    #[test]
    fn blocks_and_brackets() {
        let text = "a:\n  b = (1,\n    -2.)\n\n  # note\nc";
        let expected = "a : the end of the line an indented line b = ( 1 , - 2. ) the end of the line \
            the end of the block c the end of the line the end of the file";
        assert_eq!(show(text), expected);
    }

    #[test]
    fn qualified_names_may_hold_odd_characters() {
        let list = tokenize("t.py", "x = __torch__.<run_path>.f", &Budget::default()).unwrap();
        assert_eq!(list[2].kind, TokenKind::Qualified("__torch__.<run_path>.f"));
        let list = tokenize("t.py", "__torch__.<eval>.a-b.C(x)", &Budget::default()).unwrap();
        assert_eq!(list[0].kind, TokenKind::Qualified("__torch__.<eval>.a-b.C"));
    }

    #[test]
    fn escapes() {
        let list = tokenize("t.py", r#""a\n\"\\\x41\101\0é""#, &Budget::default()).unwrap();
        assert_eq!(list[0].kind, TokenKind::Str("a\n\"\\AA\0é".into()));
    }

    #[test]
    fn errors_show_the_line() {
        let error = tokenize("t.py", "ab\nx = $", &Budget::default()).unwrap_err();
        assert_eq!(error.to_string(), "unexpected character '$' — at t.py:2:5");
        assert_eq!(error.advice(), Some("the line is\n2 | x = $\n  |     ^"));
        for text in [
            "\"",
            "\"\\",
            "\"\\q\"",
            "\"\\x\"",
            "\"\\777\"",
            "a:\n   b\n  c",
            "\"\\xff\"",
        ] {
            assert!(
                tokenize("t.py", text, &Budget::default()).is_err(),
                "{text}"
            );
        }
    }
}
