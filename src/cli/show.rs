//! `onionskin show`: shows a model's summary, graph, signature, weights or operators, or its plan for a device.

mod kernels;
mod summary;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;

use self::summary::Summary;
use super::argument_errors::ArgumentErrors;
use super::backward::BackwardArgs;
use super::import::import;
use super::inputs::Inputs;
use super::model_file::ModelFileArgs;
use super::plan::{PlanArgs, PlanTarget, SizedPlan, graph_sizes, plan_json};
use super::progress_line::ProgressLine;
use super::run_limits::RunLimitOptions;
use super::{Outcome, output};
use crate::Model;
use crate::error::Result;
use crate::ir::{Graph, GraphModule, Op};
use crate::pass;
use crate::view::to_dot;

/// Show a model: inputs, outputs, parameters, arithmetic, memory, devices that run it, warnings.
#[derive(Args)]
pub(super) struct ShowCommand {
    /// A program of torch.export, a TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    file: ModelFileArgs,
    #[command(flatten)]
    inputs: Inputs,
    /// Open the tree of modules to this depth.
    #[arg(long, value_name = "N", default_value_t = 2)]
    depth: usize,
    /// Print the summary, or with --plan the plan, as a JSON object.
    #[arg(long, conflicts_with_all = ["graph", "signature", "weights", "operators", "dot", "code", "lift", "optimized", "formulas", "wgsl"])]
    json: bool,
    /// The graph as text only.
    #[arg(long)]
    graph: bool,
    /// The signature only.
    #[arg(long)]
    signature: bool,
    /// The weights only: name, type and size.
    #[arg(long)]
    weights: bool,
    /// The operators only: how often each occurs.
    #[arg(long)]
    operators: bool,
    /// The graph in Graphviz's language.
    #[arg(long)]
    dot: bool,
    /// The graph as a Rust function of `onionskin::trace`.
    #[arg(long)]
    code: bool,
    /// The graph with weights and states as inputs, and new states as outputs.
    #[arg(long)]
    lift: bool,
    /// The graph as the planner gets it: after all passes.
    #[arg(long)]
    optimized: bool,
    /// The plan for a device: time and memory, then each dispatch with its kernel, the reason for that kernel, the fused nodes
    /// and the reason why fusion ends. Sizes are those of the inputs, or of the example that the model was traced with.
    #[arg(long)]
    plan: bool,
    /// The plan for all sizes: bytes and arithmetic as formulas.
    #[arg(long, requires = "plan")]
    formulas: bool,
    /// Write the kernels of the plan to an empty or new folder.
    #[arg(long, value_name = "DIR")]
    wgsl: Option<PathBuf>,
    #[command(flatten)]
    backward: BackwardArgs,
    #[command(flatten)]
    target: PlanArgs,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

impl ShowCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let progress = ProgressLine::new(self.json);
        progress.step(format!("reading {}", self.model.display()));
        let model = self.check()?;
        if self.is_summary() {
            return self.summary(&model, progress);
        }
        let imported = import(&model, &self.inputs, &progress)?;
        if self.plan || self.wgsl.is_some() {
            progress.step("planning");
            return self.plans(imported, progress);
        }
        let module = self.backward.module(imported)?;
        let module = self.rewritten(module, &progress)?;
        drop(progress);
        self.print(&module)
    }

    /// Opens the model and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = errors.record(self.file.open(&self.model));
        self.inputs.check(&mut errors);
        self.target.check(&mut errors);
        errors.record_all(self.wgsl.iter().map(|folder| kernels::check(folder)));
        errors.finish(model)
    }

    /// True if no option selects a part of the output.
    fn is_summary(&self) -> bool {
        let is_part = self.signature || self.weights || self.operators || self.dot || self.code;
        let is_graph = self.graph || self.lift || self.optimized || self.backward.backward;
        !(is_part || is_graph || self.plan || self.wgsl.is_some())
    }

    fn summary(&self, model: &Model, progress: ProgressLine) -> Result<Outcome> {
        let imported = import(model, &self.inputs, &progress);
        let arguments = match self.inputs.is_empty() {
            true => None,
            false => Some(self.inputs.read(model)?),
        };
        progress.step("computing the needs of the model");
        let limits = self.file.limits()?;
        let sizes =
            |module: &GraphModule, graph: &Graph| graph_sizes(&self.inputs, &limits, module, graph);
        let summary = Summary::of(model, imported, arguments.as_deref(), &sizes)?;
        drop(progress);
        match self.json {
            true => output::line(&summary.json().to_string()),
            false => summary
                .lines(self.depth)
                .iter()
                .for_each(|line| output::line(line)),
        }
        Ok(Outcome::Success)
    }

    /// Applies `--lift` and `--optimized` to the module.
    fn rewritten(&self, mut module: GraphModule, progress: &ProgressLine) -> Result<GraphModule> {
        if self.lift {
            module = pass::lift(&module);
        }
        if self.optimized {
            progress.step("optimising the graph");
            module = pass::optimize_module(&module)?;
        }
        Ok(module)
    }

    fn print(&self, module: &GraphModule) -> Result<Outcome> {
        let is_part = self.signature || self.weights || self.operators || self.dot || self.code;
        for graph in &module.graphs {
            if self.signature {
                output::line(&signature(graph));
            }
            if self.operators {
                operators(graph);
            }
            if self.dot {
                output::line(&to_dot(graph));
            }
            if self.code {
                output::line(&graph.code()?);
            }
            if self.graph || !is_part {
                output::line(&graph.to_string());
            }
        }
        if self.weights {
            weights(module);
        }
        Ok(Outcome::Success)
    }

    /// Prints or writes the plans of all graphs of an imported module.
    fn plans(&self, imported: GraphModule, progress: ProgressLine) -> Result<Outcome> {
        let keeping = match self.plan && !self.json {
            true => self.backward.without_recomputation(&imported)?,
            false => None,
        };
        let module = &self.backward.module(imported)?;
        let target = self.target.open()?;
        let limits = self.file.limits()?;
        if self.json {
            let sizes = |graph: &Graph| graph_sizes(&self.inputs, &limits, module, graph);
            progress.step("measuring the device");
            let ceilings = target.ceilings()?;
            let document = plan_json(module, &target, &sizes, ceilings.as_ref())?;
            drop(progress);
            output::line(&document.to_string());
            return Ok(Outcome::Success);
        }
        let sizes = |graph: &Graph| match self.formulas {
            true => Ok(None),
            false => graph_sizes(&self.inputs, &limits, module, graph).map(Some),
        };
        let mut plans = target.plans(module, &sizes)?;
        if let Some(keeping) = &keeping {
            let keeping = target.plans(keeping, &sizes)?;
            for (plan, keeping) in plans.iter_mut().zip(keeping) {
                plan.compare_with(keeping);
            }
        }
        let texts = match self.plan {
            true => self.texts(&target, &plans, &progress)?,
            false => Vec::new(),
        };
        if let Some(folder) = &self.wgsl {
            kernels::write(folder, &plans)?;
        }
        drop(progress);
        texts.iter().for_each(|text| output::line(text));
        Ok(Outcome::Success)
    }

    fn texts(
        &self,
        target: &PlanTarget,
        plans: &[SizedPlan],
        progress: &ProgressLine,
    ) -> Result<Vec<String>> {
        let ceilings = match self.formulas {
            true => None,
            false => {
                progress.step("measuring the device");
                target.ceilings()?
            }
        };
        let texts = plans.iter().map(|plan| plan.text(ceilings.as_ref()));
        texts.collect()
    }
}

