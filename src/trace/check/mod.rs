//! The trace checker: is a graph what the function does, for these inputs and for others?
//!
//! A function is the judge of its trace. An archive is not: there imports for other sizes are compared, and the report says
//! what that does not show ([`Origin`]).
//!
//! It does what PyTorch's `_check_trace` does: the function is called, its graph is run, it is traced again; results, graphs in
//! [canonical form](steps) and constants are compared. And more: the random state is the same for all of it; all outputs
//! count, wherever they stand; other inputs are [made up](perturb()), so that frozen values, sizes and branches show without
//! any check input; on a mismatch the [first value that differs](first_difference) is named with its line.
//! [`Finding`]s, of the tracer and of the checker, have ids of the [`catalog`], which explains each.
//!
//! ```
//! use onionskin::trace::check::{CheckOptions, Id};
//! use onionskin::trace::{TracedTensor, trace_checked};
//!
//! # fn main() -> onionskin::Result<()> {
//! let x = TracedTensor::from_vec([2], vec![1f32, 2.0]);
//! let scaled = |x: TracedTensor| match x.max().to_scalar() {
//!     Ok(largest) => &x / largest.to_f64(),
//!     Err(_) => x,
//! };
//! let (_, report) = trace_checked(x, scaled, &CheckOptions::default())?;
//! let ids: Vec<Id> = report.findings.iter().map(|finding| finding.id).collect();
//! assert!(ids.contains(&Id::HostRead) && ids.contains(&Id::OutputsDiffer));
//! # Ok(())
//! # }
//! ```

mod archive;
mod baked;
mod batch;
mod bisect;
mod canonical;
pub mod catalog;
mod checker;
mod constants;
mod dependence;
mod diff;
mod evaluate;
mod finding;
mod follow;
mod frozen;
mod html;
mod numerics;
mod origin;
mod others;
mod perturb;
mod random;
mod read;
mod report;
mod run;
mod site;
mod tail;
mod unread;
mod unrolled;
mod values;

pub use archive::{has_control_flow, inspect_archive};
pub use bisect::{Divergence, Program, first_difference};
pub use canonical::{Shapes, Step, each_graph, steps};
pub use catalog::{Entry, FrontEnd, Id, Severity, entries, explain};
pub use checker::{CheckOptions, check_trace, inspect, inspect_trace};
pub use diff::{GraphDiff, Line, diff};
pub use evaluate::{evaluate, inputs, signature};
pub use finding::{Allow, Finding};
pub use numerics::{Tolerances, differences};
pub use origin::Origin;
pub use perturb::{Change, Perturbation, example, perturb};
pub use random::draws_random_numbers;
pub use report::{Report, Verdict};
pub use run::{Outcome, Run};
pub use site::{Passage, Site};

use crate::error::Result;
use crate::ir::Module;
use crate::item::Item;

/// What can be traced again and called: a Rust closure, a module of libtorch, an archive.
pub trait Subject {
    /// Traces from nothing, with these arguments as the example.
    ///
    /// # Errors
    /// The function cannot be traced for these arguments.
    fn trace(&self, arguments: &[Item]) -> Result<Traced>;

    /// Calls the function itself, without a graph.
    ///
    /// # Errors
    /// The function fails for these arguments.
    fn call(&self, arguments: &[Item]) -> Result<Item>;

    /// Sets the random state, so that calls and traces after it draw the same numbers. The default is for functions that
    /// draw none.
    fn seed(&self, _seed: u64) {}

    /// What calls run. If it is no function, what they refuse may have been frozen when the trace was made, and is
    /// reported; else the function is the judge of what it takes.
    fn origin(&self) -> Origin {
        Origin::Function
    }
}

/// A module of graphs, and what the tracer warned of while it made them.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// The graphs and weights.
    pub module: Module,
    /// In the order in which they were found.
    pub warnings: Vec<Finding>,
}
