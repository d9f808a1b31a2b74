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
mod signature;
mod subject;
mod tuning;
mod value_comparison;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::kernel::materialization::Precision;
pub use bisect::{DivergenceSearch, first_divergence};
pub use check::{DeviceReference, check, inspect, inspect_program};
pub use compile_options::CompileOptions;
pub use compiled_graph::CompiledGraph;
pub use device::Device;
pub use input_mismatch::InputMismatch;
pub use oracle_runs::{SearchOptions, SearchProgress};
pub use packed::PackedWeightsReport;
pub use random_input::{InputDistribution, input_distributions, seed_of};
pub use session::Session;
pub use signature::{Signature, SignatureInput};
pub use subject::MethodSubject;
pub use tuning::{Tuning, TuningProgress};
pub use value_comparison::{ComparedValue, ValueComparison, compare_values};
pub use verify::{Culprit, Verification, first_wrong_pass, verify};

use crate::archive::Pickled;
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::ir::{GraphModule, TreeConstant};
use crate::item::Item;
use crate::trace::torchscript::{Archive, EntryMethod, ImportOptions, InputSpec, import};
use session_states::SessionStates;

/// A model: an archive that PyTorch traced or scripted, or an imported graph.
///
/// Clones share the archive and the weights.
#[derive(Clone)]
pub struct Model {
    source: Arc<ModelSource>,
    /// The files that the model was opened from.
    files: Arc<[PathBuf]>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &*self.source {
            ModelSource::Archive(_) => "TorchScript archive",
            ModelSource::Module(_) => "graphs",
        };
        f.debug_struct("Model")
            .field("source", &source)
            .field("files", &self.files)
            .field("entries", &self.entries())
            .finish()
    }
}

enum ModelSource {
    /// Imported for the sizes of a call once they are known.
    Archive(Box<Archive>),
    /// Imported graphs.
    Module(GraphModule),
}

