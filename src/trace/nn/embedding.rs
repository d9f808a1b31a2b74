//! Embedding tables.

use std::borrow::Borrow;

use super::init;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// `torch.nn.Embedding`.
#[derive(Debug, Module)]
pub struct Embedding {
    weight: TracedTensor,
    padding_idx: i64,
}

impl Embedding {
    /// A table of `count` rows with `features` numbers each.
    pub fn new(count: usize, features: usize) -> Embedding {
        Embedding {
            weight: init::normal(&[count, features]),
            padding_idx: -1,
        }
    }

    /// The row that training does not change. Unlike in PyTorch its initial values are not zeros.
    #[must_use]
    pub fn padding_idx(mut self, row: i64) -> Embedding {
        self.padding_idx = row;
        self
    }

    /// The table, `[count, features]`.
    pub fn weight(&self) -> &TracedTensor {
        &self.weight
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Embedding {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let named = kw!(padding_idx = self.padding_idx);
        self.weight.embedding_with(x.borrow(), named)
    }
}
