//! Products and convolutions of many shapes, each with an epilogue.

use onionskin::dim::Dim;
use onionskin::ir::{Graph, Value};
use onionskin::op::*;

use crate::samples;

/// A matrix product with an epilogue, given by the types of its operands; each operand may be transposed.
pub fn product(left: &str, right: &str, turned: [bool; 2]) -> Graph {
    samples::graph(&[left, right], |_, x| {
        let (a, b) = (transpose_if(x[0], turned[0]), transpose_if(x[1], turned[1]));
        vec![(a.dot(b) * 0.5).relu()]
    })
}

/// The exact GELU.
pub fn gelu(x: Value) -> Value {
    x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)
}

/// A matrix product with a long epilogue.
fn activated(left: &str, right: &str) -> Graph {
    samples::graph(&[left, right], |_, x| vec![gelu(x[0].dot(x[1]) + 0.25)])
}

/// Transposes a matrix if `turned`.
pub fn transpose_if<'g>(value: Value<'g>, turned: bool) -> Value<'g> {
    let rank = value.ty().rank();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(rank - 2, rank - 1);
    if turned { value.permute(axes) } else { value }
}

/// A convolution with an epilogue.
pub fn convolution(x: &str, filter: &str, axes: &[ConvAxis], groups: i64) -> Graph {
    samples::graph(&[x, filter], |_, x| {
        vec![x[0].conv(x[1], axes.to_vec(), groups).relu()]
    })
}

pub fn axis(stride: i64, pad: i64, dilation: i64, base_dilation: i64) -> ConvAxis {
    ConvAxis {
        dilation,
        base_dilation,
        ..ConvAxis::padded(stride, pad)
    }
}

pub fn products() -> Vec<(&'static str, Graph)> {
    let plain = [false, false];
    vec![
        ("whole", product("f32[64, 64]", "f32[64, 64]", plain)),
        (
            "linear",
            product("f32[96, 48]", "f32[72, 48]", [false, true]),
        ),
        (
            "transposed left",
            product("f32[48, 96]", "f32[48, 72]", [true, false]),
        ),
        (
            "transposed left, ragged K",
            product("f32[37, 44]", "f32[37, 51]", [true, false]),
        ),
        (
            "transposed left of few rows",
            product("f32[3, 40, 4]", "f32[3, 40, 24]", [true, false]),
        ),
        (
            "transposed left, symbolic",
            product("f32[B, H, 36]", "f32[B, H, S]", [true, false]),
        ),
        (
            "both transposed",
            product("f32[36, 70]", "f32[133, 36]", [true, true]),
        ),
        ("ragged", product("f32[37, 29]", "f32[29, 43]", plain)),
        (
            "vec4, no tiles",
            product("f32[140, 20]", "f32[20, 132]", plain),
        ),
        (
            "batched",
            product("f32[3, 2, 33, 18]", "f32[3, 2, 18, 50]", plain),
        ),
        ("symbolic", product("f32[B, S, H]", "f32[B, H, 24]", plain)),
        ("half", product("f16[40, 32]", "f16[32, 36]", plain)),
        ("half, ragged", product("f16[11, 21]", "f16[21, 9]", plain)),
        ("bfloat", product("bf16[20, 40]", "bf16[40, 12]", plain)),
        ("no rows", product("f32[0, 8]", "f32[8, 12]", plain)),
        ("a row", product("f32[1, 300]", "f32[300, 260]", plain)),
        (
            "a row by columns",
            product("f32[1, 256]", "f32[300, 256]", [false, true]),
        ),
        (
            "four rows",
            product("f32[2, 4, 68]", "f32[2, 68, 21]", plain),
        ),
        (
            "three rows by columns",
            product("f32[3, 130]", "f32[70, 130]", [false, true]),
        ),
        ("long", product("f32[20, 2048]", "f32[2048, 24]", plain)),
        (
            "with a long epilogue",
            activated("f32[70, 64]", "f32[64, 76]"),
        ),
        (
            "with a long epilogue, symbolic",
            activated("f32[B, S, H]", "f32[B, H, 24]"),
        ),
    ]
}

/// A linear layer, whose weight layout the planner chooses.
pub fn linear(x: &str, weight: &str) -> Graph {
    samples::graph(&[x], |builder, x| {
        let weight = builder.weight("weight", weight.parse().unwrap());
        vec![(x[0].dot(transpose_if(weight, true)) * 0.5).relu()]
    })
}

