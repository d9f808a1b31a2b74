//! Compares results leaf by leaf, through tuples, lists and dictionaries.

use crate::compare::{Difference, Tolerance, compare_by};
use crate::dtype::DType;
use crate::item::Item;

/// Relative and absolute tolerances for comparing results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Relative tolerance, multiplied by the expected magnitude.
    pub rtol: f64,
    /// Absolute tolerance. If absent, `1e-7` for `f64` and `1e-5` for other element types.
    pub atol: Option<f64>,
}

impl Default for Tolerances {
    fn default() -> Tolerances {
        Tolerances {
            rtol: 1e-5,
            atol: None,
        }
    }
}

impl Tolerances {
    /// The tolerance for elements of a type.
    pub fn of(self, dtype: DType) -> Tolerance {
        let default_atol = match dtype {
            DType::F64 => 1e-7,
            _ => 1e-5,
        };
        Tolerance {
            rtol: self.rtol,
            atol: self.atol.unwrap_or(default_atol),
        }
    }
}

/// Returns a difference for each leaf of the two results. A leaf that only one result has counts as differing.
pub fn differences(got: &Item, expected: &Item, tolerances: Tolerances) -> Vec<Difference> {
    let paths =
        |item: &Item| -> Vec<String> { item.leaves().into_iter().map(|(path, _)| path).collect() };
    let (left, right) = (paths(got), paths(expected));
    if left == right {
        return compare_by(got, expected, &|dtype| tolerances.of(dtype));
    }
    if let Some(difference) = length_difference("", got, expected) {
        return vec![difference];
    }
    let only = |these: &[String], those: &[String], why: &str| -> Vec<Difference> {
        let only = these.iter().filter(|path| !those.contains(path));
        only.map(|path| Difference::incomparable(path, why.to_string()))
            .collect()
    };
    let mut unmatched = only(&left, &right, "is in the result of the trace only");
    unmatched.extend(only(&right, &left, "is missing in the result of the trace"));
    if unmatched.is_empty() {
        unmatched.push(Difference::incomparable(
            "",
            "the keys are in another order".into(),
        ));
    }
    unmatched
}

/// The first lists or tuples of different lengths.
fn length_difference(path: &str, got: &Item, expected: &Item) -> Option<Difference> {
    match (got, expected) {
        (Item::List(left), Item::List(right)) | (Item::Tuple(left), Item::Tuple(right)) => {
            if left.len() != right.len() {
                let kind = match got {
                    Item::List(_) => "list",
                    _ => "tuple",
                };
                let (left, right) = (left.len(), right.len());
                let why = format!("a {kind} of {left} instead of {right} items");
                let path = format!("output{path}");
                return Some(Difference::incomparable(&path, why));
            }
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(index, (left, right))| {
                length_difference(&format!("{path}[{index}]"), left, right)
            })
        }
        (Item::Dict(left), Item::Dict(right)) => {
            let mut pairs = left.iter().zip(right);
            pairs.find_map(|((key, left), (other, right))| {
                let path = format!("{path}[{key:?}]");
                (key == other).then(|| length_difference(&path, left, right))?
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn leaves_are_matched_by_path() {
        let leaf = |value: f32| Item::Tensor(Tensor::from_vec([1], vec![value]).unwrap());
        let expected = Item::Tuple(vec![leaf(1.0), Item::Dict(vec![("a".into(), leaf(2.0))])]);
        let same = differences(&expected, &expected, Tolerances::default());
        assert!(same.len() == 2 && same.iter().all(Difference::passed));
        let got = Item::Tuple(vec![leaf(1.0), Item::Dict(vec![("b".into(), leaf(2.0))])]);
        let found = differences(&got, &expected, Tolerances::default());
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "[1][\"b\"]: is in the result of the trace only",
            "[1][\"a\"]: is missing in the result of the trace",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn lists_of_different_lengths_are_one_difference() {
        let list = |count: usize| {
            let tensor = Tensor::from_vec([1], vec![1f32]).unwrap();
            let list = Item::List(vec![Item::Tensor(tensor.clone()); count]);
            Item::Tuple(vec![tensor.into(), list])
        };
        let found = differences(&list(3), &list(300), Tolerances::default());
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["output[1]: a list of 3 instead of 300 items"]);
    }
}
