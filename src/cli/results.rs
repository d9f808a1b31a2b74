//! Formats results: a line for each output, the largest entries of the first, JSON.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value as Json, json};

use super::argument_errors::ArgumentErrors;
use super::output;
use crate::compare::NonFinite;
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::files;
use crate::ir::{Argument, Definition, Graph, Node, Op, ValueId};
use crate::item::Item;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// Number of elements that the line of an output shows.
const SHOWN_ELEMENTS: usize = 6;

/// `--top-k` and its options: the largest entries of an output.
#[derive(Args)]
pub(super) struct TopEntries {
    /// Show the largest entries along the last axis of the first output.
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Show the entries of --top-k as percentages: their softmax along the last axis.
    #[arg(long, requires = "top_k")]
    softmax: bool,
    /// Names of the classes for --top-k, one a line.
    #[arg(long, value_name = "FILE", requires = "top_k")]
    labels: Option<PathBuf>,
}

impl TopEntries {
    /// Returns the file of labels.
    pub(super) fn labels(&self) -> Option<&PathBuf> {
        self.labels.as_ref()
    }

    /// Checks the number of entries and the file of labels.
    pub(super) fn check(&self, errors: &mut ArgumentErrors) {
        errors.check_positive("--top-k", self.top_k);
        errors.record(self.names());
    }

    /// Reads the file of labels.
    fn names(&self) -> Result<String> {
        let Some(path) = &self.labels else {
            return Ok(String::new());
        };
        match FileKind::of(path)? {
            FileKind::Text => files::read_to_string(path).map_err(|error| Error::io(path, error)),
            kind => {
                let message = format!("{} is {kind}, not a text file of labels", path.display());
                Err(Error::format(message)
                    .help("give a text file with the name of a class on each line"))
            }
        }
    }

    /// Prints the largest entries of each row of a tensor, if `--top-k` is given. Of scores for each position of a sequence,
    /// only those of the last position are printed.
    pub(super) fn print(&self, tensor: &Tensor, ends_in_softmax: bool) -> Result<()> {
        let Some(k) = self.top_k else { return Ok(()) };
        let labels = self.names()?;
        let labels: Vec<&str> = labels.lines().collect();
        let tensor = &last_position(tensor)?;
        if ends_in_softmax {
            output::note(
                "the model ends in a softmax: its outputs are probabilities and are shown unchanged",
            );
        }
        let softmax = self.softmax && !ends_in_softmax;
        let classes = tensor.shape().last().copied().unwrap_or(1).max(1);
        if !labels.is_empty() && labels.len() != classes {
            let count = labels.len();
            output::note(&format!("warning: {count} labels for {classes} classes"));
        }
        let entries: Vec<Scalar> = tensor.scalars().collect();
        for (row, entries) in entries.chunks(classes).enumerate() {
            for (rank, (class, text)) in largest(entries, k, softmax).into_iter().enumerate() {
                let label = labels.get(class).copied().unwrap_or_default();
                output::line(format!("[{row}] {}. {text}  {class} {label}", rank + 1).trim_end());
            }
        }
        Ok(())
    }
}

/// Returns the scores at the last position of each sequence, for a tensor `[batch, position, class]`; else the tensor.
fn last_position(tensor: &Tensor) -> Result<Tensor> {
    let &[batch, positions, classes] = tensor.shape() else {
        return Ok(tensor.clone());
    };
    if positions < 2 {
        return tensor.reshape([batch, classes]);
    }
    let last = positions - 1;
    output::note(&format!(
        "note: the output has scores for {positions} positions; those of the last one ({last}) are shown"
    ));
    let size = classes * tensor.dtype().size();
    let rows = (1..=batch).map(|row| {
        let end = row * positions * size;
        tensor
            .bytes()
            .get(end.saturating_sub(size)..end)
            .unwrap_or_default()
    });
    Tensor::from_bytes(
        tensor.dtype(),
        [batch, classes],
        &rows.collect::<Vec<_>>().concat(),
    )
}

/// Returns the indices of the `k` largest entries of a row, with formatted values.
fn largest(entries: &[Scalar], k: usize, softmax: bool) -> Vec<(usize, String)> {
    let numbers: Vec<f64> = entries.iter().map(|entry| entry.to_f64()).collect();
    let shares = if softmax {
        probabilities(&numbers)
    } else {
        Vec::new()
    };
    let text = |class: usize| match shares.get(class) {
        Some(share) => format!("{:5.1} %", share * 100.0),
        None => entries
            .get(class)
            .map_or_else(String::new, |entry| number(*entry)),
    };
    let places = descending_order(&numbers).into_iter().take(k);
    places.map(|class| (class, text(class))).collect()
}

