//! Errors for files of the wrong kind, with Python code that produces the right kind.

use std::path::Path;

use super::FileKind;
use crate::error::{Error, ErrorKind};

/// The example input in the suggested code.
const EXAMPLE_INPUT: &str = "example = torch.rand(1, 3, 224, 224)  # whatever forward takes";

/// Largest number of similar files that an error lists for a missing file.
const MAX_NEIGHBOURS: usize = 5;

impl FileKind {
    /// The error of a file that was given as a model.
    pub fn not_a_model(&self, path: &Path) -> Error {
        let message = format!(
            "{} is {self}, not a program of torch.export or a TorchScript archive",
            path.display()
        );
        Error::new(self.error_kind(), message).help(self.how_to_make_a_model(path))
    }

    /// The error of a file that was given as tensors.
    pub fn without_tensors(&self, path: &Path) -> Error {
        let message = format!("{} is {self}, not a file of tensors", path.display());
        Error::new(self.error_kind(), message).help(self.how_to_make_tensors(path))
    }

    /// The error of bytes in memory that were given as a model.
    pub fn bytes_are_no_archive(&self) -> Error {
        let message =
            format!("the bytes are {self}, not a program of torch.export or a TorchScript archive");
        Error::new(self.error_kind(), message).help(self.how_to_make_a_model(Path::new("model.pt")))
    }

    fn error_kind(&self) -> ErrorKind {
        match self {
            FileKind::Onnx | FileKind::Other(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Format,
        }
    }

    fn how_to_make_a_model(&self, path: &Path) -> String {
        let file = name(path);
        match self {
            FileKind::StateDict(None) | FileKind::LegacyPickle(None) => {
                from_weights(&format!("torch.load({file:?})"), path)
            }
            FileKind::StateDict(Some(key)) => {
                from_weights(&format!("torch.load({file:?})[{key:?}]"), path)
            }
            FileKind::Safetensors => {
                from_weights(&format!("safetensors.torch.load_file({file:?})"), path)
            }
            FileKind::PickledModule(class) | FileKind::LegacyPickle(Some(class)) => {
                from_object(class, path)
            }
            FileKind::Onnx => export(
                "export the original PyTorch module; without one, convert the file with onnx2torch",
                &[format!("model = onnx2torch.convert({file:?})")],
                path,
            ),
            FileKind::Npy | FileKind::Npz => {
                format!("give tensors with -i, behind the model: MODEL -i {file}")
            }
            FileKind::Picture(_) => {
                format!("give a picture with --image, behind the model: MODEL --image {file}")
            }
            _ => self.how_to_get_the_file(path).unwrap_or_else(|| {
                export(
                    "expected a program of torch.export (.pt2) or a TorchScript archive (.pt), which PyTorch writes by",
                    &[],
                    path,
                )
            }),
        }
    }

    fn how_to_make_tensors(&self, path: &Path) -> String {
        let file = name(path);
        let stem = stem(path);
        match self {
            FileKind::Picture(_) => format!("give a picture with --image {file}"),
            FileKind::LegacyPickle(_) => format!(
                "save it again with a newer PyTorch:\n  torch.save(torch.load({file:?}), \"{stem}_new.pt\")"
            ),
            FileKind::PickledModule(_) => format!(
                "save tensors only:\n  torch.save(torch.load({file:?}, weights_only=False).state_dict(), \"{stem}_weights.pt\")"
            ),
            _ => self.how_to_get_the_file(path).unwrap_or_else(|| {
                "expected .npy, .npz, .safetensors or a file of torch.save; in Python:\n  \
                 numpy.save(\"x.npy\", x)"
                    .to_string()
            }),
        }
    }

    /// Advice for a file whose content does not match its name.
    fn how_to_get_the_file(&self, path: &Path) -> Option<String> {
        let file = name(path);
        Some(match self {
            FileKind::LfsPointer => {
                format!("fetch the file itself: git lfs pull --include {file:?}")
            }
            FileKind::WebPage => {
                "a download gave a page instead of the file: open the address in a browser, and copy the link of \
                 the file itself (at Hugging Face: resolve instead of blob)"
                    .to_string()
            }
            FileKind::BrokenZip => {
                "download or write the file again, and compare its size with that of the original".to_string()
            }
            FileKind::Empty => "write or download the file again".to_string(),
            FileKind::Folder => "name a file in it".to_string(),
            FileKind::Other(what) if what.contains("gzip") => format!("unpack it first: gzip -d {file}"),
            FileKind::Other(what) if what.contains("tar") => format!("unpack it first: tar -xf {file}"),
            _ => return None,
        })
    }
}

/// The error for a file that cannot be opened. For a missing file, it lists files with the same extension.
pub(super) fn unreadable(path: &Path, error: std::io::Error) -> Error {
    if error.kind() != std::io::ErrorKind::NotFound {
        return Error::io(path, error);
    }
    let message = format!("{}: there is no such file", path.display());
    let neighbours = neighbours(path);
    let help = match neighbours.is_empty() {
        true => "check the path".to_string(),
        false => format!("check the path; there is {}", neighbours.join(", ")),
    };
    Error::new(ErrorKind::Io, message).help(help)
}

/// Some files with the same extension in the same folder, sorted by name.
fn neighbours(path: &Path) -> Vec<String> {
    if path.extension().is_none() {
        return Vec::new();
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let paths = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let alike = paths.filter(|found| found.extension() == path.extension() && found.is_file());
    let mut names: Vec<String> = alike
        .filter_map(|found| Some(found.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names.truncate(MAX_NEIGHBOURS);
    names
}

/// Code for weights that a Python expression loads.
fn from_weights(load: &str, path: &Path) -> String {
    let lines = [
        "model = MyModel()  # the class that the weights belong to".to_string(),
        format!("model.load_state_dict({load})"),
    ];
    let why = "it has weights but no program: load them into the module in Python and export that";
    export(why, &lines, path)
}

/// Code for a pickled module.
fn from_object(class: &str, path: &Path) -> String {
    let file = name(path);
    if class.starts_with("ultralytics.") {
        return format!(
            "it needs its Python classes to load: export it with ultralytics\n  \
             from ultralytics import YOLO\n  YOLO({file:?}).export(format=\"torchscript\")"
        );
    }
    let load = format!(
        "model = torch.load({file:?}, weights_only=False)  # runs code of the file: only if you trust it"
    );
    let why = "it needs its Python classes to load: load it where they are installed and export it";
    export(why, &[load], path)
}

/// A sentence, and code that loads a model by the given lines and exports it.
fn export(why: &str, load: &[String], path: &Path) -> String {
    let save = format!(
        "torch.export.save(torch.export.export(model.eval(), (example,)), \"{}.pt2\")",
        stem(path)
    );
    let lines = load
        .iter()
        .map(String::as_str)
        .chain([EXAMPLE_INPUT, &save]);
    let lines: String = lines.map(|line| format!("\n  {line}")).collect();
    format!("{why}:{lines}")
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// The path without its extension.
fn stem(path: &Path) -> String {
    path.with_extension("").display().to_string()
}
