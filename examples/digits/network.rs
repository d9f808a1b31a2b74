//! The reader of digits in Rust.

use onionskin::nn::{BatchNorm2d, Conv2d, Linear, MaxPool2d, ReLU, Sequential};
use onionskin::prelude::*;

/// A reader of digits of 8 × 8 pixels; `train.py` defines it in Python, with a dropout before the last layer.
#[derive(Module)]
pub struct Digits {
    features: Sequential,
    classify: Linear,
}

impl Digits {
    /// The network with random weights.
    pub fn new() -> Digits {
        let conv = |inputs, outputs| Conv2d::new(inputs, outputs, 3).padding(1);
        let features = Sequential::new()
            .add(conv(1, 16))
            .add(BatchNorm2d::new(16))
            .add(ReLU::new())
            .add(conv(16, 32))
            .add(BatchNorm2d::new(32))
            .add(ReLU::new())
            .add(MaxPool2d::new(2))
            .add(conv(32, 32))
            .add(BatchNorm2d::new(32))
            .add(ReLU::new())
            .add(MaxPool2d::new(2));
        Digits {
            features,
            classify: Linear::new(128, 10),
        }
    }
}

impl Forward<&TracedTensor> for Digits {
    type Output = TracedTensor;

    fn forward(&self, image: &TracedTensor) -> TracedTensor {
        let features = self.features.call(image);
        self.classify
            .call(features.flatten_with(kw!(start_dim = 1)))
    }
}
