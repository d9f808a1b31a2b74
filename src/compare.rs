//! Comparison of outputs with expected ones: `|got - expected| <= atol + rtol * |expected|`; NaN equals NaN.

mod non_finite;

use std::fmt;

pub use non_finite::NonFinite;

use crate::dtype::DType;
use crate::item::Item;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// Differences of more ULPs are not rounding errors, or of numbers near zero. Messages leave the ULPs out.
const MAX_PRINTED_ULPS: f64 = 1e6;

/// Relative and absolute tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Tolerance relative to the expected magnitude.
    pub rtol: f64,
    /// Absolute tolerance, added to the relative one.
    pub atol: f64,
}

impl Tolerance {
    /// Tolerance of values that are stored in single precision.
    pub const SINGLE: Tolerance = Tolerance {
        rtol: 1e-3,
        atol: 1e-4,
    };
    /// Tolerance of values that are stored in half precision.
    pub const HALF: Tolerance = Tolerance {
        rtol: 1e-2,
        atol: 1e-2,
    };
}

/// The difference between an output and the expected one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Path of the output in the result; empty if it is the whole result.
    pub path: String,
    /// The reason why the two cannot be compared: dtype, shape or structure.
    pub incomparable: Option<String>,
    /// Largest absolute difference of finite elements.
    pub max_abs: f64,
    /// Largest relative difference of finite elements; infinite if an element is beyond its tolerance and expected to be
    /// zero.
    pub max_rel: f64,
    /// Largest difference of finite elements in units in the last place (ULPs) of the expected element.
    pub max_ulps: f64,
    /// Index of the element that exceeds its tolerance most.
    pub worst: Vec<usize>,
    /// The value of that element, and its expected value.
    pub values: (Scalar, Scalar),
    /// Number of elements beyond the tolerance.
    pub wrong: usize,
    /// Number of elements.
    pub numel: usize,
    /// The NaN and infinite elements of the output.
    pub non_finite: NonFinite,
    /// The NaN and infinite elements of the expected output.
    pub non_finite_expected: NonFinite,
}

impl Difference {
    /// True if every element is within its tolerance.
    pub fn passed(&self) -> bool {
        self.incomparable.is_none() && self.wrong == 0
    }

    /// The figures as a JSON object; infinities and not-a-number are `null`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "path": self.path,
            "passed": self.passed(),
            "incomparable": self.incomparable,
            "max_abs_error": self.max_abs,
            "max_rel_error": self.max_rel,
            "max_ulps": self.max_ulps,
            "worst_index": self.worst,
            "got": json_number(self.values.0),
            "expected": json_number(self.values.1),
            "wrong": self.wrong,
            "numel": self.numel,
            "nan": self.non_finite.nan,
            "infinite": self.non_finite.infinite,
        })
    }

    /// A result without differences, to which elements are added.
    fn equal(path: &str) -> Difference {
        Difference {
            incomparable: None,
            max_abs: 0.0,
            max_rel: 0.0,
            max_ulps: 0.0,
            ..Difference::incomparable(path, String::new())
        }
    }

    /// The difference of two leaves that cannot be compared, with the reason.
    pub fn incomparable(path: &str, why: String) -> Difference {
        Difference {
            path: path.to_string(),
            incomparable: Some(why),
            max_abs: f64::NAN,
            max_rel: f64::NAN,
            max_ulps: f64::NAN,
            worst: Vec::new(),
            values: (Scalar::Float(f64::NAN), Scalar::Float(f64::NAN)),
            wrong: 0,
            numel: 0,
            non_finite: NonFinite::default(),
            non_finite_expected: NonFinite::default(),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "output"
        } else {
            &self.path
        };
        if let Some(why) = &self.incomparable {
            return write!(f, "{path}: {why}");
        }
        if self.max_abs == 0.0 {
            write!(f, "{path}: equal")?;
            return self.write_non_finite(f);
        }
        write!(
            f,
            "{path}: max abs {:.3e}, max rel {:.3e}",
            self.max_abs, self.max_rel
        )?;
        if self.max_ulps < MAX_PRINTED_ULPS {
            write!(f, ", {:.0} ulp", self.max_ulps)?;
        }
        if self.wrong > 0 {
            let (got, expected) = self.values;
            write!(
                f,
                ", {} of {} wrong, worst at {:?}: {} instead of {}",
                self.wrong,
                self.numel,
                self.worst,
                format_number(got),
                format_number(expected)
            )?;
        }
        self.write_non_finite(f)
    }
}

impl Difference {
    /// Writes which elements are NaN or infinite, and whether they are expected to be.
    fn write_non_finite(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (got, expected) = (&self.non_finite, &self.non_finite_expected);
        match (got.is_empty(), expected.is_empty()) {
            (true, true) => Ok(()),
            _ if got == expected => write!(f, "; {got}, as expected"),
            (_, true) => write!(f, "; {got}"),
            (true, _) => write!(f, "; no value is NaN or infinite, expected: {expected}"),
            _ => write!(f, "; {got}, expected: {expected}"),
        }
    }
}

