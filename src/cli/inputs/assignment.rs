//! Assigns the tensors of the command line to inputs: by name where the names are those of inputs, else in order.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::diagnostics::InputDiagnostics;
use crate::budget::Limits;
use crate::cli::output;
use crate::error::{Error, Result};
use crate::model::{InputDistribution, Signature, SignatureInput};
use crate::tensor::Tensor;
use crate::tensor_file;

/// Splits `[NAME=]FILE` into the name, if there is one, and the file.
pub(super) fn split_name(text: &OsStr) -> (Option<String>, PathBuf) {
    let is_name = |name: &str| {
        name.chars()
            .all(|c| c.is_alphanumeric() || "._".contains(c))
    };
    let whole = text.to_string_lossy();
    match whole.split_once('=') {
        Some((name, path)) if !name.is_empty() && is_name(name) => {
            (Some(name.to_string()), PathBuf::from(path))
        }
        _ => (None, PathBuf::from(text)),
    }
}

/// Tensors from the command line that become arguments.
#[derive(Default)]
pub(super) struct GivenTensors {
    list: Vec<GivenTensor>,
}

/// A tensor with its name and origin.
struct GivenTensor {
    name: TensorName,
    tensor: Tensor,
    origin: TensorOrigin,
}

/// A tensor that is assigned to an input.
#[derive(Clone)]
pub(super) struct AssignedTensor {
    /// Name of the input.
    pub(super) name: String,
    pub(super) tensor: Tensor,
    pub(super) origin: TensorOrigin,
}

/// Source of a tensor.
#[derive(Clone, PartialEq)]
pub(super) enum TensorOrigin {
    /// A file of tensors, and the tensor's name in it if the format has names.
    File(PathBuf, Option<String>),
    Picture(PathBuf),
    /// Zeros of a type that `--shape` or the example gives.
    Zeros,
    Random(InputDistribution),
}

/// The name of a tensor, by its source.
enum TensorName {
    /// Name of an input, given on the command line.
    Explicit(String),
    /// Name in a file of named tensors.
    InFile(String),
    /// Stem of the name of a file without tensor names.
    FileStem(String),
    None,
}

impl GivenTensors {
    /// Adds a tensor.
    pub(super) fn add(&mut self, name: Option<String>, tensor: Tensor, origin: TensorOrigin) {
        let name = name.map_or(TensorName::None, TensorName::Explicit);
        self.list.push(GivenTensor {
            name,
            tensor,
            origin,
        });
    }

    /// Adds the tensors of a file. With `input`, they are that input or, if there are several, parts of it.
    pub(super) fn add_file(
        &mut self,
        input: Option<&str>,
        path: &Path,
        limits: &Limits,
    ) -> Result<()> {
        let tensors = tensor_file::read_with(path, limits)?;
        let has_names = tensor_file::has_names(path);
        let is_one = tensors.len() == 1;
        // The tensors of a list have their positions as names.
        let mut places = tensors.iter().enumerate();
        let is_list = places.all(|(place, (name, _))| *name == place.to_string());
        for (key, tensor) in tensors {
            let origin = TensorOrigin::File(path.to_path_buf(), has_names.then(|| key.clone()));
            let name = match input {
                Some(input) if is_one => TensorName::Explicit(input.to_string()),
                Some(input) => TensorName::Explicit(format!("{input}.{key}")),
                None if is_list => TensorName::None,
                None if has_names => TensorName::InFile(key),
                None => TensorName::FileStem(key),
            };
            self.list.push(GivenTensor {
                name,
                tensor,
                origin,
            });
        }
        Ok(())
    }

