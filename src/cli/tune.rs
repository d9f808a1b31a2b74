//! `onionskin tune`: finds the fastest kernel variants of a model on a device.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::argument_errors::ArgumentErrors;
use super::model_args::ModelArgs;
use super::overwrite::Overwrite;
use super::progress_line::ProgressLine;
use super::{Outcome, output};
use crate::error::Result;
use crate::file_kind::FileKind;
use crate::kernel::choice::VariantOverrides;
use crate::kernel::materialization::Precision;
use crate::model::{Tuning, TuningProgress};
use crate::{Device, Model};

/// Measure the variants of a model's kernels on a device, and keep the fastest in a file for --tuned.
#[derive(Args)]
pub(super) struct TuneCommand {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// The file to write. It is for runs with the same --dtype.
    #[arg(short, long)]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
}

impl TuneCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let progress = ProgressLine::with_lines(false);
        let model = self.check()?;
        let arguments = self.model.inputs.read(&model)?;
        let device = self.model.device.open()?;
        let precision = self.model.device.precision()?;
        progress.step("compiling the model, and measuring it as it is");
        let mut tell = |step: TuningProgress| progress.tuning_progress(step);
        let tuning = Tuning::measure(&model, &device, precision, &arguments, &mut tell)?;
        tuning.write(&self.output)?;
        drop(progress);
        let path = self.output.display();
        output::line(&format!("{path} is written; use it with --tuned {path}"));
        Ok(Outcome::Success)
    }
}

impl TuneCommand {
    /// Opens the model and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = self.model.check_gpu(&mut errors);
        let read = self.model.paths(model.as_ref());
        errors.record(self.overwrite.check(&self.output, &["json"], &read));
        errors.finish(model)
    }
}

impl ProgressLine {
    fn tuning_progress(&self, progress: TuningProgress) {
        match progress {
            TuningProgress::Trying {
                layer,
                variant,
                done,
                layers,
            } => self.progress(&format!(
                "layer {} of {layers}, {layer}: trying {variant}",
                done + 1
            )),
            done => self.print(&progress_text(done)),
        }
    }
}

/// Formats the result of a layer or of the whole model.
fn progress_text(progress: TuningProgress) -> String {
    let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
    match progress {
        TuningProgress::Trying { layer, .. } => layer.to_string(),
        TuningProgress::Chosen {
            layer,
            variant: Some(variant),
            without,
            with,
        } => format!(
            "{layer}\n  best  {variant}, {} instead of {}",
            ms(with),
            ms(without)
        ),
        TuningProgress::Chosen { layer, without, .. } => {
            format!("{layer}\n  best  the default, {}", ms(without))
        }
        TuningProgress::Done { before, after } if after < before => format!(
            "gain    {:.0} %: a run takes {} instead of {}",
            100.0 * (1.0 - after / before),
            ms(after),
            ms(before)
        ),
        TuningProgress::Done { before, after } => format!(
            "gain    none: a run takes {} with the chosen variants, {} without",
            ms(after),
            ms(before)
        ),
    }
}

/// `--tuned`, for commands that compile a model.
#[derive(Args)]
pub(super) struct TunedOption {
    /// Variants of kernels that `onionskin tune` has measured.
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,
}

impl TunedOption {
    /// Checks that `onionskin tune` wrote the file.
    pub(super) fn check(&self) -> Result<()> {
        let Some(path) = &self.tuned else {
            return Ok(());
        };
        // The error for a missing file lists similarly named files.
        FileKind::of(path)?;
        Tuning::read(path).map(drop)
    }

    /// Reads the variant overrides for a device and a precision. For others than those measured, prints a note and returns none.
    pub(super) fn variant_overrides(
        &self,
        device: &Device,
        precision: Precision,
    ) -> Result<VariantOverrides> {
        let Some(path) = &self.tuned else {
            return Ok(VariantOverrides::new());
        };
        let tuning = Tuning::read(path)?;
        Ok(tuning
            .choices_for(device, precision)
            .unwrap_or_else(|error| {
                output::note(&error.to_string());
                VariantOverrides::new()
            }))
    }

    /// Returns the option for the command line of another process.
    pub(super) fn command_line_options(&self) -> Vec<OsString> {
        let path = self.tuned.as_ref();
        path.map_or_else(Vec::new, |path| vec!["--tuned".into(), path.into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::choice::KernelVariant;

    #[test]
    fn lines_tell_times_and_the_gain() {
        let (layer, variant) = ("dot f32 2x4 4x3", Some(KernelVariant::Portable));
        let chosen = TuningProgress::Chosen {
            layer,
            variant,
            without: 0.004,
            with: 0.003,
        };
        assert_eq!(
            progress_text(chosen),
            "dot f32 2x4 4x3\n  best  portable, 3.00 ms instead of 4.00 ms"
        );
        let done = |before, after| progress_text(TuningProgress::Done { before, after });
        assert_eq!(
            done(0.004, 0.003),
            "gain    25 %: a run takes 3.00 ms instead of 4.00 ms"
        );
        assert!(done(0.004, 0.004).starts_with("gain    none"));
    }
}
