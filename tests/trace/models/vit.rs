//! A vision transformer with a token for the class.

use onionskin::kw;
use onionskin::nn::{Conv2d, GELU, LayerNorm, Linear, Sequential};
use onionskin::trace::{Forward, Module, Parameter, TracedTensor, init, ops, unpack};

use super::{check_network_of_one, network};

#[derive(Module)]
struct Block {
    heads: i64,
    norm1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    norm2: LayerNorm,
    mlp: Sequential,
}

impl Block {
    fn new(dim: usize, heads: i64) -> Block {
        let mlp = Sequential::new()
            .add(Linear::new(dim, 2 * dim))
            .add(GELU::new())
            .add(Linear::new(2 * dim, dim));
        Block {
            heads,
            norm1: LayerNorm::new(dim),
            qkv: Linear::new(dim, 3 * dim),
            proj: Linear::new(dim, dim),
            norm2: LayerNorm::new(dim),
            mlp,
        }
    }

    fn attend(&self, x: &TracedTensor) -> TracedTensor {
        let (batch, length, dim) = (x.dim(0), x.dim(1), x.dim(2));
        let sizes = (&batch, &length, 3, self.heads, &dim / self.heads);
        let qkv = self.qkv.call(x).reshape(sizes).permute([2, 0, 3, 1, 4]);
        let [q, k, v] = unpack(qkv.unbind());
        let x = q.scaled_dot_product_attention(&k, &v);
        let x = x.transpose(1, 2).reshape((batch, length, dim));
        self.proj.call(x)
    }
}

impl Forward<&TracedTensor> for Block {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = x + self.attend(&self.norm1.call(x));
        &x + self.mlp.call(self.norm2.call(&x))
    }
}

#[derive(Module)]
struct Vit {
    patch_embed: Conv2d,
    cls_token: Parameter,
    pos_embed: Parameter,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Vit {
    fn new(size: usize, patch: usize, dim: usize, classes: usize) -> Vit {
        Vit {
            patch_embed: Conv2d::new(3, dim, patch as i64).stride(patch as i64),
            cls_token: Parameter::new([1, 1, dim], init::zeros()),
            pos_embed: Parameter::new([1, (size / patch).pow(2) + 1, dim], init::zeros()),
            blocks: (0..2).map(|_| Block::new(dim, 2)).collect(),
            norm: LayerNorm::new(dim),
            head: Linear::new(dim, classes),
        }
    }
}

impl Forward<&TracedTensor> for Vit {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.patch_embed.call(x).flatten_with(kw!(start_dim = 2));
        let x = x.transpose(1, 2);
        let cls = self.cls_token.expand((x.dim(0), -1, -1));
        let x = ops::cat_with(&[cls, x], kw!(dim = 1)) + &self.pos_embed;
        let x = self.blocks.iter().fold(x, |x, block| block.call(&x));
        let x = self.norm.call(x);
        self.head.call(x.i((.., 0)))
    }
}

#[test]
fn vit() {
    let traces = check_network_of_one(&network("vit"), &Vit::new(16, 4, 16, 5));
    assert_eq!(traces, 1);
}
