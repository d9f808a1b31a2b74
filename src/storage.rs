//! Tensor storage outside the allocator: ranges of files, and huge pages for large results.
//!
//! A file is read when its bytes are used, not when it is opened: a program uploads weights to a device and does not need them
//! on the host. A file that changes is found when it is read. Mapped files are read by the system instead, which ends the
//! process if the file was cut short, so that mapping one is unsafe.

mod reader;

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::tensor::TensorStorage;

pub use reader::ByteReader;

/// Bytes: of an open file, of a mapped one, or in memory.
pub struct ByteSource {
    content: Content,
    /// Ranges of a file that are in memory as long as somebody uses them.
    loaded: Mutex<HashMap<Range<usize>, Weak<AlignedBytes>>>,
}

enum Content {
    File(OpenFile),
    Mapped(memmap2::Mmap),
    Memory(Vec<u8>),
}

/// An open file, as it was when it was opened.
struct OpenFile {
    file: File,
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
}

/// Bytes in memory, aligned for elements of every dtype.
struct AlignedBytes {
    words: Vec<u64>,
    length: usize,
}

impl AlignedBytes {
    fn zeros(length: usize) -> AlignedBytes {
        let words = vec![0; length.div_ceil(size_of::<u64>())];
        AlignedBytes { words, length }
    }

    fn bytes(&self) -> &[u8] {
        let bytes = bytemuck::cast_slice(&self.words);
        bytes.get(..self.length).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = bytemuck::cast_slice_mut(&mut self.words);
        bytes.get_mut(..self.length).unwrap_or_default()
    }
}

impl OpenFile {
    fn new(file: File, path: &Path) -> std::io::Result<OpenFile> {
        let found = file.metadata()?;
        Ok(OpenFile {
            length: found.len(),
            modified: found.modified().ok(),
            path: path.to_path_buf(),
            file,
        })
    }

    /// Reads bytes from a place on.
    fn read(&self, start: usize, bytes: &mut [u8]) -> Result<()> {
        let read = read_exact_at(&self.file, bytes, start as u64);
        // A write that the bytes may be of has changed these by now.
        match read.and_then(|()| self.file.metadata()) {
            Ok(found) if self.is_as_opened(&found) => Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                Err(Error::io(&self.path, error))
            }
            _ => Err(self.changed()),
        }
    }

    fn is_as_opened(&self, found: &Metadata) -> bool {
        (found.len(), found.modified().ok()) == (self.length, self.modified)
    }

    fn changed(&self) -> Error {
        let message = format!(
            "{}: the file changed while it was open",
            self.path.display()
        );
        Error::new(ErrorKind::Io, message)
            .help("open it again; to replace a file in use, rename a new one over it")
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], start: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut start: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, start)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = bytes.get_mut(read..).unwrap_or_default();
                start += read as u64;
            }
        }
    }
    Ok(())
}

impl ByteSource {
    /// Opens a file, whose bytes are read when they are used.
    ///
    /// # Errors
    /// The file cannot be opened, or is no regular file.
    pub fn open(path: &Path) -> Result<Arc<ByteSource>> {
        let opened = files::open(path).and_then(|file| OpenFile::new(file, path));
        let opened = opened.map_err(|error| Error::io(path, error))?;
        Ok(ByteSource::of(Content::File(opened)))
    }

