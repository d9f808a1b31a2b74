//! The safetensors format, based on its authors' crate.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, View};

use super::NamedTensors;
use crate::budget::{Budget, Limits};
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::storage::{ByteRange, ByteSource};
use crate::tensor::{Tensor, TensorStorage};

/// Reads tensors, copied from the bytes and sorted by name.
///
/// # Errors
/// The bytes violate the format, or the header exceeds the default [`Limits`].
pub fn parse(bytes: &[u8]) -> Result<NamedTensors> {
    let whole = ByteRange::whole(ByteSource::from_bytes(bytes.to_vec()));
    parse_copied(&whole, &Limits::default())
}

/// Reads tensors, each copied from the file, and sorted by name.
///
/// # Errors
/// As [`parse_shared`].
pub(super) fn parse_copied(whole: &ByteRange, limits: &Limits) -> Result<NamedTensors> {
    let budget = Budget::for_file(limits, whole.len());
    let tensors = parse_shared(whole, &budget)?.into_iter();
    let copied = |(name, tensor): (String, Tensor)| {
        // A copy is aligned, and its elements of `bool` are 0 or 1.
        let copy = Tensor::from_bytes(tensor.dtype(), tensor.shape(), tensor.load()?.bytes())?;
        Ok((name, copy))
    };
    tensors.map(copied).collect()
}

/// The tensors of a file, sorted by name. They are read when they are used.
///
/// # Errors
/// The file cannot be read, violates the format, or has a header that exceeds the budget.
pub fn parse_shared(whole: &ByteRange, budget: &Budget) -> Result<NamedTensors> {
    Header::read(whole, budget)?.tensors(whole)
}

/// The header of a file: names, types and places of its tensors, and metadata.
pub(super) struct Header {
    metadata: Metadata,
    /// Place of the first byte after the header.
    end: usize,
}

impl Header {
    /// Reads the header, and checks that the tensors fill the rest of the file.
    pub(super) fn read(whole: &ByteRange, budget: &Budget) -> Result<Header> {
        let mut length = [0; 8];
        whole.copy(0, &mut length).map_err(|_| cut_short())?;
        let length = usize::try_from(u64::from_le_bytes(length)).ok();
        let end = length.and_then(|length| length.checked_add(8));
        let text = end
            .and_then(|end| whole.slice(8..end))
            .ok_or_else(cut_short)?;
        budget.charge_bytes(text.len() as u64)?;
        let text = text.load()?;
        budget
            .charge_json(text.bytes())
            .at(|| "safetensors".into())?;
        let metadata = serde_json::from_slice(text.bytes());
        let metadata: Metadata =
            metadata.map_err(|error| Error::format(format!("safetensors: {error}")))?;
        let header = Header {
            metadata,
            end: end.unwrap_or_default(),
        };
        header.check_places(whole.len())?;
        Ok(header)
    }

    /// Checks that the tensors follow each other without gaps up to the end of the file.
    fn check_places(&self, length: usize) -> Result<()> {
        let names = self.metadata.offset_keys();
        let places = names.iter().filter_map(|name| self.metadata.info(name));
        let end = places
            .map(|info| info.data_offsets)
            .try_fold(0, |end, place| {
                (place.0 == end && place.0 <= place.1).then_some(place.1)
            });
        match end.and_then(|end| end.checked_add(self.end)) == Some(length) {
            true => Ok(()),
            false => Err(cut_short()),
        }
    }

    /// The value of a key in the metadata.
    pub(super) fn metadata_value(&self, name: &str) -> Option<String> {
        self.metadata.metadata().as_ref()?.get(name).cloned()
    }

    /// The tensors of the file, sorted by name. They are read when they are used.
    pub(super) fn tensors(&self, whole: &ByteRange) -> Result<NamedTensors> {
        let mut tensors = NamedTensors::new();
        for (name, info) in self.metadata.tensors() {
            let (from, to) = info.data_offsets;
            let part = whole.slice(self.end + from..self.end + to);
            let part = part.ok_or_else(cut_short)?;
            let dtype = dtype(info.dtype)?;
            tensors.push((
                name,
                Tensor::from_storage(dtype, info.shape.clone(), Arc::new(part))?,
            ));
        }
        tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(tensors)
    }
}

fn cut_short() -> Error {
    Error::format("safetensors: the header does not fit the length of the file")
}

/// Metadata value of `kind` in files that this crate writes; it identifies them.
pub const KIND: &str = "tensors of onionskin";

/// Serialises tensors; equal tensors give equal bytes.
pub fn serialize(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let failure = Cell::new(None);
    let views = tensors.iter().map(|(name, tensor)| {
        (
            name,
            LoadedView {
                tensor,
                failure: &failure,
            },
        )
    });
    let bytes = safetensors::serialize(views, Some(kind())).map_err(bad)?;
    failure.take().map_or(Ok(bytes), Err)
}

/// Writes tensors to a file as [`serialize`] does, each when it is read, so that they need not be in memory together.
pub(crate) fn write<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a String, &'a Tensor)>,
) -> Result<()> {
    let failure = Cell::new(None);
    let views = tensors.map(|(name, tensor)| {
        (
            name,
            LoadedView {
                tensor,
                failure: &failure,
            },
        )
    });
    safetensors::serialize_to_file(views, Some(kind()), path).map_err(bad)?;
    failure.take().map_or(Ok(()), Err)
}

fn kind() -> HashMap<String, String> {
    HashMap::from([("kind".to_string(), KIND.to_string())])
}

/// A tensor that is read when it is written.
struct LoadedView<'a> {
    tensor: &'a Tensor,
    /// The first error of a tensor that could not be read.
    failure: &'a Cell<Option<Error>>,
}

impl View for LoadedView<'_> {
    fn dtype(&self) -> Dtype {
        code(self.tensor.dtype())
    }

    fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.tensor.load() {
            Ok(loaded) => Cow::Owned(loaded.bytes().to_vec()),
            Err(error) => {
                self.failure.set(Some(error));
                Cow::Owned(vec![0; self.data_len()])
            }
        }
    }

    fn data_len(&self) -> usize {
        self.tensor.byte_count()
    }
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
