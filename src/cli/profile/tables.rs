//! Measurements of a profile, by step and summed by name.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::dim::Bindings;
use crate::error::Result;
use crate::gpu::{Ceilings, Profile, Program, SpanKind};

/// Summed work and time of all steps with one name.
#[derive(Clone, Default)]
pub(super) struct ProfileRow {
    pub(super) name: String,
    /// Number of dispatches in a run.
    pub(super) steps: u64,
    /// Nanoseconds in a run, with the fastest time of each step.
    pub(super) nanoseconds: f64,
    /// Arithmetic operations in a run; see [`crate::kernel::work::Work`].
    pub(super) operations: f64,
    /// Bytes read and written in a run.
    pub(super) bytes: f64,
    /// Nanoseconds that the steps would take at the device's ceilings.
    pub(super) nanoseconds_at_ceilings: f64,
}

/// Measurements of a step of the plan.
pub(super) struct StepMeasurement {
    pub(super) row: ProfileRow,
    /// Names of kernel, module and source line.
    pub(super) names: [String; 3],
    pub(super) workgroups: [u32; 3],
    /// Nanoseconds of the fastest dispatch of all runs.
    shortest: f64,
    /// Nodes that the step computes.
    nodes: Vec<String>,
    /// Nodes that are computed where they are read.
    inline: Vec<String>,
    /// Kernel variant and the reason for it; `None` if there is only one variant.
    reason: Option<String>,
}

impl StepMeasurement {
    /// Returns the measurements as a JSON object. Amounts are sums of all dispatches of the step in a run.
    pub(super) fn json(&self) -> Value {
        let [kernel, module, line] = &self.names;
        json!({
            "kernel": kernel,
            "nodes": self.nodes,
            "inline": self.inline,
            "module": module,
            "location": Some(line).filter(|line| !line.is_empty()),
            "runs": self.row.steps,
            "ns": self.row.nanoseconds,
            "flop": self.row.operations,
            "bytes": self.row.bytes,
            "min_ns": self.row.nanoseconds_at_ceilings,
            "workgroups": self.workgroups,
            "reason": self.reason,
        })
    }
}

/// All measurements of a profile.
pub(super) struct ProfileReport {
    /// Name of the measured graph.
    pub(super) graph: String,
    pub(super) device: String,
    /// Peak rates of the device: as measured, or raised to those that a kernel reached.
    pub(super) ceilings: Ceilings,
    /// The kernel that exceeded the measured ceilings most, if any did.
    pub(super) ceiling_exceeded_by: Option<String>,
    /// Steps in the order of the plan.
    pub(super) steps: Vec<StepMeasurement>,
    /// The run with the least total time of its kernels.
    pub(super) fastest: Profile,
}

impl ProfileReport {
    pub(super) fn new(
        graph: &str,
        program: &Program,
        profiles: Vec<Profile>,
        ceilings: Ceilings,
        sizes: &Bindings,
    ) -> Result<ProfileReport> {
        let plan = program.plan();
        let mut steps = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let times = profiles
                .iter()
                .filter_map(|profile| profile.steps.get(index));
            let Some(time) = times.min_by_key(|time| time.nanoseconds) else {
                continue;
            };
            let runs = time.runs as f64;
            let operations = step.work.operations.eval(sizes)?;
            let bytes = step.work.bytes.eval(sizes)?;
            let (operations, bytes) = (runs * operations as f64, runs * bytes as f64);
            let label = &plan.kernels[step.kernel].label;
            let line = step.place.location.as_ref().map(ToString::to_string);
            steps.push(StepMeasurement {
                row: ProfileRow {
                    name: label.clone(),
                    steps: time.runs,
                    nanoseconds: time.nanoseconds as f64,
                    operations,
                    bytes,
                    nanoseconds_at_ceilings: 0.0,
                },
                names: [
                    label.clone(),
                    step.place.module.clone(),
                    line.unwrap_or_default(),
                ],
                workgroups: time.workgroups,
                shortest: shortest(&profiles, index),
                nodes: step.nodes.clone(),
                inline: step.work.fused_producers.clone(),
                reason: step.choice.as_ref().map(ToString::to_string),
            });
        }
        let (ceilings, ceiling_exceeded_by) = apply_ceilings(&mut steps, ceilings);
        let mut profiles = profiles;
        profiles.sort_by_key(Profile::total);
        Ok(ProfileReport {
            graph: graph.to_string(),
            device: program.device().name().to_string(),
            ceilings,
            ceiling_exceeded_by,
            steps,
            fastest: profiles.swap_remove(0),
        })
    }

    /// Returns the steps summed by kernel, by module and by line, each with its title.
    pub(super) fn tables(&self) -> [(&'static str, Vec<ProfileRow>); 3] {
        let by = |title, by: usize| {
            let steps = self.steps.iter();
            (
                title,
                grouped(steps.map(|step| (&step.row, step.names[by].as_str()))),
            )
        };
        [by("kernel", 0), by("module", 1), by("line", 2)]
    }
}

