//! Networks whose layers differ only in sizes.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::ir::{Builder, Graph, Value};
use onionskin::op::ConvAxis;
use onionskin::shape::TensorType;

use super::graph;

/// A convolution by a weight, with bias and ReLU.
fn layer<'g>(b: &'g Builder, x: Value<'g>, filter: &str, axis: ConvAxis) -> Value<'g> {
    let filter = b.weight(&format!("{filter}.weight"), filter.parse().unwrap());
    let groups = if filter.shape()[1].is(1) {
        &x.shape()[1]
    } else {
        &Dim::ONE
    };
    let axes = vec![axis; x.rank() - 2];
    let y = x.conv(filter, axes, groups.as_const().unwrap());
    let outputs = y.shape()[1].clone();
    let bias = b.weight(
        &format!("{outputs}.bias"),
        TensorType::new(DType::F32, [outputs]),
    );
    let space = vec![Dim::ONE; x.rank() - 2];
    (y + bias.reshape([bias.shape(), space].concat())).relu()
}

/// A 1×1 convolution after a normalisation that cannot be folded into a weight.
fn normalized_layer<'g>(b: &'g Builder, x: Value<'g>, filter: &str, stride: i64) -> Value<'g> {
    let channels = x.shape()[1].clone();
    let vector = |name: &str| {
        let ty = TensorType::new(DType::F32, [channels.clone()]);
        let vector = b.weight(&format!("{filter}.{name}"), ty);
        vector.reshape(vec![channels.clone(), Dim::ONE, Dim::ONE])
    };
    let normalized = (x * vector("scale") + vector("shift")).relu();
    layer(b, normalized, filter, ConvAxis::padded(stride, 0))
}

/// Returns networks whose layers differ only in sizes, each with the number of kernels that a rasteriser needs.
pub fn all_networks() -> Vec<(&'static str, Graph, usize)> {
    let same = || ConvAxis::padded(1, 1);
    let convolutions = graph(&["f32[1, 16, 24, 28]"], |b, x| {
        let y = layer(b, x[0].exp(), "f32[24, 16, 3, 3]", same());
        let y = layer(b, y, "f32[32, 24, 3, 3]", same());
        let y = layer(b, y, "f32[8, 32, 3, 3]", same());
        vec![y.sum(&[2], false)]
    });
    let residuals = graph(&["f32[2, 8, 17, 33]"], |b, x| {
        let x = x[0].exp();
        let y = layer(b, x, "f32[8, 8, 3, 3]", same()) + x;
        let y = layer(b, y, "f32[16, 8, 3, 3]", ConvAxis::padded(2, 1));
        let z = layer(b, y, "f32[16, 16, 3, 3]", same()) + y;
        vec![z.sum(&[2], false)]
    });
    let ones = graph(&["f32[1, 64, 15, 15]"], |b, x| {
        let y = layer(b, x[0].exp(), "f32[16, 64, 1, 1]", ConvAxis::padded(1, 0));
        let z = layer(b, y, "f32[24, 16, 1, 1]", ConvAxis::padded(1, 0));
        let joined = b.concat(&[y, z], 1);
        let y = layer(b, joined, "f32[32, 40, 1, 1]", ConvAxis::padded(1, 0));
        vec![y.sum(&[2], false)]
    });
    let fronts = graph(&["f32[2, 16, 9, 7]"], |b, x| {
        let y = layer(b, x[0].exp(), "f32[24, 16, 3, 3]", same());
        let y = normalized_layer(b, y, "f32[40, 24, 1, 1]", 1);
        let y = normalized_layer(b, y, "f32[16, 40, 1, 1]", 2);
        let gated = y * y.mean(&[2, 3], true).sigmoid();
        let z = layer(b, gated, "f32[20, 16, 1, 1]", ConvAxis::padded(1, 0));
        vec![z.sum(&[2], false)]
    });
    let volumes = graph(&["f32[1, 8, 5, 6, 7]"], |b, x| {
        let y = layer(b, x[0].exp(), "f32[16, 8, 3, 3, 3]", same());
        let y = layer(b, y, "f32[24, 16, 3, 3, 3]", ConvAxis::padded(2, 1));
        let y = layer(b, y, "f32[8, 24, 3, 3, 3]", same());
        vec![y.sum(&[2], false)]
    });
    let strips = graph(&["f32[1, 8, 14, 9]"], |b, x| {
        let y = layer(b, x[0].exp(), "f32[8, 1, 3, 3]", same());
        let y = layer(b, b.concat(&[y, y], 1), "f32[16, 1, 3, 3]", same());
        vec![y.sum(&[2], false)]
    });
    let products = graph(&["f32[160, 48]"], |b, x| {
        let layers = ["f32[72, 48]", "f32[40, 72]", "f32[56, 40]"].into_iter();
        vec![layers.fold(x[0].exp(), |x, ty| {
            let weight = b.weight(ty, ty.parse().unwrap());
            (x.dot(weight.permute(vec![1, 0])) * 0.125).relu()
        })]
    });
    vec![
        ("convolutions", convolutions, 3),
        ("residuals", residuals, 4),
        ("convolutions of single positions", ones, 4),
        ("layers in front of single positions", fronts, 9),
        ("volumes", volumes, 3),
        ("strips", strips, 4),
        ("linear layers", products, 2),
    ]
}
