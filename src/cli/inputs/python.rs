//! Python commands that fix files of inputs.

use std::path::{Path, PathBuf};

use super::assignment::{AssignedTensor, TensorOrigin};
use crate::model::{InputMismatch, SignatureInput};
use crate::tensor::Tensor;

/// A tensor whose type does not match its input, with the input and the mistakes.
pub(super) type MismatchedInput<'a> = (&'a AssignedTensor, SignatureInput, InputMismatch);

/// Returns the file that holds all given tensors, and their names in it.
pub(super) fn single_file_names(
    given: &[(&Tensor, &TensorOrigin)],
) -> Option<(PathBuf, Vec<String>)> {
    let mut files = given.iter().map(|(_, origin)| match origin {
        TensorOrigin::File(path, Some(key)) => Some((path.clone(), key.clone())),
        _ => None,
    });
    let (path, first) = files.next()??;
    let rest: Option<Vec<_>> = files.collect();
    let keys = std::iter::once(first).chain(rest?.into_iter().map(|(_, key)| key));
    Some((path, keys.collect()))
}

/// Returns a Python command that writes tensors of a file under other names.
pub(super) fn rename_command(path: &Path, pairs: &[(String, String)]) -> String {
    let (file, new) = (path.display(), fixed_path(path));
    let new = new.display();
    let is_safetensors = path
        .extension()
        .is_some_and(|ending| ending == "safetensors");
    let entries = |entry: &dyn Fn(&str, &str) -> String| {
        let list = pairs.iter().map(|(name, key)| entry(name, key));
        list.collect::<Vec<_>>().join(", ")
    };
    match is_safetensors {
        true => python_command(&format!(
            "from safetensors.numpy import load_file, save_file; f = load_file(\"{file}\"); save_file({{{}}}, \"{new}\")",
            entries(&|name, key| format!("\"{name}\": f[\"{key}\"]"))
        )),
        false => python_command(&format!(
            "import numpy as np; f = np.load(\"{file}\"); np.savez(\"{new}\", **{{{}}})",
            entries(&|name, key| format!("\"{name}\": f[\"{key}\"]"))
        )),
    }
}

/// Returns the path that a Python command writes instead of overwriting a file.
pub(super) fn fixed_path(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}_mended.{ending}"))
}

/// Returns the Python commands that fix mismatched inputs in their files.
pub(super) fn fix_commands(found: &[MismatchedInput]) -> Vec<String> {
    let line = |(one, _, misfit): &MismatchedInput| {
        let cure = &misfit.fix;
        let TensorOrigin::File(path, key) = &one.origin else {
            return None;
        };
        let (file, new) = (path.display(), fixed_path(path));
        let new = new.display();
        let ending = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        (!cure.is_empty()).then(|| match (key, ending.as_str()) {
            (None, _) => python_command(&format!(
                "import numpy as np; np.save(\"{new}\", np.load(\"{file}\"){cure})"
            )),
            (Some(key), "safetensors") => python_command(&format!(
                "from safetensors.numpy import load_file, save_file; f = load_file(\"{file}\"); f[\"{key}\"] = \
                 f[\"{key}\"]{cure}; save_file(f, \"{new}\")"
            )),
            (Some(key), "npz") => python_command(&format!(
                "import numpy as np; f = dict(np.load(\"{file}\")); f[\"{key}\"] = f[\"{key}\"]{cure}; \
                 np.savez(\"{new}\", **f)"
            )),
            (Some(key), _) => format!("{key} = {key}.numpy(){cure}  # before torch.save writes {file}"),
        })
    };
    found.iter().filter_map(line).collect()
}

fn python_command(code: &str) -> String {
    format!("python -c '{code}'")
}
