//! Pictures as inputs: the one place that decodes and resizes them.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, ValueEnum};
use image::imageops::{self, FilterType};
use image::{DynamicImage, Rgb, RgbImage};

use super::frame::Frame;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// `--image` and what belongs to it.
#[derive(Args)]
pub(in crate::cli) struct Pictures {
    /// A picture (PNG, JPEG, WebP, BMP), resized to what the model was traced with; see --size and --preset.
    #[arg(long = "image", value_name = "[NAME=]FILE")]
    pub(super) images: Vec<OsString>,
    /// The size of pictures, HEIGHTxWIDTH or one number for a square, instead of the trace's.
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<String>,
    /// How a picture is fitted and its pixels become numbers; by default imagenet for colours, unit for gray, raw for
    /// inputs of bytes.
    #[arg(long, value_enum)]
    pub(super) preset: Option<Preset>,
    /// Read pictures as gray, one channel, where the model does not say how many channels it takes.
    #[arg(long)]
    pub(super) gray: bool,
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

/// The gray of a letterbox.
const LETTERBOX: Rgb<u8> = Rgb([114, 114, 114]);

impl Pictures {
    /// The size that is asked for: height and width.
    ///
    /// # Errors
    /// `--size` is none.
    pub(super) fn wanted_size(&self) -> Result<Option<(u32, u32)>> {
        let Some(text) = &self.size else {
            return Ok(None);
        };
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        match (height.parse(), width.parse()) {
            (Ok(height), Ok(width)) if height > 0 && width > 0 => Ok(Some((height, width))),
            _ => Err(Error::usage(format!("--size {text} is no size"))
                .help("give HEIGHTxWIDTH in pixels, such as 224x224, or one number for a square")),
        }
    }

    /// A picture as the input of a type, and how it was made.
    pub(super) fn read(
        &self,
        path: &Path,
        wanted: Option<&TensorType>,
    ) -> Result<(Tensor, String)> {
        let picture = decode(path)?;
        let (height, width) = (picture.height(), picture.width());
        let frame = Frame::of(wanted, self.wanted_size()?, self.gray)?;
        let preset = self.preset.unwrap_or_else(|| usual(&frame));
        let fitted = match frame.size {
            Some(size) => fit(&picture, size, preset),
            None => picture.to_rgb8(),
        };
        let pixels = match frame.channels {
            1 => DynamicImage::from(fitted.clone()).to_luma8().into_raw(),
            _ => fitted.as_raw().clone(),
        };
        let size = (fitted.height() as usize, fitted.width() as usize);
        let number = |channel: usize, pixel: u8| preset.number(channel, pixel);
        let tensor = frame.tensor(size, &pixels, &number)?;
        let told = format!(
            "{width}x{height} pixels as {}, preset {}",
            tensor.tensor_type(),
            preset.name()
        );
        Ok((tensor, told))
    }
}

fn decode(path: &Path) -> Result<DynamicImage> {
    let reader = image::ImageReader::open(path).map_err(|error| Error::io(path, error))?;
    let reader = reader.with_guessed_format();
    let reader = reader.map_err(|error| Error::io(path, error))?;
    let unreadable =
        |error: image::ImageError| Error::format(format!("{}: {error}", path.display()));
    reader.decode().map_err(unreadable)
}

/// The preset of an input for which none is asked.
fn usual(frame: &Frame) -> Preset {
    match (frame.has_bytes(), frame.channels) {
        (true, _) => Preset::Raw,
        (_, 1) => Preset::Unit,
        _ => Preset::Imagenet,
    }
}

/// The picture in a size (height, width).
fn fit(picture: &DynamicImage, (height, width): (u32, u32), preset: Preset) -> RgbImage {
    let triangle = FilterType::Triangle;
    match preset {
        Preset::Imagenet => crop(picture, (height, width), 8.0 / 7.0, triangle),
        Preset::Clip => crop(picture, (height, width), 1.0, FilterType::CatmullRom),
        Preset::Yolo => letterbox(picture, (height, width)),
        Preset::Unit | Preset::Signed | Preset::Raw => {
            picture.resize_exact(width, height, triangle).to_rgb8()
        }
    }
}

/// Resizes until the picture covers a multiple of the size, and cuts out its centre.
fn crop(
    picture: &DynamicImage,
    (height, width): (u32, u32),
    factor: f64,
    filter: FilterType,
) -> RgbImage {
    let ratio =
        |wanted: u32, has: u32| (f64::from(wanted) * factor).round() / f64::from(has.max(1));
    let scale = ratio(height, picture.height()).max(ratio(width, picture.width()));
    let resized = resize(picture, scale, (height, width), filter);
    let margin =
        |has: u32, wanted: u32| (f64::from(has.saturating_sub(wanted)) / 2.0).round() as u32;
    let (x, y) = (
        margin(resized.width(), width),
        margin(resized.height(), height),
    );
    resized.crop_imm(x, y, width, height).to_rgb8()
}

/// Resizes by a factor, to no less than a size.
fn resize(
    picture: &DynamicImage,
    scale: f64,
    (height, width): (u32, u32),
    filter: FilterType,
) -> DynamicImage {
    // Rounding down is PyTorch's; the small number keeps a side that is met exactly from losing a pixel.
    let scaled = |has: u32, least: u32| ((f64::from(has) * scale + 1e-6) as u32).max(least);
    let size = (
        scaled(picture.width(), width),
        scaled(picture.height(), height),
    );
    picture.resize_exact(size.0, size.1, filter)
}

/// Fits the whole picture into a size, on gray.
fn letterbox(picture: &DynamicImage, (height, width): (u32, u32)) -> RgbImage {
    let fitted = picture
        .resize(width, height, FilterType::Triangle)
        .to_rgb8();
    let mut page = RgbImage::from_pixel(width, height, LETTERBOX);
    let margin = |page: u32, has: u32| i64::from(page.saturating_sub(has) / 2);
    let (x, y) = (
        margin(width, fitted.width()),
        margin(height, fitted.height()),
    );
    imageops::overlay(&mut page, &fitted, x, y);
    page
}

impl Preset {
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }

