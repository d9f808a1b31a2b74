//! Fuzz targets; `docs/contributing.md` says how to run them. `tests/fuzz_corpus.rs` runs the same functions on stable Rust.

mod mutator;
mod targets;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

pub use mutator::mutate_record;
use targets::CappedAllocator;

#[global_allocator]
static ALLOCATOR: CappedAllocator = CappedAllocator::new();

/// Runs an input of a target, of which a program has one. The input is in `target/fuzz/last/NAME` until the next one, since libFuzzer cannot write an
/// input that overflows the stack.
pub fn run(name: &str, data: &[u8]) {
    // An open file is written to memory; a file that is replaced for each input would be written to disk.
    static LAST: OnceLock<File> = OnceLock::new();
    let last = LAST.get_or_init(|| create(name));
    let written = last.write_all_at(data, 0);
    let ended = written.and_then(|()| last.set_len(data.len() as u64));
    ended.expect("target/fuzz/last can be written");
    targets::run(name, data);
}

fn create(name: &str) -> File {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fuzz/last"));
    std::fs::create_dir_all(folder).expect("a folder");
    File::create(folder.join(name)).expect("a file")
}
