//! Operators of Rust as operators of tensors: `&x * 2.0 + &y`, `-x`.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use super::argument::Arg;
use super::call::call;
use super::tensor::Tensor;

#[track_caller]
fn binary(name: &str, left: impl Into<Arg>, right: impl Into<Arg>) -> Tensor {
    call(name, vec![left.into(), right.into()], Vec::new()).swap_remove(0)
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:literal $reversed:expr;)*) => {$(
        impl<T: Into<Arg>> $trait<T> for &Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: T) -> Tensor {
                binary($name, self, right)
            }
        }

        impl<T: Into<Arg>> $trait<T> for Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: T) -> Tensor {
                binary($name, self, right)
            }
        }

        operators!(@number $trait $method $reversed; f32 f64 i32 i64);
    )*};
    (@number $trait:ident $method:ident $reversed:expr; $($number:ty)*) => {$(
        impl $trait<&Tensor> for $number {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: &Tensor) -> Tensor {
                let reversed: fn($number, &Tensor) -> Tensor = $reversed;
                reversed(self, right)
            }
        }

        impl $trait<Tensor> for $number {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: Tensor) -> Tensor {
                $trait::$method(self, &right)
            }
        }
    )*};
}

// A number on the left is put on the right, as PyTorch's tensors do: `2 - x` is `rsub(x, 2)`, `2 / x` is `2 · reciprocal(x)`.
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

impl Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        call("neg", vec![self.into()], Vec::new()).swap_remove(0)
    }
}

impl Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        -&self
    }
}
