//! Convolutions by Winograd tiles.

use onionskin::dim::Dim;
use onionskin::ir::Graph;
use onionskin::kernel::capabilities::StorageType;
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::layout::Layout;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::Slot;
use onionskin::kernel::winograd::OutputTile;
use onionskin::plan::PlanOptions;
use onionskin::shape::TensorType;
use std::collections::{BTreeMap, BTreeSet};

use crate::samples;
use crate::*;

/// Returns convolutions that admit Winograd tiles, with full and partial tiles, and those that do not.
fn winograd_graphs() -> [Vec<(String, Graph)>; 2] {
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
        ("f32[1, 8, 8, 12]", "f32[8, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 10, 6]", "f32[8, 8, 3, 3]", plain(0), 1),
        ("f32[1, 8, 7, 9]", "f32[12, 8, 3, 3]", plain(0), 1),
        ("f32[1, 8, 7, 9]", "f32[12, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 8]", "f32[12, 8, 3, 3]", plain(2), 1),
        ("f32[2, 8, 6, 9]", "f32[8, 8, 3, 3]", uneven, 1),
        // Several images, each of one partial tile.
        ("f32[3, 16, 5, 6]", "f32[72, 16, 3, 3]", plain(1), 1),
        ("f32[2, 24, 7, 5]", "f32[16, 12, 3, 3]", plain(1), 2),
        // Fewer tiles than a kernel's tile rows.
        ("f32[1, 64, 3, 4]", "f32[40, 64, 3, 3]", plain(1), 1),
        ("f32[1, 36, 3, 3]", "f32[4, 36, 3, 3]", plain(0), 1),
        ("f32[1, 132, 9, 9]", "f32[136, 132, 3, 3]", plain(1), 1),
        // Several parts of the tiles for each workgroup.
        ("f32[2, 8, 61, 59]", "f32[8, 8, 3, 3]", plain(1), 1),
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

/// Returns the Winograd variant with a tile size.
fn winograd_variant(places: OutputTile) -> KernelVariant {
    KernelVariant::Winograd { tile: places }
}

#[test]
fn winograd_convolutions_agree() {
    let [covered, others] = winograd_graphs();
    for (name, graph) in &others {
        let admitted = plan::admitted(graph, &samples::rasteriser(), Precision::Single).unwrap();
        let mut variants = admitted.values().flatten();
        assert!(
            variants.all(|variant| !matches!(variant, KernelVariant::Winograd { .. })),
            "{name}"
        );
    }
    let device = samples::device(FeatureLevel::Full);
    for (places, (name, graph)) in all_sizes(&covered) {
        let (plan, count) = forced(graph, &samples::rasteriser(), winograd_variant(places));
        assert_eq!(count, 1, "{name}");
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        let Some(device) = device
            .as_ref()
            .filter(|device| device.capabilities().software)
        else {
            continue;
        };
        let (plan, _) = forced(graph, device.capabilities(), winograd_variant(places));
        // Large tiles may lose more than the portable kernels where sums of many terms exceed the tolerances.
        let is_close = match places {
            OutputTile::Two => agrees(device, graph, plan),
            OutputTile::Four => worst_error(device, graph, plan) <= 4.0,
        };
        assert!(is_close, "{name} by {places:?} differs from the oracle");
    }
}

/// Pairs each item with every tile size.
fn all_sizes<T>(all: &[T]) -> impl Iterator<Item = (OutputTile, &T)> {
    let sizes = OutputTile::ALL.into_iter();
    sizes.flat_map(|places| all.iter().map(move |each| (places, each)))
}

/// Returns the largest error of a convolution by a variant, relative to the largest number.
fn relative_error(device: &GpuDevice, graph: &Graph, variant: KernelVariant, seed: u64) -> f64 {
    let (plan, count) = forced(graph, device.capabilities(), variant);
    assert_eq!(count, 1, "{variant}");
    let sizes = |ty: &TensorType| ty.sizes(&Bindings::new()).unwrap();
    let (mut seed, weight) = (seed, graph.values.iter());
    let weight = weight.filter(|value| matches!(value.definition, Definition::Weight(_)));
    let weight = weight.map(|value| tensor(&mut seed, DType::F32, &sizes(&value.ty)));
    let weights = BTreeMap::from([(String::from("weight"), weight.last().unwrap())]);
    let x = tensor(&mut seed, DType::F32, &sizes(graph.ty(graph.inputs[0])));
    let expected = in_double_precision(&x, &weights["weight"]);
    let program = Program::new(device, plan, &weights, ProgramOptions::default()).unwrap();
    let found = program.run(&[x]).unwrap()[0].to_f64();
    let largest =
        |numbers: &mut dyn Iterator<Item = f64>| numbers.map(f64::abs).fold(0.0, larger_or_nan);
    let errors = found.iter().zip(&expected).map(|(x, y)| x - y);
    largest(&mut errors.into_iter()) / largest(&mut expected.iter().copied())
}

/// Convolves an image by 3×3 taps with padding 1, in double precision.
fn in_double_precision(x: &Tensor, filter: &Tensor) -> Vec<f64> {
    let (&[_, channels, height, width], outputs) =
        (x.shape().try_into().unwrap(), filter.shape()[0]);
    let (x, filter) = (x.to_f64(), filter.to_f64());
    let mut sums = vec![0.0; outputs * height * width];
    for (at, sum) in sums.iter_mut().enumerate() {
        let (o, y, x_at) = (at / (height * width), at / width % height, at % width);
        for (c, tap) in (0..channels).flat_map(|c| (0..9).map(move |tap| (c, tap))) {
            let (down, across) = (y + tap / 3, x_at + tap % 3);
            if (1..=height).contains(&down) && (1..=width).contains(&across) {
                let seen = x[(c * height + down - 1) * width + across - 1];
                *sum += seen * filter[(o * channels + c) * 9 + tap];
            }
        }
    }
    sums
}

/// Errors of tiles stay below the declared loss of their size, which is about the error of direct sums over taps.
#[test]
fn winograd_errors_are_below_the_declared_loss() {
    let device = samples::device(FeatureLevel::Full);
    let Some(device) = device.filter(|device| device.capabilities().software) else {
        return;
    };
    let graph = samples::graph(&["f32[1, 256, 12, 12]"], |builder, x| {
        let weight = builder.weight("weight", "f32[32, 256, 3, 3]".parse().unwrap());
        vec![x[0].conv(weight, vec![axis(1, 1, 1, 1); 2], 1)]
    });
    for seed in [3, 5, 7] {
        let [direct, two, four] = [
            KernelVariant::SubgroupTile,
            winograd_variant(OutputTile::Two),
            winograd_variant(OutputTile::Four),
        ]
        .map(|variant| relative_error(&device, &graph, variant, seed));
        println!("over taps {direct:.1e}, tiles of 2x2 {two:.1e}, of 4x4 {four:.1e}");
        assert!(direct <= 2e-6, "{direct}");
        assert!(two <= OutputTile::Two.max_error(), "{two}");
        assert!(four <= OutputTile::Four.max_error(), "{four}");
    }
}

/// A rasteriser uses tiles where the saved products of many channels outweigh the transforms.
#[test]
fn the_table_chooses_winograd_for_many_channels() {
    let taken = |x: &str, filter: &str| {
        let graph = convolution_by_weights(x, filter, &[axis(1, 1, 1, 1), axis(1, 1, 1, 1)], 1);
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        let mut choices = plan.steps.into_iter().filter_map(|step| step.choice);
        choices.next().unwrap().variant
    };
    for (x, filter, variant) in [
        (
            "f32[1, 512, 7, 7]",
            "f32[512, 512, 3, 3]",
            winograd_variant(OutputTile::Two),
        ),
        (
            "f32[1, 128, 28, 28]",
            "f32[128, 128, 3, 3]",
            winograd_variant(OutputTile::Four),
        ),
        (
            "f32[1, 64, 56, 56]",
            "f32[64, 64, 3, 3]",
            winograd_variant(OutputTile::Four),
        ),
        (
            "f32[1, 16, 56, 56]",
            "f32[16, 16, 3, 3]",
            KernelVariant::SubgroupTile,
        ),
        (
            "f32[1, 256, 7, 7]",
            "f32[256, 256, 3, 3]",
            KernelVariant::SubgroupTile,
        ),
        (
            "f32[1, 64, 13, 13]",
            "f32[256, 64, 3, 3]",
            KernelVariant::SubgroupTile,
        ),
    ] {
        assert_eq!(taken(x, filter), variant, "{x} by {filter}");
    }
}

/// Images of any size use tiles, since workgroups reuse their memory: it always fits a binding.
#[test]
fn large_images_use_winograd() {
    let filter = "f32[64, 64, 3, 3]";
    let by = |x| convolution_by_weights(x, filter, &[axis(1, 1, 1, 1), axis(1, 1, 1, 1)], 1);
    for x in ["f32[1, 64, 320, 320]", "f32[1, 64, 1280, 1280]"] {
        let graph = by(x);
        let capabilities = samples::rasteriser();
        let admitted = plan::admitted(&graph, &capabilities, Precision::Single).unwrap();
        let mut variants = admitted.values().flatten();
        let found = variants.any(|variant| matches!(variant, KernelVariant::Winograd { .. }));
        assert!(found, "{x}");
        assert!(plan::plan(&graph, &capabilities).is_ok(), "{x}");
    }
}

/// With many channels, workgroups that share tiles each keep transformed inputs: the tile shape is chosen so that these fit.
#[test]
fn winograd_scratch_fits_a_binding() {
    let same = [axis(1, 1, 1, 1), axis(1, 1, 1, 1)];
    let capabilities = samples::rasteriser_of(16);
    for (places, channels, size) in [(OutputTile::Two, 1280, 48), (OutputTile::Four, 640, 64)] {
        let x = format!("f32[1, {channels}, {size}, {size}]");
        let filter = format!("f32[{channels}, {channels}, 3, 3]");
        let graph = convolution_by_weights(&x, &filter, &same, 1);
        let (plan, count) = forced(&graph, &capabilities, winograd_variant(places));
        assert_eq!(count, 1, "{places:?}");
        let is_scratch = |slot: &&Slot| matches!(slot.layout, Layout::Scratch { .. });
        let scratch: Vec<&Slot> = plan.slots.iter().filter(is_scratch).collect();
        assert_eq!(scratch.len(), 2, "{places:?}");
        for slot in scratch {
            let room = Dim::product(&slot.layout.allocated_shape(&slot.shape).unwrap());
            let bytes = 4 * u64::try_from(room.as_const().unwrap()).unwrap();
            assert!(
                bytes <= capabilities.max_binding_size,
                "{bytes} of {}",
                slot.name
            );
        }
    }
}

/// One kernel computes a convolution with its residual, even if another convolution reads the same input.
#[test]
fn winograd_convolutions_are_one_kernel_each() {
    let graph = |other: i64| {
        samples::graph(&["f32[1, 8, 7, 9]"], |builder, x| {
            let weight = |name| builder.weight(name, "f32[8, 8, 3, 3]".parse().unwrap());
            let (x, same) = (x[0].exp(), vec![axis(1, 1, 1, 1); 2]);
            let y = (x.conv(weight("a"), same, 1) + x).relu();
            let z = x.conv(weight("b"), vec![axis(1, other, 1, 1); 2], 1);
            vec![y, y.sum(&[2], true), z]
        })
    };
    let device = samples::device(FeatureLevel::Full);
    for (places, other) in all_sizes(&[1, 2]) {
        let (graph, variant) = (graph(*other), winograd_variant(places));
        let (plan, count) = forced(&graph, &samples::rasteriser(), variant);
        assert_eq!((count, dispatches(&plan).0), (2, 2));
        let Some(device) = device
            .as_ref()
            .filter(|device| device.capabilities().software)
        else {
            continue;
        };
        let (plan, _) = forced(&graph, device.capabilities(), variant);
        assert!(agrees(device, &graph, plan), "padded by {other}");
    }
}

/// Returns the number of dispatches of Winograd convolutions, and of their distinct kernels.
fn dispatches(plan: &Plan) -> (usize, usize) {
    let steps = plan.steps.iter().map(|step| step.kernel);
    let kernels: Vec<usize> = steps
        .filter(|kernel| plan.kernels[*kernel].label == "winograd")
        .collect();
    let distinct: BTreeSet<usize> = kernels.iter().copied().collect();
    (kernels.len(), distinct.len())
}

/// Transformed filters of large tiles stay in single precision, since half precision would lose too much. The table chooses
/// large tiles where these filters are small compared with the tiles; a user's choice works anywhere.
#[test]
fn large_tiles_have_filters_in_single_precision() {
    for (channels, size, is_asked, places) in [
        (64, 56, false, OutputTile::Four),
        (128, 28, false, OutputTile::Four),
        (256, 14, false, OutputTile::Two),
        (256, 14, true, OutputTile::Four),
    ] {
        let x = format!("f32[1, {channels}, {size}, {size}]");
        let filter = format!("f32[{channels}, {channels}, 3, 3]");
        let axes = [axis(1, 1, 1, 1), axis(1, 1, 1, 1)];
        let graph = convolution_by_weights(&x, &filter, &axes, 1);
        let keys = plan::admitted(&graph, &samples::rasteriser(), Precision::Single).unwrap();
        let asked = keys.into_keys().map(|key| (key, winograd_variant(places)));
        let options = PlanOptions {
            precision: Precision::Half,
            variant_overrides: asked.filter(|_| is_asked).collect(),
        };
        let plan = plan::plan_with_options(&graph, &samples::rasteriser(), &options).unwrap();
        let choice = plan.steps.iter().find_map(|step| step.choice.as_ref());
        assert_eq!(choice.unwrap().variant, winograd_variant(places), "{x}");
        let filters = plan.slots.iter().filter_map(|slot| match &slot.layout {
            Layout::Panels(panels) => Some((panels.winograd_tile, slot.storage)),
            _ => None,
        });
        let storage = match places {
            OutputTile::Two => StorageType::F16x2,
            OutputTile::Four => StorageType::F32,
        };
        let filters: Vec<_> = filters.collect();
        assert_eq!(filters, [(Some(places), storage)], "{x}");
    }
}

/// Convolutions that differ only in sizes share a kernel. Workgroups of the smaller one split channels, those of the larger
/// one split tiles.
#[test]
fn winograd_convolutions_share_a_kernel() {
    let sizes = ["f32[1, 64, 60, 60]", "f32[1, 64, 20, 20]"];
    let graph = samples::graph(&sizes, |builder, x| {
        let convolved = ["a", "b"].into_iter().zip(x).map(|(name, x)| {
            let weight = builder.weight(name, "f32[64, 64, 3, 3]".parse().unwrap());
            let y = (*x * 0.25).exp().conv(weight, vec![axis(1, 1, 1, 1); 2], 1);
            y.relu().sum(&[2], true)
        });
        convolved.collect()
    });
    let variant = winograd_variant(OutputTile::Four);
    let (plan, count) = forced(&graph, &samples::rasteriser(), variant);
    assert_eq!((count, dispatches(&plan)), (2, (2, 1)));
    let device = samples::device(FeatureLevel::Full);
    if let Some(device) = device.filter(|device| device.capabilities().software) {
        let (plan, _) = forced(&graph, device.capabilities(), variant);
        assert!(worst_error(&device, &graph, plan) <= 4.0);
    }
}