impl Model {
    /// Opens a `.pt` archive or a `.json` graph, distinguished by content. Weights are memory-mapped, not read.
    ///
    /// # Errors
    /// Fails if the file cannot be read, violates its format, or is not a model. The message names the file's format
    /// and says how to make a model in Python.
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        let path = path.as_ref();
        let (source, weights) = match FileKind::of(path)? {
            FileKind::Json => {
                let (module, file) = GraphModule::load_with_file(path)?;
                (ModelSource::Module(module), file)
            }
            FileKind::TorchScript => (ModelSource::Archive(Box::new(Archive::open(path)?)), None),
            other => return Err(other.not_a_model(path)),
        };
        let files = [path.to_path_buf()].into_iter().chain(weights);
        Ok(Model {
            files: files.collect(),
            ..Model::from(source)
        })
    }

    /// The files that the model was opened from and maps. They must not change during the model's lifetime. Empty if
    /// the model was made from bytes or graphs.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Opens a model from the bytes of a `.pt` archive.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Model> {
        let kind = FileKind::of_bytes(&bytes);
        if kind != FileKind::TorchScript {
            return Err(kind.bytes_are_no_archive());
        }
        Ok(Model::from(Archive::from_bytes(bytes)?))
    }

    /// Makes a model from graphs.
    pub fn from_module(module: GraphModule) -> Model {
        Model::from(ModelSource::Module(module))
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
        self.import_entry(method, arguments, &SessionStates::default(), &[])
    }

    /// Imports the graph of `forward` for example arguments, and those of further methods without arguments, which
    /// share weights and states.
    pub fn import_with_methods(
        &self,
        arguments: Option<&[Item]>,
        methods: &[String],
    ) -> Result<GraphModule> {
        let forward = EntryMethod {
            inputs: arguments.map(|arguments| arguments.iter().map(example_spec).collect()),
            ..EntryMethod::default()
        };
        let further = methods.iter().map(|method| EntryMethod {
            method: method.clone(),
            inputs: None,
        });
        self.import_with(&ImportOptions {
            entries: std::iter::once(forward).chain(further).collect(),
            ..ImportOptions::default()
        })
    }

    /// Names of the entry graphs: the methods that an archive was traced with, or `forward`; the graphs of a module.
    pub fn entries(&self) -> Vec<String> {
        let archive = match &*self.source {
            ModelSource::Archive(archive) => archive,
            ModelSource::Module(module) => {
                return module.graphs.iter().map(|g| g.name.clone()).collect();
            }
        };
        let traced = archive.traced_inputs().and_then(Pickled::as_dict);
        let names = traced.iter().flat_map(|dict| &dict.entries);
        let names: Vec<String> = names
            .filter_map(|(name, _)| Some(name.as_str()?.to_string()))
            .collect();
        if names.is_empty() {
            vec!["forward".to_string()]
        } else {
            names
        }
    }

    /// The archive, if the model was made from one.
    pub fn archive(&self) -> Option<&Archive> {
        match &*self.source {
            ModelSource::Archive(archive) => Some(archive),
            ModelSource::Module(_) => None,
        }
    }

    /// Imports one method for example arguments or those that the archive holds. Numbers in states are constants of the
    /// graph, except in the states that `varying` names: these numbers become inputs. A model of imported graphs
    /// returns all graphs.
    fn import_entry(
        &self,
        method: &str,
        arguments: Option<&[Item]>,
        states: &SessionStates,
        varying: &[String],
    ) -> Result<GraphModule> {
        let entry = EntryMethod {
            method: method.to_string(),
            inputs: arguments.map(|arguments| arguments.iter().map(example_spec).collect()),
        };
        self.import_with(&ImportOptions {
            entries: vec![entry],
            states: states.example_specs(varying),
            ..ImportOptions::default()
        })
    }

    /// Imports graphs and weights.
    pub fn import_with(&self, options: &ImportOptions) -> Result<GraphModule> {
        match &*self.source {
            ModelSource::Archive(archive) => import(archive, options),
            ModelSource::Module(module) => Ok(module.clone()),
        }
    }

    /// True if the model is an archive, so that the graph can be imported again for other sizes.
    fn can_reimport(&self) -> bool {
        matches!(*self.source, ModelSource::Archive(_))
    }

    /// Compiles the model for a device. Work that depends on symbolic sizes is done at the first call that determines
    /// them.
    pub fn compile(&self, device: &Device, options: &CompileOptions) -> Result<Session> {
        Session::new(self.clone(), device.clone(), options.clone())
    }
}

impl From<Archive> for Model {
    fn from(archive: Archive) -> Model {
        Model::from(ModelSource::Archive(Box::new(archive)))
    }
}

impl From<ModelSource> for Model {
    fn from(source: ModelSource) -> Model {
        Model {
            source: Arc::new(source),
            files: Arc::default(),
        }
    }
}

/// Specification of an example input for an argument.
fn example_spec(argument: &Item) -> InputSpec {
    let specs = |items: &[Item]| items.iter().map(example_spec).collect();
    match argument {
        Item::Tensor(tensor) => InputSpec::from(tensor),
        Item::Number(number) => InputSpec::Constant(TreeConstant::Number(*number)),
        Item::Str(text) => InputSpec::Constant(TreeConstant::Str(text.clone())),
        Item::None => InputSpec::Constant(TreeConstant::None),
        Item::Tuple(items) => InputSpec::Tuple(specs(items)),
        Item::List(items) => InputSpec::List(specs(items)),
        Item::Dict(items) => InputSpec::Dict(
            items
                .iter()
                .map(|(key, item)| (key.clone(), example_spec(item)))
                .collect(),
        ),
    }
}

/// Error of a call that no graph serves: the reason why the last graph does not, if there is a graph.
fn no_matching_graph(last: Option<Error>) -> Error {
    last.unwrap_or_else(|| Error::input("the model has no graph"))
}