/// Counts the calls of PyTorch's operators in an imported graph, each body once. `None` for a graph with primitives, such as
/// a backward pass: how many operators PyTorch would call is not known.
pub(super) fn count_calls(graph: &Graph) -> Option<usize> {
    let count = |node: &crate::ir::Node| match &node.op {
        Op::Primitive(_) => None,
        Op::Call(_) => Some(1),
        Op::Region(_) => node.bodies().into_iter().map(count_calls).sum(),
    };
    graph.nodes.iter().map(count).sum()
}

/// The number of kernels that a plan dispatches, beside that of PyTorch's operators if it is known.
pub(super) fn dispatch_counts(
    dispatches: impl Display,
    kernels: usize,
    operators: Option<usize>,
) -> String {
    let beside = operators.map(|count| format!(", where PyTorch calls {count} operators"));
    format!(
        "{dispatches} of {kernels} kernels{}",
        beside.unwrap_or_default()
    )
}

/// Formats the signature of a graph, `forward(x: f32[B, 3]) -> f32[B, 10]`, with a line for each guard.
pub(super) fn signature(graph: &Graph) -> String {
    let name = |id| &graph.value(id).name;
    let inputs: Vec<String> = graph
        .inputs
        .iter()
        .map(|id| format!("{}: {}", name(*id), graph.ty(*id)))
        .collect();
    let outputs: Vec<String> = graph
        .outputs
        .iter()
        .map(|id| graph.ty(*id).to_string())
        .collect();
    let mut text = format!(
        "{}({}) -> {}",
        graph.name,
        inputs.join(", "),
        outputs.join(", ")
    );
    for guard in &graph.guards {
        text.push_str(&format!("\n  where {guard}"));
        if !guard.place.is_unknown() {
            text.push_str(&format!("  @ {}", guard.place));
        }
    }
    text
}

fn operators(graph: &Graph) {
    let mut counts = BTreeMap::<&str, usize>::new();
    for node in &graph.nodes {
        *counts.entry(node.op.name()).or_default() += 1;
    }
    for (name, count) in counts {
        output::line(&format!("{count:>6}  {name}"));
    }
}

fn weights(module: &GraphModule) {
    let mut bytes = 0;
    for (name, tensor) in &module.weights {
        output::line(&format!("{:<24} {name}", tensor.tensor_type().to_string()));
        bytes += tensor.byte_count();
    }
    output::line(&format!("{} weights, {bytes} bytes", module.weights.len()));
}
