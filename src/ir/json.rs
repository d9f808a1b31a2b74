//! The JSON form of modules. It has the content of the text form, one node a line, with weights in a safetensors file beside
//! it. [`SCHEMA`] describes the documents.
//!
//! The bytes follow from the module alone, so that files can be compared and diffed. Files of version 1 are read, too: their
//! symbolic sizes were at least 1, which guards say since version 2. A file of a newer version is rejected.

mod document;
mod pretty_print;
mod weights_file;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::budget::{Budget, Limits};
use crate::error::{Error, ErrorContext, ErrorKind, Result};
use crate::files::{self, FolderLock, Output};
use crate::shape::TensorType;
use crate::storage::{ByteRange, ByteSource};
use crate::tensor_file::safetensors;

use super::dictionary::Dictionary;
use super::graph::{GraphModule, Weights};
use super::verify::{require_positive_sizes, verify_module};
use document::{Document, JsonGraph, JsonWeights};
use weights_file::WeightsFile;

/// Value of the `format` field.
pub const FORMAT: &str = "onionskin";

/// The version that is written.
pub const VERSION: u64 = 2;

/// The JSON Schema of documents of this version.
pub const SCHEMA: &str = include_str!("json/onionskin-2.schema.json");

/// Writes a module to a `.json` file, and its weights to a file beside it: a reader finds the old module or the new one, whole.
///
/// The name of the weights file has a digest of its content: `model.json` names `model-0123456789abcdef.safetensors`, so that
/// the file that the old document names stays until no document in the folder names it. A FIFO or a device gets the document
/// alone.
///
/// # Errors
/// The module breaks a rule of the IR, or the files cannot be written.
pub fn save(module: &GraphModule, path: &Path, dictionary: &dyn Dictionary) -> Result<()> {
    verify_module(module, dictionary)?;
    if path
        .extension()
        .is_some_and(|ending| ending == "safetensors")
    {
        let message = format!("{} is the name of a file of weights", path.display());
        return Err(Error::usage(message).help("give the graph a name that ends in .json"));
    }
    let weights = WeightsFile::of(module, path)?;
    let name = weights.as_ref().map_or("", |weights| &weights.name);
    let mut document = Output::new(path)?;
    document.write(print(module, name, dictionary)?.as_bytes())?;
    weights_file::replace(path, document, weights)
}

/// Opens a file of weights.
pub type OpenBytes<'a> = &'a dyn Fn(&Path) -> Result<Arc<ByteSource>>;

/// Reads a module and the name of its weights file, which `open` opens. Weights are read when they are used.
///
/// # Errors
/// The files cannot be read, are of a newer version, exceed a limit, or break a rule of the IR.
pub fn load(
    path: &Path,
    dictionary: &dyn Dictionary,
    limits: &Limits,
    open: OpenBytes,
) -> Result<(GraphModule, Option<PathBuf>)> {
    match load_once(path, dictionary, limits, open) {
        // A save may have removed the weights since the document was read. The lock keeps further ones out.
        Err(error) if error.kind() == ErrorKind::Io => {
            let _lock = FolderLock::shared(files::folder_of(path));
            load_once(path, dictionary, limits, open)
        }
        loaded => loaded,
    }
}

fn load_once(
    path: &Path,
    dictionary: &dyn Dictionary,
    limits: &Limits,
    open: OpenBytes,
) -> Result<(GraphModule, Option<PathBuf>)> {
    let here = || path.display().to_string();
    let budget = Budget::new(limits.clone());
    let text = read_text(path, &budget)?;
    let (mut module, found) = parse(&text, dictionary, &budget).at(here)?;
    let mut weights = None;
    if let Some(found) = found {
        if !weights_file::is_plain_name(&found.file) {
            let message = format!(
                "the weights file {:?} must be a file name in the folder of this file",
                found.file
            );
            return Err(Error::format(message).at(here()));
        }
        let file = path.with_file_name(&found.file);
        module.weights = read_weights(&file, &found.tensors, open, &budget)?;
        weights = Some(file);
    }
    verify_module(&module, dictionary).at(here)?;
    Ok((module, weights))
}

