//! Sizes of tensors, as traced programs compute with them.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::symbols::Symbols;
use crate::trace::check::Id;

use super::call_site;
use super::recorder;

/// A size of a tensor: a number, or in a trace an expression in the sizes of the inputs.
///
/// Programs compute with sizes as with integers: `x.dim(-1) / 2`, `2 * x.dim(0) + 1`. Such an expression stays one in the
/// graph, which then serves other sizes too. Division rounds towards minus infinity, as Python's `//` does. A division by
/// zero is an error of the operation that uses the result.
///
/// A comparison is answered for the example. The trace records the answer as a guard: the graph refuses sizes for which the
/// answer differs.
///
/// ```
/// use onionskin::trace::{TracedTensor, trace_fn};
///
/// # fn main() -> onionskin::Result<()> {
/// let halves = |x: TracedTensor| {
///     assert!(x.dim(0) >= 2);
///     x.narrow(0, 0, x.dim(0) / 2)
/// };
/// let traced = trace_fn(TracedTensor::from_vec([2], vec![1f32, 2.0]), halves)?;
/// let half: TracedTensor = traced.call(TracedTensor::from_vec([4], vec![1f32, 2.0, 3.0, 4.0]))?;
/// assert_eq!(half.shape(), [2]);
/// let refused = traced.call::<_, TracedTensor>(TracedTensor::from_vec([1], vec![1f32]));
/// assert!(refused.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Size {
    expression: Dim,
    /// The number for the example.
    example: i64,
    origin: SizeOrigin,
}

/// Where the symbols of a size come from.
#[derive(Clone)]
enum SizeOrigin {
    /// A number has none.
    Number,
    /// The trace with this number.
    Trace(u64),
    /// There is no such size.
    Failed(Error),
}

impl Size {
    /// A size in the symbols of a trace, with its number for the example.
    pub(super) fn of_trace(expression: Dim, example: i64, trace: u64) -> Size {
        let origin = match expression.as_const() {
            Some(_) => SizeOrigin::Number,
            None => SizeOrigin::Trace(trace),
        };
        Size {
            expression,
            example,
            origin,
        }
    }

    /// A size of a shape in the active trace, or a number.
    ///
    /// # Errors
    /// The size has symbols that the active trace does not have.
    pub(super) fn of_shape(size: &Dim) -> Result<Size> {
        if let Some(number) = size.as_const() {
            return Ok(Size::from(number));
        }
        let inactive = || {
            Error::usage(format!(
                "{size} is a size of a trace, and no trace is active"
            ))
        };
        recorder::active().ok_or_else(inactive)?.size(size)
    }

    /// A size that there is not. An operation that uses it fails with this error.
    pub(super) fn failed(error: Error) -> Size {
        Size {
            origin: SizeOrigin::Failed(error),
            ..Size::from(0)
        }
    }

    /// The expression, for use in the active trace or outside of traces.
    ///
    /// # Errors
    /// The size belongs to another trace, or there is no such size.
    pub(super) fn expression(&self) -> Result<Dim> {
        let own = match &self.origin {
            SizeOrigin::Number => return Ok(self.expression.clone()),
            SizeOrigin::Failed(error) => return Err(error.clone()),
            SizeOrigin::Trace(own) => Some(*own),
        };
        let active = recorder::active().map(|recorder| recorder.number());
        if own == active {
            return Ok(self.expression.clone());
        }
        if active.is_none() && own == recorder::runs_example_of() {
            return Ok(Dim::from(self.example));
        }
        let example = self.example;
        let message = format!("a size of another trace ({example} in its example) is used");
        Err(Error::usage(message).help("take the size from a tensor of this trace by `dim`"))
    }

    /// The quotient rounded up.
    #[must_use]
    #[track_caller]
    pub fn ceil_div(&self, divisor: impl Into<Size>) -> Size {
        self.divide(&divisor.into(), Dim::ceil_div)
    }

