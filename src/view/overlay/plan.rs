//! Fused kernels and memory, from `onionskin show --plan --json`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::values::{StepPlace, ValueIndex};
use super::{Mark, Overlay, OverlayFile, Scale, other_model};
use crate::error::{Error, Result};
use crate::units::amount;
use crate::view::hierarchy::Hierarchy;

#[derive(Deserialize)]
struct PlanDocument {
    device: String,
    graphs: Vec<PlannedGraph>,
}

#[derive(Deserialize)]
struct PlannedGraph {
    graph: String,
    kernels: Vec<PlannedKernel>,
    steps: Vec<PlannedStep>,
    slots: Vec<PlannedSlot>,
}

#[derive(Deserialize)]
struct PlannedKernel {
    name: String,
    wgsl: String,
}

#[derive(Deserialize)]
struct PlannedStep {
    kernel: usize,
    #[serde(flatten)]
    place: StepPlace,
    workgroups: Vec<u64>,
    flop: f64,
    bytes: f64,
    writes: Vec<usize>,
    reasons: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct PlannedSlot {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    kind: String,
    bytes: u64,
    buffer: Option<u64>,
    offset: Option<u64>,
    first: Option<usize>,
    last: Option<usize>,
}

/// The overlays of kernels and of memory. Kernels, steps and the memory over the steps become fields of the page's data.
pub(super) fn overlays(
    file: &OverlayFile,
    hierarchy: &Hierarchy,
    index: &ValueIndex,
    data: &mut Json,
) -> Result<Vec<Overlay>> {
    let document: PlanDocument = file.fields()?;
    check_kernels(file, &document)?;
    let overlay = |id, title, scale, note: &str, legend: [&str; 2]| Overlay {
        id,
        title,
        scale,
        note: format!("{note}, {}", file.origin(&document.device)),
        legend: legend.map(str::to_string),
        marks: Default::default(),
        details: Default::default(),
    };
    let mut kernels = overlay(
        "kernels",
        "Kernels",
        Scale::Kernel,
        "operators of one colour are computed by one kernel",
        ["", ""],
    );
    let mut memory = overlay(
        "memory",
        "Memory",
        Scale::Heat,
        "bytes of stored values",
        ["few bytes", "most"],
    );
    let mut collected = PlanData::default();
    let most = document
        .graphs
        .iter()
        .flat_map(|graph| &graph.slots)
        .map(|slot| slot.bytes);
    let most = most.max().unwrap_or(0);
    for graph in &document.graphs {
        graph.add(index, &mut kernels, &mut memory, most, &mut collected);
    }
    let has_steps = document.graphs.iter().any(|graph| !graph.steps.is_empty());
    // A plan without a file is of this model, even if passes have named all of its values anew.
    if kernels.marks.is_empty() && has_steps && !file.name.is_empty() {
        return Err(other_model(file));
    }
    mark_containers(hierarchy, &collected, &mut kernels);
    data["kernels"] = collected.kernels.into();
    data["steps"] = collected.steps.into();
    data["memory"] = json!(collected.live);
    Ok(vec![kernels, memory])
}

/// Checks that every step has a kernel in the document.
fn check_kernels(file: &OverlayFile, document: &PlanDocument) -> Result<()> {
    for graph in &document.graphs {
        let count = graph.kernels.len();
        if let Some(step) = graph.steps.iter().find(|step| step.kernel >= count) {
            let (name, kernel) = (file.shown_name(), step.kernel);
            let message =
                format!("{name}: a step has kernel {kernel}, but there are {count} kernels");
            let help = "write it again with onionskin show --plan --json";
            return Err(Error::format(message).help(help));
        }
    }
    Ok(())
}

/// Fields of the page's data.
#[derive(Default)]
struct PlanData {
    kernels: Vec<Json>,
    steps: Vec<Json>,
    /// Operators of each step.
    boxes: Vec<Vec<usize>>,
    /// Bytes of the temporaries that are live in each step.
    live: Vec<u64>,
}

impl PlannedGraph {
    fn add(
        &self,
        index: &ValueIndex,
        kernels: &mut Overlay,
        memory: &mut Overlay,
        most: u64,
        data: &mut PlanData,
    ) {
        let first_kernel = data.kernels.len();
        let listed = self.kernels.iter();
        data.kernels
            .extend(listed.map(|kernel| json!({"name": kernel.name, "wgsl": kernel.wgsl})));
        let places: Vec<&StepPlace> = self.steps.iter().map(|step| &step.place).collect();
        let operators = index.steps(&self.graph, &places);
        for (step, boxes) in self.steps.iter().zip(operators) {
            let number = data.steps.len();
            for own in &boxes {
                let mark = Mark {
                    level: number as f64,
                    text: (number + 1).to_string(),
                };
                kernels.marks.insert(*own, mark);
            }
            data.steps.push(json!({
                "kernel": first_kernel + step.kernel,
                "boxes": boxes,
                "inline": index.find_all(&self.graph, &step.place.inline),
                "facts": step.facts(&self.slots),
            }));
            data.boxes.push(boxes);
        }
        data.live.extend(live_bytes(&self.slots, self.steps.len()));
        for slot in &self.slots {
            slot.mark(index.find(&self.graph, &slot.name), most, memory);
        }
    }
}

impl PlannedStep {
    fn facts(&self, slots: &[PlannedSlot]) -> Vec<[String; 2]> {
        let counts: Vec<String> = self.workgroups.iter().map(u64::to_string).collect();
        let writes = self.writes.iter().filter_map(|slot| slots.get(*slot));
        let writes: Vec<String> = writes
            .map(|slot| format!("{} {}", slot.name, slot.ty))
            .collect();
        let mut facts = vec![
            [
                "work".to_string(),
                format!("{}, {}", amount(self.flop, "FLOP"), amount(self.bytes, "B")),
            ],
            ["workgroups".to_string(), counts.join(" × ")],
            ["writes".to_string(), writes.join(", ")],
        ];
        let reasons = self.reasons.iter();
        facts.extend(reasons.map(|(label, reason)| [label.clone(), reason.clone()]));
        facts
    }
}

impl PlannedSlot {
    fn mark(&self, boxes: &[usize], most: u64, memory: &mut Overlay) {
        let level = (self.bytes as f64 / most.max(1) as f64).sqrt();
        let text = amount(self.bytes as f64, "B");
        let lifetime = self.first.zip(self.last).map(|(first, last)| {
            [
                "live in steps".to_string(),
                format!("{} – {}", first.saturating_add(1), last.saturating_add(1)),
            ]
        });
        let place = self.buffer.zip(self.offset).map(|(buffer, offset)| {
            [
                "stored in".to_string(),
                format!("buffer {buffer} at byte {offset}"),
            ]
        });
        let stored = [
            "stored as".to_string(),
            format!("{} {}: {}", self.kind, self.ty, text),
        ];
        for own in boxes {
            let text = text.clone();
            memory.marks.insert(*own, Mark { level, text });
            let details = memory.details.entry(*own).or_default();
            details.push(stored.clone());
            details.extend(lifetime.iter().chain(&place).cloned());
        }
    }
}

/// Bytes of the temporaries that are live in each step.
fn live_bytes(slots: &[PlannedSlot], steps: usize) -> Vec<u64> {
    let mut live = vec![0u64; steps];
    for slot in slots.iter().filter(|slot| slot.kind == "temporary") {
        if let (Some(first), Some(last)) = (slot.first, slot.last) {
            let steps = live.iter_mut().take(last.saturating_add(1)).skip(first);
            steps.for_each(|bytes| *bytes = bytes.saturating_add(slot.bytes));
        }
    }
    live
}

/// Marks boxes with the number of kernels that compute something in them. All have the colour of their only kernel, or none.
fn mark_containers(hierarchy: &Hierarchy, data: &PlanData, kernels: &mut Overlay) {
    let mut counts = vec![(0usize, None); hierarchy.boxes.len()];
    for (step, boxes) in data.boxes.iter().enumerate() {
        let outer = boxes.iter().flat_map(|own| hierarchy.ancestors(*own));
        for index in outer {
            let (count, last) = &mut counts[index];
            if *last != Some(step) {
                (*count, *last) = (*count + 1, Some(step));
            }
        }
    }
    for (index, (count, last)) in counts.into_iter().enumerate() {
        let Some(last) = last.filter(|_| hierarchy.boxes[index].parent.is_some()) else {
            continue;
        };
        let text = match count {
            1 => format!("{}", last + 1),
            count => format!("{count} kernels"),
        };
        let level = if count == 1 { last as f64 } else { -1.0 };
        kernels.marks.insert(index, Mark { level, text });
    }
}

/// The innermost box that is, or contains, all of some boxes.
pub(super) fn innermost_common_box(hierarchy: &Hierarchy, boxes: &[usize]) -> Option<usize> {
    let (first, rest) = boxes.split_first()?;
    rest.iter().try_fold(*first, |common, own| {
        let mut around = std::iter::once(common).chain(hierarchy.ancestors(common));
        let outer: Vec<usize> = std::iter::once(*own)
            .chain(hierarchy.ancestors(*own))
            .collect();
        around.find(|index| outer.contains(index))
    })
}
