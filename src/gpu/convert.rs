//! Converts elements between the host's types and those of the device.

use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::capabilities::Storage;
use crate::mapping::HugePages;
use crate::tensor::Tensor;

/// Elements that are converted at a time, so that the converted copy stays small.
const STRIDE: usize = 1 << 16;

/// True if the host and the device represent elements with equal bytes.
pub(super) fn same_bytes(dtype: DType, storage: Storage) -> bool {
    matches!(
        (dtype, storage),
        (DType::I32, Storage::I32)
            | (DType::I64, Storage::I64)
            | (DType::F16, Storage::F16 | Storage::F16x2)
            | (DType::F32, Storage::F32)
            | (DType::F64, Storage::F64)
    )
}

/// Passes the elements of a tensor, converted to the storage type, to `sink` in chunks: byte offset and bytes.
///
/// Fails if a value does not fit the storage type.
pub(super) fn send(
    tensor: &Tensor,
    storage: Storage,
    sink: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    send_part(tensor, 0..tensor.numel(), storage, sink)
}

/// Like [`send`], for a range of the elements in row-major order.
pub(super) fn send_part(
    tensor: &Tensor,
    part: Range<usize>,
    storage: Storage,
    mut sink: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let dtype = tensor.dtype();
    let part = part.start * dtype.size()..part.end * dtype.size();
    let bytes = tensor.bytes().get(part).unwrap_or_default();
    if same_bytes(dtype, storage) {
        return if bytes.is_empty() {
            Ok(())
        } else {
            sink(0, bytes)
        };
    }
    let mut offset = 0;
    for piece in bytes.chunks(STRIDE * dtype.size()) {
        let converted = widen(dtype, storage, piece)?;
        sink(offset, &converted)?;
        offset += converted.len() as u64;
    }
    Ok(())
}

fn widen(dtype: DType, storage: Storage, bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(match (dtype, storage) {
        (DType::Bool, Storage::U32) => map(bytes, |value: u8| u32::from(value != 0)),
        (DType::U8, Storage::I32) => map(bytes, |value: u8| i32::from(value)),
        (DType::I8, Storage::I32) => map(bytes, |value: i8| i32::from(value)),
        (DType::I16, Storage::I32) => map(bytes, |value: i16| i32::from(value)),
        (DType::I64, Storage::I32) => narrow(bytes)?,
        (DType::F16, Storage::F32) => map(bytes, |value: f16| f32::from(value)),
        (DType::BF16, Storage::F32) => map(bytes, |value: bf16| f32::from(value)),
        (DType::F32, Storage::F16 | Storage::F16x2) => map(bytes, half_of),
        _ => return Err(no_conversion(dtype, storage)),
    })
}

/// Rounds to half precision, ties to even. Finite numbers beyond the largest one become the largest one, as in kernels.
fn half_of(value: f32) -> f16 {
    let [lowest, largest] = [f16::MIN, f16::MAX].map(f32::from);
    match value.is_finite() {
        true => f16::from_f32(value.clamp(lowest, largest)),
        false => f16::from_f32(value),
    }
}

fn narrow(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut converted = Vec::with_capacity(bytes.len() / 2);
    for value in read::<i64>(bytes) {
        let narrow = i32::try_from(value).map_err(|_| {
            Error::input(format!("the value {value} does not fit 32 bits"))
                .help("the device has no 64-bit integers; use another device or cpu")
        })?;
        converted.extend(narrow.to_le_bytes());
    }
    Ok(converted)
}

