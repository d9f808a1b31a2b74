//! Tensor types and their text form: `f32[B, 3, 224]`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Sizes, outermost first.
pub type Shape = Vec<Dim>;

/// Element type and shape of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, possibly symbolic; empty for a scalar.
    pub shape: Shape,
}

impl TensorType {
    /// A type from sizes that convert to [`Dim`].
    pub fn new<D: Into<Dim>>(dtype: DType, shape: impl IntoIterator<Item = D>) -> TensorType {
        TensorType {
            dtype,
            shape: shape.into_iter().map(Into::into).collect(),
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> Dim {
        Dim::product(&self.shape)
    }

    /// Evaluates the sizes for bindings of the symbols; an error if a symbol is unbound or a size negative.
    pub fn sizes(&self, bindings: &Bindings) -> Result<Vec<usize>> {
        sizes(&self.shape, bindings)
    }
}

/// Evaluates a shape for bindings of its symbols; an error names the unbound symbol or the negative size.
pub fn sizes(shape: &[Dim], bindings: &Bindings) -> Result<Vec<usize>> {
    shape
        .iter()
        .map(|dim| {
            let value = dim.eval(bindings)?;
            usize::try_from(value)
                .map_err(|_| Error::input(format!("the size {dim} would be {value}")))
        })
        .collect()
}

/// Resolves a negative dimension, counted from the end; an error if it is out of range. A scalar counts as one-dimensional,
/// as in PyTorch.
pub fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    let range = i64::try_from(rank.max(1)).unwrap_or(i64::MAX);
    if dim < -range || dim >= range {
        return Err(Error::operator(format!(
            "dimension {dim} is out of range for {rank} dimensions"
        )));
    }
    Ok(usize::try_from(if dim < 0 { dim + range } else { dim }).unwrap_or(0))
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (index, dim) in self.shape.iter().enumerate() {
            write!(f, "{}{dim}", if index > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

/// Types in parentheses, `(f32[2], i64[])`.
pub(crate) fn type_list(types: &[TensorType]) -> String {
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    format!("({})", types.join(", "))
}

impl FromStr for TensorType {
    type Err = Error;

    fn from_str(text: &str) -> Result<TensorType> {
        let text = text.trim();
        let bad = || {
            Error::format(format!(
                "{text:?} is not a tensor type such as f32[B, 3, 224]"
            ))
        };
        let (dtype, rest) = text.split_once('[').ok_or_else(bad)?;
        let inner = rest.strip_suffix(']').ok_or_else(bad)?;
        let shape = split_top_level(inner)
            .into_iter()
            .map(str::parse)
            .collect::<Result<_>>()?;
        Ok(TensorType {
            dtype: dtype.trim().parse()?,
            shape,
        })
    }
}

/// Splits at commas outside parentheses, brackets and braces; an empty text has no parts.
pub(crate) fn split_top_level(text: &str) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let mut depth = 0i32;
    text.split(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

impl Serialize for TensorType {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TensorType {
    fn deserialize<D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<TensorType, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar_round_trips() {
        for text in [
            "f32[]",
            "f32[B, 3, 224]",
            "i64[min(3, B), floordiv(H, 2) + 1]",
            "bool[0]",
        ] {
            let parsed: TensorType = text.parse().expect("a type");
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn bad_types_are_errors() {
        for text in ["f32", "f32[", "f33[2]", "f32[2,]", "[2]"] {
            assert!(text.parse::<TensorType>().is_err(), "{text}");
        }
    }

    #[test]
    fn dimensions_wrap() {
        assert_eq!(wrap_dim(-1, 3).ok(), Some(2));
        assert_eq!(wrap_dim(-1, 0).ok(), Some(0));
        assert!(wrap_dim(3, 3).is_err());
    }
}
