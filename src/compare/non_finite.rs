//! NaN and infinite elements of a tensor: their number and the first index of each.

use std::fmt;

use super::unravel;
use crate::tensor::Tensor;

/// The elements of a tensor that are NaN or infinite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonFinite {
    /// Elements that are NaN.
    pub nan: usize,
    /// Index of the first of them.
    pub first_nan: Vec<usize>,
    /// Elements that are infinite.
    pub infinite: usize,
    /// Index of the first of them.
    pub first_infinite: Vec<usize>,
    /// Number of elements.
    pub numel: usize,
}

impl NonFinite {
    /// Counts the elements of a tensor.
    pub fn of(tensor: &Tensor) -> NonFinite {
        let mut found = NonFinite {
            numel: tensor.numel(),
            ..NonFinite::default()
        };
        if tensor.dtype().is_float() {
            let elements = tensor.scalars().enumerate();
            elements.for_each(|(index, value)| found.count(value.to_f64(), index, tensor.shape()));
        }
        found
    }

    /// True if all elements are finite.
    pub fn is_empty(&self) -> bool {
        self.nan + self.infinite == 0
    }

    /// Counts the element at a position in row-major order.
    pub(super) fn count(&mut self, value: f64, position: usize, shape: &[usize]) {
        let (count, first) = match (value.is_nan(), value.is_infinite()) {
            (true, _) => (&mut self.nan, &mut self.first_nan),
            (_, true) => (&mut self.infinite, &mut self.first_infinite),
            _ => return,
        };
        if *count == 0 {
            *first = unravel(position, shape);
        }
        *count += 1;
    }
}

/// `3 of 1000 values are NaN, first at [0, 17]; 1 of 1000 values is infinite, at [2, 5]`
impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |count: usize, what: &str, first: &[usize]| {
            let (verb, first_at) = match count {
                1 => ("is", "at"),
                _ => ("are", "first at"),
            };
            let place = match first {
                [] => String::new(),
                first => format!(", {first_at} {first:?}"),
            };
            let numel = self.numel;
            (count > 0).then(|| format!("{count} of {numel} values {verb} {what}{place}"))
        };
        let nan = part(self.nan, "NaN", &self.first_nan);
        let infinite = part(self.infinite, "infinite", &self.first_infinite);
        let parts: Vec<String> = nan.into_iter().chain(infinite).collect();
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinite_elements_are_counted() {
        let data = vec![1.0, f32::NAN, f32::INFINITY, 2.0, f32::NAN, 0.0];
        let found = NonFinite::of(&Tensor::from_vec([2, 3], data).unwrap());
        let expected =
            "2 of 6 values are NaN, first at [0, 1]; 1 of 6 values is infinite, at [0, 2]";
        assert_eq!(found.to_string(), expected);
        let integers = Tensor::from_vec([1], vec![i64::MAX]).unwrap();
        assert!(NonFinite::of(&integers).is_empty());
    }
}
