//! Inputs from the command line: tensor files, pictures, random numbers, or types only.

mod assignment;
mod command_line;
mod diagnostics;
mod image;
mod picture_layout;
mod python;
mod random;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;

use self::assignment::{AssignedTensor, GivenTensors, TensorOrigin, split_name};
use self::diagnostics::InputDiagnostics;
use self::image::PictureOptions;
use super::argument_errors::ArgumentErrors;
use super::output;
use crate::budget::Limits;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::ir::Graph;
use crate::item::Item;
use crate::model::{Model, Signature};
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::tensor_file;

/// Sources of the model's arguments. Names assign tensors to inputs; tensors without names are assigned in order.
#[derive(Args)]
pub(super) struct Inputs {
    /// A tensor file (.npy, .npz, .safetensors, .pt). Tensors are assigned by name, or in order if no name is an input of the
    /// model. NAME= names the tensor (`input_ids`, `batch.input_ids`), or is a prefix of the names in the file.
    #[arg(short = 'i', long = "input", value_name = "[NAME=]FILE")]
    files: Vec<OsString>,
    #[command(flatten)]
    pictures: PictureOptions,
    /// An input of zeros of this type, such as `f32[1, 3, 224, 224]`, for importing and timing; with --random its elements are
    /// drawn.
    #[arg(long = "shape", value_name = "[NAME=]TYPE")]
    shapes: Vec<String>,
    /// Draw the inputs that are not given: normally distributed floats, valid indices, masks of ones.
    #[arg(long)]
    random: bool,
    /// The seed of --random.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "random")]
    seed: u64,
    /// Convert inputs to the element types that the model was traced with.
    #[arg(long)]
    cast: bool,
}

/// Several sets of arguments.
#[derive(Args)]
pub(super) struct InputSets {
    /// A tensor file with all arguments of a set; may be repeated.
    #[arg(long = "inputs", value_name = "FILE")]
    sets: Vec<PathBuf>,
    #[command(flatten)]
    first: Inputs,
}

impl InputSets {
    /// Checks the arguments that need no model.
    pub(super) fn check(&self, errors: &mut ArgumentErrors) {
        self.first.check(errors);
        errors.record_all(self.sets.iter().map(|path| check_tensors(path)));
    }

    /// Returns the sets in order: first the set that `-i`, `--image`, `--shape` and `--random` give, then one for each file.
    /// Each set belongs to the first entry whose inputs match its names.
    pub(super) fn read(&self, model: &Model, entries: &[String]) -> Result<Vec<Vec<Item>>> {
        let signatures = entries.iter().map(|entry| model.signature(entry));
        let signatures: Vec<Signature> = signatures.collect::<Result<_>>()?;
        let mut sets = Vec::new();
        if !self.first.is_empty() {
            sets.push(self.first.read_for_first(model, &signatures, true)?);
        }
        for path in &self.sets {
            sets.push(arguments_from_file(path, model, &signatures)?);
        }
        Ok(sets)
    }

    /// Returns the files that this command reads.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut paths = self.first.paths();
        paths.extend(self.sets.iter().cloned());
        paths
    }
}

/// Reads the arguments of `forward` from a file.
pub(super) fn arguments(path: &Path, model: &Model) -> Result<Vec<Item>> {
    arguments_from_file(path, model, &[model.signature("forward")?])
}

/// Reads the tensors of a file in order. Names that this program numbered, `output_0`, `output_1` …, are sorted by number.
pub(super) fn read_in_order(path: &Path, limits: &Limits) -> Result<Vec<Item>> {
    let mut tensors = tensor_file::read_with(path, limits)?;
    let number = |name: &str| name.strip_prefix("output_")?.parse::<usize>().ok();
    if tensors.iter().all(|(name, _)| number(name).is_some()) {
        tensors.sort_by_key(|(name, _)| number(name));
    }
    Ok(tensors
        .into_iter()
        .map(|(_, tensor)| Item::Tensor(tensor))
        .collect())
}

/// Reads the arguments of the first signature that matches the names in a file, or else of the first signature.
fn arguments_from_file(path: &Path, model: &Model, signatures: &[Signature]) -> Result<Vec<Item>> {
    let mut given = GivenTensors::default();
    given.add_file(None, path, model.limits())?;
    let signature = given.matching_signature(signatures)?;
    let advice = InputDiagnostics::new(model, signature);
    let assigned = given.assign(signature, &advice)?;
    advice.checked_arguments(&assigned)
}

