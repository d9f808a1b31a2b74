//! What a graph needs of a device for certain sizes: arithmetic, memory, and what not every device has.

use serde::Serialize;

use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gpu::{self, Footprint, MemoryMap};
use crate::ir::{Graph, Module, Node, Weights};
use crate::kernel::capabilities::Capabilities;
use crate::pass::{self, MultiplyAdds, PlanOptions};

/// Bytes that a binding may have where a plan is made to see what memory it takes.
const UNLIMITED: u64 = 1 << 40;

/// What a call of a graph takes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Needs {
    /// Multiply-adds of products and convolutions.
    pub(super) multiply_adds: i64,
    /// True if a loop counts one round only.
    pub(super) has_unknown_loops: bool,
    /// Bytes on a device within WebGPU's default limits; none if there is no plan for any device.
    pub(super) memory: Option<Memory>,
    /// Devices that cannot run the graph, and why.
    pub(super) obstacles: Vec<Obstacle>,
}

/// Bytes of a call on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Memory {
    pub(super) weights: u64,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
    /// Values between kernels that live at the same time, at most.
    pub(super) activations: u64,
}

/// Why devices cannot run a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Obstacle {
    /// Which devices.
    pub(super) devices: &'static str,
    /// Why.
    pub(super) reason: String,
    /// What to do, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
}

impl Obstacle {
    /// Every fault of an error.
    pub(super) fn of(devices: &'static str, error: &Error) -> Vec<Obstacle> {
        let each = error.iter().map(|error| {
            let place = error.trail().iter().map(|frame| format!(", at {frame}"));
            Obstacle {
                devices,
                reason: format!("{}{}", error.message(), place.collect::<String>()),
                help: error.advice().map(str::to_string),
            }
        });
        each.collect()
    }
}

impl Needs {
    /// What a call takes for sizes of the graph's symbols.
    pub(super) fn of(graph: &Graph, weights: &Weights, sizes: &Bindings) -> Result<Needs> {
        let lowered = pass::optimize_lazily(&Module {
            graphs: vec![graph.with_sizes(sizes)],
            weights: weights.clone(),
            states: Vec::new(),
        })?;
        let graph = lowered.graphs.first();
        let graph = graph.ok_or_else(|| Error::internal("the passes lost the graph"))?;
        let MultiplyAdds {
            count,
            has_unknown_loops,
        } = pass::multiply_adds(graph);
        let mut needs = Needs {
            multiply_adds: count.eval(sizes)?,
            has_unknown_loops,
            ..Needs::default()
        };
        needs.obstacles.extend(double_precision(graph));
        let capabilities = Capabilities {
            float64: true,
            ..gpu::portable()
        };
        let footprint = footprint(graph, &capabilities, sizes);
        let footprint = footprint.or_else(|error| {
            let limits = Obstacle::of("devices with WebGPU's default limits", &error);
            needs.obstacles.extend(limits);
            let capabilities = Capabilities {
                max_binding_size: UNLIMITED,
                max_buffer_size: UNLIMITED,
                ..capabilities.clone()
            };
            self::footprint(graph, &capabilities, sizes)
        });
        needs.memory = footprint.ok().map(|found| Memory {
            weights: found.weights,
            inputs: found.inputs,
            outputs: found.outputs,
            activations: found.temporaries_live,
        });
        Ok(needs)
    }
}

fn footprint(graph: &Graph, capabilities: &Capabilities, sizes: &Bindings) -> Result<Footprint> {
    let plan = pass::plan_by(graph, capabilities, &PlanOptions::default())?;
    Ok(MemoryMap::of(&plan, capabilities, None, sizes)?.footprint)
}

/// Values of double precision, which few devices have.
fn double_precision(graph: &Graph) -> Option<Obstacle> {
    let (count, first) = doubles(graph)?;
    let help = "run on the host (--device cpu), or convert the model to f32 before it is traced";
    Some(Obstacle {
        devices: "devices without double precision (most GPUs)",
        reason: format!("{count} values are f64; the first is {first}"),
        help: Some(help.to_string()),
    })
}

/// How many values of a graph are of double precision, and which is the first.
fn doubles(graph: &Graph) -> Option<(usize, String)> {
    let is_double = |info: &&crate::ir::ValueInfo| info.ty.dtype == DType::F64;
    let own = graph.values.iter().filter(is_double).count();
    let first = graph.values.iter().find(is_double);
    let first = first.map(|info| named(graph, &info.name));
    let bodies = graph.nodes.iter().flat_map(Node::bodies);
    let nested: Vec<(usize, String)> = bodies.filter_map(doubles).collect();
    let count = own + nested.iter().map(|(count, _)| count).sum::<usize>();
    let first = first.or_else(|| nested.into_iter().map(|(_, first)| first).next());
    first.map(|first| (count, first))
}

/// A value with its line.
fn named(graph: &Graph, name: &str) -> String {
    let defines = |node: &&Node| {
        let mut results = node.results.iter();
        results.any(|id| graph.value(*id).name == name)
    };
    match graph.nodes.iter().find(defines) {
        Some(node) if !node.place.is_unknown() => format!("{name}, at {}", node.place),
        _ => name.to_string(),
    }
}
