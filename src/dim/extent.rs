//! How large a size is as an expression, which bounds the work of operators on it.

use super::{Dim, DimAtom, DimProduct, DimRepr};
use crate::budget;

/// The extent of an expression, written without sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Extent {
    /// Terms and factors, those of nested sizes included.
    pub weight: usize,
    /// Floor divisions, minima and maxima in one another.
    pub depth: usize,
}

impl Extent {
    /// Weight and depth up to which operators are not charged.
    const FREE: Extent = Extent {
        weight: 256,
        depth: 32,
    };

    pub fn of(terms: &[(DimProduct, i64)]) -> Extent {
        let atoms = terms.iter().flat_map(|(product, _)| product);
        let extent = Extent {
            weight: terms.len(),
            depth: 0,
        };
        atoms.fold(extent, |extent, atom| extent.with(Extent::of_atom(atom)))
    }

    fn of_atom(atom: &DimAtom) -> Extent {
        match atom {
            DimAtom::Symbol(_) => Extent {
                weight: 1,
                depth: 0,
            },
            DimAtom::FloorDiv(a, b) | DimAtom::Min(a, b) | DimAtom::Max(a, b) => {
                let both = a.extent().with(b.extent());
                Extent {
                    weight: both.weight.saturating_add(1),
                    depth: both.depth.saturating_add(1),
                }
            }
        }
    }

    /// The extent of two expressions side by side.
    pub fn with(self, other: Extent) -> Extent {
        Extent {
            weight: self.weight.saturating_add(other.weight),
            depth: self.depth.max(other.depth),
        }
    }

    /// The extent of a product, multiplied out.
    pub fn times(self, other: Extent) -> Extent {
        Extent {
            weight: self.weight.saturating_mul(other.weight),
            depth: self.depth.max(other.depth),
        }
    }

    /// Charges a result of this extent to the budget of an import. If false, the import fails: the operator returns 0, with which
    /// divisions end.
    pub fn may_be_computed(self) -> bool {
        let Extent { weight, depth } = Extent::FREE;
        (self.weight <= weight && self.depth <= depth)
            || budget::may_compute_size(self.weight, self.depth)
    }
}

impl Dim {
    pub(super) fn extent(&self) -> Extent {
        match &self.0 {
            DimRepr::Const(_) => Extent {
                weight: 1,
                depth: 0,
            },
            DimRepr::Sum(sum) => sum.extent,
        }
    }
}