/// Checks that a file holds tensors.
pub(super) fn check_tensors(path: &Path) -> Result<()> {
    match FileKind::of(path)? {
        kind if kind.has_tensors() => Ok(()),
        kind => Err(kind.without_tensors(path)),
    }
}

fn check_picture(path: &Path) -> Result<()> {
    match FileKind::of(path)? {
        FileKind::Picture(_) => Ok(()),
        kind => {
            let message = format!("{} is {kind}, not a picture", path.display());
            let help = match kind.has_tensors() {
                true => "give tensors with -i",
                false => "give a PNG, JPEG, WebP or BMP file",
            };
            Err(Error::format(message).help(help))
        }
    }
}

impl Inputs {
    /// Returns the command-line arguments that give another process these inputs.
    pub(super) fn command_line_options(&self) -> Vec<OsString> {
        let mut list: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: &OsStr| list.extend([name.into(), value.to_owned()]);
        let pictures = &self.pictures;
        self.files.iter().for_each(|file| option("--input", file));
        pictures
            .images
            .iter()
            .for_each(|file| option("--image", file));
        for text in &self.shapes {
            option("--shape", OsStr::new(text));
        }
        if let Some(size) = &pictures.size {
            option("--size", OsStr::new(size));
        }
        if let Some(preset) = pictures.preset {
            option("--preset", OsStr::new(&preset.name()));
        }
        if self.random {
            option("--seed", OsStr::new(&self.seed.to_string()));
        }
        let flags = [
            ("--gray", pictures.gray),
            ("--random", self.random),
            ("--cast", self.cast),
        ];
        let flags = flags.iter().filter(|(_, is_given)| *is_given);
        list.extend(flags.map(|(name, _)| OsString::from(name)));
        list
    }

    /// True if no input is given.
    pub(super) fn is_empty(&self) -> bool {
        let files = self.files.is_empty() && self.pictures.images.is_empty();
        files && self.shapes.is_empty() && !self.random
    }

    /// True if missing inputs are drawn at random.
    pub(super) fn is_random(&self) -> bool {
        self.random
    }

