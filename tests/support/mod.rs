//! Recorded cases: archives with inputs and the outputs that PyTorch gives for them.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use onionskin::dtype::DType;
use onionskin::ir::{Constant, Tree};
use onionskin::scalar::Scalar;
use onionskin::tensor::Tensor;
use onionskin::trace::torchscript::InputSpec;
use serde_json::Value;

/// A folder of cases: a ZIP file, or a directory of a model.
pub struct Case {
    pub name: String,
    pub description: Value,
    files: Vec<(String, Vec<u8>)>,
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases")
}

pub fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let path = std::env::var_os("ONIONSKIN_CORPUS").map_or_else(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

/// The cases of a folder with ZIP files and directories, by name.
pub fn cases(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

impl Case {
    /// The cases in a ZIP file or directory: one for a model or program, several for an operator.
    pub fn read(path: &Path) -> Vec<Case> {
        let files = if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
            let read = entries.map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, std::fs::read(entry.path()).unwrap())
            });
            read.collect()
        } else {
            unzip(&std::fs::read(path).unwrap())
        };
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut descriptions: Vec<&(String, Vec<u8>)> = files
            .iter()
            .filter(|(name, _)| name.ends_with("case.json"))
            .collect();
        descriptions.sort();
        descriptions
            .into_iter()
            .map(|(name, bytes)| {
                let folder = name.trim_end_matches("case.json");
                let inside = files.iter().filter_map(|(name, bytes)| {
                    Some((name.strip_prefix(folder)?.to_string(), bytes.clone()))
                });
                Case {
                    name: format!("{stem} {folder}")
                        .trim_end_matches(['/', ' '])
                        .to_string(),
                    description: serde_json::from_slice(bytes).unwrap(),
                    files: inside.collect(),
                }
            })
            .collect()
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        let found = self.files.iter().find(|(file, _)| file == name);
        found
            .unwrap_or_else(|| panic!("{} has no {name}", self.name))
            .1
            .clone()
    }

    pub fn tensors(&self, file: &str) -> Vec<(String, Tensor)> {
        let bytes = self.file(file);
        let found = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensors = found.tensors().into_iter().map(|(name, view)| {
            let dtype = dtype(view.dtype());
            let tensor = Tensor::from_bytes(dtype, view.shape().to_vec(), view.data()).unwrap();
            (name, tensor)
        });
        tensors.collect()
    }
}

fn unzip(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let files = (0..archive.len()).map(|index| {
        let mut file = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (file.name().to_string(), bytes)
    });
    files.collect()
}

fn dtype(dtype: safetensors::Dtype) -> DType {
    use safetensors::Dtype;
    match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => panic!("{other:?}"),
    }
}

pub fn find<'a>(tensors: &'a [(String, Tensor)], name: &str) -> &'a Tensor {
    let found = tensors.iter().find(|(known, _)| known == name);
    &found.unwrap_or_else(|| panic!("no tensor {name}")).1
}

/// A recorded value as an example of an input; its tensors are added to the list.
pub fn spec(value: &Value, tensors: &[(String, Tensor)], flat: &mut Vec<Tensor>) -> InputSpec {
    let (kind, content) = value.as_object().unwrap().iter().next().unwrap();
    let number = |scalar| InputSpec::Constant(Constant::Number(scalar));
    let mut all = |items: &Value| {
        let items = items.as_array().unwrap().iter();
        items.map(|item| spec(item, tensors, flat)).collect()
    };
    match kind.as_str() {
        "tensor" => {
            let tensor = find(tensors, content.as_str().unwrap());
            flat.push(tensor.clone());
            InputSpec::from(tensor)
        }
        "int" => number(Scalar::Int(content.as_i64().unwrap())),
        "float" => number(Scalar::Float(content.as_f64().unwrap())),
        "bool" => number(Scalar::Bool(content.as_bool().unwrap())),
        "str" => InputSpec::Constant(Constant::Str(content.as_str().unwrap().to_string())),
        "none" => InputSpec::Constant(Constant::None),
        "tuple" => InputSpec::Tuple(all(content)),
        "list" => InputSpec::List(all(content)),
        "dict" => InputSpec::Dict(
            content
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, item)| (key.clone(), spec(item, tensors, flat)))
                .collect(),
        ),
        other => panic!("{other}"),
    }
}

