//! A small GPT-2 like that of the library transformers: eager attention, a head that shares the embedding.

use onionskin::dtype::DType;
use onionskin::nn::{Embedding, LayerNorm, Linear};
use onionskin::tensor::Tensor;
use onionskin::trace::{Arg, Buffer, Forward, Module, Parameter, TracedTensor, call, init};

const FEATURES: usize = 64;
const HEADS: i64 = 4;
const LENGTH: usize = 64;

#[track_caller]
fn op(name: &str, arguments: Vec<Arg>) -> TracedTensor {
    call(name, arguments, Vec::new()).swap_remove(0)
}

fn norm() -> LayerNorm {
    LayerNorm::new(FEATURES)
}

/// A linear layer whose weight is stored as `[inputs, outputs]`.
#[derive(Module)]
struct Conv1D {
    weight: Parameter,
    bias: Parameter,
}

impl Conv1D {
    fn new(inputs: usize, outputs: usize) -> Conv1D {
        Conv1D {
            weight: Parameter::new([inputs, outputs], init::zeros()),
            bias: Parameter::new([outputs], init::zeros()),
        }
    }
}

impl Forward<&TracedTensor> for Conv1D {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let inputs = self.weight.dim(0);
        let rows = op(
            "view",
            vec![x.into(), Arg::List(vec![(-1).into(), inputs.into()])],
        );
        let rows = op(
            "addmm",
            vec![(&self.bias).into(), rows.into(), (&self.weight).into()],
        );
        op(
            "view",
            vec![
                rows.into(),
                vec![x.dim(0), x.dim(1), self.weight.dim(1)].into(),
            ],
        )
    }
}

#[derive(Module)]
struct Attention {
    bias: Buffer,
    c_attn: Conv1D,
    c_proj: Conv1D,
}

impl Attention {
    fn new() -> Attention {
        let mask = Tensor::full(DType::Bool, [1, 1, LENGTH, LENGTH], 0.0).unwrap();
        Attention {
            bias: Buffer::from(mask),
            c_attn: Conv1D::new(FEATURES, 3 * FEATURES),
            c_proj: Conv1D::new(FEATURES, FEATURES),
        }
    }

    /// Returns the part of the causal mask for these numbers of queries and keys.
    fn mask(&self, queries: Arg, keys: Arg) -> TracedTensor {
        let slice = |x: &TracedTensor, dim: i64, end: Arg| {
            op("slice", vec![x.into(), dim.into(), 0.into(), end, 1.into()])
        };
        let whole = || Arg::from(i64::MAX);
        let mask = slice(&slice(&self.bias, 0, whole()), 1, whole());
        slice(&slice(&mask, 2, queries), 3, keys)
    }
}

impl Forward<&TracedTensor> for Attention {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let features = FEATURES as i64;
        let projected = self.c_attn.call(x);
        let parts = call(
            "split",
            vec![projected.into(), features.into(), 2.into()],
            Vec::new(),
        );
        let heads = |part: &TracedTensor| {
            let sizes = Arg::List(vec![
                part.dim(0).into(),
                part.dim(1).into(),
                (-1).into(),
                (features / HEADS).into(),
            ]);
            op(
                "transpose",
                vec![
                    op("view", vec![part.into(), sizes]).into(),
                    1.into(),
                    2.into(),
                ],
            )
        };
        let (q, k, v) = (heads(&parts[0]), heads(&parts[1]), heads(&parts[2]));
        let keys = op("transpose", vec![(&k).into(), (-1).into(), (-2).into()]);
        let scores = op("matmul", vec![(&q).into(), keys.into()]) / 4.0;
        let mask = self.mask(q.dim(-2).into(), k.dim(-2).into());
        let scores = op(
            "where",
            vec![mask.into(), scores.into(), f64::from(f32::MIN).into()],
        );
        let weights = op("softmax", vec![scores.into(), (-1).into()]);
        let out = op("matmul", vec![weights.into(), v.into()]);
        let out = op("transpose", vec![out.into(), 1.into(), 2.into()]);
        let sizes = Arg::from((x.dim(0), x.dim(1), -1));
        self.c_proj.call(&op("reshape", vec![out.into(), sizes]))
    }
}

#[derive(Module)]
struct Mlp {
    c_fc: Conv1D,
    act: NewGelu,
    c_proj: Conv1D,
}

/// The tanh approximation of GELU that GPT-2 was trained with, term by term.
#[derive(Module)]
struct NewGelu {
    coefficient: f64,
}

impl Forward<&TracedTensor> for NewGelu {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let half = x * 0.5;
        let cube = op("pow", vec![x.into(), 3.0.into()]);
        let inner = (x + cube * self.coefficient) * (2.0 / std::f64::consts::PI).sqrt();
        half * (op("tanh", vec![inner.into()]) + 1.0)
    }
}

impl Forward<&TracedTensor> for Mlp {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        self.c_proj.call(&self.act.call(&self.c_fc.call(x)))
    }
}

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

impl Forward<&TracedTensor> for Block {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.attn.call(&self.ln_1.call(x)) + x;
        &x + self.mlp.call(&self.ln_2.call(&x))
    }
}

#[derive(Module)]
struct Transformer {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

impl Forward<&TracedTensor> for Transformer {
    type Output = TracedTensor;

    fn forward(&self, ids: &TracedTensor) -> TracedTensor {
        let length = ids.dim(1);
        let ids = op(
            "view",
            vec![ids.into(), Arg::List(vec![(-1).into(), (&length).into()])],
        );
        let range = vec![0.into(), (&length).into()];
        let named = vec![("dtype", Arg::DType(DType::I64))];
        let positions = call("arange", range, named).swap_remove(0);
        let positions = op("unsqueeze", vec![positions.into(), 0.into()]);
        let x = self.wte.call(&ids) + self.wpe.call(&positions);
        let x = self.h.iter().fold(x, |x, block| block.call(&x));
        let x = self.ln_f.call(x);
        let sizes = Arg::from((-1, length, x.dim(2)));
        op("view", vec![x.into(), sizes])
    }
}

#[derive(Module)]
struct Gpt2 {
    transformer: Transformer,
    lm_head: Linear,
}

impl Gpt2 {
    fn new(words: usize, layers: usize) -> Gpt2 {
        let block = |_| Block {
            ln_1: norm(),
            attn: Attention::new(),
            ln_2: norm(),
            mlp: Mlp {
                c_fc: Conv1D::new(FEATURES, 4 * FEATURES),
                act: NewGelu {
                    coefficient: 0.044715,
                },
                c_proj: Conv1D::new(4 * FEATURES, FEATURES),
            },
        };
        let wte = Embedding::new(words, FEATURES);
        Gpt2 {
            lm_head: Linear::new(FEATURES, words).bias(false).tied(wte.weight()),
            transformer: Transformer {
                wte,
                wpe: Embedding::new(LENGTH, FEATURES),
                h: (0..layers).map(block).collect(),
                ln_f: norm(),
            },
        }
    }
}

/// A GPT-2 in a module that returns its logits alone.
#[derive(Module)]
pub struct Wrapper {
    m: Gpt2,
}

impl Wrapper {
    /// A network for this number of words with this number of layers.
    pub fn new(words: usize, layers: usize) -> Wrapper {
        Wrapper {
            m: Gpt2::new(words, layers),
        }
    }
}

impl Forward<&TracedTensor> for Wrapper {
    type Output = TracedTensor;

    fn forward(&self, ids: &TracedTensor) -> TracedTensor {
        self.m.lm_head.call(self.m.transformer.call(ids))
    }
}