/// Makes a tensor from elements in the storage type. Fails if a value is outside of the tensor's type.
pub(super) fn receive(
    dtype: DType,
    storage: Storage,
    shape: &[usize],
    bytes: &[u8],
) -> Result<Tensor> {
    let shape = shape.to_vec();
    if same_bytes(dtype, storage) {
        return match HugePages::of(bytes) {
            Some(pages) => Tensor::from_storage(dtype, shape, Arc::new(pages)),
            None => Tensor::from_bytes(dtype, shape, bytes),
        };
    }
    match (dtype, storage) {
        (DType::Bool, Storage::U32) => {
            Tensor::from_bools(shape, read::<u32>(bytes).map(|value| value != 0))
        }
        (DType::U8, Storage::I32) => Tensor::from_vec(shape, checked::<u8>(dtype, bytes)?),
        (DType::I8, Storage::I32) => Tensor::from_vec(shape, checked::<i8>(dtype, bytes)?),
        (DType::I16, Storage::I32) => Tensor::from_vec(shape, checked::<i16>(dtype, bytes)?),
        (DType::I64, Storage::I32) => {
            Tensor::from_vec(shape, read::<i32>(bytes).map(i64::from).collect())
        }
        (DType::F16, Storage::F32) => {
            Tensor::from_vec(shape, read::<f32>(bytes).map(f16::from_f32).collect())
        }
        (DType::BF16, Storage::F32) => {
            Tensor::from_vec(shape, read::<f32>(bytes).map(bf16::from_f32).collect())
        }
        (DType::F32, Storage::F16 | Storage::F16x2) => {
            Tensor::from_vec(shape, read::<f16>(bytes).map(f32::from).collect())
        }
        _ => Err(no_conversion(dtype, storage)),
    }
}

fn checked<T: TryFrom<i32>>(dtype: DType, bytes: &[u8]) -> Result<Vec<T>> {
    read::<i32>(bytes)
        .map(|value| {
            T::try_from(value)
                .map_err(|_| Error::device(format!("the device computed {value} for a {dtype}")))
        })
        .collect()
}

fn read<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes
        .chunks_exact(size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
}

fn map<T, U>(bytes: &[u8], function: impl Fn(T) -> U) -> Vec<u8>
where
    T: bytemuck::AnyBitPattern,
    U: bytemuck::NoUninit,
{
    let converted: Vec<U> = read(bytes).map(function).collect();
    bytemuck::cast_slice(&converted).to_vec()
}

fn no_conversion(dtype: DType, storage: Storage) -> Error {
    Error::internal(format!("{dtype} cannot be stored as {}", storage))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: [(DType, Storage); 15] = [
        (DType::Bool, Storage::U32),
        (DType::U8, Storage::I32),
        (DType::I8, Storage::I32),
        (DType::I16, Storage::I32),
        (DType::I32, Storage::I32),
        (DType::I64, Storage::I32),
        (DType::I64, Storage::I64),
        (DType::F16, Storage::F16),
        (DType::F16, Storage::F32),
        (DType::BF16, Storage::F32),
        (DType::F16, Storage::F16x2),
        (DType::F32, Storage::F16),
        (DType::F32, Storage::F16x2),
        (DType::F32, Storage::F32),
        (DType::F64, Storage::F64),
    ];

    #[test]
    fn every_type_round_trips() {
        for (dtype, storage) in NARROW {
            let tensor = Tensor::from_i64(dtype, [3], vec![0, 1, 100]).unwrap();
            let mut sent = Vec::new();
            send(&tensor, storage, |offset, bytes| {
                assert_eq!(offset, sent.len() as u64);
                sent.extend(bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!(sent.len() as u64, 3 * storage.size());
            assert_eq!(receive(dtype, storage, &[3], &sent).unwrap(), tensor);
        }
    }

    #[test]
    fn large_results_are_copied_whole() {
        let numbers: Vec<f32> = (0..3_000_000).map(|number| number as f32).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let shape = [3, 1_000_000];
        let received = receive(DType::F32, Storage::F32, &shape, bytes).unwrap();
        assert_eq!(received, Tensor::from_vec(shape, numbers).unwrap());
    }

    #[test]
    fn halves_are_the_nearest_and_finite_where_the_number_is() {
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
            assert_eq!(half_of(number).to_f32(), expected, "{number}");
        }
        assert!(half_of(f32::NAN).is_nan());
    }

    #[test]
    fn values_out_of_range_are_errors() {
        let tensor = Tensor::from_vec([1], vec![1i64 << 40]).unwrap();
        let error = send(&tensor, Storage::I32, |_, _| Ok(())).unwrap_err();
        assert!(error.message().contains("1099511627776"), "{error}");
        let bytes = 300i32.to_le_bytes();
        assert!(receive(DType::U8, Storage::I32, &[1], &bytes).is_err());
    }
}
