//! Conditions under which a program was exported (`guards_code`), as expressions of Python on sizes:
//! `L['x'].size()[0] % 2 == 0`.

use crate::error::{Error, Result};

/// Deepest nesting of a condition.
const MAX_DEPTH: usize = 64;

/// An expression of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum GuardExpr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// The size of an input along an axis: the keys to the input (`x`, then those within its structure), and the axis.
    Size(Vec<String>, i64),
    /// A call of a function or operator by its name in Python: `math.trunc`, `_operator.add`.
    Call(String, Vec<GuardExpr>),
    /// `then if condition else otherwise`
    Choice(Box<[GuardExpr; 3]>),
}

impl GuardExpr {
    /// Parses a condition.
    ///
    /// # Errors
    /// It has parts that are not known here.
    pub fn parse(text: &str) -> Result<GuardExpr> {
        let mut parser = Parser {
            rest: text,
            depth: 0,
        };
        let expr = parser.choice();
        let is_whole = parser.rest.trim_start().is_empty();
        expr.filter(|_| is_whole)
            .ok_or_else(|| Error::unsupported(format!("the condition {text} of the program")))
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

    fn choice(&mut self) -> Option<GuardExpr> {
        self.depth += 1;
        if MAX_DEPTH < self.depth {
            return None;
        }
        let mut value = self.any()?;
        if self.take_word("if") {
            let condition = self.any()?;
            let otherwise = self.take_word("else").then(|| self.choice())??;
            value = GuardExpr::Choice(Box::new([condition, value, otherwise]));
        }
        self.depth -= 1;
        Some(value)
    }

    fn any(&mut self) -> Option<GuardExpr> {
        let mut value = self.all()?;
        while self.take_word("or") {
            value = call("_operator.or_", [value, self.all()?]);
        }
        Some(value)
    }

    fn all(&mut self) -> Option<GuardExpr> {
        let mut value = self.negation()?;
        while self.take_word("and") {
            value = call("_operator.and_", [value, self.negation()?]);
        }
        Some(value)
    }

    fn negation(&mut self) -> Option<GuardExpr> {
        match self.take_word("not") {
            true => Some(call("torch.sym_not", [self.comparison()?])),
            false => self.comparison(),
        }
    }

    /// `a < b <= c` is `a < b and b <= c`.
    fn comparison(&mut self) -> Option<GuardExpr> {
        let mut left = self.sum()?;
        let mut whole: Option<GuardExpr> = None;
        while let Some(function) = self.take_one(&COMPARISONS) {
            let right = self.sum()?;
            let compared = call(function, [left, right.clone()]);
            whole = Some(match whole {
                Some(whole) => call("_operator.and_", [whole, compared]),
                None => compared,
            });
            left = right;
        }
        Some(whole.unwrap_or(left))
    }

    fn sum(&mut self) -> Option<GuardExpr> {
        let mut value = self.product()?;
        while let Some(function) = self.take_one(&SUMS) {
            value = call(function, [value, self.product()?]);
        }
        Some(value)
    }

    fn product(&mut self) -> Option<GuardExpr> {
        let mut value = self.power()?;
        while let Some(function) = self.take_one(&PRODUCTS) {
            value = call(function, [value, self.power()?]);
        }
        Some(value)
    }

    fn power(&mut self) -> Option<GuardExpr> {
        if self.take("-") {
            return Some(call("_operator.neg", [self.atom()?]));
        }
        let base = self.atom()?;
        match self.take("**") {
            true => Some(call("_operator.pow", [base, self.atom()?])),
            false => Some(base),
        }
    }

    fn atom(&mut self) -> Option<GuardExpr> {
        if self.take("(") {
            let inner = self.choice()?;
            return self.take(")").then_some(inner);
        }
        if self.take("L[") {
            return self.size();
        }
        let text = self.rest.trim_start();
        let end = text.find(|c| !is_name(c) && c != '.').unwrap_or(text.len());
        let (word, rest) = text.split_at_checked(end)?;
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let integer = word.parse().map(GuardExpr::Int);
            return integer.or_else(|_| word.parse().map(GuardExpr::Float)).ok();
        }
        self.take("(").then(|| self.arguments(word.to_string()))?
    }

    fn arguments(&mut self, name: String) -> Option<GuardExpr> {
        let mut arguments = vec![self.choice()?];
        while self.take(",") {
            arguments.push(self.choice()?);
        }
        self.take(")").then_some(GuardExpr::Call(name, arguments))
    }

    /// `'x'].size()[0]`, after the first bracket.
    fn size(&mut self) -> Option<GuardExpr> {
        let mut keys = vec![self.key()?];
        while self.take("[") {
            keys.push(self.key()?);
        }
        let is_size = self.take(".size()[");
        let axis = is_size.then(|| self.key())??.parse().ok()?;
        Some(GuardExpr::Size(keys, axis))
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

fn call<const N: usize>(name: &str, arguments: [GuardExpr; N]) -> GuardExpr {
    GuardExpr::Call(name.to_string(), arguments.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(input: &str, axis: i64) -> GuardExpr {
        GuardExpr::Size(vec![input.to_string()], axis)
    }

    #[test]
    fn conditions_are_parsed_by_the_precedence_of_python() {
        let parsed = GuardExpr::parse("1 + 2*L['x'].size()[0] % 3 >= 2 and L['y'].size()[1] != 1");
        let product = call("_operator.mul", [GuardExpr::Int(2), size("x", 0)]);
        let rest = call("_operator.mod", [product, GuardExpr::Int(3)]);
        let sum = call("_operator.add", [GuardExpr::Int(1), rest]);
        let least = call("_operator.ge", [sum, GuardExpr::Int(2)]);
        let other = call("_operator.ne", [size("y", 1), GuardExpr::Int(1)]);
        assert_eq!(parsed.unwrap(), call("_operator.and_", [least, other]));
    }

    #[test]
    fn functions_choices_and_structures_are_parsed() {
        let text =
            "math.trunc(0.5*torch.sym_float(L['batch']['x'].size()[0])) == ((-1) if 1 < 2 else 3)";
        let GuardExpr::Call(name, sides) = GuardExpr::parse(text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!(name, "_operator.eq");
        assert!(matches!(&sides[0], GuardExpr::Call(name, _) if name == "math.trunc"));
        assert!(matches!(&sides[1], GuardExpr::Choice(_)));
        for wrong in ["", "L['x'].dtype == 1", "1 +", "f(", "L['x", "(1"] {
            assert!(GuardExpr::parse(wrong).is_err(), "{wrong}");
        }
        assert!(GuardExpr::parse(&"(".repeat(10_000)).is_err());
    }
}
