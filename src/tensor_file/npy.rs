//! NumPy's `.npy` and `.npz` (`numpy/lib/format.py`): the `npyz` crate reads headers, this module the elements.

use std::io::{Cursor, Write};

use npyz::{DType as NpyDType, NpyHeader, Order, TypeStr};

use super::NamedTensors;
use crate::archive::inflate;
use crate::budget::{Budget, Limits};
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::tensor::Tensor;

/// Reads one array.
pub fn parse(bytes: &[u8]) -> Result<Tensor> {
    check_header(bytes)?;
    let mut cursor = Cursor::new(bytes);
    let header = NpyHeader::from_reader(&mut cursor).map_err(bad)?;
    let NpyDType::Plain(ty) = header.dtype() else {
        return Err(structured());
    };
    let shape: Vec<usize> = header
        .shape()
        .iter()
        .map(|size| usize::try_from(*size).unwrap_or(usize::MAX))
        .collect();
    let dtype = dtype(&ty)?;
    let data = bytes
        .get(usize::try_from(cursor.position()).unwrap_or(usize::MAX)..)
        .unwrap_or_default();
    let product = |product: usize, size: &usize| product.checked_mul(*size);
    let bytes = shape.iter().try_fold(dtype.size(), product);
    match header.order() {
        Order::Fortran if bytes == Some(data.len()) => {
            let elements = row_major(data, &shape, dtype.size());
            Tensor::from_bytes(dtype, shape, &elements)
        }
        _ => Tensor::from_bytes(dtype, shape, data),
    }
}

/// Characters of a header. NumPy itself refuses longer ones.
const MAX_HEADER: usize = 10_000;
/// Opening brackets of a header. That of a plain array has two; the parser's time is exponential in them.
const MAX_BRACKETS: usize = 4;

/// Checks what the parser of headers does not: it reserves the length that the file claims, backtracks at brackets, and
/// multiplies the sizes of the shape.
fn check_header(bytes: &[u8]) -> Result<()> {
    let (length, start) = match bytes {
        [_, _, _, _, _, _, 1, _, a, b, ..] => (u32::from_le_bytes([*a, *b, 0, 0]), 10),
        [_, _, _, _, _, _, _, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]), 12),
        _ => return Err(Error::format("npy: the header is cut short")),
    };
    let end = start + length as usize;
    if MAX_HEADER < end - start {
        let message = format!("npy: the header has {length} characters, more than {MAX_HEADER}");
        return Err(Error::format(message));
    }
    let header = bytes.get(start..end).unwrap_or_default();
    let brackets = header.iter().filter(|byte| b"([{".contains(byte));
    if MAX_BRACKETS < brackets.count() {
        return Err(structured());
    }
    match fits_memory(header) {
        true => Ok(()),
        false => Err(Error::format("npy: the shape is too large")),
    }
}

fn structured() -> Error {
    Error::unsupported("structured NumPy arrays")
}

/// True if the product of the numbers in a header, which are sizes and the size of an element, does not overflow.
fn fits_memory(header: &[u8]) -> bool {
    let numbers = header.split(|byte| !byte.is_ascii_digit());
    let mut numbers = numbers.filter(|number| !number.is_empty());
    let multiply = |product: u64, number: &[u8]| {
        let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        product.checked_mul(number.max(1))
    };
    numbers.try_fold(1, multiply).is_some()
}

/// Converts column-major data to row-major order. The data must have the length that the shape says.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut elements = Vec::with_capacity(data.len());
    let mut index = vec![0; shape.len()];
    let steps = shape.iter().scan(size, |step, length| {
        let own = *step;
        *step *= length;
        Some(own)
    });
    let steps: Vec<usize> = steps.collect();
    for _ in 0..data.len() / size {
        let place = index.iter().zip(&steps).map(|(index, step)| index * step);
        let place: usize = place.sum();
        let element = data.get(place..place + size);
        elements.extend_from_slice(element.unwrap_or_default());
        for (index, length) in index.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < *length {
                break;
            }
            *index = 0;
        }
    }
    elements
}

/// Reads every array of a `.npz` file.
///
/// # Errors
/// The bytes violate the format, or exceed one of the default [`Limits`].
pub fn parse_archive(bytes: &[u8]) -> Result<NamedTensors> {
    parse_archive_with(bytes, &Limits::default())
}

