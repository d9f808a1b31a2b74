//! Numbers written in place: PyTorch's Python scalars, with their own category in type promotion.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dtype::{Category, DType};

/// A `bool`, `int` or `float` that is not a tensor. Equality compares representations: `-0.0` is not `0.0`, `nan` is `nan`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `True` or `False`.
    Bool(bool),
    /// A Python `int`.
    Int(i64),
    /// A Python `float`. JSON stores not-a-number and infinities as strings.
    #[serde(with = "crate::scalar::float")]
    Float(f64),
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Float(a), Scalar::Float(b)) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            _ => false,
        }
    }
}

impl Eq for Scalar {}

impl Scalar {
    /// The value as `f64`.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// The value as `i64`, truncated towards zero.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(value) => i64::from(value),
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
        }
    }

    /// The default dtype of the number: `bool`, `i64`, or PyTorch's default `f32`.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => DType::F32,
        }
    }

    /// Promotion category.
    pub fn category(self) -> Category {
        self.dtype().category()
    }

    /// The number converted to `dtype`: integers wrap, floats are rounded.
    pub fn cast(self, dtype: DType) -> Scalar {
        match dtype.category() {
            Category::Bool => Scalar::Bool(self.to_f64() != 0.0),
            Category::Integer => Scalar::Int(wrap(self.to_i64(), dtype)),
            Category::Float => Scalar::Float(round(self.to_f64(), dtype)),
        }
    }
}

fn wrap(value: i64, dtype: DType) -> i64 {
    match dtype {
        DType::U8 => i64::from(value as u8),
        DType::I8 => i64::from(value as i8),
        DType::I16 => i64::from(value as i16),
        DType::I32 => i64::from(value as i32),
        _ => value,
    }
}

/// Rounds to the nearest value of a float dtype; other dtypes leave the value unchanged.
pub fn round(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f64(value).into(),
        DType::BF16 => half::bf16::from_f64(value).into(),
        DType::F32 => f64::from(value as f32),
        _ => value,
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar::Bool(value)
    }
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Scalar {
        Scalar::Int(value)
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Scalar {
        Scalar::Float(value)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) if value.is_nan() => f.write_str("nan"),
            Scalar::Float(value) if value.is_infinite() => {
                f.write_str(if *value > 0.0 { "inf" } else { "-inf" })
            }
            Scalar::Float(value) => write!(f, "{value:?}"),
        }
    }
}

/// JSON form of floats: numbers if they are finite, else `"nan"`, `"inf"`, `"-inf"`.
pub(crate) mod float {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            serializer.collect_str(&super::Scalar::Float(*value))
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum FloatOrText {
            Number(f64),
            Text(String),
        }
        match FloatOrText::deserialize(deserializer)? {
            FloatOrText::Number(value) => Ok(value),
            FloatOrText::Text(text) => match text.as_str() {
                "nan" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(serde::de::Error::custom(format!(
                    "expected a number, \"nan\", \"inf\" or \"-inf\", found {text:?}"
                ))),
            },
        }
    }
}
