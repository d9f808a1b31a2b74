//! MLP-Mixer: perceptrons over patches, and over channels.

use onionskin::kw;
use onionskin::nn::{Conv2d, GELU, LayerNorm, Linear, Sequential};
use onionskin::trace::{Forward, Module, TracedTensor};

use super::{check_network_of_one, network};

fn feed_forward(dim: usize, hidden: usize) -> Sequential {
    Sequential::new()
        .add(Linear::new(dim, hidden))
        .add(GELU::new())
        .add(Linear::new(hidden, dim))
}

#[derive(Clone, Module)]
struct Block {
    norm1: LayerNorm,
    token_mixing: Sequential,
    norm2: LayerNorm,
    channel_mixing: Sequential,
}

impl Block {
    fn new(tokens: usize, dim: usize) -> Block {
        Block {
            norm1: LayerNorm::new(dim),
            token_mixing: feed_forward(tokens, 12),
            norm2: LayerNorm::new(dim),
            channel_mixing: feed_forward(dim, 24),
        }
    }
}

impl Forward<&TracedTensor> for Block {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let tokens = self.norm1.call(x).transpose(1, 2);
        let x = x + self.token_mixing.call(tokens).transpose(1, 2);
        &x + self.channel_mixing.call(self.norm2.call(&x))
    }
}

#[derive(Clone, Module)]
struct Mixer {
    patch_embed: Conv2d,
    blocks: Sequential,
    norm: LayerNorm,
    head: Linear,
}

impl Mixer {
    fn new(size: usize, patch: usize, dim: usize, classes: usize) -> Mixer {
        let block = || Block::new((size / patch).pow(2), dim);
        Mixer {
            patch_embed: Conv2d::new(3, dim, patch as i64).stride(patch as i64),
            blocks: Sequential::new().add(block()).add(block()),
            norm: LayerNorm::new(dim),
            head: Linear::new(dim, classes),
        }
    }
}

impl Forward<&TracedTensor> for Mixer {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.patch_embed.call(x).flatten_with(kw!(start_dim = 2));
        let x = self.blocks.call(x.transpose(1, 2));
        self.head.call(self.norm.call(x).mean_dim([1]))
    }
}

#[test]
fn mixer() {
    let traces = check_network_of_one(&network("mixer"), &Mixer::new(16, 4, 12, 5));
    assert_eq!(traces, 1);
}
