//! The ZIP file format of everything that PyTorch saves: files, which PyTorch calls records, in one top folder.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};

use zip::read::ZipFile;
use zip::{CompressionMethod, ZipArchive};

use super::pickle::{Pickled, unpickle};
use crate::budget::{Budget, Limits};
use crate::error::{Error, ErrorContext, Result};
use crate::storage::{ByteRange, ByteReader, ByteSource};
use crate::tensor::TensorStorage;

/// The records of a saved file. Opening one reads the central directory only.
#[derive(Debug)]
pub struct Container {
    /// The whole file.
    bytes: ByteRange,
    zip: ZipArchive<ByteReader>,
    /// The folder that contains all records, with a slash at its end.
    top_folder: String,
    /// Names of the records without the top folder.
    names: Vec<String>,
    /// Index of each record in the ZIP directory, by its name in `names`.
    indices: HashMap<String, usize>,
    /// Inflated records by index, so that each is inflated once.
    inflated: Mutex<HashMap<usize, ByteRange>>,
    /// Bytes and values that may be made of the file.
    budget: Budget,
}

impl Container {
    /// Opens a file and reads its directory.
    pub fn open(path: &Path, limits: &Limits) -> Result<Container> {
        Container::new(ByteSource::open(path)?, limits).at(|| path.display().to_string())
    }

    /// Reads the directory of a file that is already in memory.
    pub fn from_bytes(bytes: Vec<u8>, limits: &Limits) -> Result<Container> {
        Container::new(ByteSource::from_bytes(bytes), limits)
    }

    /// Reads the directory of bytes.
    pub(crate) fn new(source: Arc<ByteSource>, limits: &Limits) -> Result<Container> {
        Container::within(ByteRange::whole(source), Budget::new(limits.clone()))
    }

    /// Reads the directory of a record that is a ZIP file itself. Both have one budget.
    pub fn nested(&self, name: &str) -> Result<Container> {
        let bytes = self.record_in_place(name)?;
        Container::within(bytes, self.budget.clone()).at(|| format!("record {name:?}"))
    }

    /// Reads the directory of a ZIP file that was decoded from a record. Both have one budget.
    pub fn nested_bytes(&self, bytes: Vec<u8>) -> Result<Container> {
        let bytes = ByteRange::whole(ByteSource::from_bytes(bytes));
        Container::within(bytes, self.budget.clone())
    }

    fn within(bytes: ByteRange, budget: Budget) -> Result<Container> {
        let zip = ZipArchive::new(ByteReader::new(bytes.clone()))
            .map_err(|error| Error::format(format!("not a ZIP archive: {error}")))?;
        let top = top_folder(&zip);
        let mut names = Vec::new();
        let mut indices = HashMap::new();
        for index in 0..zip.len() {
            let name = zip.name_for_index(index);
            let Some(name) = name.and_then(|name| name.strip_prefix(top.as_str())) else {
                continue;
            };
            names.push(name.to_owned());
            indices.insert(name.to_owned(), index);
        }
        Ok(Container {
            bytes,
            zip,
            top_folder: top,
            names,
            indices,
            inflated: Mutex::default(),
            budget,
        })
    }

    /// The limits that the file was opened with.
    pub fn limits(&self) -> &Limits {
        self.budget.limits()
    }

    /// The budget for reading records.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A budget for work on this file, of which nothing is used.
    pub fn new_budget(&self) -> Budget {
        Budget::for_file(self.budget.limits(), self.bytes.len())
    }

    /// Names of all records without the top folder, in the order of the directory.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The folder that contains all records, with a slash at its end; empty if there is none.
    pub fn top_folder(&self) -> &str {
        &self.top_folder
    }

