//! Options of a compilation.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::gpu::{Keep, Progress};
use crate::kernel::choice::VariantOverrides;
use crate::kernel::materialization::Precision;

/// Options of a compilation.
#[derive(Clone)]
pub struct CompileOptions {
    /// Name of the entry graph: `forward`, or another method.
    pub entry: String,
    /// Imports an archive again when a call's sizes violate the guards of all graphs so far, so that one session serves
    /// all sizes that PyTorch's trace serves. Without it such a call is an error.
    pub respecialize: bool,
    /// On a GPU, compiles a graph with symbolic sizes for the example's sizes first: constant sizes make faster
    /// kernels. The first call with other sizes compiles it for all sizes.
    pub static_shapes: bool,
    /// Kernel variants that replace those of the planner's table; see [`crate::model::Tuning`].
    pub variant_overrides: VariantOverrides,
    /// Storage precision of `f32` values on the device, weights included. Half precision takes half the bytes and is
    /// less exact. Inputs and outputs are unchanged, and kernels compute in `f32`. The host stores `f32` only.
    pub precision: Precision,
    /// Whether a run fails where the model asserts, indexes out of range or divides integers by zero, as in PyTorch.
    /// Without checks assertions are left out, a GPU clamps indices to their range, and such quotients are arbitrary
    /// numbers.
    pub checks: bool,
    /// The values that [`Run::slot`](crate::gpu::Run::slot) can read after a run.
    pub keep: Keep,
    /// A file of weights in a GPU's layout. Weights in the file are uploaded without being computed or packed; missing
    /// and damaged ones are added to it. The file need not exist, and may contain weights of other models. Other
    /// processes must not change it meanwhile. See [`Session::packed`](super::Session::packed).
    pub packed: Option<PathBuf>,
    /// Gives memory that only compilation needs back to the system: free heap, and pages of the driver's compiler. Without
    /// it, sessions that are made one after the other are made faster on a software rasteriser.
    pub release_memory: bool,
    /// Progress callback, called from several threads while kernels compile and weights are uploaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            entry: "forward".to_string(),
            respecialize: true,
            static_shapes: true,
            variant_overrides: VariantOverrides::new(),
            precision: Precision::Single,
            checks: true,
            keep: Keep::Outputs,
            packed: None,
            release_memory: true,
            progress: None,
        }
    }
}

impl fmt::Debug for CompileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompileOptions")
            .field("entry", &self.entry)
            .field("respecialize", &self.respecialize)
            .field("static_shapes", &self.static_shapes)
            .field("precision", &self.precision)
            .field("checks", &self.checks)
            .field("packed", &self.packed)
            .field("release_memory", &self.release_memory)
            .finish_non_exhaustive()
    }
}
