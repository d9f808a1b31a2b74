//! Index arithmetic: sums of products of sizes and variables, simplified on construction.
//!
//! Arithmetic is that of `u32`, which wraps. An index may be "negative" if a guard prevents its use. So quotients and
//! remainders are split only if all parts are known to be non-negative.

mod linearize;

pub use linearize::{delinearize, linearize, matching_ends, reshape, strides};

use std::sync::Arc;

use super::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::dim::Dim;

/// `Σ coefficient · atom + constant`, with atoms in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index {
    terms: Vec<(Atom, Dim)>,
    constant: Dim,
}

/// A term that is not a sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    /// A `u32` expression in `0..size`.
    Expr(Expr, Dim),
    /// Quotient, rounded down.
    Quotient(Arc<Index>, Dim),
    /// Remainder of a quotient.
    Remainder(Arc<Index>, Dim),
}

impl From<Dim> for Index {
    fn from(constant: Dim) -> Index {
        Index {
            terms: Vec::new(),
            constant,
        }
    }
}

impl From<usize> for Index {
    fn from(constant: usize) -> Index {
        Dim::from(constant).into()
    }
}

impl Index {
    /// The number 0.
    pub fn zero() -> Index {
        Dim::ZERO.into()
    }

    /// A `u32` expression in `0..size`; the constant 0 if `size` is 1.
    pub fn expr(expr: Expr, size: &Dim) -> Index {
        if size.is(1) {
            Index::zero()
        } else {
            Index::atom(Atom::Expr(expr, size.clone()))
        }
    }

    /// True if the number is this constant.
    pub fn is(&self, number: i64) -> bool {
        self.as_const() == Some(number)
    }

    /// The constant value, if the index is constant.
    pub fn as_const(&self) -> Option<i64> {
        let constant = self.constant.as_const();
        constant.filter(|_| self.terms.is_empty())
    }

    /// True if the constant of the sum is not 0.
    pub fn has_offset(&self) -> bool {
        !self.constant.is(0)
    }

    /// The coefficients of `u32` expressions, if the index is a sum of constant multiples of them and nothing else.
    pub fn coefficients(&self, of: &[Expr]) -> Option<Vec<i64>> {
        let mut factors = vec![0; of.len()];
        for (atom, coefficient) in &self.terms {
            let Atom::Expr(expr, _) = atom else {
                return None;
            };
            let place = of.iter().position(|known| known == expr)?;
            factors[place] = coefficient.as_const()?;
        }
        self.constant.is(0).then_some(factors)
    }

    fn atom(atom: Atom) -> Index {
        Index {
            terms: vec![(atom, Dim::ONE)],
            constant: Dim::ZERO,
        }
    }

    /// The atom, if the index is just one.
    fn as_atom(&self) -> Option<&Atom> {
        match self.terms.as_slice() {
            [(atom, coefficient)] if coefficient.is(1) && self.constant.is(0) => Some(atom),
            _ => None,
        }
    }

    /// Adds another index.
    pub fn add(&self, other: &Index) -> Index {
        let mut sum = self.clone();
        sum.constant = &sum.constant + &other.constant;
        for (atom, coefficient) in &other.terms {
            sum.add_term(atom.clone(), coefficient.clone());
        }
        sum.merge_terms()
    }

    /// Adds a size.
    pub fn add_size(&self, size: &Dim) -> Index {
        Index {
            terms: self.terms.clone(),
            constant: &self.constant + size,
        }
    }

    /// Multiplies by a size.
    pub fn scale(&self, factor: &Dim) -> Index {
        if factor.is(0) {
            return Index::zero();
        }
        let terms = self.terms.iter();
        Index {
            terms: terms
                .map(|(atom, coefficient)| (atom.clone(), coefficient * factor))
                .collect(),
            constant: &self.constant * factor,
        }
    }

    fn add_term(&mut self, atom: Atom, coefficient: Dim) {
        match self.terms.binary_search_by(|(known, _)| known.cmp(&atom)) {
            Ok(place) => {
                let sum = &self.terms[place].1 + &coefficient;
                if sum.is(0) {
                    self.terms.remove(place);
                } else {
                    self.terms[place].1 = sum;
                }
            }
            Err(place) if !coefficient.is(0) => self.terms.insert(place, (atom, coefficient)),
            Err(_) => {}
        }
    }

