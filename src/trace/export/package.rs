//! The files of a package: documents of programs, and their tensors.
//!
//! There are three layouts. PyTorch 2.1 to 2.7 write one document, `serialized_exported_program.json`, and tensors as
//! `torch.save` archives within the ZIP file (2.1 has its constants in the document); 2.8 writes `models/NAME.json` and such
//! archives in `data/`; later ones write raw records in `data/`, with a document that says which tensor is in which.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::codes;
use super::schema::{
    Payload, PayloadConfig, SchemaVersion, SerializedProgram, Symbolic, TensorMeta, early,
};
use crate::archive::{Container, Pickled, TensorRecord};
use crate::budget::Budget;
use crate::error::{Error, ErrorContext, Result};
use crate::storage::ByteRange;
use crate::tensor::{Tensor, TensorStorage};

/// The document of the layout of PyTorch 2.1 to 2.7.
const FLAT_DOCUMENT: &str = "serialized_exported_program.json";
/// The `torch.save` archives of the flat layout; PyTorch 2.1 and 2.2 give them the ending of documents.
const FLAT_ARCHIVES: [&str; 4] = [
    "serialized_state_dict.pt",
    "serialized_constants.pt",
    EARLY_WEIGHTS,
    "serialized_constants.json",
];
/// The weights in the layout of PyTorch 2.1 and 2.2.
const EARLY_WEIGHTS: &str = "serialized_state_dict.json";
/// Folder of the archives of constants, which PyTorch 2.1 has in its document.
const CONSTANTS: &str = "constants/";
/// The major versions of the schema that are read here: 1 and 2 are those of PyTorch 2.1 and 2.2, 5 that of 2.3, 7 that of 2.5, 8 that of
/// later releases, 0 that of PyTorch's own tests.
const SCHEMA_VERSIONS: [u64; 7] = [0, 1, 2, 5, 6, 7, 8];

/// A file of `torch.export.save`.
#[derive(Debug)]
pub struct Package {
    container: Container,
    /// `torch.save` archives among its records, by name.
    nested: BTreeMap<String, Container>,
}

/// The tensors of a program by the path of the parameter, buffer or constant.
pub type TensorRecords = BTreeMap<String, Pickled>;

impl Package {
    /// Opens the package in a ZIP file.
    ///
    /// # Errors
    /// The file is of another kind, or is big-endian.
    pub fn open(container: Container) -> Result<Package> {
        check_kind(&container)?;
        container.check_byte_order()?;
        let mut package = Package {
            container,
            nested: BTreeMap::new(),
        };
        for name in package.archives() {
            let nested = package.container.nested(&name)?;
            package.nested.insert(name, nested);
        }
        if package.has_early_layout() {
            package.open_constants()?;
        }
        Ok(package)
    }

    /// The ZIP file.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Names of the programs. A flat package has one, `model`.
    pub fn programs(&self) -> Vec<String> {
        if self.is_flat() {
            return vec!["model".to_string()];
        }
        let names = self.container.names().filter_map(program_name);
        names.map(str::to_string).collect()
    }

    /// Reads the document of a program.
    ///
    /// # Errors
    /// It is damaged, or of a version that is not supported.
    pub fn program(&self, name: &str) -> Result<SerializedProgram> {
        let record = self.document(name);
        if self.has_early_layout() {
            return self.early_program();
        }
        let text = self.charged(&record)?;
        check_version(parse(&record, &text)?)?;
        parse(&record, &text)
    }

    /// Name of the record with the document of a program.
    pub fn document(&self, program: &str) -> String {
        match self.is_flat() {
            true => FLAT_DOCUMENT.to_string(),
            false => format!("models/{program}.json"),
        }
    }

    /// The parameters and buffers of a program, and its constants.
    ///
    /// # Errors
    /// A document is damaged.
    pub fn tensors(&self, program: &str) -> Result<TensorRecords> {
        if self.is_flat() {
            return self.flat_tensors();
        }
        let mut records = TensorRecords::new();
        for folder in ["weights", "constants"] {
            let archive = format!("data/{folder}/{program}.pt");
            let config = format!("data/{folder}/{program}_{folder}_config.json");
            if self.nested.contains_key(&archive) {
                records.extend(self.archived(&archive)?);
            } else if self.container.contains(&config) {
                let config: PayloadConfig = self.json(&config)?;
                for (path, payload) in config.config {
                    let value = self.payload(folder, &path, &payload)?;
                    records.insert(path, value);
                }
            }
        }
        Ok(records)
    }

