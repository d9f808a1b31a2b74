//! Floor division of sizes: exact quotients are polynomials; a remainder stays a floor division.

use super::{Dim, DimAtom, DimProduct, DimRepr, DimTerms};

impl Dim {
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

    /// `⌊(c·q + r) / c⌋ = q + ⌊r / c⌋`. Nested floor divisions by constants are merged.
    fn div_by_const(&self, divisor: i64) -> Dim {
        let mut quotient = DimTerms::new();
        let mut rest = DimTerms::new();
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
            None => &quotient + &rest.merge_floor_div(divisor),
        }
    }

    /// `⌊(⌊x / a⌋ + k) / b⌋ = ⌊(x + k·a) / (a·b)⌋`. Also `⌊-x / b⌋ = -⌊(x + b - 1) / b⌋`, so that the first term is
    /// positive.
    fn merge_floor_div(&self, divisor: i64) -> Dim {
        if self.is_negated() {
            let rounded_up = &-self + &Dim::from(divisor - 1);
            return -&rounded_up.div_by_const(divisor);
        }
        if let DimRepr::Sum(sum) = &self.0
            && let [(product, 1)] = sum.terms.as_slice()
            && let [DimAtom::FloorDiv(inner, by)] = product.as_slice()
            && let Some(by) = by.as_const()
        {
            let numerator = inner + &Dim::from(sum.constant.saturating_mul(by));
            return numerator.floor_div(&Dim::from(by.saturating_mul(divisor)));
        }
        Dim::from_atom(DimAtom::FloorDiv(self.clone(), Dim::from(divisor)))
    }

    fn div_by_dim(&self, divisor: &Dim) -> Dim {
        let (quotient, rest) = self.long_division(divisor);
        if rest.is(0) {
            return quotient;
        }
        // The remainder is less than the divisor, which is positive.
        if let (Some(left), Some(least)) = (rest.as_const(), divisor.positive_lower_bound())
            && (-least..least).contains(&left)
        {
            return if left < 0 { &quotient - 1 } else { quotient };
        }
        let single = divisor
            .terms()
            .values()
            .filter(|value| **value != 0)
            .count()
            == 1;
        if single && !quotient.is(0) {
            return &quotient + &Dim::from_atom(DimAtom::FloorDiv(rest, divisor.clone()));
        }
        Dim::from_atom(DimAtom::FloorDiv(self.clone(), divisor.clone()))
    }

    /// True if the first term is negative.
    fn is_negated(&self) -> bool {
        match &self.0 {
            DimRepr::Const(_) => false,
            DimRepr::Sum(sum) => {
                matches!(sum.terms.first(), Some((_, coefficient)) if *coefficient < 0)
            }
        }
    }

    /// A lower bound of the positive values of the size, for symbols of at least 0; `None` if none can be derived.
    fn positive_lower_bound(&self) -> Option<i64> {
        let terms = self.terms();
        let coefficients = terms.iter().filter(|(product, _)| !product.is_empty());
        match self.lower_bound(|_| 0)? {
            0 => coefficients.map(|(_, value)| *value).min(),
            least => (least > 0).then_some(least),
        }
    }

    /// Polynomial division by the leading term; the remainder is zero if the division is exact.
    fn long_division(&self, divisor: &Dim) -> (Dim, Dim) {
        let Some((lead, lead_coefficient)) = divisor.leading() else {
            return (Dim::ZERO, self.clone());
        };
        let mut quotient = Dim::ZERO;
        let mut rest = self.clone();
        let mut kept = Dim::ZERO;
        while let Some((product, coefficient)) = rest.leading() {
            let term = Dim::from_terms(DimTerms::from([(product.clone(), coefficient)]));
            match remove_factors(&product, &lead) {
                Some(left) if coefficient.wrapping_rem(lead_coefficient) == 0 => {
                    let factor = Dim::from_terms(DimTerms::from([(
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
    fn leading(&self) -> Option<(DimProduct, i64)> {
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

fn remove_factors(product: &DimProduct, factors: &DimProduct) -> Option<DimProduct> {
    let mut left = product.clone();
    for factor in factors {
        let index = left.iter().position(|atom| atom == factor)?;
        left.remove(index);
    }
    Some(left)
}
