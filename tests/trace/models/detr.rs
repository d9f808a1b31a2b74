//! The decoder of DETR: queries for objects attend to the features of a picture.

use std::collections::BTreeMap;

use onionskin::kw;
use onionskin::nn::{Attention, Embedding, LayerNorm, Linear, MultiheadAttention};
use onionskin::trace::{Forward, Method, Module, TracedTensor, ops};

use super::{check_network, network, tensor};

/// The features of a picture, their positions, and which of them are padding.
struct Picture<'x> {
    memory: &'x TracedTensor,
    position: &'x TracedTensor,
    padding: &'x TracedTensor,
}

#[derive(Module)]
struct Layer {
    self_attn: MultiheadAttention,
    cross_attn: MultiheadAttention,
    linear1: Linear,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    norm3: LayerNorm,
}

impl Layer {
    fn new(dim: usize, heads: usize, feedforward: usize) -> Layer {
        let norm = || LayerNorm::new(dim);
        Layer {
            self_attn: MultiheadAttention::new(dim, heads),
            cross_attn: MultiheadAttention::new(dim, heads),
            linear1: Linear::new(dim, feedforward),
            linear2: Linear::new(feedforward, dim),
            norm1: norm(),
            norm2: norm(),
            norm3: norm(),
        }
    }
}

impl Forward<(&TracedTensor, &Picture<'_>, &TracedTensor)> for Layer {
    type Output = TracedTensor;

    fn forward(
        &self,
        (x, picture, queries): (&TracedTensor, &Picture<'_>, &TracedTensor),
    ) -> TracedTensor {
        let q = x + queries;
        let (attended, _) = self.self_attn.call((&q, &q, x));
        let x = self.norm1.call(x + attended);
        let (query, key) = (&x + queries, picture.memory + picture.position);
        let attention = Attention::new(&query, &key, picture.memory);
        let attention = attention.key_padding_mask(Some(picture.padding));
        let (attended, _) = self.cross_attn.call(attention);
        let x = self.norm2.call(x + attended);
        let hidden = self.linear1.call(&x).relu();
        self.norm3.call(x + self.linear2.call(hidden))
    }
}

#[derive(Module)]
struct Decoder {
    query_embed: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    class_embed: Linear,
    bbox_embed: [Linear; 3],
}

impl Decoder {
    fn new(dim: usize, heads: usize, queries: usize, classes: usize) -> Decoder {
        Decoder {
            query_embed: Embedding::new(queries, dim),
            layers: (0..2).map(|_| Layer::new(dim, heads, 16)).collect(),
            norm: LayerNorm::new(dim),
            class_embed: Linear::new(dim, classes + 1),
            bbox_embed: [dim, dim, 4].map(|outputs| Linear::new(dim, outputs)),
        }
    }

    fn boxes(&self, x: &TracedTensor) -> TracedTensor {
        let [first, second, last] = &self.bbox_embed;
        let x = second.call(first.call(x).relu()).relu();
        last.call(x).sigmoid()
    }
}

impl Forward<&Picture<'_>> for Decoder {
    type Output = BTreeMap<String, TracedTensor>;

    fn forward(&self, picture: &Picture<'_>) -> BTreeMap<String, TracedTensor> {
        let queries = self.query_embed.weight().unsqueeze(1);
        let queries = queries.repeat((1, picture.memory.dim(1), 1));
        let mut x = queries.zeros_like();
        let mut outputs = Vec::new();
        for layer in &self.layers {
            x = layer.call((&x, picture, &queries));
            outputs.push(self.norm.call(&x));
        }
        let outputs = ops::stack(&outputs).transpose(1, 2);
        let (logits, boxes) = (self.class_embed.call(&outputs), self.boxes(&outputs));
        let named = [
            ("boxes", boxes.select(0, -1)),
            (
                "earlier_logits",
                logits.slice_with(kw!(start = 0, end = -1)),
            ),
            ("logits", logits.select(0, -1)),
        ];
        named.map(|(name, x)| (name.to_string(), x)).into()
    }
}

#[test]
fn detr_decoder() {
    let net = Decoder::new(8, 2, 5, 3);
    let traces = check_network(&network("detr"), &net, &[], |inputs, options| {
        let x = |index| tensor(inputs, index);
        let forward = |net: &Decoder, (memory, position, padding): (_, _, _)| {
            net.call(&Picture {
                memory: &memory,
                position: &position,
                padding: &padding,
            })
        };
        Method::with("forward", (x(0), x(1), x(2)), forward, options)
    });
    assert_eq!(traces, 1);
}
