//! Archives that are made by hand.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses its part, and fails by panicking"
)]

use std::io::{Cursor, Write};

use zip::write::{SimpleFileOptions, ZipWriter};

/// Records of an archive by name.
pub type Records<'a> = Vec<(&'a str, Vec<u8>)>;

/// Returns an archive of a module `M` with these statements in `forward(self, x)`, and further declarations.
pub fn program(statements: &str, declarations: &str) -> Vec<u8> {
    let source = format!(
        "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  \
         def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n{statements}{declarations}"
    );
    archive(
        vec![("code/__torch__.py", source.into_bytes())],
        &module(b""),
    )
}

/// Returns the pickle of a module `M` with further attributes: opcodes that push names and values.
pub fn module(attributes: &[u8]) -> Vec<u8> {
    let training = b"X\x08\0\0\0training\x89";
    [
        b"\x80\x02c__torch__\nM\n)\x81}(",
        &training[..],
        attributes,
        b"ub.",
    ]
    .concat()
}

/// Returns an archive of these records, with this `data.pkl`.
pub fn archive(records: Records, data: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let fixed = vec![
        ("data.pkl", data.to_vec()),
        ("constants.pkl", b"\x80\x02).".to_vec()),
        ("version", b"3".to_vec()),
    ];
    for (name, bytes) in fixed.into_iter().chain(records) {
        let options = SimpleFileOptions::default();
        zip.start_file(format!("archive/{name}"), options).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}
