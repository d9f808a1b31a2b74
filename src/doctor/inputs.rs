//! Inputs and weights of checks, from a seeded generator.

use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::random::Lcg;
use crate::shape::TensorType;
use crate::tensor::{Tensor, numel};

/// An input or a weight of a check.
#[derive(Clone, Debug)]
pub(super) struct InputDeclaration {
    /// Name in the graph.
    pub(super) name: String,
    /// True for a weight.
    pub(super) is_weight: bool,
    /// Type in the text form.
    pub(super) ty: String,
    /// Smallest and largest element.
    range: Option<(f64, f64)>,
}

/// Reads a list such as `x: f32[3, 96]; $w: f32[64, 96]; i: i64[6] in 0..9`. Names of weights begin with `$`.
pub(super) fn parse_inputs(text: &str) -> Result<Vec<InputDeclaration>> {
    let parts = text.split(';').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(parse).collect()
}

fn parse(text: &str) -> Result<InputDeclaration> {
    let malformed = || Error::internal(format!("the input {text:?} of a check is malformed"));
    let (name, rest) = text.split_once(':').ok_or_else(malformed)?;
    let (ty, range) = match rest.split_once(" in ") {
        Some((ty, range)) => (ty, Some(parse_range(range).ok_or_else(malformed)?)),
        None => (rest, None),
    };
    let name = name.trim();
    Ok(InputDeclaration {
        name: name.trim_start_matches('$').into(),
        is_weight: name.starts_with('$'),
        ty: ty.trim().into(),
        range,
    })
}

fn parse_range(text: &str) -> Option<(f64, f64)> {
    let (low, high) = text.split_once("..")?;
    Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
}

impl InputDeclaration {
    /// Draws a tensor; `sizes` are those of the symbols in the type.
    pub(super) fn tensor(&self, sizes: &Bindings, random: &mut Lcg) -> Result<Tensor> {
        let ty: TensorType = self.ty.parse()?;
        let shape = ty.sizes(sizes)?;
        let count = numel(&shape)?;
        let (low, high) = self.range.unwrap_or_else(|| usual_range(ty.dtype));
        if ty.dtype.is_float() {
            let numbers = (0..count).map(|_| low + (high - low) * random.next());
            return Tensor::from_f64(ty.dtype, shape, numbers.collect());
        }
        let numbers = (0..count).map(|_| (low + (high - low + 1.0) * random.next()).floor() as i64);
        Tensor::from_i64(ty.dtype, shape, numbers.collect())
    }
}

/// Range of elements that fits every operator but those with indices.
fn usual_range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::Bool => (0.0, 1.0),
        DType::U8 => (0.0, 9.0),
        dtype if dtype.is_float() => (-2.0, 2.0),
        _ => (-9.0, 9.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_their_range() {
        let inputs =
            parse_inputs("x: f32[B, 99] in 0.5..1; $w: bool[4]; i: i64[400] in 0..3").unwrap();
        assert_eq!(inputs.len(), 3);
        assert!(inputs[1].is_weight && inputs[1].name == "w");
        let sizes = Bindings::from([("B".into(), 2)]);
        let mut random = Lcg::of_text("a check");
        let x = inputs[0].tensor(&sizes, &mut random).unwrap();
        assert_eq!(x.shape(), [2, 99]);
        assert!(x.to_f64().iter().all(|x| (0.5..1.0).contains(x)));
        let indices = inputs[2].tensor(&sizes, &mut random).unwrap().to_i64();
        assert!((0..4).all(|index| indices.contains(&index)));
        assert!(indices.iter().all(|index| (0..4).contains(index)));
    }
}
