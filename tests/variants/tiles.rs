//! Convolutions by Winograd's tiles.

use onionskin::ir::Graph;
use onionskin::kernel::choice::Variant;

use crate::samples;
use crate::*;

/// Convolutions that tiles of 2×2 positions cover, whole and ragged, and those that they do not.
fn in_tiles() -> [Vec<(String, Graph)>; 2] {
    let (plain, uneven) = (
        |pad| axis(1, pad, 1, 1),
        ConvAxis {
            high: 0,
            ..axis(1, 1, 1, 1)
        },
    );
    let named = |(x, filter, axis, groups): (&str, &str, ConvAxis, i64)| {
        let name = format!("{x} by {filter} in {groups} groups, padded by {}", axis.low);
        let rank = filter.matches(',').count() - 1;
        let graph = samples::graph(&[x], |builder, x| {
            let weight = builder.weight("weight", filter.parse().unwrap());
            let y = (x[0] * 0.5)
                .conv(weight, vec![axis.clone(); rank], groups)
                .relu();
            vec![y, y.sum(&[2], true)]
        });
        (name, graph)
    };
    let covered = [
        ("f32[1, 8, 6, 8]", "f32[8, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 9]", "f32[12, 8, 3, 3]", plain(0), 1),
        ("f32[1, 8, 7, 9]", "f32[12, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 8]", "f32[12, 8, 3, 3]", plain(2), 1),
        ("f32[2, 8, 6, 9]", "f32[8, 8, 3, 3]", uneven, 1),
        // More images than one, each of a ragged tile.
        ("f32[3, 16, 5, 6]", "f32[72, 16, 3, 3]", plain(1), 1),
        ("f32[2, 24, 7, 5]", "f32[16, 12, 3, 3]", plain(1), 2),
        // Fewer tiles than rows of a kernel's.
        ("f32[1, 64, 3, 4]", "f32[40, 64, 3, 3]", plain(1), 1),
        ("f32[1, 36, 3, 3]", "f32[4, 36, 3, 3]", plain(0), 1),
        ("f32[1, 132, 9, 9]", "f32[136, 132, 3, 3]", plain(1), 1),
        ("f32[B, 8, H, S]", "f32[8, 8, 3, 3]", plain(1), 1),
        ("f32[B, 8, H, S]", "f32[8, 8, 3, 3]", plain(0), 1),
    ];
    let others = [
        ("f32[1, 8, 7, 7]", "f32[8, 8, 5, 5]", plain(2), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 8, 3, 3]", axis(2, 1, 1, 1), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 8, 3, 3]", axis(1, 2, 2, 1), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 8, 3, 3]", axis(1, 2, 1, 2), 1),
        ("f32[1, 6, 7, 7]", "f32[8, 6, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 7]", "f32[6, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 1, 3, 3]", plain(1), 8),
        ("f32[1, 8, 7]", "f32[8, 8, 3]", plain(1), 1),
        ("f16[1, 8, 7, 7]", "f16[8, 8, 3, 3]", plain(1), 1),
    ];
    [covered.map(named).into(), others.map(named).into()]
}

#[test]
fn convolutions_by_tiles_agree() {
    let [covered, others] = in_tiles();
    for (name, graph) in &others {
        let admitted = pass::admitted(graph, &samples::rasteriser()).unwrap();
        let mut variants = admitted.values().flatten();
        assert!(
            variants.all(|variant| *variant != Variant::Winograd),
            "{name}"
        );
    }
    let device = samples::device(Reach::Whole);
    for (name, graph) in &covered {
        let (plan, count) = forced(graph, &samples::rasteriser(), Variant::Winograd);
        assert_eq!(count, 1, "{name}");
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        let Some(device) = device
            .as_ref()
            .filter(|device| device.capabilities().software)
        else {
            continue;
        };
        let (plan, _) = forced(graph, device.capabilities(), Variant::Winograd);
        assert!(
            agrees(device, graph, plan),
            "{name} differs from the oracle"
        );
    }
}

/// A rasteriser takes tiles where the products of many channels are worth their transforms.
#[test]
fn the_table_weighs_tiles() {
    let taken = |x: &str, filter: &str| {
        let graph = convolution_by_weights(x, filter, &[axis(1, 1, 1, 1), axis(1, 1, 1, 1)], 1);
        let plan = pass::plan(&graph, &samples::rasteriser()).unwrap();
        let mut choices = plan.steps.into_iter().filter_map(|step| step.choice);
        choices.next().unwrap().variant
    };
    for (x, filter, variant) in [
        (
            "f32[1, 512, 7, 7]",
            "f32[512, 512, 3, 3]",
            Variant::Winograd,
        ),
        (
            "f32[1, 128, 28, 28]",
            "f32[128, 128, 3, 3]",
            Variant::Winograd,
        ),
        ("f32[1, 16, 56, 56]", "f32[16, 16, 3, 3]", Variant::Lanes),
        ("f32[1, 64, 7, 7]", "f32[64, 64, 3, 3]", Variant::Lanes),
    ] {
        assert_eq!(taken(x, filter), variant, "{x} by {filter}");
    }
}

/// What several convolutions see in the same tiles is made once; a residual is part of the last kernel.
#[test]
fn convolutions_share_tiles() {
    let graph = |other: i64| {
        samples::graph(&["f32[1, 8, 7, 9]"], |builder, x| {
            let weight = |name| builder.weight(name, "f32[8, 8, 3, 3]".parse().unwrap());
            let (x, same) = (x[0].exp(), vec![axis(1, 1, 1, 1); 2]);
            let y = (x.conv(weight("a"), same, 1) + x).relu();
            let z = x.conv(weight("b"), vec![axis(1, other, 1, 1); 2], 1);
            vec![y, y.sum(&[2], true), z]
        })
    };
    let device = samples::device(Reach::Whole);
    for (other, seen) in [(1, 1), (2, 2)] {
        let graph = graph(other);
        let (plan, count) = forced(&graph, &samples::rasteriser(), Variant::Winograd);
        let kernels = plan
            .steps
            .iter()
            .map(|step| &plan.kernels[step.kernel].label);
        let of = |label: &str| kernels.clone().filter(|other| **other == label).count();
        assert_eq!(
            (count, of("winograd_seen"), of("winograd_summed")),
            (2, seen, 2)
        );
        assert_eq!(of("winograd_output"), 2);
        let Some(device) = device
            .as_ref()
            .filter(|device| device.capabilities().software)
        else {
            continue;
        };
        let (plan, _) = forced(&graph, device.capabilities(), Variant::Winograd);
        assert!(agrees(device, &graph, plan), "padded by {other}");
    }
}