/// A convolution between pointwise work and a sum, so that the planner chooses the layout of its images.
pub fn convolution_by_weights(x: &str, filter: &str, axes: &[ConvAxis], groups: i64) -> Graph {
    samples::graph(&[x], |builder, x| {
        let weight = builder.weight("weight", filter.parse().unwrap());
        let y = x[0].exp().conv(weight, axes.to_vec(), groups).relu();
        vec![y, y.sum(&[2], true)]
    })
}

/// Pooling between convolutions, with and without overlapping windows, partial blocks of positions and padding.
pub fn pools() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for x in ["f32[2, 8, 12, 13]", "f32[2, 8, H, S]"] {
        for [window, stride, border] in [[3, 2, 1], [3, 2, 0], [2, 2, 0], [3, 1, 1], [5, 1, 2]] {
            let graph = samples::graph(&[x], |builder, x| {
                let weight = builder.weight("weight", "f32[8, 8, 1, 1]".parse().unwrap());
                let conv = |y| Value::conv(y, weight, vec![axis(1, 0, 1, 1); 2], 1);
                let border = [0, 0, border, border].map(Dim::from);
                let y = conv(x[0].exp());
                let windows = |fill: f64| {
                    let y = y.pad(&border, &border, fill);
                    y.unfold(2, window, stride, 1).unfold(3, window, stride, 1)
                };
                let largest = windows(f64::NEG_INFINITY).amax(&[4, 5], false);
                let sum = windows(0.0).sum(&[4, 5], false);
                vec![conv(largest), conv(sum)]
            });
            graphs.push((format!("{x}, {window} by {stride}"), graph));
        }
    }
    graphs
}

/// Products with numbers of rows that distribute invocations differently, with full and partial sums and columns.
pub fn with_weights() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for rows in ["1", "2", "3", "5", "7", "8", "9", "B"] {
        for (depth, columns) in [(64, 64), (32, 21), (132, 40), (130, 33), (35, 70), (29, 36)] {
            let (x, weight) = (
                format!("f32[{rows}, {depth}]"),
                format!("f32[{columns}, {depth}]"),
            );
            graphs.push((format!("{x} by {weight}"), linear(&x, &weight)));
        }
    }
    let plain = |pad| axis(1, pad, 1, 1);
    for (x, filter, groups, axes) in [
        // Few positions.
        ("f32[1, 64, 1, 1]", "f32[24, 64, 1, 1]", 1, plain(0)),
        ("f32[2, 130, 1, 2]", "f32[12, 130, 1, 1]", 1, plain(0)),
        ("f32[1, 132, 2, 2]", "f32[33, 132, 3, 3]", 1, plain(1)),
        // Smaller K than an iteration processes.
        ("f32[1, 1, 9, 9]", "f32[20, 1, 3, 3]", 1, plain(1)),
        ("f32[2, 2, 5, 9]", "f32[20, 2, 3, 3]", 1, plain(1)),
        ("f32[1, 3, 9, 9]", "f32[40, 3, 7, 7]", 1, axis(2, 3, 1, 1)),
        // Depthwise: full and partial strips of positions.
        ("f32[2, 8, 7, 12]", "f32[8, 1, 3, 3]", 8, plain(1)),
        ("f32[2, 8, 9, 5]", "f32[8, 1, 3, 3]", 8, plain(1)),
        ("f32[1, 12, 17, 6]", "f32[12, 1, 3, 3]", 12, plain(0)),
        ("f32[1, 4, 19, 20]", "f32[4, 1, 5, 5]", 4, axis(2, 2, 1, 1)),
        ("f32[1, 4, 15, 17]", "f32[4, 1, 7, 7]", 4, axis(1, 6, 2, 1)),
        ("f32[2, 8, H, S]", "f32[8, 1, 3, 3]", 8, plain(1)),
        ("f32[2, 8, H, S]", "f32[8, 1, 2, 2]", 8, plain(0)),
        ("f32[2, 8, 13, 9]", "f32[8, 1, 3, 3]", 8, axis(2, 1, 1, 1)),
        ("f32[2, 8, H, S]", "f32[8, 1, 3, 3]", 8, axis(2, 1, 1, 1)),
        ("f32[B, 16, 23]", "f32[16, 1, 4]", 16, plain(3)),
        ("f32[1, 8, 9, 5, 6]", "f32[8, 1, 3, 3, 3]", 8, plain(1)),
        // Groups of four channels and of several such.
        ("f32[2, 8, 7, 12]", "f32[8, 4, 3, 3]", 2, plain(1)),
        ("f32[1, 24, 17, 6]", "f32[24, 8, 3, 3]", 3, plain(0)),
        (
            "f32[2, 24, 19, 9]",
            "f32[24, 12, 3, 3]",
            2,
            axis(2, 1, 1, 1),
        ),
        (
            "f32[1, 32, 15, 17]",
            "f32[32, 16, 5, 5]",
            2,
            axis(1, 4, 2, 1),
        ),
        ("f32[1, 16, 5, 6]", "f32[16, 4, 4, 4]", 4, axis(1, 2, 1, 2)),
        ("f32[2, 16, 30, 3]", "f32[16, 4, 1, 1]", 4, plain(0)),
        ("f32[2, 16, H, S]", "f32[16, 8, 3, 3]", 2, plain(1)),
        ("f32[B, 16, 23]", "f32[16, 4, 4]", 4, plain(3)),
        ("f32[1, 16, 4, 5, 6]", "f32[16, 8, 3, 3, 3]", 2, plain(1)),
        // Groups with more output than input channels.
        ("f32[1, 8, 9, 7]", "f32[16, 4, 3, 3]", 2, plain(1)),
    ] {
        let rank = filter.matches(',').count() - 1;
        let graph = convolution_by_weights(x, filter, &vec![axes; rank], groups);
        graphs.push((format!("{x} by {filter}"), graph));
    }
    graphs
}

