//! WaveNet: dilated causal convolutions with gates, whose results are added up.

use onionskin::kw;
use onionskin::nn::{Conv1d, ReLU, Sequential};
use onionskin::trace::{Forward, Module, TracedTensor, Visitor, unpack};

use super::{check_network_of_one, network};

/// A convolution that sees no later samples.
struct CausalConv1d {
    conv: Conv1d,
    padding: i64,
}

impl CausalConv1d {
    fn new(inputs: usize, outputs: usize, dilation: i64) -> CausalConv1d {
        let kernel_size = 2;
        CausalConv1d {
            conv: Conv1d::new(inputs, outputs, kernel_size).dilation(dilation),
            padding: dilation * (kernel_size - 1),
        }
    }
}

/// The convolution's parameters are this module's own, as in a subclass.
impl Module for CausalConv1d {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        self.conv.visit(visitor);
    }
}

impl Forward<&TracedTensor> for CausalConv1d {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        self.conv.forward(x.pad([self.padding, 0]))
    }
}

#[derive(Module)]
struct Layer {
    conv: CausalConv1d,
    residual: Conv1d,
    skip: Conv1d,
}

impl Layer {
    fn new(residual: usize, skip: usize, dilation: i64) -> Layer {
        Layer {
            conv: CausalConv1d::new(residual, 2 * residual, dilation),
            residual: Conv1d::new(residual, residual, 1),
            skip: Conv1d::new(residual, skip, 1),
        }
    }
}

impl Forward<&TracedTensor> for Layer {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let [filter, gate] = unpack(self.conv.call(x).chunk_with(2, kw!(dim = 1)));
        let out = filter.tanh() * gate.sigmoid();
        (x + self.residual.call(&out), self.skip.call(&out))
    }
}

#[derive(Module)]
struct WaveNet {
    first: CausalConv1d,
    layers: Vec<Layer>,
    last: Sequential,
}

impl WaveNet {
    fn new(classes: usize, residual: usize, skip: usize) -> WaveNet {
        let layer = |dilation| Layer::new(residual, skip, dilation);
        WaveNet {
            first: CausalConv1d::new(1, residual, 1),
            layers: [1, 2, 4, 1, 2, 4].map(layer).into(),
            last: Sequential::new()
                .add(ReLU::new())
                .add(Conv1d::new(skip, skip, 1))
                .add(ReLU::new())
                .add(Conv1d::new(skip, classes, 1)),
        }
    }
}

impl Forward<&TracedTensor> for WaveNet {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let mut x = self.first.call(x);
        let mut skips = Vec::new();
        for layer in &self.layers {
            let (next, skip) = layer.call(&x);
            x = next;
            skips.push(skip);
        }
        self.last.call(skips.iter().sum::<TracedTensor>())
    }
}

#[test]
fn wavenet() {
    let traces = check_network_of_one(&network("wavenet"), &WaveNet::new(8, 6, 10));
    assert_eq!(traces, 1);
}
