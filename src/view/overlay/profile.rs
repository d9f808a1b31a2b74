//! Time of each kernel, from `onionskin profile --json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::plan::innermost_common_box;
use super::values::{StepPlace, ValueIndex};
use super::{Mark, Overlay, OverlayFile, Scale, other_model};
use crate::error::Result;
use crate::view::hierarchy::Hierarchy;

#[derive(Deserialize)]
struct ProfileDocument {
    device: String,
    graph: String,
    steps: Vec<ProfiledStep>,
}

#[derive(Deserialize)]
struct ProfiledStep {
    kernel: String,
    nodes: Vec<String>,
    #[serde(default)]
    inline: Vec<String>,
    #[serde(default)]
    module: String,
    location: Option<String>,
    runs: u64,
    ns: f64,
    flop: f64,
    bytes: f64,
    min_ns: Option<f64>,
}

pub(super) fn overlay(
    file: &OverlayFile,
    hierarchy: &Hierarchy,
    index: &ValueIndex,
) -> Result<Vec<Overlay>> {
    let document: ProfileDocument = file.fields()?;
    let total: f64 = document.steps.iter().map(|step| step.ns).sum();
    let mut overlay = Overlay {
        id: "time",
        title: "Time",
        scale: Scale::Heat,
        note: format!(
            "{} in kernels, {}; the operators of a kernel show its whole time",
            duration(total),
            file.origin(&document.device)
        ),
        legend: ["0".to_string(), "longest".to_string()],
        marks: Default::default(),
        details: Default::default(),
    };
    // The time of a kernel counts for the innermost box around all of its operators, and for those around it.
    let mut times: BTreeMap<usize, f64> = BTreeMap::new();
    let mut longest = 0.0f64;
    let mut own_times: BTreeMap<usize, f64> = BTreeMap::new();
    let places: Vec<StepPlace> = document.steps.iter().map(ProfiledStep::place).collect();
    let operators = index.steps(&document.graph, &places);
    for (step, boxes) in document.steps.iter().zip(operators) {
        longest = longest.max(step.ns);
        for own in &boxes {
            *own_times.entry(*own).or_default() += step.ns;
            overlay
                .details
                .entry(*own)
                .or_default()
                .extend(step.details(total));
        }
        if let Some(home) = innermost_common_box(hierarchy, &boxes) {
            for outer in std::iter::once(home).chain(hierarchy.ancestors(home)) {
                if hierarchy.boxes[outer].is_container() {
                    *times.entry(outer).or_default() += step.ns;
                }
            }
        }
    }
    if own_times.is_empty() && !document.steps.is_empty() {
        return Err(other_model(file));
    }
    let mark = |time: f64, of: f64, text| Mark {
        level: (time / of.max(1.0)).clamp(0.0, 1.0).sqrt(),
        text,
    };
    let share = |time: f64| {
        format!(
            "{} ({:.0} %)",
            duration(time),
            100.0 * time / total.max(1.0)
        )
    };
    let operators = own_times.into_iter();
    overlay
        .marks
        .extend(operators.map(|(own, time)| (own, mark(time, longest, duration(time)))));
    overlay.marks.extend(
        times
            .into_iter()
            .map(|(own, time)| (own, mark(time, total, share(time)))),
    );
    Ok(vec![overlay])
}

impl ProfiledStep {
    fn place(&self) -> StepPlace<'_> {
        StepPlace {
            nodes: &self.nodes,
            inline: &self.inline,
            module: &self.module,
            location: self.location.as_deref(),
        }
    }

    fn details(&self, total: f64) -> Vec<[String; 2]> {
        let share = 100.0 * self.ns / total.max(1.0);
        let rate = |amount: f64, unit: &str| match self.ns > 0.0 && amount > 0.0 {
            true => format!(", {:.1} {unit}", amount / self.ns),
            false => String::new(),
        };
        let runs = match self.runs {
            1 => String::new(),
            runs => format!(" in {runs} runs"),
        };
        let ceiling = self.min_ns.filter(|_| self.ns > 0.0);
        let ceiling = ceiling.map_or_else(String::new, |least| {
            format!(", {:.0} % of the ceiling", 100.0 * least / self.ns)
        });
        vec![[
            self.kernel.clone(),
            format!(
                "{}{runs}, {share:.1} % of all{}{}{ceiling}",
                duration(self.ns),
                rate(self.flop, "GFLOP/s"),
                rate(self.bytes, "GB/s"),
            ),
        ]]
    }
}

/// Formats nanoseconds: `12.3 µs`.
fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        few if few < 1e3 => format!("{few:.0} ns"),
        some if some < 1e6 => format!("{:.1} µs", some / 1e3),
        many if many < 1e9 => format!("{:.1} ms", many / 1e6),
        most => format!("{:.2} s", most / 1e9),
    }
}
