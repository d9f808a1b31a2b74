//! ResNet-18 at half width.

use onionskin::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential,
};
use onionskin::trace::{Forward, Module, TracedTensor};

use super::{case, check_network_of_one};

#[derive(Clone, Module)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    relu: ReLU,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<Sequential>,
}

fn conv3(inputs: usize, outputs: usize, stride: i64) -> Conv2d {
    Conv2d::new(inputs, outputs, 3)
        .stride(stride)
        .padding(1)
        .bias(false)
}

impl Block {
    fn new(inputs: usize, outputs: usize, stride: i64) -> Block {
        let conv = || Conv2d::new(inputs, outputs, 1).stride(stride).bias(false);
        let downsample = || Sequential::new().add(conv()).add(BatchNorm2d::new(outputs));
        Block {
            conv1: conv3(inputs, outputs, stride),
            bn1: BatchNorm2d::new(outputs),
            relu: ReLU::new(),
            conv2: conv3(outputs, outputs, 1),
            bn2: BatchNorm2d::new(outputs),
            downsample: (stride != 1 || inputs != outputs).then(downsample),
        }
    }
}

impl Forward<&TracedTensor> for Block {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let out = self.relu.call(self.bn1.call(self.conv1.call(x)));
        let out = self.bn2.call(self.conv2.call(out));
        let identity = match &self.downsample {
            Some(downsample) => downsample.call(x),
            None => x.clone(),
        };
        self.relu.call(out + identity)
    }
}

#[derive(Clone, Module)]
struct ResNet {
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

impl ResNet {
    fn new() -> ResNet {
        let layer = |inputs, outputs, stride| {
            let first = Block::new(inputs, outputs, stride);
            Sequential::new()
                .add(first)
                .add(Block::new(outputs, outputs, 1))
        };
        ResNet {
            conv1: Conv2d::new(3, 64, 7).stride(2).padding(3).bias(false),
            bn1: BatchNorm2d::new(64),
            relu: ReLU::new(),
            maxpool: MaxPool2d::new(3).stride(2).padding(1),
            layer1: layer(64, 32, 1),
            layer2: layer(32, 64, 2),
            layer3: layer(64, 128, 2),
            layer4: layer(128, 256, 2),
            avgpool: AdaptiveAvgPool2d::new(1),
            fc: Linear::new(256, 100),
        }
    }
}

impl Forward<&TracedTensor> for ResNet {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.relu.call(self.bn1.call(self.conv1.call(x)));
        let x = self.layer1.call(self.maxpool.call(x));
        let x = self.layer4.call(self.layer3.call(self.layer2.call(x)));
        self.fc.call(Flatten::new().forward(self.avgpool.call(x)))
    }
}

#[test]
fn resnet18_is_what_pytorch_traced() {
    let Some(folder) = case("resnet18_half") else {
        return;
    };
    check_network_of_one(&folder, &ResNet::new());
}
