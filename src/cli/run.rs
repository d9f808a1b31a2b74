//! `onionskin run`: a model on inputs, its outputs as a summary or a file.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::activity::Activity;
use super::inputs::Inputs;
use super::precision::Dtype;
use super::tune::Tuned;
use super::{Outcome, output};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::tensor::Tensor;
use crate::{CompileOptions, Device, Model, Session, tensor_file};

/// Run a model on inputs.
#[derive(Args)]
pub(super) struct Run {
    /// A TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name.
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    dtype: Dtype,
    #[command(flatten)]
    tuned: Tuned,
    /// Weights as a GPU holds them, which a later start uploads as they are: taken from this file, and written to it if it has
    /// them not.
    #[arg(long, value_name = "FILE")]
    packed: Option<PathBuf>,
    /// Write the outputs to a .npy, .npz or .safetensors file.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Show the largest entries along the last axis of the first output.
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Names of the classes for --top-k, one a line.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Print the outputs as JSON.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(&self) -> Result<Outcome> {
        let arguments = self.inputs.read()?;
        let device = Device::open(&self.device)?;
        let start = Instant::now();
        let activity = Activity::new(self.json);
        activity.step("reading and importing the model");
        let precision = self.dtype.precision()?;
        let options = CompileOptions {
            choices: self.tuned.choices(&device, precision)?,
            packed: self.packed.clone(),
            precision,
            ..activity.compile_options()
        };
        let session = Model::open(&self.model)?.compile(&device, &options)?;
        activity.step("running");
        let result = session.call(&arguments)?;
        drop(activity);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let outputs = named_outputs(&result);
        if let Some(path) = &self.output {
            tensor_file::write(path, &outputs)?;
        }
        if self.json {
            output::line(&serde_json::json!({"device": device.to_string(), "ms": ms, "output": item_json(&result)}).to_string());
            return Ok(Outcome::Yes);
        }
        output::note(&format!("on {device}, {ms:.0} ms from archive to numbers"));
        tell_packed(&session);
        for (path, leaf) in result.leaves() {
            output::line(&format!("output{path}: {}", describe(leaf)));
        }
        if let (Some(k), Some((_, tensor))) = (self.top_k, outputs.first()) {
            self.print_top(k, tensor)?;
        }
        Ok(Outcome::Yes)
    }

    fn print_top(&self, k: usize, tensor: &Tensor) -> Result<()> {
        let labels = match &self.labels {
            Some(path) => std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?,
            None => String::new(),
        };
        let labels: Vec<&str> = labels.lines().collect();
        let classes = tensor.shape().last().copied().unwrap_or(1).max(1);
        for (row, scores) in tensor.to_f64().chunks(classes).enumerate() {
            for (rank, (class, probability)) in top(scores, k).into_iter().enumerate() {
                let label = labels.get(class).copied().unwrap_or_default();
                output::line(&format!(
                    "[{row}] {}. {:5.1} %  {class} {label}",
                    rank + 1,
                    probability * 100.0
                ));
            }
        }
        Ok(())
    }
}

/// Says what became of the file of packed weights.
pub(super) fn tell_packed(session: &Session) {
    if let Some(report) = session.packed() {
        output::note(&report.to_string());
    }
}

/// The `k` largest of a row with their probabilities under softmax.
pub(super) fn top(scores: &[f64], k: usize) -> Vec<(usize, f64)> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
        .into_iter()
        .take(k)
        .map(|class| (class, (scores[class] - largest).exp() / total))
        .collect()
}

/// The tensors of a result with names for a file: `output`, or `output_0`, `output_1` ….
pub(super) fn named_outputs(result: &Item) -> Vec<(String, Tensor)> {
    let tensors = result.tensors();
    let name = |index: usize| {
        if tensors.len() == 1 {
            "output".to_string()
        } else {
            format!("output_{index}")
        }
    };
    tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| (name(index), (*tensor).clone()))
        .collect()
}

fn describe(leaf: &Item) -> String {
    let Item::Tensor(tensor) = leaf else {
        return format!("{leaf:?}");
    };
    let values = tensor.to_f64();
    let finite = values.iter().filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(*value), high.max(*value))
    });
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let first: Vec<String> = values
        .iter()
        .take(6)
        .map(|value| format!("{value:.6}"))
        .collect();
    let more = if values.len() > 6 { ", …" } else { "" };
    format!(
        "{} min {low:.6} max {high:.6} mean {mean:.6} [{}{more}]",
        tensor.tensor_type(),
        first.join(", ")
    )
}

fn item_json(item: &Item) -> serde_json::Value {
    match item {
        Item::Tensor(tensor) => serde_json::json!({
            "type": tensor.tensor_type().to_string(),
            "data": if tensor.dtype().is_float() { serde_json::json!(tensor.to_f64()) } else { serde_json::json!(tensor.to_i64()) },
        }),
        Item::Number(number) => serde_json::json!(number),
        Item::Str(text) => serde_json::json!(text),
        Item::None => serde_json::Value::Null,
        Item::Tuple(items) | Item::List(items) => items.iter().map(item_json).collect(),
        Item::Dict(items) => items
            .iter()
            .map(|(key, item)| (key.clone(), item_json(item)))
            .collect(),
    }
}
