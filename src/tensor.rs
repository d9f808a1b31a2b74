//! Host tensors: contiguous, with shared data that may be in a file.

#[cfg(feature = "ndarray")]
mod array;
mod nested;
#[cfg(feature = "images")]
mod picture;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use half::{bf16, f16};

use crate::dtype::{Category, DType};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::shape::TensorType;

pub use nested::NestedArray;

/// The bytes of a tensor: an owned vector or a part of a file.
#[expect(clippy::len_without_is_empty, reason = "no caller asks")]
pub trait TensorStorage: Send + Sync {
    /// All bytes: little-endian elements in row-major order.
    fn bytes(&self) -> &[u8];

    /// Number of bytes. Reads no file.
    fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Storage whose bytes are in memory; `None` if those of this one are.
    ///
    /// # Errors
    /// The bytes are in a file that cannot be read, or that changed since it was opened.
    fn load(&self) -> Result<Option<Arc<dyn TensorStorage>>> {
        Ok(None)
    }

    /// Hints that the bytes will not be read soon, so that cached pages of a file may be dropped.
    fn unload(&self) {}

    /// The storage itself, for modules that use their own kind of storage otherwise; `None` for all other kinds.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

struct OwnedStorage<T>(Vec<T>);

impl<T: bytemuck::Pod + Send + Sync> TensorStorage for OwnedStorage<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A tensor in host memory, row-major and contiguous. Clones share the data.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Arc<dyn TensorStorage>,
}

/// A Rust type that represents a dtype on the host. `bool` tensors have `u8` elements of 0 and 1.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The dtype of tensors with such elements.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {$(
        impl Element for $type { const DTYPE: DType = DType::$dtype; }
    )*};
}

