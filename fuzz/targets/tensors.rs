//! Files of tensors, pictures, and types as the command line takes them.

use std::io::Cursor;

use image::ImageReader;
use onionskin::Tensor;
use onionskin::file_kind::FileKind;
use onionskin::shape::TensorType;
use onionskin::tensor_file::{NamedTensors, npy, safetensors};

use super::limits;

/// Any bytes, read as each format of tensors, as a picture and as a type. Tensors that are written are read back as they were.
pub fn tensors(data: &[u8]) {
    let _ = FileKind::of_bytes(data).to_string();
    if let Ok(tensors) = safetensors::parse(data) {
        let written = safetensors::serialize(&tensors).expect("tensors can be written");
        assert_eq!(sorted(safetensors::parse(&written)), sorted(Ok(tensors)));
    }
    if let Ok(tensor) = npy::parse(data) {
        let written = npy::serialize(&tensor).expect("a tensor can be written");
        assert_eq!(npy::parse(&written).expect("it can be read"), tensor);
    }
    let _ = npy::parse_archive_with(data, &limits());
    picture(data);
    let text = String::from_utf8_lossy(data);
    if let Ok(ty) = text.parse::<TensorType>() {
        assert_eq!(
            ty.to_string()
                .parse::<TensorType>()
                .expect("it can be parsed"),
            ty
        );
    }
}

/// Decodes a picture as `--image` does.
fn picture(data: &[u8]) {
    let mut decoder_limits = image::Limits::default();
    decoder_limits.max_alloc = Some(limits().bytes / 2);
    let reader = ImageReader::new(Cursor::new(data)).with_guessed_format();
    let decoded = reader.map(|mut reader| {
        reader.limits(decoder_limits);
        reader.decode()
    });
    if let Ok(Ok(picture)) = decoded {
        let tensor = Tensor::from(&picture.to_rgb8());
        tensor.to_rgb_image().expect("a picture of a picture");
    }
}

fn sorted(tensors: onionskin::Result<NamedTensors>) -> NamedTensors {
    let mut tensors = tensors.expect("written tensors can be read");
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    tensors
}