/// A number in JSON, which has no infinity and no not-a-number.
fn json_number(number: Scalar) -> serde_json::Value {
    match number {
        Scalar::Bool(value) => value.into(),
        Scalar::Int(value) => value.into(),
        Scalar::Float(value) => value.into(),
    }
}

/// A number in a message: floats without a fraction look like integers.
fn format_number(number: Scalar) -> String {
    match number {
        Scalar::Float(value) => value.to_string(),
        other => other.to_string(),
    }
}

/// Compares every leaf of two results.
pub fn compare(got: &Item, expected: &Item, tolerance: Tolerance) -> Vec<Difference> {
    compare_by(got, expected, &|_| tolerance)
}

/// Compares every leaf of two results, with a tolerance for each element type.
pub fn compare_by(
    got: &Item,
    expected: &Item,
    tolerance: &dyn Fn(DType) -> Tolerance,
) -> Vec<Difference> {
    let (left, right) = (got.leaves(), expected.leaves());
    if left.len() != right.len() {
        return vec![Difference::incomparable(
            "",
            format!("{} values instead of {}", left.len(), right.len()),
        )];
    }
    left.into_iter()
        .zip(right)
        .map(|((_, got), (path, expected))| compare_leaf(&path, got, expected, tolerance))
        .collect()
}

fn compare_leaf(
    path: &str,
    got: &Item,
    expected: &Item,
    tolerance: &dyn Fn(DType) -> Tolerance,
) -> Difference {
    match (got, expected) {
        (Item::Tensor(got), Item::Tensor(expected)) => {
            compare_tensors(path, got, expected, tolerance(expected.dtype()))
        }
        (Item::Number(Scalar::Float(a)), Item::Number(Scalar::Float(b)))
            if floats_close(*a, *b) =>
        {
            Difference::equal(path)
        }
        (got, expected) if got == expected => Difference::equal(path),
        (got, expected) => {
            Difference::incomparable(path, format!("{got:?} instead of {expected:?}"))
        }
    }
}

/// Compares Python floats, which differ only by rounding.
fn floats_close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * b.abs().max(1.0)
}

/// Compares two tensors; integers and `bool` must be equal.
pub fn compare_tensors(
    path: &str,
    got: &Tensor,
    expected: &Tensor,
    tolerance: Tolerance,
) -> Difference {
    if (got.dtype(), got.shape()) != (expected.dtype(), expected.shape()) {
        let why = format!(
            "{} instead of {}",
            got.tensor_type(),
            expected.tensor_type()
        );
        return Difference::incomparable(path, why);
    }
    let mut difference = Difference::equal(path);
    difference.numel = got.numel();
    difference.non_finite = NonFinite::of(got);
    difference.non_finite_expected = NonFinite::of(expected);
    let pairs = got.scalars().zip(expected.scalars());
    let distances = pairs.map(|(got, expected)| {
        let (distance, allowed) = distance_and_allowed(got, expected, tolerance);
        (got, expected, distance, allowed)
    });
    difference.add_elements(got.dtype(), got.shape(), distances);
    difference
}

/// The distance of two elements, and the allowed distance.
fn distance_and_allowed(got: Scalar, expected: Scalar, tolerance: Tolerance) -> (f64, f64) {
    let (Scalar::Float(a), Scalar::Float(b)) = (got, expected) else {
        let (a, b) = (got.to_i64(), expected.to_i64());
        return (a.abs_diff(b) as f64, 0.0);
    };
    let same = a == b || (a.is_nan() && b.is_nan());
    let distance = if same { 0.0 } else { (a - b).abs() };
    (distance, tolerance.atol + tolerance.rtol * b.abs())
}

impl Difference {
    /// Adds elements: got, expected, distance, allowed distance.
    fn add_elements(
        &mut self,
        dtype: DType,
        shape: &[usize],
        elements: impl Iterator<Item = (Scalar, Scalar, f64, f64)>,
    ) {
        let mut furthest = f64::NEG_INFINITY;
        for (index, (got, expected, distance, allowed)) in elements.enumerate() {
            let values = (got, expected);
            let expected = expected.to_f64();
            // If only one side is infinite or not-a-number, the distance is not finite, hence wrong.
            let within = distance == 0.0 || (distance <= allowed && distance.is_finite());
            let wrong = !within;
            let excess = if distance.is_nan() {
                f64::INFINITY
            } else {
                distance - allowed
            };
            if distance.is_finite() {
                self.max_abs = self.max_abs.max(distance);
                // A rounding error in place of zero has no meaningful ratio.
                self.max_rel = self.max_rel.max(match expected == 0.0 {
                    true if within => 0.0,
                    true => f64::INFINITY,
                    false => distance / expected.abs(),
                });
                self.max_ulps = self.max_ulps.max(distance / spacing(dtype, expected));
            } else {
                self.max_abs = f64::INFINITY;
            }
            self.wrong += usize::from(wrong);
            if (wrong || self.wrong == 0) && excess > furthest {
                furthest = excess;
                self.values = values;
                self.worst = unravel(index, shape);
            }
        }
    }
}

