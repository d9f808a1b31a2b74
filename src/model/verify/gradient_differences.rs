//! Differences of results with gradients.

use crate::compare::{Difference, Tolerance, compare, compare_tensors};
use crate::item::Item;

/// The differences of a result, and of the gradients beside it.
pub(super) fn differences(got: &Item, expected: &Item, tolerance: Tolerance) -> Vec<Difference> {
    let (Some((got, got_gradients)), Some((expected, expected_gradients))) =
        (parts(got), parts(expected))
    else {
        return compare(got, expected, tolerance);
    };
    let mut differences = compare(got, expected, tolerance);
    for ((name, got), (_, expected)) in got_gradients.iter().zip(expected_gradients) {
        if let (Item::Tensor(got), Item::Tensor(expected)) = (got, expected) {
            let label = format!("gradient of {name}");
            differences.push(compare_tensors(&label, got, expected, tolerance));
        }
    }
    differences
}

/// The result of a graph with gradients: that of the graph without, and the gradients by name.
pub(super) fn parts(item: &Item) -> Option<(&Item, &[(String, Item)])> {
    match item {
        Item::Tuple(items) => match items.as_slice() {
            [result, Item::Dict(gradients)] => Some((result, gradients)),
            _ => None,
        },
        _ => None,
    }
}
