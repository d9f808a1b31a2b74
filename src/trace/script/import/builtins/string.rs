//! Builtin operators on strings.

use crate::error::{Error, Result};

use crate::trace::script::import::Importer;
use crate::trace::script::import::call::Arguments;
use crate::trace::script::import::datum::Datum;
use crate::trace::script::import::number::ScriptNumber;

impl Importer<'_> {
    /// Evaluates an operator on a string; none for other operators.
    pub(super) fn string(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let [Datum::Str(text), rest @ ..] = arguments.positional.as_slice() else {
            return Ok(None);
        };
        let result = match (name, rest) {
            ("format", values) => Datum::str(&self.formatted(text, values)?),
            ("percentFormat", _) => Datum::Str(text.clone()),
            ("len", _) => Datum::int(text.chars().count()),
            ("lower", _) => Datum::str(&text.to_lowercase()),
            ("upper", _) => Datum::str(&text.to_uppercase()),
            ("strip" | "lstrip" | "rstrip", []) => stripped(name, text, STRIPPED),
            ("strip" | "lstrip" | "rstrip", [Datum::Str(chars)]) => stripped(name, text, chars),
            ("isdigit" | "isdecimal" | "isnumeric", []) => every(text, u8::is_ascii_digit),
            ("isalpha", []) => every(text, u8::is_ascii_alphabetic),
            ("isalnum", []) => every(text, u8::is_ascii_alphanumeric),
            ("isspace", []) => every(text, |c| b" \t\n\x0b\x0c\r".contains(c)),
            ("ord", _) => Datum::int(text.chars().next().map_or(0, |c| i64::from(u32::from(c)))),
            ("add", [Datum::Str(other)]) => {
                self.budget.check_length(text.len() + other.len())?;
                Datum::str(&format!("{text}{other}"))
            }
            ("mul", [Datum::Number(ScriptNumber::Int(times))]) => {
                let times = times
                    .as_const()
                    .and_then(|times| usize::try_from(times).ok());
                let times = times.unwrap_or(0);
                self.budget.check_length(text.len().saturating_mul(times))?;
                Datum::str(&text.repeat(times))
            }
            ("eq", [Datum::Str(other)]) => Datum::bool(text == other),
            ("ne", [Datum::Str(other)]) => Datum::bool(text != other),
            ("startswith", [Datum::Str(other)]) => Datum::bool(text.starts_with(&**other)),
            ("endswith", [Datum::Str(other)]) => Datum::bool(text.ends_with(&**other)),
            ("__contains__", [Datum::Str(other)]) => Datum::bool(text.contains(&**other)),
            ("find", [Datum::Str(other), bounds @ ..]) => self.find_text(text, other, bounds)?,
            ("replace", [Datum::Str(from), Datum::Str(to)]) => {
                let occurrences = text.matches(&**from).count();
                let length = occurrences
                    .saturating_mul(to.len())
                    .saturating_add(text.len());
                self.budget.check_length(length)?;
                Datum::str(&text.replace(&**from, to))
            }
            ("join", [list]) => {
                let items = list.items().unwrap_or_default();
                let items: Vec<String> = items.iter().map(|item| self.display(item)).collect();
                self.budget
                    .check_length(items.iter().map(|item| item.len() + text.len()).sum())?;
                Datum::str(&items.join(text))
            }
            ("split", [Datum::Str(separator), max_splits @ ..]) => {
                let max_splits = max_splits
                    .first()
                    .map(|max_splits| self.known_index(max_splits))
                    .transpose()?;
                self.list(split(text, separator, max_splits.unwrap_or(-1))?)
            }
            // Without a separator, PyTorch ignores the argument `max`.
            ("split", [] | [Datum::None, ..]) => {
                self.list(text.split_whitespace().map(Datum::str).collect())
            }
            ("__getitem__", [index]) => {
                return self.subscript(&Datum::Str(text.clone()), index).map(Some);
            }
            _ => return Ok(None),
        };
        Ok(Some(result))
    }

    /// `text.find(wanted, start, end)`. Unlike in Python, bounds count bytes, and an end of -1 is the end of the text.
    fn find_text(&mut self, text: &str, wanted: &str, bounds: &[Datum]) -> Result<Datum> {
        let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let mut bound = |index: usize, default: i64, from_end: i64| {
            let given = bounds.get(index).map(|bound| self.known_index(bound));
            let bound = given.transpose()?.unwrap_or(default);
            let bound = if bound < 0 { bound + from_end } else { bound };
            Ok(usize::try_from(bound.clamp(0, length)).unwrap_or(0))
        };
        let (start, end) = (bound(0, 0, length)?, bound(1, -1, length + 1)?);
        let position = text.get(start..end).and_then(|range| range.find(wanted));
        let result = position.and_then(|position| i64::try_from(start + position).ok());
        Ok(Datum::int(result.unwrap_or(-1)))
    }

    /// `"{} and {}".format(…)`
    fn formatted(&self, text: &str, values: &[Datum]) -> Result<String> {
        let mut literals = text.split("{}");
        let mut result = literals.next().unwrap_or_default().to_string();
        let mut values = values.iter();
        for literal in literals {
            match values.next() {
                Some(value) => result.push_str(&self.display(value)),
                None => result.push_str("{}"),
            }
            result.push_str(literal);
            self.budget.check_length(result.len())?;
        }
        Ok(result)
    }

    /// Formats a value like Python's `str`. A number that is not known is shown as its type.
    pub(in crate::trace::script::import) fn display(&self, value: &Datum) -> String {
        match value {
            Datum::None => "None".to_string(),
            Datum::Number(ScriptNumber::Bool(true)) => "True".to_string(),
            Datum::Number(ScriptNumber::Bool(false)) => "False".to_string(),
            Datum::Number(ScriptNumber::Int(dim)) => dim.to_string(),
            Datum::Number(ScriptNumber::Float(value)) => format!("{value:?}"),
            Datum::Number(ScriptNumber::Ratio(size, by)) => format!("({size}) / {by}"),
            Datum::Str(text) | Datum::Device(text) => text.to_string(),
            Datum::List(list) => {
                let items = list.items.borrow();
                let items: Vec<String> = items.iter().map(|item| self.display(item)).collect();
                format!("[{}]", items.join(", "))
            }
            other => format!("<{}>", other.describe()),
        }
    }

    /// `text[index]`
    pub(super) fn character(&self, text: &str, index: i64) -> Result<Datum> {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let index = if index < 0 { index + length } else { index };
        let position = usize::try_from(index).ok();
        let found = position.and_then(|position| text.chars().nth(position));
        let missing = || Error::source(format!("{text:?} has no character {index}"));
        Ok(Datum::str(&found.ok_or_else(missing)?.to_string()))
    }
}

