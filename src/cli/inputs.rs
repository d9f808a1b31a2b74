//! Inputs from the command line: tensor files, images, or sizes only.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use image::imageops::FilterType;

use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::tensor_file;

/// Where the model's arguments come from; the options may be repeated and count in order.
#[derive(Args)]
pub(super) struct Inputs {
    /// A tensor file (.npy, .npz, .safetensors, .pt); every tensor in it is an argument.
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// An image file; see --size and --normalize.
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
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
    #[arg(long = "shape", value_name = "TYPE")]
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
    /// The sets in order: what `-i`, `--image` and `--shape` give together, then a set for each file.
    pub(super) fn read(&self) -> Result<Vec<Vec<Item>>> {
        let mut sets = Vec::new();
        if !self.first.is_empty() {
            sets.push(self.first.read()?);
        }
        for path in &self.sets {
            sets.push(arguments(path)?);
        }
        Ok(sets)
    }
}

/// The tensors of a file.
pub(super) fn arguments(path: &Path) -> Result<Vec<Item>> {
    let tensors = tensor_file::read(path)?.into_iter();
    Ok(tensors.map(|(_, tensor)| Item::Tensor(tensor)).collect())
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
        self.files
            .iter()
            .for_each(|path| option("--input", path.as_os_str()));
        self.images
            .iter()
            .for_each(|path| option("--image", path.as_os_str()));
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

    /// The arguments in order: files, images, shapes.
    pub(super) fn read(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for path in &self.files {
            items.extend(arguments(path)?);
        }
        for path in &self.images {
            items.push(Item::Tensor(self.image(path)?));
        }
        for text in &self.shapes {
            items.push(Item::Tensor(zeros(text)?));
        }
        Ok(items)
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
