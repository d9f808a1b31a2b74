//! Decodes and resizes pictures; the only user of the crate `image` in the command line.

use std::io::BufReader;
use std::path::Path;

use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageError, ImageReader, Limits, Rgb, RgbImage};

use super::{FittedPicture, Preset};
use crate::budget::Budget;
use crate::error::{Error, ErrorContext, Result};
use crate::files;

/// Gray of a letterbox's borders.
const LETTERBOX: Rgb<u8> = Rgb([114, 114, 114]);

/// Bytes of a pixel while a picture is resized.
const RESIZED_PIXEL: u64 = 16;

/// Reads a picture with one or three channels and fits it into a size (height, width).
pub(super) fn decode(
    path: &Path,
    size: Option<(u32, u32)>,
    channels: usize,
    preset: Preset,
    budget: &Budget,
) -> Result<FittedPicture> {
    let picture = open(path, budget)?;
    let fitted = match size {
        Some((height, width)) => fit(&picture, height, width, preset, budget),
        None => Ok(picture.to_rgb8()),
    };
    let fitted = fitted.at(|| path.display().to_string())?;
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

/// Decodes a picture. Its pixels are charged twice: they are converted once.
fn open(path: &Path, budget: &Budget) -> Result<DynamicImage> {
    let file = files::open(path).map_err(|error| Error::io(path, error))?;
    let reader = ImageReader::new(BufReader::new(file));
    let reader = reader.with_guessed_format();
    let mut reader = reader.map_err(|error| Error::io(path, error))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(budget.limits().bytes / 2);
    reader.limits(limits);
    let here = || path.display().to_string();
    let picture = reader.decode().map_err(|error| match error {
        // The decoder does not say how many bytes it wanted.
        ImageError::Limits(_) => exceeded(budget).at(here()),
        error => Error::format(format!("{}: {error}", path.display())),
    })?;
    let bytes = picture.as_bytes().len() as u64;
    budget.charge_bytes(bytes.saturating_mul(2)).at(here)?;
    Ok(picture)
}

/// Returns the error of a budget of which nothing is left.
fn exceeded(budget: &Budget) -> Error {
    let error = budget.charge_bytes(u64::MAX).err();
    error.unwrap_or_else(|| Error::format("the picture does not fit in memory"))
}

/// Fits a picture into a size (height, width) as the preset does.
fn fit(
    picture: &DynamicImage,
    height: u32,
    width: u32,
    preset: Preset,
    budget: &Budget,
) -> Result<RgbImage> {
    let triangle = FilterType::Triangle;
    let cubic = FilterType::CatmullRom;
    match preset {
        Preset::Imagenet => crop(picture, height, width, 8.0 / 7.0, triangle, budget),
        Preset::Clip => crop(picture, height, width, 1.0, cubic, budget),
        Preset::Yolo => {
            charge_resizing(picture, height, width, budget)?;
            Ok(letterbox(picture, height, width))
        }
        Preset::Unit | Preset::Signed | Preset::Raw => {
            charge_resizing(picture, height, width, budget)?;
            Ok(picture.resize_exact(width, height, triangle).to_rgb8())
        }
    }
}

/// Charges resizing to a size (height, width). The columns are resized first: a wide picture takes much memory on the way.
fn charge_resizing(picture: &DynamicImage, height: u32, width: u32, budget: &Budget) -> Result<()> {
    let pixels = |width: u32| u64::from(width) * u64::from(height);
    let pixels = pixels(picture.width()).saturating_add(pixels(width));
    budget.charge_bytes(pixels.saturating_mul(RESIZED_PIXEL))
}

/// Resizes the picture until it covers `factor` times the size, and crops the size from its centre.
fn crop(
    picture: &DynamicImage,
    height: u32,
    width: u32,
    factor: f64,
    filter: FilterType,
    budget: &Budget,
) -> Result<RgbImage> {
    let ratio =
        |wanted: u32, has: u32| (f64::from(wanted) * factor).round() / f64::from(has.max(1));
    let scale = ratio(height, picture.height()).max(ratio(width, picture.width()));
    let resized = resize(picture, scale, height, width, filter, budget)?;
    let margin = |has: u32, wanted: u32| {
        (f64::from(has.saturating_sub(wanted)) / 2.0).round_ties_even() as u32
    };
    let (x, y) = (
        margin(resized.width(), width),
        margin(resized.height(), height),
    );
    Ok(resized.crop_imm(x, y, width, height).to_rgb8())
}

/// Resizes by a factor, to at least a size (height, width).
fn resize(
    picture: &DynamicImage,
    scale: f64,
    height: u32,
    width: u32,
    filter: FilterType,
    budget: &Budget,
) -> Result<DynamicImage> {
    // PyTorch rounds down. The small addend keeps an exact side from losing a pixel to rounding errors.
    let scaled = |has: u32, least: u32| ((f64::from(has) * scale + 1e-6) as u32).max(least);
    let size = (
        scaled(picture.width(), width),
        scaled(picture.height(), height),
    );
    charge_resizing(picture, size.1, size.0, budget)?;
    Ok(picture.resize_exact(size.0, size.1, filter))
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
        let cut = fit(
            &picture(96, 64),
            56,
            56,
            Preset::Imagenet,
            &Budget::default(),
        )
        .unwrap();
        assert_eq!((cut.width(), cut.height()), (56, 56));
        assert_eq!(cut.get_pixel(0, 0), &Rgb([20, 4, 0]));
        // A margin with half a pixel is rounded to even, as in Python.
        let cut = fit(
            &picture(97, 64),
            56,
            56,
            Preset::Imagenet,
            &Budget::default(),
        )
        .unwrap();
        assert_eq!(cut.get_pixel(0, 0), &Rgb([20, 4, 0]));
    }

    #[test]
    fn clip_cuts_at_the_sides_only() {
        let cut = fit(&picture(96, 64), 64, 64, Preset::Clip, &Budget::default()).unwrap();
        assert_eq!(cut.get_pixel(0, 0), &Rgb([16, 0, 0]));
    }

    #[test]
    fn a_letterbox_keeps_the_whole_picture() {
        let page = fit(&picture(64, 32), 64, 64, Preset::Yolo, &Budget::default()).unwrap();
        assert_eq!(page.get_pixel(0, 0), &LETTERBOX);
        assert_eq!(page.get_pixel(0, 16), &Rgb([0, 0, 0]));
        assert_eq!(page.get_pixel(63, 47), &Rgb([63, 31, 0]));
        assert_eq!(page.get_pixel(0, 48), &LETTERBOX);
    }

    #[test]
    fn resizing_reaches_the_limit_of_bytes() {
        // A row of pixels is as high as the result on the way: 3,000,000 columns of 256 pixels.
        let wide = picture(3_000_000, 1);
        for preset in [Preset::Imagenet, Preset::Clip, Preset::Yolo, Preset::Raw] {
            let error = fit(&wide, 224, 224, preset, &Budget::default()).unwrap_err();
            assert!(error.advice().unwrap().contains("--limit bytes=N"));
        }
    }

    #[test]
    fn a_picture_that_promises_many_pixels_is_refused() {
        // A BMP header of 60,000 by 60,000 pixels.
        let mut bytes = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        bytes.extend(60_000i32.to_le_bytes());
        bytes.extend(60_000i32.to_le_bytes());
        bytes.extend(b"\x01\0\x18\0");
        bytes.extend([0; 64]);
        let name = format!("onionskin-picture-{}.bmp", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = open(&path, &Budget::default()).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(
            error.advice().unwrap().contains("--limit bytes=N"),
            "{error}"
        );
    }
}
