//! `onionskin show --plan`: what a device would do, step by step, and where everything lies.

use std::fmt::Write;
use std::ops::Range;

use super::calls;
use crate::Device;
use crate::cli::output::amount;
use crate::cli::tune::Tuned;
use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gpu::{self, MemoryMap};
use crate::ir::{Graph, Module};
use crate::kernel::capabilities::{Capabilities, Storage};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{
    Flow, FlowKind, Kernel, Plan, Slot, SlotId, SlotKind, Trips, Workgroups,
};
use crate::kernel::stored::{Kept, Precision};
use crate::pass::{self, PlanOptions};
use crate::shape::TensorType;

/// What a plan is made for.
pub(super) struct Target {
    name: String,
    capabilities: Capabilities,
    options: PlanOptions,
    device: Option<gpu::Device>,
}

impl Target {
    /// A device by name, and what was measured on it; `webgpu`, and the host, stand for any device within WebGPU's default
    /// limits.
    pub(super) fn open(name: &str, precision: Precision, tuned: &Tuned) -> Result<Target> {
        let device = match name {
            "webgpu" => Device::Host,
            name => Device::open(name)?,
        };
        let options = PlanOptions {
            choices: tuned.choices(&device, precision)?,
            precision,
        };
        Ok(match device {
            Device::Host => Target {
                name: "any device, within WebGPU's default limits".to_string(),
                capabilities: gpu::portable(),
                options,
                device: None,
            },
            Device::Gpu(device) => Target {
                name: device.name().to_string(),
                capabilities: device.capabilities().clone(),
                options,
                device: Some(device),
            },
        })
    }

    /// The plan of a graph as a session makes it: for certain sizes, or for all.
    pub(super) fn plan(
        &self,
        graph: &Graph,
        module: &Module,
        sizes: Option<&Bindings>,
    ) -> Result<Plan> {
        let graph = match sizes {
            Some(sizes) => graph.with_sizes(sizes),
            None => graph.clone(),
        };
        let lowered = pass::optimize_lazily(&Module {
            graphs: vec![graph],
            weights: module.weights.clone(),
            states: Vec::new(),
        })?;
        let graph = lowered.graphs.first();
        let graph = graph.ok_or_else(|| Error::internal("the passes lost the graph"))?;
        pass::plan_by(graph, &self.capabilities, &self.options)
    }
}

/// A plan as text; sizes are numbers if those of the symbols are given, else formulas.
pub(super) fn text(
    target: &Target,
    graph: &Graph,
    plan: &Plan,
    sizes: Option<&Bindings>,
) -> Result<String> {
    let map = |sizes| MemoryMap::of(plan, &target.capabilities, target.device.as_ref(), sizes);
    let listing = Listing {
        target,
        plan,
        sizes,
        map: sizes.map(map).transpose()?,
    };
    let mut text = format!("plan of {} for {}\n", graph.name, target.name);
    if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
        let sizes = sizes.iter().map(|(name, size)| format!("{name} = {size}"));
        let _ = writeln!(text, "where {}", sizes.collect::<Vec<_>>().join(", "));
    }
    for guard in &plan.guards {
        let _ = writeln!(text, "holds for {guard}");
    }
    text += "\nsteps\n";
    listing.steps(0..plan.steps.len(), &plan.flows, 1, &mut text)?;
    text += "\nmemory\n";
    listing.memory(&mut text);
    text += "\ntotals\n";
    listing.totals(graph, &mut text)?;
    Ok(text)
}

/// The name of a kernel's file, and what steps call it by: `03_dot_gelu`.
pub(super) fn stem(index: usize, kernel: &Kernel) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let label: String = kernel.label.chars().map(plain).collect();
    format!("{:02}_{label}", index + 1)
}

struct Listing<'a> {
    target: &'a Target,
    plan: &'a Plan,
    sizes: Option<&'a Bindings>,
    map: Option<MemoryMap>,
}

