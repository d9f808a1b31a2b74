//! Measured choice of kernel variants for a device, in a file that can be shipped with a model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{CompileOptions, CompiledGraph, Device, Model};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::files;
use crate::gpu::{self, Program, ProgramOptions, RunInput};
use crate::ir::Weights;
use crate::item::Item;
use crate::kernel::choice::{KernelVariant, VariantOverrides};
use crate::kernel::materialization::Precision;
use crate::plan::{self, AdmittedVariants, PlanOptions};
use crate::tensor::Tensor;

/// Number of runs, of which the fastest counts.
const RUNS: usize = 7;
/// Maximum ratio of times for which a variant replaces that of the planner's table: smaller gains may be noise.
const MAX_TIME_RATIO: f64 = 0.97;

/// Measured choices for one device. They do not apply to other devices, driver or crate versions, or storage
/// precisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Name of the adapter.
    pub adapter: String,
    /// Driver and its version.
    pub driver: String,
    /// Version of this crate, whose kernels were measured.
    pub version: String,
    /// Storage type of `f32` values: `f32` or `f16`.
    #[serde(default = "single")]
    pub dtype: DType,
    /// Variants that are faster than those of the planner's table, by key of the matrix product or convolution.
    pub choices: BTreeMap<String, String>,
}

/// A tuning with a format marker, as written to a file.
#[derive(Serialize)]
struct TuningFile<'a> {
    format: &'static str,
    #[serde(flatten)]
    tuning: &'a Tuning,
}

/// Storage type of files that do not state one.
fn single() -> DType {
    Precision::Single.dtype()
}

impl Tuning {
    /// Measures the variants of each matrix product and convolution of a model on a device, for the sizes of a call and
    /// a storage precision. Calls `report` with the progress.
    ///
    /// # Errors
    /// Fails if the device is the host, or the model does not run on the device.
    pub fn measure(
        model: &Model,
        device: &Device,
        precision: Precision,
        arguments: &[Item],
        report: &mut dyn FnMut(TuningProgress),
    ) -> Result<Tuning> {
        let Device::Gpu(gpu) = device else {
            return Err(Error::usage(
                "the host has no kernels to tune; choose a GPU",
            ));
        };
        let options = CompileOptions {
            precision,
            ..CompileOptions::default()
        };
        let session = model.compile(device, &options)?;
        let (compiled, inputs) = session.compile_for(arguments)?;
        let measurement = TuningMeasurement {
            gpu,
            precision,
            compiled: &compiled,
            weights: compiled.weights()?,
            bindings: compiled.bind(&inputs)?,
            inputs: &inputs,
        };
        let layers = plan::admitted(&compiled.lowered, gpu.capabilities(), precision)?;
        let fastest = measurement.best(&layers, report)?;
        let choices = fastest.into_iter();
        let choices = choices.map(|(key, variant)| (key, variant.to_string()));
        Ok(Tuning {
            choices: choices.collect(),
            ..Tuning::of(gpu, precision)
        })
    }

    /// An empty tuning for a device.
    pub fn of(gpu: &gpu::GpuDevice, precision: Precision) -> Tuning {
        Tuning {
            adapter: gpu.name().to_string(),
            driver: gpu.driver(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            dtype: precision.dtype(),
            choices: BTreeMap::new(),
        }
    }

    /// The choices for a device with a storage precision.
    ///
    /// # Errors
    /// Fails if they were measured on another adapter, driver, version or precision, or name unknown variants. The
    /// message is meant as a warning: the model runs without the tuning.
    pub fn choices_for(&self, device: &Device, precision: Precision) -> Result<VariantOverrides> {
        let Device::Gpu(gpu) = device else {
            return Err(Error::usage(
                "the tuning is ignored: the host has no kernels",
            ));
        };
        let Tuning {
            adapter,
            driver,
            version,
            dtype,
            ..
        } = Tuning::of(gpu, precision);
        let pairs = [
            ("adapter", self.adapter.clone(), adapter),
            ("driver", self.driver.clone(), driver),
            ("onionskin version", self.version.clone(), version),
            ("dtype", self.dtype.to_string(), dtype.to_string()),
        ];
        for (what, measured, here) in pairs {
            if measured != here {
                return Err(Error::usage(format!(
                    "the tuning is ignored: it was measured with {what} {measured}, but the current {what} is {here}"
                )));
            }
        }
        let choices = self.choices.iter();
        choices
            .map(|(key, variant)| Ok((key.clone(), variant.parse()?)))
            .collect()
    }

    /// Reads a tuning file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not a tuning file.
    pub fn read(path: &Path) -> Result<Tuning> {
        let text = files::read(path).map_err(|error| Error::io(path, error))?;
        serde_json::from_slice(&text).map_err(|error| {
            let message = format!("{} is not a tuning file: {error}", path.display());
            Error::format(message).help("`onionskin tune MODEL -o FILE` writes one")
        })
    }

    /// Writes a tuning file atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let marked = TuningFile {
            format: "onionskin tuning",
            tuning: self,
        };
        let text = serde_json::to_vec_pretty(&marked)
            .map_err(|error| Error::internal(format!("JSON: {error}")))?;
        files::write(path, &text)
    }
}

