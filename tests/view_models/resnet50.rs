//! ResNet-50 with the names and widths of torchvision.

use onionskin::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential,
};
use onionskin::trace::{Forward, Module, TracedTensor};

/// Ratio of a block's output channels to its inner ones.
const EXPANSION: usize = 4;

#[derive(Clone, Module)]
struct Bottleneck {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    conv3: Conv2d,
    bn3: BatchNorm2d,
    relu: ReLU,
    downsample: Option<Sequential>,
}

fn conv(inputs: usize, outputs: usize, kernel: i64, stride: i64) -> Conv2d {
    let conv = Conv2d::new(inputs, outputs, kernel).stride(stride);
    conv.padding(kernel / 2).bias(false)
}

impl Bottleneck {
    fn new(inputs: usize, width: usize, stride: i64) -> Bottleneck {
        let outputs = EXPANSION * width;
        let downsample = || {
            let conv = conv(inputs, outputs, 1, stride);
            Sequential::new().add(conv).add(BatchNorm2d::new(outputs))
        };
        Bottleneck {
            conv1: conv(inputs, width, 1, 1),
            bn1: BatchNorm2d::new(width),
            conv2: conv(width, width, 3, stride),
            bn2: BatchNorm2d::new(width),
            conv3: conv(width, outputs, 1, 1),
            bn3: BatchNorm2d::new(outputs),
            relu: ReLU::new(),
            downsample: (inputs != outputs).then(downsample),
        }
    }
}

impl Forward<&TracedTensor> for Bottleneck {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let out = self.relu.call(self.bn1.call(self.conv1.call(x)));
        let out = self.relu.call(self.bn2.call(self.conv2.call(out)));
        let out = self.bn3.call(self.conv3.call(out));
        let identity = match &self.downsample {
            Some(downsample) => downsample.call(x),
            None => x.clone(),
        };
        self.relu.call(out + identity)
    }
}

#[derive(Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    relu: ReLU,
    maxpool: MaxPool2d,
    layer1: Sequential,
    layer2: Sequential,
    layer3: Sequential,
    layer4: Sequential,
    avgpool: AdaptiveAvgPool2d,
    fc: Linear,
}

/// A chain of blocks, the first of which changes the number of channels.
fn layer(inputs: usize, width: usize, blocks: usize, stride: i64) -> Sequential {
    let first = Sequential::new().add(Bottleneck::new(inputs, width, stride));
    (1..blocks).fold(first, |layer, _| {
        layer.add(Bottleneck::new(EXPANSION * width, width, 1))
    })
}

impl ResNet {
    pub fn new() -> ResNet {
        ResNet {
            conv1: Conv2d::new(3, 64, 7).stride(2).padding(3).bias(false),
            bn1: BatchNorm2d::new(64),
            relu: ReLU::new(),
            maxpool: MaxPool2d::new(3).stride(2).padding(1),
            layer1: layer(64, 64, 3, 1),
            layer2: layer(256, 128, 4, 2),
            layer3: layer(512, 256, 6, 2),
            layer4: layer(1024, 512, 3, 2),
            avgpool: AdaptiveAvgPool2d::new(1),
            fc: Linear::new(2048, 1000),
        }
    }
}

impl Forward<&TracedTensor> for ResNet {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.relu.call(self.bn1.call(self.conv1.call(x)));
        let x = self.layer2.call(self.layer1.call(self.maxpool.call(x)));
        let x = self.layer4.call(self.layer3.call(x));
        self.fc.call(Flatten::new().forward(self.avgpool.call(x)))
    }
}
