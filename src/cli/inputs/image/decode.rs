//! Decodes and resizes pictures; the only user of the crate `image` in the command line.

use std::io::BufReader;
use std::path::Path;

use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageError, ImageReader, Rgb, RgbImage};

use super::{FittedPicture, Preset};
use crate::error::{Error, Result};
use crate::files;

/// Gray of a letterbox's borders.
const LETTERBOX: Rgb<u8> = Rgb([114, 114, 114]);

/// Reads a picture with one or three channels and fits it into a size (height, width).
pub(super) fn decode(
    path: &Path,
    size: Option<(u32, u32)>,
    channels: usize,
    preset: Preset,
) -> Result<FittedPicture> {
    let picture = open(path)?;
    let fitted = match size {
        Some((height, width)) => fit(&picture, height, width, preset),
        None => picture.to_rgb8(),
    };
    let size = (fitted.height() as usize, fitted.width() as usize);
    let pixels = match channels {
        1 => DynamicImage::from(fitted).to_luma8().into_raw(),
        _ => fitted.into_raw(),
    };
    Ok(FittedPicture {
        original: (picture.height(), picture.width()),
        size,
        pixels,
    })
}

fn open(path: &Path) -> Result<DynamicImage> {
    let file = files::open(path).map_err(|error| Error::io(path, error))?;
    let reader = ImageReader::new(BufReader::new(file));
    let reader = reader.with_guessed_format();
    let reader = reader.map_err(|error| Error::io(path, error))?;
    let unreadable = |error: ImageError| Error::format(format!("{}: {error}", path.display()));
    reader.decode().map_err(unreadable)
}

/// Fits a picture into a size (height, width) as the preset does.
fn fit(picture: &DynamicImage, height: u32, width: u32, preset: Preset) -> RgbImage {
    let triangle = FilterType::Triangle;
    match preset {
        Preset::Imagenet => crop(picture, height, width, 8.0 / 7.0, triangle),
        Preset::Clip => crop(picture, height, width, 1.0, FilterType::CatmullRom),
        Preset::Yolo => letterbox(picture, height, width),
        Preset::Unit | Preset::Signed | Preset::Raw => {
            picture.resize_exact(width, height, triangle).to_rgb8()
        }
    }
}

/// Resizes the picture until it covers `factor` times the size, and crops the size from its centre.
fn crop(
    picture: &DynamicImage,
    height: u32,
    width: u32,
    factor: f64,
    filter: FilterType,
) -> RgbImage {
    let ratio =
        |wanted: u32, has: u32| (f64::from(wanted) * factor).round() / f64::from(has.max(1));
    let scale = ratio(height, picture.height()).max(ratio(width, picture.width()));
    let resized = resize(picture, scale, height, width, filter);
    let margin = |has: u32, wanted: u32| {
        (f64::from(has.saturating_sub(wanted)) / 2.0).round_ties_even() as u32
    };
    let (x, y) = (
        margin(resized.width(), width),
        margin(resized.height(), height),
    );
    resized.crop_imm(x, y, width, height).to_rgb8()
}

/// Resizes by a factor, to at least a size (height, width).
fn resize(
    picture: &DynamicImage,
    scale: f64,
    height: u32,
    width: u32,
    filter: FilterType,
) -> DynamicImage {
    // PyTorch rounds down. The small addend keeps an exact side from losing a pixel to rounding errors.
    let scaled = |has: u32, least: u32| ((f64::from(has) * scale + 1e-6) as u32).max(least);
    let size = (
        scaled(picture.width(), width),
        scaled(picture.height(), height),
    );
    picture.resize_exact(size.0, size.1, filter)
}

/// Fits the whole picture into a size (height, width), with gray borders.
fn letterbox(picture: &DynamicImage, height: u32, width: u32) -> RgbImage {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a picture whose pixels hold their column in red and their row in green.
    fn picture(width: u32, height: u32) -> DynamicImage {
        RgbImage::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, 0])).into()
    }

    #[test]
    fn imagenet_cuts_the_centre_out_of_eight_sevenths() {
        // The short side stays 64 = 56 * 8 / 7, so nothing is resized; the crop removes 4 pixels from each long edge.
        let cut = fit(&picture(96, 64), 56, 56, Preset::Imagenet);
        assert_eq!((cut.width(), cut.height()), (56, 56));
        assert_eq!(cut.get_pixel(0, 0), &Rgb([20, 4, 0]));
        // A margin with half a pixel is rounded to even, as in Python.
        let cut = fit(&picture(97, 64), 56, 56, Preset::Imagenet);
        assert_eq!(cut.get_pixel(0, 0), &Rgb([20, 4, 0]));
    }

    #[test]
    fn clip_cuts_at_the_sides_only() {
        let cut = fit(&picture(96, 64), 64, 64, Preset::Clip);
        assert_eq!(cut.get_pixel(0, 0), &Rgb([16, 0, 0]));
    }

    #[test]
    fn a_letterbox_keeps_the_whole_picture() {
        let page = fit(&picture(64, 32), 64, 64, Preset::Yolo);
        assert_eq!(page.get_pixel(0, 0), &LETTERBOX);
        assert_eq!(page.get_pixel(0, 16), &Rgb([0, 0, 0]));
        assert_eq!(page.get_pixel(63, 47), &Rgb([63, 31, 0]));
        assert_eq!(page.get_pixel(0, 48), &LETTERBOX);
    }
}
