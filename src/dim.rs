//! Symbolic sizes: polynomials over symbols and floor divisions, kept in a normal form so that equality is structural.
//!
//! A symbol stands for a non-negative size that is known when a graph runs. Sizes with equal normal forms are equal for
//! every binding of the symbols. The converse holds for polynomials, but not for floor divisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};

mod division;
mod extent;
mod extremum;
mod operators;
mod solve;
mod text;

pub use division::floor_div;

use extent::Extent;

/// The name of a symbolic size, `B` or `x_0`.
pub type Symbol = Arc<str>;

/// Sizes of symbols when a graph runs.
pub type Bindings = BTreeMap<Symbol, i64>;

/// A size: a number or an expression in symbols.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(DimRepr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum DimRepr {
    Const(i64),
    Sum(Arc<DimSum>),
}

/// `Σ coefficient · product + constant`; products sorted, no zero coefficient, at least one term.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct DimSum {
    terms: Vec<(DimProduct, i64)>,
    constant: i64,
    extent: Extent,
}

/// Factors in sorted order, never empty.
type DimProduct = Vec<DimAtom>;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum DimAtom {
    Symbol(Symbol),
    FloorDiv(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
}

/// Terms while a sum is built; the empty product carries the constant.
type DimTerms = BTreeMap<DimProduct, i64>;

impl Dim {
    /// The size 1.
    pub const ONE: Dim = Dim(DimRepr::Const(1));
    /// The size 0.
    pub const ZERO: Dim = Dim(DimRepr::Const(0));

    /// A size that is a single symbol.
    pub fn symbol(name: impl Into<Symbol>) -> Dim {
        Dim::from_atom(DimAtom::Symbol(name.into()))
    }

    /// The number, if the size is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            DimRepr::Const(value) => Some(value),
            DimRepr::Sum(_) => None,
        }
    }

    /// The symbol, if the size is a single symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match &self.0 {
            DimRepr::Sum(sum) if sum.constant == 0 => match sum.terms.as_slice() {
                [(product, 1)] => match product.as_slice() {
                    [DimAtom::Symbol(name)] => Some(name),
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

    /// Product of sizes; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter()
            .fold(Dim::ONE, |product, dim| &product * dim)
    }

    /// Evaluates the size for the given bindings; an error names the first unbound symbol.
    pub fn eval(&self, bindings: &Bindings) -> Result<i64> {
        match &self.0 {
            DimRepr::Const(value) => Ok(*value),
            DimRepr::Sum(sum) => {
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
            DimRepr::Const(_) => self.clone(),
            DimRepr::Sum(sum) => {
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

    /// A lower bound of the size, given lower bounds of its symbols; `None` if none can be derived.
    pub fn lower_bound(&self, least: impl Fn(&Symbol) -> i64) -> Option<i64> {
        self.lower_bound_by(&least)
    }

    fn lower_bound_by(&self, least: &impl Fn(&Symbol) -> i64) -> Option<i64> {
        let DimRepr::Sum(sum) = &self.0 else {
            return self.as_const();
        };
        let terms = sum.terms.iter();
        let mut terms = terms.map(|(product, coefficient)| {
            let value = match product.as_slice() {
                [atom] => atom.lower_bound(least)?,
                atoms => lower_bound_of_product(atoms, least)?,
            };
            (*coefficient > 0).then(|| coefficient.saturating_mul(value))
        });
        terms.try_fold(sum.constant, |total, term| {
            Some(total.saturating_add(term?))
        })
    }

    /// The symbols of a product of symbols and a positive number; `None` if the size is no such product.
    pub fn factors(&self) -> Option<BTreeSet<Symbol>> {
        match &self.0 {
            DimRepr::Sum(sum) if sum.constant == 0 => match sum.terms.as_slice() {
                [(product, 1..)] => product
                    .iter()
                    .map(|atom| match atom {
                        DimAtom::Symbol(name) => Some(name.clone()),
                        _ => None,
                    })
                    .collect(),
                _ => None,
            },
            _ => None,
        }
    }

    /// The constant term of the polynomial: `-1` in `2*B*S - 1`.
    pub fn constant_term(&self) -> i64 {
        match &self.0 {
            DimRepr::Const(value) => *value,
            DimRepr::Sum(sum) => sum.constant,
        }
    }

    /// The symbols that occur.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut found = BTreeSet::new();
        self.collect_symbols(&mut found);
        found
    }

    /// True if the size contains a symbol for which `is_one` holds.
    pub fn mentions(&self, is_one: &impl Fn(&Symbol) -> bool) -> bool {
        let DimRepr::Sum(sum) = &self.0 else {
            return false;
        };
        let mut atoms = sum.terms.iter().flat_map(|(product, _)| product);
        atoms.any(|atom| match atom {
            DimAtom::Symbol(name) => is_one(name),
            DimAtom::FloorDiv(a, b) | DimAtom::Min(a, b) | DimAtom::Max(a, b) => {
                a.mentions(is_one) || b.mentions(is_one)
            }
        })
    }

    fn collect_symbols(&self, found: &mut BTreeSet<Symbol>) {
        let DimRepr::Sum(sum) = &self.0 else { return };
        for atom in sum.terms.iter().flat_map(|(product, _)| product) {
            match atom {
                DimAtom::Symbol(name) => {
                    found.insert(name.clone());
                }
                DimAtom::FloorDiv(a, b) | DimAtom::Min(a, b) | DimAtom::Max(a, b) => {
                    a.collect_symbols(found);
                    b.collect_symbols(found);
                }
            }
        }
    }

    /// Terms and factors, as a measure of the work of a multiplication.
    fn complexity(&self) -> usize {
        match &self.0 {
            DimRepr::Const(_) => 1,
            DimRepr::Sum(sum) => sum.terms.iter().map(|(product, _)| 1 + product.len()).sum(),
        }
    }

    fn from_atom(atom: DimAtom) -> Dim {
        let terms = vec![(vec![atom], 1)];
        let extent = Extent::of(&terms);
        match extent.may_be_computed() {
            true => Dim(DimRepr::Sum(Arc::new(DimSum {
                terms,
                constant: 0,
                extent,
            }))),
            false => Dim::ZERO,
        }
    }

    fn terms(&self) -> DimTerms {
        match &self.0 {
            DimRepr::Const(value) => DimTerms::from([(Vec::new(), *value)]),
            DimRepr::Sum(sum) => {
                let mut terms: DimTerms = sum.terms.iter().cloned().collect();
                terms.insert(Vec::new(), sum.constant);
                terms
            }
        }
    }

    fn from_terms(mut terms: DimTerms) -> Dim {
        let constant = terms.remove(&Vec::new()).unwrap_or(0);
        terms.retain(|_, coefficient| *coefficient != 0);
        if terms.is_empty() {
            Dim(DimRepr::Const(constant))
        } else {
            let terms: Vec<(DimProduct, i64)> = terms.into_iter().collect();
            Dim(DimRepr::Sum(Arc::new(DimSum {
                extent: Extent::of(&terms),
                terms,
                constant,
            })))
        }
    }
}

impl DimAtom {
    fn eval(&self, bindings: &Bindings) -> Result<i64> {
        Ok(match self {
            DimAtom::Symbol(name) => *bindings
                .get(name)
                .ok_or_else(|| Error::input(format!("the size {name} is not known")))?,
            DimAtom::FloorDiv(a, b) => floor_div(a.eval(bindings)?, b.eval(bindings)?),
            DimAtom::Min(a, b) => a.eval(bindings)?.min(b.eval(bindings)?),
            DimAtom::Max(a, b) => a.eval(bindings)?.max(b.eval(bindings)?),
        })
    }

    fn lower_bound(&self, least: &impl Fn(&Symbol) -> i64) -> Option<i64> {
        let of = |dim: &Dim| dim.lower_bound_by(least);
        match self {
            DimAtom::Symbol(name) => Some(least(name)),
            DimAtom::FloorDiv(a, b) => match b.as_const() {
                Some(divisor) if divisor > 0 => Some(floor_div(of(a)?, divisor)),
                _ => (of(a)? >= 0 && of(b)? >= 0).then_some(0),
            },
            DimAtom::Min(a, b) => Some(of(a)?.min(of(b)?)),
            // A bound of either operand bounds the larger one.
            DimAtom::Max(a, b) => of(a).max(of(b)),
        }
    }

    fn substitute(&self, map: &BTreeMap<Symbol, Dim>) -> Dim {
        match self {
            DimAtom::Symbol(name) => map
                .get(name)
                .cloned()
                .unwrap_or_else(|| Dim::from_atom(self.clone())),
            DimAtom::FloorDiv(a, b) => a.substitute(map).floor_div(&b.substitute(map)),
            DimAtom::Min(a, b) => a.substitute(map).minimum(&b.substitute(map)),
            DimAtom::Max(a, b) => a.substitute(map).maximum(&b.substitute(map)),
        }
    }
}

/// A lower bound of a product whose factors are never negative.
fn lower_bound_of_product(atoms: &[DimAtom], least: &impl Fn(&Symbol) -> i64) -> Option<i64> {
    let mut factors = atoms.iter().map(|atom| atom.lower_bound(least));
    factors.try_fold(1i64, |product, factor| {
        let factor = factor.filter(|factor| *factor >= 0)?;
        Some(product.saturating_mul(factor))
    })
}

#[cfg(test)]
mod tests;
