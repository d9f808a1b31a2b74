//! Common mistakes in inputs (other element types, channels last, a missing batch dimension) and their fixes.

use crate::dtype::{Category, DType};
use crate::shape::TensorType;

/// An input that probably does not match the model's input type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputMismatch {
    /// The mistakes, each as a sentence without full stop.
    pub mistakes: Vec<String>,
    /// The fix, as methods of a NumPy array: `.transpose(2, 0, 1)[None]`. Empty if unknown.
    pub fix: String,
    /// True if a conversion of the elements is the fix.
    pub is_dtype: bool,
}

impl InputMismatch {
    /// Compares an input with the type that the model expects; `None` if there is no likely mistake. A symbolic size
    /// matches any number.
    pub fn find(wanted: &TensorType, given: &TensorType) -> Option<InputMismatch> {
        let layout = layout(&sizes(wanted), &sizes(given));
        let dtype = dtype(wanted.dtype, given.dtype);
        // Bytes are pixels, which need a division as well.
        let is_dtype = layout.is_none() && given.dtype != DType::U8;
        let pairs: Vec<(String, String)> = layout.into_iter().chain(dtype).collect();
        let (mistakes, fixes): (Vec<String>, Vec<String>) = pairs.into_iter().unzip();
        (!mistakes.is_empty()).then(|| InputMismatch {
            mistakes,
            fix: fixes.concat(),
            is_dtype,
        })
    }
}

/// Placeholder for a symbolic size.
const SYMBOL: i64 = -1;

/// Sizes as numbers.
fn sizes(ty: &TensorType) -> Vec<i64> {
    ty.shape
        .iter()
        .map(|dim| dim.as_const().unwrap_or(SYMBOL))
        .collect()
}

/// NumPy's name of an element type.
pub(crate) fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::F64 => "float64",
        // NumPy has no bfloat16.
        DType::F32 | DType::BF16 => "float32",
    }
}

/// The mistake in an element type, and its fix.
fn dtype(wanted: DType, given: DType) -> Option<(String, String)> {
    let cast = format!(".astype(\"{}\")", numpy_name(wanted));
    let (want, have) = (numpy_name(wanted), numpy_name(given));
    let mistake = match (wanted.category(), given.category()) {
        _ if wanted == given => return None,
        (Category::Float, Category::Float) if given == DType::F64 => {
            format!("its numbers are float64, NumPy's default; the model takes {want}")
        }
        (Category::Float, Category::Float) => {
            format!("its numbers are {have}; the model takes {want}")
        }
        (Category::Float, _) if given == DType::U8 => {
            let mistake = format!("its numbers are uint8, as of pixels; the model takes {want}");
            return Some((mistake, format!("{cast} / 255")));
        }
        (Category::Float, _) => format!("its numbers are integers; the model takes {want}"),
        (_, Category::Float) => {
            format!("its numbers are {have}; the model takes {want}, such as ids of tokens")
        }
        // Integers of other widths are valid ids, too.
        _ => return None,
    };
    Some((mistake, cast))
}

