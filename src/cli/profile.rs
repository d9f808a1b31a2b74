//! `onionskin profile`: where the time of a run goes, by kernel, by module and by line of the user's.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::activity::Activity;
use super::inputs::Inputs;
use super::{Outcome, output};
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result};
use crate::gpu::{Clock, Profile, Program};
use crate::ir::{Graph, Node, Op, Primitive};
use crate::model::Variant;
use crate::{Device, Model};

/// Runs that are added up.
const RUNS: usize = 10;

/// Show where a model's time on a device goes.
#[derive(Args)]
pub(super) struct Profiling {
    /// A TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The device: auto, gpu, software, an adapter's index or a part of its name.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Lines of a table, at most.
    #[arg(long, default_value_t = 20)]
    top: usize,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// The work of steps that have a name in common.
#[derive(Clone, Default)]
struct Row {
    name: String,
    /// Dispatches of one run.
    steps: u64,
    /// Of one run.
    nanoseconds: f64,
    /// Additions and multiplications of matrix products and convolutions.
    operations: f64,
    /// Bytes of all buffers that are bound: what must be moved at least, if all of them are read or written.
    bytes: f64,
}

impl Profiling {
    pub(super) fn run(&self) -> Result<Outcome> {
        let arguments = self.inputs.read()?;
        let device = Device::open(&self.device)?;
        let activity = Activity::new(self.json);
        activity.step("reading and importing the model");
        let session = Model::open(&self.model)?.compile(&device, &activity.compile_options())?;
        let (variant, inputs) = session.prepare(&arguments)?;
        let Some(program) = &variant.program else {
            return Err(Error::usage("the host has no kernels to measure")
                .help("choose an adapter; onionskin devices lists them"));
        };
        activity.step("measuring");
        let mut profiles = Vec::new();
        for _ in 0..RUNS {
            profiles.push(program.profile(&inputs)?.1);
        }
        let steps = steps(&variant, program, &profiles, &variant.bind(&inputs)?)?;
        drop(activity);
        self.report(&device, &profiles, &steps);
        Ok(Outcome::Yes)
    }

    fn report(&self, device: &Device, profiles: &[Profile], steps: &[(Row, [String; 3])]) {
        let [kernels, modules, lines] = [0, 1, 2].map(|by| grouped(steps, by));
        let clock = match profiles.first().map(|profile| profile.clock) {
            Some(Clock::Device) => "the device's clock",
            _ => "the host's clock, waiting for each kernel",
        };
        if self.json {
            let all = |rows: &[Row]| rows.iter().map(Row::json).collect::<Vec<_>>();
            let object = json!({"device": device.to_string(), "clock": clock, "kernels": all(&kernels),
                "modules": all(&modules), "lines": all(&lines)});
            return output::line(&object.to_string());
        }
        output::line(&format!("on {device}, by {clock}"));
        for (title, rows) in [("kernel", &kernels), ("module", &modules), ("line", &lines)] {
            table(title, rows, self.top)
                .iter()
                .for_each(|line| output::line(line));
        }
    }
}

/// Every step of a plan with the names of its kernel, its module and its line.
fn steps(
    variant: &Variant,
    program: &Program,
    profiles: &[Profile],
    sizes: &Bindings,
) -> Result<Vec<(Row, [String; 3])>> {
    let mut nodes = HashMap::new();
    collect(&variant.lowered, &mut nodes);
    let plan = program.plan();
    let mut rows = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let mut row = Row::default();
        for time in profiles
            .iter()
            .filter_map(|profile| profile.steps.get(index))
        {
            row.steps += time.runs;
            row.nanoseconds += time.nanoseconds as f64 / profiles.len() as f64;
        }
        let share = row.steps as f64 / profiles.len().max(1) as f64;
        row.steps = share.round() as u64;
        for name in &step.nodes {
            if let Some((graph, node)) = nodes.get(name.as_str()) {
                row.operations += share * operations(graph, node, sizes)?;
            }
        }
        for slot in &step.bindings {
            let slot = &plan.slots[slot.0];
            row.bytes +=
                share * Dim::product(&slot.shape).eval(sizes)? as f64 * slot.storage.size() as f64;
        }
        let line = step.place.location.as_ref().map(ToString::to_string);
        let label = plan.kernels[step.kernel].label.clone();
        rows.push((
            row,
            [label, step.place.module.clone(), line.unwrap_or_default()],
        ));
    }
    Ok(rows)
}

