//! Distances and similarities of two tensors.

use std::borrow::Borrow;

use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// `torch.nn.CosineSimilarity`
#[derive(Clone, Debug, Module)]
pub struct CosineSimilarity {
    dim: i64,
    eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity::new()
    }
}

impl CosineSimilarity {
    /// The similarity of vectors along axis 1.
    pub fn new() -> CosineSimilarity {
        CosineSimilarity { dim: 1, eps: 1e-8 }
    }

    /// The axis of the vectors; 1 by default.
    #[must_use]
    pub fn dim(mut self, dim: i64) -> CosineSimilarity {
        self.dim = dim;
        self
    }

    /// The smallest norm to divide by; `1e-8` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> CosineSimilarity {
        self.eps = eps;
        self
    }
}

impl<A: Borrow<TracedTensor>, B: Borrow<TracedTensor>> Forward<(A, B)> for CosineSimilarity {
    type Output = TracedTensor;

    fn forward(&self, (a, b): (A, B)) -> TracedTensor {
        a.borrow()
            .cosine_similarity_with(b.borrow(), kw!(dim = self.dim, eps = self.eps))
    }
}

/// `torch.nn.PairwiseDistance`
#[derive(Clone, Debug, Module)]
pub struct PairwiseDistance {
    p: f64,
    eps: f64,
    keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance::new()
    }
}

impl PairwiseDistance {
    /// The Euclidean distance of vectors along the last axis.
    pub fn new() -> PairwiseDistance {
        PairwiseDistance {
            p: 2.0,
            eps: 1e-6,
            keepdim: false,
        }
    }

    /// The degree of the norm; 2 by default.
    #[must_use]
    pub fn p(mut self, p: f64) -> PairwiseDistance {
        self.p = p;
        self
    }

    /// Number added to each difference; `1e-6` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> PairwiseDistance {
        self.eps = eps;
        self
    }

    /// Whether to keep the axis of the vectors, with size 1; false by default.
    #[must_use]
    pub fn keepdim(mut self, keepdim: bool) -> PairwiseDistance {
        self.keepdim = keepdim;
        self
    }
}

impl<A: Borrow<TracedTensor>, B: Borrow<TracedTensor>> Forward<(A, B)> for PairwiseDistance {
    type Output = TracedTensor;

    fn forward(&self, (a, b): (A, B)) -> TracedTensor {
        a.borrow().pairwise_distance_with(
            b.borrow(),
            kw!(p = self.p, eps = self.eps, keepdim = self.keepdim),
        )
    }
}
