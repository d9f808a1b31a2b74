//! Transformer decoders, and the whole transformer.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::transformer::{Activation, layer_norm};
use super::{
    Attention, Dropout, LayerNorm, Linear, Masked, MultiheadAttention, TransformerEncoder,
    TransformerEncoderLayer,
};
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// Input of a transformer decoder, or of a whole [`Transformer`]: a target and its source, with masks.
#[derive(Clone, Debug)]
pub struct Decoding {
    target: Masked,
    memory: Masked,
    /// Masks of the source in the encoder of a whole transformer.
    source: Masked,
}

impl Decoding {
    /// A target and the memory that an encoder makes of its source; or the source itself, for a whole [`Transformer`].
    pub fn new(target: &TracedTensor, memory: &TracedTensor) -> Decoding {
        Decoding {
            target: Masked::new(target),
            memory: Masked::new(memory),
            source: Masked::new(memory),
        }
    }

    /// Mask of the source positions that each source position ignores, in the encoder of a [`Transformer`].
    #[must_use]
    pub fn src_mask(mut self, mask: Option<&TracedTensor>) -> Decoding {
        self.source = self.source.mask(mask);
        self
    }

    /// Mask of the target positions that each target position ignores.
    #[must_use]
    pub fn tgt_mask(mut self, mask: Option<&TracedTensor>) -> Decoding {
        self.target = self.target.mask(mask);
        self
    }

    /// Mask of the memory positions that each target position ignores.
    #[must_use]
    pub fn memory_mask(mut self, mask: Option<&TracedTensor>) -> Decoding {
        self.memory = self.memory.mask(mask);
        self
    }

    /// Mask of padding in the source, `[batch, length]`, in the encoder of a [`Transformer`].
    #[must_use]
    pub fn src_key_padding_mask(mut self, mask: Option<&TracedTensor>) -> Decoding {
        self.source = self.source.key_padding_mask(mask);
        self
    }

    /// Mask of padding in the target, `[batch, length]`.
    #[must_use]
    pub fn tgt_key_padding_mask(mut self, mask: Option<&TracedTensor>) -> Decoding {
        self.target = self.target.key_padding_mask(mask);
        self
    }

    /// Mask of padding in the memory, `[batch, length]`.
    #[must_use]
    pub fn memory_key_padding_mask(mut self, mask: Option<&TracedTensor>) -> Decoding {
        self.memory = self.memory.key_padding_mask(mask);
        self
    }

    /// Declares that the target's mask is the causal one.
    #[must_use]
    pub fn tgt_is_causal(mut self, causal: bool) -> Decoding {
        self.target = self.target.is_causal(causal);
        self
    }

    /// Declares that the memory's mask is the causal one.
    #[must_use]
    pub fn memory_is_causal(mut self, causal: bool) -> Decoding {
        self.memory = self.memory.is_causal(causal);
        self
    }
}

/// `torch.nn.TransformerDecoderLayer`, as PyTorch records it with gradients enabled.
#[derive(Clone, Module)]
pub struct TransformerDecoderLayer {
    self_attn: MultiheadAttention,
    multihead_attn: MultiheadAttention,
    linear1: Linear,
    dropout: Dropout,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    norm3: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: Activation,
}

impl fmt::Debug for TransformerDecoderLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransformerDecoderLayer")
            .field("self_attn", &self.self_attn)
            .field("multihead_attn", &self.multihead_attn)
            .field("linear1", &self.linear1)
            .field("linear2", &self.linear2)
            .field("norm_first", &self.norm_first)
            .finish_non_exhaustive()
    }
}

impl TransformerDecoderLayer {
    /// A layer with `features` features, `heads` attention heads, and `feedforward` features in the feed-forward block
    /// (PyTorch's default is 2048).
    #[track_caller]
    pub fn new(features: usize, heads: usize, feedforward: usize) -> TransformerDecoderLayer {
        let (norm, dropout) = (|| layer_norm(features), || Dropout::new(0.1));
        TransformerDecoderLayer {
            self_attn: MultiheadAttention::new(features, heads).dropout(0.1),
            multihead_attn: MultiheadAttention::new(features, heads).dropout(0.1),
            linear1: Linear::new(features, feedforward),
            dropout: dropout(),
            linear2: Linear::new(feedforward, features),
            norm1: norm(),
            norm2: norm(),
            norm3: norm(),
            dropout1: dropout(),
            dropout2: dropout(),
            dropout3: dropout(),
            norm_first: false,
            activation: Arc::new(TracedTensor::relu),
        }
    }

