//! Operators of backward passes that PyTorch does not decompose: the gradient of a loss with respect to the operands of an
//! operator, from the gradient with respect to its result.

pub(super) mod attention;
pub(super) mod axis_maps;
pub(super) mod convolution;
pub(super) mod pooling;