/// Returns the indices of numbers, that of the largest first. NaN counts as the largest, as in PyTorch.
pub(super) fn descending_order(numbers: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    let key = |place: usize| {
        if numbers[place].is_nan() {
            f64::NAN
        } else {
            numbers[place]
        }
    };
    order.sort_by(|a, b| key(*b).total_cmp(&key(*a)));
    order
}

/// Returns the softmax of a row.
pub(super) fn probabilities(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / total).collect()
}

/// True if a graph's first output is a softmax along its last axis, perhaps converted to another dtype.
pub(super) fn ends_in_softmax(graph: &Graph) -> bool {
    let mut next = graph.outputs.first().copied();
    while let Some(id) = next {
        let Some(node) = defining_node(graph, id) else {
            return false;
        };
        let name = match &node.op {
            Op::Call(name) => name.trim_start_matches("aten.").to_string(),
            _ => return false,
        };
        let base = name.split('.').next().unwrap_or_default();
        match base
            .trim_start_matches("special_")
            .trim_start_matches("_safe_")
            .trim_start_matches('_')
        {
            "softmax" => return is_last_axis(graph, node, id),
            "to" | "type_as" | "float" | "contiguous" | "clone" | "detach" | "dropout" => {
                next = node.arguments.iter().flat_map(Argument::values).next();
            }
            _ => return false,
        }
    }
    false
}

fn defining_node(graph: &Graph, id: ValueId) -> Option<&Node> {
    match graph.value(id).definition {
        Definition::Node(node, _) => graph.nodes.get(node),
        _ => None,
    }
}

fn is_last_axis(graph: &Graph, node: &Node, id: ValueId) -> bool {
    let rank = i64::try_from(graph.ty(id).rank()).unwrap_or(i64::MAX);
    matches!(node.arguments.get(1), Some(Argument::Number(Scalar::Int(dim))) if *dim == -1 || *dim == rank - 1)
}

/// Formats an output on a line: type, range and first elements.
pub(super) fn describe(leaf: &Item) -> String {
    match leaf {
        Item::Tensor(tensor) => describe_tensor(tensor),
        Item::Number(value) => number(*value),
        Item::Str(text) => format!("{text:?}"),
        _ => "none".to_string(),
    }
}

fn describe_tensor(tensor: &Tensor) -> String {
    let first: Vec<String> = tensor.scalars().take(SHOWN_ELEMENTS).map(number).collect();
    let more = if tensor.numel() > SHOWN_ELEMENTS {
        ", …"
    } else {
        ""
    };
    let (ty, range) = (tensor.tensor_type(), describe_range(tensor));
    let non_finite = NonFinite::of(tensor);
    let warning = match non_finite.is_empty() {
        true => String::new(),
        false => format!("\n  warning: {non_finite}"),
    };
    format!("{ty} {range}[{}{more}]{warning}", first.join(", "))
}

/// Formats the smallest, largest and mean finite element, or the number of true elements.
fn describe_range(tensor: &Tensor) -> String {
    let finite = || tensor.scalars().filter(|value| value.to_f64().is_finite());
    let total: f64 = finite().map(Scalar::to_f64).sum();
    let least = finite().reduce(|a, b| if is_less(b, a) { b } else { a });
    let most = finite().reduce(|a, b| if is_less(a, b) { b } else { a });
    match (least, most) {
        (Some(Scalar::Bool(_)), _) => format!("{total:.0} of {} true ", tensor.numel()),
        (Some(least), Some(most)) => {
            let mean = total / finite().count() as f64;
            format!("min {} max {} mean {mean:.6} ", number(least), number(most))
        }
        _ => String::new(),
    }
}

fn is_less(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => a < b,
        _ => a.to_f64() < b.to_f64(),
    }
}

/// Formats a number: integers whole, floats to six places.
fn number(value: Scalar) -> String {
    match value {
        Scalar::Float(value) => format!("{value:.6}"),
        other => other.to_string(),
    }
}

/// Converts a result to JSON: tensors with their types, numbers, strings, lists and objects.
pub(super) fn item_json(item: &Item) -> Json {
    match item {
        Item::Tensor(tensor) => json!({
            "type": tensor.tensor_type().to_string(),
            "data": if tensor.dtype().is_float() { json!(tensor.to_f64()) } else { json!(tensor.to_i64()) },
        }),
        Item::Number(number) => json!(number),
        Item::Str(text) => json!(text),
        Item::None => Json::Null,
        Item::Tuple(items) | Item::List(items) => items.iter().map(item_json).collect(),
        Item::Dict(items) => items
            .iter()
            .map(|(key, item)| (key.clone(), item_json(item)))
            .collect(),
    }
}
