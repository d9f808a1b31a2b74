//! PyTorch as a reference, in builds with the feature `libtorch`.

use crate::cases::CaseArchive;
use crate::error::Result;
use crate::item::Item;

#[cfg(feature = "libtorch")]
pub(super) use crate::trace::libtorch::LibtorchProgram;

/// Uninhabited stand-in: builds without libtorch cannot open a program.
#[cfg(not(feature = "libtorch"))]
pub(super) enum LibtorchProgram {}

#[cfg(not(feature = "libtorch"))]
impl LibtorchProgram {
    pub(super) fn call(&self, _method: &str, _arguments: &[Item]) -> Result<Item> {
        match *self {}
    }
}

/// Succeeds: this build has libtorch.
#[cfg(feature = "libtorch")]
pub(super) fn check() -> Result<()> {
    Ok(())
}

/// Returns an error: this build has no libtorch.
#[cfg(not(feature = "libtorch"))]
pub(super) fn check() -> Result<()> {
    let message = "--against libtorch needs a build with the feature libtorch";
    let error = crate::error::Error::usage(message);
    Err(error.help("record outputs with examples/record.py, and use --against recorded"))
}

/// Opens an archive with libtorch.
#[cfg(feature = "libtorch")]
pub(super) fn open(archive: &CaseArchive) -> Result<LibtorchProgram> {
    match archive {
        CaseArchive::Path(path) => LibtorchProgram::open(path),
        CaseArchive::Bytes(bytes) => LibtorchProgram::from_bytes(bytes),
    }
}

/// Returns an error: this build has no libtorch.
#[cfg(not(feature = "libtorch"))]
pub(super) fn open(_archive: &CaseArchive) -> Result<LibtorchProgram> {
    check().and_then(|()| Err(crate::error::Error::internal("this build has no libtorch")))
}

/// Runs a method in libtorch on each set of arguments and returns the results.
pub(super) fn results(
    archive: &CaseArchive,
    method: &str,
    sets: &[Vec<Item>],
) -> Result<Vec<Item>> {
    let program = open(archive)?;
    let results = sets.iter().map(|set| program.call(method, set));
    results.collect()
}
