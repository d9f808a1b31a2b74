//! Conversions between tensors and pictures of the crate `image`.

use image::{GrayImage, RgbImage};

use super::Tensor;
use crate::error::{Error, Result};

/// The maximum value of a channel.
const MAX_CHANNEL: f32 = 255.0;

impl From<&RgbImage> for Tensor {
    /// The picture as `f32[1, 3, H, W]` from 0 to 1, like torchvision's `to_tensor` with a batch of one.
    fn from(picture: &RgbImage) -> Tensor {
        planes(
            picture.as_raw(),
            [3, picture.height() as usize, picture.width() as usize],
        )
    }
}

impl From<&GrayImage> for Tensor {
    /// The picture as `f32[1, 1, H, W]` from 0 to 1.
    fn from(picture: &GrayImage) -> Tensor {
        planes(
            picture.as_raw(),
            [1, picture.height() as usize, picture.width() as usize],
        )
    }
}

impl Tensor {
    /// A picture from `f32[3, H, W]` or `f32[1, 3, H, W]`. Values are clamped to 0 to 1 and rounded to 256 levels, like
    /// torchvision's `save_image`.
    ///
    /// # Errors
    /// The tensor has another shape or type.
    pub fn to_rgb_image(&self) -> Result<RgbImage> {
        let (width, height, pixels) = self.interleaved(3)?;
        RgbImage::from_raw(width, height, pixels).ok_or_else(|| self.no_picture(3))
    }

    /// A picture from `f32[1, H, W]` or `f32[1, 1, H, W]`; see [`Tensor::to_rgb_image`].
    ///
    /// # Errors
    /// See [`Tensor::to_rgb_image`].
    pub fn to_gray_image(&self) -> Result<GrayImage> {
        let (width, height, pixels) = self.interleaved(1)?;
        GrayImage::from_raw(width, height, pixels).ok_or_else(|| self.no_picture(1))
    }

    /// Width, height, and the pixels row by row, with interleaved channels.
    fn interleaved(&self, channels: usize) -> Result<(u32, u32, Vec<u8>)> {
        let (height, width) = match *self.shape() {
            [1, c, height, width] | [c, height, width] if c == channels => (height, width),
            _ => return Err(self.no_picture(channels)),
        };
        let (Ok(columns), Ok(rows)) = (u32::try_from(width), u32::try_from(height)) else {
            return Err(self.no_picture(channels));
        };
        let values = self.as_slice::<f32>()?;
        let area = height * width;
        let level = |value: f32| (value * MAX_CHANNEL + 0.5).clamp(0.0, MAX_CHANNEL) as u8;
        let pixels = (0..area).flat_map(|place| (0..channels).map(move |c| c * area + place));
        let pixels = pixels
            .filter_map(|at| values.get(at))
            .map(|value| level(*value));
        Ok((columns, rows, pixels.collect()))
    }

    fn no_picture(&self, channels: usize) -> Error {
        let found = self.tensor_type();
        Error::input(format!(
            "a picture is f32[{channels}, H, W] or f32[1, {channels}, H, W], not {found}"
        ))
    }
}

fn planes(pixels: &[u8], [channels, height, width]: [usize; 3]) -> Tensor {
    let area = height * width;
    let value = |at: usize| f32::from(pixels.get(at).copied().unwrap_or(0)) / MAX_CHANNEL;
    let places = (0..channels).flat_map(|c| (0..area).map(move |place| place * channels + c));
    Tensor::owned(
        vec![1, channels, height, width],
        places.map(value).collect(),
    )
}

#[cfg(test)]
mod tests {
    use image::{GrayImage, RgbImage};

    use super::Tensor;

    #[test]
    fn channels_become_planes_and_come_back() {
        let picture = RgbImage::from_raw(2, 1, vec![255, 0, 51, 0, 102, 255]).unwrap();
        let tensor = Tensor::from(&picture);
        assert_eq!(tensor.shape(), [1, 3, 1, 2]);
        assert_eq!(
            tensor.as_slice::<f32>().unwrap(),
            [1.0, 0.0, 0.0, 0.4, 0.2, 1.0]
        );
        assert_eq!(tensor.to_rgb_image().unwrap(), picture);
    }

    #[test]
    fn every_level_of_gray_comes_back() {
        let picture = GrayImage::from_raw(16, 16, (0..=255).collect()).unwrap();
        assert_eq!(Tensor::from(&picture).to_gray_image().unwrap(), picture);
    }

    #[test]
    fn values_beyond_the_range_are_clamped() {
        let tensor = Tensor::from_vec([1, 1, 4], vec![-1.0, 2.0, f32::NAN, 0.5]).unwrap();
        assert_eq!(tensor.to_gray_image().unwrap().into_raw(), [0, 255, 0, 128]);
    }

    #[test]
    fn another_shape_or_type_is_refused() {
        let vector = Tensor::from_vec([3], vec![0f32; 3]).unwrap();
        let error = vector.to_rgb_image().unwrap_err();
        assert!(error.message().ends_with("not f32[3]"), "{error}");
        let integers = Tensor::from_vec([1, 1, 1], vec![1i64]).unwrap();
        assert!(integers.to_gray_image().is_err());
    }
}
