//! The first value that a device computes otherwise than the oracle.

use crate::compare::Tolerance;
use crate::error::Result;
use crate::gpu::{self, Input, Keep, Program, ProgramOptions, Run};
use crate::interp::{self, Event, Part, Within, body_sizes};
use crate::ir::{Graph, Node, Weights};
use crate::item::Item;
use crate::kernel::stored::Precision;
use crate::pass::{self, PlanOptions};
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, Site};

use super::{CompileOptions, Device, Model};

/// What is said of a region whose bodies are all right.
const BODIES_AGREE: &str = "on its own, every body that ran computes what the oracle does: differences that are allowed in \
                            a round add up, or control flow itself is wrong";

/// Runs a call on a device, compiled as `options` say but with all values kept, and the oracle beside it, and finds the first value that differs.
/// If that is made by a region, its bodies are run on their own, on what the oracle gave them, round by round, and the first
/// value in them that differs is named. `None` if all that both have agree; values that were fused into kernels exist on the
/// oracle only.
///
/// # Errors
/// The call fails on either side.
pub fn first_divergence(
    model: &Model,
    device: &Device,
    options: &CompileOptions,
    arguments: &[Item],
    tolerance: Tolerance,
) -> Result<Option<Divergence>> {
    let options = CompileOptions {
        keep: Keep::Everything,
        ..options.clone()
    };
    let (variant, inputs) = model.compile(device, &options)?.prepare(arguments)?;
    let Some(program) = &variant.program else {
        return Ok(None);
    };
    let hosted: Vec<Input> = inputs.iter().map(Input::Host).collect();
    let run = program.launch_with(&variant.bind(&inputs)?, &hosted)?;
    let weights = variant.weights()?;
    let search = Search {
        device: program.device(),
        precision: options.precision,
        weights: weights.as_ref(),
        tolerance,
    };
    search.first(&variant.lowered, &inputs, &run)
}

struct Search<'a> {
    device: &'a gpu::Device,
    precision: Precision,
    weights: &'a Weights,
    tolerance: Tolerance,
}

/// A body that ran, and what it was given.
type Entered = (Part, Vec<Tensor>);

impl Search<'_> {
    /// The first value of a graph that a run on the device has otherwise than the oracle.
    fn first(&self, graph: &Graph, inputs: &[Tensor], run: &Run) -> Result<Option<Divergence>> {
        let (mut found, mut entered) = (None, Vec::new());
        interp::run_watched(graph, self.weights, inputs, &mut |event| {
            match event.within {
                _ if found.is_some() => {}
                Some(within) => enter(&mut entered, within),
                None => match self.compare(event, run)? {
                    None => entered.clear(),
                    wrong => found = wrong,
                },
            }
            Ok(())
        })?;
        let Some(found) = found else { return Ok(None) };
        let mut nodes = graph.nodes.iter();
        let makes = |node: &&Node| {
            let mut results = node.results.iter();
            results.any(|id| graph.value(*id).name == found.site.value)
        };
        match nodes.find(makes) {
            Some(node) if !entered.is_empty() => {
                let inner = self.inside(graph, node, &entered)?;
                Ok(Some(inner.unwrap_or_else(|| found.noted(BODIES_AGREE))))
            }
            _ => Ok(Some(found)),
        }
    }

    /// The first value that differs in the bodies of a region, each run on its own.
    fn inside(
        &self,
        graph: &Graph,
        region: &Node,
        entered: &[Entered],
    ) -> Result<Option<Divergence>> {
        let mut compiled = None;
        for (part, inputs) in entered {
            let Some(body) = part.body_of(region) else {
                continue;
            };
            let program = match compiled.take() {
                Some(program) => program,
                None => self.compile(body)?,
            };
            let hosted: Vec<Input> = inputs.iter().map(Input::Host).collect();
            let run = program.launch_with(&body_sizes(body, inputs), &hosted)?;
            if let Some(found) = self.first(body, inputs, &run)? {
                return Ok(Some(found.through(&Within {
                    outer: None,
                    graph,
                    region,
                    part: *part,
                    inputs,
                })));
            }
            // All that ran of one region is the same body: a branch, or rounds.
            compiled = Some(program);
        }
        Ok(None)
    }

    fn compile(&self, body: &Graph) -> Result<Program> {
        let wanted = PlanOptions {
            precision: self.precision,
            ..PlanOptions::default()
        };
        let plan = pass::plan_by(body, self.device.capabilities(), &wanted)?;
        let options = ProgramOptions {
            keep: Keep::Everything,
            ..ProgramOptions::default()
        };
        Program::new(self.device, plan, self.weights, options)
    }

    /// The first result of a node that is in memory of its own and differs from the oracle's.
    fn compare(&self, event: &Event, run: &Run) -> Result<Option<Divergence>> {
        for (id, expected) in event.node.results.iter().zip(event.results) {
            let name = &event.graph.value(*id).name;
            if run.has_slot(name) {
                let site = Site::of(event, *id);
                let found = Divergence::between(site, &run.slot(name)?, expected, self.tolerance);
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }
}

/// Keeps what the body of an outermost region was given, once for each body and round.
fn enter(entered: &mut Vec<Entered>, within: &Within) {
    let is_known = entered.last().is_some_and(|(part, _)| *part == within.part);
    if within.outer.is_none() && !is_known {
        entered.push((within.part, within.inputs.to_vec()));
    }
}