/// The mistake in a layout, and its fix.
fn layout(wanted: &[i64], given: &[i64]) -> Option<(String, String)> {
    let is_channel_count = |size: i64| (1..=4).contains(&size);
    let mistake_with_fix = |mistake: &str, fix: &str| Some((mistake.to_string(), fix.to_string()));
    match (wanted, given) {
        ([_, c, ..], [h, _, last])
            if wanted.len() == 4 && is_channel_count(*c) && c == last && c != h =>
        {
            mistake_with_fix(
                "it is an image with channels last (HWC); the model takes a batch of images with channels first (NCHW)",
                ".transpose(2, 0, 1)[None]",
            )
        }
        ([_, c, ..], [_, second, _, last])
            if wanted.len() == 4 && is_channel_count(*c) && c == last && c != second =>
        {
            mistake_with_fix(
                "its images have channels last (NHWC); the model takes channels first (NCHW)",
                ".transpose(0, 3, 1, 2)",
            )
        }
        ([c, ..], [h, _, last])
            if wanted.len() == 3 && is_channel_count(*c) && c == last && c != h =>
        {
            mistake_with_fix(
                "it is an image with channels last (HWC); the model takes channels first (CHW)",
                ".transpose(2, 0, 1)",
            )
        }
        ([_, 1, _, _], [_, _]) => mistake_with_fix(
            "it is an image without dimensions for batch and channel; the model takes NCHW",
            "[None, None]",
        ),
        (wanted, given) if wanted.len() == given.len() + 1 => mistake_with_fix(
            "it lacks a dimension, such as that of the batch in front",
            "[None]",
        ),
        (wanted, [1, rest @ ..]) if wanted.len() == rest.len() && !rest.is_empty() => {
            mistake_with_fix("it has a dimension of size 1 too many in front", "[0]")
        }
        (wanted, given) if wanted.len() != given.len() => {
            let (given, wanted) = (given.len(), wanted.len());
            mistake_with_fix(
                &format!("it has {given} dimensions; the model takes {wanted}"),
                "",
            )
        }
        (wanted, given) => {
            let mut pairs = wanted.iter().zip(given).enumerate();
            let (axis, (wanted, given)) = pairs.find(|(_, (a, b))| **a != SYMBOL && a != b)?;
            mistake_with_fix(
                &format!("its dimension {axis} has size {given}; the model takes {wanted}"),
                "",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: &str, given: &str) -> Option<(String, String)> {
        let misfit = InputMismatch::find(&wanted.parse().unwrap(), &given.parse().unwrap())?;
        Some((misfit.mistakes.join("; "), misfit.fix))
    }

    #[test]
    fn usual_mistakes_are_named_with_their_cures() {
        let image = "f32[N, 3, H, W]";
        for (wanted, given, named, cure) in [
            (
                image,
                "f64[1, 3, 224, 224]",
                "float64",
                ".astype(\"float32\")",
            ),
            (
                image,
                "f32[224, 224, 3]",
                "HWC",
                ".transpose(2, 0, 1)[None]",
            ),
            (
                image,
                "u8[8, 9, 3]",
                "HWC",
                ".transpose(2, 0, 1)[None].astype(\"float32\") / 255",
            ),
            (
                image,
                "f32[2, 224, 224, 3]",
                "NHWC",
                ".transpose(0, 3, 1, 2)",
            ),
            (image, "f32[2, 4, 8, 8]", "dimension 1 has size 4", ""),
            (image, "f32[3, 224, 224]", "batch", "[None]"),
            (
                "f32[3, 224, 224]",
                "f32[224, 224, 3]",
                "CHW",
                ".transpose(2, 0, 1)",
            ),
            (
                "f32[N, 1, H, W]",
                "f32[8, 8]",
                "batch and channel",
                "[None, None]",
            ),
            (
                "f32[N, 1, H, W]",
                "f32[8, 8, 1]",
                "HWC",
                ".transpose(2, 0, 1)[None]",
            ),
            ("i64[B, T]", "f32[1, 16]", "ids", ".astype(\"int64\")"),
            ("i64[B, T]", "i64[16]", "batch", "[None]"),
            ("f32[8]", "f32[1, 8]", "too many", "[0]"),
            ("f32[8]", "f32[2, 2, 8]", "3 dimensions", ""),
        ] {
            let (mistakes, mended) = found(wanted, given).unwrap();
            assert!(mistakes.contains(named), "{given}: {mistakes}");
            assert_eq!(mended, cure, "{given}");
        }
    }

    #[test]
    fn what_may_be_right_is_no_mistake() {
        let image = "f32[N, 3, H, W]";
        for (wanted, given) in [
            (image, image),
            (image, "f32[7, 3, 64, 32]"),
            (image, "f32[1, 3, 3, 3]"),
            ("i64[B, T]", "i32[4, 20]"),
            ("i64[B, T]", "bool[1, 16]"),
        ] {
            assert_eq!(found(wanted, given), None, "{given}");
        }
    }
}
