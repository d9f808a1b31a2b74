//! Bounds of integers that hold for all inputs.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{Argument, Primitive};
use crate::op::{Binary, BinaryFunction, Check, Requirement};
use crate::scalar::Scalar;
use crate::shape::TensorType;

/// Bounds of all elements of an integer value, both inclusive; `None` for an unknown bound. They may depend on symbolic
/// sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct IntegerRange {
    low: Option<Dim>,
    high: Option<Dim>,
}

impl IntegerRange {
    /// Range of one number.
    fn exactly(number: Dim) -> IntegerRange {
        IntegerRange::between(number.clone(), number)
    }

    /// Range from `low` to `high`, both inclusive.
    fn between(low: Dim, high: Dim) -> IntegerRange {
        IntegerRange {
            low: Some(low),
            high: Some(high),
        }
    }

    /// Indices along an axis of this size.
    fn of_axis(size: &Dim) -> IntegerRange {
        IntegerRange::between(Dim::ZERO, size - 1)
    }

    /// Range of a number or size argument.
    pub(super) fn of_number(argument: &Argument) -> IntegerRange {
        match argument {
            Argument::Number(Scalar::Int(number)) => IntegerRange::exactly(Dim::from(*number)),
            Argument::Size(size) => IntegerRange::exactly(size.clone()),
            _ => IntegerRange::default(),
        }
    }

    /// True if every element satisfies a check. `bounds` has the ranges of the operands after the checked one.
    pub(super) fn satisfies(&self, check: &Check, bounds: &[IntegerRange]) -> bool {
        let is_not_less = |a: &Option<Dim>, b: &Option<Dim>| match (a, b) {
            (Some(a), Some(b)) => (a - b).lower_bound(|_| 0).is_some_and(|least| 0 <= least),
            _ => false,
        };
        match (check.require, bounds) {
            (Requirement::Holds, _) => false,
            (Requirement::Nonzero, _) => {
                let is_positive = is_not_less(&self.low, &Some(Dim::ONE));
                is_positive || is_not_less(&Some(Dim::from(-1)), &self.high)
            }
            (Requirement::Within, [low, end]) => {
                let last = end.low.as_ref().map(|end| end - 1);
                is_not_less(&self.low, &low.high) && is_not_less(&last, &self.high)
            }
            (Requirement::Within, _) => false,
        }
    }

    /// Fills unknown bounds from a check that the elements have passed. `bounds` is that of
    /// [`IntegerRange::satisfies`].
    fn narrowed_by_check(self, check: &Check, bounds: &[IntegerRange]) -> IntegerRange {
        match (check.require, bounds) {
            (Requirement::Within, [low, end]) => IntegerRange {
                low: self.low.or_else(|| low.low.clone()),
                high: self.high.or_else(|| Some(end.high.as_ref()? - 1)),
            },
            _ => self,
        }
    }

    /// Range that covers both ranges.
    fn union(&self, other: &IntegerRange) -> IntegerRange {
        IntegerRange {
            low: combine_both(&self.low, &other.low, Dim::minimum),
            high: combine_both(&self.high, &other.high, Dim::maximum),
        }
    }
}

/// Combines two bounds, if both are known.
fn combine_both(a: &Option<Dim>, b: &Option<Dim>, combine: fn(&Dim, &Dim) -> Dim) -> Option<Dim> {
    Some(combine(a.as_ref()?, b.as_ref()?))
}

/// Combines two bounds, or returns the one that is known.
fn combine_known(a: &Option<Dim>, b: &Option<Dim>, combine: fn(&Dim, &Dim) -> Dim) -> Option<Dim> {
    combine_both(a, b, combine).or_else(|| a.clone().or_else(|| b.clone()))
}

