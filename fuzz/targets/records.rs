//! Archives as lists of records.

use std::io::{Cursor, Read, Write};

use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, ZipArchive};

/// Bytes of the records of an archive that is worth mutating.
pub const LARGEST_ARCHIVE: u64 = 1 << 20;

/// Names and bytes of records.
pub type Records = Vec<(String, Vec<u8>)>;

/// The pickle of a module `M` with attributes that programs often have: tensors `weight` and `bias` of two times two.
fn module(class: &str) -> Vec<u8> {
    const TENSOR: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000\
        X\x03\0\0\0cpuK\x04tQK\0(K\x02K\x02t(K\x02K\x01t\x89}tR";
    let class = format!("\x02c__torch__\n{class}\n)");
    [
        b"\x80",
        class.as_bytes(),
        b"\x81}(X\x08\0\0\0training\x89X\x06\0\0\0weight",
        TENSOR,
        b"X\x04\0\0\0bias",
        TENSOR,
        b"ub.",
    ]
    .concat()
}

/// An archive whose root module is of this class, with a source text.
pub fn archive_of_source(class: &str, source: &[u8]) -> Vec<u8> {
    let mut records = with_data(&module(class));
    records.push(("archive/code/__torch__.py".into(), source.to_vec()));
    pack(&records, CompressionMethod::Stored)
}

/// The records of a file of tensors with this pickle.
pub fn with_data(pickle: &[u8]) -> Records {
    let record = |name: &str, bytes: &[u8]| (format!("archive/{name}"), bytes.to_vec());
    vec![
        record("data.pkl", pickle),
        record("constants.pkl", b"\x80\x02)."),
        record("version", b"3"),
        record("data/0", &[0; 64]),
        record("data/1", &[1; 64]),
    ]
}

/// Unpacks a ZIP file; none if it is damaged, or if its records have more bytes than `largest`.
pub fn unpack(bytes: &[u8], largest: u64) -> Option<Records> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).ok()?;
    let mut left = largest;
    let mut records = Vec::new();
    for index in 0..zip.len() {
        let file = zip.by_index(index).ok()?;
        let name = file.name().to_string();
        let mut record = Vec::new();
        let length = file.take(left + 1).read_to_end(&mut record).ok()?;
        left = left.checked_sub(u64::try_from(length).ok()?)?;
        records.push((name, record));
    }
    Some(records)
}

/// Packs records into a ZIP file, which depends on the records and the method alone. Stored records are easy to mutate.
pub fn pack(records: &Records, method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in records {
        // A name that the file has already is left out.
        if zip.start_file(name.as_str(), options).is_ok() {
            zip.write_all(bytes).expect("memory is written");
        }
    }
    zip.finish().expect("memory is written").into_inner()
}
