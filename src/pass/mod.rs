//! Rewrites of whole graphs. A pass is a function from graph to graph that replays nodes into a fresh builder.
//!
//! Passes keep results bit for bit, with one exception: the sign and payload of NaN.

mod arithmetic;
mod checks;
pub(crate) mod constant;
mod cse;
mod dce;
mod decompose;
mod explicit_regions;
mod fold;
mod fold_weights;
mod if_conversion;
mod inline;
mod lift;
mod polyphase;
mod range;
mod remove_barriers;
mod sibling_matmuls;
mod simplify;
mod specialize;
mod unroll;

pub use arithmetic::{MultiplyAdds, multiply_adds, multiply_adds_of};
pub use checks::{proven_checks, without_checks};
pub use cse::cse;
pub use dce::dce;
pub use decompose::decompose;
pub use explicit_regions::explicit_regions;
pub use fold::fold;
pub use fold_weights::{FoldedModule, fold_weights};
pub use if_conversion::if_conversion;
pub use inline::inline;
pub(crate) use lift::weight_to_input;
pub use lift::{lift, unlift};
pub use polyphase::polyphase;
pub use remove_barriers::remove_barriers;
pub use sibling_matmuls::fuse_sibling_matmuls;
pub use simplify::{RULES, Rule, simplify};
pub use specialize::specialize;
pub use unroll::unroll;

use crate::error::{ErrorContext, Result};
use crate::interrupt;
use crate::ir::{Graph, GraphModule};

/// A rewrite and its name.
pub struct Pass {
    /// Name of the pass in tests and messages.
    pub name: &'static str,
    /// The rewrite. It covers the graphs nested in regions as well.
    pub run: fn(&Graph) -> Result<Graph>,
}

/// Passes that prepare a graph for a device, in order.
pub const PIPELINE: &[Pass] = &[
    Pass::new("inline", inline),
    Pass::new("decompose", decompose),
    Pass::new("polyphase", polyphase),
    Pass::new("unroll", unroll),
    Pass::new("if_conversion", if_conversion),
    Pass::new("fold", fold),
    Pass::new("proven_checks", proven_checks),
    Pass::new("simplify", simplify),
    Pass::new("cse", cse),
    Pass::new("fuse_sibling_matmuls", fuse_sibling_matmuls),
    Pass::new("remove_barriers", remove_barriers),
    Pass::new("dce", dce),
];

impl Pass {
    const fn new(name: &'static str, run: fn(&Graph) -> Result<Graph>) -> Pass {
        Pass { name, run }
    }
}

/// Runs the whole pipeline.
pub fn optimize(graph: &Graph) -> Result<Graph> {
    PIPELINE.iter().try_fold(graph.clone(), |graph, pass| {
        let optimized = interrupt::check().and_then(|()| (pass.run)(&graph));
        optimized.at(|| format!("pass {}", pass.name))
    })
}

/// Optimises every graph of a module and computes all values that depend only on weights.
pub fn optimize_module(module: &GraphModule) -> Result<GraphModule> {
    fold_weights(&optimize_graphs(module)?)
}

/// Optimises every graph of a module. Values that depend only on weights are computed on demand.
pub fn optimize_lazily(module: &GraphModule) -> Result<FoldedModule> {
    FoldedModule::of(&optimize_graphs(module)?)
}

/// Runs the pipeline on every graph of a module.
fn optimize_graphs(module: &GraphModule) -> Result<GraphModule> {
    let graphs = module.graphs.iter().map(optimize).collect::<Result<_>>()?;
    Ok(GraphModule {
        graphs,
        weights: module.weights.clone(),
        parameters: module.parameters.clone(),
        states: module.states.clone(),
    })
}