/// Reads a document, whose length is charged before.
fn read_text(path: &Path, budget: &Budget) -> Result<Vec<u8>> {
    let failed = |error| Error::io(path, error);
    let file = files::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    budget
        .charge_bytes(length)
        .at(|| path.display().to_string())?;
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

fn read_weights(
    path: &Path,
    wanted: &BTreeMap<String, TensorType>,
    open: OpenBytes,
    budget: &Budget,
) -> Result<Weights> {
    let found = safetensors::parse_shared(&ByteRange::whole(open(path)?), budget);
    let mut found: Weights = found
        .at(|| path.display().to_string())?
        .into_iter()
        .collect();
    found.retain(|name, _| wanted.contains_key(name));
    match wanted.iter().find(|(name, ty)| {
        found
            .get(*name)
            .is_none_or(|tensor| tensor.tensor_type() != **ty)
    }) {
        Some((name, ty)) => {
            let message = format!("{} holds no weight {name} of type {ty}", path.display());
            Err(Error::format(message).help("keep the two files that were written together"))
        }
        None => Ok(found),
    }
}

/// The JSON document of a module, which names the weights file.
pub fn print(
    module: &GraphModule,
    weights_file: &str,
    dictionary: &dyn Dictionary,
) -> Result<String> {
    let tensors: BTreeMap<String, TensorType> = module
        .weights
        .iter()
        .map(|(name, tensor)| (name.clone(), tensor.tensor_type()))
        .collect();
    let document = Document {
        format: FORMAT.into(),
        version: VERSION,
        weights: (!tensors.is_empty()).then(|| JsonWeights {
            file: weights_file.to_string(),
            parameters: module
                .parameters
                .iter()
                .filter(|name| tensors.contains_key(*name))
                .cloned()
                .collect(),
            tensors,
        }),
        states: module.states.clone(),
        graphs: module
            .graphs
            .iter()
            .map(|graph| JsonGraph::of(graph, dictionary))
            .collect(),
    };
    let json = serde_json::to_value(document);
    let json = json.map_err(|error| Error::internal(error.to_string()))?;
    Ok(pretty_print::text(&json))
}

/// Parses a document: its graphs, and the weights that it needs from which file.
///
/// # Errors
/// The text is not a document, is of a newer version, or exceeds a limit.
pub fn parse(
    text: &[u8],
    dictionary: &dyn Dictionary,
    budget: &Budget,
) -> Result<(GraphModule, Option<JsonWeights>)> {
    budget.charge_json(text)?;
    budget.scope(|| parse_charged(text, dictionary, budget))
}

fn parse_charged(
    text: &[u8],
    dictionary: &dyn Dictionary,
    budget: &Budget,
) -> Result<(GraphModule, Option<JsonWeights>)> {
    // The parser passes the text of an error on. An exceeded budget stays exceeded, and returns the error itself.
    let malformed = |error: serde_json::Error| {
        let exceeded = budget.charge_values(0).err();
        exceeded.unwrap_or_else(|| Error::format(error.to_string()))
    };
    let document: Json = serde_json::from_slice(text).map_err(malformed)?;
    let version = version_of(&document)?;
    let document: Document = serde_json::from_value(document).map_err(malformed)?;
    let none = BTreeMap::new();
    let weights = document
        .weights
        .as_ref()
        .map_or(&none, |weights| &weights.tensors);
    let graphs = document
        .graphs
        .into_iter()
        .map(|graph| {
            let mut graph = graph.build(weights, dictionary)?;
            if version == 1 {
                require_positive_sizes(&mut graph, dictionary);
            }
            Ok(graph)
        })
        .collect::<Result<_>>()?;
    let module = GraphModule {
        graphs,
        weights: Weights::new(),
        parameters: document
            .weights
            .as_ref()
            .map(|weights| weights.parameters.clone())
            .unwrap_or_default(),
        states: document.states,
    };
    Ok((module, document.weights))
}

/// The version of a document.
///
/// # Errors
/// It is not a document, or newer than [`VERSION`].
fn version_of(document: &Json) -> Result<u64> {
    if document.get("format").and_then(Json::as_str) != Some(FORMAT) {
        return Err(
            Error::format(format!("the field \"format\" is not {FORMAT:?}"))
                .help("expected a graph that onionskin wrote, such as by `onionskin import`"),
        );
    }
    let version = document.get("version").and_then(Json::as_u64).unwrap_or(0);
    match version {
        0 => Err(Error::format(
            "the field \"version\" must be an integer of at least 1",
        )),
        1..=VERSION => Ok(version),
        _ => Err(Error::unsupported(format!(
            "version {version} of the format is newer than {VERSION}, the newest known here"
        ))
        .help("use a newer onionskin, or write the file again with this one")),
    }
}
