//! Expressions on sizes: formulas of SymPy (`2*s0`), also as its constructors (`Mul(Integer(2), Symbol('s0', integer=True))`), and
//! conditions of Python on the inputs, as `guards_code` has them (`L['x'].size()[0] % 2 == 0`).

use crate::error::{Error, Result};

/// Deepest nesting of an expression.
const MAX_DEPTH: usize = 64;
/// Most operations of an expression; a sum of many terms nests as deep as it is long.
const MAX_OPERATIONS: usize = 512;

/// An expression on sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeExpr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A symbol by name.
    Symbol(String),
    /// The size of an input along an axis: the keys to the input (`x`, then those within its structure), and the axis.
    Size(Vec<String>, i64),
    /// A call of a function by its name in Python or SymPy: `math.trunc`, `_operator.add`, `FloorDiv`.
    Call(String, Vec<SizeExpr>),
    /// A condition, the value if it holds, and the value otherwise.
    Choice(Box<[SizeExpr; 3]>),
}

impl SizeExpr {
    /// Parses a text.
    ///
    /// # Errors
    /// It has parts that are not known here, or is too large.
    pub fn parse(text: &str) -> Result<SizeExpr> {
        let mut parser = Parser {
            rest: text,
            depth: 0,
            operations: 0,
        };
        let expr = parser.choice();
        let is_whole = parser.rest.trim_start().is_empty();
        expr.filter(|_| is_whole)
            .ok_or_else(|| Error::unsupported(format!("the expression {text} on sizes")))
    }
}

/// Comparisons, the longer ones first.
const COMPARISONS: [(&str, &str); 6] = [
    ("==", "_operator.eq"),
    ("!=", "_operator.ne"),
    ("<=", "_operator.le"),
    (">=", "_operator.ge"),
    ("<", "_operator.lt"),
    (">", "_operator.gt"),
];
/// Products, the longer ones first.
const PRODUCTS: [(&str, &str); 4] = [
    ("//", "_operator.floordiv"),
    ("/", "_operator.truediv"),
    ("*", "_operator.mul"),
    ("%", "_operator.mod"),
];
const SUMS: [(&str, &str); 2] = [("+", "_operator.add"), ("-", "_operator.sub")];

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    operations: usize,
}

