//! The layout of a picture in an input: size, channels, and order of the dimensions.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// Shape and element type of the input that a picture becomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PictureLayout {
    /// Height and width; `None` if neither a type nor the user gives them.
    pub(super) size: Option<(u32, u32)>,
    /// 1 or 3.
    pub(super) channels: usize,
    dtype: DType,
    has_batch: bool,
    channels_last: bool,
}

impl PictureLayout {
    /// Returns the layout for an input type with constant sizes. `size`, which the user gives, overrides the type's.
    ///
    /// # Errors
    /// The type cannot be a picture's.
    pub(super) fn for_input(
        wanted: Option<&TensorType>,
        size: Option<(u32, u32)>,
        gray: bool,
    ) -> Result<PictureLayout> {
        let Some(ty) = wanted else {
            return Ok(PictureLayout {
                size,
                channels: if gray { 1 } else { 3 },
                dtype: DType::F32,
                has_batch: true,
                channels_last: false,
            });
        };
        let sizes: Vec<i64> = ty.shape.iter().filter_map(|dim| dim.as_const()).collect();
        let (has_batch, rest) = match sizes.as_slice() {
            [_, rest @ ..] if rest.len() == 3 => (true, rest),
            rest => (false, rest),
        };
        let is_channels = |size: i64| size == 1 || size == 3;
        let (channels_last, channels, height, width) = match *rest {
            [channels, height, width] if is_channels(channels) => (false, channels, height, width),
            [height, width, channels] if is_channels(channels) => (true, channels, height, width),
            _ => return Err(no_picture(ty)),
        };
        let pixels = |size: i64| u32::try_from(size).ok().filter(|size| *size > 0);
        Ok(PictureLayout {
            size: size.or(pixels(height).zip(pixels(width))),
            channels: if channels == 1 { 1 } else { 3 },
            dtype: ty.dtype,
            has_batch,
            channels_last,
        })
    }

    /// True if the input's elements are bytes, like pixels.
    pub(super) fn has_bytes(&self) -> bool {
        self.dtype == DType::U8
    }

    /// Builds a tensor from pixels in rows with interleaved channels; `number` converts a channel's byte to a float.
    pub(super) fn tensor(
        &self,
        height: usize,
        width: usize,
        pixels: &[u8],
        number: &dyn Fn(usize, u8) -> f32,
    ) -> Result<Tensor> {
        let channels = self.channels;
        let at = |channel: usize, position: usize| {
            let pixel = pixels.get(position * channels + channel);
            number(channel, pixel.copied().unwrap_or(0))
        };
        let positions = 0..height * width;
        let data: Vec<f32> = match self.channels_last {
            true => positions
                .flat_map(|position| (0..channels).map(move |channel| (channel, position)))
                .map(|(channel, position)| at(channel, position))
                .collect(),
            false => (0..channels)
                .flat_map(|channel| positions.clone().map(move |position| (channel, position)))
                .map(|(channel, position)| at(channel, position))
                .collect(),
        };
        let mut shape = match self.channels_last {
            true => vec![height, width, channels],
            false => vec![channels, height, width],
        };
        if self.has_batch {
            shape.insert(0, 1);
        }
        Tensor::from_vec(shape, data)?.cast(self.dtype)
    }
}

fn no_picture(ty: &TensorType) -> Error {
    let message = format!("an input of type {ty} cannot be a picture");
    let help =
        "pictures are inputs of 3 or 4 dimensions with 1 or 3 channels; -i takes other tensors";
    Error::input(message).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ty: &str) -> PictureLayout {
        PictureLayout::for_input(Some(&ty.parse().unwrap()), None, false).unwrap()
    }

    #[test]
    fn a_type_tells_size_channels_and_order() {
        let found = frame("f32[1, 3, 20, 30]");
        assert_eq!((found.size, found.channels), (Some((20, 30)), 3));
        let found = frame("u8[20, 30, 1]");
        assert_eq!((found.size, found.channels), (Some((20, 30)), 1));
        assert!(found.has_bytes());
        let asked = PictureLayout::for_input(
            Some(&"f32[1, 3, 20, 30]".parse().unwrap()),
            Some((5, 6)),
            false,
        );
        assert_eq!(asked.unwrap().size, Some((5, 6)));
        assert!(
            PictureLayout::for_input(Some(&"i64[1, 16]".parse().unwrap()), None, false).is_err()
        );
    }

    #[test]
    fn pixels_are_laid_out_as_the_type_says() {
        let pixels = [1, 2, 3, 4, 5, 6];
        let number = |_: usize, pixel: u8| f32::from(pixel);
        let first = frame("f32[1, 3, 1, 2]").tensor(1, 2, &pixels, &number);
        assert_eq!(first.unwrap().to_f64(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let last = frame("u8[8, 9, 3]").tensor(1, 2, &pixels, &number).unwrap();
        assert_eq!((last.dtype(), last.shape()), (DType::U8, &[1, 2, 3][..]));
        assert_eq!(last.to_i64(), [1, 2, 3, 4, 5, 6]);
    }
}
