//! Input of multi-head attention.

use super::checks::{rank_error, refuse, size_error};
use crate::dtype::DType;
use crate::error::Error;
use crate::kw;
use crate::trace::native::{TracedTensor, example_sizes, failed};

/// Inputs and options of a call of [`MultiheadAttention`](super::MultiheadAttention).
#[derive(Clone, Debug)]
pub struct Attention {
    pub(super) query: TracedTensor,
    pub(super) key: TracedTensor,
    pub(super) value: TracedTensor,
    pub(super) key_padding_mask: Option<TracedTensor>,
    pub(super) attn_mask: Option<TracedTensor>,
    pub(super) need_weights: bool,
    pub(super) average_attn_weights: bool,
    pub(super) is_causal: bool,
}

impl Attention {
    /// Queries, keys and values: `[length, batch, features]`, or `[batch, length, features]` if the module is `batch_first`.
    /// The batch axis may be missing.
    pub fn new(query: &TracedTensor, key: &TracedTensor, value: &TracedTensor) -> Attention {
        Attention {
            query: query.clone(),
            key: key.clone(),
            value: value.clone(),
            key_padding_mask: None,
            attn_mask: None,
            need_weights: true,
            average_attn_weights: true,
            is_causal: false,
        }
    }

    /// Self-attention: one sequence is queries, keys and values.
    pub fn within(x: &TracedTensor) -> Attention {
        Attention::new(x, x, x)
    }

    /// Mask of ignored keys, `[batch, keys]`: flags, or numbers to add to the scores.
    #[must_use]
    pub fn key_padding_mask(mut self, mask: Option<&TracedTensor>) -> Attention {
        self.key_padding_mask = mask.cloned();
        self
    }

    /// Mask of the keys that each query ignores, `[queries, keys]` or `[batch · heads, queries, keys]`: flags, or numbers to
    /// add to the scores.
    #[must_use]
    pub fn attn_mask(mut self, mask: Option<&TracedTensor>) -> Attention {
        self.attn_mask = mask.cloned();
        self
    }

    /// Whether to return the weights too; true by default, which is slower.
    #[must_use]
    pub fn need_weights(mut self, need: bool) -> Attention {
        self.need_weights = need;
        self
    }

    /// Whether to average the weights over the heads; true by default.
    #[must_use]
    pub fn average_attn_weights(mut self, average: bool) -> Attention {
        self.average_attn_weights = average;
        self
    }

    /// Declares that `attn_mask` is the causal mask.
    #[must_use]
    pub fn is_causal(mut self, causal: bool) -> Attention {
        self.is_causal = causal;
        self
    }

    /// Changes queries, keys and values. Those that are one tensor stay one tensor.
    pub(super) fn map(mut self, change: impl Fn(&TracedTensor) -> TracedTensor) -> Attention {
        let (query_is_key, key_is_value) = (self.query.is(&self.key), self.key.is(&self.value));
        self.query = change(&self.query);
        self.key = if query_is_key {
            self.query.clone()
        } else {
            change(&self.key)
        };
        self.value = if key_is_value {
            self.key.clone()
        } else {
            change(&self.value)
        };
        self
    }
    /// Converts both masks to numbers to add to the scores.
    pub(super) fn with_additive_masks(mut self) -> Attention {
        let dtype = self.query.dtype();
        self.key_padding_mask = additive_mask(self.key_padding_mask.as_ref(), dtype);
        self.attn_mask = additive_mask(self.attn_mask.as_ref(), dtype);
        self
    }

    /// Returns an error if PyTorch refuses the input of attention with `features` features and `heads` heads.
    pub(super) fn refused(&self, features: usize, heads: usize) -> Option<TracedTensor> {
        rank_error("MultiheadAttention", &self.query, &[2, 3])
            .or_else(|| size_error(&self.query, -1, features, "features"))
            .or_else(|| self.refused_ranks())
            .or_else(|| self.refused_mask(heads))
            .or_else(|| self.refused_causality())
    }

    /// Returns an error unless keys and values have the rank of the queries.
    fn refused_ranks(&self) -> Option<TracedTensor> {
        let tensors = [&self.query, &self.key, &self.value];
        if tensors.iter().any(|tensor| tensor.error().is_some()) {
            return None;
        }
        let [query, key, value] = tensors.map(TracedTensor::rank);
        let message =
            format!("expected {query}D key and value for {query}D query, got {key}D and {value}D");
        ([key, value] != [query; 2]).then(|| refuse(message))
    }

    /// Returns an error if the mask has neither a row of keys for each query, nor one for each head and element of the
    /// batch too.
    fn refused_mask(&self, heads: usize) -> Option<TracedTensor> {
        let found = example_sizes(self.attn_mask.as_ref()?)?;
        let message = match found.len() {
            2 => return None,
            3 if found.first()?.is_multiple_of(heads) => return None,
            3 => format!(
                "the shape of the 3D attn_mask is {found:?}, its first size must be a multiple of {heads} heads"
            ),
            rank => format!("attn_mask must have 2 or 3 dimensions, got {rank}"),
        };
        Some(refuse(message))
    }

    /// Returns an error if the mask is said to be causal but is missing.
    fn refused_causality(&self) -> Option<TracedTensor> {
        let error = || {
            Error::operator("is_causal needs attn_mask").help("pass the causal mask as attn_mask")
        };
        (self.is_causal && self.attn_mask.is_none()).then(|| failed(error()))
    }
}

/// Converts a mask to numbers to add to the scores: minus infinity where a flag is set, 0 elsewhere.
pub(super) fn additive_mask(mask: Option<&TracedTensor>, dtype: DType) -> Option<TracedTensor> {
    let mask = mask?;
    if mask.dtype() != DType::Bool {
        return Some(mask.clone());
    }
    let zeros = mask.zeros_like_with(kw!(dtype = dtype));
    Some(zeros.masked_fill(mask, f64::NEG_INFINITY))
}
