//! Codes of element types and memory formats. Those of exported programs differ from those of TorchScript, in which syntax trees
//! are written.

use crate::dtype::DType;
use crate::error::Result;

/// The element type of a code.
///
/// # Errors
/// The type is complex, quantised or unknown.
pub fn dtype(code: i64) -> Result<DType> {
    DType::from_torch_code(torchscript_dtype(code))
}

/// TorchScript's code for a code of an element type.
pub fn torchscript_dtype(code: i64) -> i64 {
    match code {
        BFLOAT16 => TORCHSCRIPT_BFLOAT16,
        other => other.saturating_sub(1),
    }
}

/// TorchScript's code for a code of a memory format.
pub fn torchscript_memory_format(code: i64) -> i64 {
    match code {
        CONTIGUOUS => 0,
        PRESERVE => 1,
        // Channels last, of images and of volumes.
        other => other,
    }
}

const BFLOAT16: i64 = 13;
const TORCHSCRIPT_BFLOAT16: i64 = 15;
const CONTIGUOUS: i64 = 1;
const PRESERVE: i64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_all_element_types() {
        let expected = [
            (1, DType::U8),
            (2, DType::I8),
            (5, DType::I64),
            (6, DType::F16),
            (7, DType::F32),
            (12, DType::Bool),
            (13, DType::BF16),
        ];
        for (code, ty) in expected {
            assert_eq!(dtype(code).unwrap(), ty);
        }
        assert!(dtype(10).is_err());
    }
}
