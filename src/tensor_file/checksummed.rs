//! Safetensors files with a checksum for each tensor, for data that nobody inspects: damaged tensors are detected.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::{Dtype, View};

use super::safetensors as plain;
use crate::budget::{Budget, Limits};
use crate::digest::Digest;
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::files::{self, Output};
use crate::shape::TensorType;
use crate::storage::{ByteRange, ByteSource};
use crate::tensor::{Tensor, TensorStorage};

/// Key of the file's kind in the header's metadata.
const KIND: &str = "kind";
/// Name of the tensor of checksums: sixteen bytes for each other tensor, sorted by name.
const CHECKSUMS: &str = "checksums";

/// A tensor to be written. Its elements are made when they are written, so that the file need not fit in memory.
pub struct LazyTensor<'a> {
    /// Name of the tensor.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Makes the elements: little-endian, in row-major order.
    pub bytes: Box<dyn Fn() -> Result<Vec<u8>> + 'a>,
}

impl fmt::Debug for LazyTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyTensor")
            .field("name", &self.name)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// A tensor of a file, which is read when it is used, with its checksum.
#[derive(Clone, Debug)]
pub struct ChecksummedTensor {
    tensor: Tensor,
    checksum: Digest,
}

impl ChecksummedTensor {
    /// The tensor without a check.
    pub fn unchecked(&self) -> &Tensor {
        &self.tensor
    }

    /// The tensor in memory; `None` if it cannot be read or its checksum does not match.
    pub fn tensor(&self) -> Option<Tensor> {
        let loaded = self.tensor.load().ok()?;
        let digest = Digest::of_tensor(&loaded).ok()?;
        (digest == self.checksum).then_some(loaded)
    }
}

/// Writes a file of a kind atomically.
///
/// # Errors
/// The file cannot be written, or a tensor cannot be made.
pub fn write(path: &Path, kind: &str, tensors: &[LazyTensor]) -> Result<()> {
    let made = WriteResults::default();
    let parts = tensors.iter().map(|tensor| {
        let part = TensorEntry {
            tensor,
            results: &made,
        };
        (tensor.name.as_str(), FileEntry::Tensor(part))
    });
    let sums = ChecksumEntry {
        shape: [tensors.len() * size_of::<Digest>()],
        results: &made,
    };
    // The format sorts tensors by dtype, with bytes last, so that the checksums come after all tensors.
    let all = parts.chain([(CHECKSUMS, FileEntry::Checksums(sums))]);
    let header = HashMap::from([(KIND.to_string(), kind.to_string())]);
    let output = Output::new(path)?;
    safetensors::serialize_to_file(all, Some(header), output.path()).map_err(plain::bad)?;
    made.error.take().map_or(Ok(()), Err)?;
    output.finish()
}

/// Reads a file of a kind. Its tensors are read when they are used, and sorted by name.
///
/// # Errors
/// The file cannot be read, or is of another kind.
pub fn read(path: &Path, kind: &str) -> Result<Vec<(String, ChecksummedTensor)>> {
    let whole = ByteRange::whole(ByteSource::open(path)?);
    parse(&whole, kind).at(|| path.display().to_string())
}

/// True if the file's metadata begin with a kind that starts with `kind`, even if the file is damaged otherwise, or if the
/// file is empty.
pub fn has_kind_prefix(path: &Path, kind: &str) -> bool {
    let mut start = Vec::new();
    let read = files::open(path).and_then(|file| file.take(1024).read_to_end(&mut start));
    let expected = format!("{{\"__metadata__\":{{\"{KIND}\":\"{kind}");
    let said = start.get(8..).unwrap_or_default();
    read.is_ok() && (start.is_empty() || said.starts_with(expected.as_bytes()))
}

fn parse(whole: &ByteRange, kind: &str) -> Result<Vec<(String, ChecksummedTensor)>> {
    let budget = Budget::for_file(&Limits::default(), whole.len());
    let header = plain::Header::read(whole, &budget)?;
    let found = header.metadata_value(KIND).unwrap_or_default();
    if found != kind {
        let message = format!("the file is of the kind {found:?}, not {kind:?}");
        return Err(Error::format(message));
    }
    let mut tensors = header.tensors(whole)?;
    let place = tensors.iter().position(|(name, _)| name == CHECKSUMS);
    let sums = place.map(|place| tensors.remove(place).1);
    let sums = sums.as_ref().map(Tensor::load).transpose()?;
    let sums = sums.as_ref().map(Tensor::bytes).unwrap_or_default();
    let (sums, rest) = sums.as_chunks();
    if sums.len() != tensors.len() || !rest.is_empty() {
        return Err(Error::format(
            "the number of checksums in the file differs from the number of tensors",
        ));
    }
    let checked = tensors.into_iter().zip(sums);
    let checked = checked.map(|((name, tensor), sum)| {
        let checksum = Digest(u128::from_le_bytes(*sum));
        (name, ChecksummedTensor { tensor, checksum })
    });
    Ok(checked.collect())
}

