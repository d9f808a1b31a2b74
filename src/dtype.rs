//! Element types and PyTorch's promotion rules.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The type of a tensor's elements. Printed as in the text form: `f32`, `i64`, `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer: PyTorch's default integer and index type.
    I64,
    /// IEEE half precision.
    F16,
    /// Brain float: the upper half of an `f32`.
    BF16,
    /// IEEE single precision: PyTorch's default float.
    F32,
    /// IEEE double precision.
    F64,
}

/// Promotion categories, lowest first (`c10/core/ScalarType.h`, `torch/_prims_common`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// `bool` only.
    Bool,
    /// Integers, signed and unsigned.
    Integer,
    /// Floating point.
    Float,
}

use DType::*;

impl DType {
    /// All element types, in promotion order within a category.
    pub const ALL: [DType; 10] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64];

    /// Name in the text form, in JSON and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "u8",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// Size of one element in bytes, on the host and in files.
    pub fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            I16 | F16 | BF16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }

    /// The promotion category.
    pub fn category(self) -> Category {
        match self {
            Bool => Category::Bool,
            U8 | I8 | I16 | I32 | I64 => Category::Integer,
            F16 | BF16 | F32 | F64 => Category::Float,
        }
    }

    /// True for `f16`, `bf16`, `f32` and `f64`.
    pub fn is_float(self) -> bool {
        self.category() == Category::Float
    }

    /// True for integers, but not for `bool`.
    pub fn is_integer(self) -> bool {
        self.category() == Category::Integer
    }

    /// The common type of two operands of equal priority, as `torch.promote_types`.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        match (self, other) {
            (U8, I8) | (I8, U8) => I16,
            (F16, BF16) | (BF16, F16) => F32,
            _ => self.max_by_rank(other),
        }
    }

    fn max_by_rank(self, other: DType) -> DType {
        match self.category().cmp(&other.category()) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal => self.max(other),
        }
    }

    /// The type in which float functions of this type are computed: itself if it is a float, else `f32`.
    pub fn to_float(self) -> DType {
        if self.is_float() { self } else { F32 }
    }

    /// The type in which PyTorch's CPU kernels compute: `f32` for half precision, else itself.
    pub fn to_compute(self) -> DType {
        match self {
            F16 | BF16 => F32,
            other => other,
        }
    }

    /// The type in which PyTorch accumulates sums of integers: `i64` for integers and `bool`, else itself.
    pub fn to_sum(self) -> DType {
        if self.is_float() { self } else { I64 }
    }

    /// Converts the integer code in TorchScript archives (`c10/core/ScalarType.h`).
    pub fn from_torch_code(code: i64) -> Result<DType> {
        Ok(match code {
            0 => U8,
            1 => I8,
            2 => I16,
            3 => I32,
            4 => I64,
            5 => F16,
            6 => F32,
            7 => F64,
            11 => Bool,
            15 => BF16,
            8..=10 => return Err(Error::unsupported("complex dtypes are not supported")),
            12..=14 => return Err(Error::unsupported("quantised dtypes are not supported")),
            other => {
                return Err(Error::unsupported(format!(
                    "dtype code {other} is not known"
                )));
            }
        })
    }

    /// The integer code in TorchScript archives; inverse of [`DType::from_torch_code`].
    pub fn torch_code(self) -> i64 {
        match self {
            U8 => 0,
            I8 => 1,
            I16 => 2,
            I32 => 3,
            I64 => 4,
            F16 => 5,
            F32 => 6,
            F64 => 7,
            Bool => 11,
            BF16 => 15,
        }
    }

    /// Converts PyTorch's name: `float32`, `int64`, `bool`, `bfloat16` and the short aliases `float`, `half`, `long` ….
    pub fn from_torch_name(name: &str) -> Option<DType> {
        Some(match name {
            "bool" => Bool,
            "uint8" => U8,
            "int8" => I8,
            "int16" | "short" => I16,
            "int32" | "int" => I32,
            "int64" | "long" => I64,
            "float16" | "half" => F16,
            "bfloat16" => BF16,
            "float32" | "float" => F32,
            "float64" | "double" => F64,
            _ => return None,
        })
    }

    /// Smallest and largest integer of the type; `None` for floats.
    pub fn integer_range(self) -> Option<(i64, i64)> {
        Some(match self {
            Bool => (0, 1),
            U8 => (0, 255),
            I8 => (i8::MIN.into(), i8::MAX.into()),
            I16 => (i16::MIN.into(), i16::MAX.into()),
            I32 => (i32::MIN.into(), i32::MAX.into()),
            I64 => (i64::MIN, i64::MAX),
            F16 | BF16 | F32 | F64 => return None,
        })
    }

    /// Largest finite value of a float type (`torch.finfo(dtype).max`); `None` for integers.
    pub fn largest_finite(self) -> Option<f64> {
        Some(match self {
            F16 => 65504.0,
            BF16 => f64::from(half::bf16::MAX.to_f32()),
            F32 => f64::from(f32::MAX),
            F64 => f64::MAX,
            _ => return None,
        })
    }

    /// Distance from 1 to the next float (`torch.finfo(dtype).eps`); `None` for integers.
    pub fn epsilon(self) -> Option<f64> {
        Some(match self {
            F16 => 0.000_976_562_5,
            BF16 => 0.007_812_5,
            F32 => f64::from(f32::EPSILON),
            F64 => f64::EPSILON,
            _ => return None,
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<DType> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .or_else(|| DType::from_torch_name(text))
            .ok_or_else(|| Error::usage(format!("unknown dtype {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_torch() {
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(I64.promote(F16), F16);
        assert_eq!(Bool.promote(U8), U8);
        assert_eq!(F64.promote(F32), F64);
    }

    #[test]
    fn torch_codes_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_torch_code(dtype.torch_code()).ok(), Some(dtype));
            assert_eq!(dtype.name().parse::<DType>().ok(), Some(dtype));
        }
    }
}