/// The distance from a number of an element type to the next larger one.
fn spacing(dtype: DType, value: f64) -> f64 {
    let Some(epsilon) = dtype.epsilon() else {
        return 1.0;
    };
    let smallest = match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let exponent = value.abs().max(smallest).log2().floor();
    epsilon * exponent.exp2()
}

fn unravel(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut coordinates = vec![0; shape.len()];
    for (slot, size) in coordinates.iter_mut().zip(shape).rev() {
        *slot = index % size.max(&1);
        index /= size.max(&1);
    }
    coordinates
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: Tolerance = Tolerance {
        rtol: 0.0,
        atol: 0.0,
    };

    fn floats(data: &[f32]) -> Item {
        Item::Tensor(Tensor::from_vec([data.len()], data.to_vec()).unwrap())
    }

    #[test]
    fn special_values_count() {
        let expected = floats(&[f32::NAN, f32::INFINITY, 1.0]);
        assert!(
            compare(&expected, &expected, EXACT)
                .iter()
                .all(Difference::passed)
        );
        for wrong in [
            [0.0, f32::INFINITY, 1.0],
            [f32::NAN, f32::NEG_INFINITY, 1.0],
            [f32::NAN, f32::INFINITY, f32::NAN],
        ] {
            let tolerance = Tolerance {
                rtol: 1.0,
                atol: 1e9,
            };
            let found = compare(&floats(&wrong), &expected, tolerance);
            assert!(
                found.iter().any(|difference| !difference.passed()),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn structure_dtype_and_shape_count() {
        let one = floats(&[1.0]);
        assert!(!compare(&one, &Item::Tuple(vec![one.clone(), one.clone()]), EXACT)[0].passed());
        assert!(!compare(&one, &floats(&[1.0, 1.0]), EXACT)[0].passed());
        let integer = Item::Tensor(Tensor::from_vec([1], vec![1i64]).unwrap());
        assert!(!compare(&one, &integer, EXACT)[0].passed());
    }

    #[test]
    fn differences_are_counted_in_ulps() {
        let next = f32::from_bits(3.0f32.to_bits() + 1);
        let found = compare(&floats(&[next]), &floats(&[3.0]), EXACT);
        assert_eq!(found[0].max_ulps, 1.0);
        let found = compare(&floats(&[f32::from_bits(3)]), &floats(&[0.0]), EXACT);
        assert_eq!(found[0].max_ulps, 3.0);
    }

    #[test]
    fn integers_are_compared_and_printed_exactly() {
        let integers = |value: i64| Item::Tensor(Tensor::from_vec([1], vec![value]).unwrap());
        let far = compare(&integers(i64::MAX), &integers(i64::MAX - 1), EXACT);
        assert!(!far[0].passed());
        assert!(
            far[0]
                .to_string()
                .contains("9223372036854775807 instead of 9223372036854775806")
        );
        let number = |value: i64| Item::Number(Scalar::Int(value));
        let found = compare(
            &number(5_180_049_555_625_274_385),
            &number(5_180_049_555_625_274_384),
            EXACT,
        );
        assert!(!found[0].passed());
    }

    #[test]
    fn figures_say_something_of_numbers_near_zero() {
        let tolerance = Tolerance {
            rtol: 1e-5,
            atol: 1e-5,
        };
        let text = |got: &[f32], expected: &[f32]| {
            let found = compare(&floats(got), &floats(expected), tolerance);
            found[0].to_string()
        };
        assert_eq!(
            text(&[2.0], &[0.0]),
            "output: max abs 2.000e0, max rel inf, 1 of 1 wrong, worst at [0]: 2 instead of 0"
        );
        assert_eq!(
            text(&[1e-9, 1.0], &[0.0, 1.0]),
            "output: max abs 1.000e-9, max rel 0.000e0"
        );
        let next = f32::from_bits(3.0f32.to_bits() + 1);
        assert!(text(&[next], &[3.0]).ends_with(", 1 ulp"));
    }

    #[test]
    fn the_worst_element_is_named() {
        let found = compare(&floats(&[1.0, 5.0, 2.0]), &floats(&[1.0, 2.0, 2.5]), EXACT);
        assert_eq!((found[0].worst.clone(), found[0].wrong), (vec![1], 2));
    }
}
