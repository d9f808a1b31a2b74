//! Gradients of maximum pooling, at the elements that the indices name.

use crate::error::Result;
use crate::ir::Value;
use crate::op::ScatterFunction;

use super::super::pooling::scatter_in_planes;
use super::super::{Args, Composite};

pub(in crate::aten) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor",
        ],
        |a| at_indices(a, 2),
        &[
            "f32[B, 3, 2, 2], f32[B, 3, 4, 4], [2, 2], [2, 2], [0, 0], [1, 1], False, i64[B, 3, 2, 2]",
        ],
    ),
    Composite::one(
        &[
            "aten::max_pool3d_with_indices_backward(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, int[3] dilation, bool ceil_mode, Tensor indices) -> Tensor",
        ],
        |a| at_indices(a, 3),
        &[
            "f32[3, 2, 2, 2], f32[3, 4, 4, 4], [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, i64[3, 2, 2, 2]",
        ],
    ),
    Composite::one(
        &[
            "aten::adaptive_max_pool2d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor",
        ],
        |a| at_indices(a, 2),
        &["f32[2, 3, 2, 2], f32[2, 3, 5, 5], i64[2, 3, 2, 2]"],
    ),
    Composite::one(
        &[
            "aten::adaptive_max_pool3d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor",
        ],
        |a| at_indices(a, 3),
        &["f32[2, 3, 2, 2, 2], f32[2, 3, 5, 5, 5], i64[2, 3, 2, 2, 2]"],
    ),
];

/// Adds each element of the gradient to the element of its plane that the index names. The last `count` axes are a plane.
fn at_indices<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    let [gradient, input, indices] = ["grad_output", "self", "indices"].map(|name| a.tensor(name));
    a.builder().check()?;
    let shape = input.shape();
    let first = shape.len().saturating_sub(count);
    let sizes = shape.get(first..).unwrap_or_default();
    scatter_in_planes(gradient, indices, sizes, ScatterFunction::Add)
}
