//! Recorded cases: an archive, inputs, PyTorch's outputs and tolerances. `examples/record.py` writes them.
//!
//! A folder of cases holds `ops/*.zip`, `programs/*.zip` and `models/NAME/`, or is one of these. `case.json` describes a
//! case; safetensors files beside it hold its tensors. A `model.pt2` is a case of its own beside that of `model.pt`.

mod gradients;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::archive::inflate;
use crate::budget::Budget;
use crate::compare::Tolerance;
use crate::error::{Error, ErrorContext, Result};
use crate::files;
use crate::item::Item;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor_file::safetensors;

pub use gradients::{CallGradients, GradientCall, RecordedGradient};

/// The kind of a recorded case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CaseKind {
    /// One call of an operator.
    Operator,
    /// A small program.
    Program,
    /// A network.
    Model,
    /// Any of these, as `torch.export` writes it.
    Export,
}

impl CaseKind {
    /// Singular name for reports.
    pub fn singular(self) -> &'static str {
        match self {
            CaseKind::Operator => "op",
            CaseKind::Program => "program",
            CaseKind::Model => "model",
            CaseKind::Export => "export",
        }
    }

    /// Name of the folder for cases of this kind.
    pub fn name(self) -> &'static str {
        match self {
            CaseKind::Operator => "ops",
            CaseKind::Program => "programs",
            CaseKind::Model => "models",
            CaseKind::Export => "exports",
        }
    }

    /// Name of the file with the program.
    fn program_file(self) -> &'static str {
        match self {
            CaseKind::Export => "model.pt2",
            _ => "model.pt",
        }
    }
}

/// The location of a stored case.
#[derive(Clone, Debug)]
pub struct CaseRef {
    /// `models/lenet5`, `ops/gelu/3`
    pub name: String,
    /// The kind of the case.
    pub kind: CaseKind,
    location: CaseLocation,
}

#[derive(Clone, Debug)]
enum CaseLocation {
    Folder(PathBuf),
    /// A zip file and the folder in it, which ends in `/` unless it is empty.
    Zip(PathBuf, String),
}

/// A case in memory.
#[derive(Debug)]
pub struct Case {
    /// The archive's bytes or path.
    pub archive: CaseArchive,
    /// Sets of calls; sets are independent of each other.
    pub sets: Vec<CaseSet>,
}

/// The archive of a case.
#[derive(Clone, Debug)]
pub enum CaseArchive {
    /// A file.
    Path(PathBuf),
    /// The bytes of an archive inside a zip file.
    Bytes(Arc<Vec<u8>>),
}

/// Calls on one instance of the model, in order.
#[derive(Debug)]
pub struct CaseSet {
    /// A short description of the set.
    pub label: String,
    /// Methods without arguments to call first.
    pub before: Vec<String>,
    /// The calls.
    pub calls: Vec<Call>,
    /// Tolerance of the outputs.
    pub tolerance: Tolerance,
}

/// A call and its result.
#[derive(Debug)]
pub struct Call {
    /// `forward`, usually.
    pub method: String,
    /// Arguments.
    pub inputs: Vec<Item>,
    /// PyTorch's result.
    pub output: Item,
}

/// All cases below a folder, in order of their names.
pub fn find(folder: &Path) -> Result<Vec<CaseRef>> {
    let mut found = Vec::new();
    if folder.join("case.json").is_file() {
        for kind in [CaseKind::Model, CaseKind::Export] {
            if folder.join(kind.program_file()).is_file() {
                found.push(CaseRef {
                    name: in_kind(kind, folder),
                    kind,
                    location: CaseLocation::Folder(folder.into()),
                });
            }
        }
    } else if folder.is_file() {
        find_in_zip(folder, &mut found)?;
    } else {
        for entry in sorted_entries(folder)? {
            if entry.is_dir() {
                found.extend(find(&entry)?);
            } else if entry
                .extension()
                .is_some_and(|extension| extension == "zip")
            {
                find_in_zip(&entry, &mut found)?;
            }
        }
    }
    Ok(found)
}

fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::io(folder, error))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    Ok(paths)
}

