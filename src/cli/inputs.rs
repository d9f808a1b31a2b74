//! Inputs from the command line: tensor files, images, or sizes only.

mod names;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use image::imageops::FilterType;

use self::names::{Tensors, named};
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::ir::Graph;
use crate::item::Item;
use crate::model::{Model, Signature};
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::tensor_file;

/// Where the model's arguments come from. Names decide which input is which, order where there are none.
#[derive(Args)]
pub(super) struct Inputs {
    /// A tensor file (.npy, .npz, .safetensors, .pt). Its tensors go by name, in order if their names are none of the model's.
    /// A name in front is that of the tensor, such as `input_ids` or `batch.input_ids`, or stands before those of the file.
    #[arg(short = 'i', long = "input", value_name = "[NAME=]FILE")]
    files: Vec<OsString>,
    /// An image file; see --size and --normalize.
    #[arg(long = "image", value_name = "[NAME=]FILE")]
    images: Vec<OsString>,
    /// Resize images to HEIGHTxWIDTH, or to a square.
    #[arg(long)]
    size: Option<String>,
    /// How pixels become numbers.
    #[arg(long, value_enum, default_value_t = Normalize::Imagenet)]
    normalize: Normalize,
    /// Read images as gray: one channel.
    #[arg(long)]
    gray: bool,
    /// An argument of zeros of a type, such as `f32[1, 3, 224, 224]`: for importing and timing.
    #[arg(long = "shape", value_name = "[NAME=]TYPE")]
    shapes: Vec<String>,
}

/// Several sets of arguments.
#[derive(Args)]
pub(super) struct Sets {
    /// A tensor file with all arguments of a set; may be repeated.
    #[arg(long = "inputs", value_name = "FILE")]
    sets: Vec<PathBuf>,
    #[command(flatten)]
    first: Inputs,
}

impl Sets {
    /// The sets in order: what `-i`, `--image` and `--shape` give together, then a set for each file. Each is of the first
    /// entry that its names fit.
    pub(super) fn read(&self, model: &Model, entries: &[String]) -> Result<Vec<Vec<Item>>> {
        let signatures = entries.iter().map(|entry| model.signature(entry));
        let signatures: Vec<Signature> = signatures.collect::<Result<_>>()?;
        let mut sets = Vec::new();
        if !self.first.is_empty() {
            sets.push(self.first.tensors()?.arguments(&signatures)?);
        }
        for path in &self.sets {
            sets.push(of_file(path)?.arguments(&signatures)?);
        }
        Ok(sets)
    }

    /// The files that are read.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut paths = self.first.paths();
        paths.extend(self.sets.iter().cloned());
        paths
    }
}

/// The arguments of `forward` that a file holds.
pub(super) fn arguments(path: &Path, model: &Model) -> Result<Vec<Item>> {
    of_file(path)?.arguments(&[model.signature("forward")?])
}

/// The tensors of a file in order: those that this program numbered, `output_0`, `output_1` …, by their numbers.
pub(super) fn in_order(path: &Path) -> Result<Vec<Item>> {
    let mut tensors = tensor_file::read(path)?;
    let number = |name: &str| name.strip_prefix("output_")?.parse::<usize>().ok();
    if tensors.iter().all(|(name, _)| number(name).is_some()) {
        tensors.sort_by_key(|(name, _)| number(name));
    }
    Ok(tensors
        .into_iter()
        .map(|(_, tensor)| Item::Tensor(tensor))
        .collect())
}

fn of_file(path: &Path) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    tensors.add_file(None, path)?;
    Ok(tensors)
}

/// Usual ways in which pixels of 0 to 255 become numbers.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Normalize {
    /// `x / 255`, then ImageNet's mean and standard deviation by channel.
    Imagenet,
    /// `x / 255`
    Unit,
    /// `x / 127.5 - 1`
    Signed,
    /// As they are.
    None,
}

