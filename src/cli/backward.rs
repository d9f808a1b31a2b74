//! Options for a backward pass: `--backward`, `--loss` and `--recompute`.

use clap::Args;

use crate::Model;
use crate::error::Result;
use crate::grad::{GradientOptions, Loss};
use crate::ir::GraphModule;
use crate::model::{BackwardOptions, with_parameter_gradients};

/// `--backward`, for commands that measure or show a model.
#[derive(Args)]
pub(super) struct BackwardArgs {
    /// Also compute the gradients of all parameters.
    #[arg(long)]
    pub(super) backward: bool,
    #[command(flatten)]
    options: BackwardOptionArgs,
}

/// `--loss` and `--recompute`
#[derive(Args)]
pub(super) struct BackwardOptionArgs {
    /// The number whose gradients are computed: the sum or mean of all outputs of floats, or one output; by default the sum
    /// of the only one.
    #[arg(long, value_name = "sum|mean|output:NAME", requires = "backward")]
    loss: Option<Loss>,
    /// Compute the values of modules again in the backward pass instead of keeping them, as torch.utils.checkpoint does: `layers.*`.
    /// `*` stands for any text. May be repeated.
    #[arg(long, value_name = "MODULES", requires = "backward")]
    recompute: Vec<String>,
}

impl BackwardOptionArgs {
    pub(super) fn options(&self) -> BackwardOptions {
        BackwardOptions {
            loss: self.loss.clone(),
            gradient: GradientOptions {
                recompute: self.recompute.clone(),
            },
        }
    }
}

impl BackwardArgs {
    /// The model, with a backward pass of `forward` if it is asked for.
    pub(super) fn model(&self, model: Model) -> Result<Model> {
        match self.backward {
            true => model.with_backward("forward", &self.options.options()),
            false => Ok(model),
        }
    }

    /// The module, with a backward pass of its first graph if it is asked for.
    pub(super) fn module(&self, module: GraphModule) -> Result<GraphModule> {
        match self.backward {
            true => of_first_graph(module, &self.options.options()),
            false => Ok(module),
        }
    }

    /// The module with the backward pass that computes nothing again, if this one computes something again.
    pub(super) fn without_recomputation(
        &self,
        module: &GraphModule,
    ) -> Result<Option<GraphModule>> {
        let mut options = self.options.options();
        if options.gradient.recompute.is_empty() {
            return Ok(None);
        }
        options.gradient.recompute.clear();
        of_first_graph(module.clone(), &options).map(Some)
    }
}

fn of_first_graph(module: GraphModule, options: &BackwardOptions) -> Result<GraphModule> {
    let first = module.graphs.first();
    let name = first.map_or_else(String::new, |graph| graph.name.clone());
    with_parameter_gradients(module, &name, options)
}