    /// Merges terms: `c·d·(n / d) + c·(n mod d) = c·n`, and `c·d·(n / d mod e) + c·(n mod d) = c·(n mod d·e)`.
    fn merge_terms(mut self) -> Index {
        while let Some((positions, merged)) = self.mergeable_pair() {
            for place in [
                positions[0].max(positions[1]),
                positions[0].min(positions[1]),
            ] {
                self.terms.remove(place);
            }
            self.constant = &self.constant + &merged.constant;
            for (atom, coefficient) in merged.terms {
                self.add_term(atom, coefficient);
            }
        }
        self
    }

    /// Positions of two terms that can be merged, and the result.
    fn mergeable_pair(&self) -> Option<([usize; 2], Index)> {
        let terms = self.terms.iter().enumerate();
        terms.clone().find_map(|(place, (atom, coefficient))| {
            let Atom::Remainder(whole, divisor) = atom else {
                return None;
            };
            let (quotient, above) = (whole.div(divisor), coefficient * divisor);
            terms
                .clone()
                .find_map(|(other, (atom, coefficient_of_other))| {
                    let joined = match atom {
                        _ if *coefficient_of_other != above => return None,
                        atom if quotient.as_atom() == Some(atom) => Index::clone(whole),
                        Atom::Remainder(inner, size) if **inner == quotient => {
                            whole.rem(&(divisor * size))
                        }
                        _ => return None,
                    };
                    Some(([place, other], joined.scale(coefficient)))
                })
        })
    }

    /// Divides by a positive size, rounding down.
    pub fn div(&self, divisor: &Dim) -> Index {
        if divisor.is(1) {
            return self.clone();
        }
        // A shape without elements has no element to index.
        if divisor.is(0) {
            return Index::zero();
        }
        let (multiple, rest) = self.split(divisor);
        if rest.is_less_than(divisor) {
            return multiple;
        }
        if !rest.is_non_negative() {
            return Index::atom(Atom::Quotient(Arc::new(self.clone()), divisor.clone()));
        }
        if let Some((high, unit)) = rest.common_unit(divisor) {
            return multiple.add(&high.div(&divisor.floor_div(&unit)));
        }
        if let Some(Atom::Quotient(inner, by)) = rest.as_atom() {
            return multiple.add(&inner.div(&(by * divisor)));
        }
        multiple.add(&Index::atom(Atom::Quotient(
            Arc::new(rest),
            divisor.clone(),
        )))
    }

    /// Remainder of the division by a positive size.
    pub fn rem(&self, divisor: &Dim) -> Index {
        if divisor.is(1) || divisor.is(0) {
            return Index::zero();
        }
        let (_, rest) = self.split(divisor);
        if rest.is_less_than(divisor) {
            return rest;
        }
        if !rest.is_non_negative() {
            return Index::atom(Atom::Remainder(Arc::new(self.clone()), divisor.clone()));
        }
        if let Some((high, unit)) = rest.common_unit(divisor) {
            let low = rest.low_part(&unit);
            return high.rem(&divisor.floor_div(&unit)).scale(&unit).add(&low);
        }
        Index::atom(Atom::Remainder(Arc::new(rest), divisor.clone()))
    }

    /// Splits off a multiple of a size: returns the multiple divided by the size, and the rest.
    fn split(&self, divisor: &Dim) -> (Index, Index) {
        let (mut multiple, mut rest) = (Index::zero(), Index::zero());
        for (atom, coefficient) in &self.terms {
            match exact_quotient(coefficient, divisor) {
                Some(quotient) => multiple.terms.push((atom.clone(), quotient)),
                None => rest.terms.push((atom.clone(), coefficient.clone())),
            }
        }
        let quotient = self.constant.floor_div(divisor);
        let left = &self.constant - &(&quotient * divisor);
        let is_split = left.is(0) || (divisor.as_const().is_some() && left.as_const().is_some());
        let whole = if is_split { quotient } else { Dim::ZERO };
        rest.constant = &self.constant - &(&whole * divisor);
        multiple.constant = whole;
        (multiple, rest)
    }

