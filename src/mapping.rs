//! Tensor storage outside the allocator: memory-mapped parts of files, and huge pages for large results.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::files;
use crate::tensor::TensorStorage;

/// The bytes of a memory-mapped file, or of a vector.
pub struct Mapping {
    source: MappingSource,
}

enum MappingSource {
    File(memmap2::Mmap),
    Memory(Vec<u8>),
}

impl Mapping {
    /// Maps a file. Its content must not change while the mapping lives.
    pub fn open(path: &Path) -> Result<Arc<Mapping>> {
        let file = files::open(path).map_err(|error| Error::io(path, error))?;
        let source = MappingSource::File(map(&file).map_err(|error| Error::io(path, error))?);
        Ok(Arc::new(Mapping { source }))
    }

    /// Bytes in memory, in place of a file.
    pub fn from_bytes(bytes: Vec<u8>) -> Arc<Mapping> {
        let source = MappingSource::Memory(bytes);
        Arc::new(Mapping { source })
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            MappingSource::File(file) => file,
            MappingSource::Memory(bytes) => bytes,
        }
    }

    /// Lets the system drop cached pages of a part of a file until they are read again.
    fn unload(&self, range: &Range<usize>) {
        if let MappingSource::File(file) = &self.source {
            unload(file, range);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "weights are used in place; a file that another process truncates is the user's fault, as with every mapped model"
)]
fn map(file: &File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is private and only read; the documentation of `Mapping::open` says that the file must not change.
    unsafe { memmap2::Mmap::map(file) }
}

#[cfg(unix)]
#[expect(
    unsafe_code,
    reason = "the advice is marked unsafe for mappings that are written to"
)]
fn unload(file: &memmap2::Mmap, range: &Range<usize>) {
    // SAFETY: nobody writes to the mapping, so dropped pages are read from the file again. The system may ignore the advice,
    // so errors are ignored as well.
    let _ = unsafe {
        file.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
    };
}

#[cfg(not(unix))]
fn unload(_: &memmap2::Mmap, _: &Range<usize>) {}

/// Bytes in huge pages that are returned to the system when dropped. An allocator keeps memory that is requested repeatedly,
/// however large it is.
pub struct HugePages(memmap2::Mmap);

impl HugePages {
    /// Smallest number of bytes; fewer are left to the allocator.
    const MIN_BYTES: usize = 8 << 20;

    /// Copies bytes. `None` if there are few, or if the system has no huge pages: new small pages take longer than the copy.
    pub fn of(bytes: &[u8]) -> Option<HugePages> {
        if bytes.len() < HugePages::MIN_BYTES || !has_huge_pages() {
            return None;
        }
        let mut pages = memmap2::MmapMut::map_anon(bytes.len()).ok()?;
        advise_huge_pages(&pages)?;
        pages.copy_from_slice(bytes);
        pages.make_read_only().ok().map(HugePages)
    }
}

impl TensorStorage for HugePages {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// True if the system provides huge pages on request.
fn has_huge_pages() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // This file exists on Linux only.
        let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        told.is_ok_and(|told| !told.contains("[never]"))
    })
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(pages: &memmap2::MmapMut) -> Option<()> {
    pages.advise(memmap2::Advice::HugePage).ok()
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: &memmap2::MmapMut) -> Option<()> {
    None
}

/// A part of a mapping, which it keeps alive. Clones share the bytes.
#[derive(Clone)]
pub struct MappedRange {
    mapping: Arc<Mapping>,
    range: Range<usize>,
}

impl fmt::Debug for MappedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedRange({} bytes)", self.range.len())
    }
}

impl MappedRange {
    /// The whole mapping.
    pub fn whole(mapping: Arc<Mapping>) -> MappedRange {
        let range = 0..mapping.bytes().len();
        MappedRange { mapping, range }
    }

    /// A part of this part; `None` if it is out of range.
    pub fn slice(&self, range: Range<usize>) -> Option<MappedRange> {
        self.bytes().get(range.clone())?;
        let range = self.range.start + range.start..self.range.start + range.end;
        let mapping = self.mapping.clone();
        Some(MappedRange { mapping, range })
    }
}

impl TensorStorage for MappedRange {
    fn bytes(&self) -> &[u8] {
        // The range was checked when it was made, so the fallback is never taken.
        self.mapping
            .bytes()
            .get(self.range.clone())
            .unwrap_or_default()
    }

    fn unload(&self) {
        self.mapping.unload(&self.range);
    }
}

impl AsRef<[u8]> for MappedRange {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_within() {
        let whole = MappedRange::whole(Mapping::from_bytes(vec![1, 2, 3, 4]));
        let middle = whole.slice(1..3).unwrap();
        assert_eq!(middle.bytes(), [2, 3]);
        assert_eq!(middle.slice(1..2).unwrap().bytes(), [3]);
        assert!(middle.slice(1..3).is_none());
        assert!(whole.slice(3..usize::MAX).is_none());
    }

    #[test]
    fn unloaded_pages_are_read_again() {
        let path = std::env::temp_dir().join(format!("onionskin-mapping-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let whole = MappedRange::whole(Mapping::open(&path).unwrap());
        let part = whole.slice(5000..60_000).unwrap();
        assert_eq!(part.bytes(), &bytes[5000..60_000]);
        part.unload();
        assert_eq!(whole.bytes(), bytes);
        whole.unload();
        assert_eq!(part.bytes(), &bytes[5000..60_000]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Mapping::open(Path::new("no/such.pt")).err().unwrap();
        assert!(error.message().starts_with("no/such.pt: "), "{error}");
    }
}
