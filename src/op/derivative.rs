//! Formulas of derivatives, a column in the tables of scalar functions.
//!
//! A formula is arithmetic on the operands `x` and `y`, the result `r`, numbers and scalar functions by name:
//! `select(eq(x, 0), 0, r / x)`. The conventions at kinks and poles are those of PyTorch's `derivatives.yaml`
//! (`tools/autograd`).

use super::{BinaryFunction, UnaryFunction};
use crate::error::{Error, Result};

/// Marks an operand for which PyTorch defines no derivative, in the tables.
pub(super) const UNDEFINED: &str = "undefined";

/// Deepest nesting of a formula, far beyond what the tables have.
const MAX_DEPTH: usize = 32;

/// The derivative of a scalar function with respect to one operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Derivative {
    /// A number.
    Number(f64),
    /// The operand with this index.
    Operand(usize),
    /// The result of the function.
    Result,
    /// A function of one argument.
    Unary(UnaryFunction, Box<Derivative>),
    /// A function of two arguments.
    Binary(BinaryFunction, Box<[Derivative; 2]>),
    /// The second argument where the first is true, else the third.
    Select(Box<[Derivative; 3]>),
}

impl Derivative {
    /// Parses an entry of a table; `None` if it says that there is no derivative.
    pub(super) fn parse(text: &str) -> Result<Option<Derivative>> {
        if text == UNDEFINED {
            return Ok(None);
        }
        let mut parser = Parser {
            text,
            rest: text,
            depth: 0,
        };
        let formula = parser.sum()?;
        match parser.rest.trim_start() {
            "" => Ok(Some(formula)),
            _ => Err(parser.fault()),
        }
    }
}

/// A parser by recursive descent.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn fault(&self) -> Error {
        Error::internal(format!(
            "the derivative {:?} is wrong at {:?}",
            self.text, self.rest
        ))
    }

    /// Removes a token from the rest, if it is next.
    fn take(&mut self, token: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: char) -> Result<()> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.fault()),
        }
    }

    /// Removes and returns the longest word of characters that `belongs` accepts.
    fn word(&mut self, belongs: fn(char) -> bool) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        word
    }

    fn sum(&mut self) -> Result<Derivative> {
        let mut sum = self.product()?;
        loop {
            let function = match (self.take('+'), self.take('-')) {
                (true, _) => BinaryFunction::Add,
                (_, true) => BinaryFunction::Sub,
                _ => return Ok(sum),
            };
            sum = Derivative::Binary(function, Box::new([sum, self.product()?]));
        }
    }

    fn product(&mut self) -> Result<Derivative> {
        let mut product = self.factor()?;
        loop {
            let function = match (self.take('*'), self.take('/')) {
                (true, _) => BinaryFunction::Mul,
                (_, true) => BinaryFunction::Div,
                _ => return Ok(product),
            };
            product = Derivative::Binary(function, Box::new([product, self.factor()?]));
        }
    }

    fn factor(&mut self) -> Result<Derivative> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault());
        }
        let factor = self.signed_factor();
        self.depth -= 1;
        factor
    }

    fn signed_factor(&mut self) -> Result<Derivative> {
        if self.take('-') {
            return Ok(match self.factor()? {
                Derivative::Number(number) => Derivative::Number(-number),
                other => Derivative::Unary(UnaryFunction::Neg, Box::new(other)),
            });
        }
        if self.take('(') {
            let sum = self.sum()?;
            return self.expect(')').map(|()| sum);
        }
        let number = self.word(|c| c.is_ascii_digit() || c == '.');
        if !number.is_empty() {
            return number
                .parse()
                .map(Derivative::Number)
                .map_err(|_| self.fault());
        }
        match self.word(|c| c.is_ascii_alphanumeric() || c == '_') {
            "x" => Ok(Derivative::Operand(0)),
            "y" => Ok(Derivative::Operand(1)),
            "r" => Ok(Derivative::Result),
            name => self.call(name),
        }
    }

    /// Parses the arguments of the function `name`.
    fn call(&mut self, name: &str) -> Result<Derivative> {
        self.expect('(')?;
        let mut arguments = vec![self.sum()?];
        while self.take(',') {
            arguments.push(self.sum()?);
        }
        self.expect(')')?;
        let unary = UnaryFunction::ALL.iter().find(|f| f.name() == name);
        let binary = BinaryFunction::ALL.iter().find(|f| f.name() == name);
        let formula = match (unary, binary, arguments.len()) {
            (Some(function), _, 1) => arguments
                .pop()
                .map(|x| Derivative::Unary(*function, Box::new(x))),
            (_, Some(function), 2) => {
                let pair = arguments.try_into().ok();
                pair.map(|pair: [Derivative; 2]| Derivative::Binary(*function, Box::new(pair)))
            }
            _ if name == "select" => {
                let three = arguments.try_into().ok();
                three.map(|three: [Derivative; 3]| Derivative::Select(Box::new(three)))
            }
            _ => None,
        };
        formula.ok_or_else(|| self.fault())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_derivative_of_the_tables_parses() {
        for function in UnaryFunction::ALL {
            let formula = function.derivative();
            assert!(formula.is_ok(), "{}: {formula:?}", function.name());
        }
        for (function, operand) in BinaryFunction::ALL.iter().flat_map(|f| [(f, 0), (f, 1)]) {
            let formula = function.derivative(operand);
            assert!(formula.is_ok(), "{}: {formula:?}", function.name());
        }
    }

    #[test]
    fn formulas_follow_the_rules_of_arithmetic() {
        let formula = Derivative::parse("1 - x * -2 / (r + y)").unwrap().unwrap();
        let number = Derivative::Number;
        let pair = |function, a, b| Derivative::Binary(function, Box::new([a, b]));
        let product = pair(BinaryFunction::Mul, Derivative::Operand(0), number(-2.0));
        let sum = pair(
            BinaryFunction::Add,
            Derivative::Result,
            Derivative::Operand(1),
        );
        let quotient = pair(BinaryFunction::Div, product, sum);
        assert_eq!(formula, pair(BinaryFunction::Sub, number(1.0), quotient));
        assert_eq!(Derivative::parse(UNDEFINED).unwrap(), None);
        for wrong in ["", "x +", "tanh", "tanh(x, y)", "z", "x)", &"(".repeat(100)] {
            assert!(Derivative::parse(wrong).is_err(), "{wrong}");
        }
    }
}
