//! Tensors with other values of the same type and shape.

use crate::dtype::Category;
use crate::error::Result;
use crate::random::Lcg;
use crate::tensor::Tensor;

/// Ways to change the values of a tensor. Integers and booleans are only permuted or repeated, since they may be indices.
#[derive(Clone, Copy)]
pub enum ValueChange {
    /// Negated values in reverse order.
    Negated,
    /// Other values of the same range.
    Redrawn,
    /// Zero; for integers, the smallest element.
    Zero,
    /// Values a hundred times as large.
    Large,
}

impl ValueChange {
    /// All changes.
    pub const ALL: [ValueChange; 4] = [
        ValueChange::Negated,
        ValueChange::Redrawn,
        ValueChange::Zero,
        ValueChange::Large,
    ];

    /// A description for labels of runs.
    pub fn label(self) -> &'static str {
        match self {
            ValueChange::Negated => "values negated, in reverse order",
            ValueChange::Redrawn => "other values of the same range",
            ValueChange::Zero => "values of zero",
            ValueChange::Large => "values a hundred times as large",
        }
    }

    /// Returns the tensor with changed values.
    pub fn apply(self, tensor: &Tensor) -> Result<Tensor> {
        let count = tensor.numel();
        let pick = |source: Vec<usize>| gather_elements(tensor, tensor.shape(), source.into_iter());
        match (self, tensor.dtype().category()) {
            (_, Category::Float) => self.apply_to_floats(tensor),
            (ValueChange::Negated, _) => pick((0..count).rev().collect()),
            (ValueChange::Redrawn, _) => pick(shuffled(count)),
            (ValueChange::Zero, Category::Integer) => {
                let values = tensor.to_i64();
                let least = (0..count).min_by_key(|index| values.get(*index));
                pick(vec![least.unwrap_or(0); count])
            }
            (ValueChange::Zero | ValueChange::Large, _) => Ok(tensor.clone()),
        }
    }

    fn apply_to_floats(self, tensor: &Tensor) -> Result<Tensor> {
        let values = tensor.to_f64();
        let changed = match self {
            ValueChange::Negated => values.into_iter().rev().map(|value| -value).collect(),
            ValueChange::Redrawn => draw_in_range(&values),
            ValueChange::Zero => vec![0.0; values.len()],
            ValueChange::Large => values.into_iter().map(|value| value * 100.0).collect(),
        };
        Tensor::from_f64(tensor.dtype(), tensor.shape(), changed)
    }
}

/// Draws numbers between the smallest and the largest finite value, or between -1 and 1 if there are no two distinct ones.
fn draw_in_range(values: &[f64]) -> Vec<f64> {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let minimum = finite().fold(f64::INFINITY, f64::min);
    let maximum = finite().fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = if minimum < maximum {
        (minimum, maximum)
    } else {
        (-1.0, 1.0)
    };
    let mut random = Lcg(2);
    let draw = |_: &f64| low + random.next() * (high - low);
    values.iter().map(draw).collect()
}

/// The indices below `count` in random order.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = Lcg(3);
    for last in (1..count).rev() {
        let other = (random.next() * (last + 1) as f64) as usize;
        order.swap(last, other.min(last));
    }
    order
}

/// Gathers elements of a tensor by flat position into a new shape. A position out of range gives 0.
pub fn gather_elements(
    tensor: &Tensor,
    shape: &[usize],
    source: impl Iterator<Item = usize>,
) -> Result<Tensor> {
    let size = tensor.dtype().size();
    let zero = vec![0; size];
    let elements: Vec<&[u8]> = tensor.bytes().chunks(size).collect();
    let picked = source.map(|index| elements.get(index).copied().unwrap_or(&zero));
    Tensor::from_bytes(tensor.dtype(), shape, &picked.collect::<Vec<_>>().concat())
}

/// A tensor filled with a number far above or below all elements; for integers, with the largest or smallest element.
pub fn extreme_values(tensor: &Tensor, is_high: bool) -> Result<Tensor> {
    if tensor.dtype().category() == Category::Float {
        let values = tensor
            .to_f64()
            .into_iter()
            .filter(|value| value.is_finite());
        let limit = 100.0 * (1.0 + values.map(f64::abs).fold(0.0, f64::max));
        let number = if is_high { limit } else { -limit };
        return Tensor::from_f64(tensor.dtype(), tensor.shape(), vec![number; tensor.numel()]);
    }
    let values = tensor.to_i64();
    let indices = 0..tensor.numel();
    let extreme_index = match is_high {
        true => indices.max_by_key(|index| values.get(*index)),
        false => indices.min_by_key(|index| values.get(*index)),
    };
    gather_elements(
        tensor,
        tensor.shape(),
        vec![extreme_index.unwrap_or(0); tensor.numel()].into_iter(),
    )
}

/// Replaces the elements at indices for which `is_replaced` holds by those of `other`, which has the type of `tensor`.
pub fn replace_elements(
    tensor: &Tensor,
    other: &Tensor,
    is_replaced: impl Fn(&[usize]) -> bool,
) -> Result<Tensor> {
    let size = tensor.dtype().size();
    let mut index = vec![0; tensor.shape().len()];
    let mut bytes = Vec::with_capacity(tensor.bytes().len());
    let pairs = tensor.bytes().chunks(size).zip(other.bytes().chunks(size));
    for (own, other) in pairs {
        bytes.extend_from_slice(if is_replaced(&index) { other } else { own });
        advance_index(&mut index, tensor.shape());
    }
    Tensor::from_bytes(tensor.dtype(), tensor.shape(), &bytes)
}

/// Advances an index in row-major order.
fn advance_index(index: &mut [usize], shape: &[usize]) {
    for (coordinate, size) in index.iter_mut().zip(shape).rev() {
        *coordinate += 1;
        if *coordinate < *size {
            return;
        }
        *coordinate = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn integers_are_exchanged_exactly() {
        let x = Tensor::from_vec([3], vec![i64::MAX, 5, i64::MIN + 1]).unwrap();
        for values in ValueChange::ALL {
            let changed = values.apply(&x).unwrap().to_i64();
            assert!(
                changed.iter().all(|value| x.to_i64().contains(value)),
                "{changed:?}"
            );
        }
        let reversed = ValueChange::Negated.apply(&x).unwrap();
        assert_eq!(reversed.to_i64(), [i64::MIN + 1, 5, i64::MAX]);
        assert_eq!(
            ValueChange::Zero.apply(&x).unwrap().to_i64(),
            [i64::MIN + 1; 3]
        );
    }

    #[test]
    fn elements_are_taken_by_their_index() {
        let x = Tensor::from_vec([2, 3], (0..6).collect::<Vec<i64>>()).unwrap();
        let other = extreme_values(&x, true).unwrap();
        let last = replace_elements(&x, &other, |index| index[1] == 2).unwrap();
        assert_eq!(last.to_i64(), [0, 1, 5, 3, 4, 5]);
        let halves = Tensor::from_vec([2], vec![-3f32, 1.0]).unwrap();
        assert_eq!(
            extreme_values(&halves, false).unwrap().to_f64(),
            [-400.0; 2]
        );
    }

    #[test]
    fn floats_differ_after_every_change() {
        let x = Tensor::from_vec([2], vec![1f32, 3.0]).unwrap();
        for values in ValueChange::ALL {
            assert_ne!(values.apply(&x).unwrap(), x);
        }
        let empty = Tensor::full(DType::F16, [0, 2], 0.0).unwrap();
        assert_eq!(ValueChange::Redrawn.apply(&empty).unwrap(), empty);
    }
}
