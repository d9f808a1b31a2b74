//! `onionskin compare`: a device against the oracle or against recorded outputs.

use std::path::PathBuf;

use clap::Args;

use super::activity::Activity;
use super::inputs::Inputs;
use super::precision::{Dtype, Exactness};
use super::{Outcome, output};
use crate::compare::{Difference, compare};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::model::first_divergence;
use crate::trace::check::Divergence;
use crate::{CompileOptions, Device, Model, tensor_file};

/// Compare a device with the oracle, or with recorded outputs.
#[derive(Args)]
pub(super) struct Compare {
    /// A TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name.
    #[arg(long, default_value = "auto")]
    device: String,
    /// A file with the expected outputs in order; without it the oracle says what is right.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    dtype: Dtype,
    #[command(flatten)]
    exactness: Exactness,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(super) fn run(&self) -> Result<Outcome> {
        let arguments = self.inputs.read()?;
        let activity = Activity::new(self.json);
        let options = CompileOptions {
            precision: self.dtype.precision()?,
            ..activity.compile_options()
        };
        let tolerance = self.exactness.tolerance(options.precision);
        activity.step("reading and importing the model");
        let (model, device) = (Model::open(&self.model)?, Device::open(&self.device)?);
        let session = model.compile(&device, &options)?;
        activity.step(format!("running on {device}"));
        let got = session.call(&arguments)?;
        activity.step("finding out what is right");
        let expected = self.expected(&model, &arguments)?;
        let differences = match self.against {
            Some(_) => compare(&Item::Tuple(tensors(&got)), &expected, tolerance),
            None => compare(&got, &expected, tolerance),
        };
        let passed = differences.iter().all(Difference::passed);
        let culprit = if passed {
            None
        } else {
            activity.step("looking for the first value that differs");
            first_divergence(&model, &device, &options, &arguments, tolerance)?
        };
        drop(activity);
        self.print(&device, &differences, culprit.as_ref());
        Ok(if passed { Outcome::Yes } else { Outcome::No })
    }

    fn expected(&self, model: &Model, arguments: &[Item]) -> Result<Item> {
        let Some(path) = &self.against else {
            return model
                .compile(&Device::Host, &CompileOptions::default())?
                .call(arguments);
        };
        let tensors = tensor_file::read(path)?;
        if tensors.is_empty() {
            return Err(Error::usage(format!("{} holds no tensors", path.display())));
        }
        Ok(Item::Tuple(
            tensors
                .into_iter()
                .map(|(_, tensor)| Item::Tensor(tensor))
                .collect(),
        ))
    }

    fn print(&self, device: &Device, differences: &[Difference], culprit: Option<&Divergence>) {
        let against = if self.against.is_some() {
            "recorded outputs"
        } else {
            "the oracle"
        };
        if self.json {
            output::line(&json(device, differences, culprit).to_string());
            return;
        }
        output::line(&format!("{device} against {against}"));
        for difference in differences {
            output::line(&format!(
                "  {} {difference}",
                if difference.passed() { "ok  " } else { "DIFF" }
            ));
        }
        if let Some(culprit) = culprit {
            output::line(&format!("against the oracle, {culprit}"));
        }
    }
}

fn tensors(item: &Item) -> Vec<Item> {
    item.tensors()
        .into_iter()
        .cloned()
        .map(Item::Tensor)
        .collect()
}

fn json(
    device: &Device,
    differences: &[Difference],
    culprit: Option<&Divergence>,
) -> serde_json::Value {
    let outputs: Vec<_> = differences.iter().map(Difference::to_json).collect();
    let culprit = culprit.map(Divergence::to_json);
    serde_json::json!({"device": device.to_string(), "outputs": outputs, "first_divergence": culprit})
}
