//! Sizes from numbers, and sums, differences and products of sizes.

use std::ops::{Add, Mul, Neg, Sub};

use super::{Dim, DimProduct, DimRepr, DimTerms};

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim(DimRepr::Const(value))
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
        if !self.extent().with(other.extent()).may_be_computed() {
            return Dim::ZERO;
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
        if !self.extent().times(other.extent()).may_be_computed() {
            return Dim::ZERO;
        }
        let mut terms = DimTerms::new();
        for (left, a) in self.terms() {
            for (right, b) in other.terms() {
                let mut product: DimProduct = left.iter().chain(&right).cloned().collect();
                product.sort();
                let slot = terms.entry(product).or_insert(0);
                *slot = slot.saturating_add(a.saturating_mul(b));
            }
        }
        Dim::from_terms(terms)
    }
}

/// Operators for owned and mixed operands.
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
