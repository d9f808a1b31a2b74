//! Symbolic sizes: polynomials over symbols and floor divisions, kept in a normal form so that equality is structural.
//!
//! A symbol stands for a positive size that is known when a graph runs. Two sizes are equal for every binding of the
//! symbols if their normal forms are equal; the converse holds for polynomials, not for floor divisions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

use crate::error::{Error, Result};

mod text;

/// The name of a symbolic size, `B` or `x_0`.
pub type Symbol = Arc<str>;

/// Sizes of symbols when a graph runs.
pub type Bindings = BTreeMap<Symbol, i64>;

/// A size: a number or an expression in symbols.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Const(i64),
    Sum(Arc<Sum>),
}

/// `Σ coefficient · product + constant`; products sorted, no zero coefficient, at least one term.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Sum {
    terms: Vec<(Product, i64)>,
    constant: i64,
}

/// Factors in sorted order, never empty.
type Product = Vec<Atom>;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Symbol),
    FloorDiv(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
}

/// Terms while a sum is built; the empty product carries the constant.
type Terms = BTreeMap<Product, i64>;

impl Dim {
    /// The size 1.
    pub const ONE: Dim = Dim(Repr::Const(1));
    /// The size 0.
    pub const ZERO: Dim = Dim(Repr::Const(0));

    /// A symbol on its own.
    pub fn symbol(name: impl Into<Symbol>) -> Dim {
        Dim::from_atom(Atom::Symbol(name.into()))
    }

