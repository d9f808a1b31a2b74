//! Memory that primitives take on the host besides operands and results.

use crate::dtype::DType;

/// Element type and shape of a tensor on the host.
#[derive(Clone, Debug)]
pub(crate) struct HostType {
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
}

impl HostType {
    /// Number of elements; `u64::MAX` if there are more.
    pub fn elements(&self) -> u64 {
        if self.shape.contains(&0) {
            return 0;
        }
        let sizes = self.shape.iter().map(|size| *size as u64);
        sizes.fold(1, u64::saturating_mul)
    }

    /// Number of bytes; `u64::MAX` if there are more.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.size() as u64)
    }
}

/// Bytes of tensors whose elements are converted to numbers of 64 bits.
pub(super) fn numbers<'a>(tensors: impl IntoIterator<Item = &'a HostType>) -> u64 {
    sum(tensors, |tensor| tensor.elements().saturating_mul(8))
}

/// Bytes of results that are gathered as bytes and then copied to align them.
pub(super) fn copies(results: &[HostType]) -> u64 {
    sum(results, HostType::bytes)
}

/// Bytes of a matrix product, which is computed in `f32`, `f64` or `i64`. Blocks of the operands are packed.
pub(super) fn product(operands: &[HostType], results: &[HostType]) -> u64 {
    const BLOCKS: u64 = 4 << 20;
    let dtype = operands.first().map_or(DType::F32, |first| first.dtype);
    let (copied, converted) = match dtype {
        DType::F32 => (copies(operands), 0),
        // Products in `f32` are rounded by way of `f64`.
        DType::F16 | DType::BF16 => (numbers(operands) / 2, numbers(results).saturating_mul(2)),
        _ => (numbers(operands), numbers(results)),
    };
    copied
        .saturating_add(converted)
        .saturating_add(copied.min(BLOCKS))
}

fn sum<'a>(
    tensors: impl IntoIterator<Item = &'a HostType>,
    bytes: impl Fn(&HostType) -> u64,
) -> u64 {
    tensors.into_iter().map(bytes).fold(0, u64::saturating_add)
}