/// All nodes by the name of their first result, those of regions included.
fn collect<'a>(graph: &'a Graph, nodes: &mut HashMap<&'a str, (&'a Graph, &'a Node)>) {
    for node in &graph.nodes {
        if let Some(result) = node.results.first() {
            nodes.insert(graph.value(*result).name.as_str(), (graph, node));
        }
        node.bodies()
            .into_iter()
            .for_each(|body| collect(body, nodes));
    }
}

/// Additions and multiplications, where they can be told from the sizes.
fn operations(graph: &Graph, node: &Node, sizes: &Bindings) -> Result<f64> {
    let (Some(result), operands) = (node.results.first(), node.operands()) else {
        return Ok(0.0);
    };
    let shape = |place: usize| {
        operands
            .get(place)
            .map_or(&[][..], |id| graph.ty(*id).shape.as_slice())
    };
    let depth = match &node.op {
        Op::Primitive(Primitive::Dot(_)) => shape(0).last().cloned(),
        Op::Primitive(Primitive::Conv(_)) => shape(1).get(1..).map(Dim::product),
        _ => None,
    };
    let Some(depth) = depth else { return Ok(0.0) };
    let products = graph.ty(*result).numel().eval(sizes)? as f64 * depth.eval(sizes)? as f64;
    Ok(2.0 * products)
}

/// Rows of one name added up, the longest first.
fn grouped(steps: &[(Row, [String; 3])], by: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (step, names) in steps {
        let place = *places.entry(&names[by]).or_insert(rows.len());
        if place == rows.len() {
            rows.push(Row {
                name: names[by].clone(),
                ..Row::default()
            });
        }
        rows[place].add(step);
    }
    rows.sort_by(|a, b| b.nanoseconds.total_cmp(&a.nanoseconds));
    rows
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.steps += other.steps;
        self.nanoseconds += other.nanoseconds;
        self.operations += other.operations;
        self.bytes += other.bytes;
    }

    fn json(&self) -> Value {
        json!({"name": self.name, "steps": self.steps, "ms": self.nanoseconds / 1e6,
            "gflops": self.operations / self.nanoseconds, "gb_per_s": self.bytes / self.nanoseconds})
    }

    fn line(&self, total: f64) -> String {
        let rate = |amount: f64| match amount {
            0.0 => "–".to_string(),
            some => format!("{:.1}", some / self.nanoseconds),
        };
        format!(
            "{:>9.3} {:>6.1} % {:>5} {:>9} {:>7}  {}",
            self.nanoseconds / 1e6,
            100.0 * self.nanoseconds / total,
            self.steps,
            rate(self.operations),
            rate(self.bytes),
            if self.name.is_empty() {
                "?"
            } else {
                &self.name
            },
        )
    }
}

/// A table of the first rows, and what the others come to.
fn table(title: &str, rows: &[Row], top: usize) -> Vec<String> {
    let total = rows.iter().map(|row| row.nanoseconds).sum::<f64>();
    let (shown, others) = rows.split_at(top.min(rows.len()));
    let mut lines = vec![
        String::new(),
        format!("       ms    share steps  GFLOP/s    GB/s  {title}"),
    ];
    lines.extend(shown.iter().map(|row| row.line(total)));
    if !others.is_empty() {
        let mut rest = Row {
            name: format!("{} others", others.len()),
            ..Row::default()
        };
        others.iter().for_each(|row| rest.add(row));
        lines.push(rest.line(total));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(nanoseconds: f64, operations: f64) -> Row {
        Row {
            steps: 1,
            nanoseconds,
            operations,
            bytes: 4e6,
            ..Row::default()
        }
    }

    #[test]
    fn steps_of_one_name_are_one_row_and_rates_are_per_nanosecond() {
        let names = |kernel: &str| [kernel, "fc", "m.py:3"].map(String::from);
        let steps = [
            (row(1e6, 2e6), names("dot")),
            (row(1e6, 4e6), names("dot")),
            (row(6e6, 0.0), names("sum")),
        ];
        let lines = table("kernel", &grouped(&steps, 0), 20);
        let columns = |line: &str| {
            line.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            columns(&lines[2]),
            ["6.000", "75.0", "%", "1", "–", "0.7", "sum"]
        );
        assert_eq!(
            columns(&lines[3]),
            ["2.000", "25.0", "%", "2", "3.0", "4.0", "dot"]
        );
        assert_eq!(grouped(&steps, 1).len(), 1);
        assert!(table("kernel", &grouped(&steps, 0), 1)[3].ends_with("1 others"));
    }
}
