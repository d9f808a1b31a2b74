//! Conversions between tensors and arrays of the crate `ndarray`.

use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};

use super::{Element, Tensor};
use crate::error::{Error, Result};

impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Tensor {
    /// Copies the elements in row-major order, whatever the strides of the array.
    fn from(array: &ArrayBase<S, D>) -> Tensor {
        Tensor::owned(array.shape().to_vec(), array.iter().copied().collect())
    }
}

impl<T: Element> TryFrom<&Tensor> for ArrayD<T> {
    type Error = Error;

    /// Copies the elements.
    ///
    /// # Errors
    /// `T` is not the element type of the tensor.
    fn try_from(tensor: &Tensor) -> Result<ArrayD<T>> {
        Ok(tensor.as_array()?.to_owned())
    }
}

impl Tensor {
    /// The elements as an array view, without a copy. `bool` is read as `u8`.
    ///
    /// # Errors
    /// `T` is not the element type of the tensor.
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        ArrayViewD::from_shape(IxDyn(self.shape()), self.as_slice()?)
            .map_err(|error| Error::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayD, arr2};

    use super::*;

    #[test]
    fn an_array_is_copied_in_row_major_order() {
        let array = arr2(&[[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let tensor = Tensor::from(&array.t());
        assert_eq!(tensor.shape(), [3, 2]);
        assert_eq!(
            tensor.as_slice::<f32>().unwrap(),
            [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        );
    }

    #[test]
    fn a_tensor_comes_back_as_the_array() {
        let array: Array2<i64> = arr2(&[[1, 2], [3, 4]]);
        let tensor = Tensor::from(&array);
        assert_eq!(ArrayD::<i64>::try_from(&tensor).unwrap(), array.into_dyn());
        assert!(ArrayD::<f32>::try_from(&tensor).is_err());
    }

    #[test]
    fn arrays_without_elements_or_dimensions_are_tensors() {
        let empty = Tensor::from(&Array2::<f32>::zeros((0, 3)));
        assert_eq!((empty.shape(), empty.numel()), ([0, 3].as_slice(), 0));
        let scalar = Tensor::from(&ndarray::arr0(7u8));
        assert_eq!(scalar.as_array::<u8>().unwrap().ndim(), 0);
    }
}