    /// Maps a file.
    ///
    /// # Safety
    /// Nobody cuts the file short or writes to it while the mapping lives. Else reads of the bytes end the process or give other
    /// bytes each time.
    ///
    /// # Errors
    /// As [`ByteSource::open`].
    #[expect(
        unsafe_code,
        reason = "a mapping is only sound if nobody changes the file, which the caller promises"
    )]
    pub unsafe fn map(path: &Path) -> Result<Arc<ByteSource>> {
        let file = files::open(path).map_err(|error| Error::io(path, error))?;
        // SAFETY: the mapping is private and only read; the caller promises that the file does not change.
        let mapped = unsafe { memmap2::Mmap::map(&file) };
        let mapped = mapped.map_err(|error| Error::io(path, error))?;
        Ok(ByteSource::of(Content::Mapped(mapped)))
    }

    /// Bytes in memory, in place of a file.
    pub fn from_bytes(bytes: Vec<u8>) -> Arc<ByteSource> {
        ByteSource::of(Content::Memory(bytes))
    }

    fn of(content: Content) -> Arc<ByteSource> {
        let loaded = Mutex::default();
        Arc::new(ByteSource { content, loaded })
    }

    /// Number of bytes.
    fn len(&self) -> usize {
        match &self.content {
            Content::File(file) => usize::try_from(file.length).unwrap_or(usize::MAX),
            Content::Mapped(bytes) => bytes.len(),
            Content::Memory(bytes) => bytes.len(),
        }
    }

    /// All bytes; `None` if they are in a file.
    fn resident(&self) -> Option<&[u8]> {
        match &self.content {
            Content::File(_) => None,
            Content::Mapped(bytes) => Some(bytes),
            Content::Memory(bytes) => Some(bytes),
        }
    }

    /// Copies bytes from a place on.
    fn copy(&self, start: usize, bytes: &mut [u8]) -> Result<()> {
        let resident = match &self.content {
            Content::File(file) => return file.read(start, bytes),
            Content::Mapped(all) => all,
            Content::Memory(all) => all.as_slice(),
        };
        let found = resident.get(start..start.saturating_add(bytes.len()));
        let found = found.ok_or_else(|| Error::format("a range reaches beyond the end"))?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    /// Reads a range of a file, or returns what somebody else has read and still uses.
    fn load(&self, range: &Range<usize>) -> Result<Arc<AlignedBytes>> {
        let loaded = || self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = loaded().get(range).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let mut bytes = AlignedBytes::zeros(range.len());
        self.copy(range.start, bytes.bytes_mut())?;
        let bytes = Arc::new(bytes);
        let mut loaded = loaded();
        loaded.retain(|_, known| known.strong_count() > 0);
        loaded.insert(range.clone(), Arc::downgrade(&bytes));
        Ok(bytes)
    }

    /// Lets the system drop cached pages of a part of a mapped file until they are read again.
    fn unload(&self, range: &Range<usize>) {
        if let Content::Mapped(file) = &self.content {
            unload(file, range);
        }
    }
}

#[cfg(unix)]
#[expect(
    unsafe_code,
    reason = "the advice is marked unsafe for mappings that are written to"
)]
fn unload(file: &memmap2::Mmap, range: &Range<usize>) {
    // SAFETY: nobody writes to the mapping, so dropped pages are read from the file again. The mapping is this process's as long as
    // `file` lives, so that no other memory is in its range. The system may ignore the advice, so errors are ignored as well.
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
fn advise_huge_pages(_: &memmap2::MmapMut) -> Option<()> {
    None
}

/// A range of bytes, whose source it keeps alive. Clones share the bytes.
#[derive(Clone)]
pub struct ByteRange {
    source: Arc<ByteSource>,
    range: Range<usize>,
    /// The bytes, if they had to be read from a file for [`ByteRange::bytes`].
    kept: Arc<OnceLock<Arc<AlignedBytes>>>,
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByteRange({} bytes)", self.range.len())
    }
}

impl ByteRange {
    /// All bytes of a source.
    pub fn whole(source: Arc<ByteSource>) -> ByteRange {
        let range = 0..source.len();
        ByteRange::of(source, range)
    }

    fn of(source: Arc<ByteSource>, range: Range<usize>) -> ByteRange {
        ByteRange {
            source,
            range,
            kept: Arc::default(),
        }
    }

    /// A part of this range; `None` if it is out of range.
    pub fn slice(&self, range: Range<usize>) -> Option<ByteRange> {
        let is_within = range.start <= range.end && range.end <= self.range.len();
        let range =
            self.range.start.checked_add(range.start)?..self.range.start.checked_add(range.end)?;
        is_within.then(|| ByteRange::of(self.source.clone(), range))
    }

    /// True if the elements of a dtype of this size are aligned.
    pub fn is_aligned(&self, size: usize) -> bool {
        let resident = self.resident();
        resident.is_none_or(|bytes| bytes.as_ptr().align_offset(size) == 0)
    }

    /// Copies the bytes from a place on.
    ///
    /// # Errors
    /// The range has fewer bytes, or the file changed since it was opened.
    pub fn copy(&self, start: usize, bytes: &mut [u8]) -> Result<()> {
        let end = start.checked_add(bytes.len());
        match end.is_some_and(|end| end <= self.range.len()) {
            true => self.source.copy(self.range.start + start, bytes),
            false => Err(Error::format("a range reaches beyond the end")),
        }
    }