impl Inputs {
    /// The same on the command line of another process.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut list: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: &OsStr| list.extend([name.into(), value.to_owned()]);
        self.files.iter().for_each(|file| option("--input", file));
        self.images.iter().for_each(|file| option("--image", file));
        self.shapes
            .iter()
            .for_each(|text| option("--shape", OsStr::new(text)));
        self.size
            .iter()
            .for_each(|size| option("--size", OsStr::new(size)));
        if let Some(value) = self.normalize.to_possible_value() {
            option("--normalize", OsStr::new(value.get_name()));
        }
        list.extend(self.gray.then(|| "--gray".into()));
        list
    }

    /// True if nothing was given.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.images.is_empty() && self.shapes.is_empty()
    }

    /// The files that are read.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let files = self.files.iter().chain(&self.images);
        files.map(|file| named(file).1).collect()
    }

    /// The arguments of a model's `forward`.
    pub(super) fn read(&self, model: &Model) -> Result<Vec<Item>> {
        self.tensors()?.arguments(&[model.signature("forward")?])
    }

    /// The arguments of a graph.
    pub(super) fn read_for(&self, graph: &Graph) -> Result<Vec<Item>> {
        self.tensors()?.arguments(&[Signature::of_graph(graph)])
    }

    /// The tensors in order: files, images, shapes.
    fn tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::default();
        for file in &self.files {
            let (name, path) = named(file);
            tensors.add_file(name.as_deref(), &path)?;
        }
        for file in &self.images {
            let (name, path) = named(file);
            tensors.add(name, self.image(&path)?);
        }
        for text in &self.shapes {
            let (name, ty) = match text.split_once('=') {
                Some((name, ty)) => (Some(name.to_string()), ty),
                None => (None, text.as_str()),
            };
            tensors.add(name, zeros(ty)?);
        }
        Ok(tensors)
    }

    /// An image as `f32[1, C, H, W]`.
    fn image(&self, path: &Path) -> Result<Tensor> {
        let unreadable =
            |error: image::ImageError| Error::format(format!("{}: {error}", path.display()));
        let reader = image::ImageReader::open(path).map_err(|error| Error::io(path, error))?;
        let mut picture = reader.decode().map_err(unreadable)?;
        if let Some(size) = &self.size {
            let (height, width) = parse_size(size)?;
            picture = picture.resize_exact(width, height, FilterType::Triangle);
        }
        let (height, width) = (picture.height() as usize, picture.width() as usize);
        let (channels, pixels) = if self.gray {
            (1, picture.to_luma8().into_raw())
        } else {
            (3, picture.to_rgb8().into_raw())
        };
        let at = |channel: usize, position: usize| {
            pixels
                .get(position * channels + channel)
                .copied()
                .unwrap_or(0)
        };
        let planes = (0..channels)
            .flat_map(|channel| (0..height * width).map(move |position| (channel, position)));
        let data = planes
            .map(|(channel, position)| self.normalize.apply(channel, at(channel, position)))
            .collect();
        Tensor::from_vec([1, channels, height, width], data)
    }
}

impl Normalize {
    fn apply(self, channel: usize, pixel: u8) -> f32 {
        let pixel = f32::from(pixel);
        match self {
            Normalize::Imagenet => {
                let mean = [0.485, 0.456, 0.406].get(channel).copied().unwrap_or(0.485);
                let deviation = [0.229, 0.224, 0.225].get(channel).copied().unwrap_or(0.229);
                (pixel / 255.0 - mean) / deviation
            }
            Normalize::Unit => pixel / 255.0,
            Normalize::Signed => pixel / 127.5 - 1.0,
            Normalize::None => pixel,
        }
    }
}

fn parse_size(text: &str) -> Result<(u32, u32)> {
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    match (height.parse(), width.parse()) {
        (Ok(height), Ok(width)) if height > 0 && width > 0 => Ok((height, width)),
        _ => Err(Error::usage(format!("--size {text} is not HEIGHTxWIDTH"))),
    }
}

fn zeros(text: &str) -> Result<Tensor> {
    let ty: TensorType = text.parse()?;
    let sizes = ty
        .sizes(&Bindings::new())
        .map_err(|_| Error::usage(format!("--shape {text}: sizes are numbers here")))?;
    Tensor::full(ty.dtype, sizes, 0.0)
}
