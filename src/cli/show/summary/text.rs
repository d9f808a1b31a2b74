//! A summary as text.

use super::{
    GraphSummary, Incompatibility, MemoryNeeds, NO_EXAMPLE, Summary, TensorSummary, origin,
};
use crate::cli::output::{grouped, wrapped};
use crate::symbols::{Guard, Relation};
use crate::trace::check::{Finding, SubjectKind};
use crate::units::amount;

/// Number of guards that are listed; further guards are counted.
const MAX_GUARDS: usize = 6;
/// Longest guard, in characters, whose formula is shown.
const MAX_GUARD_CHARS: usize = 140;
/// Columns of a line.
const WIDTH: usize = 100;

impl Summary {
    /// Formats the summary in lines, with modules down to a depth.
    pub(in crate::cli::show) fn lines(&self, depth: usize) -> Vec<String> {
        let mut lines = vec![
            format!("{}, {}", self.name, amount(self.bytes as f64, "B")),
            format!("  {}", self.kind()),
        ];
        let methods = self.methods.join(", ");
        lines.push(match self.methods.len() {
            1 => format!("  method {methods}"),
            _ => format!("  methods {methods}"),
        });
        for graph in &self.graphs {
            lines.extend(graph.signature(self.graphs.len() > 1));
        }
        lines.extend(self.parameter_lines(depth));
        for graph in &self.graphs {
            lines.extend(graph.costs(self.graphs.len() > 1));
        }
        lines.extend(self.devices());
        lines.extend(self.warnings());
        lines
    }

    /// Describes the file: `TorchScript archive of a trace (file format 3)`.
    fn kind(&self) -> String {
        let version = self.version;
        match self.origin {
            SubjectKind::Graph => format!("JSON graph (file format {version})"),
            SubjectKind::Export => format!("program of torch.export (schema version {version})"),
            other => format!(
                "TorchScript archive of a {} (file format {version})",
                origin(other)
            ),
        }
    }

    fn parameter_lines(&self, depth: usize) -> Vec<String> {
        if self.parameters.total().count == 0 {
            return section("parameters", ["none".to_string()]);
        }
        let mut lines = section("parameters", self.parameters.lines(depth));
        let buffers = self.parameters.buffers;
        if buffers.count > 0 {
            let (count, bytes) = (grouped(buffers.count), amount(buffers.bytes as f64, "B"));
            lines.push(format!("  and {count} elements of buffers, {bytes}"));
        }
        lines
    }

    /// Lists the devices that run the model, or the incompatibilities.
    fn devices(&self) -> Vec<String> {
        let graphs = self
            .graphs
            .iter()
            .flat_map(|graph| &graph.needs.incompatibilities);
        let incompatibilities: Vec<&Incompatibility> =
            self.import_errors.iter().chain(graphs).collect();
        let Some(first) = incompatibilities.first() else {
            let any = "every device within WebGPU's default limits, and the host";
            return section("runs on", [any.to_string()]);
        };
        let mut lines = vec![String::new(), title(first)];
        let mut devices = first.devices;
        for (place, incompatibility) in incompatibilities.iter().enumerate() {
            if incompatibility.devices != devices {
                devices = incompatibility.devices;
                lines.extend([String::new(), title(incompatibility)]);
            }
            lines.extend(wrapped(&incompatibility.reason, "  ", WIDTH));
            let next = incompatibilities
                .get(place + 1)
                .and_then(|next| next.help.as_ref());
            let help = incompatibility
                .help
                .as_ref()
                .filter(|help| next != Some(*help));
            lines.extend(
                help.iter()
                    .flat_map(|help| wrapped(help, "    help: ", WIDTH)),
            );
        }
        lines
    }

    fn warnings(&self) -> Vec<String> {
        let lines = self.findings.iter().flat_map(finding);
        let lines: Vec<String> = lines.collect();
        let title = "warnings, found without running the model; `onionskin check` finds more";
        match lines.is_empty() {
            true => section(
                "warnings",
                ["none without running the model; `onionskin check` runs it".to_string()],
            ),
            false => section(title, lines),
        }
    }
}

impl GraphSummary {
    fn signature(&self, is_named: bool) -> Vec<String> {
        let of = |title: &str, tensors: &[TensorSummary]| {
            let title = match is_named {
                true => format!("{title} of {}", self.name),
                false => title.to_string(),
            };
            let tensors = match tensors.is_empty() {
                true => vec!["none".to_string()],
                false => table(tensors),
            };
            section(&title, tensors)
        };
        let mut lines = of("inputs", &self.inputs);
        lines.extend(of("outputs", &self.outputs));
        lines.extend(self.conditions());
        lines
    }

