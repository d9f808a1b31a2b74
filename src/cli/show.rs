//! `onionskin show`: the graph as text, its signature, weights and operators.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::activity::Activity;
use super::import::import;
use super::inputs::Inputs;
use super::{Outcome, output};
use crate::error::Result;
use crate::ir::{Graph, Module, to_dot};
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
}

impl Show {
    pub(super) fn run(&self) -> Result<Outcome> {
        let activity = Activity::new(false);
        let mut module = import(&self.model, &self.inputs, &activity)?;
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
