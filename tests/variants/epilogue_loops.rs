//! Long epilogues, which tile kernels run in an epilogue loop: they are fused into their product, also where rows fill an
//! iteration only partly.

use onionskin::ir::Graph;
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::winograd::OutputTile;

use crate::samples;
use crate::*;

/// A linear layer with a bias and GELU.
fn activated(x: &str, weight: &str, bias: &str) -> Graph {
    samples::graph(&[x], |builder, x| {
        let weight = builder.weight("weight", weight.parse().unwrap());
        let bias = builder.weight("bias", bias.parse().unwrap());
        vec![gelu(x[0].dot(transpose_if(weight, true)) + bias)]
    })
}

/// A convolution with GELU between others, whose images have the vec4 channel layout.
fn convolution(x: &str, filter: &str, axes: [ConvAxis; 2], groups: i64) -> Graph {
    samples::graph(&[x], |builder, x| {
        let weight = builder.weight("weight", filter.parse().unwrap());
        let y = gelu((x[0] * 0.5).conv(weight, axes.to_vec(), groups));
        vec![y, y.sum(&[2], true)]
    })
}

/// Returns graphs that one kernel computes, with example sizes that make tiles large.
pub fn graphs() -> Vec<(&'static str, Graph)> {
    let plain = |pad| [axis(1, pad, 1, 1), axis(1, pad, 1, 1)];
    let image = "f32[B, 16, H, S]";
    let graphs = vec![
        ("of rows", activated("f32[H, 64]", "f32[72, 64]", "f32[72]")),
        (
            "of a ragged width",
            activated("f32[H, 400]", "f32[37, 400]", "f32[37]"),
        ),
        (
            "of one tap",
            convolution(image, "f32[24, 16, 1, 1]", plain(0), 1),
        ),
        (
            "of many taps",
            convolution(image, "f32[24, 16, 5, 5]", plain(2), 1),
        ),
        (
            "of channels by themselves",
            convolution(image, "f32[16, 1, 3, 3]", plain(1), 16),
        ),
        (
            "of 49 taps of channels by themselves",
            convolution(image, "f32[16, 1, 7, 7]", plain(3), 16),
        ),
    ];
    let of_much_work = |(name, mut graph): (_, Graph)| {
        graph.hints = ["B", "S", "H"].map(|size| (size.into(), 1000)).into();
        (name, graph)
    };
    graphs.into_iter().map(of_much_work).collect()
}

#[test]
fn long_epilogues_are_fused() {
    for (name, graph) in graphs() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        let has = |text: &str| {
            let texts = plan.kernels.iter().map(|kernel| kernel.wgsl.as_str());
            texts.filter(|wgsl| wgsl.contains(text)).count()
        };
        let found = ["fn erf_of", "sum0", "for (var turn = 0u;"].map(has);
        assert_eq!(found, [1; 3], "{name}");
    }
    let short = linear("f32[50, 64]", "f32[72, 64]");
    let plan = plan::plan(&short, &samples::rasteriser()).unwrap();
    assert!(!plan.kernels[0].wgsl.contains("var turn"));
}

#[test]
fn long_epilogues_of_winograd_tiles_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let axes = [axis(1, 1, 1, 1), axis(1, 1, 1, 1)];
    for x in ["f32[2, 8, 7, 9]", "f32[B, 8, H, S]"] {
        let graph = convolution(x, "f32[12, 8, 3, 3]", axes.clone(), 1);
        for places in OutputTile::ALL {
            let variant = KernelVariant::Winograd { tile: places };
            let (plan, count) = forced(&graph, &samples::rasteriser(), variant);
            assert_eq!(count, 1, "{x}");
            assert!(samples::untranslatable(&plan).is_empty(), "{x}");
            if device.capabilities().simd_lanes().is_some() {
                let (plan, _) = forced(&graph, device.capabilities(), variant);
                assert!(
                    worst_error(&device, &graph, plan) <= 4.0,
                    "{x} by {places:?}"
                );
            }
        }
    }
}
