//! Tensors of an archive: strided views of raw storages.

use std::sync::Arc;

use super::Container;
use crate::budget::Budget;
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::shape::TensorType;
use crate::tensor::{self, Tensor, TensorStorage};

/// A reference to a tensor: a storage, and the elements of it that the tensor has. Two equal records are the same memory, as
/// with tied weights. Records of one `storage` may overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorRecord {
    /// Name of the record with the bytes, `data/0`.
    pub storage: Arc<str>,
    /// Number of elements of the storage.
    pub storage_numel: usize,
    /// Element type.
    pub dtype: DType,
    /// Position of the first element in the storage, in elements.
    pub offset: usize,
    /// Sizes, outermost first.
    pub sizes: Vec<usize>,
    /// Distances between neighbours along each dimension, in elements.
    pub strides: Vec<usize>,
}

impl TensorRecord {
    /// Number of elements; an error if it overflows.
    pub fn numel(&self) -> Result<usize> {
        let product = |product: usize, size: &usize| product.checked_mul(*size);
        let numel = self.sizes.iter().try_fold(1, product);
        numel.ok_or_else(|| Error::format(format!("sizes {:?} overflow", self.sizes)))
    }

    /// Element type and sizes.
    pub fn tensor_type(&self) -> TensorType {
        TensorType::new(self.dtype, self.sizes.iter().copied())
    }

    /// True if the elements are in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let dense = tensor::strides(&self.sizes);
        let dims = self.sizes.iter().zip(self.strides.iter().zip(&dense));
        let mut non_unit = dims.filter(|(size, _)| **size != 1);
        self.sizes.contains(&0) || non_unit.all(|(_, (stride, dense))| stride == dense)
    }

    /// Reads the tensor. Its bytes are charged to the budget: many tensors may be parts of one storage.
    pub fn read(&self, container: &Container, budget: &Budget) -> Result<Tensor> {
        let tensor = self.open(container, budget)?.load();
        tensor.at(|| format!("tensor {} of {}", self.tensor_type(), self.storage))
    }

    /// The tensor. If it is contiguous, it is read when it is used; else it is gathered.
    pub(crate) fn open(&self, container: &Container, budget: &Budget) -> Result<Tensor> {
        self.read_unnamed(container, budget)
            .at(|| format!("tensor {} of {}", self.tensor_type(), self.storage))
    }

    /// Reads the tensor. Errors do not name it.
    fn read_unnamed(&self, container: &Container, budget: &Budget) -> Result<Tensor> {
        let numel = self.numel()?;
        if numel == 0 {
            return Tensor::from_bytes(self.dtype, self.sizes.clone(), &[]);
        }
        budget.charge_bytes((numel as u64).saturating_mul(self.dtype.size() as u64))?;
        let storage = container.record_in_place(&self.storage)?;
        let elements = storage.len() / self.dtype.size();
        self.check_bounds(elements)?;
        if !self.is_contiguous() {
            return self.gather(numel, storage.load()?.bytes());
        }
        let size = self.dtype.size();
        let range = storage.slice(self.offset * size..(self.offset + numel) * size);
        let range = range.ok_or_else(|| Error::internal("a checked range is out of bounds"))?;
        // Copying normalises bytes other than 0 and 1 in a bool tensor, and aligns elements.
        if self.dtype == DType::Bool || !range.is_aligned(size) {
            return Tensor::from_bytes(self.dtype, self.sizes.clone(), range.load()?.bytes());
        }
        Tensor::from_storage(self.dtype, self.sizes.clone(), Arc::new(range))
    }

    /// Checks that the last element, and so every element, is within a storage of `elements` elements. No dimension may
    /// be empty.
    fn check_bounds(&self, elements: usize) -> Result<()> {
        if self.sizes.len() != self.strides.len() {
            let (strides, sizes) = (self.strides.len(), self.sizes.len());
            let message = format!("a tensor has {strides} strides for {sizes} sizes");
            return Err(Error::format(message));
        }
        let mut last = Some(self.offset);
        for (size, stride) in self.sizes.iter().zip(&self.strides) {
            let span = (size - 1).checked_mul(*stride);
            last = last
                .zip(span)
                .and_then(|(last, span)| last.checked_add(span));
        }
        if last.is_some_and(|last| last < elements) {
            return Ok(());
        }
        let TensorRecord {
            offset, strides, ..
        } = self;
        Err(Error::format(format!(
            "offset {offset} and strides {strides:?} reach beyond the storage of {elements} elements"
        )))
    }

    /// Copies the elements from the bytes of the storage in row-major order.
    fn gather(&self, numel: usize, storage: &[u8]) -> Result<Tensor> {
        let size = self.dtype.size();
        let mut gathered = Vec::with_capacity(numel.saturating_mul(size));
        let mut index = vec![0; self.sizes.len()];
        let mut position = self.offset;
        for _ in 0..numel {
            let element = storage.get(position * size..(position + 1) * size);
            gathered.extend_from_slice(element.unwrap_or_default());
            self.advance(&mut index, &mut position);
        }
        Tensor::from_bytes(self.dtype, self.sizes.clone(), &gathered)
    }

    /// Moves `index` to the next element in row-major order, and `position` to that element's position in the storage.
    fn advance(&self, index: &mut [usize], position: &mut usize) {
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            *position += self.strides[axis];
            if index[axis] < self.sizes[axis] {
                return;
            }
            *position -= index[axis] * self.strides[axis];
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: usize, sizes: &[usize], strides: &[usize]) -> TensorRecord {
        TensorRecord {
            storage: "data/0".into(),
            storage_numel: 6,
            dtype: DType::U8,
            offset,
            sizes: sizes.to_vec(),
            strides: strides.to_vec(),
        }
    }

    #[test]
    fn gathers_any_strides() {
        let bytes = [0, 1, 2, 3, 4, 5];
        let gather = |record: TensorRecord| {
            record.check_bounds(6)?;
            Ok::<_, Error>(record.gather(record.numel()?, &bytes)?.to_i64())
        };
        let transposed = gather(record(0, &[3, 2], &[1, 3])).unwrap();
        assert_eq!(transposed, [0, 3, 1, 4, 2, 5]);
        assert_eq!(gather(record(2, &[3], &[0])).unwrap(), [2, 2, 2]);
        assert_eq!(gather(record(1, &[], &[])).unwrap(), [1]);
        assert!(gather(record(1, &[3, 2], &[1, 3])).is_err());
        assert!(gather(record(usize::MAX, &[2], &[1])).is_err());
        assert!(gather(record(0, &[usize::MAX, 2], &[0, 0])).is_err());
    }

    #[test]
    fn contiguity_ignores_sizes_of_one() {
        assert!(record(0, &[2, 1, 3], &[3, 77, 1]).is_contiguous());
        assert!(record(0, &[0, 4], &[9, 9]).is_contiguous());
        assert!(!record(0, &[3, 2], &[1, 3]).is_contiguous());
    }
}
