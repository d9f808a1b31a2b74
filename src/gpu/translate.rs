//! Translates each kernel of a device once to the shading languages of all platforms.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::plan::Kernel;
use crate::kernel::translate::translate;

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
    /// Source hashes of the translated kernels; true for those that were also translated to MSL.
    done: Mutex<BTreeMap<u64, bool>>,
}

impl Translator {
    pub(super) fn new(capabilities: &Capabilities) -> Translator {
        Translator {
            capabilities: capabilities.clone(),
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