    /// The number of a pixel.
    fn number(self, channel: usize, pixel: u8) -> f32 {
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
type Statistics = [(f32, f32); 3];

const IMAGENET: Statistics = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];
const CLIP: Statistics = [
    (0.481_454_66, 0.268_629_54),
    (0.457_827_5, 0.261_302_58),
    (0.408_210_73, 0.275_777_1),
];

fn normalized(pixel: f32, channel: usize, statistics: Statistics) -> f32 {
    let (mean, deviation) = statistics.get(channel).copied().unwrap_or((0.0, 1.0));
    (pixel / 255.0 - mean) / deviation
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture whose pixels tell their column in red and their row in green.
    fn picture(width: u32, height: u32) -> DynamicImage {
        RgbImage::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, 0])).into()
    }

    #[test]
    fn imagenet_cuts_the_centre_out_of_eight_sevenths() {
        // The short side of 64 becomes 64 = 56 * 8 / 7, so that nothing is resized, and 4 are cut off at each side.
        let cut = fit(&picture(96, 64), (56, 56), Preset::Imagenet);
        assert_eq!((cut.width(), cut.height()), (56, 56));
        assert_eq!(cut.get_pixel(0, 0), &Rgb([20, 4, 0]));
    }

    #[test]
    fn clip_cuts_at_the_sides_only() {
        let cut = fit(&picture(96, 64), (64, 64), Preset::Clip);
        assert_eq!(cut.get_pixel(0, 0), &Rgb([16, 0, 0]));
    }

    #[test]
    fn a_letterbox_keeps_the_whole_picture() {
        let page = fit(&picture(64, 32), (64, 64), Preset::Yolo);
        assert_eq!(page.get_pixel(0, 0), &LETTERBOX);
        assert_eq!(page.get_pixel(0, 16), &Rgb([0, 0, 0]));
        assert_eq!(page.get_pixel(63, 47), &Rgb([63, 31, 0]));
        assert_eq!(page.get_pixel(0, 48), &LETTERBOX);
    }

    #[test]
    fn pixels_become_numbers() {
        assert_eq!(Preset::Unit.number(0, 255), 1.0);
        assert_eq!(Preset::Signed.number(0, 0), -1.0);
        assert_eq!(Preset::Raw.number(2, 7), 7.0);
        assert!((Preset::Imagenet.number(0, 255) - 2.248_908_3).abs() < 1e-5);
        assert!((Preset::Clip.number(2, 0) + 1.480_219_7).abs() < 1e-5);
    }
}