    /// The number, if the size is one.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(value) => Some(value),
            Repr::Sum(_) => None,
        }
    }

    /// The symbol, if the size is a symbol on its own.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match &self.0 {
            Repr::Sum(sum) if sum.constant == 0 => match sum.terms.as_slice() {
                [(product, 1)] => match product.as_slice() {
                    [Atom::Symbol(name)] => Some(name),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// True if the size is the given number.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// Floor division as Python's `//`. Division by zero gives zero.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const()) {
            return Dim::from(floor_div(a, b));
        }
        match divisor.as_const() {
            Some(0) => Dim::ZERO,
            Some(1) => self.clone(),
            Some(constant) if constant > 0 => self.div_by_const(constant),
            _ => self.div_by_dim(divisor),
        }
    }

    /// Remainder with the sign of the divisor, as Python's `%`.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        self - &(&self.floor_div(divisor) * divisor)
    }

    /// Division rounded up.
    pub fn ceil_div(&self, divisor: &Dim) -> Dim {
        -&(-self).floor_div(divisor)
    }

    /// The smaller of two sizes.
    pub fn minimum(&self, other: &Dim) -> Dim {
        match (self - other).as_const() {
            Some(difference) => {
                if difference <= 0 {
                    self.clone()
                } else {
                    other.clone()
                }
            }
            None => Dim::from_atom(Atom::Min(
                self.clone().min_ord(other),
                self.clone().max_ord(other),
            )),
        }
    }

    /// The larger of two sizes.
    pub fn maximum(&self, other: &Dim) -> Dim {
        match (self - other).as_const() {
            Some(difference) => {
                if difference >= 0 {
                    self.clone()
                } else {
                    other.clone()
                }
            }
            None => Dim::from_atom(Atom::Max(
                self.clone().min_ord(other),
                self.clone().max_ord(other),
            )),
        }
    }

    fn min_ord(self, other: &Dim) -> Dim {
        if self <= *other { self } else { other.clone() }
    }

    fn max_ord(self, other: &Dim) -> Dim {
        if self <= *other { other.clone() } else { self }
    }

    /// Product of sizes; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter()
            .fold(Dim::ONE, |product, dim| &product * dim)
    }

    /// The number for given sizes of the symbols; an error names the first symbol that has none.
    pub fn eval(&self, bindings: &Bindings) -> Result<i64> {
        match &self.0 {
            Repr::Const(value) => Ok(*value),
            Repr::Sum(sum) => {
                sum.terms
                    .iter()
                    .try_fold(sum.constant, |total, (product, coefficient)| {
                        let value = product.iter().try_fold(*coefficient, |value, atom| {
                            Ok::<i64, Error>(value.saturating_mul(atom.eval(bindings)?))
                        })?;
                        Ok(total.saturating_add(value))
                    })
            }
        }
    }

    /// The size with symbols replaced.
    pub fn substitute(&self, map: &BTreeMap<Symbol, Dim>) -> Dim {
        match &self.0 {
            Repr::Const(_) => self.clone(),
            Repr::Sum(sum) => {
                sum.terms
                    .iter()
                    .fold(Dim::from(sum.constant), |total, (product, coefficient)| {
                        let value = product.iter().fold(Dim::from(*coefficient), |value, atom| {
                            &value * &atom.substitute(map)
                        });
                        &total + &value
                    })
            }
        }
    }

    /// The smallest possible value, given that symbols are at least 1; `None` if that is not plain to see.
    pub fn smallest(&self) -> Option<i64> {
        match &self.0 {
            Repr::Const(value) => Some(*value),
            Repr::Sum(sum) => {
                sum.terms
                    .iter()
                    .try_fold(sum.constant, |total, (product, coefficient)| {
                        let only_symbols =
                            product.iter().all(|atom| matches!(atom, Atom::Symbol(_)));
                        (only_symbols && *coefficient > 0)
                            .then(|| total.saturating_add(*coefficient))
                    })
            }
        }
    }

    /// The symbols that occur.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut found = BTreeSet::new();
        self.collect_symbols(&mut found);
        found
    }

    fn collect_symbols(&self, found: &mut BTreeSet<Symbol>) {
        let Repr::Sum(sum) = &self.0 else { return };
        for atom in sum.terms.iter().flat_map(|(product, _)| product) {
            match atom {
                Atom::Symbol(name) => {
                    found.insert(name.clone());
                }
                Atom::FloorDiv(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                    a.collect_symbols(found);
                    b.collect_symbols(found);
                }
            }
        }
    }

    /// Solves `self == other` for one symbol that occurs only linearly: the symbol and what it equals.
    pub fn solve(&self, other: &Dim) -> Option<(Symbol, Dim)> {
        let difference = self - other;
        let Repr::Sum(sum) = &difference.0 else {
            return None;
        };
        let candidates = sum
            .terms
            .iter()
            .rev()
            .filter_map(|(product, _)| match &**product {
                [Atom::Symbol(name)] => Some(name),
                _ => None,
            });
        candidates
            .filter_map(|name| Some((name.clone(), self.solve_for(other, name)?)))
            .next()
    }

    /// Solves `self == other` for a symbol that occurs only linearly.
    pub fn solve_for(&self, other: &Dim, name: &Symbol) -> Option<Dim> {
        let symbol = Dim::symbol(name.clone());
        let difference = self - other;
        let Repr::Sum(sum) = &difference.0 else {
            return None;
        };
        let is_it =
            |product: &Product| matches!(&**product, [Atom::Symbol(found)] if found == name);
        let (_, coefficient) = sum.terms.iter().find(|(product, _)| is_it(product))?;
        let rest = &difference - &(&Dim::from(*coefficient) * &symbol);
        if rest.symbols().contains(name) {
            return None;
        }
        match coefficient {
            1 => Some(-&rest),
            -1 => Some(rest),
            _ => (-&rest).exact_div_const(*coefficient),
        }
    }

    fn exact_div_const(&self, divisor: i64) -> Option<Dim> {
        let terms = self.terms();
        terms
            .values()
            .all(|value| value.wrapping_rem(divisor) == 0)
            .then(|| {
                Dim::from_terms(
                    terms
                        .into_iter()
                        .map(|(product, value)| (product, value.wrapping_div(divisor)))
                        .collect(),
                )
            })
    }

    /// Terms and factors, as a measure of the work of a multiplication.
    fn length(&self) -> usize {
        match &self.0 {
            Repr::Const(_) => 1,
            Repr::Sum(sum) => sum.terms.iter().map(|(product, _)| 1 + product.len()).sum(),
        }
    }

    fn from_atom(atom: Atom) -> Dim {
        Dim(Repr::Sum(Arc::new(Sum {
            terms: vec![(vec![atom], 1)],
            constant: 0,
        })))
    }

    fn terms(&self) -> Terms {
        match &self.0 {
            Repr::Const(value) => Terms::from([(Vec::new(), *value)]),
            Repr::Sum(sum) => {
                let mut terms: Terms = sum.terms.iter().cloned().collect();
                terms.insert(Vec::new(), sum.constant);
                terms
            }
        }
    }

    fn from_terms(mut terms: Terms) -> Dim {
        let constant = terms.remove(&Vec::new()).unwrap_or(0);
        terms.retain(|_, coefficient| *coefficient != 0);
        if terms.is_empty() {
            Dim(Repr::Const(constant))
        } else {
            Dim(Repr::Sum(Arc::new(Sum {
                terms: terms.into_iter().collect(),
                constant,
            })))
        }
    }

    /// `⌊(c·q + r) / c⌋ = q + ⌊r / c⌋`, and nested floor divisions by constants are joined.
    fn div_by_const(&self, divisor: i64) -> Dim {
        let mut quotient = Terms::new();
        let mut rest = Terms::new();
        for (product, coefficient) in self.terms() {
            let (whole, left) = if product.is_empty() || coefficient % divisor == 0 {
                (
                    floor_div(coefficient, divisor),
                    coefficient - floor_div(coefficient, divisor).saturating_mul(divisor),
                )
            } else {
                (0, coefficient)
            };
            quotient.insert(product.clone(), whole);
            rest.insert(product, left);
        }
        let quotient = Dim::from_terms(quotient);
        let rest = Dim::from_terms(rest);
        match rest.as_const() {
            Some(_) => quotient,
            None => &quotient + &rest.join_floor_div(divisor),
        }
    }

    /// `⌊(⌊x / a⌋ + k) / b⌋ = ⌊(x + k·a) / (a·b)⌋`.
    fn join_floor_div(&self, divisor: i64) -> Dim {
        if let Repr::Sum(sum) = &self.0
            && let [(product, 1)] = sum.terms.as_slice()
            && let [Atom::FloorDiv(inner, by)] = product.as_slice()
            && let Some(by) = by.as_const()
        {
            let numerator = inner + &Dim::from(sum.constant.saturating_mul(by));
            return numerator.floor_div(&Dim::from(by.saturating_mul(divisor)));
        }
        Dim::from_atom(Atom::FloorDiv(self.clone(), Dim::from(divisor)))
    }

    fn div_by_dim(&self, divisor: &Dim) -> Dim {
        let (quotient, rest) = self.long_division(divisor);
        if rest.is(0) {
            return quotient;
        }
        let single = divisor
            .terms()
            .values()
            .filter(|value| **value != 0)
            .count()
            == 1;
        if single && !quotient.is(0) {
            return &quotient + &Dim::from_atom(Atom::FloorDiv(rest, divisor.clone()));
        }
        Dim::from_atom(Atom::FloorDiv(self.clone(), divisor.clone()))
    }

    /// Polynomial division by the leading term; the rest is zero if the division is exact.
    fn long_division(&self, divisor: &Dim) -> (Dim, Dim) {
        let Some((lead, lead_coefficient)) = divisor.leading() else {
            return (Dim::ZERO, self.clone());
        };
        let mut quotient = Dim::ZERO;
        let mut rest = self.clone();
        let mut kept = Dim::ZERO;
        while let Some((product, coefficient)) = rest.leading() {
            let term = Dim::from_terms(Terms::from([(product.clone(), coefficient)]));
            match remove_factors(&product, &lead) {
                Some(left) if coefficient.wrapping_rem(lead_coefficient) == 0 => {
                    let factor = Dim::from_terms(Terms::from([(
                        left,
                        coefficient.wrapping_div(lead_coefficient),
                    )]));
                    quotient = &quotient + &factor;
                    rest = &rest - &(&factor * divisor);
                }
                _ => {
                    kept = &kept + &term;
                    rest = &rest - &term;
                }
            }
        }
        (quotient, kept)
    }

    /// The term with the most factors, and of those the last in order.
    fn leading(&self) -> Option<(Product, i64)> {
        self.terms()
            .into_iter()
            .filter(|(_, coefficient)| *coefficient != 0)
            .max_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)))
    }
}

