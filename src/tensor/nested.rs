//! Tensors from numbers, and from arrays of arrays: `Tensor::from([[1.0, 2.0], [3.0, 4.0]])`.

use half::{bf16, f16};

use super::{Element, OwnedStorage, Tensor};
use crate::dtype::DType;

use std::sync::Arc;

/// A number, a truth value, or an array of equal arrays of these, with any number of levels.
///
/// The element type is the Rust type: literals without a suffix are `f64` or `i32`, unlike in PyTorch.
pub trait NestedArray {
    /// The numbers; truth values are bytes.
    type Number: Element;

    /// The element type of the tensor.
    const DTYPE: DType;

    /// Appends the sizes.
    fn push_sizes(sizes: &mut Vec<usize>);

    /// Appends the elements in row-major order.
    fn push_elements(&self, elements: &mut Vec<Self::Number>);
}

/// Implements [`NestedArray`] for elements by a conversion to a number.
macro_rules! elements {
    ($($element:ty => $number:ty, $dtype:ident, |$value:ident| $convert:expr;)*) => {$(
        impl NestedArray for $element {
            type Number = $number;

            const DTYPE: DType = DType::$dtype;

            fn push_sizes(_sizes: &mut Vec<usize>) {}

            fn push_elements(&self, elements: &mut Vec<$number>) {
                let $value = *self;
                elements.push($convert);
            }
        }
    )*};
}

elements! {
    bool => u8, Bool, |value| u8::from(value);
    u8 => u8, U8, |value| value;
    i8 => i8, I8, |value| value;
    i16 => i16, I16, |value| value;
    i32 => i32, I32, |value| value;
    i64 => i64, I64, |value| value;
    f16 => f16, F16, |value| value;
    bf16 => bf16, BF16, |value| value;
    f32 => f32, F32, |value| value;
    f64 => f64, F64, |value| value;
}

impl<A: NestedArray, const N: usize> NestedArray for [A; N] {
    type Number = A::Number;

    const DTYPE: DType = A::DTYPE;

    fn push_sizes(sizes: &mut Vec<usize>) {
        sizes.push(N);
        A::push_sizes(sizes);
    }

    fn push_elements(&self, elements: &mut Vec<A::Number>) {
        self.iter().for_each(|item| item.push_elements(elements));
    }
}

/// The tensor of a shape whose elements `items` have in order.
fn tensor_of<'a, A: NestedArray + 'a>(
    outer: Option<usize>,
    items: impl IntoIterator<Item = &'a A>,
) -> Tensor {
    let (mut shape, mut elements) = (Vec::from_iter(outer), Vec::new());
    A::push_sizes(&mut shape);
    for item in items {
        item.push_elements(&mut elements);
    }
    Tensor {
        dtype: A::DTYPE,
        shape,
        data: Arc::new(OwnedStorage(elements)),
    }
}

/// A number gives a tensor without dimensions, an array of `n` levels one with `n` dimensions.
impl<A: NestedArray> From<A> for Tensor {
    fn from(array: A) -> Tensor {
        tensor_of(None, [&array])
    }
}

/// The first size is the number of items.
impl<A: NestedArray> From<Vec<A>> for Tensor {
    fn from(items: Vec<A>) -> Tensor {
        tensor_of(Some(items.len()), &items)
    }
}

/// The first size is the number of items.
impl<A: NestedArray> From<&[A]> for Tensor {
    fn from(items: &[A]) -> Tensor {
        tensor_of(Some(items.len()), items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_all_levels_are_tensors() {
        let matrix = Tensor::from([[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        assert_eq!(matrix.shape(), [2, 3]);
        assert_eq!(
            matrix.to_vec::<f32>().unwrap(),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        );
        let four = Tensor::from([[[[1i64], [2]]], [[[3], [4]]]]);
        assert_eq!(four.shape(), [2, 1, 2, 1]);
        assert_eq!(four.to_vec::<i64>().unwrap(), [1, 2, 3, 4]);
        assert_eq!(Tensor::from(2.5).shape(), [0; 0]);
        assert_eq!(Tensor::from([[0f32; 0]; 3]).shape(), [3, 0]);
    }

    #[test]
    fn lists_and_slices_have_their_length_as_the_first_size() {
        let rows = vec![[1i32, 2], [3, 4], [5, 6]];
        assert_eq!(Tensor::from(rows.as_slice()), Tensor::from(rows.clone()));
        assert_eq!(Tensor::from(rows).shape(), [3, 2]);
        assert_eq!(Tensor::from(Vec::<[f32; 2]>::new()).shape(), [0, 2]);
    }

    #[test]
    fn element_types_are_those_of_rust() {
        let mask = Tensor::from([[true, false]]);
        assert_eq!(mask, Tensor::from_bools([1, 2], [true, false]).unwrap());
        let half = Tensor::from([f16::from_f32(0.5)]);
        assert_eq!((half.dtype(), half.to_f32()), (DType::F16, vec![0.5]));
        assert_eq!(Tensor::from([1.0]).dtype(), DType::F64);
    }
}
