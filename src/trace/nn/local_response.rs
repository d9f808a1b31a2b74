//! Normalisation over neighbouring channels.

use std::borrow::Borrow;

use super::checks::refuse;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// `torch.nn.LocalResponseNorm`
#[derive(Clone, Debug, Module)]
pub struct LocalResponseNorm {
    size: i64,
    alpha: f64,
    beta: f64,
    k: f64,
}

impl LocalResponseNorm {
    /// A normalisation over `size` neighbouring channels.
    pub fn new(size: i64) -> LocalResponseNorm {
        LocalResponseNorm {
            size,
            alpha: 1e-4,
            beta: 0.75,
            k: 1.0,
        }
    }

    /// Factor of the mean of squares; `1e-4` by default.
    #[must_use]
    pub fn alpha(mut self, alpha: f64) -> LocalResponseNorm {
        self.alpha = alpha;
        self
    }

    /// Exponent of the divisor; 0.75 by default.
    #[must_use]
    pub fn beta(mut self, beta: f64) -> LocalResponseNorm {
        self.beta = beta;
        self
    }

    /// Number added to the mean of squares; 1 by default.
    #[must_use]
    pub fn k(mut self, k: f64) -> LocalResponseNorm {
        self.k = k;
        self
    }

    /// The mean of `squares` over neighbouring channels.
    fn means(&self, squares: &TracedTensor) -> TracedTensor {
        let (before, after) = (self.size / 2, (self.size - 1) / 2);
        if squares.rank() == 3 {
            let padded = squares.unsqueeze(1).pad([0, 0, before, after]);
            let means =
                padded.avg_pool2d_with([self.size, 1], kw!(stride = [1, 1], padding = [0, 0]));
            return means.squeeze_dim(1);
        }
        let [batch, channels, rows] = [0, 1, 2].map(|axis| squares.dim(axis));
        let flat = squares.view((batch, 1, channels, rows, -1));
        let padded = flat.pad([0, 0, 0, 0, before, after]);
        let means = padded.avg_pool3d_with(
            [self.size, 1, 1],
            kw!(stride = [1, 1, 1], padding = [0, 0, 0]),
        );
        means.squeeze_dim(1).view(squares.shape())
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for LocalResponseNorm {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let x = x.borrow();
        if x.error().is_none() && x.rank() < 3 {
            let rank = x.rank();
            return refuse(format!(
                "LocalResponseNorm expects 3D or higher input, got {rank}D"
            ));
        }
        let means = self.means(&(x * x));
        x / (means * self.alpha + self.k).pow(self.beta)
    }
}