impl Listing<'_> {
    fn steps(
        &self,
        steps: Range<usize>,
        flows: &[Flow],
        depth: usize,
        text: &mut String,
    ) -> Result<()> {
        let mut next = steps.start;
        for flow in flows {
            let inner = flow.steps();
            (next..inner.start).try_for_each(|step| self.step(step, depth, text))?;
            self.flow(flow, depth, text)?;
            next = inner.end;
        }
        (next..steps.end).try_for_each(|step| self.step(step, depth, text))
    }

    fn flow(&self, flow: &Flow, depth: usize, text: &mut String) -> Result<()> {
        let indent = "  ".repeat(depth);
        let name = |slot: &SlotId| self.plan.slots[slot.0].name.as_str();
        let heads: Vec<String> = match &flow.kind {
            FlowKind::If { condition, .. } => {
                vec![
                    format!("if {} is true", name(condition)),
                    "else".to_string(),
                ]
            }
            FlowKind::Loop {
                trips,
                first,
                again,
                ..
            } => {
                let trips = match trips {
                    Trips::Size(size) => size.to_string(),
                    Trips::Slot(slot) => name(slot).to_string(),
                };
                let conditions: Vec<&str> = first.iter().chain(again).map(name).collect();
                let conditions = match conditions.is_empty() {
                    true => String::new(),
                    false => format!(" while {} is true", conditions.join(", then ")),
                };
                vec![format!("repeat at most {trips} times{conditions}")]
            }
            FlowKind::Host {
                operands, results, ..
            } => {
                let list = |slots: &[SlotId]| slots.iter().map(name).collect::<Vec<_>>().join(", ");
                let line = format!(
                    "call the application: {} -> {}",
                    list(operands),
                    list(results)
                );
                let _ = writeln!(text, "{indent}{line}");
                Vec::new()
            }
        };
        for (head, block) in heads.iter().zip(flow.blocks()) {
            let _ = writeln!(text, "{indent}{head}");
            self.steps(block.steps.clone(), &block.flows, depth + 1, text)?;
        }
        Ok(())
    }

    fn step(&self, index: usize, depth: usize, text: &mut String) -> Result<()> {
        let step = &self.plan.steps[index];
        let indent = "  ".repeat(depth);
        let values = |written: bool| -> String {
            let slots = step.bindings.iter();
            let slots = slots.filter(|slot| step.work.writes.contains(slot) == written);
            slots
                .map(|slot| self.value(*slot))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let head = format!(
            "{:>3}  {}",
            index + 1,
            stem(step.kernel, &self.plan.kernels[step.kernel])
        );
        let _ = writeln!(
            text,
            "{indent}{head}  {} -> {}",
            values(false),
            values(true)
        );
        for line in self.details(index)? {
            let _ = writeln!(text, "{indent}     {line}");
        }
        Ok(())
    }

    fn details(&self, index: usize) -> Result<Vec<String>> {
        let step = &self.plan.steps[index];
        let mut lines = vec![self.workgroups(&step.workgroups)?];
        if let Some(choice) = &step.choice {
            lines.push(choice.to_string());
        }
        let mut computed = format!("computes {}", step.nodes.join(", "));
        if !step.work.through.is_empty() {
            let _ = write!(
                computed,
                ", and on the way {}",
                step.work.through.join(", ")
            );
        }
        lines.extend(Some(computed).filter(|_| !step.nodes.is_empty()));
        lines.push(self.work(index)?);
        for slot in &step.work.writes {
            let name = &self.plan.slots[slot.0].name;
            let stored = self.plan.stored.iter().find(|stored| stored.value == *name);
            lines.extend(stored.map(|stored| format!("ends here: {}", stored.reason)));
            let kept = stored.and_then(|stored| stored.kept);
            // What is handed on is told by the reason.
            let kept = kept.filter(|kept| *kept != Kept::Handed);
            lines.extend(kept.map(|kept| format!("stays f32: {kept}")));
        }
        lines.extend(Some(step.place.to_string()).filter(|_| !step.place.is_unknown()));
        Ok(lines)
    }

    fn workgroups(&self, workgroups: &Workgroups) -> Result<String> {
        let formula = match (workgroups, self.sizes) {
            (Workgroups::Linear(count), None) => count.to_string(),
            (Workgroups::Grid(grid), None) => grid.each_ref().map(ToString::to_string).join(" × "),
            (workgroups, Some(sizes)) => {
                let grid = workgroups.eval(sizes, self.target.capabilities.max_workgroups)?;
                let length = grid
                    .iter()
                    .rposition(|count| *count != 1)
                    .map_or(1, |last| last + 1);
                let grid: Vec<String> = grid.iter().take(length).map(ToString::to_string).collect();
                grid.join(" × ")
            }
        };
        Ok(format!("workgroups {formula}"))
    }

    /// `7.1 MFLOP, 1.2 MB`
    fn work(&self, index: usize) -> Result<String> {
        let work = &self.plan.steps[index].work;
        Ok(match self.sizes {
            Some(sizes) => format!(
                "{}, {}",
                amount(work.operations.eval(sizes)? as f64, "FLOP"),
                amount(work.bytes.eval(sizes)? as f64, "B"),
            ),
            None => format!("{} FLOP, {} B", work.operations, work.bytes),
        })
    }

    /// `relu f32[1, 64, 56, 56] as f16 by four along axis 1`: how it lies only where that is not as its type says.
    fn value(&self, slot: SlotId) -> String {
        let Slot {
            name,
            dtype,
            storage,
            layout,
            ..
        } = &self.plan.slots[slot.0];
        let stored = match (dtype, storage, layout) {
            (DType::F32, Storage::F16 | Storage::F16x2, Layout::Panels(_)) => " as f16".to_string(),
            (DType::F32, Storage::F16 | Storage::F16x2, _) => format!(" as {storage}"),
            _ => String::new(),
        };
        format!("{name} {}{stored}{layout}", self.ty(slot))
    }

    fn ty(&self, slot: SlotId) -> TensorType {
        let Slot { dtype, shape, .. } = &self.plan.slots[slot.0];
        match &self.map {
            Some(map) => TensorType::new(*dtype, map.slots[slot.0].shape.iter().copied()),
            None => TensorType {
                dtype: *dtype,
                shape: shape.clone(),
            },
        }
    }

    fn memory(&self, text: &mut String) {
        type Belongs = fn(&SlotKind) -> bool;
        let kinds: [(&str, Belongs); 4] = [
            ("inputs, a buffer each", |kind| {
                matches!(kind, SlotKind::Input(_))
            }),
            ("weights, a buffer each", |kind| {
                matches!(kind, SlotKind::Weight(_))
            }),
            ("temporaries, which share memory", |kind| {
                matches!(kind, SlotKind::Temporary { .. } | SlotKind::Part { .. })
            }),
            ("outputs, a buffer each", |kind| {
                matches!(kind, SlotKind::Output)
            }),
        ];
        for (title, belongs) in kinds {
            let slots = (0..self.plan.slots.len()).map(SlotId);
            let slots: Vec<SlotId> = slots
                .filter(|slot| belongs(&self.plan.slots[slot.0].kind))
                .collect();
            if !slots.is_empty() {
                let _ = writeln!(text, "  {title}");
            }
            for slot in slots {
                let _ = writeln!(text, "    {}", self.place(slot));
            }
        }
        if !self.plan.tied.is_empty() {
            let _ = writeln!(text, "  weights of products that are read otherwise, too");
        }
        for tied in &self.plan.tied {
            let _ = writeln!(text, "    {tied}");
        }
    }

    /// Bytes, place, lifetime, name and type of a slot.
    fn place(&self, slot: SlotId) -> String {
        let Slot {
            shape,
            storage,
            layout,
            kind,
            ..
        } = &self.plan.slots[slot.0];
        let lives = match kind {
            SlotKind::Temporary { first, last } => {
                format!("steps {:>3} to {:>3}  ", first + 1, last + 1)
            }
            SlotKind::Part { whole, .. } => {
                format!("within {}  ", self.plan.slots[whole.0].name)
            }
            _ => String::new(),
        };
        let Some(placed) = self.map.as_ref().map(|map| &map.slots[slot.0]) else {
            let room = layout.extents(shape);
            let room = room.unwrap_or_else(|| shape.clone());
            let bytes = &Dim::product(&room) * (storage.size() as i64);
            return format!("{lives}{}: {bytes} bytes", self.value(slot));
        };
        let at = match kind {
            SlotKind::Temporary { .. } | SlotKind::Part { .. } => {
                format!("at {}:{:<10} ", placed.buffer, placed.offset)
            }
            _ => String::new(),
        };
        format!(
            "{:>11} bytes  {at}{lives}{}",
            placed.bytes,
            self.value(slot)
        )
    }

    fn totals(&self, graph: &Graph, text: &mut String) -> Result<()> {
        let Plan { steps, kernels, .. } = self.plan;
        let _ = writeln!(
            text,
            "  {} dispatches of {} kernels, where PyTorch calls {} operators",
            steps.len(),
            kernels.len(),
            calls(graph)
        );
        let (Some(sizes), Some(map)) = (self.sizes, &self.map) else {
            return Ok(());
        };
        let sum = |work: &dyn Fn(usize) -> Result<i64>| -> Result<f64> {
            (0..steps.len()).try_fold(0.0, |sum, step| Ok(sum + work(step)? as f64))
        };
        let operations = sum(&|step| steps[step].work.operations.eval(sizes))?;
        let bytes = sum(&|step| steps[step].work.bytes.eval(sizes))?;
        let _ = writeln!(
            text,
            "  {} of arithmetic, {} moved between memory and kernels, each step once",
            amount(operations, "FLOP"),
            amount(bytes, "B")
        );
        let found = &map.footprint;
        let megabytes = |bytes: u64| amount(bytes as f64, "B");
        let _ = writeln!(
            text,
            "  {} of weights, {} of inputs, {} of outputs",
            megabytes(found.weights),
            megabytes(found.inputs),
            megabytes(found.outputs)
        );
        let _ = writeln!(
            text,
            "  {} of temporaries: {:.2} times the {} that live at once; without sharing {}",
            megabytes(found.temporaries),
            found.temporaries as f64 / found.temporaries_live.max(1) as f64,
            megabytes(found.temporaries_live),
            megabytes(found.temporaries_unshared)
        );
        Ok(())
    }
}