/// Characters that `strip` removes by default, from the schema of `aten::strip`.
const STRIPPED: &str = " \n\t\x0c\x0b";

/// `text.strip(chars)`, `lstrip` or `rstrip`.
fn stripped(name: &str, text: &str, chars: &str) -> Datum {
    let is_stripped = |c: char| chars.contains(c);
    Datum::str(match name {
        "lstrip" => text.trim_start_matches(is_stripped),
        "rstrip" => text.trim_end_matches(is_stripped),
        _ => text.trim_matches(is_stripped),
    })
}

/// A `bool`: true if a text is not empty and every byte passes.
fn every(text: &str, passes: impl Fn(&u8) -> bool) -> Datum {
    Datum::bool(!text.is_empty() && text.as_bytes().iter().all(passes))
}

/// `text.split(separator, max_splits)`. A negative number is no limit.
fn split(text: &str, separator: &str, max_splits: i64) -> Result<Vec<Datum>> {
    if separator.is_empty() {
        return Err(Error::source("ValueError: empty separator"));
    }
    Ok(match usize::try_from(max_splits) {
        Ok(max_splits) => text
            .splitn(max_splits.saturating_add(1), separator)
            .map(Datum::str)
            .collect(),
        Err(_) => text.split(separator).map(Datum::str).collect(),
    })
}
