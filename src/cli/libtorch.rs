//! PyTorch itself as a reference, in builds with the feature `libtorch`.

use crate::cases::CaseArchive;
use crate::error::Result;
use crate::item::Item;

#[cfg(feature = "libtorch")]
pub(super) use crate::trace::libtorch::Program;

/// What builds without libtorch cannot open.
#[cfg(not(feature = "libtorch"))]
pub(super) enum Program {}

#[cfg(not(feature = "libtorch"))]
impl Program {
    pub(super) fn call(&self, _method: &str, _arguments: &[Item]) -> Result<Item> {
        match *self {}
    }
}

/// Nothing: this build has libtorch.
#[cfg(feature = "libtorch")]
pub(super) fn check() -> Result<()> {
    Ok(())
}

/// An error: there is no libtorch in this build.
#[cfg(not(feature = "libtorch"))]
pub(super) fn check() -> Result<()> {
    let message = "--against libtorch needs a build with the feature libtorch";
    let error = crate::error::Error::usage(message);
    Err(error.help("record outputs with examples/record.py, and use --against recorded"))
}

/// An archive that libtorch runs.
#[cfg(feature = "libtorch")]
pub(super) fn open(archive: &CaseArchive) -> Result<Program> {
    match archive {
        CaseArchive::Path(path) => Program::open(path),
        CaseArchive::Bytes(bytes) => Program::from_bytes(bytes),
    }
}

/// An error: there is no libtorch in this build.
#[cfg(not(feature = "libtorch"))]
pub(super) fn open(_archive: &CaseArchive) -> Result<Program> {
    check().and_then(|()| Err(crate::error::Error::internal("there is no libtorch")))
}

/// What libtorch says to every set of arguments.
pub(super) fn results(
    archive: &CaseArchive,
    method: &str,
    sets: &[Vec<Item>],
) -> Result<Vec<Item>> {
    let program = open(archive)?;
    let results = sets.iter().map(|set| program.call(method, set));
    results.collect()
}