/// Python's `//` on numbers; zero if the divisor is zero.
pub fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) {
        quotient - 1
    } else {
        quotient
    }
}

fn remove_factors(product: &Product, factors: &Product) -> Option<Product> {
    let mut left = product.clone();
    for factor in factors {
        let index = left.iter().position(|atom| atom == factor)?;
        left.remove(index);
    }
    Some(left)
}

impl Atom {
    fn eval(&self, bindings: &Bindings) -> Result<i64> {
        Ok(match self {
            Atom::Symbol(name) => *bindings
                .get(name)
                .ok_or_else(|| Error::input(format!("the size {name} is not known")))?,
            Atom::FloorDiv(a, b) => floor_div(a.eval(bindings)?, b.eval(bindings)?),
            Atom::Min(a, b) => a.eval(bindings)?.min(b.eval(bindings)?),
            Atom::Max(a, b) => a.eval(bindings)?.max(b.eval(bindings)?),
        })
    }

    fn substitute(&self, map: &BTreeMap<Symbol, Dim>) -> Dim {
        match self {
            Atom::Symbol(name) => map
                .get(name)
                .cloned()
                .unwrap_or_else(|| Dim::from_atom(self.clone())),
            Atom::FloorDiv(a, b) => a.substitute(map).floor_div(&b.substitute(map)),
            Atom::Min(a, b) => a.substitute(map).minimum(&b.substitute(map)),
            Atom::Max(a, b) => a.substitute(map).maximum(&b.substitute(map)),
        }
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim(Repr::Const(value))
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Dim {
        Dim::from(i64::from(value))
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Dim {
        Dim::from(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&Dim> for Dim {
    fn from(value: &Dim) -> Dim {
        value.clone()
    }
}

impl Add for &Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Dim::from(a.saturating_add(b));
        }
        let mut terms = self.terms();
        for (product, coefficient) in other.terms() {
            let slot = terms.entry(product).or_insert(0);
            *slot = slot.saturating_add(coefficient);
        }
        Dim::from_terms(terms)
    }
}

impl Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        &Dim::from(-1i64) * self
    }
}

