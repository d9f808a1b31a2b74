//! Bounds of integers that hold for all inputs.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{Argument, Primitive};
use crate::op::{Binary, BinaryFunction, Check, Requirement};
use crate::scalar::Scalar;
use crate::shape::TensorType;

/// The smallest and the largest element, where known.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    low: Option<Dim>,
    high: Option<Dim>,
}

impl Range {
    fn exactly(number: Dim) -> Range {
        Range::between(number.clone(), number)
    }

    fn between(low: Dim, high: Dim) -> Range {
        Range {
            low: Some(low),
            high: Some(high),
        }
    }

    /// Indices along an axis of this size.
    fn of_axis(size: &Dim) -> Range {
        Range::between(Dim::ZERO, size - 1)
    }

    /// Range of a number or size argument.
    pub(super) fn of_number(argument: &Argument) -> Range {
        match argument {
            Argument::Number(Scalar::Int(number)) => Range::exactly(Dim::from(*number)),
            Argument::Size(size) => Range::exactly(size.clone()),
            _ => Range::default(),
        }
    }

    /// True if every element satisfies a check with these bounds.
    pub(super) fn satisfies(&self, check: &Check, bounds: &[Range]) -> bool {
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

    /// Narrows the range to elements that satisfy a check with these bounds.
    fn narrowed_by_check(self, check: &Check, bounds: &[Range]) -> Range {
        match (check.require, bounds) {
            (Requirement::Within, [low, end]) => Range {
                low: self.low.or_else(|| low.low.clone()),
                high: self.high.or_else(|| Some(end.high.as_ref()? - 1)),
            },
            _ => self,
        }
    }

    /// Range that covers both ranges.
    fn union(&self, other: &Range) -> Range {
        Range {
            low: combine_both(&self.low, &other.low, Dim::minimum),
            high: combine_both(&self.high, &other.high, Dim::maximum),
        }
    }
}

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
    operands: &[(Option<TensorType>, Range)],
) -> Range {
    let range = |place: usize| operands.get(place).map(|(_, range)| range.clone());
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
            .map_or(Range::default(), Range::of_axis),
        Primitive::ArgReduce(reduce) => size(reduce.axis).map_or(Range::default(), Range::of_axis),
        Primitive::Sort(sort) if result == 1 => {
            size(sort.axis).map_or(Range::default(), Range::of_axis)
        }
        Primitive::Concat(_) | Primitive::Pad(_) => union(operands),
        Primitive::Select(_) => union(operands.get(1..).unwrap_or_default()),
        Primitive::Cast(cast) => cast_range(operands.first(), cast.dtype),
        Primitive::Check(check) => {
            let bounds: Vec<Range> = operands.iter().skip(1).map(|it| it.1.clone()).collect();
            first().narrowed_by_check(check, &bounds)
        }
        Primitive::Binary(Binary { function }) => match (range(0), range(1)) {
            (Some(x), Some(y)) => binary_range(*function, &x, &y),
            _ => Range::default(),
        },
        _ => Range::default(),
    }
}

fn union(operands: &[(Option<TensorType>, Range)]) -> Range {
    let ranges = operands.iter().map(|(_, range)| range.clone());
    ranges.reduce(|a, b| a.union(&b)).unwrap_or_default()
}

/// Casts between wide integers keep every number that is an index or a size.
fn cast_range(operand: Option<&(Option<TensorType>, Range)>, to: DType) -> Range {
    let is_wide = |dtype: DType| matches!(dtype, DType::I32 | DType::I64);
    match operand {
        Some((Some(ty), _)) if ty.dtype == DType::Bool && to.is_integer() => {
            Range::between(Dim::ZERO, Dim::ONE)
        }
        Some((Some(ty), range)) if is_wide(to) && ty.dtype.is_integer() => range.clone(),
        _ => Range::default(),
    }
}

fn binary_range(function: BinaryFunction, x: &Range, y: &Range) -> Range {
    use BinaryFunction::{Add, FloorDivide, Maximum, Minimum, Mul, Remainder, Sub, TruncDivide};
    let sum: fn(&Dim, &Dim) -> Dim = |a, b| a + b;
    let difference: fn(&Dim, &Dim) -> Dim = |a, b| a - b;
    match function {
        Add => Range {
            low: combine_both(&x.low, &y.low, sum),
            high: combine_both(&x.high, &y.high, sum),
        },
        Sub => Range {
            low: combine_both(&x.low, &y.high, difference),
            high: combine_both(&x.high, &y.low, difference),
        },
        Maximum => Range {
            low: combine_known(&x.low, &y.low, Dim::maximum),
            high: combine_both(&x.high, &y.high, Dim::maximum),
        },
        Minimum => Range {
            low: combine_both(&x.low, &y.low, Dim::minimum),
            high: combine_known(&x.high, &y.high, Dim::minimum),
        },
        Mul if is_at_least(x, 0) && is_at_least(y, 0) => {
            let product: fn(&Dim, &Dim) -> Dim = |a, b| a * b;
            Range {
                low: combine_both(&x.low, &y.low, product),
                high: combine_both(&x.high, &y.high, product),
            }
        }
        FloorDivide | TruncDivide if is_at_least(x, 0) && is_at_least(y, 1) => Range {
            low: Some(Dim::ZERO),
            high: combine_both(&x.high, &y.low, Dim::floor_div),
        },
        Remainder if is_at_least(y, 1) => Range {
            low: Some(Dim::ZERO),
            high: y.high.as_ref().map(|high| high - 1),
        },
        _ => Range::default(),
    }
}

fn is_at_least(range: &Range, number: i64) -> bool {
    let low = range.low.as_ref().and_then(|low| low.lower_bound(|_| 0));
    low.is_some_and(|low| number <= low)
}