    /// Finds a size that divides the divisor and some coefficients such that the other terms are less than it. Returns the
    /// upper part divided by that size, and the size.
    fn common_unit(&self, divisor: &Dim) -> Option<(Index, Dim)> {
        let unit = self
            .terms
            .iter()
            .map(|(_, coefficient)| coefficient)
            .filter(|unit| !unit.is(1) && exact_quotient(divisor, unit).is_some())
            .find(|unit| self.low_part(unit).is_less_than(unit))?;
        let (high, _) = self.split(unit);
        Some((high, unit.clone()))
    }

    fn low_part(&self, unit: &Dim) -> Index {
        self.split(unit).1
    }

    /// True if the index is known to be non-negative.
    fn is_non_negative(&self) -> bool {
        is_non_negative(&self.constant)
            && self
                .terms
                .iter()
                .all(|(_, coefficient)| is_non_negative(coefficient))
    }

    /// True if the index is known to be in `0..size`.
    pub fn is_less_than(&self, size: &Dim) -> bool {
        self.is_non_negative()
            && self
                .upper_bound()
                .is_some_and(|largest| is_non_negative(&(size - &largest - 1)))
    }

    /// An upper bound, if no term is negative.
    fn upper_bound(&self) -> Option<Dim> {
        self.terms
            .iter()
            .try_fold(self.constant.clone(), |sum, (atom, coefficient)| {
                let largest = match atom {
                    Atom::Expr(_, size) => size - 1,
                    Atom::Quotient(whole, divisor) if whole.is_non_negative() => {
                        whole.upper_bound()?.floor_div(divisor)
                    }
                    Atom::Quotient(..) => return None,
                    Atom::Remainder(_, divisor) => divisor - 1,
                };
                Some(sum + coefficient * &largest)
            })
    }

    /// Emits the index as an expression.
    pub fn emit(&self, pool: &mut ExprPool) -> Expr {
        let mut sum: Option<Expr> = None;
        let (plus, minus): (Vec<_>, Vec<_>) = self
            .terms
            .iter()
            .partition(|(_, coefficient)| !is_negative(coefficient));
        // Loop variables come last, the innermost at the end, so that the partial sum before each can be hoisted out of its
        // loop.
        let is_variable = |(atom, _): &&(Atom, Dim)| match atom {
            Atom::Expr(expr, _) => matches!(pool.node(*expr), ExprNode::Variable(_)),
            _ => false,
        };
        let (variables, fixed): (Vec<_>, Vec<_>) = plus.into_iter().partition(is_variable);
        for (atom, coefficient) in fixed {
            let term = emit_term(atom, coefficient, pool);
            sum = Some(add(sum, term, pool));
        }
        if !self.constant.is(0) || (sum.is_none() && variables.is_empty()) {
            sum = Some(emit_constant(sum, &self.constant, pool));
        }
        for (atom, coefficient) in variables {
            let term = emit_term(atom, coefficient, pool);
            sum = Some(add(sum, term, pool));
        }
        let mut sum = sum.unwrap_or_else(|| pool.index(0));
        for (atom, coefficient) in minus {
            let term = emit_term(atom, &-coefficient, pool);
            sum = pool.call("x - y", WgslType::U32, &[sum, term]);
        }
        sum
    }
}

fn add(sum: Option<Expr>, term: Expr, pool: &mut ExprPool) -> Expr {
    sum.map_or(term, |sum| pool.call("x + y", WgslType::U32, &[sum, term]))
}

fn emit_constant(sum: Option<Expr>, constant: &Dim, pool: &mut ExprPool) -> Expr {
    let Some(sum) = sum else {
        return pool.size(constant);
    };
    let (template, constant) = if is_negative(constant) {
        ("x - y", -constant)
    } else {
        ("x + y", constant.clone())
    };
    let constant = pool.size(&constant);
    pool.call(template, WgslType::U32, &[sum, constant])
}

