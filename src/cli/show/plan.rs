//! `onionskin show --plan`: shows the dispatches, costs and memory of a plan for a device.

mod memory;
mod steps;

use std::fmt::Write;

use self::steps::StepPrinter;
use super::count_calls;
use crate::Device;
use crate::cli::output::{amount, wrapped};
use crate::cli::tune::TunedOption;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{self, Ceilings, MemoryMap};
use crate::ir::{Graph, GraphModule};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::materialization::Precision;
use crate::kernel::plan::{Kernel, Plan};
use crate::pass::{self};
use crate::plan::{self, PlanOptions};

/// Name for `--device` that means any device within WebGPU's default limits.
pub(super) const WEBGPU: &str = "webgpu";

/// Columns of a line.
const WIDTH: usize = 100;

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
    pub(super) fn open(
        name: &str,
        precision: Precision,
        tuned: &TunedOption,
    ) -> Result<PlanTarget> {
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

    /// Plans a graph as a session does: for given sizes, or for all sizes.
    pub(super) fn plan(
        &self,
        graph: &Graph,
        module: &GraphModule,
        sizes: Option<&Bindings>,
    ) -> Result<Plan> {
        let graph = match sizes {
            Some(sizes) => graph.with_sizes(sizes),
            None => graph.clone(),
        };
        let lowered = pass::optimize_lazily(&GraphModule {
            graphs: vec![graph],
            weights: module.weights.clone(),
            states: Vec::new(),
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

/// A plan with its sizes and memory map.
pub(super) struct SizedPlan<'a> {
    target: &'a PlanTarget,
    plan: &'a Plan,
    /// `None` if sizes are shown as formulas.
    sizes: Option<&'a Bindings>,
    map: Option<MemoryMap>,
}

impl<'a> SizedPlan<'a> {
    /// Lays out memory for the sizes of the symbols, if they are known.
    ///
    /// # Errors
    /// A buffer or binding is too large for the device.
    pub(super) fn new(
        target: &'a PlanTarget,
        plan: &'a Plan,
        sizes: Option<&'a Bindings>,
    ) -> Result<SizedPlan<'a>> {
        let map = |sizes| MemoryMap::of(plan, &target.capabilities, target.device.as_ref(), sizes);
        Ok(SizedPlan {
            target,
            plan,
            sizes,
            map: sizes.map(map).transpose()?,
        })
    }

    pub(super) fn plan(&self) -> &Plan {
        self.plan
    }

    /// Formats the plan as text.
    pub(super) fn text(&self, graph: &Graph, ceilings: Option<&Ceilings>) -> Result<String> {
        let mut text = format!("plan of {} for {}\n", graph.name, self.target.name);
        if let Some(sizes) = self.sizes.filter(|sizes| !sizes.is_empty()) {
            let sizes = sizes.iter().map(|(name, size)| format!("{name} = {size}"));
            let _ = writeln!(text, "where {}", sizes.collect::<Vec<_>>().join(", "));
        }
        for guard in &self.plan.guards {
            let _ = writeln!(text, "holds for {guard}");
        }
        text += "\nsummary\n";
        for line in self.summary(graph, ceilings)? {
            let _ = writeln!(text, "  {line}");
        }
        text += "\nsteps\n";
        let steps = StepPrinter::new(self);
        steps.block(0..self.plan.steps.len(), &self.plan.flows, 1, &mut text)?;
        text += "\nmemory\n";
        self.memory(&mut text);
        Ok(text)
    }

    fn summary(&self, graph: &Graph, ceilings: Option<&Ceilings>) -> Result<Vec<String>> {
        let Plan { steps, kernels, .. } = self.plan;
        let mut lines = vec![format!(
            "dispatches   {} of {} kernels, where PyTorch calls {} operators",
            steps.len(),
            kernels.len(),
            count_calls(graph)
        )];
        let (Some(sizes), Some(map)) = (self.sizes, &self.map) else {
            lines.push(
                "sizes        symbolic with --formulas; without it they are the example's"
                    .to_string(),
            );
            return Ok(lines);
        };
        let (mut operations, mut bytes, mut least) = (0.0, 0.0, 0.0);
        for step in steps {
            let work = (
                step.work.operations.eval(sizes)?,
                step.work.bytes.eval(sizes)?,
            );
            let (own, moved) = (work.0 as f64, work.1 as f64);
            (operations, bytes) = (operations + own, bytes + moved);
            least += ceilings.map_or(0.0, |ceilings| ceilings.min_nanoseconds(own, moved));
        }
        let once = match self.plan.flows.is_empty() {
            true => "",
            false => ", each step counted once",
        };
        lines.push(format!(
            "work         {} of arithmetic, {} read and written{once}",
            amount(operations, "FLOP"),
            amount(bytes, "B")
        ));
        lines.push(format!("time         {}", time(least, ceilings)));
        lines.extend(memory::totals(&map.footprint));
        Ok(lines)
    }
}

/// Formats the least time of a run at the device's ceilings.
fn time(least: f64, ceilings: Option<&Ceilings>) -> String {
    match ceilings {
        Some(ceilings) => format!("at least {} at the measured {ceilings}", duration(least)),
        None => "unknown: no device was measured; name one with --device".to_string(),
    }
}

/// Formats nanoseconds in ns, µs or ms.
fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        few if few < 1e3 => format!("{few:.0} ns"),
        some if some < 1e6 => format!("{:.1} µs", some / 1e3),
        many => format!("{:.1} ms", many / 1e6),
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
