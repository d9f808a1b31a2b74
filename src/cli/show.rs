//! `onionskin show`: the graph as text, its signature, weights and operators; what a device would do with it.

mod kernels;
mod plan;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use self::plan::Target;
use super::activity::Activity;
use super::import::import;
use super::inputs::Inputs;
use super::precision::Dtype;
use super::tune::Tuned;
use super::{Outcome, output};
use crate::Model;
use crate::dim::Bindings;
use crate::error::Result;
use crate::ir::{Graph, Module, Op, to_dot};
use crate::item::{Item, flatten};
use crate::kernel::plan::Plan;
use crate::pass;

/// Show a model: its graph as text.
#[derive(Args)]
pub(super) struct Show {
    /// A TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
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
    /// Weights and states are inputs, and what is left in states is returned.
    #[arg(long)]
    lift: bool,
    /// The graph as a GPU gets it: after all passes.
    #[arg(long)]
    optimized: bool,
    /// What a device does, step by step: kernels, the variant of each and why, what was fused and what not, memory. With
    /// inputs, sizes are numbers.
    #[arg(long)]
    plan: bool,
    /// Write the kernels of the plan to an empty or new folder.
    #[arg(long, value_name = "DIR")]
    wgsl: Option<PathBuf>,
    #[command(flatten)]
    dtype: Dtype,
    #[command(flatten)]
    tuned: Tuned,
    /// The device of the plan: auto, gpu, software, an adapter's index or a part of its name; webgpu for what any device
    /// can do, which is also taken where there is no adapter.
    #[arg(long, default_value = "auto")]
    device: String,
}

impl Show {
    pub(super) fn run(&self) -> Result<Outcome> {
        let activity = Activity::new(false);
        activity.step(format!("reading {}", self.model.display()));
        let mut module = import(&Model::open(&self.model)?, &self.inputs, &activity)?;
        if self.plan || self.wgsl.is_some() {
            activity.step("planning");
            return self.plans(&module, activity);
        }
        if self.lift {
            module = pass::lift(&module);
        }
        if self.optimized {
            activity.step("optimising the graph");
            module = pass::optimize_module(&module)?;
        }
        drop(activity);
        let all = !(self.signature || self.weights || self.operators || self.dot || self.code);
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
            if all {
                output::line(&graph.to_string());
            }
        }
        if self.weights {
            weights(&module);
        }
        Ok(Outcome::Yes)
    }

    /// Shows and writes the plans of all graphs.
    fn plans(&self, module: &Module, activity: Activity) -> Result<Outcome> {
        let target = Target::open(&self.device, self.dtype.precision()?, &self.tuned)?;
        let (mut plans, mut texts) = (Vec::<(String, Plan)>::new(), Vec::new());
        for graph in &module.graphs {
            let is_called = graph.name == "forward" || module.graphs.len() == 1;
            let sizes = match is_called && !self.inputs.is_empty() {
                true => Some(sizes(graph, &self.inputs.read_for(graph)?)?),
                false => None,
            };
            let plan = target.plan(graph, module, sizes.as_ref())?;
            if self.plan {
                texts.push(plan::text(&target, graph, &plan, sizes.as_ref())?);
            }
            plans.push((graph.name.clone(), plan));
        }
        if let Some(folder) = &self.wgsl {
            kernels::write(folder, &plans)?;
        }
        drop(activity);
        texts.iter().for_each(|text| output::line(text));
        Ok(Outcome::Yes)
    }
}

/// The sizes of a graph's symbols for the arguments of a call; those of states do not vary.
fn sizes(graph: &Graph, arguments: &[Item]) -> Result<Bindings> {
    let inputs = flatten(&graph.input_trees, arguments)?;
    let states = graph.inputs.iter().skip(inputs.len());
    let states = states.map(|id| graph.ty(*id).sizes(&Bindings::new()));
    let given = inputs.iter().map(|tensor| Ok(tensor.shape().to_vec()));
    let shapes: Vec<Vec<usize>> = given.chain(states).collect::<Result<_>>()?;
    graph.bind(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Calls of PyTorch's operators that a graph as imported makes, each body once.
pub(super) fn calls(graph: &Graph) -> usize {
    let own = |node: &&crate::ir::Node| matches!(node.op, Op::Call(_));
    let nested = graph.nodes.iter().flat_map(crate::ir::Node::bodies);
    graph.nodes.iter().filter(own).count() + nested.map(calls).sum::<usize>()
}

/// `forward(x: f32[B, 3]) -> f32[B, 10]`
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

fn weights(module: &Module) {
    let mut bytes = 0;
    for (name, tensor) in &module.weights {
        output::line(&format!("{:<24} {name}", tensor.tensor_type().to_string()));
        bytes += tensor.bytes().len();
    }
    output::line(&format!("{} weights, {bytes} bytes", module.weights.len()));
}