    /// Activation of the feed-forward block, such as `TracedTensor::gelu`; `relu` by default.
    #[must_use]
    pub fn activation(
        mut self,
        activation: impl Fn(&TracedTensor) -> TracedTensor + Send + Sync + 'static,
    ) -> TransformerDecoderLayer {
        self.activation = Arc::new(activation);
        self
    }

    /// Probability of all dropouts in training mode; 0.1 by default.
    #[must_use]
    #[track_caller]
    pub fn dropout(mut self, p: f64) -> TransformerDecoderLayer {
        self.self_attn = self.self_attn.dropout(p);
        self.multihead_attn = self.multihead_attn.dropout(p);
        self.dropout = Dropout::new(p);
        self.dropout1 = Dropout::new(p);
        self.dropout2 = Dropout::new(p);
        self.dropout3 = Dropout::new(p);
        self
    }

    /// Whether the batch is the first axis; by default the sequence is.
    #[must_use]
    pub fn batch_first(mut self, batch_first: bool) -> TransformerDecoderLayer {
        self.self_attn = self.self_attn.batch_first(batch_first);
        self.multihead_attn = self.multihead_attn.batch_first(batch_first);
        self
    }

    /// Whether to normalise before attention and feed-forward, not after; false by default.
    #[must_use]
    pub fn norm_first(mut self, norm_first: bool) -> TransformerDecoderLayer {
        self.norm_first = norm_first;
        self
    }

    /// Number added to the variance by normalisations; `1e-5` by default.
    #[must_use]
    pub fn layer_norm_eps(mut self, eps: f64) -> TransformerDecoderLayer {
        self.norm1 = self.norm1.eps(eps);
        self.norm2 = self.norm2.eps(eps);
        self.norm3 = self.norm3.eps(eps);
        self
    }

    /// Whether projections and normalisations have biases; true by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> TransformerDecoderLayer {
        self.self_attn = self.self_attn.bias(bias);
        self.multihead_attn = self.multihead_attn.bias(bias);
        self.linear1 = self.linear1.bias(bias);
        self.linear2 = self.linear2.bias(bias);
        self.norm1 = self.norm1.bias(bias);
        self.norm2 = self.norm2.bias(bias);
        self.norm3 = self.norm3.bias(bias);
        self
    }

    /// Self-attention of the target, with dropout.
    fn attend_target(&self, x: &TracedTensor, masks: &Masked) -> TracedTensor {
        let attention = masks.attention(Attention::within(x));
        self.dropout1.call(self.self_attn.call(attention).0)
    }

    /// Attention of the target to the memory, with dropout.
    fn attend_memory(&self, x: &TracedTensor, memory: &Masked) -> TracedTensor {
        let sequence = memory.sequence();
        let attention = memory.attention(Attention::new(x, sequence, sequence));
        self.dropout2.call(self.multihead_attn.call(attention).0)
    }

    /// The feed-forward block, with dropout.
    fn feed_forward(&self, x: &TracedTensor) -> TracedTensor {
        let activated = (self.activation)(&self.linear1.call(x));
        self.dropout3
            .call(self.linear2.call(self.dropout.call(activated)))
    }
}

impl Forward<Decoding> for TransformerDecoderLayer {
    type Output = TracedTensor;

    fn forward(&self, input: Decoding) -> TracedTensor {
        let (target, memory) = (&input.target, &input.memory);
        let x = target.sequence();
        if self.norm_first {
            let x = x + self.attend_target(&self.norm1.call(x), target);
            let x = &x + self.attend_memory(&self.norm2.call(&x), memory);
            return &x + self.feed_forward(&self.norm3.call(&x));
        }
        let x = self.norm1.call(x + self.attend_target(x, target));
        let x = self.norm2.call(&x + self.attend_memory(&x, memory));
        self.norm3.call(&x + self.feed_forward(&x))
    }
}

/// `torch.nn.TransformerDecoder`: a chain of layers.
#[derive(Clone, Debug, Module)]
pub struct TransformerDecoder {
    layers: Vec<TransformerDecoderLayer>,
    norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// A decoder of these layers.
    pub fn new(layers: impl IntoIterator<Item = TransformerDecoderLayer>) -> TransformerDecoder {
        TransformerDecoder {
            layers: layers.into_iter().collect(),
            norm: None,
        }
    }

