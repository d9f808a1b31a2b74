//! Options of the command line for pictures as inputs.

#[cfg_attr(not(feature = "images"), path = "image/no_decoder.rs")]
mod decode;

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, ValueEnum};

use decode::decode;

use super::picture_layout::PictureLayout;
use crate::budget::{Budget, Limits};
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// `--image` and the options that describe how to read it.
#[derive(Args)]
pub(in crate::cli) struct PictureOptions {
    /// A picture (PNG, JPEG, WebP, BMP), resized to the size that the model was traced with; see --size and --preset.
    #[arg(long = "image", value_name = "[NAME=]FILE")]
    pub(super) images: Vec<OsString>,
    /// The size of pictures, HEIGHTxWIDTH or one number for a square, instead of the trace's.
    #[arg(long, value_name = "SIZE", requires = "images")]
    pub(super) size: Option<String>,
    /// Resizing and normalisation of pictures; by default imagenet for colours, unit for gray, raw for inputs of bytes.
    #[arg(long, value_enum, requires = "images")]
    pub(super) preset: Option<Preset>,
    /// Read pictures as gray, one channel, where the model does not say how many channels it takes.
    #[arg(long, requires = "images")]
    pub(super) gray: bool,
}

/// A decoded picture, fitted to a size.
struct FittedPicture {
    /// Height and width of the picture in the file.
    original: (u32, u32),
    /// Height and width of the fitted picture.
    size: (usize, usize),
    /// Bytes in rows, with interleaved channels.
    pixels: Vec<u8>,
}

/// Usual preprocessings of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Preset {
    /// Torchvision's classifiers: resize the short side to 8/7 of the size (256 for 224), crop the centre; ImageNet's mean and
    /// deviation
    Imagenet,
    /// CLIP: resize the short side (bicubic), crop the centre; CLIP's mean and deviation
    Clip,
    /// YOLO: fit the whole picture on gray (letterbox); `x / 255`
    Yolo,
    /// Stretch; `x / 255`
    Unit,
    /// Stretch; `x / 127.5 - 1`
    Signed,
    /// Stretch; pixels as they are, 0 to 255
    Raw,
}

impl PictureOptions {
    /// Returns the height and width of `--size`.
    ///
    /// # Errors
    /// `--size` is not a size.
    pub(super) fn wanted_size(&self) -> Result<Option<(u32, u32)>> {
        let Some(text) = &self.size else {
            return Ok(None);
        };
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        match (height.parse(), width.parse()) {
            (Ok(height), Ok(width)) if height > 0 && width > 0 => Ok(Some((height, width))),
            _ => Err(Error::usage(format!("--size {text} is not a size"))
                .help("give HEIGHTxWIDTH in pixels, such as 224x224, or one number for a square")),
        }
    }

    /// Reads a picture as a tensor of the wanted type. Returns the tensor and a description of the conversion.
    pub(super) fn read(
        &self,
        path: &Path,
        wanted: Option<&TensorType>,
        limits: &Limits,
    ) -> Result<(Tensor, String)> {
        let frame = PictureLayout::for_input(wanted, self.wanted_size()?, self.gray)?;
        let preset = self.preset.unwrap_or_else(|| default_preset(&frame));
        let budget = Budget::new(limits.clone());
        let picture = decode(path, frame.size, frame.channels, preset, &budget)?;
        let number = |channel: usize, pixel: u8| preset.normalize(channel, pixel);
        let (height, width) = picture.size;
        budget.charge_bytes(picture.pixels.len() as u64 * size_of::<f32>() as u64)?;
        let tensor = frame.tensor(height, width, &picture.pixels, &number)?;
        let told = format!(
            "{}x{} pixels as {}, preset {}",
            picture.original.1,
            picture.original.0,
            tensor.tensor_type(),
            preset.name()
        );
        Ok((tensor, told))
    }
}

/// Returns the preset of an input for which the user gives none.
fn default_preset(frame: &PictureLayout) -> Preset {
    match (frame.has_bytes(), frame.channels) {
        (true, _) => Preset::Raw,
        (_, 1) => Preset::Unit,
        _ => Preset::Imagenet,
    }
}

impl Preset {
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }

    /// Converts the byte of a channel to a float.
    fn normalize(self, channel: usize, pixel: u8) -> f32 {
        let pixel = f32::from(pixel);
        match self {
            Preset::Imagenet => normalized(pixel, channel, IMAGENET),
            Preset::Clip => normalized(pixel, channel, CLIP),
            Preset::Yolo | Preset::Unit => pixel / 255.0,
            Preset::Signed => pixel / 127.5 - 1.0,
            Preset::Raw => pixel,
        }
    }
}

/// Mean and standard deviation by channel.
type ChannelStatistics = [(f32, f32); 3];

const IMAGENET: ChannelStatistics = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];
const CLIP: ChannelStatistics = [
    (0.481_454_66, 0.268_629_54),
    (0.457_827_5, 0.261_302_6),
    (0.408_210_73, 0.275_777_1),
];

fn normalized(pixel: f32, channel: usize, statistics: ChannelStatistics) -> f32 {
    let (mean, deviation) = statistics.get(channel).copied().unwrap_or((0.0, 1.0));
    (pixel / 255.0 - mean) / deviation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_become_numbers() {
        assert_eq!(Preset::Unit.normalize(0, 255), 1.0);
        assert_eq!(Preset::Signed.normalize(0, 0), -1.0);
        assert_eq!(Preset::Raw.normalize(2, 7), 7.0);
        assert!((Preset::Imagenet.normalize(0, 255) - 2.248_908_3).abs() < 1e-5);
        assert!((Preset::Clip.normalize(2, 0) + 1.480_219_7).abs() < 1e-5);
    }
}
