//! The partial inverse of maximum pooling.

use std::borrow::Borrow;

use super::PerAxis;
use super::checks::{rank_error, refuse};
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, Size, TracedTensor};

/// `torch.nn.MaxUnpool1d`
pub type MaxUnpool1d = MaxUnpool<1>;
/// `torch.nn.MaxUnpool2d`
pub type MaxUnpool2d = MaxUnpool<2>;
/// `torch.nn.MaxUnpool3d`
pub type MaxUnpool3d = MaxUnpool<3>;

/// Puts maxima to the places in the input of pooling from which they came, and zeros everywhere else.
#[derive(Clone, Debug, Module)]
pub struct MaxUnpool<const N: usize> {
    kernel_size: [i64; N],
    stride: [i64; N],
    padding: [i64; N],
}

impl<const N: usize> MaxUnpool<N> {
    /// The inverse of pooling with windows of this size.
    pub fn new(kernel_size: impl Into<PerAxis<N>>) -> MaxUnpool<N> {
        let kernel_size = kernel_size.into().0;
        MaxUnpool {
            kernel_size,
            stride: kernel_size,
            padding: [0; N],
        }
    }

    /// Stride of the windows; the window size by default.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> MaxUnpool<N> {
        self.stride = stride.into().0;
        self
    }

    /// Padding at both edges of each axis; 0 by default.
    #[must_use]
    pub fn padding(mut self, padding: impl Into<PerAxis<N>>) -> MaxUnpool<N> {
        self.padding = padding.into().0;
        self
    }

    /// The smallest size that pooling reduces to that of `x`.
    fn default_size(&self, x: &TracedTensor) -> Vec<Size> {
        let lengths = self.kernel_size.iter().zip(&self.stride).zip(&self.padding);
        let axes = lengths
            .enumerate()
            .map(|(axis, ((kernel, stride), padding))| {
                let size = x.dim(axis as i64 - N as i64);
                (size - 1) * *stride + (kernel - 2 * padding)
            });
        axes.collect()
    }

    /// Calls the operator.
    fn unpool(
        &self,
        x: &TracedTensor,
        indices: &TracedTensor,
        mut size: Vec<Size>,
    ) -> TracedTensor {
        match N {
            1 => {
                size.push(Size::from(1));
                let (x, indices) = (x.unsqueeze(-1), indices.unsqueeze(-1));
                x.max_unpool2d(&indices, size).squeeze_dim(-1)
            }
            2 => x.max_unpool2d(indices, size),
            _ => x.max_unpool3d(indices, size, self.stride, Arg::from(self.padding)),
        }
    }

    /// Returns an error if the ranks or the number of sizes are wrong.
    fn refused(&self, x: &TracedTensor, size: Option<&[Size]>) -> Option<TracedTensor> {
        let found = size.map_or(N, <[Size]>::len);
        let message = format!("MaxUnpool{N}d expects an output size of {N} numbers, got {found}");
        rank_error(&format!("MaxUnpool{N}d"), x, &[N + 1, N + 2])
            .or_else(|| (found != N).then(|| refuse(message)))
    }
}

/// Called with maxima and their indices.
impl<const N: usize, X, I> Forward<(X, I)> for MaxUnpool<N>
where
    X: Borrow<TracedTensor>,
    I: Borrow<TracedTensor>,
{
    type Output = TracedTensor;

    fn forward(&self, (x, indices): (X, I)) -> TracedTensor {
        let x = x.borrow();
        self.refused(x, None)
            .unwrap_or_else(|| self.unpool(x, indices.borrow(), self.default_size(x)))
    }
}

/// Called with maxima, their indices, and the size of the last axes of the result.
impl<const N: usize, X, I> Forward<(X, I, Vec<Size>)> for MaxUnpool<N>
where
    X: Borrow<TracedTensor>,
    I: Borrow<TracedTensor>,
{
    type Output = TracedTensor;

    fn forward(&self, (x, indices, size): (X, I, Vec<Size>)) -> TracedTensor {
        let x = x.borrow();
        self.refused(x, Some(&size))
            .unwrap_or_else(|| self.unpool(x, indices.borrow(), size))
    }
}