/// Progress of a measurement. Times are seconds per run of the whole model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TuningProgress<'a> {
    /// A variant is about to be measured.
    Trying {
        /// Key of the matrix product or convolution.
        layer: &'a str,
        /// The variant.
        variant: KernelVariant,
        /// Number of finished layers.
        done: usize,
        /// Number of layers.
        layers: usize,
    },
    /// All variants of a layer were measured.
    Chosen {
        /// Key of the matrix product or convolution.
        layer: &'a str,
        /// The variant that is faster than the default; `None` if none is.
        variant: Option<KernelVariant>,
        /// Time with the default.
        without: f64,
        /// Time with the variant.
        with: f64,
    },
    /// All layers were measured.
    Done {
        /// Time with the defaults.
        before: f64,
        /// Time with everything that was chosen.
        after: f64,
    },
}

/// A call that is measured repeatedly.
struct TuningMeasurement<'a> {
    gpu: &'a gpu::GpuDevice,
    precision: Precision,
    compiled: &'a CompiledGraph,
    weights: Cow<'a, Weights>,
    /// Values of the symbolic sizes.
    bindings: Bindings,
    inputs: &'a [Tensor],
}

impl TuningMeasurement<'_> {
    /// Finds the variants that make the model fastest, one matrix product or convolution after the other.
    fn best(
        &self,
        layers: &AdmittedVariants,
        report: &mut dyn FnMut(TuningProgress),
    ) -> Result<VariantOverrides> {
        let mut chosen = VariantOverrides::new();
        let before = self.time(&chosen)?;
        for (index, (layer, variants)) in layers.iter().enumerate() {
            let without = self.time(&chosen)?;
            let mut best = without * MAX_TIME_RATIO;
            for candidate in variants {
                report(TuningProgress::Trying {
                    layer,
                    variant: *candidate,
                    done: index,
                    layers: layers.len(),
                });
                let mut choices = chosen.clone();
                choices.insert(layer.clone(), *candidate);
                // A variant that the device cannot run is skipped.
                let Ok(time) = self.time(&choices) else {
                    continue;
                };
                if time < best {
                    (best, chosen) = (time, choices);
                }
            }
            let variant = chosen.get(layer).copied();
            let with = variant.map_or(without, |_| best);
            report(TuningProgress::Chosen {
                layer,
                variant,
                without,
                with,
            });
        }
        let after = match chosen.is_empty() {
            true => before,
            false => self.time(&chosen)?,
        };
        report(TuningProgress::Done { before, after });
        Ok(chosen)
    }

    /// Time of the fastest run with these overrides, in seconds.
    fn time(&self, variant_overrides: &VariantOverrides) -> Result<f64> {
        let graph = &self.compiled.lowered;
        let plan_options = PlanOptions {
            variant_overrides: variant_overrides.clone(),
            precision: self.precision,
        };
        let plan = plan::plan_with_options(graph, self.gpu.capabilities(), &plan_options)?;
        let options = ProgramOptions::default();
        let program = Program::new(self.gpu, plan, &self.weights, options)?;
        let inputs: Vec<RunInput> = self.inputs.iter().map(RunInput::Host).collect();
        let mut fastest = f64::INFINITY;
        for _ in 0..=RUNS {
            let start = Instant::now();
            program.launch_with(&self.bindings, &inputs)?.read()?;
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        Ok(fastest)
    }
}
