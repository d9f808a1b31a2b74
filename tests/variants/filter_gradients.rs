//! Gradients of convolution filters by Winograd tiles.

use onionskin::dim::Dim;
use onionskin::grad::Loss;
use onionskin::ir::{Graph, Value};
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::winograd::OutputTile;
use onionskin::pass;
use std::collections::BTreeMap;

use crate::samples;
use crate::*;

const BY_TILES: KernelVariant = KernelVariant::Winograd {
    tile: OutputTile::Four,
};

/// The gradient of the filter of a convolution, with respect to a random gradient of its output.
fn filter_gradient(x: &str, filter: &str, axis: &ConvAxis, groups: i64) -> Graph {
    let rank = filter.matches(',').count() - 1;
    let graph = samples::graph(&[x, filter], |_, x| {
        vec![x[0].conv(x[1], vec![axis.clone(); rank], groups)]
    });
    let wanted = &graph.inputs[1..];
    let gradient = graph.gradient(&Loss::GradOutputs, wanted).unwrap();
    pass::optimize(&gradient).unwrap()
}

/// Returns whether a plan has a kernel of tiles.
fn has_tiles(plan: &Plan) -> bool {
    let mut labels = plan.kernels.iter().map(|kernel| kernel.label.as_str());
    labels.any(|label| label.starts_with("winograd_filter_gradient"))
}

#[test]
fn gradients_by_tiles_agree() {
    let (plain, uneven) = (
        |pad| axis(1, pad, 1, 1),
        ConvAxis {
            high: 0,
            ..axis(1, 1, 1, 1)
        },
    );
    let covered = [
        ("f32[2, 8, 8, 12]", "f32[16, 8, 3, 3]", plain(1), 1),
        ("f32[1, 12, 7, 9]", "f32[20, 12, 3, 3]", plain(1), 1),
        ("f32[3, 16, 10, 6]", "f32[16, 16, 3, 3]", plain(0), 1),
        ("f32[1, 8, 7, 8]", "f32[36, 8, 3, 3]", plain(2), 1),
        ("f32[2, 8, 6, 9]", "f32[16, 8, 3, 3]", uneven, 1),
        ("f32[2, 24, 7, 5]", "f32[40, 12, 3, 3]", plain(1), 2),
        // Several blocks of input and output channels.
        ("f32[2, 132, 7, 7]", "f32[196, 132, 3, 3]", plain(1), 1),
        // Several chunks of tiles.
        ("f32[1, 8, 61, 59]", "f32[16, 8, 3, 3]", plain(1), 1),
        // Parts of the images.
        ("f32[8, 64, 28, 28]", "f32[64, 64, 3, 3]", plain(1), 1),
    ];
    let device = samples::device(FeatureLevel::Full);
    for (x, filter, axis, groups) in &covered {
        let name = format!("{x} by {filter}, padded by {}", axis.low);
        let graph = filter_gradient(x, filter, axis, *groups);
        let (plan, count) = forced(&graph, &samples::rasteriser(), BY_TILES);
        assert_eq!((count, has_tiles(&plan)), (1, true), "{name}");
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        let device = device.as_ref();
        let Some(device) = device.filter(|device| device.capabilities().software) else {
            continue;
        };
        let (forced_plan, _) = forced(&graph, device.capabilities(), BY_TILES);
        let chosen_plan = plan::plan(&graph, device.capabilities()).unwrap();
        for plan in [forced_plan, chosen_plan] {
            let error = relative_error(device, &graph, plan, axis);
            assert!(error <= OutputTile::Four.max_error(), "{name}: {error}");
        }
    }
}

/// Returns the largest error of a gradient, relative to the largest number.
fn relative_error(device: &GpuDevice, graph: &Graph, plan: Plan, axis: &ConvAxis) -> f64 {
    let mut seed = 3;
    let inputs = graph.inputs.iter().map(|input| {
        let sizes = graph.ty(*input).sizes(&Bindings::new()).unwrap();
        tensor(&mut seed, DType::F32, &sizes)
    });
    let inputs: Vec<Tensor> = inputs.collect();
    let weights = BTreeMap::new();
    let program = Program::new(device, plan, &weights, ProgramOptions::default()).unwrap();
    let found = program.run(&inputs).unwrap()[1].to_f64();
    let expected = in_double_precision(&inputs[0], &inputs[2], &inputs[1], axis.low);
    let largest =
        |numbers: &mut dyn Iterator<Item = f64>| numbers.map(f64::abs).fold(0.0, larger_or_nan);
    let errors = found.iter().zip(&expected).map(|(x, y)| x - y);
    largest(&mut errors.into_iter()) / largest(&mut expected.iter().copied())
}