elements!(u8 => U8, i8 => I8, i16 => I16, i32 => I32, i64 => I64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

impl Tensor {
    /// A tensor of elements in row-major order; an error if their number does not match the shape.
    pub fn from_vec<T: Element>(shape: impl Into<Vec<usize>>, data: Vec<T>) -> Result<Tensor> {
        Tensor::from_storage(T::DTYPE, shape.into(), Arc::new(OwnedStorage(data)))
    }

    /// A tensor of copied elements in row-major order; an error if their number does not match the shape.
    pub fn from_slice<T: Element>(shape: impl Into<Vec<usize>>, data: &[T]) -> Result<Tensor> {
        Tensor::from_vec(shape, data.to_vec())
    }

    /// A tensor of elements whose number is known to match the shape.
    #[cfg(any(feature = "ndarray", feature = "images"))]
    fn owned<T: Element>(shape: Vec<usize>, data: Vec<T>) -> Tensor {
        debug_assert_eq!(checked_numel(&shape), Some(data.len()));
        Tensor {
            dtype: T::DTYPE,
            shape,
            data: Arc::new(OwnedStorage(data)),
        }
    }

    /// A `bool` tensor.
    pub fn from_bools(
        shape: impl Into<Vec<usize>>,
        data: impl IntoIterator<Item = bool>,
    ) -> Result<Tensor> {
        let bytes: Vec<u8> = data.into_iter().map(u8::from).collect();
        Tensor::from_storage(DType::Bool, shape.into(), Arc::new(OwnedStorage(bytes)))
    }

    /// A tensor over shared bytes; an error if their number does not match dtype and shape.
    pub fn from_storage(
        dtype: DType,
        shape: Vec<usize>,
        data: Arc<dyn TensorStorage>,
    ) -> Result<Tensor> {
        let expected = checked_numel(&shape).and_then(|numel| numel.checked_mul(dtype.size()));
        let found = data.len();
        if expected != Some(found) {
            return Err(Error::format(format!(
                "{dtype}{shape:?} does not fit {found} bytes"
            )));
        }
        Ok(Tensor { dtype, shape, data })
    }

    /// A tensor from little-endian bytes, which are copied to align them.
    pub fn from_bytes(dtype: DType, shape: impl Into<Vec<usize>>, bytes: &[u8]) -> Result<Tensor> {
        let shape = shape.into();
        if !bytes.len().is_multiple_of(dtype.size()) {
            return Err(Error::format(format!(
                "{} bytes are not a multiple of the size of {dtype}",
                bytes.len()
            )));
        }
        let data: Arc<dyn TensorStorage> = match dtype {
            DType::Bool => Arc::new(OwnedStorage(
                bytes.iter().map(|byte| u8::from(*byte != 0)).collect(),
            )),
            DType::U8 => Arc::new(OwnedStorage(bytes.to_vec())),
            DType::I8 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, i8>(bytes))),
            DType::I16 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, i16>(bytes))),
            DType::I32 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, i32>(bytes))),
            DType::I64 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, i64>(bytes))),
            DType::F16 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, f16>(bytes))),
            DType::BF16 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, bf16>(
                bytes,
            ))),
            DType::F32 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, f32>(bytes))),
            DType::F64 => Arc::new(OwnedStorage(bytemuck::pod_collect_to_vec::<u8, f64>(bytes))),
        };
        Tensor::from_storage(dtype, shape, data)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The type, with every size a number.
    pub fn tensor_type(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().copied())
    }

    /// Number of bytes.
    pub fn byte_count(&self) -> usize {
        self.data.len()
    }

    /// The tensor with its bytes in memory. They stay there as long as the result; those of a file are read.
    ///
    /// # Errors
    /// The bytes are in a file that cannot be read, or that changed since it was opened.
    pub fn load(&self) -> Result<Tensor> {
        let data = self.data.load()?.unwrap_or_else(|| self.data.clone());
        Ok(Tensor {
            dtype: self.dtype,
            shape: self.shape.clone(),
            data,
        })
    }

    /// The storage of the bytes.
    pub(crate) fn storage(&self) -> &dyn TensorStorage {
        &*self.data
    }

    /// The storage of the bytes, shared with clones.
    pub(crate) fn into_storage(self) -> Arc<dyn TensorStorage> {
        self.data
    }

    /// True if other tensors share the bytes.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.data) > 1
    }

    /// The bytes, little-endian and row-major. Those of a file are read on first use and kept in memory.
    ///
    /// # Panics
    /// The bytes are in a file that cannot be read, or that changed since it was opened. [`Tensor::load`] returns an error
    /// instead. Tensors that functions of this crate return are in memory, unless their documentation says otherwise.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Hints that the bytes will not be read soon. Those of a mapped file are then read from it again.
    pub fn unload(&self) {
        self.data.unload();
    }

    /// The elements; an error if `T` is not their type. `bool` is read as `u8`.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let same = T::DTYPE == self.dtype || (T::DTYPE == DType::U8 && self.dtype == DType::Bool);
        if !same {
            return Err(Error::input(format!(
                "the tensor is {}, not {}",
                self.dtype,
                T::DTYPE
            )));
        }
        bytemuck::try_cast_slice(self.bytes())
            .map_err(|_| Error::format("tensor data is not aligned"))
    }

    /// A copy of the elements; an error if `T` is not their type. `bool` is read as `u8`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.as_slice()?.to_vec())
    }

    /// Shares the data under another shape with an equal number of elements.
    pub fn reshape(&self, shape: impl Into<Vec<usize>>) -> Result<Tensor> {
        Tensor::from_storage(self.dtype, shape.into(), self.data.clone())
    }

    /// The only element; an error if there is not exactly one.
    pub fn item(&self) -> Result<Scalar> {
        if self.numel() != 1 {
            let message = format!("a tensor of shape {:?} is not one number", self.shape);
            return Err(Error::input(message));
        }
        let integer = || self.to_i64().first().copied().unwrap_or_default();
        Ok(match self.dtype.category() {
            Category::Bool => Scalar::Bool(integer() != 0),
            Category::Integer => Scalar::Int(integer()),
            Category::Float => Scalar::Float(self.to_f64().first().copied().unwrap_or_default()),
        })
    }

    /// The elements as numbers of their category; integers are exact.
    pub fn scalars(&self) -> impl Iterator<Item = Scalar> {
        let elements = self.bytes().chunks_exact(self.dtype.size());
        elements.map(|bytes| scalar(self.dtype, bytes))
    }

    /// Elements as `f64`; exact except for large 64-bit integers.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype {
            DType::Bool | DType::U8 => self.map::<u8, _>(f64::from),
            DType::I8 => self.map::<i8, _>(f64::from),
            DType::I16 => self.map::<i16, _>(f64::from),
            DType::I32 => self.map::<i32, _>(f64::from),
            DType::I64 => self.map::<i64, _>(|value| value as f64),
            DType::F16 => self.map::<f16, _>(f64::from),
            DType::BF16 => self.map::<bf16, _>(f64::from),
            DType::F32 => self.map::<f32, _>(f64::from),
            DType::F64 => self.map::<f64, _>(|value| value),
        }
    }

    /// Elements as `i64`; floats are truncated towards zero and saturate.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype {
            DType::Bool | DType::U8 => self.map::<u8, _>(i64::from),
            DType::I8 => self.map::<i8, _>(i64::from),
            DType::I16 => self.map::<i16, _>(i64::from),
            DType::I32 => self.map::<i32, _>(i64::from),
            DType::I64 => self.map::<i64, _>(|value| value),
            DType::F16 => self.map::<f16, _>(|value| f32::from(value) as i64),
            DType::BF16 => self.map::<bf16, _>(|value| f32::from(value) as i64),
            DType::F32 => self.map::<f32, _>(|value| value as i64),
            DType::F64 => self.map::<f64, _>(|value| value as i64),
        }
    }

    /// Elements as `f32`.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            DType::F32 => self.map::<f32, _>(|value| value),
            DType::F16 => self.map::<f16, _>(f32::from),
            _ => self
                .to_f64()
                .into_iter()
                .map(|value| value as f32)
                .collect(),
        }
    }

    fn map<T: Element, U>(&self, function: impl Fn(T) -> U) -> Vec<U> {
        // Reads elements one by one, since mapped data may be unaligned.
        self.bytes()
            .chunks_exact(size_of::<T>())
            .map(|bytes| function(bytemuck::pod_read_unaligned(bytes)))
            .collect()
    }

    /// Converts `f64` elements to a dtype. Floats are rounded to nearest; integers are truncated and wrap, and values beyond
    /// every integer become the lowest one; `bool` is "not zero".
    pub fn from_f64(dtype: DType, shape: impl Into<Vec<usize>>, data: Vec<f64>) -> Result<Tensor> {
        let shape = shape.into();
        match dtype {
            DType::F64 => Tensor::from_vec(shape, data),
            DType::F32 => Tensor::from_vec(shape, collect(data, |value| value as f32)),
            DType::F16 => Tensor::from_vec(shape, collect(data, f16::from_f64)),
            DType::BF16 => Tensor::from_vec(shape, collect(data, bf16::from_f64)),
            DType::Bool => Tensor::from_bools(shape, data.into_iter().map(|value| value != 0.0)),
            DType::I64 => Tensor::from_vec(shape, collect(data, to_i64)),
            _ => Tensor::from_i64(
                dtype,
                shape,
                collect(data, |value| i64::from(to_i32(value))),
            ),
        }
    }

    /// Converts `i64` elements to a dtype. Integers wrap as in PyTorch; `bool` is "not zero".
    pub fn from_i64(dtype: DType, shape: impl Into<Vec<usize>>, data: Vec<i64>) -> Result<Tensor> {
        let shape = shape.into();
        match dtype {
            DType::Bool => Tensor::from_bools(shape, data.into_iter().map(|value| value != 0)),
            DType::U8 => Tensor::from_vec(shape, collect(data, |value| value as u8)),
            DType::I8 => Tensor::from_vec(shape, collect(data, |value| value as i8)),
            DType::I16 => Tensor::from_vec(shape, collect(data, |value| value as i16)),
            DType::I32 => Tensor::from_vec(shape, collect(data, |value| value as i32)),
            DType::I64 => Tensor::from_vec(shape, data),
            _ => Tensor::from_f64(dtype, shape, collect(data, |value| value as f64)),
        }
    }

    /// Converts the tensor like `Tensor.to(dtype)`.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        if self.dtype.is_float() && dtype.is_integer() {
            let data = collect(self.to_f64(), |value| float_to_integer(value, dtype));
            Tensor::from_i64(dtype, self.shape.clone(), data)
        } else if self.dtype.is_float() {
            Tensor::from_f64(dtype, self.shape.clone(), self.to_f64())
        } else {
            Tensor::from_i64(dtype, self.shape.clone(), self.to_i64())
        }
    }

    /// A tensor filled with a value.
    pub fn full(dtype: DType, shape: impl Into<Vec<usize>>, value: f64) -> Result<Tensor> {
        let shape = shape.into();
        let data = vec![value; numel(&shape)?];
        Tensor::from_f64(dtype, shape, data)
    }
}

