//! Rust's operators for tensors: `&x * 2.0 + &y`, `-x`, `x += 1.0`, `&mask & !other`, and sums of several tensors.

use std::borrow::Borrow;
use std::iter::Sum;
use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign,
    Mul, MulAssign, Neg, Not, Rem, RemAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

use super::argument::Arg;
use super::call::call;
use super::call_site;
use super::in_place::call_in_place;
use super::parameter::{Buffer, Parameter};
use super::tensor::TracedTensor;

/// Calls a binary operator of PyTorch by name.
#[track_caller]
fn binary(name: &str, left: impl Into<Arg>, right: impl Into<Arg>) -> TracedTensor {
    call(name, vec![left.into(), right.into()], Vec::new()).swap_remove(0)
}

/// Implements traits of Rust's operators by PyTorch's operator `$name` for tensors on the left, by the function `$reversed`
/// for numbers of some types on the left, and by `$name` in place for the assignment.
macro_rules! operators {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident $name:literal ($($number:ty)*) $reversed:expr;)*) => {$(
        operators!(@left $trait $method $name; (&TracedTensor) (TracedTensor) (&Parameter) (&Buffer));

        /// Writes to the tensor's memory, as in Python: all tensors that share it change, clones too.
        impl<T: Into<Arg>> $assign<T> for TracedTensor {
            #[track_caller]
            fn $assign_method(&mut self, right: T) {
                let arguments = vec![Arg::from(&*self), right.into()];
                *self = call_in_place(&call_site::caller(), $name, arguments, Vec::new());
            }
        }

        operators!(@number $trait $method $reversed; $($number)*);
    )*};
    (@left $trait:ident $method:ident $name:literal; $(($left:ty))*) => {$(
        impl<T: Into<Arg>> $trait<T> for $left {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, right: T) -> TracedTensor {
                binary($name, self, right)
            }
        }
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

        operators!(@right $trait $method $number; (TracedTensor) (&Parameter) (&Buffer));
    )*};
    (@right $trait:ident $method:ident $number:ty; $(($right:ty))*) => {$(
        impl $trait<$right> for $number {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, right: $right) -> TracedTensor {
                let right: &TracedTensor = right.borrow();
                $trait::$method(self, right)
            }
        }
    )*};
}

// A number on the left becomes the right operand, as in PyTorch: `2 - x` is `rsub(x, 2)`, `2 / x` is `2 · reciprocal(x)`.
operators! {
    Add add AddAssign add_assign "add" (f64 i64) |number, tensor| binary("add", tensor, number);
    Sub sub SubAssign sub_assign "sub" (f32 f64 i32 i64) |number, tensor| binary("rsub", tensor, number);
    Mul mul MulAssign mul_assign "mul" (f32 f64 i32 i64) |number, tensor| binary("mul", tensor, number);
    Div div DivAssign div_assign "div" (f32 f64 i32 i64) |number, tensor| {
        let inverse = call("reciprocal", vec![tensor.into()], Vec::new()).swap_remove(0);
        binary("mul", inverse, number)
    };
    Rem rem RemAssign rem_assign "remainder" (f32 f64 i32 i64) |number, tensor| {
        binary("remainder", number, tensor)
    };
    BitAnd bitand BitAndAssign bitand_assign "__and__" (bool i32 i64) |number, tensor| {
        binary("bitwise_and", tensor, number)
    };
    BitOr bitor BitOrAssign bitor_assign "__or__" (bool i32 i64) |number, tensor| {
        binary("bitwise_or", tensor, number)
    };
    BitXor bitxor BitXorAssign bitxor_assign "__xor__" (bool i32 i64) |number, tensor| {
        binary("bitwise_xor", tensor, number)
    };
    Shl shl ShlAssign shl_assign "__lshift__" (i32 i64) |number, tensor| {
        binary("bitwise_left_shift", number, tensor)
    };
    Shr shr ShrAssign shr_assign "__rshift__" (i32 i64) |number, tensor| {
        binary("bitwise_right_shift", number, tensor)
    };
}

/// Implements a trait of a Rust operator with one operand by an operator of PyTorch.
macro_rules! unary {
    ($trait:ident $method:ident $name:literal; $(($operand:ty))*) => {$(
        impl $trait for $operand {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self) -> TracedTensor {
                call($name, vec![self.into()], Vec::new()).swap_remove(0)
            }
        }
    )*};
}

unary!(Neg neg "neg"; (&TracedTensor) (TracedTensor) (&Parameter) (&Buffer));
unary!(Not not "bitwise_not"; (&TracedTensor) (TracedTensor) (&Parameter) (&Buffer));

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