fn emit_term(atom: &Atom, coefficient: &Dim, pool: &mut ExprPool) -> Expr {
    let (template, whole, divisor) = match atom {
        Atom::Expr(expr, _) => return multiply(*expr, coefficient, pool),
        Atom::Quotient(whole, divisor) => ("x / y", whole, divisor),
        Atom::Remainder(whole, divisor) => ("x % y", whole, divisor),
    };
    let (whole, divisor) = (whole.emit(pool), pool.size(divisor));
    let value = pool.call(template, WgslType::U32, &[whole, divisor]);
    multiply(value, coefficient, pool)
}

fn multiply(value: Expr, coefficient: &Dim, pool: &mut ExprPool) -> Expr {
    if coefficient.is(1) {
        return value;
    }
    let coefficient = pool.size(coefficient);
    pool.call("x * y", WgslType::U32, &[value, coefficient])
}

/// The exact quotient; none if there is a remainder.
fn exact_quotient(size: &Dim, divisor: &Dim) -> Option<Dim> {
    let quotient = size.floor_div(divisor);
    (&quotient * divisor == *size).then_some(quotient)
}

/// True for a size that is not negative. An indexed shape has elements, so its sizes are at least 1.
fn is_non_negative(size: &Dim) -> bool {
    size.lower_bound(|_| 1)
        .is_some_and(|smallest| smallest >= 0)
}

fn is_negative(size: &Dim) -> bool {
    size.as_const().is_some_and(|number| number < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pool: &mut ExprPool, sizes: &[&str]) -> (Vec<Index>, Vec<Dim>) {
        let sizes: Vec<Dim> = sizes.iter().map(|size| size.parse().unwrap()).collect();
        let indices = sizes.iter().enumerate().map(|(number, size)| {
            Index::expr(pool.variable(&format!("i{number}"), WgslType::U32), size)
        });
        (indices.collect(), sizes)
    }

    #[test]
    fn division_follows_ranges() {
        let mut pool = ExprPool::default();
        let (i, _) = variables(&mut pool, &["B", "4"]);
        let place = i[0].scale(&Dim::from(4)).add(&i[1]);
        assert_eq!(place.div(&Dim::from(4)), i[0]);
        assert_eq!(place.rem(&Dim::from(4)), i[1]);
        assert_eq!(place.div(&Dim::from(8)), i[0].div(&Dim::from(2)));
    }

    #[test]
    fn linearize_and_delinearize_are_inverse() {
        let mut pool = ExprPool::default();
        for shape in [
            vec!["2", "3", "4"],
            vec!["B", "S", "64"],
            vec!["floordiv(H, 2) + 1", "7"],
        ] {
            let (i, sizes) = variables(&mut pool, &shape);
            let place = linearize(&i, &sizes);
            assert_eq!(delinearize(&place, &sizes), i);
            let flat = Index::expr(pool.variable("flat", WgslType::U32), &Dim::product(&sizes));
            assert_eq!(linearize(&delinearize(&flat, &sizes), &sizes), flat);
        }
    }

    #[test]
    fn lower_coordinates_are_a_remainder() {
        let mut pool = ExprPool::default();
        let (i, sizes) = variables(&mut pool, &["B*H*W", "H", "W"]);
        let place = &i[0];
        let at = delinearize(place, &["B", "H", "W"].map(|size| size.parse().unwrap()));
        let lower = linearize(&at[1..], &sizes[1..]);
        assert_eq!(lower, place.rem(&(&sizes[1] * &sizes[2])));
    }

    #[test]
    fn heads_split_without_touching_other_axes() {
        let mut pool = ExprPool::default();
        let (i, sizes) = variables(&mut pool, &["B", "S", "12*64"]);
        let to: Vec<Dim> = ["B", "S", "12", "64"]
            .iter()
            .map(|s| s.parse().unwrap())
            .collect();
        let split = reshape(&i, &sizes, &to);
        assert_eq!(split[..2], i[..2]);
        assert_eq!(split[2], i[2].div(&Dim::from(64)));
        assert_eq!(reshape(&split, &to, &sizes), i);
    }
}
