//! Converts elements between the host's element types and the storage types of the device.

use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::capabilities::StorageType;
use crate::storage::HugePages;
use crate::tensor::Tensor;

/// Elements that are converted at a time, so that the converted copy stays small.
const CHUNK_ELEMENTS: usize = 1 << 16;

/// True if the host and the device represent elements with equal bytes.
pub(super) fn is_bitwise_equal(dtype: DType, storage: StorageType) -> bool {
    matches!(
        (dtype, storage),
        (DType::I32, StorageType::I32)
            | (DType::I64, StorageType::I64)
            | (DType::F16, StorageType::F16 | StorageType::F16x2)
            | (DType::F32, StorageType::F32)
            | (DType::F64, StorageType::F64)
    )
}

/// Passes the elements of a tensor, converted to the storage type, to `sink` in chunks. The arguments of `sink` are the
/// offset of a chunk in the converted bytes, and the chunk.
///
/// Fails if a value does not fit the storage type.
pub(super) fn encode(
    tensor: &Tensor,
    storage: StorageType,
    sink: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    encode_range(tensor, 0..tensor.numel(), storage, sink)
}

/// Like [`encode`], for a range of the elements in row-major order.
pub(super) fn encode_range(
    tensor: &Tensor,
    range: Range<usize>,
    storage: StorageType,
    mut sink: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let dtype = tensor.dtype();
    let byte_range = range.start * dtype.size()..range.end * dtype.size();
    let bytes = tensor.bytes().get(byte_range).unwrap_or_default();
    if is_bitwise_equal(dtype, storage) {
        return if bytes.is_empty() {
            Ok(())
        } else {
            sink(0, bytes)
        };
    }
    let mut offset = 0;
    for chunk in bytes.chunks(CHUNK_ELEMENTS * dtype.size()) {
        let converted = convert_elements(dtype, storage, chunk)?;
        sink(offset, &converted)?;
        offset += converted.len() as u64;
    }
    Ok(())
}

/// Converts elements to the storage type.
fn convert_elements(dtype: DType, storage: StorageType, bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(match (dtype, storage) {
        (DType::Bool, StorageType::U32) => map_elements(bytes, |value: u8| u32::from(value != 0)),
        (DType::U8, StorageType::I32) => map_elements(bytes, |value: u8| i32::from(value)),
        (DType::I8, StorageType::I32) => map_elements(bytes, |value: i8| i32::from(value)),
        (DType::I16, StorageType::I32) => map_elements(bytes, |value: i16| i32::from(value)),
        (DType::I64, StorageType::I32) => narrow_i64(bytes)?,
        (DType::F16, StorageType::F32) => map_elements(bytes, |value: f16| f32::from(value)),
        (DType::BF16, StorageType::F32) => map_elements(bytes, |value: bf16| f32::from(value)),
        (DType::F32, StorageType::F16 | StorageType::F16x2) => map_elements(bytes, to_half),
        _ => return Err(no_conversion(dtype, storage)),
    })
}

/// Rounds to half precision, ties to even. Finite numbers beyond the largest one become the largest one, as in kernels.
fn to_half(value: f32) -> f16 {
    let [lowest, largest] = [f16::MIN, f16::MAX].map(f32::from);
    match value.is_finite() {
        true => f16::from_f32(value.clamp(lowest, largest)),
        false => f16::from_f32(value),
    }
}

/// Converts 64-bit integers to 32-bit ones. Fails if one does not fit.
fn narrow_i64(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut converted = Vec::with_capacity(bytes.len() / 2);
    for value in read_elements::<i64>(bytes) {
        let narrow = i32::try_from(value).map_err(|_| {
            Error::input(format!("the value {value} does not fit 32 bits"))
                .help("the device has no 64-bit integers; use another device or cpu")
        })?;
        converted.extend(narrow.to_le_bytes());
    }
    Ok(converted)
}

