//! The safetensors format, based on its authors' crate.

use std::collections::HashMap;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::NamedTensors;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::mapping::MappedRange;
use crate::tensor::{Tensor, TensorStorage};

/// Reads tensors, copied from the bytes and sorted by name.
pub fn parse(bytes: &[u8]) -> Result<NamedTensors> {
    let file = SafeTensors::deserialize(bytes).map_err(bad)?;
    let mut names = file.names();
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| {
            let view = file.tensor(name).map_err(bad)?;
            Ok((
                name.to_string(),
                Tensor::from_bytes(dtype(view.dtype())?, view.shape(), view.data())?,
            ))
        })
        .collect()
}

/// Reads tensors that share the bytes of a file, sorted by name.
pub fn parse_shared(whole: &MappedRange) -> Result<NamedTensors> {
    let bytes = whole.bytes();
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(bad)?;
    let start = header + 8;
    let mut tensors = NamedTensors::new();
    for (name, info) in metadata.tensors() {
        let (from, to) = info.data_offsets;
        let part = whole.slice(start + from..start + to);
        let part =
            part.ok_or_else(|| Error::format("safetensors: a tensor outside of the file"))?;
        tensors.push((
            name,
            Tensor::from_storage(dtype(info.dtype)?, info.shape.clone(), Arc::new(part))?,
        ));
    }
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(tensors)
}

/// The value of a key in the metadata of a file.
pub(super) fn metadata_value(whole: &MappedRange, name: &str) -> Result<Option<String>> {
    let (_, header) = SafeTensors::read_metadata(whole.bytes()).map_err(bad)?;
    let notes = header.metadata().as_ref();
    Ok(notes.and_then(|notes| notes.get(name).cloned()))
}

/// Metadata value of `kind` in files that this crate writes; it identifies them.
pub const KIND: &str = "tensors of onionskin";

/// Serialises tensors; equal tensors give equal bytes.
pub fn serialize(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let views = tensors.iter().map(|(name, tensor)| {
        let view = TensorView::new(
            code(tensor.dtype()),
            tensor.shape().to_vec(),
            tensor.bytes(),
        )
        .map_err(bad)?;
        Ok((name.as_str(), view))
    });
    let metadata = HashMap::from([("kind".to_string(), KIND.to_string())]);
    safetensors::serialize(views.collect::<Result<Vec<_>>>()?, Some(metadata)).map_err(bad)
}

pub(super) fn bad(error: safetensors::SafeTensorError) -> Error {
    Error::format(format!("safetensors: {error}"))
}

fn dtype(code: Dtype) -> Result<DType> {
    Ok(match code {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => return Err(Error::unsupported(format!("safetensors of {other:?}"))),
    })
}

pub(super) fn code(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}
