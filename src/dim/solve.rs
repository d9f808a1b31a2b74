//! Equations between sizes.

use super::{Dim, DimAtom, DimProduct, DimRepr, Symbol};

impl Dim {
    /// Solves `self == other` for one symbol that occurs only linearly. Returns the symbol and its value.
    pub fn solve(&self, other: &Dim) -> Option<(Symbol, Dim)> {
        let difference = self - other;
        let DimRepr::Sum(sum) = &difference.0 else {
            return None;
        };
        let candidates = sum
            .terms
            .iter()
            .rev()
            .filter_map(|(product, _)| match &**product {
                [DimAtom::Symbol(name)] => Some(name),
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
        let DimRepr::Sum(sum) = &difference.0 else {
            return None;
        };
        let is_it =
            |product: &DimProduct| matches!(&**product, [DimAtom::Symbol(found)] if found == name);
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
}
