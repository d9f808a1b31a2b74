//! An archive: the root module, the program, and the tensors that both refer to.

use std::path::Path;
use std::sync::Arc;

use crate::archive::{Container, Pickled, TensorRecord};
use crate::budget::Limits;
use crate::error::{Error, ErrorContext, Result};
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::trace::torchscript::source::ArchiveSource;

/// An archive that `torch.jit.save` wrote.
///
/// Opening reads the pickles only. Source files are parsed and tensors are read on first use.
#[derive(Debug)]
pub struct Archive {
    container: Arc<Container>,
    source: ArchiveSource,
    root: Pickled,
    constants: Vec<Pickled>,
    traced_inputs: Option<Pickled>,
    version: u32,
}

impl Archive {
    /// Opens a file. Weights are read when they are used.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_with(path, &Limits::default())
    }

    /// Like [`Archive::open`], with other limits for opening and import.
    pub fn open_with(path: impl AsRef<Path>, limits: &Limits) -> Result<Archive> {
        let path = path.as_ref();
        let container = Container::open(path, limits)?;
        Archive::from_container(container).at(|| path.display().to_string())
    }

    /// Opens an archive in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Archive> {
        Archive::from_bytes_with(bytes, &Limits::default())
    }

    /// Like [`Archive::from_bytes`], with other limits for opening and import.
    pub fn from_bytes_with(bytes: Vec<u8>, limits: &Limits) -> Result<Archive> {
        Archive::from_container(Container::from_bytes(bytes, limits)?)
    }

    /// Opens the archive in a ZIP file that is open already.
    pub fn from_container(container: Container) -> Result<Archive> {
        check_kind(&container)?;
        let container = Arc::new(container);
        let constants = match container.contains("constants.pkl") {
            true => constants(&container)?,
            false => Vec::new(),
        };
        Ok(Archive {
            source: ArchiveSource::new(container.clone()),
            root: container.pickle("data")?,
            constants,
            // Traced inputs are hints, and may hold values that no importer needs to understand.
            traced_inputs: container.pickle("traced_inputs").ok(),
            version: version(&container)?,
            container,
        })
    }

    /// The root module with all its attributes.
    pub fn root(&self) -> &Pickled {
        &self.root
    }

    /// The constants that the source calls `CONSTANTS.c0`, `CONSTANTS.c1` and so on.
    pub fn constants(&self) -> &[Pickled] {
        &self.constants
    }

    /// The program.
    pub fn source(&self) -> &ArchiveSource {
        &self.source
    }

    /// The inputs that a module was traced with: a dict from method name to a list of arguments. Their tensors have
    /// types but no data.
    pub fn traced_inputs(&self) -> Option<&Pickled> {
        self.traced_inputs.as_ref()
    }

    /// Types of the tensors that a method was traced with, in order, including those within tuples, lists and dicts.
    pub fn traced_input_types(&self, method: &str) -> Option<Vec<TensorType>> {
        let mut types = Vec::new();
        collect_types(self.traced_inputs()?.as_dict()?.get(method)?, &mut types);
        Some(types)
    }

    /// Reads a tensor of the archive.
    ///
    /// # Errors
    /// The archive has no such tensor.
    pub fn tensor(&self, record: &TensorRecord) -> Result<Tensor> {
        record.read(&self.container, &self.container.new_budget())
    }

    /// Version of the file format: the lowest that has all the operators used, at least 1.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The ZIP file.
    pub fn container(&self) -> &Container {
        &self.container
    }
}

/// Rejects other files of PyTorch, and files of another byte order.
fn check_kind(container: &Container) -> Result<()> {
    if !container.contains("data.pkl") {
        return Err(Error::format(
            "not a TorchScript archive: there is no data.pkl",
        ));
    }
    if !container.names().any(|name| name.starts_with("code/")) {
        return Err(Error::format(
            "not a TorchScript archive: it has no code/ folder (tensors only? load them as weights)",
        ));
    }
    container.check_byte_order()
}

