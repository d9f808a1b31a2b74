//! `onionskin verify`: compares a compiled model with the imported graph and with the oracle.

use std::path::PathBuf;

use clap::Args;

use super::argument_errors::ArgumentErrors;
use super::backward::BackwardOptionArgs;
use super::inputs::InputSets;
use super::model_args::DeviceArgs;
use super::model_file::ModelFileArgs;
use super::precision::ToleranceOptions;
use super::progress_line::ProgressLine;
use super::run_limits::RunLimitOptions;
use super::{Outcome, output};
use crate::compare::Difference;
use crate::error::Result;
use crate::model::{Culprit, Verification, verify, verify_backward, verify_recorded};
use crate::{CompileOptions, Device, Model};

/// Verify a compiled model: compare every entry graph on a device, for all sets of inputs, with the imported graph and with
/// the oracle.
///
/// Exit codes: 0 all outputs agree, 1 some differ, 2 wrong usage, 3 anything else.
#[derive(Args)]
pub(super) struct VerifyCommand {
    /// A program of torch.export, a TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    file: ModelFileArgs,
    #[command(flatten)]
    sets: InputSets,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    /// Compare gradients of all inputs, parameters and buffers that are floats, too.
    #[arg(long)]
    backward: bool,
    #[command(flatten)]
    options: BackwardOptionArgs,
    /// Verify the calls of a case that record.py --gradients wrote, and compare with PyTorch's outputs and gradients, too.
    #[arg(long, value_name = "CASE", requires = "backward", conflicts_with_all = ["loss", "recompute", "sets", "files", "images", "shapes", "random"])]
    recorded: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

impl VerifyCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let model = self.check()?;
        let device = self.device.open()?;
        let progress = ProgressLine::new(self.json);
        let options = CompileOptions {
            precision: self.device.precision()?,
            ..CompileOptions::default()
        };
        let tolerance = self.tolerance.tolerance(options.precision);
        let sets = || self.sets.read(&model, &model.entries());
        progress.step("verifying");
        let backward = self.options.options();
        let found = match (&self.recorded, self.backward) {
            (Some(case), _) => verify_recorded(&model, &device, &options, tolerance, case)?,
            (None, true) => {
                verify_backward(&model, &device, &options, &sets()?, tolerance, &backward)?
            }
            (None, false) => verify(&model, &device, &options, &sets()?, tolerance)?,
        };
        drop(progress);
        if self.json {
            let runs: Vec<_> = found.iter().map(json).collect();
            let object = serde_json::json!({"device": device.to_string(), "runs": runs});
            output::line(&object.to_string());
        } else {
            found
                .iter()
                .for_each(|verification| self.print(&device, verification));
        }
        let passed = found.iter().all(Verification::passed);
        Ok(if passed {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }
}

impl VerifyCommand {
    /// Opens the model and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = errors.record(self.file.open(&self.model));
        self.sets.check(&mut errors);
        self.device.check(&mut errors);
        errors.record(self.tolerance.check());
        errors.finish(model)
    }

    fn print(&self, device: &Device, verification: &Verification) {
        let inputs = match verification.set {
            Some(index) => format!("inputs {}", index + 1),
            None => "generated inputs".to_string(),
        };
        output::line(&format!("{}, {inputs}, on {device}", verification.entry));
        if self.backward && !verification.has_gradients {
            output::line("  no gradients: no output has floats");
        }
        for (form, differences) in comparisons(verification) {
            for difference in differences {
                let verdict = if difference.passed() { "ok  " } else { "DIFF" };
                let text = format!("  {verdict} against {form}: {difference}");
                output::line(&output::colourize(&text));
            }
        }
        if let Some(culprit) = &verification.culprit {
            output::line(&culprit.to_string());
        }
    }
}

/// The references of a comparison, and the differences from each.
fn comparisons(verification: &Verification) -> [(&'static str, &[Difference]); 3] {
    [
        ("the graph as imported", &verification.against_calls),
        ("the oracle", &verification.against_oracle),
        ("PyTorch's record", &verification.against_recorded),
    ]
}

fn json(verification: &Verification) -> serde_json::Value {
    let [calls, oracle, recorded] = comparisons(verification).map(|(_, differences)| {
        differences
            .iter()
            .map(Difference::to_json)
            .collect::<Vec<_>>()
    });
    serde_json::json!({
        "entry": verification.entry,
        "inputs": verification.set,
        "passed": verification.passed(),
        "against_calls": calls,
        "against_oracle": oracle,
        "against_recorded": recorded,
        "culprit": verification.culprit.as_ref().map(Culprit::to_json),
    })
}
