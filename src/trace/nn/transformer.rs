//! Transformer encoders.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::attention_input::additive_mask;
use super::{Attention, Dropout, LayerNorm, Linear, MultiheadAttention};
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// Input of a transformer encoder: a sequence with its masks.
#[derive(Clone, Debug)]
pub struct Masked {
    x: TracedTensor,
    mask: Option<TracedTensor>,
    key_padding_mask: Option<TracedTensor>,
    is_causal: bool,
}

impl Masked {
    /// A sequence without masks.
    pub fn new(x: &TracedTensor) -> Masked {
        Masked {
            x: x.clone(),
            mask: None,
            key_padding_mask: None,
            is_causal: false,
        }
    }

    /// Mask of the positions that each position ignores: flags, or numbers to add to the scores.
    #[must_use]
    pub fn mask(mut self, mask: Option<&TracedTensor>) -> Masked {
        self.mask = mask.cloned();
        self
    }

    /// Mask of padding, `[batch, length]`.
    #[must_use]
    pub fn key_padding_mask(mut self, mask: Option<&TracedTensor>) -> Masked {
        self.key_padding_mask = mask.cloned();
        self
    }

    /// Declares that the mask is the causal one.
    #[must_use]
    pub fn is_causal(mut self, causal: bool) -> Masked {
        self.is_causal = causal;
        self
    }

    /// The sequence.
    pub(super) fn sequence(&self) -> &TracedTensor {
        &self.x
    }

    /// The masks for another sequence.
    pub(super) fn with_sequence(mut self, x: TracedTensor) -> Masked {
        self.x = x;
        self
    }

    /// Adds the masks to attention without weights.
    pub(super) fn attention(&self, attention: Attention) -> Attention {
        attention
            .attn_mask(self.mask.as_ref())
            .key_padding_mask(self.key_padding_mask.as_ref())
            .need_weights(false)
            .is_causal(self.is_causal)
    }

    /// Converts the masks to numbers to add to the scores.
    fn with_additive_masks(mut self) -> Masked {
        let dtype = self.x.dtype();
        self.key_padding_mask = additive_mask(self.key_padding_mask.as_ref(), dtype);
        self.mask = additive_mask(self.mask.as_ref(), dtype);
        self
    }
}

/// `torch.nn.TransformerEncoderLayer`, as PyTorch records it with gradients enabled.
#[derive(Clone, Module)]
pub struct TransformerEncoderLayer {
    self_attn: MultiheadAttention,
    linear1: Linear,
    dropout: Dropout,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: Activation,
}

/// A function for each element.
pub(super) type Activation = Arc<dyn Fn(&TracedTensor) -> TracedTensor + Send + Sync>;

impl fmt::Debug for TransformerEncoderLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransformerEncoderLayer")
            .field("self_attn", &self.self_attn)
            .field("linear1", &self.linear1)
            .field("linear2", &self.linear2)
            .field("norm_first", &self.norm_first)
            .finish_non_exhaustive()
    }
}

impl TransformerEncoderLayer {
    /// A layer with `features` features, `heads` attention heads, and `feedforward` features in the feed-forward block
    /// (PyTorch's default is 2048).
    #[track_caller]
    pub fn new(features: usize, heads: usize, feedforward: usize) -> TransformerEncoderLayer {
        let norm = || layer_norm(features);
        TransformerEncoderLayer {
            self_attn: MultiheadAttention::new(features, heads).dropout(0.1),
            linear1: Linear::new(features, feedforward),
            dropout: Dropout::new(0.1),
            linear2: Linear::new(feedforward, features),
            norm1: norm(),
            norm2: norm(),
            dropout1: Dropout::new(0.1),
            dropout2: Dropout::new(0.1),
            norm_first: false,
            activation: Arc::new(TracedTensor::relu),
        }
    }

    /// Activation of the feed-forward block, such as `TracedTensor::gelu`; `relu` by default.
    #[must_use]
    pub fn activation(
        mut self,
        activation: impl Fn(&TracedTensor) -> TracedTensor + Send + Sync + 'static,
    ) -> TransformerEncoderLayer {
        self.activation = Arc::new(activation);
        self
    }

    /// Probability of all dropouts in training mode; 0.1 by default.
    #[must_use]
    #[track_caller]
    pub fn dropout(mut self, p: f64) -> TransformerEncoderLayer {
        self.self_attn = self.self_attn.dropout(p);
        self.dropout = Dropout::new(p);
        self.dropout1 = Dropout::new(p);
        self.dropout2 = Dropout::new(p);
        self
    }