    /// Lists the guards on sizes, without those that sizes are not 0.
    fn conditions(&self) -> Vec<String> {
        let is_plain = |guard: &&Guard| guard.relation == Relation::LessEqual && guard.left.is(1);
        let guards = self.guards.iter().filter(|guard| !is_plain(guard));
        let guards: Vec<&Guard> = guards.collect();
        let listed = guards
            .iter()
            .take(MAX_GUARDS)
            .flat_map(|guard| condition(guard));
        let more = guards.len().saturating_sub(MAX_GUARDS);
        let more = (more > 0).then(|| format!("and {more} more: --signature lists them"));
        match guards.is_empty() {
            true => Vec::new(),
            false => section("holds for sizes with", listed.chain(more)),
        }
    }

    fn costs(&self, is_named: bool) -> Vec<String> {
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(name, size)| format!("{name} = {size}"))
            .collect();
        let mut title = "a call".to_string();
        if is_named {
            title += &format!(" of {}", self.name);
        }
        if !sizes.is_empty() {
            title += &format!(" with {}", sizes.join(", "));
        }
        let mut lines = vec![format!("arithmetic   {}", self.arithmetic())];
        lines.extend(self.needs.memory.iter().flat_map(memory));
        section(&title, lines)
    }

    fn arithmetic(&self) -> String {
        let count = self.needs.multiply_adds as f64;
        let amount = match self.needs.multiply_adds {
            0 => "no multiply-adds".to_string(),
            _ => format!(
                "{} (multiply-adds of products and convolutions)",
                amount(count, "MAC")
            ),
        };
        match self.needs.has_unknown_loops {
            true => format!("{amount}, loops counted once"),
            false => amount,
        }
    }
}

fn memory(memory: &MemoryNeeds) -> [String; 2] {
    let bytes = |bytes: u64| amount(bytes as f64, "B");
    let MemoryNeeds {
        weights,
        inputs,
        outputs,
        activations,
    } = *memory;
    [
        format!("weights      {} on the device", bytes(weights)),
        format!(
            "activations  {} at the peak; inputs {}, outputs {}",
            bytes(activations),
            bytes(inputs),
            bytes(outputs)
        ),
    ]
}

/// Returns the title above incompatibilities for the same devices.
fn title(incompatibility: &Incompatibility) -> String {
    match incompatibility.devices {
        NO_EXAMPLE => "inputs, arithmetic, memory and devices are not known".to_string(),
        devices => format!("does not run on {devices}"),
    }
}

/// Returns an empty line, a title and indented lines.
fn section(title: &str, lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let head = [String::new(), title.to_string()];
    let lines = lines.into_iter().map(|line| format!("  {line}"));
    head.into_iter().chain(lines).collect()
}

/// Formats a guard with its source line. A long formula is replaced by a hint.
fn condition(guard: &Guard) -> Vec<String> {
    let text = guard.to_string();
    let text = match text.chars().count() {
        0..=MAX_GUARD_CHARS => text,
        _ => "a formula of its sizes that --signature shows".to_string(),
    };
    let place = match guard.place.is_unknown() {
        true => String::new(),
        false => format!(", at {}", guard.place),
    };
    hanging_indent(&(text + &place))
}

/// Wraps a text for a section; all lines but the first are indented.
fn hanging_indent(text: &str) -> Vec<String> {
    let lines = wrapped(text, "", WIDTH - 8).into_iter().enumerate();
    let lines = lines.map(|(place, line)| match place {
        0 => line,
        _ => format!("      {line}"),
    });
    lines.collect()
}

/// Formats names, types and examples in columns.
fn table(tensors: &[TensorSummary]) -> Vec<String> {
    let width = |text: fn(&TensorSummary) -> &str| {
        let lengths = tensors.iter().map(|tensor| text(tensor).chars().count());
        lengths.max().unwrap_or_default()
    };
    let (name, ty) = (width(|tensor| &tensor.name), width(|tensor| &tensor.ty));
    let lines = |tensor: &TensorSummary| {
        let TensorSummary {
            name: own,
            ty: of,
            example,
        } = tensor;
        if example == of {
            return vec![format!("{own:<name$}  {of}")];
        }
        let line = format!("{own:<name$}  {of:<ty$}  such as {example}");
        match line.chars().count() <= WIDTH - 2 {
            true => vec![line],
            false => vec![
                format!("{own:<name$}  {of}"),
                format!("{:name$}  such as {example}", ""),
            ],
        }
    };
    tensors.iter().flat_map(lines).collect()
}

/// Formats a finding: `W0211 constant equals an input's size: … at model.py:12`, with further lines indented.
fn finding(finding: &Finding) -> Vec<String> {
    let place = match finding.place.is_unknown() {
        true => String::new(),
        false => format!(", at {}", finding.place),
    };
    let title = finding.id.entry().title;
    let text = format!("{} {title}: {}{place}", finding.id, finding.message);
    hanging_indent(&text)
}