/// Truncates as PyTorch's CPU kernels on x86 do. A number beyond the machine integer (32 bits, 64 bits for `i64`) becomes
/// its smallest value, of which narrower types keep the low bits.
fn float_to_integer(value: f64, dtype: DType) -> i64 {
    let (low, high) = match dtype {
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
        _ => (f64::from(i32::MIN), f64::from(i32::MAX) + 1.0),
    };
    let inside = low <= value.trunc() && value < high;
    if inside { value as i64 } else { low as i64 }
}

fn collect<T, U>(data: Vec<T>, function: impl Fn(T) -> U) -> Vec<U> {
    data.into_iter().map(function).collect()
}

/// Converts a float to `i64`. Values out of range and not-a-number are undefined in C and hence in PyTorch; this returns the
/// result of x86-64.
fn to_i64(value: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    if fits { value as i64 } else { i64::MIN }
}

/// Converts a float to `i32`, like [`to_i64`]; narrower integers are the low bits of the result.
fn to_i32(value: f64) -> i32 {
    let fits = value > -2_147_483_649.0 && value < 2_147_483_648.0;
    if fits { value as i32 } else { i32::MIN }
}

/// Number of elements of a shape; an error if memory for that many is not available.
pub fn numel(shape: &[usize]) -> Result<usize> {
    let message = || format!("not enough memory for a tensor of shape {shape:?}");
    let too_large = || Error::operator(message());
    let numel = checked_numel(shape).ok_or_else(too_large)?;
    let bytes = numel.checked_mul(size_of::<f64>());
    match bytes.is_some_and(can_reserve) {
        true => Ok(numel),
        false => Err(too_large()),
    }
}