    /// True if there is a record of a name.
    pub fn contains(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    /// Returns the bytes of a record, in memory.
    pub fn record(&self, name: &str) -> Result<ByteRange> {
        let stored = self.record_in_place(name)?;
        stored.load().at(|| format!("record {name:?}"))
    }

    /// Returns the bytes of a record: a range of the file if it is stored, which is read when it is used, else inflated bytes.
    pub(super) fn record_in_place(&self, name: &str) -> Result<ByteRange> {
        let index = *self
            .indices
            .get(name)
            .ok_or_else(|| Error::format(format!("the archive has no record {name:?}")))?;
        self.read(index).at(|| format!("record {name:?}"))
    }

    /// A record as text.
    pub fn text(&self, name: &str) -> Result<String> {
        String::from_utf8(self.record(name)?.bytes().to_vec())
            .map_err(|_| Error::format(format!("record {name:?} is not UTF-8 text")))
    }

    /// Reads the pickle `NAME.pkl`, whose storages are the records `NAME/…`.
    pub fn pickle(&self, name: &str) -> Result<Pickled> {
        let record = format!("{name}.pkl");
        unpickle(self.record(&record)?.bytes(), name, &self.budget).at(|| record)
    }

    /// Rejects big-endian files. Files without a byte order are little-endian.
    pub fn check_byte_order(&self) -> Result<()> {
        match self.text("byteorder").as_deref().map(str::trim) {
            Ok("little") | Err(_) => Ok(()),
            Ok(other) => Err(Error::unsupported(format!(
                "the byte order {other:?}; only little-endian files are supported"
            ))),
        }
    }

    /// Reads the record of an index in the ZIP directory.
    fn read(&self, index: usize) -> Result<ByteRange> {
        // Reading moves the cursor; a clone shares the directory and the bytes.
        let mut zip = self.zip.clone();
        let file = zip.by_index_raw(index).map_err(malformed)?;
        if file.encrypted() {
            return Err(Error::unsupported("the record is encrypted"));
        }
        if file.compression() == CompressionMethod::Stored {
            let start = file.data_start();
            let end = start.and_then(|start| start.checked_add(file.compressed_size()));
            return self
                .slice(start, end)
                .ok_or_else(|| Error::format("the record reaches beyond the end of the file"));
        }
        drop(file);
        let mut inflated = self.inflated.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(record) = inflated.get(&index) {
            return Ok(record.clone());
        }
        let bytes = inflate(zip.by_index(index).map_err(malformed)?, &self.budget)?;
        let record = ByteRange::whole(ByteSource::from_bytes(bytes));
        inflated.insert(index, record.clone());
        Ok(record)
    }

    /// A range of the file's bytes; none if it is out of bounds.
    fn slice(&self, start: Option<u64>, end: Option<u64>) -> Option<ByteRange> {
        let start = usize::try_from(start?).ok()?;
        self.bytes.slice(start..usize::try_from(end?).ok()?)
    }
}

/// Inflates a file of a ZIP archive. Its size is charged before.
pub(crate) fn inflate<R: Read>(file: ZipFile<'_, R>, budget: &Budget) -> Result<Vec<u8>> {
    let size = file.size();
    budget.charge_bytes(size)?;
    let mut bytes = Vec::new();
    // The size in the directory may be wrong, so reading stops one byte after it.
    file.take(size.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| Error::format(error.to_string()))?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(Error::format(format!(
            "inflates to other than {size} bytes"
        ))),
    }
}

/// The folder of the first record, with a slash at its end; empty if it is in none.
fn top_folder(zip: &ZipArchive<ByteReader>) -> String {
    let first = zip.name_for_index(0).unwrap_or_default();
    let length = first.find('/').map_or(0, |slash| slash + 1);
    first.get(..length).unwrap_or_default().to_owned()
}

fn malformed(error: zip::result::ZipError) -> Error {
    Error::format(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Container {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/archives");
        Container::open(&Path::new(folder).join(name), &Limits::default()).unwrap()
    }

    #[test]
    fn record_names_omit_the_top_folder() {
        let container = fixture("scripted.pt");
        assert_eq!(container.top_folder(), "archive/");
        assert_eq!(container.text("byteorder").unwrap(), "little");
        assert!(container.contains("data.pkl") && !container.contains("archive/data.pkl"));
        assert!(container.names().any(|name| name == "code/__torch__.py"));
    }

    #[test]
    fn stored_records_are_not_copied() {
        let container = fixture("two_layers.pt");
        let stored = container.record_in_place("data/0").unwrap();
        assert_eq!(
            stored.load().unwrap().bytes(),
            container.record("data/0").unwrap().bytes()
        );
        let in_memory = Container::from_bytes(
            container.bytes.load().unwrap().bytes().to_vec(),
            &Limits::default(),
        );
        let container = in_memory.unwrap();
        let file = container.bytes.bytes().as_ptr_range();
        assert!(file.contains(&container.record("data/0").unwrap().bytes().as_ptr()));
        let source = container.record("code/__torch__.py").unwrap();
        assert!(!file.contains(&source.bytes().as_ptr()));
        assert!(source.bytes().starts_with(b"class TwoLayers"));
    }

    #[test]
    fn errors_name_the_record() {
        let error = fixture("two_layers.pt").record("data/99").err().unwrap();
        assert_eq!(error.message(), "the archive has no record \"data/99\"");
        assert!(Container::from_bytes(b"PK\x03\x04".to_vec(), &Limits::default()).is_err());
        assert!(Container::from_bytes(Vec::new(), &Limits::default()).is_err());
    }
}