    /// Returns the first signature with inputs of all names in files, or else the first signature.
    pub(super) fn matching_signature<'a>(
        &self,
        signatures: &'a [Signature],
    ) -> Result<&'a Signature> {
        let fits =
            |signature: &&Signature| self.names_in_files().all(|(name, _)| signature.takes(name));
        let signature = signatures.iter().find(fits).or_else(|| signatures.first());
        signature.ok_or_else(|| Error::input("the model has no entry graph"))
    }

    /// Returns the input for the next picture: the input `name` if a name is given, else the first input that can be a
    /// picture and has no tensor yet.
    pub(super) fn picture_input(
        &self,
        name: Option<&str>,
        signature: &Signature,
    ) -> Option<SignatureInput> {
        let mut inputs = signature.inputs().into_iter();
        let is_taken = |input: &SignatureInput| {
            let mut names = self.list.iter().map(|one| &one.name);
            names.any(|name| matches!(name, TensorName::Explicit(name) | TensorName::InFile(name) if *name == input.name))
        };
        let can_be_picture = |input: &SignatureInput| {
            let example = input.example.as_ref();
            example.is_some_and(|ty| ty.rank() == 3 || ty.rank() == 4)
        };
        match name {
            Some(name) => inputs.find(|input| input.name == name),
            None => inputs.find(|input| can_be_picture(input) && !is_taken(input)),
        }
    }

    /// Assigns each tensor to an input.
    ///
    /// # Errors
    /// There are more tensors than inputs, or only some of the names in a file are inputs.
    pub(super) fn assign(
        self,
        signature: &Signature,
        diagnostics: &InputDiagnostics,
    ) -> Result<Vec<AssignedTensor>> {
        let by_name_in_file = self.assigns_by_name_in_file(signature, diagnostics)?;
        let by_file_stem = self.assigns_by_file_stem(signature);
        let name_of = |name: &TensorName| match name {
            TensorName::Explicit(name) => Some(name.clone()),
            TensorName::InFile(name) if by_name_in_file => Some(name.clone()),
            TensorName::FileStem(name) if by_file_stem => Some(name.clone()),
            _ => None,
        };
        let names: Vec<Option<String>> = self.list.iter().map(|one| name_of(&one.name)).collect();
        let known: Vec<String> = names.iter().flatten().cloned().collect();
        let left = signature.names_for(names.len() - known.len(), &known);
        let left = left.map_err(|_| diagnostics.too_many(&self.origins()))?;
        if !by_name_in_file && self.list.len() > 1 {
            self.note_order(&names, &left, signature);
        }
        let mut left = left.into_iter();
        let tensors = names.into_iter().zip(self.list);
        let assigned = tensors.filter_map(|(name, one)| {
            Some(AssignedTensor {
                name: name.or_else(|| left.next())?,
                tensor: one.tensor,
                origin: one.origin,
            })
        });
        Ok(assigned.collect())
    }

    /// Returns the given tensors with their origins.
    fn origins(&self) -> Vec<(&Tensor, &TensorOrigin)> {
        let list = self.list.iter();
        list.map(|one| (&one.tensor, &one.origin)).collect()
    }

    fn names_in_files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.list
            .iter()
            .filter_map(|one| match (&one.name, &one.origin) {
                (TensorName::InFile(name), TensorOrigin::File(path, _)) => {
                    Some((name.as_str(), path.as_path()))
                }
                _ => None,
            })
    }

    /// True if the names in files are names of inputs.
    ///
    /// # Errors
    /// Only some of the names are inputs.
    fn assigns_by_name_in_file(
        &self,
        signature: &Signature,
        diagnostics: &InputDiagnostics,
    ) -> Result<bool> {
        let (known, unknown): (Vec<_>, Vec<_>) = self
            .names_in_files()
            .partition(|(name, _)| signature.takes(name));
        match (known.as_slice(), unknown.as_slice()) {
            ([], _) => Ok(false),
            (_, []) => Ok(true),
            (known, [(_, path), ..]) => {
                let names = |found: &[(&str, &Path)]| -> Vec<String> {
                    found.iter().map(|(name, _)| name.to_string()).collect()
                };
                Err(diagnostics.unknown_names_in_file(
                    path,
                    &names(known),
                    &names(&unknown),
                    &self.origins(),
                ))
            }
        }
    }

    /// True if the stems of all files without tensor names are names of inputs, and no name occurs twice.
    fn assigns_by_file_stem(&self, signature: &Signature) -> bool {
        let mut names: Vec<&str> = Vec::new();
        for one in &self.list {
            match &one.name {
                TensorName::FileStem(name) if !signature.takes(name) => return false,
                TensorName::FileStem(name)
                | TensorName::Explicit(name)
                | TensorName::InFile(name) => names.push(name),
                TensorName::None => {}
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() == count
    }

    /// Prints which input each tensor with a name in a file becomes, where the order decides. `names` has the inputs of
    /// the tensors that are assigned by name; the other tensors get `inputs`, in order.
    fn note_order(&self, names: &[Option<String>], inputs: &[String], signature: &Signature) {
        let ordered = self.list.iter().zip(names);
        let ordered = ordered.filter(|(_, name)| name.is_none());
        let pairs = ordered
            .zip(inputs)
            .filter_map(|((one, _), input)| match &one.name {
                TensorName::InFile(name) => Some(format!("{name} is {input}")),
                _ => None,
            });
        let pairs: Vec<String> = pairs.collect();
        if !pairs.is_empty() {
            output::note(&format!(
                "note: no name in the file is an input of {signature}; tensors are assigned in order: {}",
                pairs.join(", ")
            ));
        }
    }
}

impl fmt::Display for TensorOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorOrigin::File(path, None) => write!(f, "{}", path.display()),
            TensorOrigin::File(path, Some(key)) => write!(f, "{} ({key})", path.display()),
            TensorOrigin::Picture(path) => write!(f, "{}", path.display()),
            TensorOrigin::Zeros => f.write_str("--shape"),
            TensorOrigin::Random(_) => f.write_str("--random"),
        }
    }
}