fn in_kind(kind: CaseKind, path: &Path) -> String {
    format!(
        "{}/{}",
        kind.name(),
        path.file_stem().unwrap_or_default().to_string_lossy()
    )
}

/// A program has its `case.json` at the top of the zip file; an operator has one in a folder for each call.
fn find_in_zip(path: &Path, found: &mut Vec<CaseRef>) -> Result<()> {
    let zip = open_zip(path)?;
    let mut folders: Vec<&str> = zip
        .file_names()
        .filter_map(|name| name.strip_suffix("case.json"))
        .collect();
    folders.sort_by_key(|folder| (folder.len(), *folder));
    for folder in folders {
        let (kind, suffix) = match folder.strip_suffix('/') {
            None => (CaseKind::Program, String::new()),
            Some(number) => (CaseKind::Operator, format!("/{number}")),
        };
        for kind in [kind, CaseKind::Export] {
            let file = format!("{folder}{}", kind.program_file());
            if zip.index_for_name(&file).is_some() {
                found.push(CaseRef {
                    name: in_kind(kind, path) + &suffix,
                    kind,
                    location: CaseLocation::Zip(path.into(), folder.to_string()),
                });
            }
        }
    }
    Ok(())
}

type Zip = zip::ZipArchive<std::fs::File>;

fn open_zip(path: &Path) -> Result<Zip> {
    let file = files::open(path).map_err(|error| Error::io(path, error))?;
    zip::ZipArchive::new(file)
        .map_err(|error| Error::format(format!("{}: {error}", path.display())))
}

impl CaseRef {
    /// Reads the case.
    pub fn load(&self) -> Result<Case> {
        self.try_load().at(|| self.name.clone())
    }

    fn try_load(&self) -> Result<Case> {
        let description: Json =
            serde_json::from_slice(&self.read("case.json")?).map_err(bad_json)?;
        let sets = match description.get("sets").and_then(Json::as_array) {
            Some(sets) => sets
                .iter()
                .take(self.set_count(&description))
                .map(|set| self.set(set))
                .collect::<Result<_>>()?,
            None => vec![self.operator_set(&description)?],
        };
        let file = self.kind.program_file();
        let archive = match &self.location {
            CaseLocation::Folder(folder) => CaseArchive::Path(folder.join(file)),
            CaseLocation::Zip(..) => CaseArchive::Bytes(Arc::new(self.read(file)?)),
        };
        Ok(Case { archive, sets })
    }

