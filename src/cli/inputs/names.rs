//! Assigns the tensors of the command line to inputs: by names where they are the model's, else by order.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cli::output;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::model::Signature;
use crate::tensor::Tensor;
use crate::tensor_file;

/// The name in front of a file, if there is one, and the file.
pub(super) fn named(text: &OsStr) -> (Option<String>, PathBuf) {
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

/// Tensors that become arguments.
#[derive(Default)]
pub(super) struct Tensors {
    list: Vec<(Name, Tensor)>,
}

/// A tensor's name, and who gave it.
enum Name {
    /// On the command line: this input is meant.
    Given(String),
    /// In a file of named tensors.
    InFile(String, PathBuf),
    /// By the name of its file alone.
    OfFile(String),
    None,
}

impl Tensors {
    /// Adds a tensor.
    pub(super) fn add(&mut self, name: Option<String>, tensor: Tensor) {
        self.list
            .push((name.map_or(Name::None, Name::Given), tensor));
    }

    /// Adds the tensors of a file, which are parts of the input that is named, if one is.
    pub(super) fn add_file(&mut self, input: Option<&str>, path: &Path) -> Result<()> {
        let tensors = tensor_file::read(path)?;
        let has_names = tensor_file::has_names(path);
        let is_one = tensors.len() == 1;
        let mut places = tensors.iter().enumerate();
        let is_list = places.all(|(place, (name, _))| *name == place.to_string());
        for (name, tensor) in tensors {
            let name = match input {
                Some(input) if is_one => Name::Given(input.to_string()),
                Some(input) => Name::Given(format!("{input}.{name}")),
                None if is_list => Name::None,
                None if has_names => Name::InFile(name, path.to_path_buf()),
                None => Name::OfFile(name),
            };
            self.list.push((name, tensor));
        }
        Ok(())
    }

    /// The arguments of the first signature whose names the files have, else of the first; none if nothing is given.
    pub(super) fn arguments(&self, signatures: &[Signature]) -> Result<Vec<Item>> {
        if self.list.is_empty() {
            return Ok(Vec::new());
        }
        let fits = |signature: &&Signature| self.in_files().all(|(name, _)| signature.takes(name));
        let signature = signatures.iter().find(fits).or_else(|| signatures.first());
        let signature = signature.ok_or_else(|| Error::input("the model has no entry graph"))?;
        self.arguments_of(signature)
    }

    fn arguments_of(&self, signature: &Signature) -> Result<Vec<Item>> {
        let by_name = self.goes_by_name(signature)?;
        let by_file_name = self.goes_by_file_name(signature);
        let name_of = |name: &Name| match name {
            Name::Given(name) => Some(name.clone()),
            Name::InFile(name, _) if by_name => Some(name.clone()),
            Name::OfFile(name) if by_file_name => Some(name.clone()),
            _ => None,
        };
        let names: Vec<Option<String>> = self.list.iter().map(|(name, _)| name_of(name)).collect();
        let known: Vec<String> = names.iter().flatten().cloned().collect();
        let left = signature.names_for(names.len() - known.len(), &known)?;
        if !by_name && self.list.len() > 1 {
            self.tell_order(&left, signature);
        }
        let mut left = left.into_iter();
        let tensors = names.into_iter().zip(&self.list);
        let named = tensors.filter_map(|(name, (_, tensor))| {
            Some((name.or_else(|| left.next())?, tensor.clone()))
        });
        signature.arguments(&named.collect::<Vec<_>>())
    }

    fn in_files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.list.iter().filter_map(|(name, _)| match name {
            Name::InFile(name, path) => Some((name.as_str(), path.as_path())),
            _ => None,
        })
    }

    /// True if the names in files are inputs.
    ///
    /// # Errors
    /// Some are, others are not.
    fn goes_by_name(&self, signature: &Signature) -> Result<bool> {
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.in_files().partition(|(name, _)| signature.takes(name));
        match (known.as_slice(), unknown.as_slice()) {
            ([], _) => Ok(false),
            (_, []) => Ok(true),
            (known, [(_, path), ..]) => {
                let message = format!(
                    "{}: {} {} of the model's inputs, {} not",
                    path.display(),
                    list(known),
                    if known.len() == 1 { "is one" } else { "are" },
                    list(&unknown),
                );
                let help = format!(
                    "the inputs are those of {signature}; rename the tensors, or give each with -i NAME=FILE"
                );
                Err(Error::usage(message).help(help))
            }
        }
    }

    /// True if there are tensors whose files are called like inputs, each like another.
    fn goes_by_file_name(&self, signature: &Signature) -> bool {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &self.list {
            match name {
                Name::OfFile(name) if !signature.takes(name) => return false,
                Name::OfFile(name) | Name::Given(name) | Name::InFile(name, _) => names.push(name),
                Name::None => {}
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() == count
    }

    /// Says which tensor of a file is which input where their order decides.
    fn tell_order(&self, inputs: &[String], signature: &Signature) {
        let unnamed = self
            .list
            .iter()
            .filter(|(name, _)| !matches!(name, Name::Given(_)));
        let pairs = unnamed
            .zip(inputs)
            .filter_map(|((name, _), input)| match name {
                Name::InFile(name, _) => Some(format!("{name} is {input}")),
                _ => None,
            });
        let pairs: Vec<String> = pairs.collect();
        if !pairs.is_empty() {
            output::note(&format!(
                "note: the names in the file are none of {signature}; the order decides: {}",
                pairs.join(", ")
            ));
        }
    }
}

fn list(found: &[(&str, &Path)]) -> String {
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}