    /// The smaller of two sizes, as `torch.sym_min`.
    #[must_use]
    pub fn min(&self, other: impl Into<Size>) -> Size {
        self.combine(&other.into(), Dim::minimum)
    }

    /// The larger of two sizes, as `torch.sym_max`.
    #[must_use]
    pub fn max(&self, other: impl Into<Size>) -> Size {
        self.combine(&other.into(), Dim::maximum)
    }

    /// The product of sizes; 1 for none.
    pub fn product(sizes: impl IntoIterator<Item = Size>) -> Size {
        let sizes = sizes.into_iter();
        sizes.fold(Size::from(1), |product, size| product * size)
    }

    /// Computes a function of two sizes, in symbols and for the example.
    fn combine(&self, other: &Size, function: impl Fn(&Dim, &Dim) -> Dim) -> Size {
        let examples = [self, other].map(|size| Dim::from(size.example));
        let example = function(&examples[0], &examples[1]).as_const();
        Size {
            expression: function(&self.expression, &other.expression),
            example: example.unwrap_or_default(),
            origin: self.origin.joined(&other.origin),
        }
    }

    /// Computes a quotient or remainder.
    #[track_caller]
    fn divide(&self, divisor: &Size, function: impl Fn(&Dim, &Dim) -> Dim) -> Size {
        match (&divisor.origin, divisor.example) {
            (SizeOrigin::Number | SizeOrigin::Trace(_), 0) => {
                let error =
                    Error::operator(format!("the size {} is divided by zero", self.expression));
                Size::failed(error.at_place(&call_site::caller()))
            }
            _ => self.combine(divisor, function),
        }
    }

    /// True if this size is less than or equal to the other.
    #[track_caller]
    fn at_most(&self, other: &Size) -> bool {
        self.compare(other, Symbols::less_equal, i64::le)
    }

    /// Compares by the example. In a trace, `compare` records the answer for all sizes.
    #[track_caller]
    fn compare(
        &self,
        other: &Size,
        compare: fn(&Symbols, &Dim, &Dim) -> Result<bool>,
        for_example: fn(&i64, &i64) -> bool,
    ) -> bool {
        let answer = for_example(&self.example, &other.example);
        let Some(recorder) = recorder::active() else {
            return answer;
        };
        let place = call_site::caller();
        let sides = self
            .expression()
            .and_then(|left| Ok((left, other.expression()?)));
        let recorded =
            sides.and_then(|(left, right)| recorder.compare(&left, &right, compare, &place));
        if let Err(error) = recorded {
            recorder.fail(error.at_place(&place));
        }
        answer
    }
}

impl SizeOrigin {
    /// The origin of a size computed from two sizes. An origin that the active trace refuses is kept, so that it refuses the
    /// result too.
    fn joined(&self, other: &SizeOrigin) -> SizeOrigin {
        let active = recorder::active().map(|recorder| recorder.number());
        let rank = |origin: &&SizeOrigin| match origin {
            SizeOrigin::Number => 0,
            SizeOrigin::Trace(own) if Some(*own) == active => 1,
            SizeOrigin::Trace(_) => 2,
            SizeOrigin::Failed(_) => 3,
        };
        let strictest = [self, other].into_iter().max_by_key(rank);
        strictest.unwrap_or(self).clone()
    }
}

/// Reads a size as a number, which makes the trace valid for that size only. Warning `W0202` with the caller's line.
///
/// # Errors
/// The size belongs to another trace, or there is no such size.
#[track_caller]
pub fn freeze(size: &Size) -> Result<i64> {
    let expression = size.expression()?;
    let (None, Some(recorder)) = (expression.as_const(), recorder::active()) else {
        return Ok(size.example);
    };
    let number = recorder.freeze(&expression)?;
    let message = format!("the size {expression} is fixed to {number}");
    recorder.warn(Id::FrozenSize, message, &call_site::caller());
    Ok(number)
}