impl Sub for &Dim {
    type Output = Dim;
    fn sub(self, other: &Dim) -> Dim {
        self + &-other
    }
}

impl Mul for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Dim::from(a.saturating_mul(b));
        }
        let mut terms = Terms::new();
        for (left, a) in self.terms() {
            for (right, b) in other.terms() {
                let mut product: Product = left.iter().chain(&right).cloned().collect();
                product.sort();
                let slot = terms.entry(product).or_insert(0);
                *slot = slot.saturating_add(a.saturating_mul(b));
            }
        }
        Dim::from_terms(terms)
    }
}

/// Owned and mixed forms of the operators, so that formulas read as formulas.
macro_rules! forward_operators {
    ($($trait:ident :: $method:ident),*) => {$(
        impl $trait<Dim> for Dim {
            type Output = Dim;
            fn $method(self, other: Dim) -> Dim { $trait::$method(&self, &other) }
        }
        impl $trait<&Dim> for Dim {
            type Output = Dim;
            fn $method(self, other: &Dim) -> Dim { $trait::$method(&self, other) }
        }
        impl $trait<Dim> for &Dim {
            type Output = Dim;
            fn $method(self, other: Dim) -> Dim { $trait::$method(self, &other) }
        }
        impl $trait<i64> for Dim {
            type Output = Dim;
            fn $method(self, other: i64) -> Dim { $trait::$method(&self, &Dim::from(other)) }
        }
        impl $trait<i64> for &Dim {
            type Output = Dim;
            fn $method(self, other: i64) -> Dim { $trait::$method(self, &Dim::from(other)) }
        }
    )*};
}

forward_operators!(Add::add, Sub::sub, Mul::mul);

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().expect("a size")
    }

    #[test]
    fn normal_forms_are_equal() {
        for (left, right) in [
            ("B*3 + B", "4*B"),
            ("floordiv(2*B + 4, 2)", "B + 2"),
            ("floordiv(4*B + 3, 4)", "B"),
            ("floordiv(B*S*768, S*12)", "64*B"),
            ("floordiv(B*S*64 + B*64, S + 1)", "64*B"),
            ("floordiv(floordiv(H - 1, 2) + 1, 2)", "floordiv(H + 1, 4)"),
            ("max(B, B + 1)", "B + 1"),
        ] {
            assert_eq!(dim(left), dim(right), "{left} and {right}");
        }
    }

    #[test]
    fn text_round_trips() {
        for text in [
            "3",
            "B",
            "2*B*S + 1",
            "floordiv(H - 1, 2) + 1",
            "min(3, B)",
            "-B + 4",
        ] {
            assert_eq!(dim(&dim(text).to_string()), dim(text));
        }
    }

    #[test]
    fn bad_text_is_an_error() {
        for text in ["", "B +", "foo(1, 2)", "3B", "(B", "1 2", "%"] {
            assert!(text.parse::<Dim>().is_err(), "{text}");
        }
    }

    #[test]
    fn solves_for_linear_symbols() {
        let (name, value) = dim("S + 1").solve(&dim("197")).expect("solvable");
        assert_eq!((&*name, value), ("S", dim("196")));
        assert!(dim("floordiv(S, 2)").solve(&dim("3")).is_none());
    }

    #[test]
    fn evaluates_and_substitutes() {
        let bindings = Bindings::from([("H".into(), 7)]);
        assert_eq!(dim("floordiv(H - 1, 2)*2").eval(&bindings).ok(), Some(6));
        let map = BTreeMap::from([("H".into(), dim("2*B"))]);
        assert_eq!(dim("floordiv(H, 2)").substitute(&map), dim("B"));
    }
}