/// Range of one result of a primitive, from the types and ranges of its operands. Operands that are numbers have no type.
pub(super) fn result_range(
    primitive: &Primitive,
    result: usize,
    operands: &[(Option<TensorType>, IntegerRange)],
) -> IntegerRange {
    let range = |index: usize| operands.get(index).map(|(_, range)| range.clone());
    let first = || range(0).unwrap_or_default();
    let size = |axis: usize| operands.first()?.0.as_ref()?.shape.get(axis);
    match primitive {
        Primitive::Full(_)
        | Primitive::Reshape(_)
        | Primitive::Permute(_)
        | Primitive::Expand(_)
        | Primitive::Slice(_)
        | Primitive::Unfold(_)
        | Primitive::Gather(_) => first(),
        Primitive::Iota(iota) => iota
            .shape
            .get(iota.axis)
            .map_or(IntegerRange::default(), IntegerRange::of_axis),
        Primitive::ArgReduce(reduce) => {
            size(reduce.axis).map_or(IntegerRange::default(), IntegerRange::of_axis)
        }
        Primitive::Sort(sort) if result == 1 => {
            size(sort.axis).map_or(IntegerRange::default(), IntegerRange::of_axis)
        }
        Primitive::Concat(_) | Primitive::Pad(_) => union(operands),
        Primitive::Select(_) => union(operands.get(1..).unwrap_or_default()),
        Primitive::Cast(cast) => cast_range(operands.first(), cast.dtype),
        Primitive::Check(check) => {
            let bounds: Vec<IntegerRange> = operands
                .iter()
                .skip(1)
                .map(|operand| operand.1.clone())
                .collect();
            first().narrowed_by_check(check, &bounds)
        }
        Primitive::Binary(Binary { function }) => match (range(0), range(1)) {
            (Some(x), Some(y)) => binary_range(*function, &x, &y),
            _ => IntegerRange::default(),
        },
        _ => IntegerRange::default(),
    }
}

/// Range that covers the ranges of all operands.
fn union(operands: &[(Option<TensorType>, IntegerRange)]) -> IntegerRange {
    let ranges = operands.iter().map(|(_, range)| range.clone());
    ranges.reduce(|a, b| a.union(&b)).unwrap_or_default()
}

/// Range of a cast. A cast of an integer to `i32` or `i64` keeps the range, since indices and sizes fit both dtypes. A
/// cast of `bool` is 0 or 1.
fn cast_range(operand: Option<&(Option<TensorType>, IntegerRange)>, to: DType) -> IntegerRange {
    let is_wide = |dtype: DType| matches!(dtype, DType::I32 | DType::I64);
    match operand {
        Some((Some(ty), _)) if ty.dtype == DType::Bool && to.is_integer() => {
            IntegerRange::between(Dim::ZERO, Dim::ONE)
        }
        Some((Some(ty), range)) if is_wide(to) && ty.dtype.is_integer() => range.clone(),
        _ => IntegerRange::default(),
    }
}

/// Range of a binary function of operands with the ranges `x` and `y`.
fn binary_range(function: BinaryFunction, x: &IntegerRange, y: &IntegerRange) -> IntegerRange {
    use BinaryFunction::{Add, FloorDivide, Maximum, Minimum, Mul, Remainder, Sub, TruncDivide};
    let sum: fn(&Dim, &Dim) -> Dim = |a, b| a + b;
    let difference: fn(&Dim, &Dim) -> Dim = |a, b| a - b;
    match function {
        Add => IntegerRange {
            low: combine_both(&x.low, &y.low, sum),
            high: combine_both(&x.high, &y.high, sum),
        },
        Sub => IntegerRange {
            low: combine_both(&x.low, &y.high, difference),
            high: combine_both(&x.high, &y.low, difference),
        },
        Maximum => IntegerRange {
            low: combine_known(&x.low, &y.low, Dim::maximum),
            high: combine_both(&x.high, &y.high, Dim::maximum),
        },
        Minimum => IntegerRange {
            low: combine_both(&x.low, &y.low, Dim::minimum),
            high: combine_known(&x.high, &y.high, Dim::minimum),
        },
        Mul if is_at_least(x, 0) && is_at_least(y, 0) => {
            let product: fn(&Dim, &Dim) -> Dim = |a, b| a * b;
            IntegerRange {
                low: combine_both(&x.low, &y.low, product),
                high: combine_both(&x.high, &y.high, product),
            }
        }
        FloorDivide | TruncDivide if is_at_least(x, 0) && is_at_least(y, 1) => IntegerRange {
            low: Some(Dim::ZERO),
            high: combine_both(&x.high, &y.low, Dim::floor_div),
        },
        Remainder if is_at_least(y, 1) => IntegerRange {
            low: Some(Dim::ZERO),
            high: y.high.as_ref().map(|high| high - 1),
        },
        _ => IntegerRange::default(),
    }
}

/// True if every element is at least `number`.
fn is_at_least(range: &IntegerRange, number: i64) -> bool {
    let low = range.low.as_ref().and_then(|low| low.lower_bound(|_| 0));
    low.is_some_and(|low| number <= low)
}
