//! Plans for a device: their dispatches, costs and memory as text and as JSON.

mod json;
mod memory;
mod steps;

use std::fmt::Write;

use clap::Args;

pub(super) use self::json::plan_json;
use self::steps::StepPrinter;
use super::argument_errors::ArgumentErrors;
use super::inputs::Inputs;
use super::precision::StorageDtype;
use super::show::{count_calls, dispatch_counts};
use crate::Device;
use crate::budget::Limits;
use crate::cli::output::wrapped;
use crate::cli::tune::TunedOption;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{self, Ceilings, MemoryMap};
use crate::ir::{Graph, GraphModule};
use crate::item::{Item, flatten_arguments};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::materialization::Precision;
use crate::kernel::plan::{Kernel, Plan};
use crate::pass::{self};
use crate::plan::{self, PlanOptions};
use crate::units::{amount, duration};

/// Name for `--device` that means any device within WebGPU's default limits.
const WEBGPU: &str = "webgpu";

/// Columns of a line.
const WIDTH: usize = 100;

/// `--device`, `--dtype` and the tuned kernel choices, for commands that show plans.
#[derive(Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    dtype: StorageDtype,
    #[command(flatten)]
    tuned: TunedOption,
    /// The device of the plan: auto, gpu, software, an adapter's index or a part of its name; webgpu for a plan within the
    /// default limits of WebGPU, which is also the default without an adapter.
    #[arg(long, default_value = "auto")]
    device: String,
}

impl PlanArgs {
    pub(super) fn check(&self, errors: &mut ArgumentErrors) {
        if self.device != WEBGPU {
            errors.check_device(&self.device, Some(&self.dtype));
        }
        errors.record(self.tuned.check());
    }

    pub(super) fn open(&self) -> Result<PlanTarget> {
        PlanTarget::open(&self.device, self.dtype.precision()?, &self.tuned)
    }
}

/// Device and options for which a plan is made.
pub(super) struct PlanTarget {
    name: String,
    capabilities: Capabilities,
    options: PlanOptions,
    device: Option<gpu::GpuDevice>,
}

impl PlanTarget {
    /// Opens a device by name, with its tuned kernel choices. `webgpu` and the host mean any device within WebGPU's default
    /// limits.
    fn open(name: &str, precision: Precision, tuned: &TunedOption) -> Result<PlanTarget> {
        let device = match name {
            WEBGPU => Device::Host,
            name => Device::open(name)?,
        };
        let options = PlanOptions {
            variant_overrides: tuned.variant_overrides(&device, precision)?,
            precision,
        };
        Ok(match device {
            Device::Host => PlanTarget {
                name: "any device, within WebGPU's default limits".to_string(),
                capabilities: gpu::portable(),
                options,
                device: None,
            },
            Device::Gpu(device) => PlanTarget {
                name: device.name().to_string(),
                capabilities: device.capabilities().clone(),
                options,
                device: Some(device),
            },
        })
    }

    /// Plans all graphs of a module: each for the sizes that `sizes` returns for it, or for all sizes if it returns `None`.
    ///
    /// # Errors
    /// A graph cannot be planned, or a buffer or binding is too large for the device.
    pub(super) fn plans<'a>(
        &'a self,
        module: &'a GraphModule,
        sizes: &dyn Fn(&Graph) -> Result<Option<Bindings>>,
    ) -> Result<Vec<SizedPlan<'a>>> {
        let plans = module.graphs.iter().map(|graph| {
            let sizes = sizes(graph)?;
            let plan = self.plan(graph, module, sizes.as_ref())?;
            SizedPlan::new(self, graph, plan, sizes)
        });
        plans.collect()
    }

    /// Plans a graph as a session does: for given sizes, or for all sizes.
    fn plan(&self, graph: &Graph, module: &GraphModule, sizes: Option<&Bindings>) -> Result<Plan> {
        let graph = match sizes {
            Some(sizes) => graph.with_sizes(sizes),
            None => graph.clone(),
        };
        let lowered = pass::optimize_lazily(&GraphModule {
            graphs: vec![graph],
            weights: module.weights.clone(),
            ..GraphModule::default()
        })?;
        let graph = lowered.graphs.first();
        let graph = graph.ok_or_else(|| Error::internal("the passes lost the graph"))?;
        plan::plan_with_options(graph, &self.capabilities, &self.options)
    }

    /// Measures the device's peak rates; `None` if no device was opened.
    pub(super) fn ceilings(&self) -> Result<Option<Ceilings>> {
        let device = self.device.as_ref();
        device.map(gpu::GpuDevice::ceilings).transpose()
    }
}

