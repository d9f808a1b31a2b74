//! Time of each kernel, from `onionskin profile --json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::plan::innermost_common_box;
use super::values::{StepPlace, ValueIndex};
use super::{Mark, Overlay, OverlayFile, Scale, other_model};
use crate::error::Result;
use crate::units::duration;
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
    #[serde(flatten)]
    place: StepPlace,
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
    let mut times = Times::default();
    let places: Vec<&StepPlace> = document.steps.iter().map(|step| &step.place).collect();
    let operators = index.steps(&document.graph, &places);
    for (step, boxes) in document.steps.iter().zip(operators) {
        times.add(step.ns, &boxes, hierarchy);
        for own in boxes {
            let details = overlay.details.entry(own).or_default();
            details.push(step.details(total));
        }
    }
    if times.operators.is_empty() && !document.steps.is_empty() {
        return Err(other_model(file));
    }
    overlay.marks = times.marks(total);
    Ok(vec![overlay])
}

/// Nanoseconds of boxes.
#[derive(Default)]
struct Times {
    /// Times of the kernels that compute an operator.
    operators: BTreeMap<usize, f64>,
    /// Times of the kernels within a module, graph or region.
    containers: BTreeMap<usize, f64>,
    /// Time of the longest kernel.
    longest: f64,
}

impl Times {
    /// Adds a kernel. Its time counts for the innermost box around all of its operators, and for those around it.
    fn add(&mut self, time: f64, operators: &[usize], hierarchy: &Hierarchy) {
        self.longest = self.longest.max(time);
        for own in operators {
            *self.operators.entry(*own).or_default() += time;
        }
        let home = innermost_common_box(hierarchy, operators).into_iter();
        let around = home.flat_map(|home| std::iter::once(home).chain(hierarchy.ancestors(home)));
        for outer in around.filter(|outer| hierarchy.boxes[*outer].is_container()) {
            *self.containers.entry(outer).or_default() += time;
        }
    }

    /// Marks operators by their share of the longest kernel, and other boxes by their share of all time.
    fn marks(self, total: f64) -> BTreeMap<usize, Mark> {
        let mark = |time: f64, of: f64, text| Mark {
            level: (time / of.max(1.0)).clamp(0.0, 1.0).sqrt(),
            text,
        };
        let longest = self.longest;
        let operators = self.operators.into_iter();
        let operators = operators.map(|(own, time)| (own, mark(time, longest, duration(time))));
        let containers = self.containers.into_iter().map(|(own, time)| {
            let share = 100.0 * time / total.max(1.0);
            let text = format!("{} ({share:.0} %)", duration(time));
            (own, mark(time, total, text))
        });
        operators.chain(containers).collect()
    }
}

impl ProfiledStep {
    fn details(&self, total: f64) -> [String; 2] {
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
        [
            self.kernel.clone(),
            format!(
                "{}{runs}, {share:.1} % of all{}{}{ceiling}",
                duration(self.ns),
                rate(self.flop, "GFLOP/s"),
                rate(self.bytes, "GB/s"),
            ),
        ]
    }
}