/// Makes a tensor of `dtype` from elements in the storage type. Fails if a value is outside of the range of `dtype`.
pub(super) fn decode(
    dtype: DType,
    storage: StorageType,
    shape: &[usize],
    bytes: &[u8],
) -> Result<Tensor> {
    let shape = shape.to_vec();
    if is_bitwise_equal(dtype, storage) {
        return match HugePages::of(bytes) {
            Some(pages) => Tensor::from_storage(dtype, shape, Arc::new(pages)),
            None => Tensor::from_bytes(dtype, shape, bytes),
        };
    }
    match (dtype, storage) {
        (DType::Bool, StorageType::U32) => {
            Tensor::from_bools(shape, read_elements::<u32>(bytes).map(|value| value != 0))
        }
        (DType::U8, StorageType::I32) => {
            Tensor::from_vec(shape, narrow_checked::<u8>(dtype, bytes)?)
        }
        (DType::I8, StorageType::I32) => {
            Tensor::from_vec(shape, narrow_checked::<i8>(dtype, bytes)?)
        }
        (DType::I16, StorageType::I32) => {
            Tensor::from_vec(shape, narrow_checked::<i16>(dtype, bytes)?)
        }
        (DType::I64, StorageType::I32) => {
            Tensor::from_vec(shape, read_elements::<i32>(bytes).map(i64::from).collect())
        }
        (DType::F16, StorageType::F32) => Tensor::from_vec(
            shape,
            read_elements::<f32>(bytes).map(f16::from_f32).collect(),
        ),
        (DType::BF16, StorageType::F32) => Tensor::from_vec(
            shape,
            read_elements::<f32>(bytes).map(bf16::from_f32).collect(),
        ),
        (DType::F32, StorageType::F16 | StorageType::F16x2) => {
            Tensor::from_vec(shape, read_elements::<f16>(bytes).map(f32::from).collect())
        }
        _ => Err(no_conversion(dtype, storage)),
    }
}

/// Converts 32-bit integers to a narrower type. Fails if one does not fit.
fn narrow_checked<T: TryFrom<i32>>(dtype: DType, bytes: &[u8]) -> Result<Vec<T>> {
    read_elements::<i32>(bytes)
        .map(|value| {
            T::try_from(value)
                .map_err(|_| Error::device(format!("the device computed {value} for a {dtype}")))
        })
        .collect()
}

/// The elements that these bytes represent.
fn read_elements<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes
        .chunks_exact(size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
}

/// Applies a function to each element, from bytes to bytes.
fn map_elements<T, U>(bytes: &[u8], function: impl Fn(T) -> U) -> Vec<u8>
where
    T: bytemuck::AnyBitPattern,
    U: bytemuck::NoUninit,
{
    let converted: Vec<U> = read_elements(bytes).map(function).collect();
    bytemuck::cast_slice(&converted).to_vec()
}

/// The error of a pair of types without a conversion.
fn no_conversion(dtype: DType, storage: StorageType) -> Error {
    Error::internal(format!("{dtype} cannot be stored as {}", storage))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONVERSIONS: [(DType, StorageType); 15] = [
        (DType::Bool, StorageType::U32),
        (DType::U8, StorageType::I32),
        (DType::I8, StorageType::I32),
        (DType::I16, StorageType::I32),
        (DType::I32, StorageType::I32),
        (DType::I64, StorageType::I32),
        (DType::I64, StorageType::I64),
        (DType::F16, StorageType::F16),
        (DType::F16, StorageType::F32),
        (DType::BF16, StorageType::F32),
        (DType::F16, StorageType::F16x2),
        (DType::F32, StorageType::F16),
        (DType::F32, StorageType::F16x2),
        (DType::F32, StorageType::F32),
        (DType::F64, StorageType::F64),
    ];

    #[test]
    fn every_type_round_trips() {
        for (dtype, storage) in CONVERSIONS {
            let tensor = Tensor::from_i64(dtype, [3], vec![0, 1, 100]).unwrap();
            let mut sent = Vec::new();
            encode(&tensor, storage, |offset, bytes| {
                assert_eq!(offset, sent.len() as u64);
                sent.extend(bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!(sent.len() as u64, 3 * storage.size());
            assert_eq!(decode(dtype, storage, &[3], &sent).unwrap(), tensor);
        }
    }

    #[test]
    fn large_results_are_copied_whole() {
        let numbers: Vec<f32> = (0..3_000_000).map(|number| number as f32).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let shape = [3, 1_000_000];
        let received = decode(DType::F32, StorageType::F32, &shape, bytes).unwrap();
        assert_eq!(received, Tensor::from_vec(shape, numbers).unwrap());
    }

    #[test]
    fn halves_are_nearest_and_stay_finite() {
        let half = f16::MAX.to_f32();
        for (number, expected) in [
            (1.0 + 2f32.powi(-11), 1.0),
            (1.0 + 3.0 * 2f32.powi(-11), 1.0 + 2f32.powi(-9)),
            (2f32.powi(-24), 2f32.powi(-24)),
            (65_519.0, half),
            (f32::MIN, -half),
            (f32::INFINITY, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ] {
            assert_eq!(to_half(number).to_f32(), expected, "{number}");
        }
        assert!(to_half(f32::NAN).is_nan());
    }

    #[test]
    fn values_out_of_range_are_errors() {
        let tensor = Tensor::from_vec([1], vec![1i64 << 40]).unwrap();
        let error = encode(&tensor, StorageType::I32, |_, _| Ok(())).unwrap_err();
        assert!(error.message().contains("1099511627776"), "{error}");
        let bytes = 300i32.to_le_bytes();
        assert!(decode(DType::U8, StorageType::I32, &[1], &bytes).is_err());
    }
}