/// The plan of a graph with its sizes and memory map.
pub(super) struct SizedPlan<'a> {
    target: &'a PlanTarget,
    graph: &'a Graph,
    plan: Plan,
    /// `None` if sizes are shown as formulas.
    sizes: Option<Bindings>,
    map: Option<MemoryMap>,
    /// The plan without values that are computed again, if this one has some.
    keeping: Option<Box<SizedPlan<'a>>>,
}

/// Work of all steps of a plan, each counted once.
#[derive(Default)]
struct TotalWork {
    /// Arithmetic operations.
    operations: i64,
    /// Bytes read and written.
    bytes: i64,
    /// Least nanoseconds at the device's ceilings; 0 without them.
    min_nanoseconds: f64,
}

impl<'a> SizedPlan<'a> {
    /// Lays out memory for the sizes of the symbols, if they are known.
    ///
    /// # Errors
    /// A buffer or binding is too large for the device.
    fn new(
        target: &'a PlanTarget,
        graph: &'a Graph,
        plan: Plan,
        sizes: Option<Bindings>,
    ) -> Result<SizedPlan<'a>> {
        let map = |sizes| MemoryMap::of(&plan, &target.capabilities, target.device.as_ref(), sizes);
        Ok(SizedPlan {
            map: sizes.as_ref().map(map).transpose()?,
            target,
            graph,
            plan,
            sizes,
            keeping: None,
        })
    }

    /// Compares with the plan without values that are computed again.
    pub(super) fn compare_with(&mut self, keeping: SizedPlan<'a>) {
        self.keeping = Some(Box::new(keeping));
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Name of the planned graph.
    pub(super) fn name(&self) -> &str {
        &self.graph.name
    }

    /// Formats the plan as text.
    pub(super) fn text(&self, ceilings: Option<&Ceilings>) -> Result<String> {
        let mut text = format!("plan of {} for {}\n", self.name(), self.target.name);
        if let Some(sizes) = self.sizes.as_ref().filter(|sizes| !sizes.is_empty()) {
            let sizes = sizes.iter().map(|(name, size)| format!("{name} = {size}"));
            let _ = writeln!(text, "where {}", sizes.collect::<Vec<_>>().join(", "));
        }
        for guard in &self.plan.guards {
            let _ = writeln!(text, "holds for {guard}");
        }
        text += "\nsummary\n";
        for line in self.summary(ceilings)? {
            let _ = writeln!(text, "  {line}");
        }
        text += "\nsteps\n";
        let steps = StepPrinter::new(self);
        steps.block(0..self.plan.steps.len(), &self.plan.flows, 1, &mut text)?;
        text += "\nmemory\n";
        self.memory(&mut text);
        Ok(text)
    }

    fn summary(&self, ceilings: Option<&Ceilings>) -> Result<Vec<String>> {
        let Plan { steps, kernels, .. } = &self.plan;
        let mut lines = vec![format!(
            "dispatches   {}",
            dispatch_counts(steps.len(), kernels.len(), count_calls(self.graph))
        )];
        let (Some(sizes), Some(map)) = (&self.sizes, &self.map) else {
            lines.push(
                "sizes        symbolic with --formulas; without it they are the example's"
                    .to_string(),
            );
            return Ok(lines);
        };
        let total = self.total_work(sizes, ceilings)?;
        let once = match self.plan.flows.is_empty() {
            true => "",
            false => ", each step counted once",
        };
        lines.push(format!(
            "work         {} of arithmetic, {} read and written{once}",
            amount(total.operations as f64, "FLOP"),
            amount(total.bytes as f64, "B")
        ));
        lines.push(format!(
            "time         {}",
            time(total.min_nanoseconds, ceilings)
        ));
        lines.extend(memory::totals(&map.footprint));
        if let Some(keeping) = &self.keeping {
            lines.extend(self.cost_of_recomputation(keeping)?);
        }
        Ok(lines)
    }

    /// The cost of values that are computed again, and the memory that would be needed to keep them.
    fn cost_of_recomputation(&self, keeping: &SizedPlan) -> Result<Option<String>> {
        let (Some(sizes), Some(kept)) = (&self.sizes, &keeping.map) else {
            return Ok(None);
        };
        let operations = |plan: &SizedPlan| Ok(plan.total_work(sizes, None)?.operations as f64);
        let (all, once): (f64, f64) = (operations(self)?, operations(keeping)?);
        Ok(Some(format!(
            "recomputed   {} of arithmetic, {:.0} % more; temporaries would be {} without",
            amount(all - once, "FLOP"),
            100.0 * (all - once) / once.max(1.0),
            amount(kept.footprint.temporaries as f64, "B")
        )))
    }

    fn total_work(&self, sizes: &Bindings, ceilings: Option<&Ceilings>) -> Result<TotalWork> {
        let mut total = TotalWork::default();
        for step in &self.plan.steps {
            let operations = step.work.operations.eval(sizes)?;
            let bytes = step.work.bytes.eval(sizes)?;
            total.operations = total.operations.saturating_add(operations);
            total.bytes = total.bytes.saturating_add(bytes);
            total.min_nanoseconds += ceilings.map_or(0.0, |ceilings| {
                ceilings.min_nanoseconds(operations as f64, bytes as f64)
            });
        }
        Ok(total)
    }
}

