//! ALBERT: an encoder whose layers share their weights, with embeddings of fewer features than the layers'.

use onionskin::kw;
use onionskin::nn::{Embedding, LayerNorm, Linear};
use onionskin::tensor::Tensor;
use onionskin::trace::{Buffer, Forward, Method, Module, NewAxis, TracedTensor, freeze};

use super::{check_network, network, tensor};

fn norm(dim: usize) -> LayerNorm {
    LayerNorm::new(dim).eps(1e-12)
}

#[derive(Module)]
struct Attention {
    heads: i64,
    query: Linear,
    key: Linear,
    value: Linear,
    dense: Linear,
    norm: LayerNorm,
}

impl Attention {
    fn new(dim: usize, heads: i64) -> Attention {
        Attention {
            heads,
            query: Linear::new(dim, dim),
            key: Linear::new(dim, dim),
            value: Linear::new(dim, dim),
            dense: Linear::new(dim, dim),
            norm: norm(dim),
        }
    }

    fn split(&self, x: TracedTensor) -> TracedTensor {
        let x = x.view((x.dim(0), x.dim(1), self.heads, -1));
        x.transpose(1, 2)
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for Attention {
    type Output = TracedTensor;

    fn forward(&self, (x, mask): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let q = self.split(self.query.call(x));
        let k = self.split(self.key.call(x));
        let v = self.split(self.value.call(x));
        let head = freeze(&q.dim(-1)).unwrap() as f64;
        let scores = q.matmul(&k.transpose(-1, -2)) / head.sqrt() + mask;
        let context = scores.softmax(-1).matmul(&v).transpose(1, 2);
        let context = context.flatten_with(kw!(start_dim = 2));
        self.norm.call(x + self.dense.call(context))
    }
}

#[derive(Module)]
struct Layer {
    attention: Attention,
    ffn: Linear,
    ffn_output: Linear,
    norm: LayerNorm,
}

impl Layer {
    fn new(dim: usize, heads: i64) -> Layer {
        Layer {
            attention: Attention::new(dim, heads),
            ffn: Linear::new(dim, 2 * dim),
            ffn_output: Linear::new(2 * dim, dim),
            norm: norm(dim),
        }
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for Layer {
    type Output = TracedTensor;

    fn forward(&self, (x, mask): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let x = self.attention.call((x, mask));
        let hidden = self.ffn.call(&x).gelu_with(kw!(approximate = "tanh"));
        self.norm.call(self.ffn_output.call(hidden) + x)
    }
}

#[derive(Module)]
struct Albert {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    norm: LayerNorm,
    position_ids: Buffer,
    embedding_hidden_mapping_in: Linear,
    layer: Layer,
    layers: usize,
    pooler: Linear,
}

impl Albert {
    fn new(words: usize, positions: usize, embedding: usize, dim: usize) -> Albert {
        let ids = Tensor::from_vec([1, positions], (0..positions as i64).collect());
        Albert {
            word_embeddings: Embedding::new(words, embedding).padding_idx(0),
            position_embeddings: Embedding::new(positions, embedding),
            token_type_embeddings: Embedding::new(2, embedding),
            norm: norm(embedding),
            position_ids: Buffer::from(ids.unwrap()),
            embedding_hidden_mapping_in: Linear::new(embedding, dim),
            layer: Layer::new(dim, 2),
            layers: 3,
            pooler: Linear::new(dim, dim),
        }
    }
}

type Three<'x> = (&'x TracedTensor, &'x TracedTensor, &'x TracedTensor);

impl Forward<Three<'_>> for Albert {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, (ids, mask, types): Three<'_>) -> (TracedTensor, TracedTensor) {
        let x = self.word_embeddings.call(ids) + self.token_type_embeddings.call(types);
        let positions = self.position_ids.i((.., ..ids.dim(1)));
        let x = x + self.position_embeddings.call(positions);
        let x = self.embedding_hidden_mapping_in.call(self.norm.call(x));
        let mask = mask.i((.., NewAxis, NewAxis, ..)).to(x.dtype());
        let mask = (1.0 - mask) * f64::from(f32::MIN);
        let x = (0..self.layers).fold(x, |x, _| self.layer.call((&x, &mask)));
        let pooled = self.pooler.call(x.i((.., 0))).tanh();
        (x, pooled)
    }
}

#[test]
fn albert() {
    let net = Albert::new(30, 12, 6, 16);
    let traces = check_network(&network("albert"), &net, &[], |inputs, options| {
        let x = |index| tensor(inputs, index);
        let forward = |net: &Albert, (ids, mask, types): (_, _, _)| net.call((&ids, &mask, &types));
        Method::with("forward", (x(0), x(1), x(2)), forward, options)
    });
    assert_eq!(traces, 1);
}