pub fn convolutions() -> Vec<(&'static str, Graph)> {
    let same = [axis(1, 1, 1, 1), axis(1, 1, 1, 1)];
    let one = [axis(1, 0, 1, 1), axis(1, 0, 1, 1)];
    let activated = samples::graph(&["f32[2, 8, 9, 12]", "f32[12, 8, 3, 3]"], |_, x| {
        vec![gelu(x[0].conv(x[1], same.to_vec(), 1))]
    });
    vec![
        ("3x3 with a long epilogue", activated),
        (
            "3x3",
            convolution("f32[2, 8, 12, 12]", "f32[16, 8, 3, 3]", &same, 1),
        ),
        (
            "ragged 3x3",
            convolution("f32[2, 5, 9, 11]", "f32[7, 5, 3, 3]", &same, 1),
        ),
        (
            "1x1",
            convolution("f32[1, 32, 8, 8]", "f32[24, 32, 1, 1]", &one, 1),
        ),
        (
            "1x1 of images",
            convolution("f32[3, 20, 6, 6]", "f32[12, 20, 1, 1]", &one, 1),
        ),
        (
            "strided",
            convolution(
                "f32[2, 6, 13, 15]",
                "f32[10, 6, 5, 3]",
                &[axis(2, 2, 1, 1), axis(3, 1, 1, 1)],
                1,
            ),
        ),
        (
            "dilated",
            convolution(
                "f32[1, 6, 17, 16]",
                "f32[9, 6, 3, 3]",
                &[axis(1, 2, 2, 1), axis(1, 3, 3, 1)],
                1,
            ),
        ),
        (
            "grouped",
            convolution("f32[2, 12, 10, 9]", "f32[18, 4, 3, 3]", &same, 3),
        ),
        (
            "transposed",
            convolution(
                "f32[2, 6, 7, 8]",
                "f32[9, 6, 4, 4]",
                &[axis(1, 2, 1, 2), axis(1, 2, 1, 2)],
                1,
            ),
        ),
        (
            "one axis",
            convolution("f32[B, 4, H]", "f32[8, 4, 3]", &[axis(1, 1, 1, 1)], 1),
        ),
        (
            "three axes",
            convolution(
                "f32[1, 3, 5, 6, 7]",
                "f32[6, 3, 3, 3, 3]",
                &[axis(1, 1, 1, 1), axis(1, 1, 1, 1), axis(2, 1, 1, 1)],
                1,
            ),
        ),
        (
            "half",
            convolution("f16[1, 8, 8, 8]", "f16[8, 8, 3, 3]", &same, 1),
        ),
        (
            "depthwise",
            convolution("f32[2, 6, 9, 12]", "f32[6, 1, 3, 3]", &same, 6),
        ),
        (
            "depthwise, strided",
            convolution(
                "f32[2, 5, 11, 13]",
                "f32[5, 1, 3, 3]",
                &[axis(2, 1, 1, 1), axis(2, 1, 1, 1)],
                5,
            ),
        ),
        (
            "depthwise, doubled",
            convolution("f32[2, 4, 9, 8]", "f32[8, 1, 5, 5]", &same, 4),
        ),
    ]
}
