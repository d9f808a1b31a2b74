//! Figures about the elements of a weight: range, mean, standard deviation, and a histogram.

use serde::Serialize;

use crate::tensor::Tensor;

/// Number of bars of a histogram.
const BARS: usize = 32;

/// Figures about the finite elements of a weight. Without finite elements, range, mean and deviation are NaN.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct WeightSummary {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    /// Standard deviation, divided by the number of elements.
    pub(super) std: f64,
    /// Share of elements that are zero.
    pub(super) zeros: f64,
    /// Number of elements that are NaN or infinite.
    pub(super) non_finite: usize,
    /// Number of elements in each of [`BARS`] equal parts of the range; empty if all elements are equal.
    pub(super) histogram: Vec<usize>,
}

impl WeightSummary {
    /// Computes the figures; `None` if there are no elements.
    pub(super) fn of(weight: &Tensor) -> Option<WeightSummary> {
        match weight.as_slice::<f32>() {
            Ok(elements) => summary(elements.iter().map(|value| f64::from(*value))),
            // Other dtypes, and files whose elements are not aligned.
            Err(_) => summary(weight.to_f64().iter().copied()),
        }
    }

    fn without_finite(non_finite: usize) -> WeightSummary {
        let [min, max, mean, std] = [f64::NAN; 4];
        WeightSummary {
            min,
            max,
            mean,
            std,
            non_finite,
            ..WeightSummary::default()
        }
    }
}

fn summary(elements: impl Iterator<Item = f64> + Clone) -> Option<WeightSummary> {
    let (mut count, mut zeros, mut non_finite) = (0usize, 0usize, 0usize);
    let (mut min, mut max, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
    for value in elements.clone() {
        if !value.is_finite() {
            non_finite += 1;
            continue;
        }
        count += 1;
        zeros += usize::from(value == 0.0);
        (min, max, sum) = (min.min(value), max.max(value), sum + value);
    }
    if count == 0 {
        return (non_finite > 0).then(|| WeightSummary::without_finite(non_finite));
    }
    let mean = sum / count as f64;
    let mut histogram = vec![0usize; if min < max { BARS } else { 0 }];
    // Halves, since the whole range may overflow.
    let scale = BARS as f64 / (max / 2.0 - min / 2.0);
    let mut squares = 0.0;
    for value in elements.filter(|value| value.is_finite()) {
        squares += (value - mean) * (value - mean);
        let bar = ((value / 2.0 - min / 2.0) * scale) as usize;
        let last = histogram.len().saturating_sub(1);
        if let Some(bar) = histogram.get_mut(bar.min(last)) {
            *bar += 1;
        }
    }
    Some(WeightSummary {
        min,
        max,
        mean,
        std: (squares / count as f64).sqrt(),
        zeros: zeros as f64 / count as f64,
        non_finite,
        histogram,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn figures_count_every_element_once() {
        let values = vec![0.0, 1.0, 2.0, 4.0, f32::NAN];
        let weight = Tensor::from_vec([5], values).expect("a tensor");
        let found = WeightSummary::of(&weight).expect("finite elements");
        assert_eq!((found.min, found.max, found.mean), (0.0, 4.0, 1.75));
        assert_eq!((found.zeros, found.non_finite), (0.25, 1));
        assert_eq!(found.histogram.iter().sum::<usize>(), 4);
        assert_eq!((found.histogram[8], found.histogram[31]), (1, 1));
    }

    #[test]
    fn equal_elements_have_no_histogram() {
        let weight = Tensor::full(DType::I64, [3], 7.0).expect("a tensor");
        let found = WeightSummary::of(&weight).expect("finite elements");
        assert_eq!(
            (found.min, found.std, found.histogram),
            (7.0, 0.0, Vec::new())
        );
        let weight = Tensor::full(DType::F32, [0], 7.0).expect("a tensor");
        assert_eq!(WeightSummary::of(&weight), None);
    }

    #[test]
    fn weights_without_finite_elements_count_the_others() {
        let values = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let weight = Tensor::from_vec([3], values).expect("a tensor");
        let found = WeightSummary::of(&weight).expect("elements");
        assert_eq!((found.non_finite, found.histogram.len()), (3, 0));
        assert!(found.min.is_nan() && found.mean.is_nan());
    }

    #[test]
    fn the_largest_range_has_a_histogram() {
        let weight = Tensor::from_vec([3], vec![f64::MIN, 0.0, f64::MAX]).expect("a tensor");
        let found = WeightSummary::of(&weight).expect("finite elements");
        let bars = [0, 16, BARS - 1].map(|bar| found.histogram[bar]);
        assert_eq!(bars, [1, 1, 1]);
    }
}
