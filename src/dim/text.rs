//! Sizes as text: `2*B + 1`, `floordiv(a, b)`, `min(a, b)`, `max(a, b)`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Dim, DimAtom, DimRepr};
use crate::budget;
use crate::error::{Error, Result};

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = match &self.0 {
            DimRepr::Const(value) => return write!(f, "{value}"),
            DimRepr::Sum(sum) => sum,
        };
        for (index, (product, coefficient)) in sum.terms.iter().enumerate() {
            let sign = if *coefficient < 0 { "-" } else { "+" };
            match (index, sign) {
                (0, "-") => f.write_str("-")?,
                (0, _) => {}
                _ => write!(f, " {sign} ")?,
            }
            if coefficient.abs() != 1 {
                write!(f, "{}*", coefficient.unsigned_abs())?;
            }
            for (position, atom) in product.iter().enumerate() {
                if position > 0 {
                    f.write_str("*")?;
                }
                write!(f, "{atom}")?;
            }
        }
        match sum.constant {
            0 => Ok(()),
            constant if constant < 0 => write!(f, " - {}", constant.unsigned_abs()),
            constant => write!(f, " + {constant}"),
        }
    }
}

impl fmt::Display for DimAtom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimAtom::Symbol(name) => f.write_str(name),
            DimAtom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            DimAtom::Min(a, b) => write!(f, "min({a}, {b})"),
            DimAtom::Max(a, b) => write!(f, "max({a}, {b})"),
        }
    }
}

impl Dim {
    /// The size as a Rust expression in which each symbol is a variable: `&B * 2 + 1`, `&B` alone, `3`.
    pub fn rust_expression(&self) -> String {
        let sum = match &self.0 {
            DimRepr::Const(value) => return value.to_string(),
            DimRepr::Sum(sum) => sum,
        };
        let term = |(product, coefficient): &(Vec<DimAtom>, i64)| {
            let factors: Vec<String> = match product.as_slice() {
                [factor] => vec![factor.rust_expression()],
                factors => factors.iter().map(DimAtom::rust_factor).collect(),
            };
            let factors = factors.join(" * ");
            match coefficient {
                1 => factors,
                _ => format!("{factors} * {coefficient}"),
            }
        };
        let terms: Vec<String> = sum.terms.iter().map(term).collect();
        match sum.constant {
            0 => terms.join(" + "),
            constant => format!("{} + {constant}", terms.join(" + ")),
        }
    }

    /// The size as a Rust expression of the type `&Size`.
    fn rust_size(&self) -> String {
        match self.as_const() {
            Some(value) => format!("&Size::from({value})"),
            None => self.rust_reference(),
        }
    }

    /// The size as a Rust expression for a number or a reference.
    fn rust_reference(&self) -> String {
        match (self.as_const(), self.as_symbol()) {
            (Some(value), _) => value.to_string(),
            (_, Some(_)) => self.rust_expression(),
            _ => format!("&({})", self.rust_expression()),
        }
    }
}

impl DimAtom {
    /// The source of a factor of a product.
    fn rust_factor(&self) -> String {
        match self {
            DimAtom::FloorDiv(..) => format!("({})", self.rust_expression()),
            _ => self.rust_expression(),
        }
    }

    fn rust_expression(&self) -> String {
        let (function, a, b) = match self {
            DimAtom::Symbol(name) => return format!("&{name}"),
            DimAtom::FloorDiv(a, b) => {
                return format!("{} / {}", a.rust_reference(), b.rust_reference());
            }
            DimAtom::Min(a, b) => ("min", a, b),
            DimAtom::Max(a, b) => ("max", a, b),
        };
        format!(
            "Size::{function}({}, {})",
            a.rust_size(),
            b.rust_reference()
        )
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Dim {
    type Err = Error;

    /// Sums and products of numbers, names, `floordiv(a, b)`, `min(a, b)`, `max(a, b)` and parentheses.
    fn from_str(text: &str) -> Result<Dim> {
        let mut parser = Parser {
            rest: text,
            depth: 0,
        };
        let dim = parser.sum()?;
        match parser.peek() {
            None => Ok(dim),
            Some(_) => Err(Error::format(format!(
                "unexpected {:?} in the size {text:?}",
                parser.rest
            ))),
        }
    }
}

/// Maximal nesting depth, so that no input exhausts the stack.
const MAX_DEPTH: usize = 64;

/// Maximal number of terms and factors of a size when it is multiplied out, so that no input exhausts memory or time: sizes
/// of large models have dozens.
const MAX_COMPLEXITY: usize = 512;

fn check_complexity(complexity: usize) -> Result<()> {
    match complexity <= MAX_COMPLEXITY {
        true => Ok(()),
        false => Err(Error::format(
            "a size is too long when it is multiplied out",
        )),
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = self.rest.get(wanted.len_utf8()..).unwrap_or_default();
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        if self.eat(wanted) {
            Ok(())
        } else {
            Err(Error::format(format!(
                "expected {wanted:?} before {:?} in a size",
                self.rest
            )))
        }
    }

    fn sum(&mut self) -> Result<Dim> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::format("a size is nested too deeply"));
        }
        let mut total = if self.eat('-') {
            -&self.product()?
        } else {
            self.product()?
        };
        loop {
            if self.eat('+') {
                total = total + self.product()?;
            } else if self.eat('-') {
                total = total - self.product()?;
            } else {
                self.depth -= 1;
                budget::charge_sizes(total.complexity())?;
                return Ok(total);
            }
            check_complexity(total.complexity())?;
        }
    }

    fn product(&mut self) -> Result<Dim> {
        let mut total = self.factor()?;
        while self.eat('*') {
            let factor = self.factor()?;
            check_complexity(total.complexity().saturating_mul(factor.complexity()))?;
            total = total * factor;
        }
        Ok(total)
    }

    fn factor(&mut self) -> Result<Dim> {
        if self.eat('(') {
            let inner = self.sum()?;
            self.expect(')')?;
            return Ok(inner);
        }
        let word = self.word()?;
        if let Ok(value) = word.parse::<i64>() {
            return Ok(Dim::from(value));
        }
        if !word.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Err(Error::format(format!("{word:?} is not a size")));
        }
        if !self.eat('(') {
            return Ok(Dim::symbol(word.as_str()));
        }
        let first = self.sum()?;
        self.expect(',')?;
        let second = self.sum()?;
        self.expect(')')?;
        match word.as_str() {
            "floordiv" => Ok(first.floor_div(&second)),
            "min" => Ok(first.minimum(&second)),
            "max" => Ok(first.maximum(&second)),
            _ => Err(Error::format(format!("{word} is not a function of sizes"))),
        }
    }

    fn word(&mut self) -> Result<String> {
        self.peek();
        let end = self
            .rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(Error::format(format!(
                "expected a size before {:?}",
                self.rest
            )));
        }
        self.rest = rest;
        Ok(word.to_string())
    }
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.as_const() {
            Some(value) => serializer.serialize_i64(value),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Dim, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum NumberOrText {
            Number(i64),
            Text(String),
        }
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Number(value) => Ok(Dim::from(value)),
            NumberOrText::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