/// Formats the least time of a run at the device's ceilings.
fn time(least: f64, ceilings: Option<&Ceilings>) -> String {
    match ceilings {
        Some(ceilings) => format!("at least {} at the measured {ceilings}", duration(least)),
        None => "unknown: no device was measured; name one with --device".to_string(),
    }
}

/// Returns the name of a kernel in listings, which is also the stem of its file's name: `03_dot_gelu`.
pub(super) fn kernel_name(index: usize, kernel: &Kernel) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let label: String = kernel.label.chars().map(plain).collect();
    format!("{:02}_{label}", index + 1)
}

/// Wraps a text into lines of [`WIDTH`] columns, with a label in front.
fn labelled(indent: usize, label: &str, text: &str) -> Vec<String> {
    wrapped(text, &format!("{:indent$}{label:<11}", ""), WIDTH)
}

/// Returns the sizes of a graph for the given inputs, or else those of its example.
pub(super) fn graph_sizes(
    inputs: &Inputs,
    limits: &Limits,
    module: &GraphModule,
    graph: &Graph,
) -> Result<Bindings> {
    // The inputs are those of the called graph; other graphs take other inputs.
    let is_called = graph.name == "forward" || module.graphs.len() == 1;
    match is_called && !inputs.is_empty() {
        true => bind(graph, &inputs.read_for_graph(graph, limits)?),
        false => Ok(graph.hints.clone()),
    }
}

/// Binds a graph's symbols to the sizes of the arguments. Sizes of states are constant.
fn bind(graph: &Graph, arguments: &[Item]) -> Result<Bindings> {
    let inputs = flatten_arguments(&graph.input_trees, arguments)?;
    let states = graph.inputs.iter().skip(inputs.len());
    let states = states.map(|id| graph.ty(*id).sizes(&Bindings::new()));
    let given = inputs.iter().map(|tensor| Ok(tensor.shape().to_vec()));
    let shapes: Vec<Vec<usize>> = given.chain(states).collect::<Result<_>>()?;
    graph.bind(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())
}