    /// The tensors of the flat layout.
    fn flat_tensors(&self) -> Result<TensorRecords> {
        let mut records = TensorRecords::new();
        for (name, container) in &self.nested {
            match name.strip_prefix(CONSTANTS) {
                None => records.extend(self.archived(name)?),
                Some(constant) => {
                    let value = container.pickle("data").at(|| name.clone())?;
                    records.insert(constant.to_string(), within(name, value));
                }
            }
        }
        Ok(records)
    }

    /// Opens a tensor of the package, which may be read when it is used.
    ///
    /// # Errors
    /// There is no such record, or it is too short.
    pub fn open_tensor(&self, record: &TensorRecord, budget: &Budget) -> Result<Tensor> {
        let mut nested = self.nested.iter();
        let within = nested.find_map(|(name, container)| {
            let rest = record.storage.strip_prefix(name.as_str())?;
            Some((container, rest.strip_prefix('/')?))
        });
        match within {
            None => record.open(&self.container, budget),
            Some((container, storage)) => {
                let record = TensorRecord {
                    storage: storage.into(),
                    ..record.clone()
                };
                record.open(container, budget)
            }
        }
    }

    /// Reads the document of PyTorch 2.1 or 2.2, which is charged to the budget when the package is opened.
    fn early_program(&self) -> Result<SerializedProgram> {
        let document = parse(FLAT_DOCUMENT, &self.container.record(FLAT_DOCUMENT)?)?;
        let document = early::upgrade(document).at(|| FLAT_DOCUMENT.to_string())?;
        let program = serde_json::from_value(document);
        program.map_err(|error| Error::format(format!("{FLAT_DOCUMENT}: {error}")))
    }

    /// Opens the constants in the document of PyTorch 2.1 as archives called `constants/NAME`.
    fn open_constants(&mut self) -> Result<()> {
        let document = self.json(FLAT_DOCUMENT)?;
        let constants = early::constants(&document).at(|| FLAT_DOCUMENT.to_string())?;
        for (name, bytes) in constants {
            let constant = self
                .container
                .nested_bytes(bytes)
                .at(|| format!("constant {name}"))?;
            self.nested.insert(format!("{CONSTANTS}{name}"), constant);
        }
        Ok(())
    }

    fn has_early_layout(&self) -> bool {
        self.container.contains(EARLY_WEIGHTS)
    }

    fn is_flat(&self) -> bool {
        self.container.contains(FLAT_DOCUMENT)
    }

    /// Records that are `torch.save` archives with weights or constants.
    fn archives(&self) -> Vec<String> {
        let names = self.container.names().filter(|name| {
            let is_payload =
                name.starts_with("data/weights/") || name.starts_with("data/constants/");
            match self.is_flat() {
                true => FLAT_ARCHIVES.contains(name),
                false => is_payload && name.ends_with(".pt"),
            }
        });
        names.map(str::to_string).collect()
    }

    /// The values of a `torch.save` archive within the package, by key.
    fn archived(&self, name: &str) -> Result<TensorRecords> {
        let Some(container) = self.nested.get(name) else {
            return Ok(TensorRecords::new());
        };
        let value = container.pickle("data").at(|| name.to_string())?;
        let entries = value.as_dict().map_or(&[][..], |dict| &dict.entries);
        let values = entries.iter().filter_map(|(key, value)| {
            let path = early::weight_name(key.as_str()?);
            Some((path.to_string(), within(name, value.clone())))
        });
        Ok(values.collect())
    }

    /// The tensor of a payload. Only programs that read one of another kind are refused.
    fn payload(&self, folder: &str, path: &str, payload: &Payload) -> Result<Pickled> {
        let Some(meta) = payload.tensor_meta.as_ref().filter(|_| !payload.use_pickle) else {
            let what = "a tensor of a subclass: call torchao.utils.unwrap_tensor_subclass(model) before the export";
            return Ok(Pickled::Unsupported(what.into()));
        };
        let storage = format!("data/{folder}/{}", payload.path_name);
        match tensor_record(storage, meta) {
            Ok(record) => Ok(Pickled::Tensor(Arc::new(record))),
            Err(error) if error.kind() == crate::error::ErrorKind::Unsupported => {
                Ok(Pickled::Unsupported(error.message().into()))
            }
            Err(error) => Err(error).at(|| path.to_string()),
        }
    }

