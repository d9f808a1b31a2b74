//! Translates each kernel of a device once to the shading languages of all platforms.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::plan::Kernel;
use crate::kernel::translate::{Translations, translate};

use super::error_scope::lock;

/// A kernel that was validated and translated to SPIR-V, HLSL and, if possible, MSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TranslatedKernel {
    /// Hash of the source; equal in all processes of one build.
    pub source: u64,
    /// False for a kernel in double precision, which MSL does not have.
    pub msl: bool,
}

/// Translates kernels and records which it has translated.
pub(super) struct Translator {
    capabilities: Capabilities,
    /// Folder into which the kernels are written.
    folder: Option<PathBuf>,
    /// Source hashes of the translated kernels; true for those that were also translated to MSL.
    done: Mutex<BTreeMap<u64, bool>>,
}

impl Translator {
    pub(super) fn new(capabilities: &Capabilities, folder: Option<PathBuf>) -> Translator {
        Translator {
            capabilities: capabilities.clone(),
            folder,
            done: Mutex::default(),
        }
    }

    /// Translates a kernel unless it was translated before.
    pub(super) fn check(&self, kernel: &Kernel) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        kernel.wgsl.hash(&mut hasher);
        let source = hasher.finish();
        if !lock(&self.done).contains_key(&source) {
            let translations = translate(&kernel.wgsl, &self.capabilities)?;
            if let Some(folder) = &self.folder {
                write(
                    &folder.join(format!("{source:016x}")),
                    &kernel.wgsl,
                    &translations,
                )?;
            }
            lock(&self.done).insert(source, translations.msl.is_some());
        }
        Ok(())
    }

    pub(super) fn translated(&self) -> BTreeSet<TranslatedKernel> {
        let done = lock(&self.done);
        done.iter()
            .map(|(source, msl)| TranslatedKernel {
                source: *source,
                msl: *msl,
            })
            .collect()
    }
}

/// Writes a kernel in every language, each into a file with its extension.
fn write(stem: &Path, wgsl: &str, translations: &Translations) -> Result<()> {
    let file = |extension: &str, bytes: &[u8]| files::write(&stem.with_extension(extension), bytes);
    file("wgsl", wgsl.as_bytes())?;
    file("spv", bytemuck::cast_slice(&translations.spirv))?;
    for (extension, text) in [("hlsl", &translations.hlsl), ("msl", &translations.msl)] {
        if let Some(text) = text {
            file(extension, text.as_bytes())?;
        }
    }
    Ok(())
}
