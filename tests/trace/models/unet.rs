//! A U-Net for images of any size.

use onionskin::kw;
use onionskin::nn::{BatchNorm2d, Conv2d, ConvTranspose2d, MaxPool2d, ReLU, Sequential};
use onionskin::trace::{Forward, Module, TracedTensor, ops};

use super::{check_network_of_one, network};

fn double_conv(inputs: usize, outputs: usize) -> Sequential {
    let conv = |inputs| Conv2d::new(inputs, outputs, 3).padding(1).bias(false);
    Sequential::new()
        .add(conv(inputs))
        .add(BatchNorm2d::new(outputs))
        .add(ReLU::new())
        .add(conv(outputs))
        .add(BatchNorm2d::new(outputs))
        .add(ReLU::new())
}

fn down(inputs: usize, outputs: usize) -> Sequential {
    Sequential::new()
        .add(MaxPool2d::new(2))
        .add(double_conv(inputs, outputs))
}

#[derive(Module)]
struct Up {
    up: ConvTranspose2d,
    conv: Sequential,
}

impl Up {
    fn new(inputs: usize, outputs: usize) -> Up {
        Up {
            up: ConvTranspose2d::new(inputs, outputs, 2).stride(2),
            conv: double_conv(2 * outputs, outputs),
        }
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for Up {
    type Output = TracedTensor;

    fn forward(&self, (x, skip): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let x = self.up.call(x);
        let (rows, columns) = (skip.dim(2) - x.dim(2), skip.dim(3) - x.dim(3));
        let (top, left) = (&rows / 2, &columns / 2);
        let x = x.pad((&left, columns - &left, &top, rows - &top));
        self.conv.call(ops::cat_with(&[skip, &x], kw!(dim = 1)))
    }
}

#[derive(Module)]
struct UNet {
    inc: Sequential,
    down1: Sequential,
    down2: Sequential,
    up1: Up,
    up2: Up,
    outc: Conv2d,
}

impl UNet {
    fn new(inputs: usize, classes: usize, width: usize) -> UNet {
        UNet {
            inc: double_conv(inputs, width),
            down1: down(width, 2 * width),
            down2: down(2 * width, 4 * width),
            up1: Up::new(4 * width, 2 * width),
            up2: Up::new(2 * width, width),
            outc: Conv2d::new(width, classes, 1),
        }
    }
}

impl Forward<&TracedTensor> for UNet {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x1 = self.inc.call(x);
        let x2 = self.down1.call(&x1);
        let x3 = self.down2.call(&x2);
        let x = self.up1.call((&x3, &x2));
        self.outc.call(self.up2.call((&x, &x1)))
    }
}

#[test]
fn unet() {
    let traces = check_network_of_one(&network("unet"), &UNet::new(3, 2, 4));
    assert_eq!(traces, 1);
}
