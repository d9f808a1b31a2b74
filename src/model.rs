//! Public entry points: open a model, compile it for a device, run it.
//!
//! ```no_run
//! # fn main() -> onionskin::Result<()> {
//! use onionskin::{CompileOptions, Device, Model, Tensor};
//!
//! let model = Model::open("resnet18.pt")?;
//! let session = model.compile(&Device::auto()?, &CompileOptions::default())?;
//! let image = Tensor::from_vec([1, 3, 224, 224], vec![0.5f32; 3 * 224 * 224])?;
//! let logits = session.run(&[image])?;
//! println!("{:?}", logits[0].shape());
//! # Ok(())
//! # }
//! ```

mod background;
mod backward;
mod bisect;
mod check;
mod compile_options;
mod compiled_graph;
mod device;
mod input_mismatch;
mod oracle_runs;
mod packed;
mod random_input;
mod session;
mod session_states;
mod tuning;
mod value_comparison;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::kernel::materialization::Precision;
pub use crate::trace::program::{Signature, SignatureInput};
pub use backward::BackwardOptions;
#[cfg(feature = "cli")]
pub(crate) use backward::with_parameter_gradients;
pub use bisect::{DivergenceSearch, first_divergence};
pub use check::{DeviceReference, check, inspect};
pub use compile_options::CompileOptions;
pub use compiled_graph::CompiledGraph;
pub use device::Device;
pub use input_mismatch::InputMismatch;
pub use oracle_runs::{SearchOptions, SearchProgress};
pub use packed::PackedWeightsReport;
pub use random_input::{InputDistribution, input_distributions, seed_of};
pub use session::Session;
pub use tuning::{Tuning, TuningProgress};
pub use value_comparison::{ComparedValue, ValueComparison, compare_values};
#[cfg(feature = "cli")]
pub(crate) use verify::RecordedSubject;
pub use verify::{
    Culprit, Verification, first_wrong_pass, verify, verify_backward, verify_recorded,
};

use crate::archive::Container;
use crate::budget::Limits;
use crate::error::{Error, ErrorContext, Result};
use crate::file_kind::FileKind;
use crate::interrupt;
use crate::ir::GraphModule;
use crate::ir::json::OpenBytes;
use crate::item::Item;
use crate::storage::ByteSource;
use crate::trace::export::ExportedProgram;
use crate::trace::program::{EntryMethod, ImportOptions, InputSpec, SourceProgram};
use crate::trace::torchscript::Archive;
use session_states::SessionStates;

/// A model: a [`SourceProgram`] that PyTorch traced or scripted, or imported graphs.
///
/// Clones share the program and the weights.
#[derive(Clone)]
pub struct Model {
    program: Arc<dyn SourceProgram>,
    /// The files that the model was opened from.
    files: Arc<[PathBuf]>,
    /// The limits that it was opened with.
    limits: Limits,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("format", &self.program.format())
            .field("files", &self.files)
            .field("entries", &self.entries())
            .finish()
    }
}

