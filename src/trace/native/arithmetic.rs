//! Rust's arithmetic operators for tensors: `&x * 2.0 + &y`, `-x`, and sums of several tensors.

use std::borrow::Borrow;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use super::argument::Arg;
use super::call::call;
use super::tensor::TracedTensor;

/// Calls a binary operator of PyTorch by name.
#[track_caller]
fn binary(name: &str, left: impl Into<Arg>, right: impl Into<Arg>) -> TracedTensor {
    call(name, vec![left.into(), right.into()], Vec::new()).swap_remove(0)
}

/// Implements arithmetic traits of Rust by PyTorch's operator `$name` for tensors on the left, and by the function
/// `$reversed` for numbers on the left.
macro_rules! operators {
    ($($trait:ident $method:ident $name:literal $reversed:expr;)*) => {$(
        impl<T: Into<Arg>> $trait<T> for &TracedTensor {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, right: T) -> TracedTensor {
                binary($name, self, right)
            }
        }

        impl<T: Into<Arg>> $trait<T> for TracedTensor {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, right: T) -> TracedTensor {
                binary($name, self, right)
            }
        }

        operators!(@number $trait $method $reversed; f32 f64 i32 i64);
    )*};
    (@number $trait:ident $method:ident $reversed:expr; $($number:ty)*) => {$(
        impl $trait<&TracedTensor> for $number {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, right: &TracedTensor) -> TracedTensor {
                let reversed: fn($number, &TracedTensor) -> TracedTensor = $reversed;
                reversed(self, right)
            }
        }

        impl $trait<TracedTensor> for $number {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, right: TracedTensor) -> TracedTensor {
                $trait::$method(self, &right)
            }
        }
    )*};
}

// A number on the left becomes the right operand, as in PyTorch: `2 - x` is `rsub(x, 2)`, `2 / x` is `2 · reciprocal(x)`.
operators! {
    Add add "add" |number, tensor| binary("add", tensor, number);
    Sub sub "sub" |number, tensor| binary("rsub", tensor, number);
    Mul mul "mul" |number, tensor| binary("mul", tensor, number);
    Div div "div" |number, tensor| {
        let inverse = call("reciprocal", vec![tensor.into()], Vec::new()).swap_remove(0);
        binary("mul", inverse, number)
    };
    Rem rem "remainder" |number, tensor| binary("remainder", number, tensor);
}

impl Neg for &TracedTensor {
    type Output = TracedTensor;

    #[track_caller]
    fn neg(self) -> TracedTensor {
        call("neg", vec![self.into()], Vec::new()).swap_remove(0)
    }
}

impl Neg for TracedTensor {
    type Output = TracedTensor;

    #[track_caller]
    fn neg(self) -> TracedTensor {
        -&self
    }
}

/// The sum of tensors, beginning with `0` as Python's `sum` does: `0 + x + y`. Without tensors, the integer 0.
impl<T: Borrow<TracedTensor>> Sum<T> for TracedTensor {
    #[track_caller]
    fn sum<I: Iterator<Item = T>>(mut tensors: I) -> TracedTensor {
        let Some(first) = tensors.next() else {
            return TracedTensor::scalar(0i64);
        };
        tensors.fold(0i64 + first.borrow(), |sum, x| sum + x.borrow())
    }
}
