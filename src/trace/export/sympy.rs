//! Expressions of SymPy on sizes, as its constructors (`Mul(Integer(2), Symbol('s0', integer=True))`) or as formulas (`2*s0`).

use crate::error::{Error, Result};

/// Deepest nesting of an expression.
const MAX_DEPTH: usize = 64;

/// An expression on symbols.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeExpr {
    /// An integer.
    Integer(i64),
    /// A symbol by name.
    Symbol(String),
    /// A function of expressions: `Add`, `Mul`, `FloorDiv`, `Mod`, `Pow`, `Max`, `Min`.
    Function(String, Vec<SizeExpr>),
}

impl SizeExpr {
    /// Parses a text.
    ///
    /// # Errors
    /// The text is no expression of integers and symbols.
    pub fn parse(text: &str) -> Result<SizeExpr> {
        let mut parser = Parser {
            rest: text,
            depth: 0,
        };
        let expr = parser.sum();
        let is_whole = parser.rest.trim_start().is_empty();
        expr.filter(|_| is_whole)
            .ok_or_else(|| Error::unsupported(format!("the size {text}")))
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    /// Takes a token from the beginning. Returns false if it is not there.
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    /// `a + b - c`
    fn sum(&mut self) -> Option<SizeExpr> {
        self.depth += 1;
        if MAX_DEPTH < self.depth {
            return None;
        }
        let mut sum = self.product()?;
        loop {
            if self.take("+") {
                sum = function("Add", sum, self.product()?);
            } else if self.take("-") {
                let negative = function("Mul", SizeExpr::Integer(-1), self.product()?);
                sum = function("Add", sum, negative);
            } else {
                self.depth -= 1;
                return Some(sum);
            }
        }
    }

    /// `a*b//c%d`
    fn product(&mut self) -> Option<SizeExpr> {
        let mut product = self.power()?;
        loop {
            let name = if self.take("//") {
                "FloorDiv"
            } else if self.take("*") {
                "Mul"
            } else if self.take("%") {
                "Mod"
            } else {
                return Some(product);
            };
            product = function(name, product, self.power()?);
        }
    }

    /// `a**b`
    fn power(&mut self) -> Option<SizeExpr> {
        let base = self.atom()?;
        match self.take("**") {
            true => Some(function("Pow", base, self.atom()?)),
            false => Some(base),
        }
    }

    fn atom(&mut self) -> Option<SizeExpr> {
        if self.take("(") {
            let inner = self.sum()?;
            return self.take(")").then_some(inner);
        }
        if self.take("-") {
            return Some(function("Mul", SizeExpr::Integer(-1), self.atom()?));
        }
        let word = self.word();
        match word.chars().next()? {
            first if first.is_ascii_digit() => word.parse().ok().map(SizeExpr::Integer),
            _ if self.take("(") => self.call(word),
            _ => Some(SizeExpr::Symbol(word)),
        }
    }

    /// The arguments of a function, whose opening parenthesis was taken.
    fn call(&mut self, name: String) -> Option<SizeExpr> {
        if name == "Symbol" {
            return self.symbol();
        }
        let mut arguments = Vec::new();
        while !self.take(")") {
            arguments.push(self.sum()?);
            self.take(",");
        }
        match (name.as_str(), arguments.as_slice()) {
            ("Integer", [single]) => Some(single.clone()),
            _ => Some(SizeExpr::Function(name, arguments)),
        }
    }

    /// `'s0', positive=True, integer=True)`
    fn symbol(&mut self) -> Option<SizeExpr> {
        let quote = ["'", "\""].into_iter().find(|quote| self.take(quote))?;
        let (name, rest) = self.rest.split_once(quote)?;
        let (_, after) = rest.split_once(')')?;
        self.rest = after;
        Some(SizeExpr::Symbol(name.to_string()))
    }

    /// A number or a name; empty if there is neither.
    fn word(&mut self) -> String {
        let rest = self.rest.trim_start();
        let is_outside = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = rest.find(is_outside).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        word.to_string()
    }
}

fn function(name: &str, a: SizeExpr, b: SizeExpr) -> SizeExpr {
    SizeExpr::Function(name.to_string(), vec![a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_notations_are_equal() {
        let pairs = [
            (
                "2*s0",
                "Mul(Integer(2), Symbol('s0', positive=True, integer=True))",
            ),
            ("s1", "Symbol('s1', integer=True)"),
            ("s0 + -1", "Add(Symbol('s0'), Integer(-1))"),
            (
                "(s0 - 1)//2",
                "FloorDiv(Add(Symbol('s0'), Integer(-1)), Integer(2))",
            ),
        ];
        let simplify = |text: &str| format!("{:?}", SizeExpr::parse(text).unwrap());
        assert_eq!(simplify(pairs[0].0), simplify(pairs[0].1));
        assert_eq!(simplify(pairs[1].0), simplify(pairs[1].1));
        for (formula, constructors) in pairs {
            assert!(SizeExpr::parse(formula).is_ok() && SizeExpr::parse(constructors).is_ok());
        }
        for malformed in ["", "2*", "Symbol(s0)", "f(", "a b", &"(".repeat(1000)] {
            assert!(SizeExpr::parse(malformed).is_err(), "{malformed}");
        }
    }
}