/// True if the system reserves so many bytes. An allocation that fails later would abort the process.
pub(crate) fn can_reserve(bytes: usize) -> bool {
    // `black_box` keeps the compiler from removing the reservation.
    let reserved = std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(bytes);
    reserved.is_ok()
}

/// Treats axes of size 0 as 1, so that the product of any of the sizes is known not to overflow.
fn checked_numel(shape: &[usize]) -> Option<usize> {
    let product = shape
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul((*size).max(1)))?;
    Some(if shape.contains(&0) { 0 } else { product })
}

/// Row-major strides in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}

/// Decodes an element from its bytes.
fn scalar(dtype: DType, bytes: &[u8]) -> Scalar {
    use bytemuck::pod_read_unaligned as read;
    match dtype {
        DType::Bool => Scalar::Bool(read::<u8>(bytes) != 0),
        DType::U8 => Scalar::Int(read::<u8>(bytes).into()),
        DType::I8 => Scalar::Int(read::<i8>(bytes).into()),
        DType::I16 => Scalar::Int(read::<i16>(bytes).into()),
        DType::I32 => Scalar::Int(read::<i32>(bytes).into()),
        DType::I64 => Scalar::Int(read(bytes)),
        DType::F16 => Scalar::Float(read::<f16>(bytes).into()),
        DType::BF16 => Scalar::Float(read::<bf16>(bytes).into()),
        DType::F32 => Scalar::Float(read::<f32>(bytes).into()),
        DType::F64 => Scalar::Float(read(bytes)),
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.numel() <= 16 {
            let elements: Vec<String> = self.scalars().map(|element| element.to_string()).collect();
            write!(f, " [{}]", elements.join(", "))
        } else {
            Ok(())
        }
    }
}

/// Compares dtype, shape and bits.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::from_vec([2, 2], vec![1f32; 3]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [1], &[0; 3]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [usize::MAX, 2], &[0; 8]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [0, usize::MAX, 2], &[]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [0, usize::MAX], &[]).is_ok());
        assert!(Tensor::full(DType::Bool, [1 << 60], 0.0).is_err());
        assert!(Tensor::full(DType::Bool, [1 << 50], 0.0).is_err());
    }

    #[test]
    fn casts_follow_torch() {
        let x = Tensor::from_vec([4], vec![-1.5f32, 0.0, 2.7, 300.0]).expect("fits");
        assert_eq!(
            x.cast(DType::I32).map(|t| t.to_i64()).ok(),
            Some(vec![-1, 0, 2, 300])
        );
        assert_eq!(
            x.cast(DType::Bool).map(|t| t.to_i64()).ok(),
            Some(vec![1, 0, 1, 1])
        );
        assert_eq!(
            x.cast(DType::U8).map(|t| t.to_i64()).ok(),
            Some(vec![255, 0, 2, 44])
        );
    }
}