    /// Returns the files that this command reads.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let files = self.files.iter().chain(&self.pictures.images);
        files.map(|file| split_name(file).1).collect()
    }

    /// Checks files, sizes and types, which needs no model.
    pub(super) fn check(&self, errors: &mut ArgumentErrors) {
        let files = self
            .files
            .iter()
            .map(|file| check_tensors(&split_name(file).1));
        errors.record_all(files);
        let images = self.pictures.images.iter();
        errors.record_all(images.map(|file| check_picture(&split_name(file).1)));
        errors.record_all([self.pictures.wanted_size().map(drop)]);
        errors.record_all(self.shapes.iter().map(|text| parse_shape(text).map(drop)));
    }

    /// Returns the arguments for a run of the model's `forward`. Notes on standard error name random and zero inputs.
    ///
    /// # Errors
    /// The inputs do not match the signature. The message shows the signature, the given inputs and a command that works.
    pub(super) fn read(&self, model: &Model) -> Result<Vec<Item>> {
        self.read_for_first(model, &[model.signature("forward")?], true)
    }

    /// Returns the arguments of a model's `forward` as examples of types and sizes, without notes.
    pub(super) fn examples(&self, model: &Model) -> Result<Vec<Item>> {
        self.read_for_first(model, &[model.signature("forward")?], false)
    }

    /// Returns the arguments of a graph.
    pub(super) fn read_for_graph(&self, graph: &Graph, limits: &Limits) -> Result<Vec<Item>> {
        let module = crate::ir::GraphModule {
            graphs: vec![graph.clone()],
            ..crate::ir::GraphModule::default()
        };
        let model = Model::from_module(module).with_limits(limits);
        self.read_for_first(&model, &[Signature::of_graph(graph)], false)
    }

    fn read_for_first(
        &self,
        model: &Model,
        signatures: &[Signature],
        tells: bool,
    ) -> Result<Vec<Item>> {
        let mut given = self.given_tensors(model.limits())?;
        let signature = given.matching_signature(signatures)?;
        let advice = InputDiagnostics::new(model, signature);
        self.add_pictures(&mut given, model, signature, &advice, tells)?;
        let mut assigned = given.assign(signature, &advice)?;
        if self.random {
            random::draw_inputs(&mut assigned, model, signature, self.seed)?;
        }
        if self.cast {
            cast(&mut assigned, signature)?;
        }
        if tells {
            note_generated_inputs(&assigned, self.seed);
        }
        advice.checked_arguments(&assigned)
    }

    /// Returns the tensors of `-i` and `--shape`.
    fn given_tensors(&self, limits: &Limits) -> Result<GivenTensors> {
        let mut given = GivenTensors::default();
        for file in &self.files {
            let (name, path) = split_name(file);
            given.add_file(name.as_deref(), &path, limits)?;
        }
        for text in &self.shapes {
            let (name, ty) = parse_shape(text)?;
            let tensor = Tensor::full(ty.dtype, ty.sizes(&Bindings::new())?, 0.0)?;
            given.add(name, tensor, TensorOrigin::Zeros);
        }
        Ok(given)
    }

    /// Reads each picture for the input of its name, or else for the next input that can be a picture.
    fn add_pictures(
        &self,
        given: &mut GivenTensors,
        model: &Model,
        signature: &Signature,
        advice: &InputDiagnostics,
        tells: bool,
    ) -> Result<()> {
        for file in &self.pictures.images {
            let (name, path) = split_name(file);
            let input = given.picture_input(name.as_deref(), signature);
            let is_known = || {
                signature
                    .inputs()
                    .iter()
                    .all(|input| input.example.is_some())
            };
            if name.is_none() && input.is_none() && is_known() {
                return Err(advice.no_picture_input(&path));
            }
            let wanted = input.as_ref().and_then(|input| input.example.as_ref());
            let (tensor, told) = self.pictures.read(&path, wanted, model.limits())?;
            if tells {
                output::note(&format!("picture {}: {told}", path.display()));
            }
            let name = name.or(input.map(|input| input.name));
            given.add(name, tensor, TensorOrigin::Picture(path));
        }
        Ok(())
    }
}

/// Parses the name and the type of `--shape`. Sizes must be numbers.
fn parse_shape(text: &str) -> Result<(Option<String>, TensorType)> {
    let (name, ty) = match text.split_once('=') {
        Some((name, ty)) => (Some(name.trim().to_string()), ty),
        None => (None, text),
    };
    let bad = |what: &str| {
        Error::usage(format!("--shape {text:?} {what}"))
            .help("write element type and sizes: --shape 'f32[1, 3, 224, 224]'")
    };
    let ty: TensorType = ty.parse().map_err(|_| bad("is not a tensor type"))?;
    match ty.sizes(&Bindings::new()) {
        Ok(_) => Ok((name, ty)),
        Err(_) => Err(bad("has a size that is not a number")),
    }
}

/// Converts tensors to the element types of the signature's example.
fn cast(assigned: &mut [AssignedTensor], signature: &Signature) -> Result<()> {
    let inputs = signature.inputs();
    for one in assigned {
        let input = inputs.iter().find(|input| input.name == one.name);
        if let Some(ty) = input.and_then(|input| input.example.as_ref()) {
            one.tensor = one.tensor.cast(ty.dtype)?;
        }
    }
    Ok(())
}

/// Prints a note for inputs that are random or zeros.
fn note_generated_inputs(assigned: &[AssignedTensor], seed: u64) {
    let list = |wanted: fn(&TensorOrigin) -> Option<String>| -> Vec<String> {
        let told = assigned.iter().filter_map(|one| {
            let how = wanted(&one.origin)?;
            Some(format!("{} {}{how}", one.name, one.tensor.tensor_type()))
        });
        told.collect()
    };
    let random = list(|origin| match origin {
        TensorOrigin::Random(draw) => Some(random::describe(*draw)),
        _ => None,
    });
    let zeros = list(|origin| matches!(origin, TensorOrigin::Zeros).then(String::new));
    if !random.is_empty() {
        output::note(&format!(
            "inputs: random, seed {seed}: {}",
            random.join("; ")
        ));
    }
    if !zeros.is_empty() {
        output::note(&format!("inputs: zeros: {}", zeros.join("; ")));
    }
}