/// Checksums and the first error of the tensors that were written.
#[derive(Default)]
struct WriteResults<'a> {
    checksums: RefCell<BTreeMap<&'a str, Digest>>,
    error: Cell<Option<Error>>,
}

/// An entry of the file: a tensor, or the checksums.
enum FileEntry<'a, 'm> {
    Tensor(TensorEntry<'a, 'm>),
    Checksums(ChecksumEntry<'a, 'm>),
}

struct TensorEntry<'a, 'm> {
    tensor: &'a LazyTensor<'a>,
    results: &'m WriteResults<'a>,
}

struct ChecksumEntry<'a, 'm> {
    shape: [usize; 1],
    results: &'m WriteResults<'a>,
}

impl TensorEntry<'_, '_> {
    fn length(&self) -> usize {
        let elements: usize = self.tensor.shape.iter().product();
        elements * self.tensor.dtype.size()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let LazyTensor { dtype, shape, .. } = self.tensor;
        let made = (self.tensor.bytes)().and_then(|bytes| {
            let fits = bytes.len() == self.length();
            let wrong =
                || Error::internal("the bytes of a tensor do not match its dtype and shape");
            fits.then_some(bytes).ok_or_else(wrong)
        });
        let bytes = made.unwrap_or_else(|error| {
            self.results.error.set(Some(error));
            vec![0; self.length()]
        });
        let ty = TensorType::new(*dtype, shape.iter().copied());
        let sum = Digest::of_elements(&ty, &bytes);
        let mut sums = self.results.checksums.borrow_mut();
        sums.insert(self.tensor.name.as_str(), sum);
        Cow::Owned(bytes)
    }
}

impl View for FileEntry<'_, '_> {
    fn dtype(&self) -> Dtype {
        match self {
            FileEntry::Tensor(part) => plain::code(part.tensor.dtype),
            FileEntry::Checksums(_) => Dtype::U8,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            FileEntry::Tensor(part) => &part.tensor.shape,
            FileEntry::Checksums(sums) => &sums.shape,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            FileEntry::Tensor(part) => part.data(),
            FileEntry::Checksums(sums) => {
                let sums = sums.results.checksums.borrow();
                sums.values().flat_map(|sum| sum.0.to_le_bytes()).collect()
            }
        }
    }

    fn data_len(&self) -> usize {
        match self {
            FileEntry::Tensor(part) => part.length(),
            FileEntry::Checksums(sums) => sums.shape[0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "a test";

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("onionskin-checked-{name}-{}", std::process::id()))
    }

    fn tensors() -> Vec<(String, Tensor)> {
        let halves = Tensor::from_i64(DType::F16, [3], vec![1, 2, 3]).unwrap();
        let floats = Tensor::from_vec([2, 2], vec![1f32, -2.0, 3.5, 4.0]).unwrap();
        vec![
            ("z".into(), floats.clone()),
            ("a".into(), halves),
            ("b c".into(), floats),
        ]
    }

    fn written(name: &str) -> Vec<u8> {
        let tensors = tensors();
        let unwritten = tensors.iter().map(|(name, tensor)| LazyTensor {
            name: name.clone(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes: Box::new(|| Ok(tensor.bytes().to_vec())),
        });
        let unwritten: Vec<LazyTensor> = unwritten.collect();
        let path = path(name);
        write(&path, KIND, &unwritten).unwrap();
        let read = read(&path, KIND).unwrap();
        for (name, tensor) in &tensors {
            let (_, checked) = read.iter().find(|(other, _)| other == name).unwrap();
            assert_eq!(checked.tensor().as_ref(), Some(tensor));
        }
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        bytes
    }

    #[test]
    fn damaged_tensors_are_detected() {
        let bytes = written("damage");
        let parsed = |bytes: &[u8]| {
            let whole = ByteRange::whole(ByteSource::from_bytes(bytes.to_vec()));
            parse(&whole, KIND)
        };
        for length in 0..bytes.len() {
            assert!(parsed(&bytes[..length]).is_err(), "{length} bytes");
        }
        let known = tensors();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let sound = parsed(&damaged).unwrap_or_default().into_iter();
            for tensor in sound.filter_map(|(_, checked)| checked.tensor()) {
                assert!(known.iter().any(|(_, known)| *known == tensor), "bit {bit}");
            }
        }
    }

    #[test]
    fn other_kinds_are_named() {
        let whole = ByteRange::whole(ByteSource::from_bytes(written("kind")));
        let error = parse(&whole, "another").unwrap_err();
        assert!(error.message().contains("\"a test\""), "{error}");
    }

    #[test]
    fn a_tensor_that_cannot_be_made_leaves_no_file() {
        let path = path("unmade");
        let unwritten = LazyTensor {
            name: "w".into(),
            dtype: DType::F32,
            shape: vec![1],
            bytes: Box::new(|| Err(Error::input("no"))),
        };
        assert!(write(&path, KIND, &[unwritten]).is_err());
        assert!(!path.exists());
    }
}