impl Model {
    /// Opens a `.pt` archive or a `.json` graph, distinguished by content. Weights are read when they are used: see
    /// [`Model::files`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, violates its format, or is not a model. The message names the file's format
    /// and says how to make a model in Python. A file that exceeds the default [`Limits`] fails with an error that names the
    /// limit.
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        Model::open_with(path, &Limits::default())
    }

    /// Like [`Model::open`], with other limits for reading and importing.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with(path: impl AsRef<Path>, limits: &Limits) -> Result<Model> {
        Model::open_bytes(path.as_ref(), limits, &ByteSource::open)
    }

    /// Like [`Model::open_with`], but maps the files, so that the system reads weights and they share the memory of its cache.
    /// On the host, processes with one model then have its weights in memory once.
    ///
    /// # Safety
    /// Nobody may cut the files short or write to them as long as the model and its sessions live: the process would end
    /// (SIGBUS on Unix) or compute with other weights. To replace a file, rename a new one over it.
    ///
    /// # Errors
    /// As [`Model::open`].
    #[expect(
        unsafe_code,
        reason = "a mapping is only sound if nobody changes the file, which the caller promises"
    )]
    pub unsafe fn open_mapped(path: impl AsRef<Path>, limits: &Limits) -> Result<Model> {
        // SAFETY: the caller promises that the file does not change.
        Model::open_bytes(path.as_ref(), limits, &|path| unsafe {
            ByteSource::map(path)
        })
    }

    fn open_bytes(path: &Path, limits: &Limits, open: OpenBytes) -> Result<Model> {
        let (model, weights) = match FileKind::of(path)? {
            FileKind::Json => {
                let (module, file) = GraphModule::open_with(path, limits, open)?;
                (Model::from_module(module), file)
            }
            FileKind::TorchScript => {
                let here = || path.display().to_string();
                let container = Container::new(open(path)?, limits).at(here)?;
                (
                    Model::from(Archive::from_container(container).at(here)?),
                    None,
                )
            }
            FileKind::Exported => {
                let here = || path.display().to_string();
                let container = Container::new(open(path)?, limits).at(here)?;
                let program = ExportedProgram::from_container(container).at(here)?;
                (Model::of_program(program), None)
            }
            other => return Err(other.not_a_model(path)),
        };
        let files = [path.to_path_buf()].into_iter().chain(weights);
        Ok(Model {
            files: files.collect(),
            limits: limits.clone(),
            ..model
        })
    }

    /// The files that the model was opened from and keeps open. A session reads them when it compiles, also for new sizes. If
    /// they have been written to since, that is an error; a file that was replaced by renaming is still read. Empty if the
    /// model was made from bytes or graphs.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The limits that the model was opened with. The command line reads the inputs within them, too.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The model with other limits for its inputs.
    pub(crate) fn with_limits(mut self, limits: &Limits) -> Model {
        self.limits = limits.clone();
        self
    }

    /// Opens a model from the bytes of a `.pt` archive.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Model> {
        Model::from_bytes_with(bytes, &Limits::default())
    }

    /// Like [`Model::from_bytes`], with other limits for reading and importing the archive.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes_with(bytes: Vec<u8>, limits: &Limits) -> Result<Model> {
        let container = |bytes| Container::from_bytes(bytes, limits);
        let model = match FileKind::of_bytes(&bytes) {
            FileKind::TorchScript => Model::from(Archive::from_container(container(bytes)?)?),
            FileKind::Exported => {
                Model::of_program(ExportedProgram::from_container(container(bytes)?)?)
            }
            other => return Err(other.bytes_are_no_archive()),
        };
        Ok(Model {
            limits: limits.clone(),
            ..model
        })
    }

    /// Makes a model from graphs.
    pub fn from_module(module: GraphModule) -> Model {
        Model::of_program(module)
    }

    /// Imports graphs and weights for the example inputs in the archive.
    ///
    /// # Errors
    /// Fails if something is not supported; the message lists everything. Fails as well if the archive holds no example
    /// inputs (see [`Model::import_for`]).
    pub fn import(&self) -> Result<GraphModule> {
        self.import_with(&ImportOptions::default())
    }

    /// Imports graphs and weights for example arguments. Dtypes and ranks are fixed, sizes become symbols.
    pub fn import_for(&self, arguments: &[Item]) -> Result<GraphModule> {
        self.import_method("forward", Some(arguments))
    }

    /// Imports the graph of one method and the weights, for example arguments or those that the archive holds.
    pub fn import_method(&self, method: &str, arguments: Option<&[Item]>) -> Result<GraphModule> {
        self.import_method_in_place(method, arguments)?
            .with_loaded_weights()
    }

    /// Imports the graph of `forward` for example arguments, and those of further methods without arguments, which
    /// share weights and states.
    pub fn import_with_methods(
        &self,
        arguments: Option<&[Item]>,
        methods: &[String],
    ) -> Result<GraphModule> {
        self.import_methods_in_place(arguments, methods)?
            .with_loaded_weights()
    }

    /// Like [`Model::import_with_methods`], with weights that are read when they are used.
    pub(crate) fn import_methods_in_place(
        &self,
        arguments: Option<&[Item]>,
        methods: &[String],
    ) -> Result<GraphModule> {
        let forward = EntryMethod {
            inputs: arguments.map(|arguments| arguments.iter().map(InputSpec::from).collect()),
            ..EntryMethod::default()
        };
        let further = methods.iter().map(|method| EntryMethod {
            method: method.clone(),
            inputs: None,
        });
        self.import_in_place(&ImportOptions {
            entries: std::iter::once(forward).chain(further).collect(),
            ..ImportOptions::default()
        })
    }

    /// The program, as its front end read it.
    pub fn program(&self) -> &dyn SourceProgram {
        &*self.program
    }

    /// Names of the entry graphs: the methods that an archive was traced with, or `forward`; the graphs of a module.
    pub fn entries(&self) -> Vec<String> {
        self.program.entries()
    }

    /// The inputs of an entry graph by name. An archive is not imported for this.
    ///
    /// # Errors
    /// Fails if the model has no such entry, or the archive is damaged.
    pub fn signature(&self, entry: &str) -> Result<Signature> {
        self.program.signature(entry)
    }

    /// Imports one method for example arguments or those that the archive holds. Numbers in states are constants of the
    /// graph, except in the states that `varying` names: these numbers become inputs. A model of imported graphs
    /// returns all graphs. Weights are read when they are used.
    fn import_entry(
        &self,
        method: &str,
        arguments: Option<&[Item]>,
        states: &SessionStates,
        varying: &[String],
    ) -> Result<GraphModule> {
        let entry = EntryMethod {
            method: method.to_string(),
            inputs: arguments.map(|arguments| arguments.iter().map(InputSpec::from).collect()),
        };
        self.import_in_place(&ImportOptions {
            entries: vec![entry],
            states: states.example_specs(varying),
            ..ImportOptions::default()
        })
    }

    /// Imports graphs and weights.
    pub fn import_with(&self, options: &ImportOptions) -> Result<GraphModule> {
        self.import_in_place(options)?.with_loaded_weights()
    }

    /// Like [`Model::import_method`], with weights that are read when they are used.
    pub(crate) fn import_method_in_place(
        &self,
        method: &str,
        arguments: Option<&[Item]>,
    ) -> Result<GraphModule> {
        self.import_entry(method, arguments, &SessionStates::default(), &[])
    }

    fn import_in_place(&self, options: &ImportOptions) -> Result<GraphModule> {
        interrupt::check().at(|| "importing".into())?;
        self.program.import(options)
    }

    fn of_program(program: impl SourceProgram + 'static) -> Model {
        Model {
            program: Arc::new(program),
            files: Arc::default(),
            limits: Limits::default(),
        }
    }

    /// Compiles the model for a device. Work that depends on symbolic sizes is done at the first call that determines
    /// them.
    pub fn compile(&self, device: &Device, options: &CompileOptions) -> Result<Session> {
        Session::new(self.clone(), device.clone(), options.clone())
    }
}

impl From<Archive> for Model {
    fn from(archive: Archive) -> Model {
        Model::of_program(archive)
    }
}

/// Error of a call that no graph serves: the reason why the last graph does not, if there is a graph.
fn no_matching_graph(last: Option<Error>) -> Error {
    last.unwrap_or_else(|| Error::input("the model has no graph"))
}
