//! Prepares graphs for quantisers and other tools: every operator gets a unique name derived from its module path, each call
//! of a module becomes an independent instance, and a module chosen as a leaf becomes one node.
//!
//! - The only operator of a module gets the module's name (`layer1.0.relu`). Others are named after their operator, within
//!   their module (`encoder.add`, `encoder.matmul_1`). The name becomes the node's place and, made legal, its value's name.
//! - The second call of a module becomes an instance: `relu_1`, `block_1.conv`. It shares the parameters of the first
//!   call, or gets copies under its own name.
//! - The nodes of a leaf stay unchanged within one `call`.
//! - An argument may be fixed to a value. Nodes that depend only on fixed values are folded, and a condition that becomes
//!   constant is replaced by its branch.
//!
//! Names within a module do not depend on code outside of it. Preparing a prepared graph changes nothing.

mod equality;
mod fixed_arguments;
mod instances;
mod leaves;
mod node_names;
mod parameter_copies;
mod report;

pub use equality::EqualityCheck;
pub use report::{PrepareReport, Rewrite, RewriteKind};

use crate::error::Result;
use crate::ir::GraphModule;
use crate::item::Item;
use crate::scalar::Scalar;

use instances::Instances;

/// Options of [`prepare`].
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    /// Paths of modules that become one node each.
    pub leaves: Vec<String>,
    /// Arguments to fix, by name. The value fills the tensor.
    pub fixed: Vec<(String, Scalar)>,
    /// Copies the parameters for every instance of a module.
    pub copy_parameters: bool,
    /// Arguments of the first graph for comparing results, fixed ones included. If empty, and for all other graphs, they are
    /// generated from the signature.
    pub inputs: Vec<Item>,
}

/// A prepared module with its report.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The module.
    pub module: GraphModule,
    /// All rewrites, and the comparisons of results.
    pub report: PrepareReport,
}

/// Prepares a module, and checks on example inputs that all results are bitwise equal.
///
/// # Errors
/// There is no such module or argument; a leaf module reads values that are computed outside of it from its own results; the
/// inputs do not fit the signature; a result of the prepared module differs.
pub fn prepare(module: &GraphModule, options: &PrepareOptions) -> Result<Prepared> {
    let mut prepared = module.clone();
    let mut report = PrepareReport::default();
    fixed_arguments::fix_arguments(&mut prepared, &options.fixed, &mut report)?;
    leaves::outline_leaves(&mut prepared, &options.leaves, &mut report)?;
    let GraphModule {
        graphs, weights, ..
    } = &mut prepared;
    for graph in graphs {
        report.set_graph(graph);
        let instances = Instances::of(graph);
        if options.copy_parameters {
            parameter_copies::copy_parameters(graph, &instances, weights, &mut report)?;
        }
        node_names::name_nodes(graph, &instances, &mut report);
    }
    prepared.verify()?;
    report.checks = equality::compare_results(module, &prepared, options)?;
    Ok(Prepared {
        module: prepared,
        report,
    })
}