/// How close is close enough.
#[derive(Clone, Copy)]
pub struct Tolerance {
    pub rtol: f64,
    pub atol: f64,
}

/// Compares a result with what was recorded.
pub fn compare(
    expected: &Value,
    recorded: &[(String, Tensor)],
    tree: &Tree,
    outputs: &[Tensor],
    bindings: &onionskin::dim::Bindings,
    tolerance: Tolerance,
) -> Result<(), String> {
    let (kind, content) = expected.as_object().unwrap().iter().next().unwrap();
    let each = |items: &Value, trees: &[Tree]| -> Result<(), String> {
        let items = items.as_array().unwrap();
        if items.len() != trees.len() {
            return Err(format!("{} items, not {}", trees.len(), items.len()));
        }
        let mut pairs = items.iter().zip(trees);
        pairs.try_for_each(|(e, t)| compare(e, recorded, t, outputs, bindings, tolerance))
    };
    match (kind.as_str(), tree) {
        ("tensor", Tree::Tensor(index)) => {
            let expected = find(recorded, content.as_str().unwrap());
            close(expected, &outputs[*index], tolerance)
        }
        ("float", Tree::Tensor(index)) => number(content.as_f64(), outputs[*index].to_f64()[0]),
        ("int", Tree::Tensor(index)) => number(
            content.as_i64().map(|i| i as f64),
            outputs[*index].to_i64()[0] as f64,
        ),
        ("int", Tree::Size(dim)) => number(
            content.as_i64().map(|i| i as f64),
            dim.eval(bindings).unwrap() as f64,
        ),
        ("int" | "float", Tree::Constant(Constant::Number(scalar))) => {
            number(content.as_f64(), scalar.to_f64())
        }
        ("bool", Tree::Constant(Constant::Number(Scalar::Bool(value)))) => (content.as_bool()
            == Some(*value))
        .then_some(())
        .ok_or("other bool".to_string()),
        ("bool", Tree::Tensor(index)) => {
            let found = outputs[*index].to_i64()[0] != 0;
            (content.as_bool() == Some(found))
                .then_some(())
                .ok_or("other bool".to_string())
        }
        ("str", Tree::Constant(Constant::Str(text))) => (content.as_str() == Some(text))
            .then_some(())
            .ok_or("other text".to_string()),
        ("none", Tree::Constant(Constant::None)) => Ok(()),
        ("tuple" | "list", Tree::Tuple(trees) | Tree::List(trees)) => each(content, trees),
        ("tuple", Tree::NamedTuple(_, fields)) => {
            let trees: Vec<Tree> = fields.iter().map(|(_, tree)| tree.clone()).collect();
            each(content, &trees)
        }
        ("dict", Tree::Dict(fields)) => {
            let entries = content.as_object().unwrap();
            if entries.len() != fields.len() {
                return Err(format!("{} entries, not {}", fields.len(), entries.len()));
            }
            fields.iter().try_for_each(|(key, tree)| {
                let expected = entries.get(key).ok_or(format!("unexpected key {key}"))?;
                compare(expected, recorded, tree, outputs, bindings, tolerance)
            })
        }
        (kind, tree) => Err(format!("{tree:?}, not a {kind}")),
    }
}

fn number(expected: Option<f64>, found: f64) -> Result<(), String> {
    let expected = expected.ok_or("not a number")?;
    if (expected - found).abs() <= 1e-6 * expected.abs().max(1.0) {
        return Ok(());
    }
    Err(format!("{found}, not {expected}"))
}

/// Same dtype and shape, elements within the tolerance, integers exactly.
pub fn close(expected: &Tensor, found: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    let (wanted, ty) = (expected.tensor_type(), found.tensor_type());
    if wanted != ty {
        return Err(format!("{ty}, not {wanted}"));
    }
    if !expected.dtype().is_float() {
        let same = expected.to_i64() == found.to_i64();
        return same.then_some(()).ok_or("other integers".to_string());
    }
    let pairs = expected.to_f64().into_iter().zip(found.to_f64());
    for (index, (expected, found)) in pairs.enumerate() {
        let limit = tolerance.atol + tolerance.rtol * expected.abs();
        let same = expected == found || (expected.is_nan() && found.is_nan());
        if !same && !((expected - found).abs() <= limit) {
            return Err(format!(
                "element {index} of {ty} is {found}, not {expected}"
            ));
        }
    }
    Ok(())
}