/// Like [`parse_archive`], with other limits.
///
/// # Errors
/// As [`parse_archive`].
pub fn parse_archive_with(bytes: &[u8], limits: &Limits) -> Result<NamedTensors> {
    let budget = Budget::for_file(limits, bytes.len());
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).map_err(bad_archive)?;
    (0..zip.len())
        .map(|index| {
            let entry = zip.by_index(index).map_err(bad_archive)?;
            let name = entry.name().trim_end_matches(".npy").to_string();
            let array = inflate(entry, &budget).and_then(|bytes| parse(&bytes));
            Ok((name.clone(), array.at(|| format!("array {name:?}"))?))
        })
        .collect()
}

/// Writes one array.
pub fn serialize(tensor: &Tensor) -> Result<Vec<u8>> {
    let header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
        descriptor(tensor.dtype())?,
        tensor
            .shape()
            .iter()
            .map(|size| format!("{size},"))
            .collect::<String>(),
    );
    // Magic, version 1.0 and length make 10 bytes; the data start at a multiple of 64 after a newline.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(
        u16::try_from(length)
            .map_err(|_| Error::format("too many dimensions for .npy"))?
            .to_le_bytes(),
    );
    bytes.extend(header.as_bytes());
    bytes.resize(10 + length - 1, b' ');
    bytes.push(b'\n');
    bytes.extend(tensor.bytes());
    Ok(bytes)
}

/// Comment of `.npz` files that this crate writes; it identifies them.
pub const COMMENT: &str = "written by onionskin";

/// Writes a `.npz` file.
pub fn serialize_archive(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.set_comment(COMMENT).map_err(bad_archive)?;
    for (name, tensor) in tensors {
        zip.start_file(format!("{name}.npy"), options)
            .map_err(bad_archive)?;
        zip.write_all(&serialize(tensor)?).map_err(bad)?;
    }
    Ok(zip.finish().map_err(bad_archive)?.into_inner())
}

fn bad(error: std::io::Error) -> Error {
    Error::format(format!("npy: {error}"))
}

fn bad_archive(error: zip::result::ZipError) -> Error {
    Error::format(format!("npz: {error}"))
}

fn dtype(ty: &TypeStr) -> Result<DType> {
    let text = ty.to_string();
    if text.starts_with('>') {
        return Err(Error::unsupported(format!(
            "big-endian NumPy arrays ({text})"
        )));
    }
    Ok(match text.trim_start_matches(['<', '|', '=']) {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        _ => return Err(Error::unsupported(format!("NumPy arrays of {text}"))),
    })
}

fn descriptor(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::BF16 => {
            return Err(Error::unsupported("NumPy has no bf16").help("write .safetensors instead"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numpy.asfortranarray(numpy.arange(6, dtype="<i2").reshape(1, 2, 3))` as `numpy.save` writes it.
    #[test]
    fn fortran_order_is_read() {
        let tensor = Tensor::from_i64(DType::I16, [1, 2, 3], vec![0, 1, 2, 3, 4, 5]).unwrap();
        let bytes = serialize(&tensor).unwrap();
        let (header, _) = bytes.split_at(bytes.len() - 12);
        let header = String::from_utf8_lossy(header).replace("False", "True ");
        let mut fortran = b"\x93".to_vec();
        fortran.extend(header.trim_start_matches('\u{fffd}').as_bytes());
        for element in [0u8, 3, 1, 4, 2, 5] {
            fortran.extend([element, 0]);
        }
        assert_eq!(parse(&fortran).unwrap(), tensor);
        let short = &fortran[..fortran.len() - 2];
        assert!(parse(short).is_err());
        let named = [("a".to_string(), tensor.clone())];
        assert_eq!(
            parse_archive(&serialize_archive(&named).unwrap()).unwrap(),
            named
        );
    }

    #[test]
    fn arrays_round_trip() {
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::BF16) {
            let tensor = Tensor::from_i64(dtype, [2, 3], vec![0, 1, 2, 3, 4, 5]).unwrap();
            assert_eq!(parse(&serialize(&tensor).unwrap()).unwrap(), tensor);
            let named = vec![("a".to_string(), tensor.clone()), ("b".to_string(), tensor)];
            assert_eq!(
                parse_archive(&serialize_archive(&named).unwrap()).unwrap(),
                named
            );
        }
        assert!(parse(b"\x93NUMPY\x01\x00\xff\xff").is_err());
    }
}
