//! File of packed weights, that is, weights in their [device form](crate::gpu::PackedWeights). Later starts upload them
//! without packing them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::gpu::{CacheableWeight, PackedWeights, Program, WeightSource};
use crate::tensor::Tensor;
use crate::tensor_file::checksummed::{self, ChecksummedTensor, LazyTensor};

/// File type with this crate's version. Another version may use other layouts.
const KIND: &str = concat!("packed weights of onionskin ", env!("CARGO_PKG_VERSION"));
/// Prefix of the file type in any version.
const ANY_KIND: &str = "packed weights of onionskin";

/// Report on a file of packed weights; see [`crate::CompileOptions::packed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedWeightsReport {
    /// The file.
    pub path: PathBuf,
    /// Number of weights that were uploaded from the file.
    pub loaded: usize,
    /// Number of weights that were packed and written to the file.
    pub written: usize,
    /// Parts of the file that were not used, and why.
    pub ignored: Vec<String>,
}

impl fmt::Display for PackedWeightsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, loaded, written) = (self.path.display(), self.loaded, self.written);
        write!(f, "{path}: {loaded} packed weights read, {written} written")?;
        self.ignored.iter().try_for_each(|why| write!(f, "; {why}"))
    }
}

/// A file of packed weights. Missing or damaged entries are packed, and written when a program is made.
pub(super) struct PackedFile {
    state: Mutex<PackedState>,
}

#[derive(Default)]
struct PackedState {
    /// Entries of the file by key.
    entries: BTreeMap<Digest, PackedEntry>,
    /// Keys that were requested, whether the file has them or not.
    requested: BTreeSet<Digest>,
    /// Keys that were requested and that the file lacks, or whose entries are damaged.
    missed: BTreeSet<Digest>,
    /// True if the file is of another type and must not be overwritten.
    is_foreign: bool,
    report: PackedWeightsReport,
}

/// A weight in the file.
#[derive(Clone)]
struct PackedEntry {
    /// Name of the weight.
    weight: String,
    /// Its bytes in the device form.
    checked: ChecksummedTensor,
}

impl PackedFile {
    /// Opens a file. An unusable file counts as empty.
    pub(super) fn open(path: &Path) -> PackedFile {
        let mut state = PackedState::default();
        state.report.path = path.to_path_buf();
        if path.exists() {
            match entries(path) {
                Ok(entries) => state.entries = entries,
                Err(error) => {
                    state.is_foreign = !checksummed::has_kind_prefix(path, ANY_KIND);
                    state.report.ignored.push(error.message().to_string());
                }
            }
        }
        PackedFile {
            state: Mutex::new(state),
        }
    }

    pub(super) fn report(&self) -> PackedWeightsReport {
        self.lock(|state| state.report.clone())
    }

    /// Adds the weights of a program that the file lacks. The report mentions a failure; the program has its weights
    /// anyway.
    pub(super) fn write_missing(&self, program: &Program, source: &dyn WeightSource) {
        self.lock(|state| {
            if !state.missed.is_empty()
                && let Err(error) = state.write(program, source)
            {
                state
                    .report
                    .ignored
                    .push(format!("not written: {}", error.message()));
            }
            state.missed.clear();
        });
    }

    fn lock<T>(&self, action: impl FnOnce(&mut PackedState) -> T) -> T {
        action(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PackedWeights for PackedFile {
    fn find(&self, key: Digest) -> Option<Tensor> {
        let entry = self.lock(|state| {
            state.requested.insert(key);
            state.entries.get(&key).cloned()
        });
        let tensor = entry.as_ref().and_then(|entry| entry.checked.tensor());
        self.lock(|state| match (&tensor, entry) {
            (Some(_), _) => state.report.loaded += 1,
            (None, damaged) => {
                state.missed.insert(key);
                state.entries.remove(&key);
                let message = damaged.map(|entry| format!("{} is damaged", entry.weight));
                state.report.ignored.extend(message);
            }
        });
        tensor
    }
}

impl PackedState {
    /// Rewrites the file with the old entries and the missing ones. An old entry that was not requested is replaced by
    /// a new one with equal weight name, dtype and shape, since that weight has changed. Entries for other devices and
    /// element types stay.
    fn write(&mut self, program: &Program, source: &dyn WeightSource) -> Result<()> {
        if self.is_foreign {
            return Err(Error::usage(
                "the file does not contain packed weights and is not overwritten",
            ));
        }
        let packed = program.packed_weights(source)?;
        let new: Vec<_> = packed
            .iter()
            .filter(|packed| self.missed.contains(&packed.key))
            .collect();
        let replaces = |new: &&CacheableWeight, entry: &PackedEntry| {
            let old = entry.checked.unchecked();
            let has_equal_type = (new.dtype, new.shape.as_slice()) == (old.dtype(), old.shape());
            new.name == entry.weight && has_equal_type
        };
        let stays = |(key, entry): &(&Digest, &PackedEntry)| {
            self.requested.contains(key) || !new.iter().any(|new| replaces(new, entry))
        };
        let old = self.entries.iter().filter(stays).map(|(key, entry)| {
            let tensor = entry.checked.unchecked();
            LazyTensor {
                name: format!("{key} {}", entry.weight),
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                bytes: Box::new(|| Ok(tensor.load()?.bytes().to_vec())),
            }
        });
        let added = new.iter().map(|packed| LazyTensor {
            name: format!("{} {}", packed.key, packed.name),
            dtype: packed.dtype,
            shape: packed.shape.clone(),
            bytes: Box::new(|| packed.bytes()),
        });
        let tensors: Vec<LazyTensor> = old.chain(added).collect();
        checksummed::write(&self.report.path, KIND, &tensors)?;
        let written = new.len();
        drop(tensors);
        self.entries = entries(&self.report.path)?;
        self.report.written += written;
        Ok(())
    }
}

/// The entries of a file by key.
fn entries(path: &Path) -> Result<BTreeMap<Digest, PackedEntry>> {
    let tensors = checksummed::read(path, KIND)?.into_iter();
    let entry = |(name, checked): (String, ChecksummedTensor)| {
        let (key, weight) = name.split_once(' ')?;
        let weight = weight.to_string();
        Some((key.parse().ok()?, PackedEntry { weight, checked }))
    };
    Ok(tensors.filter_map(entry).collect())
}
