//! The trace checker: compares a traced graph with its function, for the inputs of the trace and for others.
//!
//! The function is the reference for its trace. An archive has no function to call: the checker compares imports for other
//! sizes, and the report names the limits of such a comparison ([`SubjectKind`]).
//!
//! The checker does what PyTorch's `_check_trace` does: it calls the function, runs its graph, traces the function again,
//! and compares results, graphs in [canonical form](steps) and constants. In addition:
//!
//! - All calls and traces start from one random state.
//! - All outputs are compared, also those nested in structures.
//! - Inputs [derived](perturb()) from the given ones reveal frozen values, sizes and branches.
//! - A finding about a mismatch names the [first value that differs](first_difference) and its line.
//!
//! Every [`Finding`] of the tracer or the checker has an id. The [`catalog`] explains each id.
//!
//! ```
//! use onionskin::trace::check::{CheckOptions, Id};
//! use onionskin::trace::{TracedTensor, trace_fn_checked};
//!
//! # fn main() -> onionskin::Result<()> {
//! let x = TracedTensor::from_vec([2], vec![1f32, 2.0]);
//! let scaled = |x: TracedTensor| match x.max().to_scalar() {
//!     Ok(largest) => &x / largest.to_f64(),
//!     Err(_) => x,
//! };
//! let (_, report) = trace_fn_checked(x, scaled, &CheckOptions::default())?;
//! let ids: Vec<Id> = report.findings.iter().map(|finding| finding.id).collect();
//! assert!(ids.contains(&Id::HostRead) && ids.contains(&Id::OutputsDiffer));
//! # Ok(())
//! # }
//! ```

mod baked_constants;
mod bisect;
mod canonical;
pub mod catalog;
mod check_run;
mod checker;
mod constant_diff;
mod dependence;
mod diff;
mod evaluate;
mod export_comparison;
mod finding;
mod fixed_batch;
mod gradients;
mod html;
mod ignored_tail;
mod not_a_number;
mod numerics;
mod perturb;
mod perturbed_inputs;
mod random;
mod read_numbers;
mod report;
mod size_literals;
mod subject_kind;
mod training_norms;
mod unread_inputs;
mod unrolled_axes;
mod value_changes;
mod value_site;
mod varies_with_sizes;

pub use bisect::{Divergence, GraphWithWeights, first_difference, value_difference};
pub use canonical::{CanonicalStep, ShapeMode, each_graph, steps};
pub use catalog::{CatalogEntry, FrontEnd, Id, Severity, entries, explain};
pub use check_run::{CheckRun, RunOutcome};
pub use checker::{CheckOptions, check_trace, inspect, inspect_trace};
pub use diff::{DiffLine, GraphDiff, diff};
pub use evaluate::{evaluate, inputs, signature};
pub use finding::{AllowList, Finding};
pub(crate) use finding::{fold_lines, fold_repeated, merge_equal};
pub use numerics::{Tolerances, differences};
pub use perturb::{Perturbation, SizeChange, example, perturb};
pub use random::draws_random_numbers;
pub(super) use random::random_operator_finding;
pub use report::{CheckReport, Verdict};
pub use subject_kind::SubjectKind;
pub use value_site::{EnclosingBody, ValueSite};

use crate::error::Result;
use crate::ir::GraphModule;
use crate::item::Item;

/// A function that can be called and traced again: a Rust closure, a module of libtorch, an archive.
pub trait Subject {
    /// Makes a new trace, with these arguments as the example.
    ///
    /// # Errors
    /// The function cannot be traced for these arguments.
    fn trace(&self, arguments: &[Item]) -> Result<Traced>;

    /// Calls the function itself, without a graph.
    ///
    /// # Errors
    /// The function fails for these arguments.
    fn call(&self, arguments: &[Item]) -> Result<Item>;

    /// Sets the random state: later calls and traces draw the same numbers. The default does nothing, for functions that
    /// draw none.
    fn seed(&self, _seed: u64) {}

    /// Returns the kind of program that [`call`](Subject::call) runs. If it runs the function, the function decides which
    /// inputs are valid. Otherwise a refused input is reported, since its size or value may have been frozen when the trace
    /// was made.
    fn kind(&self) -> SubjectKind {
        SubjectKind::Function
    }
}

/// A module of graphs, and the tracer's warnings about them.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// The graphs and weights.
    pub module: GraphModule,
    /// In the order in which they were found.
    pub warnings: Vec<Finding>,
}