    /// Reads the bytes, unless they are in memory. They stay there as long as the result.
    ///
    /// # Errors
    /// The file cannot be read, or changed since it was opened.
    pub fn load(&self) -> Result<ByteRange> {
        match self.resident().is_some() || self.kept.get().is_some() {
            true => Ok(self.clone()),
            false => Ok(ByteRange {
                kept: Arc::new(OnceLock::from(self.source.load(&self.range)?)),
                ..self.clone()
            }),
        }
    }

    /// The bytes; `None` if they are in a file.
    fn resident(&self) -> Option<&[u8]> {
        let all = self.source.resident()?;
        Some(all.get(self.range.clone()).unwrap_or_default())
    }

    #[expect(
        clippy::panic,
        reason = "an error that only a change of the file can cause; `load` returns it"
    )]
    fn keep(&self) -> Arc<AlignedBytes> {
        let loaded = self.source.load(&self.range);
        loaded.unwrap_or_else(|error| panic!("{error}"))
    }
}

impl TensorStorage for ByteRange {
    /// Reads a file's bytes on first use and keeps them.
    ///
    /// # Panics
    /// The file cannot be read, or changed since it was opened. [`ByteRange::load`] returns an error instead.
    fn bytes(&self) -> &[u8] {
        match self.resident() {
            Some(bytes) => bytes,
            None => self.kept.get_or_init(|| self.keep()).bytes(),
        }
    }

    fn len(&self) -> usize {
        self.range.len()
    }

    fn load(&self) -> Result<Option<Arc<dyn TensorStorage>>> {
        let loaded = ByteRange::load(self)?;
        Ok(Some(Arc::new(loaded)))
    }

    fn unload(&self) {
        self.source.unload(&self.range);
    }
}

impl AsRef<[u8]> for ByteRange {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("onionskin-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn slices_stay_within() {
        let whole = ByteRange::whole(ByteSource::from_bytes(vec![1, 2, 3, 4]));
        let middle = whole.slice(1..3).unwrap();
        assert_eq!(middle.bytes(), [2, 3]);
        assert_eq!(middle.slice(1..2).unwrap().bytes(), [3]);
        assert!(middle.slice(1..3).is_none());
        assert!(whole.slice(3..usize::MAX).is_none());
    }

    #[test]
    fn bytes_of_a_file_are_read_when_they_are_used_and_shared() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let path = file("ranges", &bytes);
        let whole = ByteRange::whole(ByteSource::open(&path).unwrap());
        let part = whole.slice(5001..60_000).unwrap();
        let loaded = [part.load().unwrap(), part.load().unwrap()];
        assert_eq!(loaded[0].bytes(), &bytes[5001..60_000]);
        assert_eq!(loaded[0].bytes().as_ptr(), loaded[1].bytes().as_ptr());
        assert!(loaded[0].is_aligned(8) && loaded[0].bytes().as_ptr().align_offset(8) == 0);
        drop(loaded);
        assert_eq!(
            whole
                .source
                .loaded
                .lock()
                .unwrap()
                .values()
                .filter_map(Weak::upgrade)
                .count(),
            0
        );
        assert_eq!(part.bytes(), &bytes[5001..60_000]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_changes_is_an_error() {
        for change in [
            &b"shorter"[..],
            b"of equal size...",
            b"of another size, longer",
        ] {
            let path = file("changes", b"sixteen bytes ..");
            let whole = ByteRange::whole(ByteSource::open(&path).unwrap());
            // Clocks of file systems are coarse.
            std::thread::sleep(std::time::Duration::from_millis(30));
            std::fs::write(&path, change).unwrap();
            let error = whole.load().unwrap_err();
            assert!(
                error
                    .message()
                    .ends_with("the file changed while it was open"),
                "{error}"
            );
            std::fs::remove_file(&path).unwrap();
        }
        // A file that is replaced or removed is still there for those who opened it.
        let path = file("replaced", b"old");
        let whole = ByteRange::whole(ByteSource::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(whole.load().unwrap().bytes(), b"old");
    }

    #[test]
    #[expect(unsafe_code, reason = "nobody else knows the file")]
    fn unloaded_pages_are_read_again() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let path = file("mapping", &bytes);
        // SAFETY: nobody else knows the file.
        let whole = ByteRange::whole(unsafe { ByteSource::map(&path) }.unwrap());
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
        let error = ByteSource::open(Path::new("no/such.pt")).err().unwrap();
        assert!(error.message().starts_with("no/such.pt: "), "{error}");
    }
}
