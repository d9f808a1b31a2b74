//! Maximum pooling over windows at random distances.

use std::borrow::Borrow;

use super::PerAxis;
use super::checks::rank_error;
use super::pooling::{PoolWithIndices, WithIndices};
use crate::error::Result;
use crate::kw;
use crate::tensor::Tensor;
use crate::trace::Module;
use crate::trace::native::{Arg, Buffer, Forward, TracedTensor, call, failed, freeze, ops, unpack};

/// `torch.nn.FractionalMaxPool2d`
pub type FractionalMaxPool2d = FractionalMaxPool<2>;
/// `torch.nn.FractionalMaxPool3d`
pub type FractionalMaxPool3d = FractionalMaxPool<3>;

/// Maximum pooling over `N` axes, to a given size, by windows at random distances.
#[derive(Clone, Debug, Module)]
pub struct FractionalMaxPool<const N: usize> {
    kernel_size: [i64; N],
    #[module(skip)]
    output: PooledSize<N>,
    _random_samples: Option<Buffer>,
}

/// The size of the result.
#[derive(Clone, Copy, Debug)]
enum PooledSize<const N: usize> {
    /// Numbers of windows.
    Sizes([i64; N]),
    /// Parts of the input's sizes.
    Ratios([f64; N]),
}

impl<const N: usize> FractionalMaxPool<N> {
    /// Pooling by windows of a size to an output of a size.
    pub fn new(
        kernel_size: impl Into<PerAxis<N>>,
        output_size: impl Into<PerAxis<N>>,
    ) -> FractionalMaxPool<N> {
        FractionalMaxPool {
            kernel_size: kernel_size.into().0,
            output: PooledSize::Sizes(output_size.into().0),
            _random_samples: None,
        }
    }

    /// Pooling by windows of a size to parts of the input's sizes, between 0 and 1. A trace is valid for the example's sizes.
    pub fn by_ratio(
        kernel_size: impl Into<PerAxis<N>>,
        output_ratio: [f64; N],
    ) -> FractionalMaxPool<N> {
        FractionalMaxPool {
            output: PooledSize::Ratios(output_ratio),
            ..FractionalMaxPool::new(kernel_size, 1)
        }
    }

    /// Places the windows by these numbers from 0 to 1, `[batch, channels, N]`, not by new ones in each call.
    #[must_use]
    pub fn random_samples(mut self, samples: Tensor) -> FractionalMaxPool<N> {
        self._random_samples = Some(Buffer::from(samples));
        self
    }

    /// Returns the indices of the maxima too.
    #[must_use]
    pub fn return_indices(self) -> WithIndices<FractionalMaxPool<N>> {
        WithIndices::new(self)
    }

    /// The size of the result.
    #[track_caller]
    fn output_size(&self, x: &TracedTensor) -> Result<[i64; N]> {
        let ratios = match self.output {
            PooledSize::Sizes(sizes) => return Ok(sizes),
            PooledSize::Ratios(ratios) => ratios,
        };
        let mut sizes = [0; N];
        for (axis, ratio) in ratios.into_iter().enumerate() {
            let size = freeze(&x.dim(axis as i64 - N as i64))?;
            sizes[axis] = (size as f64 * ratio) as i64;
        }
        Ok(sizes)
    }

    /// The places of the windows for an input.
    fn samples(&self, x: &TracedTensor) -> TracedTensor {
        match &self._random_samples {
            Some(samples) => TracedTensor::clone(samples),
            None => {
                let batch = if x.rank() == N + 1 {
                    1.into()
                } else {
                    x.dim(0)
                };
                let sizes = (batch, x.dim(-1 - N as i64), N);
                ops::rand_with(sizes, kw!(dtype = x.dtype()))
            }
        }
    }
}

impl<const N: usize> PoolWithIndices for FractionalMaxPool<N> {
    fn with_indices(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let name = format!("fractional_max_pool{N}d");
        if let Some(refused) = rank_error(&name, x, &[N + 1, N + 2]) {
            return (refused.clone(), refused);
        }
        let sizes = match self.output_size(x) {
            Ok(sizes) => sizes,
            Err(error) => return (failed(error.clone()), failed(error)),
        };
        let sizes = [self.kernel_size, sizes].map(Arg::from);
        let arguments = [vec![x.into()], sizes.to_vec(), vec![self.samples(x).into()]].concat();
        let [values, indices] = unpack(call(&name, arguments, Vec::new()));
        (values, indices)
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for FractionalMaxPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        self.with_indices(x.borrow()).0
    }
}
