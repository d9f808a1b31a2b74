//! Fusion: epilogues, prologues, merged pointwise work, and values that are materialised.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use onionskin::dim::Dim;
use onionskin::grad::Loss;
use onionskin::ir::Graph;
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::materialization::{MaterializeReason, MaterializedValue};
use onionskin::kernel::plan::Plan;
use onionskin::op::ConvAxis;
use onionskin::pass;
use onionskin::plan;

mod samples;

use samples::{capabilities, rasteriser};

fn plan_for(name: &str, graph: &Graph, device: &Capabilities) -> Plan {
    plan::plan(graph, device).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the kernel labels of a plan, in the order of steps.
fn labels(plan: &Plan) -> Vec<&str> {
    let kernels = plan.steps.iter().map(|step| &plan.kernels[step.kernel]);
    kernels.map(|kernel| kernel.label.as_str()).collect()
}

/// A GELU is fused into its product for every tile height: an epilogue loop handles a few rows at a time.
#[test]
fn long_epilogues_are_fused_into_tiles() {
    let steps = |rows: i64| {
        let x = format!("f32[{rows}, 48]");
        let graph = samples::graph(&[&x, "f32[48, 64]", "f32[64, 32]"], |_, x| {
            let y = x[0].dot(x[1]);
            let z = ((y * y * y * 0.044715 + y) * 0.797_884_6).tanh();
            vec![(y * 0.5 * (z + 1.0)).dot(x[2])]
        });
        plan_for("gelu", &graph, &rasteriser()).steps.len()
    };
    assert_eq!([1, 3, 16, 128].map(steps), [2; 4]);
}

/// A 1×1 convolution computes its gated operand itself, unless that would repeat the gating too often: with larger windows,
/// many output channels, or two readers.
#[test]
fn pointwise_producers_are_fused_into_1x1_convolutions() {
    let steps = |outputs: i64, taps: i64, readers: usize| {
        let graph = samples::graph(&["f32[1, 16, 8, 8]", "f32[1, 16, 1, 1]"], |b, x| {
            let filter = |name, ty: &str| b.weight(name, ty.parse().unwrap());
            let axes = |taps| vec![ConvAxis::padded(1, taps / 2); 2];
            let written = x[0].conv(filter("first", "f32[16, 16, 3, 3]"), axes(3), 1);
            let gated = written * x[1];
            let ty = format!("f32[{outputs}, 16, {taps}, {taps}]");
            let names = ["a", "b"].into_iter().take(readers);
            let read = names.map(|name| gated.conv(filter(name, &ty), axes(taps), 1));
            read.chain([written.sum(&[2], false)]).collect()
        });
        plan_for("gated", &graph, &rasteriser()).steps.len()
    };
    let alone = steps(32, 1, 1);
    assert_eq!(steps(32, 3, 1), alone + 1);
    assert_eq!(steps(1024, 1, 1), alone + 1);
    assert_eq!(steps(32, 1, 2), alone + 2);
}

/// Pooling windows read a convolution's output directly, with pointwise work and padding in between.
#[test]
fn pooling_reads_convolutions_directly() {
    for padding in [0, 1] {
        let graph = samples::graph(&["f32[1, 16, 15, 15]"], |b, x| {
            let filter = b.weight("filter", "f32[24, 16, 3, 3]".parse().unwrap());
            let y = x[0].conv(filter, vec![ConvAxis::padded(1, 1); 2], 1);
            // The most expensive pointwise work that a window repeats. Windows of windows would repeat more.
            let y = (((y - 0.5) * 1.5 + 0.1).relu() * 0.5 + 0.2).relu();
            let sides = [0, 0, padding, padding].map(Dim::from);
            let padded = y.pad(&sides, &sides, f64::NEG_INFINITY);
            let windows = padded.unfold(2, 3, 2, 1).unfold(3, 3, 2, 1);
            vec![windows.amax(&[4, 5], false)]
        });
        let graph = pass::optimize(&graph).unwrap();
        let plan = plan_for("windows", &graph, &rasteriser());
        assert_eq!(labels(&plan), ["copy", "conv_to_maximum", "reduce"]);
    }
}

/// The gradient of a filter is a product with the input's windows, read in place, and a transposition of its result.
#[test]
fn gradients_of_filters_read_windows_in_place() {
    for channels in [3, 16] {
        let types = [
            format!("f32[2, {channels}, 16, 16]"),
            format!("f32[32, {channels}, 3, 3]"),
        ];
        let graph = samples::graph(&types.each_ref().map(String::as_str), |_, x| {
            vec![x[0].conv(x[1], vec![ConvAxis::padded(1, 1); 2], 1)]
        });
        let wanted = &graph.inputs[1..];
        let gradient = graph.gradient(&Loss::GradOutputs, wanted).unwrap();
        let gradient = pass::optimize(&gradient).unwrap();
        let plan = plan_for("gradient", &gradient, &rasteriser());
        // The convolution itself reads a padded copy.
        assert_eq!(labels(&plan), ["pad", "conv", "dot_reshape", "reshape"]);
    }
}

/// A product computes the gradient of a linear layer's weight in the weight's own order of axes.
#[test]
fn gradients_of_linear_weights_are_not_transposed() {
    let graph = samples::graph(&["f32[8, 16]", "f32[32, 16]"], |_, x| {
        vec![x[0].dot(x[1].transpose(0, 1))]
    });
    let gradient = graph.gradient(&Loss::GradOutputs, &graph.inputs).unwrap();
    let gradient = pass::optimize(&gradient).unwrap();
    let plan = plan_for("linear", &gradient, &rasteriser());
    assert_eq!(labels(&plan), ["dot", "dot", "dot"]);
}

/// Products read a factor that is filled with a number, as the gradient of a sum, without a buffer.
#[test]
fn filled_factors_are_not_stored() {
    let graph = samples::graph(&["f32[8, 16]", "f32[32, 16]"], |_, x| {
        vec![x[0].dot(x[1].transpose(0, 1))]
    });
    let gradient = graph.gradient(&Loss::Sum, &graph.inputs).unwrap();
    let gradient = pass::optimize(&gradient).unwrap();
    for device in [capabilities(), rasteriser()] {
        let plan = plan_for("sum", &gradient, &device);
        assert_eq!(labels(&plan), ["dot", "dot", "dot"]);
    }
}

/// Small outputs of equal size that no kernel reads share one, as the running statistics of layers. Large ones do not.
#[test]
fn small_updates_share_a_kernel() {
    for (size, kernels) in [(64, 1), (1 << 20, 3)] {
        let ty = format!("f32[{size}]");
        let graph = samples::graph(&[&ty, &ty, &ty], |_, x| {
            let updates = x.iter().map(|value| *value * 0.9 + 0.1);
            updates.collect()
        });
        let plan = plan_for("updates", &graph, &rasteriser());
        assert_eq!(plan.steps.len(), kernels, "{size}");
    }
}

/// The kernel of a reduction also writes what is computed from its few results: running statistics, and the scale that each
/// pixel of a batch norm is multiplied by.
#[test]
fn reductions_write_what_follows_from_their_results() {
    let graph = samples::graph(&["f32[64, 32, 8, 8]", "f32[32]"], |_, x| {
        let (x, running) = (x[0], x[1]);
        let variance = (x * x).mean(&[0, 2, 3], false);
        let scale = (variance + 1e-5).rsqrt() * running;
        let scale = scale.unsqueeze(-1).unsqueeze(-1).expand(x.shape());
        vec![x * scale, running * 0.9 + variance * 0.1]
    });
    for device in [capabilities(), rasteriser()] {
        let plan = plan_for("norm", &graph, &device);
        let writes = plan.steps.iter().map(|step| step.work.writes.len());
        let kernels: Vec<(&str, usize)> = labels(&plan).into_iter().zip(writes).collect();
        assert!(
            kernels.ends_with(&[("reduce_to_mul", 2), ("mul", 1)]),
            "{kernels:?}"
        );
        let pixels = &plan.kernels[plan.steps[kernels.len() - 1].kernel].wgsl;
        assert!(!pixels.contains("sqrt"), "{pixels}");
    }
}

/// A 1×1 image needs no conversion: its channels are contiguous in vec4 layout in any case.
#[test]
fn means_of_images_are_convolved_without_a_copy() {
    let graph = samples::graph(&["f32[2, 16, 8, 8]"], |b, x| {
        let filter = b.weight("filter", "f32[24, 16, 1, 1]".parse().unwrap());
        let means = x[0].mean(&[2, 3], true);
        vec![
            means
                .conv(filter, vec![ConvAxis::padded(1, 0); 2], 1)
                .relu(),
        ]
    });
    let plan = plan_for("means", &graph, &rasteriser());
    let labels = plan.kernels.iter().map(|kernel| kernel.label.as_str());
    assert_eq!(
        labels.collect::<Vec<_>>(),
        ["reduce_to_div", "conv_maximum"]
    );
}

/// A product reads its left factor scaled, also through views of another kernel's result.
#[test]
fn scaling_is_fused_into_left_factors() {
    let graph = samples::graph(&["f32[32, 48]", "f32[48, 64]", "f32[64]"], |_, x| {
        let y = (x[0].dot(x[1]) + x[2]).reshape(vec![32.into(), 4.into(), 16.into()]);
        let heads = y.permute(vec![1, 0, 2]);
        let plain = x[0] * 3.0;
        vec![
            (heads * 0.25).dot(heads.permute(vec![0, 2, 1])),
            plain.dot(x[1]),
        ]
    });
    for device in [capabilities(), rasteriser()] {
        let labels = plan_for("scaled", &graph, &device).kernels.into_iter();
        let labels: Vec<String> = labels.map(|kernel| kernel.label).collect();
        assert!(
            labels.iter().all(|label| label.contains("dot")),
            "{labels:?}"
        );
    }
}

/// The plan gives a reason for each materialised value, and materialises no fused one.
#[test]
fn materialised_values_have_a_reason() {
    let graph = samples::graph(&["f32[4, 8]", "f32[8, 8]"], |_, x| {
        let hidden = x[0].dot(x[1]).relu();
        let product = hidden.dot(x[1]);
        let dear = product.sin().sin();
        vec![dear.exp() + dear.sum(&[0], true), product]
    });
    let plan = plan_for("stored", &graph, &capabilities());
    let reasons: Vec<MaterializeReason> = plan
        .materialized
        .iter()
        .map(|stored| stored.reason)
        .collect();
    let (readers, cost) = (2, 21);
    let expected = [
        MaterializeReason::ReadManyTimes,
        MaterializeReason::Output,
        MaterializeReason::Shared { readers, cost },
        MaterializeReason::NotElementwise,
        MaterializeReason::Output,
    ];
    assert_eq!(reasons, expected, "{:?}", plan.materialized);
    let named =
        |stored: &MaterializedValue| plan.slots.iter().any(|slot| slot.name == stored.value);
    assert!(plan.materialized.iter().all(named));
}

/// Pointwise work after a product is its epilogue as long as it has one result, even if it reads values several times. The
/// next product reads split heads where the first one writes them.
#[test]
fn epilogues_are_fused_into_products() {
    let graph = samples::graph(&["f32[B, S, 32]", "f32[32, 32]"], |_, x| {
        let (b, s) = (x[0].size(0), x[0].size(1));
        let project = || {
            let y = x[0].matmul(x[1]) + 0.5;
            let y = y * (y * y + y).sigmoid();
            y.reshape(vec![b.clone(), s.clone(), 4.into(), 8.into()])
                .permute(vec![0, 2, 1, 3])
        };
        let scores = project().matmul(project().transpose(2, 3)) + 1.0;
        vec![scores.exp() / scores]
    });
    for device in [capabilities(), rasteriser()] {
        let plan = plan_for("products", &graph, &device);
        assert_eq!(plan.steps.len(), 3, "{:?}", labels(&plan));
    }
}

/// One kernel computes both states of a cell, though the next step reads one of them: products and cells alternate.
#[test]
fn one_kernel_computes_both_states_of_a_cell() {
    for device in [capabilities(), rasteriser()] {
        let plan = plan_for("cell", &samples::cell(), &device);
        assert_eq!(labels(&plan), ["add_mul", "dot", "add_mul", "dot"]);
        assert_eq!(plan.steps[0].work.writes.len(), 2);
    }
}

/// A kernel computes the common operand of several values once and writes each of them.
#[test]
fn one_kernel_computes_siblings() {
    for device in [capabilities(), rasteriser()] {
        let plan = plan_for("siblings", &samples::siblings(), &device);
        assert_eq!(plan.steps.len(), 1, "{:?}", labels(&plan));
        assert_eq!(plan.steps[0].work.writes.len(), 2);
        let kernel = &plan.kernels[0];
        assert_eq!(kernel.wgsl.matches("read_write").count(), 2);
    }
}

/// A value that only one kernel reads is not materialised, even if several of its nodes read it.
#[test]
fn values_with_one_reading_kernel_are_not_materialised() {
    let graph = samples::graph(&["f32[4, 8]", "f32[4, 8]"], |_, x| {
        let dear = x[0].sin().sin();
        vec![dear * x[1] + dear]
    });
    let plan = plan_for("twice", &graph, &capabilities());
    assert_eq!(
        (plan.steps.len(), plan.materialized.len()),
        (1, 1),
        "{:?}",
        plan.materialized
    );
}

/// A value that another kernel needs first, or that is read at other indices, takes a kernel of its own.
#[test]
fn values_that_other_kernels_need_are_materialised() {
    let between = samples::graph(&["f32[4, 8]"], |_, x| {
        let dear = x[0].sin().sin();
        let (sorted, _) = dear.sort(1, false);
        vec![dear + sorted.flip(&[1])]
    });
    let elsewhere = samples::graph(&["f32[8, 8]"], |_, x| {
        let dear = x[0].sin().sin();
        vec![dear + dear.transpose(0, 1)]
    });
    for (name, graph, steps) in [("between", between, 3), ("elsewhere", elsewhere, 2)] {
        let plan = plan_for(name, &graph, &capabilities());
        assert_eq!(plan.steps.len(), steps, "{name}: {:?}", labels(&plan));
    }
}
