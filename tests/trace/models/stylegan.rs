//! The block of StyleGAN2's generator that doubles the resolution.

use onionskin::kw;
use onionskin::nn::{Linear, Upsample};
use onionskin::trace::{Forward, Method, Module, Parameter, TracedTensor, allow, init};

use super::{check_network, network, tensor};

#[derive(Module)]
struct ModulatedConv2d {
    weight: Parameter,
    affine: Linear,
    scale: f64,
    demodulate: bool,
}

impl ModulatedConv2d {
    fn new(inputs: usize, outputs: usize, kernel: usize, style: usize) -> ModulatedConv2d {
        ModulatedConv2d {
            weight: Parameter::new([outputs, inputs, kernel, kernel], init::zeros()),
            affine: Linear::new(style, inputs),
            scale: 1.0 / ((inputs * kernel * kernel) as f64).sqrt(),
            demodulate: true,
        }
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for ModulatedConv2d {
    type Output = TracedTensor;

    fn forward(&self, (x, w): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let [batch, channels, height, width] = [0, 1, 2, 3].map(|axis| x.dim(axis));
        let [outputs, kernel] = [0, 2].map(|axis| self.weight.dim(axis));
        let style = self.affine.call(w).view((&batch, 1, &channels, 1, 1));
        let mut weight = self.scale * self.weight.unsqueeze(0) * style;
        if self.demodulate {
            let norm = weight.pow(2).sum_dim_with([2, 3, 4], kw!(keepdim = true));
            weight = &weight * (norm + 1e-8).rsqrt();
        }
        let weight = weight.view((&batch * &outputs, &channels, &kernel, &kernel));
        let x = x.reshape((1, &batch * &channels, &height, &width));
        // As in PyTorch, groups are a number: the trace is one for this batch.
        let x = allow("W0202", || {
            x.conv2d_with(&weight, kw!(padding = kernel / 2, groups = &batch))
        });
        x.view((batch, outputs, height, width))
    }
}

#[derive(Module)]
struct SynthesisLayer {
    conv: ModulatedConv2d,
    bias: Parameter,
    noise_strength: Parameter,
    up: bool,
}

fn upsample(x: &TracedTensor) -> TracedTensor {
    Upsample::by(2.0).mode("bilinear").forward(x)
}

impl SynthesisLayer {
    fn new(inputs: usize, outputs: usize, style: usize, up: bool) -> SynthesisLayer {
        SynthesisLayer {
            conv: ModulatedConv2d::new(inputs, outputs, 3, style),
            bias: Parameter::new([outputs], init::zeros()),
            noise_strength: Parameter::new([], init::zeros()),
            up,
        }
    }
}

type Three<'x> = (&'x TracedTensor, &'x TracedTensor, &'x TracedTensor);

impl Forward<Three<'_>> for SynthesisLayer {
    type Output = TracedTensor;

    fn forward(&self, (x, w, noise): Three<'_>) -> TracedTensor {
        let x = if self.up { &upsample(x) } else { x };
        let x = self.conv.call((x, w));
        x.add_(noise * &self.noise_strength);
        let x = x + self.bias.view([1, -1, 1, 1]);
        x.leaky_relu_with(kw!(negative_slope = 0.2)) * 2f64.sqrt()
    }
}

#[derive(Module)]
struct SynthesisBlock {
    conv0: SynthesisLayer,
    conv1: SynthesisLayer,
    torgb: ModulatedConv2d,
}

impl SynthesisBlock {
    fn new(inputs: usize, outputs: usize, style: usize) -> SynthesisBlock {
        SynthesisBlock {
            conv0: SynthesisLayer::new(inputs, outputs, style, true),
            conv1: SynthesisLayer::new(outputs, outputs, style, false),
            torgb: ModulatedConv2d {
                demodulate: false,
                ..ModulatedConv2d::new(outputs, 3, 1, style)
            },
        }
    }
}

type Four = (TracedTensor, TracedTensor, TracedTensor, TracedTensor);

impl Forward<Four> for SynthesisBlock {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, (x, image, ws, noise): Four) -> (TracedTensor, TracedTensor) {
        let style = |index: i64| ws.i((.., index));
        let x = self.conv0.call((&x, &style(0), &noise));
        let x = self.conv1.call((&x, &style(1), &noise));
        let image = upsample(&image);
        image.add_(self.torgb.call((&x, &style(2))));
        (x, image)
    }
}

#[test]
fn stylegan_block() {
    let net = SynthesisBlock::new(6, 4, 5);
    let traces = check_network(&network("stylegan"), &net, &[], |inputs, options| {
        let x = |index| tensor(inputs, index);
        let forward = |net: &SynthesisBlock, inputs: Four| net.call(inputs);
        Method::with("forward", (x(0), x(1), x(2), x(3)), forward, options)
    });
    assert_eq!(traces, 1);
}