/// The gradient of a filter in double precision, for an input with zeros in front.
fn in_double_precision(x: &Tensor, gradient: &Tensor, filter: &Tensor, low: i64) -> Vec<f64> {
    let [images, channels, height, width]: [usize; 4] = x.shape().try_into().unwrap();
    let [_, outputs, rows, columns]: [usize; 4] = gradient.shape().try_into().unwrap();
    let group_channels = filter.shape()[1];
    let group_outputs = outputs / (channels / group_channels);
    let (x, gradient, low) = (x.to_f64(), gradient.to_f64(), low as usize);
    let mut sums = vec![0.0; filter.numel()];
    for (at, sum) in sums.iter_mut().enumerate() {
        let (output, tap) = (at / 9 / group_channels, at % 9);
        let channel = output / group_outputs * group_channels + at / 9 % group_channels;
        for (image, row) in (0..images).flat_map(|image| (0..rows).map(move |row| (image, row))) {
            let down = row + tap / 3;
            if !(low..height + low).contains(&down) {
                continue;
            }
            let seen = &x[((image * channels + channel) * height + down - low) * width..][..width];
            let slopes =
                &gradient[((image * outputs + output) * rows + row) * columns..][..columns];
            for (column, slope) in slopes.iter().enumerate() {
                let across = column + tap % 3;
                if (low..width + low).contains(&across) {
                    *sum += slope * seen[across - low];
                }
            }
        }
    }
    sums
}

#[test]
fn other_windows_have_no_gradients_by_tiles() {
    let plain = |pad| axis(1, pad, 1, 1);
    let others = [
        ("f32[2, 8, 9, 9]", "f32[16, 8, 5, 5]", plain(2), 1),
        ("f32[2, 8, 9, 9]", "f32[16, 8, 3, 3]", axis(2, 1, 1, 1), 1),
        ("f32[2, 8, 9, 9]", "f32[16, 8, 3, 3]", axis(1, 2, 2, 1), 1),
        ("f32[2, 8, 9, 9]", "f32[16, 8, 3, 3]", axis(1, 2, 1, 2), 1),
        ("f32[2, 6, 9, 9]", "f32[16, 6, 3, 3]", plain(1), 1),
        ("f32[2, 8, 9, 9]", "f32[18, 8, 3, 3]", plain(1), 1),
        ("f32[2, 8, 9]", "f32[16, 8, 3]", plain(1), 1),
        ("f32[B, 8, 9, 9]", "f32[16, 8, 3, 3]", plain(1), 1),
        ("f16[2, 8, 9, 9]", "f16[16, 8, 3, 3]", plain(1), 1),
    ];
    for (x, filter, axis, groups) in &others {
        let graph = filter_gradient(x, filter, axis, *groups);
        let admitted = plan::admitted(&graph, &samples::rasteriser(), Precision::Single).unwrap();
        let has_tiles = admitted
            .values()
            .flatten()
            .any(|variant| *variant == BY_TILES);
        assert!(!has_tiles, "{x} by {filter}");
    }
}

fn shape(sizes: &[i64]) -> Vec<Dim> {
    sizes.iter().copied().map(Dim::from).collect()
}

/// Pads an axis by a zero on both sides.
fn pad(value: Value<'_>, axis: usize) -> Value<'_> {
    let mut padding = vec![0; value.rank()];
    padding[axis] = 1;
    value.pad(&shape(&padding), &shape(&padding), 0)
}

/// Products of the same shapes whose factors are other views of the images are no gradients.
#[test]
fn other_views_are_no_gradients() {
    // Windows split into channels and positions, and the output's gradient into groups and channels.
    for (windows, slopes, is_gradient) in [
        ([2, 1, 8, 64, 9], [2, 1, 16, 64], true),
        ([2, 1, 16, 32, 9], [2, 1, 16, 64], false),
        ([4, 1, 8, 32, 9], [2, 1, 16, 64], false),
        ([2, 1, 8, 64, 9], [2, 4, 4, 64], false),
        ([2, 1, 8, 64, 9], [2, 1, 64, 16], false),
    ] {
        let graph = samples::graph(&["f32[2, 8, 8, 8]", "f32[2, 16, 8, 8]"], |_, x| {
            let rows = pad(x[0], 2).unfold(2, 3, 1, 1);
            let all = pad(rows, 3).unfold(3, 3, 1, 1);
            let all = all.reshape(shape(&windows)).permute([1, 4, 2, 0, 3]);
            let all = all.reshape(shape(&[1, 72, 128]));
            let slopes = x[1].reshape(shape(&slopes)).permute([1, 0, 3, 2]);
            vec![all.dot(slopes.reshape(shape(&[1, 128, 16])))]
        });
        let admitted = plan::admitted(&graph, &samples::rasteriser(), Precision::Single).unwrap();
        let has_tiles = admitted
            .values()
            .flatten()
            .any(|variant| *variant == BY_TILES);
        assert_eq!(has_tiles, is_gradient, "{windows:?} {slopes:?}");
    }
}

/// Tiles are chosen where they save time: many channels, and images that are not small.
#[test]
fn the_table_chooses_tiles_for_gradients_of_many_channels() {
    for (x, filter, uses_tiles) in [
        ("f32[8, 64, 56, 56]", "f32[64, 64, 3, 3]", true),
        ("f32[8, 128, 28, 28]", "f32[128, 128, 3, 3]", true),
        ("f32[8, 256, 14, 14]", "f32[256, 256, 3, 3]", true),
        ("f32[8, 8, 14, 14]", "f32[16, 8, 3, 3]", false),
    ] {
        let graph = filter_gradient(x, filter, &axis(1, 1, 1, 1), 1);
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        assert_eq!(has_tiles(&plan), uses_tiles, "{x} by {filter}");
    }
}