impl Parser<'_> {
    /// Takes a token from the beginning. Returns false if it is not there.
    fn take(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    /// Takes a word that is followed by no letter.
    fn take_word(&mut self, word: &str) -> bool {
        let after = self.rest.trim_start().strip_prefix(word);
        let is_word = after.is_some_and(|after| !after.starts_with(is_name));
        is_word && self.take(word)
    }

    /// Takes one of several tokens; returns the function that it stands for.
    fn take_one(&mut self, tokens: &[(&str, &'static str)]) -> Option<&'static str> {
        let found = tokens.iter().find(|(token, _)| self.take(token))?;
        Some(found.1)
    }

    /// A call of an operation; none if there are too many.
    fn call<const N: usize>(&mut self, name: &str, arguments: [SizeExpr; N]) -> Option<SizeExpr> {
        self.operations += 1;
        let call = SizeExpr::Call(name.to_string(), arguments.into());
        (self.operations <= MAX_OPERATIONS).then_some(call)
    }

    /// `then if condition else otherwise`
    fn choice(&mut self) -> Option<SizeExpr> {
        self.depth += 1;
        if MAX_DEPTH < self.depth {
            return None;
        }
        let mut value = self.any()?;
        if self.take_word("if") {
            let condition = self.any()?;
            let otherwise = self.take_word("else").then(|| self.choice())??;
            value = SizeExpr::Choice(Box::new([condition, value, otherwise]));
        }
        self.depth -= 1;
        Some(value)
    }

    fn any(&mut self) -> Option<SizeExpr> {
        let mut value = self.all()?;
        while self.take_word("or") {
            let right = self.all()?;
            value = self.call("_operator.or_", [value, right])?;
        }
        Some(value)
    }

    fn all(&mut self) -> Option<SizeExpr> {
        let mut value = self.negation()?;
        while self.take_word("and") {
            let right = self.negation()?;
            value = self.call("_operator.and_", [value, right])?;
        }
        Some(value)
    }

    fn negation(&mut self) -> Option<SizeExpr> {
        match self.take_word("not") {
            true => {
                let value = self.comparison()?;
                self.call("torch.sym_not", [value])
            }
            false => self.comparison(),
        }
    }

    fn comparison(&mut self) -> Option<SizeExpr> {
        let left = self.sum()?;
        match self.take_one(&COMPARISONS) {
            Some(function) => {
                let right = self.sum()?;
                self.call(function, [left, right])
            }
            None => Some(left),
        }
    }

    fn sum(&mut self) -> Option<SizeExpr> {
        let mut value = self.product()?;
        while let Some(function) = self.take_one(&SUMS) {
            let right = self.product()?;
            value = self.call(function, [value, right])?;
        }
        Some(value)
    }

    fn product(&mut self) -> Option<SizeExpr> {
        let mut value = self.power()?;
        while let Some(function) = self.take_one(&PRODUCTS) {
            let right = self.power()?;
            value = self.call(function, [value, right])?;
        }
        Some(value)
    }

    fn power(&mut self) -> Option<SizeExpr> {
        if self.take("-") {
            let value = self.atom()?;
            return self.call("_operator.neg", [value]);
        }
        let base = self.atom()?;
        match self.take("**") {
            true => {
                let exponent = self.atom()?;
                self.call("_operator.pow", [base, exponent])
            }
            false => Some(base),
        }
    }

    fn atom(&mut self) -> Option<SizeExpr> {
        if self.take("(") {
            let inner = self.choice()?;
            return self.take(")").then_some(inner);
        }
        if self.take("L[") {
            return self.size();
        }
        let word = self.word();
        match word.chars().next()? {
            first if first.is_ascii_digit() => {
                let integer = word.parse().map(SizeExpr::Int);
                integer.or_else(|_| word.parse().map(SizeExpr::Float)).ok()
            }
            _ if self.take("(") => self.arguments(word),
            _ => Some(SizeExpr::Symbol(word)),
        }
    }

    /// A number, a name, or names with dots; empty if there is none.
    fn word(&mut self) -> String {
        let text = self.rest.trim_start();
        let end = text.find(|c| !is_name(c) && c != '.').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        word.to_string()
    }

    /// The arguments of a function, whose opening parenthesis was taken.
    fn arguments(&mut self, name: String) -> Option<SizeExpr> {
        if name == "Symbol" {
            return self.symbol();
        }
        let mut arguments = vec![self.choice()?];
        while self.take(",") {
            arguments.push(self.choice()?);
        }
        if !self.take(")") {
            return None;
        }
        match (name.as_str(), arguments.as_slice()) {
            ("Integer", [single]) => Some(single.clone()),
            _ => Some(SizeExpr::Call(name, arguments)),
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

    /// `'x'].parts[0].size()[1]`, after the first bracket.
    fn size(&mut self) -> Option<SizeExpr> {
        let mut keys = vec![self.key()?];
        loop {
            if self.take("[") {
                keys.push(self.key()?);
            } else if self.take(".size()[") {
                let axis = self.key()?.parse().ok()?;
                return Some(SizeExpr::Size(keys, axis));
            } else if self.take(".") {
                let end = self.rest.find(|c| !is_name(c))?;
                let (field, rest) = self.rest.split_at(end);
                self.rest = rest;
                keys.push(field.to_string());
            } else {
                return None;
            }
        }
    }

    /// `'x']` or `0]`
    fn key(&mut self) -> Option<String> {
        let (key, rest) = self.rest.trim_start().split_once(']')?;
        self.rest = rest;
        Some(key.trim_matches(['\'', '"']).to_string())
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<const N: usize>(name: &str, arguments: [SizeExpr; N]) -> SizeExpr {
        SizeExpr::Call(name.to_string(), arguments.into())
    }

    fn size(input: &str, axis: i64) -> SizeExpr {
        SizeExpr::Size(vec![input.to_string()], axis)
    }

    fn symbol(name: &str) -> SizeExpr {
        SizeExpr::Symbol(name.to_string())
    }

    #[test]
    fn formulas_and_constructors_of_sympy_are_parsed() {
        let symbolic = "Symbol('s0', positive=True, integer=True)";
        assert_eq!(SizeExpr::parse("s0").unwrap(), symbol("s0"));
        assert_eq!(SizeExpr::parse(symbolic).unwrap(), symbol("s0"));
        let formula = SizeExpr::parse("(s0 - 1)//2").unwrap();
        let difference = call("_operator.sub", [symbol("s0"), SizeExpr::Int(1)]);
        assert_eq!(
            formula,
            call("_operator.floordiv", [difference, SizeExpr::Int(2)])
        );
        let constructors = format!("FloorDiv(Add({symbolic}, Integer(-1)), Integer(2))");
        let negative = call("_operator.neg", [SizeExpr::Int(1)]);
        let sum = call("Add", [symbol("s0"), negative]);
        assert_eq!(
            SizeExpr::parse(&constructors).unwrap(),
            call("FloorDiv", [sum, SizeExpr::Int(2)])
        );
    }

    #[test]
    fn conditions_are_parsed_by_the_precedence_of_python() {
        let parsed = SizeExpr::parse("1 + 2*L['x'].size()[0] % 3 >= 2 and L['y'].size()[1] != 1");
        let product = call("_operator.mul", [SizeExpr::Int(2), size("x", 0)]);
        let rest = call("_operator.mod", [product, SizeExpr::Int(3)]);
        let sum = call("_operator.add", [SizeExpr::Int(1), rest]);
        let least = call("_operator.ge", [sum, SizeExpr::Int(2)]);
        let other = call("_operator.ne", [size("y", 1), SizeExpr::Int(1)]);
        assert_eq!(parsed.unwrap(), call("_operator.and_", [least, other]));
    }

    #[test]
    fn functions_choices_and_structures_are_parsed() {
        let text =
            "math.trunc(0.5*torch.sym_float(L['r'].parts[0].size()[1])) == ((-1) if 1 < 2 else 3)";
        let SizeExpr::Call(name, sides) = SizeExpr::parse(text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!(name, "_operator.eq");
        let input = SizeExpr::Size(["r", "parts", "0"].map(String::from).to_vec(), 1);
        let float = call("torch.sym_float", [input]);
        let half = call("_operator.mul", [SizeExpr::Float(0.5), float]);
        assert_eq!(sides[0], call("math.trunc", [half]));
        assert!(matches!(&sides[1], SizeExpr::Choice(_)));
    }

    #[test]
    fn other_and_too_large_texts_are_errors() {
        for text in [
            "",
            "2*",
            "f(",
            "f()",
            "a b",
            "Symbol(s0)",
            "1 +",
            "(1",
            "1 < 2 < 3",
            "-2**2",
            "L['x'].dtype == 1",
            "L['x",
            "L['x'].y",
        ] {
            assert!(SizeExpr::parse(text).is_err(), "{text}");
        }
        assert!(SizeExpr::parse(&"(".repeat(10_000)).is_err());
        assert!(SizeExpr::parse(&"s0 + ".repeat(100_000)).is_err());
        assert!(SizeExpr::parse(&format!("{}1", "1 + ".repeat(100_000))).is_err());
    }
}
