//! Needs of a graph for given sizes: arithmetic, memory, and features that not every device has.

use serde::Serialize;

use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gpu::{self, Footprint, MemoryMap};
use crate::ir::{Graph, GraphModule, Node, Weights};
use crate::kernel::capabilities::Capabilities;
use crate::pass::{self, MultiplyAdds};
use crate::plan::{self, PlanOptions};

/// Binding size of a plan that is made only to compute its memory.
const UNLIMITED: u64 = 1 << 40;

/// Arithmetic, memory and device features that a call of a graph needs.
#[derive(Debug, Default, Serialize)]
pub(super) struct Needs {
    /// Multiply-adds of matrix products and convolutions.
    pub(super) multiply_adds: i64,
    /// True if the number of iterations of a loop is unknown, so that one iteration is counted.
    pub(super) has_unknown_loops: bool,
    /// Memory on a device within WebGPU's default limits; `None` if there is no plan for any device.
    pub(super) memory: Option<MemoryNeeds>,
    /// Devices that cannot run the graph, with reasons.
    #[serde(rename = "obstacles")]
    pub(super) incompatibilities: Vec<Incompatibility>,
}

/// Bytes that a call needs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MemoryNeeds {
    pub(super) weights: u64,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
    /// Largest total of temporaries that live at the same time.
    pub(super) activations: u64,
}

/// A reason why some devices cannot run a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Incompatibility {
    /// Description of the devices.
    pub(super) devices: &'static str,
    /// Reason.
    pub(super) reason: String,
    /// Remedy, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
}

impl Incompatibility {
    /// Returns an incompatibility for each error of a list.
    pub(super) fn of(devices: &'static str, error: &Error) -> Vec<Incompatibility> {
        let each = error.iter().map(|error| {
            let place = error.context().iter().map(|frame| format!(", at {frame}"));
            Incompatibility {
                devices,
                reason: format!("{}{}", error.message(), place.collect::<String>()),
                help: error.advice().map(str::to_string),
            }
        });
        each.collect()
    }
}

impl Needs {
    /// Computes the needs of a call for the sizes of the graph's symbols.
    pub(super) fn of(graph: &Graph, weights: &Weights, sizes: &Bindings) -> Result<Needs> {
        let lowered = pass::optimize_lazily(&GraphModule {
            graphs: vec![graph.with_sizes(sizes)],
            weights: weights.clone(),
            ..GraphModule::default()
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
        needs.incompatibilities.extend(double_precision(graph));
        let capabilities = Capabilities {
            float64: true,
            ..gpu::portable()
        };
        let footprint = footprint(graph, &capabilities, sizes);
        let footprint = footprint.or_else(|error| {
            let limits = Incompatibility::of("devices with WebGPU's default limits", &error);
            needs.incompatibilities.extend(limits);
            let capabilities = Capabilities {
                max_binding_size: UNLIMITED,
                max_buffer_size: UNLIMITED,
                ..capabilities.clone()
            };
            self::footprint(graph, &capabilities, sizes)
        });
        needs.memory = footprint.ok().map(|found| MemoryNeeds {
            weights: found.weights,
            inputs: found.inputs,
            outputs: found.outputs,
            activations: found.temporaries_live,
        });
        Ok(needs)
    }
}

fn footprint(graph: &Graph, capabilities: &Capabilities, sizes: &Bindings) -> Result<Footprint> {
    let plan = plan::plan_with_options(graph, capabilities, &PlanOptions::default())?;
    Ok(MemoryMap::of(&plan, capabilities, None, sizes)?.footprint)
}

/// Returns the incompatibility of a graph with double-precision values, which few devices support.
fn double_precision(graph: &Graph) -> Option<Incompatibility> {
    let (count, first) = doubles(graph)?;
    let help = "run on the host (--device cpu), or convert the model to f32 before it is traced";
    Some(Incompatibility {
        devices: "devices without double precision (most GPUs)",
        reason: format!("{count} values are f64; the first is {first}"),
        help: Some(help.to_string()),
    })
}

/// Returns the number of double-precision values in a graph and its bodies, and the first one.
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

/// Formats a value with its source line.
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