    /// Whether the batch is the first axis; by default the sequence is.
    #[must_use]
    pub fn batch_first(mut self, batch_first: bool) -> TransformerEncoderLayer {
        self.self_attn = self.self_attn.batch_first(batch_first);
        self
    }

    /// Whether to normalise before attention and feed-forward, not after; false by default.
    #[must_use]
    pub fn norm_first(mut self, norm_first: bool) -> TransformerEncoderLayer {
        self.norm_first = norm_first;
        self
    }

    /// Number added to the variance by normalisations; `1e-5` by default.
    #[must_use]
    pub fn layer_norm_eps(mut self, eps: f64) -> TransformerEncoderLayer {
        self.norm1 = self.norm1.eps(eps);
        self.norm2 = self.norm2.eps(eps);
        self
    }

    /// Whether projections and normalisations have biases; true by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> TransformerEncoderLayer {
        self.self_attn = self.self_attn.bias(bias);
        self.linear1 = self.linear1.bias(bias);
        self.linear2 = self.linear2.bias(bias);
        self.norm1 = self.norm1.bias(bias);
        self.norm2 = self.norm2.bias(bias);
        self
    }

    /// Self-attention with the masks of `input`, and dropout.
    fn attend(&self, x: &TracedTensor, input: &Masked) -> TracedTensor {
        let attention = input.attention(Attention::within(x));
        self.dropout1.call(self.self_attn.call(attention).0)
    }

    /// The feed-forward block, with dropout.
    fn feed_forward(&self, x: &TracedTensor) -> TracedTensor {
        let activated = (self.activation)(&self.linear1.call(x));
        self.dropout2
            .call(self.linear2.call(self.dropout.call(activated)))
    }
}

impl Forward<Masked> for TransformerEncoderLayer {
    type Output = TracedTensor;

    fn forward(&self, input: Masked) -> TracedTensor {
        let input = input.with_additive_masks();
        let x = &input.x;
        if self.norm_first {
            let x = x + self.attend(&self.norm1.call(x), &input);
            return &x + self.feed_forward(&self.norm2.call(&x));
        }
        let x = self.norm1.call(x + self.attend(x, &input));
        self.norm2.call(&x + self.feed_forward(&x))
    }
}

/// Called without masks.
impl<X: Borrow<TracedTensor>> Forward<X> for TransformerEncoderLayer {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        self.forward(Masked::new(x.borrow()))
    }
}

/// A normalisation over `features` features.
pub(super) fn layer_norm(features: usize) -> LayerNorm {
    LayerNorm::new([i64::try_from(features).unwrap_or(i64::MAX)])
}

/// `torch.nn.TransformerEncoder`: a chain of layers.
#[derive(Clone, Debug, Module)]
pub struct TransformerEncoder {
    layers: Vec<TransformerEncoderLayer>,
    norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// An encoder of these layers.
    pub fn new(layers: impl IntoIterator<Item = TransformerEncoderLayer>) -> TransformerEncoder {
        TransformerEncoder {
            layers: layers.into_iter().collect(),
            norm: None,
        }
    }

    /// Adds a normalisation of the result; there is none by default.
    #[must_use]
    pub fn norm(mut self, norm: LayerNorm) -> TransformerEncoder {
        self.norm = Some(norm);
        self
    }

    /// Changes every layer: `encoder.map(|layer| layer.norm_first(true))`.
    #[must_use]
    pub fn map(
        mut self,
        change: impl FnMut(TransformerEncoderLayer) -> TransformerEncoderLayer,
    ) -> TransformerEncoder {
        self.layers = self.layers.into_iter().map(change).collect();
        self
    }
}

impl Forward<Masked> for TransformerEncoder {
    type Output = TracedTensor;

    fn forward(&self, input: Masked) -> TracedTensor {
        let mut input = input.with_additive_masks();
        for layer in &self.layers {
            input.x = layer.call(input.clone());
        }
        match &self.norm {
            Some(norm) => norm.call(input.x),
            None => input.x,
        }
    }
}

/// Called without masks.
impl<X: Borrow<TracedTensor>> Forward<X> for TransformerEncoder {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        self.forward(Masked::new(x.borrow()))
    }
}