    /// Number of sets that the program takes: an exported one has the sizes of the first baked in, unless the case says that it
    /// is dynamic.
    fn set_count(&self, description: &Json) -> usize {
        let is_dynamic = description
            .get("pt2")
            .and_then(|export| export.get("dynamic"))
            .and_then(Json::as_bool);
        match self.kind == CaseKind::Export && is_dynamic != Some(true) {
            true => 1,
            false => usize::MAX,
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        match &self.location {
            CaseLocation::Folder(folder) => {
                files::read(&folder.join(name)).map_err(|error| Error::io(folder.join(name), error))
            }
            CaseLocation::Zip(path, folder) => {
                let mut zip = open_zip(path)?;
                let inside = format!("{folder}{name}");
                let entry = zip
                    .by_name(&inside)
                    .map_err(|error| Error::format(format!("{inside}: {error}")))?;
                inflate(entry, &Budget::default()).at(|| inside.clone())
            }
        }
    }

    /// The case of an operator lists the types of inputs and outputs; its tensors are `in0` …, `out0` ….
    fn operator_set(&self, description: &Json) -> Result<CaseSet> {
        let tensors = safetensors::parse(&self.read("io.safetensors")?)?;
        let count = |key: &str| {
            description
                .get(key)
                .and_then(Json::as_array)
                .map_or(0, Vec::len)
        };
        let list = |prefix: &str, count: usize| {
            (0..count)
                .map(|index| named(&tensors, &format!("{prefix}{index}")))
                .collect::<Result<Vec<Item>>>()
        };
        let mut outputs = list("out", count("outputs"))?;
        let output = if outputs.len() == 1 {
            outputs.remove(0)
        } else {
            Item::Tuple(outputs)
        };
        let call = Call {
            method: "forward".into(),
            inputs: list("in", count("inputs"))?,
            output,
        };
        Ok(CaseSet {
            label: String::new(),
            before: Vec::new(),
            calls: vec![call],
            tolerance: tolerance(description)?,
        })
    }

    fn set(&self, set: &Json) -> Result<CaseSet> {
        let text = |key: &str| {
            set.get(key)
                .and_then(Json::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let tensors = safetensors::parse(&self.read(&text("file"))?)?;
        let before = set
            .get("calls_before")
            .and_then(Json::as_array)
            .into_iter()
            .flatten();
        let calls = match set.get("calls").and_then(Json::as_array) {
            Some(calls) => calls
                .iter()
                .map(|call| parse_call(call, &tensors))
                .collect::<Result<_>>()?,
            None => vec![parse_call(set, &tensors)?],
        };
        Ok(CaseSet {
            label: text("label"),
            before: before
                .filter_map(Json::as_str)
                .map(str::to_string)
                .collect(),
            calls,
            tolerance: tolerance(set)?,
        })
    }
}

fn bad_json(error: serde_json::Error) -> Error {
    Error::format(format!("case.json: {error}"))
}

fn tolerance(json: &Json) -> Result<Tolerance> {
    let number = |key: &str| {
        json.get(key)
            .and_then(Json::as_f64)
            .ok_or_else(|| Error::format(format!("case.json: {key} is missing")))
    };
    Ok(Tolerance {
        rtol: number("rtol")?,
        atol: number("atol")?,
    })
}

fn parse_call(json: &Json, tensors: &[(String, Tensor)]) -> Result<Call> {
    let inputs = json
        .get("inputs")
        .and_then(Json::as_array)
        .into_iter()
        .flatten();
    let output = json
        .get("output")
        .ok_or_else(|| Error::format("case.json: a set has no output"))?;
    Ok(Call {
        method: json
            .get("method")
            .and_then(Json::as_str)
            .unwrap_or("forward")
            .to_string(),
        inputs: inputs
            .map(|value| parse_value(value, tensors))
            .collect::<Result<_>>()?,
        output: parse_value(output, tensors)?,
    })
}

fn named(tensors: &[(String, Tensor)], name: &str) -> Result<Item> {
    let found = tensors.iter().find(|(key, _)| key == name);
    found
        .map(|(_, tensor)| Item::Tensor(tensor.clone()))
        .ok_or_else(|| Error::format(format!("there is no tensor {name}")))
}

/// Parses a value: an object whose only key names its type.
fn parse_value(json: &Json, tensors: &[(String, Tensor)]) -> Result<Item> {
    let bad = || Error::format(format!("case.json: {json} is not a valid value"));
    let (kind, content) = json
        .as_object()
        .and_then(|object| object.iter().next())
        .ok_or_else(bad)?;
    let list = || {
        let items = content.as_array().ok_or_else(bad)?;
        items
            .iter()
            .map(|item| parse_value(item, tensors))
            .collect::<Result<Vec<Item>>>()
    };
    Ok(match kind.as_str() {
        "tensor" => named(tensors, content.as_str().ok_or_else(bad)?)?,
        "int" => Item::Number(Scalar::Int(content.as_i64().ok_or_else(bad)?)),
        "float" => Item::Number(Scalar::Float(parse_float(content).ok_or_else(bad)?)),
        "bool" => Item::Number(Scalar::Bool(content.as_bool().ok_or_else(bad)?)),
        "str" => Item::Str(content.as_str().ok_or_else(bad)?.to_string()),
        "none" => Item::None,
        "tuple" => Item::Tuple(list()?),
        "list" => Item::List(list()?),
        "dict" => {
            let entries = content.as_object().ok_or_else(bad)?;
            let entries = entries
                .iter()
                .map(|(key, item)| Ok((key.clone(), parse_value(item, tensors)?)));
            Item::Dict(entries.collect::<Result<_>>()?)
        }
        _ => return Err(bad()),
    })
}

fn parse_float(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| json.as_str()?.parse().ok())
}
