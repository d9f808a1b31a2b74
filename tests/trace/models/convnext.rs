//! ConvNeXt: depthwise convolutions, and normalisations over channels.

use onionskin::kw;
use onionskin::nn::{Conv2d, GELU, LayerNorm, Linear, Sequential};
use onionskin::trace::{Forward, Module, NewAxis, Parameter, TracedTensor, init};

use super::{check_network_of_one, network};

/// Normalises over the channels of an image.
#[derive(Clone, Module)]
struct ChannelNorm {
    weight: Parameter,
    bias: Parameter,
    eps: f64,
}

impl ChannelNorm {
    fn new(channels: usize) -> ChannelNorm {
        ChannelNorm {
            weight: Parameter::new([channels], init::ones()),
            bias: Parameter::new([channels], init::zeros()),
            eps: 1e-6,
        }
    }
}

impl Forward<&TracedTensor> for ChannelNorm {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let mean = x.mean_dim_with([1], kw!(keepdim = true));
        let variance = (x - &mean).pow(2).mean_dim_with([1], kw!(keepdim = true));
        let x = (x - &mean) / (variance + self.eps).sqrt();
        let channels = (.., NewAxis, NewAxis);
        self.weight.i(channels) * x + self.bias.i(channels)
    }
}

#[derive(Clone, Module)]
struct Block {
    dwconv: Conv2d,
    norm: LayerNorm,
    pwconv1: Linear,
    act: GELU,
    pwconv2: Linear,
    gamma: Parameter,
}

impl Block {
    fn new(dim: usize) -> Block {
        Block {
            dwconv: Conv2d::new(dim, dim, 7).padding(3).groups(dim),
            norm: LayerNorm::new(dim).eps(1e-6),
            pwconv1: Linear::new(dim, 4 * dim),
            act: GELU::new(),
            pwconv2: Linear::new(4 * dim, dim),
            gamma: Parameter::new([dim], init::ones()),
        }
    }
}

impl Forward<&TracedTensor> for Block {
    type Output = TracedTensor;

    fn forward(&self, input: &TracedTensor) -> TracedTensor {
        let x = self.dwconv.call(input).permute([0, 2, 3, 1]);
        let x = self.act.call(self.pwconv1.call(self.norm.call(x)));
        let x = &self.gamma * self.pwconv2.call(x);
        input + x.permute([0, 3, 1, 2])
    }
}

#[derive(Clone, Module)]
struct ConvNeXt {
    downsample_layers: Vec<Sequential>,
    stages: Vec<Sequential>,
    norm: LayerNorm,
    head: Linear,
}

impl ConvNeXt {
    fn new([narrow, wide]: [usize; 2], classes: usize) -> ConvNeXt {
        let stem = Sequential::new()
            .add(Conv2d::new(3, narrow, 4).stride(4))
            .add(ChannelNorm::new(narrow));
        let downsample = Sequential::new()
            .add(ChannelNorm::new(narrow))
            .add(Conv2d::new(narrow, wide, 2).stride(2));
        let stage =
            |dim, depth| (0..depth).fold(Sequential::new(), |stage, _| stage.add(Block::new(dim)));
        ConvNeXt {
            downsample_layers: vec![stem, downsample],
            stages: vec![stage(narrow, 1), stage(wide, 2)],
            norm: LayerNorm::new(wide).eps(1e-6),
            head: Linear::new(wide, classes),
        }
    }
}

impl Forward<&TracedTensor> for ConvNeXt {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let mut x = x.clone();
        for (downsample, stage) in self.downsample_layers.iter().zip(&self.stages) {
            x = stage.call(downsample.call(x));
        }
        self.head.call(self.norm.call(x.mean_dim([-2, -1])))
    }
}

#[test]
fn convnext() {
    let traces = check_network_of_one(&network("convnext"), &ConvNeXt::new([8, 16], 5));
    assert_eq!(traces, 1);
}
