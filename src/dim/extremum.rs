//! Minima and maxima of sizes. Nested ones are merged, and operands that never decide are removed: `min(64, min(n, 64))`
//! becomes `min(64, n)`.

use super::{Dim, DimAtom, DimRepr};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extremum {
    Min,
    Max,
}

impl Dim {
    /// The smaller of two sizes.
    pub fn minimum(&self, other: &Dim) -> Dim {
        Extremum::Min.of(self, other)
    }

    /// The larger of two sizes.
    pub fn maximum(&self, other: &Dim) -> Dim {
        Extremum::Max.of(self, other)
    }

    /// The factor, if the size is a single factor.
    fn as_atom(&self) -> Option<&DimAtom> {
        let DimRepr::Sum(sum) = &self.0 else {
            return None;
        };
        match (sum.constant, sum.terms.as_slice()) {
            (0, [(product, 1)]) => match product.as_slice() {
                [atom] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }

    /// True if the size is provably never less than another.
    fn is_at_least(&self, other: &Dim) -> bool {
        if self == other || (self - other).lower_bound(|_| 0) >= Some(0) {
            return true;
        }
        let by_self = match self.as_atom() {
            Some(DimAtom::Max(a, b)) => a.is_at_least(other) || b.is_at_least(other),
            Some(DimAtom::Min(a, b)) => a.is_at_least(other) && b.is_at_least(other),
            _ => false,
        };
        by_self
            || match other.as_atom() {
                Some(DimAtom::Min(a, b)) => self.is_at_least(a) || self.is_at_least(b),
                Some(DimAtom::Max(a, b)) => self.is_at_least(a) && self.is_at_least(b),
                _ => false,
            }
    }
}

impl Extremum {
    /// The extremum in normal form: operands in order, each nested in the one before it.
    fn of(self, a: &Dim, b: &Dim) -> Dim {
        let mut operands = Vec::new();
        self.collect(a, &mut operands);
        self.collect(b, &mut operands);
        let mut kept: Vec<Dim> = Vec::new();
        for operand in operands {
            if kept.iter().any(|other| self.is_extremum(other, &operand)) {
                continue;
            }
            kept.retain(|other| !self.is_extremum(&operand, other));
            kept.push(operand);
        }
        kept.sort();
        let nested = kept.into_iter().rev();
        let nested = nested.reduce(|inner, outer| Dim::from_atom(self.atom(outer, inner)));
        nested.unwrap_or(Dim::ZERO)
    }

    fn atom(self, a: Dim, b: Dim) -> DimAtom {
        match self {
            Extremum::Min => DimAtom::Min(a, b),
            Extremum::Max => DimAtom::Max(a, b),
        }
    }

    /// The operands of nested extrema of this kind.
    fn collect(self, dim: &Dim, operands: &mut Vec<Dim>) {
        match (self, dim.as_atom()) {
            (Extremum::Min, Some(DimAtom::Min(a, b)))
            | (Extremum::Max, Some(DimAtom::Max(a, b))) => {
                self.collect(a, operands);
                self.collect(b, operands);
            }
            _ => operands.push(dim.clone()),
        }
    }

    /// True if the first of two sizes is provably their extremum.
    fn is_extremum(self, a: &Dim, b: &Dim) -> bool {
        match self {
            Extremum::Min => b.is_at_least(a),
            Extremum::Max => a.is_at_least(b),
        }
    }
}