/// Computes the least time of each step at the device's ceilings, after raising ceilings that a step exceeds to its rates.
/// Returns the ceilings, and the name of the step that exceeded the measured ones most.
fn apply_ceilings(steps: &mut [StepMeasurement], measured: Ceilings) -> (Ceilings, Option<String>) {
    let mut ceilings = measured.clone();
    let (mut furthest, mut exceeded_by) = (1.0, None);
    for StepMeasurement { row, shortest, .. } in &*steps {
        let runs = row.steps.max(1) as f64;
        let (operations, bytes) = (row.operations / runs, row.bytes / runs);
        let share = measured.min_nanoseconds(operations, bytes) / shortest;
        if ceilings.raise(operations, bytes, *shortest) && furthest < share {
            (furthest, exceeded_by) = (share, Some(row.name.clone()));
        }
    }
    for StepMeasurement { row, .. } in steps {
        let runs = row.steps.max(1) as f64;
        row.nanoseconds_at_ceilings =
            runs * ceilings.min_nanoseconds(row.operations / runs, row.bytes / runs);
    }
    (ceilings, exceeded_by)
}

/// Returns the nanoseconds of the fastest dispatch of a step.
fn shortest(profiles: &[Profile], step: usize) -> f64 {
    let spans = profiles.iter().flat_map(|profile| &profile.spans);
    let own = spans.filter(|span| span.kind == SpanKind::Step(step));
    own.map(|span| span.nanoseconds).min().unwrap_or(0) as f64
}

/// Sums rows with the same name; the longest time comes first.
fn grouped<'a>(steps: impl Iterator<Item = (&'a ProfileRow, &'a str)>) -> Vec<ProfileRow> {
    let mut rows: Vec<ProfileRow> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (step, name) in steps {
        let place = *places.entry(name).or_insert(rows.len());
        if place == rows.len() {
            rows.push(ProfileRow {
                name: name.to_string(),
                ..ProfileRow::default()
            });
        }
        rows[place].add(step);
    }
    rows.sort_by(|a, b| b.nanoseconds.total_cmp(&a.nanoseconds));
    rows
}

impl ProfileRow {
    fn add(&mut self, other: &ProfileRow) {
        self.steps += other.steps;
        self.nanoseconds += other.nanoseconds;
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.nanoseconds_at_ceilings += other.nanoseconds_at_ceilings;
    }

    /// Returns an amount per nanosecond; `None` if the time is below the clock's resolution.
    fn per_nanosecond(&self, amount: f64) -> Option<f64> {
        (self.nanoseconds > 0.0).then(|| amount / self.nanoseconds)
    }

    pub(super) fn json(&self) -> Value {
        json!({"name": self.name, "steps": self.steps, "ms": self.nanoseconds / 1e6,
            "gflops": self.per_nanosecond(self.operations), "gb_per_s": self.per_nanosecond(self.bytes),
            "of_ceiling": self.per_nanosecond(self.nanoseconds_at_ceilings)})
    }

