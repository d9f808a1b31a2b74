//! BERT-base's structure with the names of the library transformers, and few features.

use onionskin::kw;
use onionskin::nn::{Dropout, Embedding, GELU, LayerNorm, Linear, Tanh};
use onionskin::tensor::Tensor;
use onionskin::trace::{Buffer, Forward, Module, NewAxis, TracedTensor, Visitor};

const FEATURES: usize = 64;
const HEADS: i64 = 4;
const POSITIONS: usize = 32;

fn norm() -> LayerNorm {
    LayerNorm::new(FEATURES).eps(1e-12)
}

#[derive(Module)]
#[expect(non_snake_case, reason = "the name of the library transformers")]
struct Embeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    LayerNorm: LayerNorm,
    dropout: Dropout,
    position_ids: Buffer,
}

impl Embeddings {
    fn new(words: usize) -> Embeddings {
        let ids = Tensor::from_vec([1, POSITIONS], (0..POSITIONS as i64).collect());
        Embeddings {
            word_embeddings: Embedding::new(words, FEATURES).padding_idx(0),
            position_embeddings: Embedding::new(POSITIONS, FEATURES),
            token_type_embeddings: Embedding::new(2, FEATURES),
            LayerNorm: norm(),
            dropout: Dropout::new(0.1),
            position_ids: Buffer::from(ids.unwrap()),
        }
    }
}

impl Forward<&TracedTensor> for Embeddings {
    type Output = TracedTensor;

    fn forward(&self, ids: &TracedTensor) -> TracedTensor {
        let types = ids.zeros_like();
        let x = self.word_embeddings.call(ids) + self.token_type_embeddings.call(types);
        let positions = self.position_ids.i((.., ..ids.dim(1)));
        let x = x + self.position_embeddings.call(positions);
        self.dropout.call(self.LayerNorm.call(x))
    }
}

#[derive(Module)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    dropout: Dropout,
}

impl SelfAttention {
    fn split(x: TracedTensor) -> TracedTensor {
        x.view((x.dim(0), x.dim(1), HEADS, -1)).transpose(1, 2)
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for SelfAttention {
    type Output = TracedTensor;

    fn forward(&self, (x, mask): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let q = SelfAttention::split(self.query.call(x));
        let k = SelfAttention::split(self.key.call(x));
        let v = SelfAttention::split(self.value.call(x));
        let features = FEATURES as f64 / HEADS as f64;
        let scores = q.matmul(&k.transpose(-1, -2)) / features.sqrt() + mask;
        let weights = self.dropout.call(scores.softmax(-1));
        let context = weights.matmul(&v).transpose(1, 2);
        context.flatten_with(kw!(start_dim = 2))
    }
}

/// A projection, the sum with what it skips, and a normalisation: the module `output` of attentions and layers.
#[derive(Module)]
#[expect(non_snake_case, reason = "the name of the library transformers")]
struct Output {
    dense: Linear,
    LayerNorm: LayerNorm,
    dropout: Dropout,
}

impl Output {
    fn new(inputs: usize) -> Output {
        Output {
            dense: Linear::new(inputs, FEATURES),
            LayerNorm: norm(),
            dropout: Dropout::new(0.1),
        }
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for Output {
    type Output = TracedTensor;

    fn forward(&self, (x, skipped): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let x = self.dropout.call(self.dense.call(x));
        self.LayerNorm.call(x + skipped)
    }
}

struct Attention {
    /// Its name is `self`, which no field of Rust can have.
    inner: SelfAttention,
    output: Output,
}

impl Module for Attention {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        visitor.field("self", &self.inner);
        visitor.field("output", &self.output);
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for Attention {
    type Output = TracedTensor;

    fn forward(&self, (x, mask): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        self.output.call((&self.inner.call((x, mask)), x))
    }
}

#[derive(Module)]
struct Intermediate {
    dense: Linear,
    intermediate_act_fn: GELU,
}

impl Forward<&TracedTensor> for Intermediate {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        self.intermediate_act_fn.call(self.dense.call(x))
    }
}

#[derive(Module)]
struct Layer {
    attention: Attention,
    intermediate: Intermediate,
    output: Output,
}

impl Layer {
    fn new() -> Layer {
        let linear = || Linear::new(FEATURES, FEATURES);
        Layer {
            attention: Attention {
                inner: SelfAttention {
                    query: linear(),
                    key: linear(),
                    value: linear(),
                    dropout: Dropout::new(0.1),
                },
                output: Output::new(FEATURES),
            },
            intermediate: Intermediate {
                dense: Linear::new(FEATURES, 4 * FEATURES),
                intermediate_act_fn: GELU::new(),
            },
            output: Output::new(4 * FEATURES),
        }
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for Layer {
    type Output = TracedTensor;

    fn forward(&self, (x, mask): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let x = self.attention.call((x, mask));
        self.output.call((&self.intermediate.call(&x), &x))
    }
}

#[derive(Module)]
struct Encoder {
    layer: Vec<Layer>,
}

impl Forward<(&TracedTensor, &TracedTensor)> for Encoder {
    type Output = TracedTensor;

    fn forward(&self, (x, mask): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let layers = self.layer.iter();
        layers.fold(x.clone(), |x, layer| layer.call((&x, mask)))
    }
}

#[derive(Module)]
struct Pooler {
    dense: Linear,
    activation: Tanh,
}

impl Forward<&TracedTensor> for Pooler {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        self.activation.call(self.dense.call(x.i((.., 0))))
    }
}

#[derive(Module)]
pub struct Bert {
    embeddings: Embeddings,
    encoder: Encoder,
    pooler: Pooler,
}

impl Bert {
    /// A network for this number of words with this number of layers.
    pub fn new(words: usize, layers: usize) -> Bert {
        Bert {
            embeddings: Embeddings::new(words),
            encoder: Encoder {
                layer: (0..layers).map(|_| Layer::new()).collect(),
            },
            pooler: Pooler {
                dense: Linear::new(FEATURES, FEATURES),
                activation: Tanh::new(),
            },
        }
    }
}

/// Takes the ids of words and a mask of the words to attend to.
impl Forward<(&TracedTensor, &TracedTensor)> for Bert {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, (ids, mask): (&TracedTensor, &TracedTensor)) -> (TracedTensor, TracedTensor) {
        let x = self.embeddings.call(ids);
        let mask = mask.i((.., NewAxis, NewAxis, ..)).to(x.dtype());
        let mask = (1.0 - mask) * f64::from(f32::MIN);
        let x = self.encoder.call((&x, &mask));
        let pooled = self.pooler.call(&x);
        (x, pooled)
    }
}