    /// Adds a normalisation of the result; there is none by default.
    #[must_use]
    pub fn norm(mut self, norm: LayerNorm) -> TransformerDecoder {
        self.norm = Some(norm);
        self
    }

    /// Changes every layer: `decoder.map(|layer| layer.norm_first(true))`.
    #[must_use]
    pub fn map(
        mut self,
        change: impl FnMut(TransformerDecoderLayer) -> TransformerDecoderLayer,
    ) -> TransformerDecoder {
        self.layers = self.layers.into_iter().map(change).collect();
        self
    }
}

impl Forward<Decoding> for TransformerDecoder {
    type Output = TracedTensor;

    fn forward(&self, mut input: Decoding) -> TracedTensor {
        for layer in &self.layers {
            let x = layer.call(input.clone());
            input.target = input.target.with_sequence(x);
        }
        let x = input.target.sequence();
        match &self.norm {
            Some(norm) => norm.call(x),
            None => x.clone(),
        }
    }
}

/// `torch.nn.Transformer`: an encoder and a decoder.
#[derive(Clone, Debug, Module)]
pub struct Transformer {
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
}

impl Transformer {
    /// A transformer with `features` features, `heads` attention heads, `[encoder, decoder]` layers, and `feedforward`
    /// features in the feed-forward blocks. PyTorch's defaults are 512, 8, 6 and 6, and 2048. Both parts end with a
    /// normalisation.
    #[track_caller]
    pub fn new(
        features: usize,
        heads: usize,
        [encoder, decoder]: [usize; 2],
        feedforward: usize,
    ) -> Transformer {
        let (mut encoders, mut decoders) = (Vec::new(), Vec::new());
        for _ in 0..encoder {
            encoders.push(TransformerEncoderLayer::new(features, heads, feedforward));
        }
        for _ in 0..decoder {
            decoders.push(TransformerDecoderLayer::new(features, heads, feedforward));
        }
        Transformer::of(
            TransformerEncoder::new(encoders).norm(layer_norm(features)),
            TransformerDecoder::new(decoders).norm(layer_norm(features)),
        )
    }

    /// A transformer of this encoder and decoder: `custom_encoder` and `custom_decoder` of PyTorch.
    pub fn of(encoder: TransformerEncoder, decoder: TransformerDecoder) -> Transformer {
        Transformer { encoder, decoder }
    }

    /// Whether the batch is the first axis; by default the sequence is.
    #[must_use]
    pub fn batch_first(self, batch_first: bool) -> Transformer {
        Transformer {
            encoder: self.encoder.map(|layer| layer.batch_first(batch_first)),
            decoder: self.decoder.map(|layer| layer.batch_first(batch_first)),
        }
    }

    /// Whether to normalise before attention and feed-forward, not after; false by default.
    #[must_use]
    pub fn norm_first(self, norm_first: bool) -> Transformer {
        Transformer {
            encoder: self.encoder.map(|layer| layer.norm_first(norm_first)),
            decoder: self.decoder.map(|layer| layer.norm_first(norm_first)),
        }
    }
}

/// Called with the source as memory: `Decoding::new(&target, &source)`.
impl Forward<Decoding> for Transformer {
    type Output = TracedTensor;

    fn forward(&self, mut input: Decoding) -> TracedTensor {
        let memory = self.encoder.call(input.source.clone());
        input.memory = input.memory.with_sequence(memory);
        self.decoder.call(input)
    }
}

/// Implements calls with two sequences, without masks.
macro_rules! without_masks {
    ($($name:ident: $first:ident, $second:ident => $decoding:expr;)*) => {$(
        /// Called without masks.
        impl<A: Borrow<TracedTensor>, B: Borrow<TracedTensor>> Forward<(A, B)> for $name {
            type Output = TracedTensor;

            fn forward(&self, ($first, $second): (A, B)) -> TracedTensor {
                let ($first, $second) = ($first.borrow(), $second.borrow());
                self.forward($decoding)
            }
        }
    )*};
}

without_masks! {
    TransformerDecoderLayer: target, memory => Decoding::new(target, memory);
    TransformerDecoder: target, memory => Decoding::new(target, memory);
    Transformer: source, target => Decoding::new(target, source);
}
