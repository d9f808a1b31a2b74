//! Conversion between row-major indices and coordinates.

use super::Index;
use crate::dim::Dim;

/// Row-major strides of a shape.
pub fn strides(shape: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::ONE; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = &strides[axis] * &shape[axis];
    }
    strides
}

/// The row-major index of coordinates.
pub fn linearize(coordinates: &[Index], shape: &[Dim]) -> Index {
    coordinates
        .iter()
        .zip(strides(shape))
        .fold(Index::zero(), |sum, (coordinate, stride)| {
            sum.add(&coordinate.scale(&stride))
        })
}

/// The coordinates of a row-major index.
pub fn delinearize(index: &Index, shape: &[Dim]) -> Vec<Index> {
    let strides = strides(shape);
    let mut first = true;
    shape
        .iter()
        .zip(&strides)
        .map(|(size, stride)| {
            if size.is(1) {
                return Index::zero();
            }
            // The first axis longer than one is the outermost, so its quotient needs no remainder.
            let quotient = index.div(stride);
            if std::mem::take(&mut first) {
                quotient
            } else {
                quotient.rem(size)
            }
        })
        .collect()
}

/// Converts coordinates in one shape to coordinates in another with the same number of elements. Matches axes where
/// possible, so that divisions are emitted only for axes that merge or split.
pub fn reshape(from: &[Index], shape: &[Dim], to: &[Dim]) -> Vec<Index> {
    let mut result = Vec::with_capacity(to.len());
    let (mut start, mut target) = (0, 0);
    while target < to.len() {
        let (end, next) = matching_ends(shape, to, start, target);
        let index = linearize(
            from.get(start..end).unwrap_or_default(),
            shape.get(start..end).unwrap_or_default(),
        );
        result.extend(delinearize(&index, &to[target..next]));
        (start, target) = (end, next);
    }
    result
}

/// The nearest ends of axis groups in both shapes whose sizes have equal products.
pub fn matching_ends(a: &[Dim], b: &[Dim], start_a: usize, start_b: usize) -> (usize, usize) {
    let mut product_a = Dim::ONE;
    for (end_a, size_a) in a.iter().enumerate().skip(start_a) {
        product_a = &product_a * size_a;
        let mut product_b = Dim::ONE;
        for (end_b, size_b) in b.iter().enumerate().skip(start_b) {
            product_b = &product_b * size_b;
            if product_a == product_b {
                return (end_a + 1, end_b + 1);
            }
        }
    }
    (a.len(), b.len())
}