/// Reads the constants of the program.
fn constants(container: &Container) -> Result<Vec<Pickled>> {
    let constants = container.pickle("constants")?;
    let items = constants.as_items().map(<[Pickled]>::to_vec);
    items.ok_or_else(|| Error::format("constants.pkl does not hold a tuple"))
}

/// Reads the version of the file format.
fn version(container: &Container) -> Result<u32> {
    let has_data_folder = container.contains(".data/version");
    let text = container.text(if has_data_folder {
        ".data/version"
    } else {
        "version"
    })?;
    let number = text.trim().parse().ok().filter(|version| *version > 0);
    number.ok_or_else(|| Error::format(format!("{text:?} is not a version number")))
}

/// Appends the types of the tensors in a value.
fn collect_types(value: &Pickled, types: &mut Vec<TensorType>) {
    match value {
        Pickled::Tensor(record) => types.push(record.tensor_type()),
        Pickled::Tuple(items) => items.iter().for_each(|item| collect_types(item, types)),
        Pickled::List(list) => list
            .items
            .iter()
            .for_each(|item| collect_types(item, types)),
        Pickled::Dict(dict) => {
            let values = dict.entries.iter().map(|(_, value)| value);
            values.for_each(|value| collect_types(value, types));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorStorage;

    fn fixture(name: &str) -> Result<Archive> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/archives");
        Archive::open(Path::new(folder).join(name))
    }

    fn attribute<'a>(module: &'a Pickled, path: &str) -> &'a Pickled {
        path.split('.').fold(module, |value, name| {
            value
                .as_object()
                .and_then(|object| object.get(name))
                .unwrap()
        })
    }

    #[test]
    fn opens_a_traced_archive() {
        let archive = fixture("two_layers.pt").unwrap();
        assert_eq!(
            &*archive.root().as_object().unwrap().class,
            "__torch__.TwoLayers"
        );
        assert!(archive.version() >= 1);
        let types = archive.traced_input_types("forward").unwrap();
        assert_eq!(
            types.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["f32[2, 4]"]
        );
        let constant = archive.constants()[0].as_tensor().unwrap();
        assert_eq!(archive.tensor(constant).unwrap().to_f64(), [0.5]);
    }

    #[test]
    fn strided_and_tied_weights() {
        let archive = fixture("two_layers.pt").unwrap();
        let record = |path| attribute(archive.root(), path).as_tensor().unwrap();
        let weight = record("first.weight");
        assert!(!weight.is_contiguous());
        let expected = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11];
        assert_eq!(archive.tensor(weight).unwrap().to_i64(), expected);
        assert_eq!(record("second.weight"), record("tied.weight"));
        let bias = archive.tensor(record("first.bias")).unwrap();
        let stored = archive.container().record("data/2").unwrap();
        assert_eq!(bias.bytes(), stored.bytes());
        assert_eq!(
            archive.tensor(record("offset")).unwrap().to_f64(),
            [1.0, 1.0]
        );
    }

    #[test]
    fn opens_a_scripted_archive() {
        let archive = fixture("scripted.pt").unwrap();
        let names = attribute(archive.root(), "names");
        assert!(
            matches!(names, Pickled::List(list) if list.type_tag.as_deref() == Some("List[str]"))
        );
        let table = attribute(archive.root(), "table").as_dict().unwrap();
        assert_eq!(table.get("b").and_then(Pickled::as_int), Some(-70000));
        assert_eq!(archive.constants()[0].as_str(), Some("é"));
        let color = attribute(archive.root(), "color").as_object().unwrap();
        assert_eq!(&*color.class, "__torch__.Color");
        assert_eq!(color.get("value").and_then(Pickled::as_int), Some(2));
        assert!(archive.traced_inputs().is_none());
        assert!(
            attribute(archive.root(), "layers.0.weight")
                .as_tensor()
                .is_some()
        );
    }

    #[test]
    fn other_pytorch_files_are_rejected() {
        let error = fixture("state_dict.pt").err().unwrap();
        assert_eq!(
            error.message(),
            "not a TorchScript archive: it has no code/ folder (tensors only? load them as weights)"
        );
    }
}
