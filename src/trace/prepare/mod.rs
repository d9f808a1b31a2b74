//! Preparing graphs for quantisers and other tools: every operator gets a unique name that follows from its module path, a
//! module that is called several times becomes independent instances, and what shall stay together is one node.
//!
//! - The only operator of a module is named like the module (`layer1.0.relu`); others are named after their operator, in
//!   their module (`encoder.add`, `encoder.matmul_1`). The name is the node's place and, as far as it goes, its value's.
//! - The second call of a module is an instance of its own: `relu_1`, `block_1.conv`. It shares the parameters of the first,
//!   or has copies of them under its own name.
//! - The nodes of a leaf are left as they are, in one `call`.
//! - An argument may be fixed to a value. What follows from it is computed, and of a condition that it decides one branch
//!   is left.
//!
//! Names don't depend on anything outside of a module. Preparing a prepared graph changes nothing.

mod equality;
mod fix;
mod instances;
mod leaf;
mod names;
mod parameters;
mod report;

pub use equality::Check;
pub use report::{Report, Rewrite, RewriteKind};

use crate::error::Result;
use crate::ir::Module;
use crate::item::Item;
use crate::scalar::Scalar;

use instances::Instances;

/// How a module is prepared.
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    /// Paths of modules that are left whole.
    pub leaves: Vec<String>,
    /// Arguments that are fixed, by name; a tensor is filled with the value.
    pub fixed: Vec<(String, Scalar)>,
    /// Every instance of a module has parameters of its own.
    pub copy_parameters: bool,
    /// Arguments of the first graph on which the results are compared, fixed ones included. Without any, and for all other
    /// graphs, they are made from the signature.
    pub inputs: Vec<Item>,
}

/// A prepared module and what was done.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The module.
    pub module: Module,
    /// Every rewrite, and proof that the results are the same.
    pub report: Report,
}

/// Prepares a module, and proves on example inputs that it computes the same, bit for bit.
///
/// # Errors
/// There is no such module or argument; a module cannot be left whole, as it needs what is computed outside from its own
/// results; the inputs do not fit the signature; the prepared module computes something else.
pub fn prepare(module: &Module, options: &PrepareOptions) -> Result<Prepared> {
    let mut prepared = module.clone();
    let mut report = Report::default();
    fix::fix(&mut prepared, &options.fixed, &mut report)?;
    leaf::gather(&mut prepared, &options.leaves, &mut report)?;
    let Module {
        graphs, weights, ..
    } = &mut prepared;
    for graph in graphs {
        report.begin(graph);
        let instances = Instances::of(graph);
        if options.copy_parameters {
            parameters::copy(graph, &instances, weights, &mut report)?;
        }
        names::name(graph, &instances, &mut report);
    }
    prepared.verify()?;
    report.checks = equality::prove(module, &prepared, options)?;
    Ok(Prepared {
        module: prepared,
        report,
    })
}