    /// Reads a JSON record within the budget.
    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        parse(name, &self.charged(name)?)
    }

    /// The text of a JSON record, charged to the budget.
    fn charged(&self, name: &str) -> Result<ByteRange> {
        let text = self.container.record(name)?;
        let charged = self.container.budget().charge_json(text.bytes());
        charged.at(|| name.to_string())?;
        Ok(text)
    }
}

fn parse<T: DeserializeOwned>(name: &str, text: &ByteRange) -> Result<T> {
    let parsed = serde_json::from_slice(text.bytes());
    parsed.map_err(|error| Error::format(format!("{name}: {error}")))
}

/// A value of a `torch.save` archive within the package: the storage of a tensor has the name of the archive.
fn within(archive: &str, value: Pickled) -> Pickled {
    match value {
        Pickled::Tensor(record) => Pickled::Tensor(Arc::new(TensorRecord {
            storage: format!("{archive}/{}", record.storage).into(),
            ..record.as_ref().clone()
        })),
        other => other,
    }
}

/// The version of a document. The rest may have another form.
#[derive(serde::Deserialize)]
struct VersionOnly {
    #[serde(default)]
    schema_version: Option<SchemaVersion>,
    #[serde(default)]
    torch_version: Option<String>,
}

/// Refuses documents of other versions.
fn check_version(document: VersionOnly) -> Result<()> {
    let version = document.schema_version;
    if version.is_some_and(|version| SCHEMA_VERSIONS.contains(&version.major)) {
        return Ok(());
    }
    let version = version.map_or("an unknown version".to_string(), |version| {
        format!("version {}.{}", version.major, version.minor)
    });
    let writer = document
        .torch_version
        .unwrap_or_else(|| "2.2 or older".to_string());
    let message = format!(
        "the program has {version} of the schema of torch.export, as PyTorch {writer} writes it"
    );
    let help =
        "versions 1, 2 and 5 to 8 are supported: export the module again with PyTorch 2.3 or newer";
    Err(Error::unsupported(message).help(help))
}

/// The program of a document's record, `models/NAME.json`.
fn program_name(record: &str) -> Option<&str> {
    let name = record.strip_prefix("models/")?.strip_suffix(".json")?;
    (!name.contains('/')).then_some(name)
}

/// Refuses packages that hold compiled code and no graph.
fn check_kind(container: &Container) -> Result<()> {
    let has = |prefix: &str| container.names().any(|name| name.starts_with(prefix));
    if container.contains(FLAT_DOCUMENT)
        || container.names().any(|name| program_name(name).is_some())
    {
        return Ok(());
    }
    let (what, help) = if has("data/aotinductor/") {
        (
            "a package of AOTInductor: machine code for one device, without a graph",
            "save the program before it is compiled: torch.export.save(torch.export.export(model, args), \"model.pt2\")",
        )
    } else if has("data/executorch/") {
        (
            "a package of ExecuTorch, without a graph of PyTorch",
            "save the program before it is lowered: torch.export.save(torch.export.export(model, args), \"model.pt2\")",
        )
    } else {
        (
            "not a file of torch.export: it has no models/*.json",
            "write one: torch.export.save(torch.export.export(model, args), \"model.pt2\")",
        )
    };
    Err(Error::unsupported(what).help(help))
}

/// A record from its metadata.
fn tensor_record(storage: String, meta: &TensorMeta) -> Result<TensorRecord> {
    let number = |size: &Symbolic<i64>| match size {
        Symbolic::Known(size) => usize::try_from(*size)
            .map_err(|_| Error::format(format!("{storage} has a negative size or stride, {size}"))),
        _ => Err(Error::format(format!("{storage} has a symbolic size"))),
    };
    let numbers =
        |sizes: &[Symbolic<i64>]| sizes.iter().map(number).collect::<Result<Vec<usize>>>();
    Ok(TensorRecord {
        storage_numel: 0,
        dtype: codes::dtype(meta.dtype)?,
        offset: meta.storage_offset.as_ref().map_or(Ok(0), number)?,
        sizes: numbers(&meta.sizes)?,
        strides: numbers(&meta.strides)?,
        storage: storage.clone().into(),
    })
}