    fn line(&self, total: f64) -> String {
        let rate = |amount: f64| {
            let rate = self.per_nanosecond(amount).filter(|_| amount > 0.0);
            rate.map_or_else(|| "–".to_string(), |rate| format!("{rate:.1}"))
        };
        let percent = |share: Option<f64>| {
            share.map_or_else(
                || "–".to_string(),
                |share| format!("{:.0} %", 100.0 * share),
            )
        };
        format!(
            "{:>9.3} {:>6.1} % {:>5} {:>9} {:>7} {:>10}  {}",
            self.nanoseconds / 1e6,
            100.0 * self.nanoseconds / total.max(1.0),
            self.steps,
            rate(self.operations),
            rate(self.bytes),
            percent(self.per_nanosecond(self.nanoseconds_at_ceilings)),
            if self.name.is_empty() {
                "(no name)"
            } else {
                &self.name
            },
        )
    }
}

/// Formats a table of the first `top` rows; the last line sums the others.
pub(super) fn table(title: &str, rows: &[ProfileRow], top: usize) -> Vec<String> {
    let total = rows.iter().map(|row| row.nanoseconds).sum::<f64>();
    let (shown, others) = rows.split_at(top.min(rows.len()));
    let mut lines = vec![
        String::new(),
        format!("       ms    share steps  GFLOP/s    GB/s of ceiling  {title}"),
    ];
    lines.extend(shown.iter().map(|row| row.line(total)));
    if !others.is_empty() {
        let mut rest = ProfileRow {
            name: format!("{} others", others.len()),
            ..ProfileRow::default()
        };
        others.iter().for_each(|row| rest.add(row));
        lines.push(rest.line(total));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::CopyRate;

    /// Steps that find their operands in caches, or that a coarse clock measures as 0, have shares up to 100 % or none.
    #[test]
    fn no_share_exceeds_the_ceiling() {
        let measured = Ceilings::new(
            2.0,
            [CopyRate {
                bytes: 1e9,
                rate: 1.0,
            }],
        );
        let rows = [row(1e6, 1e6), row(1e5, 9e5), row(0.0, 1e6)];
        let mut steps: Vec<StepMeasurement> = rows.into_iter().map(step).collect();
        let (ceilings, exceeded_by) = apply_ceilings(&mut steps, measured);
        assert_eq!((ceilings.arithmetic, ceilings.memory()), (9.0, 40.0));
        assert_eq!(exceeded_by.as_deref(), Some("dot"));
        let shares = steps
            .iter()
            .map(|step| step.row.json()["of_ceiling"].as_f64());
        assert_eq!(
            shares.collect::<Vec<_>>(),
            [Some(1e6 / 9.0 / 1e6), Some(1.0), None]
        );
        let rows: Vec<ProfileRow> = steps.into_iter().map(|step| step.row).collect();
        let text = table("kernel", &rows, 20).join("\n");
        assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    }

    fn step(row: ProfileRow) -> StepMeasurement {
        let name = "dot".to_string();
        StepMeasurement {
            shortest: row.nanoseconds,
            row: ProfileRow { name, ..row },
            names: Default::default(),
            workgroups: [1; 3],
            nodes: Vec::new(),
            inline: Vec::new(),
            reason: None,
        }
    }

    fn row(nanoseconds: f64, operations: f64) -> ProfileRow {
        ProfileRow {
            steps: 1,
            nanoseconds,
            operations,
            bytes: 4e6,
            nanoseconds_at_ceilings: 5e5,
            ..ProfileRow::default()
        }
    }

    #[test]
    fn steps_of_one_name_are_one_row_and_rates_are_per_nanosecond() {
        let steps = [
            (row(1e6, 2e6), "dot"),
            (row(1e6, 4e6), "dot"),
            (row(6e6, 0.0), "sum"),
        ];
        let rows = grouped(steps.iter().map(|(row, name)| (row, *name)));
        let lines = table("kernel", &rows, 20);
        let columns = |line: &str| {
            line.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            columns(&lines[2]),
            ["6.000", "75.0", "%", "1", "–", "0.7", "8", "%", "sum"]
        );
        assert_eq!(
            columns(&lines[3]),
            ["2.000", "25.0", "%", "2", "3.0", "4.0", "50", "%", "dot"]
        );
        assert!(table("kernel", &rows, 1)[3].ends_with("1 others"));
    }
}