/// A number, or the expression with the example's number.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, self.expression.as_const()) {
            (SizeOrigin::Failed(_), _) => f.write_str("an impossible size"),
            (_, Some(number)) => write!(f, "{number}"),
            (_, None) => write!(f, "{} ({} in the example)", self.expression, self.example),
        }
    }
}

impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&Size> for Size {
    fn from(size: &Size) -> Size {
        size.clone()
    }
}

impl PartialEq for Size {
    #[track_caller]
    fn eq(&self, other: &Size) -> bool {
        self.compare(other, Symbols::equal, i64::eq)
    }
}

impl PartialOrd for Size {
    #[track_caller]
    fn partial_cmp(&self, other: &Size) -> Option<Ordering> {
        Some(match (self == other, self.at_most(other)) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        })
    }

    #[track_caller]
    fn lt(&self, other: &Size) -> bool {
        !other.at_most(self)
    }

    #[track_caller]
    fn le(&self, other: &Size) -> bool {
        self.at_most(other)
    }

    #[track_caller]
    fn gt(&self, other: &Size) -> bool {
        !self.at_most(other)
    }

    #[track_caller]
    fn ge(&self, other: &Size) -> bool {
        other.at_most(self)
    }
}

impl Neg for Size {
    type Output = Size;

    fn neg(self) -> Size {
        Size::from(0) - self
    }
}

/// Implements an operator of Rust for sizes on the left, and for numbers on the left of sizes.
macro_rules! operators {
    ($($trait:ident $method:ident $compute:ident $function:expr;)*) => {$(
        impl<T: Into<Size>> $trait<T> for &Size {
            type Output = Size;

            #[track_caller]
            fn $method(self, other: T) -> Size {
                self.$compute(&other.into(), $function)
            }
        }

        impl<T: Into<Size>> $trait<T> for Size {
            type Output = Size;

            #[track_caller]
            fn $method(self, other: T) -> Size {
                $trait::$method(&self, other)
            }
        }

        operators!(@number $trait $method; i64);
    )*};
    (@number $trait:ident $method:ident; $($number:ty)*) => {$(
        impl $trait<Size> for $number {
            type Output = Size;

            #[track_caller]
            fn $method(self, other: Size) -> Size {
                $trait::$method(Size::from(self), other)
            }
        }

        impl $trait<&Size> for $number {
            type Output = Size;

            #[track_caller]
            fn $method(self, other: &Size) -> Size {
                $trait::$method(Size::from(self), other)
            }
        }
    )*};
}

operators! {
    Add add combine |left, right| left + right;
    Sub sub combine |left, right| left - right;
    Mul mul combine |left, right| left * right;
    Div div divide Dim::floor_div;
    Rem rem divide Dim::modulo;
}

/// Converts numbers to sizes and compares sizes with them.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Size {
            fn from(number: $number) -> Size {
                let expression = Dim::from(number);
                let example = expression.as_const().unwrap_or_default();
                let origin = SizeOrigin::Number;
                Size { expression, example, origin }
            }
        }

        impl PartialEq<$number> for Size {
            #[track_caller]
            fn eq(&self, other: &$number) -> bool {
                self.eq(&Size::from(*other))
            }
        }

        impl PartialOrd<$number> for Size {
            #[track_caller]
            fn partial_cmp(&self, other: &$number) -> Option<Ordering> {
                self.partial_cmp(&Size::from(*other))
            }

            #[track_caller]
            fn lt(&self, other: &$number) -> bool {
                self.lt(&Size::from(*other))
            }

            #[track_caller]
            fn le(&self, other: &$number) -> bool {
                self.le(&Size::from(*other))
            }

            #[track_caller]
            fn gt(&self, other: &$number) -> bool {
                self.gt(&Size::from(*other))
            }

            #[track_caller]
            fn ge(&self, other: &$number) -> bool {
                self.ge(&Size::from(*other))
            }
        }
    )*};
}

numbers!(i32 i64 usize);
