//! Small graphs for every kind of kernel and of fusion, and capabilities of the devices that kernels are made for.
#![allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test uses a part of this module, may panic, and prints the checks that it skips"
)]

pub mod layers;

use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::gpu::{DeviceOptions, FeatureLevel, GpuDevice};
use onionskin::ir::{Builder, Graph, Value};
use onionskin::kernel::capabilities::{Capabilities, CooperativeMatrix};
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::layout::TextureLimits;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::Plan;
use onionskin::kernel::translate::translate;
use onionskin::op::*;
use onionskin::plan::{self, PlanOptions};
use onionskin::tensor::Tensor;

/// Returns numbers without a pattern that a wrong kernel could match by chance; half precision represents them exactly.
pub fn tensor(shape: &[usize], seed: usize) -> Tensor {
    let numel: usize = shape.iter().product();
    let number = |place: usize| ((place * 7919 + seed * 104_729) % 257) as f32 / 128.0 - 1.0;
    Tensor::from_vec(shape, (0..numel).map(number).collect()).unwrap()
}

/// Returns the largest difference, relative to numbers above one.
pub fn distance(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.shape(), expected.shape());
    let pairs = found.to_f64().into_iter().zip(expected.to_f64());
    pairs
        .map(|(x, y)| (x - y).abs() / y.abs().max(1.0))
        .fold(0.0, larger_or_nan)
}

/// Returns the larger of two distances; NaN is the largest.
pub fn larger_or_nan(x: f64, y: f64) -> f64 {
    if y > x || y.is_nan() { y } else { x }
}

/// Returns the device that `ONIONSKIN_DEVICE` names, or the best one. Without a device, a test prints that it is skipped and
/// passes, unless `REQUIRE_GPU` is 1. Every kernel of the device is translated to every language.
pub fn device(reach: FeatureLevel) -> Option<GpuDevice> {
    let choice = std::env::var("ONIONSKIN_DEVICE").unwrap_or_default();
    let options = DeviceOptions {
        choice: choice.parse().unwrap_or_default(),
        feature_level: reach,
        experiments: false,
        cache: None,
        translate: true,
        ..DeviceOptions::default()
    };
    match GpuDevice::open(options) {
        Ok(device) => Some(device),
        Err(error) if std::env::var("REQUIRE_GPU").as_deref() == Ok("1") => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Capabilities with every feature that plans use, and WebGPU's default limits.
pub fn capabilities() -> Capabilities {
    Capabilities {
        max_binding_size: 128 << 20,
        offset_alignment: 256,
        max_buffer_size: 256 << 20,
        max_storage_buffers: 8,
        max_workgroups: 65_535,
        max_invocations: 256,
        max_workgroup_memory: 16_384,
        int64: true,
        float64: true,
        float16: true,
        subgroups: false,
        subgroup_barriers: false,
        subgroup_size: 0,
        cooperative_matrices: Vec::new(),
        software: false,
        textures: TextureLimits::default(),
        buffer_aliasing: false,
    }
}

/// A software rasteriser with subgroups of eight invocations.
pub fn rasteriser() -> Capabilities {
    rasteriser_of(8)
}

/// A software rasteriser with subgroups of `lanes` invocations.
pub fn rasteriser_of(lanes: u32) -> Capabilities {
    Capabilities {
        subgroup_size: lanes,
        software: true,
        textures: TextureLimits {
            size: 8192,
            layers: 256,
            bindings: 8,
        },
        buffer_aliasing: true,
        ..with_subgroups()
    }
}

/// Plans a graph with a variant forced upon every node that admits it. Returns the plan and the number of these nodes.
pub fn forced(graph: &Graph, capabilities: &Capabilities, variant: KernelVariant) -> (Plan, usize) {
    forced_in(Precision::Single, graph, capabilities, variant)
}

/// Like [`forced`], for values stored in a precision.
pub fn forced_in(
    precision: Precision,
    graph: &Graph,
    capabilities: &Capabilities,
    variant: KernelVariant,
) -> (Plan, usize) {
    let admitted = plan::admitted(graph, capabilities, precision).unwrap();
    let options = PlanOptions {
        variant_overrides: admitted.into_keys().map(|key| (key, variant)).collect(),
        precision,
    };
    let plan = plan::plan_with_options(graph, capabilities, &options).unwrap();
    let taken = plan.steps.iter().filter_map(|step| step.choice.as_ref());
    let count = taken.filter(|choice| choice.variant == variant).count();
    (plan, count)
}

/// A GPU with subgroups of unknown size.
pub fn with_subgroups() -> Capabilities {
    Capabilities {
        subgroups: true,
        subgroup_barriers: true,
        ..capabilities()
    }
}

/// A GPU with cooperative matrices of every kind that kernels use.
pub fn with_matrices() -> Capabilities {
    let sizes = [8, 16].into_iter();
    let units = sizes.flat_map(|size| [true, false].map(|half| CooperativeMatrix { size, half }));
    Capabilities {
        cooperative_matrices: units.collect(),
        subgroup_size: 32,
        max_workgroup_memory: 32 << 10,
        ..with_subgroups()
    }
}

/// Returns messages for the kernels of a plan that are invalid or do not translate to a language.
pub fn untranslatable(plan: &Plan) -> Vec<String> {
    let failure = |kernel: &onionskin::kernel::plan::Kernel| {
        let error = translate(&kernel.wgsl, &with_matrices()).err()?;
        Some(format!("{}: {error}\n{}", kernel.label, kernel.wgsl))
    };
    plan.kernels.iter().filter_map(failure).collect()
}

/// Builds a graph by a function of its inputs, given by their types. Symbols are 2, 3, 5 … in the order of their names.
pub fn graph<'a>(
    types: &[&str],
    body: impl for<'g> Fn(&'g Builder, &[Value<'g>]) -> Vec<Value<'g>> + 'a,
) -> Graph {
    try_graph(types, body).unwrap()
}

/// Like [`graph`]; `None` if the operands do not fit.
pub fn try_graph<'a>(
    types: &[&str],
    body: impl for<'g> Fn(&'g Builder, &[Value<'g>]) -> Vec<Value<'g>> + 'a,
) -> Option<Graph> {
    let hints = [("B", 2), ("S", 5), ("H", 13)];
    let hints: Bindings = hints
        .iter()
        .map(|(name, size)| ((*name).into(), *size))
        .collect();
    let builder = Builder::with_symbols("f", hints, Vec::new());
    let ids: Vec<_> = {
        let inputs: Vec<Value> = types
            .iter()
            .zip(["x", "y", "z", "w", "v", "u"])
            .map(|(ty, name)| builder.input(name, ty.parse().unwrap()))
            .collect();
        body(&builder, &inputs)
            .into_iter()
            .map(|value| value.id())
            .collect()
    };
    builder.finish(&ids, Vec::new(), None).ok()
}

/// Two steps of a cell with two states, as in an unrolled recurrence.
pub fn cell() -> Graph {
    graph(&["f32[2, 96]", "f32[2, 24]", "f32[24, 96]"], |_, x| {
        let (mut gates, mut state) = (x[0], x[1]);
        for _ in 0..2 {
            let gate = |at: i64| gates.narrow(1, at * 24, 24);
            state = gate(0).sigmoid() * state + gate(1).sigmoid() * gate(2).tanh();
            gates = (gate(3).sigmoid() * state.tanh()).dot(x[2]);
        }
        vec![gates, state]
    })
}

/// Two independent values with a common operand, which one kernel computes and writes.
pub fn siblings() -> Graph {
    graph(&["f32[6, 40]", "f32[6, 40]"], |_, x| {
        let dear = x[0].sin().sin();
        vec![dear * x[1], dear.exp() - x[1]]
    })
}

/// Returns every sample with its name.
pub fn all() -> Vec<(&'static str, Graph)> {
    vec![
        ("relu", graph(&["f32[B, 3]"], |_, x| vec![x[0].relu()])),
        (
            "gelu",
            graph(&["f32[B, 3]"], |_, x| {
                vec![(x[0] * 0.5) * ((x[0] * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)]
            }),
        ),
        (
            "softmax",
            graph(&["f32[B, S]"], |_, x| vec![x[0].softmax(-1)]),
        ),
        (
            "layer norm",
            graph(&["f32[B, 96]", "f32[96]"], |_, x| {
                let rest = x[0] - x[0].mean(&[1], true);
                vec![rest * ((rest * rest).mean(&[1], true) + 1e-5).rsqrt() * x[1] + x[1]]
            }),
        ),
        ("states of a cell", cell()),
        ("siblings", siblings()),
        (
            "mean",
            graph(&["f32[B, 4, H]"], |_, x| vec![x[0].mean(&[1, 2], false)]),
        ),
        (
            "linear",
            graph(&["f32[B, S, 16]", "f32[24, 16]", "f32[24]"], |_, x| {
                vec![(x[0].matmul(x[1].transpose(0, 1)) + x[2]).relu()]
            }),
        ),
        (
            "attention",
            graph(&["f32[B, S, 3*32]"], |_, x| {
                let b = x[0].size(0);
                let s = x[0].size(1);
                let heads = |from: i64| {
                    x[0].narrow(2, from * 32, 32)
                        .reshape(vec![b.clone(), s.clone(), 4.into(), 8.into()])
                        .permute(vec![0, 2, 1, 3])
                };
                let scores = heads(0).matmul(heads(1).transpose(2, 3)) * 0.35;
                let y = scores.softmax(-1).matmul(heads(2));
                vec![
                    y.permute(vec![0, 2, 1, 3])
                        .reshape(vec![b.clone(), s.clone(), 32.into()]),
                ]
            }),
        ),
        (
            "conv",
            graph(&["f32[B, 3, H, 9]", "f32[6, 3, 3, 3]", "f32[6]"], |_, x| {
                let axis = ConvAxis::padded(2, 1);
                let y = x[0].conv(x[1], vec![axis.clone(), axis], 1);
                vec![(y + x[2].reshape(vec![6.into(), 1.into(), 1.into()])).relu()]
            }),
        ),
        (
            "ragged product",
            graph(
                &["f32[B, S, 13]", "f32[B, 13, 37]", "f32[B, S, 37]"],
                |_, x| vec![(x[0].dot(x[1]) + x[2]).relu()],
            ),
        ),
        (
            "product with a residual",
            graph(
                &["f32[B, S, 16]", "f32[B, 16, 80]", "f32[B, S, 80]"],
                |_, x| vec![x[0].dot(x[1]) * 2.0 + x[2]],
            ),
        ),
        (
            "tall product",
            graph(&["f32[70, H]", "f32[H, 200]"], |_, x| vec![x[0].dot(x[1])]),
        ),
        (
            "square product",
            graph(&["f32[128, 64]", "f32[64, 128]"], |_, x| {
                vec![x[0].dot(x[1])]
            }),
        ),
        (
            "row",
            graph(&["f32[1, 96]", "f32[20, 96]"], |_, x| {
                vec![x[0].matmul(x[1].transpose(0, 1)).relu()]
            }),
        ),
        (
            "heads",
            graph(&["f32[B, H, 32]", "f32[B, H, 32]"], |_, x| {
                let (q, k) = (x[0], x[1]);
                let columns = q.permute([0, 2, 1]).dot(k);
                vec![columns, q.dot(k.permute([0, 2, 1])).softmax(-1).dot(k)]
            }),
        ),
        (
            "grouped convolution",
            graph(
                &["f32[B, 6, H, 9]", "f32[10, 3, 3, 3]", "f32[10]"],
                |_, x| {
                    let axis = ConvAxis::padded(1, 1);
                    let y = x[0].conv(x[1], vec![axis.clone(), axis], 2);
                    vec![(y + x[2].reshape(vec![10.into(), 1.into(), 1.into()])).relu()]
                },
            ),
        ),
        (
            "pointwise convolution",
            graph(&["f32[B, 16, 6, 6]", "f32[9, 16, 1, 1]"], |_, x| {
                let axis = ConvAxis::padded(1, 0);
                vec![x[0].conv(x[1], vec![axis.clone(), axis], 1)]
            }),
        ),
        (
            "transposed",
            graph(&["f32[B, 4, 7]", "f32[6, 2, 3]"], |_, x| {
                let axis = ConvAxis {
                    stride: 1,
                    low: 1,
                    high: 2,
                    dilation: 1,
                    base_dilation: 2,
                };
                vec![x[0].conv(x[1], vec![axis], 2)]
            }),
        ),
        (
            "depthwise",
            graph(&["f32[B, 6, 5, 9]", "f32[6, 1, 3, 3]"], |_, x| {
                let axis = ConvAxis::padded(1, 1);
                vec![x[0].conv(x[1], vec![axis.clone(), axis], 6)]
            }),
        ),
        (
            "sort",
            graph(&["f32[B, S]"], |_, x| {
                let (values, indices) = x[0].sort(1, true);
                vec![values, indices]
            }),
        ),
        (
            "gru",
            graph(
                &[
                    "f32[S, B, 24]",
                    "f32[2, 3, 4, 4]",
                    "f32[2, 3, 4]",
                    "f32[2, B, 4]",
                ],
                |builder, x| {
                    let operands = x.iter().map(|value| (*value).into()).collect();
                    builder.apply_many(
                        Recurrent {
                            cell: RecurrentCell::Gru,
                        },
                        operands,
                    )
                },
            ),
        ),
        (
            "cumsum",
            graph(&["f32[B, S]"], |_, x| vec![x[0].scan(ScanFunction::Sum, 1)]),
        ),
        (
            "rounded maximum",
            graph(&["f32[B, S]"], |_, x| {
                vec![(x[0] * 3.0).round().amax(&[1], false)]
            }),
        ),
        (
            "triangle of a symbolic mean",
            graph(&["f32[B, 3, S]"], |builder, x| {
                let columns = x[0].shape()[2].clone();
                let column = builder.iota(DType::I64, vec![1.into(), 1.into(), columns], 2);
                let mean = x[0].mean(&[1], true);
                let parts = [column.le(2), (column - 3).ge(-1), column.lt(column - 1)];
                let parts = parts.map(|part| mean * part.to(DType::F32));
                parts.to_vec()
            }),
        ),
        (
            "argmax",
            graph(&["f32[B, S]"], |_, x| vec![x[0].argmax(1, false)]),
        ),
        (
            "total",
            graph(&["f32[64, 1000]"], |_, x| vec![x[0].sum(&[0, 1], false)]),
        ),
        (
            "scatter",
            graph(&["f32[B, 7]", "i64[1, S]", "f32[1, S]"], |_, x| {
                vec![x[0].scatter(1, x[1], x[2], ScatterFunction::Add)]
            }),
        ),
        (
            "embedding",
            graph(&["f32[10, 4]", "i64[B, S]"], |_, x| {
                vec![x[0].index_select(0, x[1].reshape(vec![x[1].numel()]))]
            }),
        ),
        (
            "checked rows",
            graph(&["f32[10, 4]", "i64[B, S]"], |_, x| {
                let message = "index {value} is out of bounds for dimension 0 with size {size}";
                let rows = x[1].check_in_range((-10).into(), &10.into(), message);
                vec![x[0].index_select(0, rows.reshape(vec![x[1].numel()]))]
            }),
        ),
        (
            "cat",
            graph(&["f32[B, 3]", "f32[B, 4]", "f32[B, S]"], |b, x| {
                vec![b.concat(&[x[0], x[1].relu(), x[2]], 1)]
            }),
        ),
        (
            "pad",
            graph(&["f32[B, 3]"], |_, x| {
                vec![x[0].pad(&[0.into(), 1.into()], &[0.into(), 2.into()], 7.5)]
            }),
        ),
        (
            "neighbours",
            graph(&["f32[B, 8, 12]", "f32[12]", "f32[8, 1]"], |b, x| {
                let sum = (x[0] * x[1] + x[2]).relu();
                let turned = x[0].permute([0, 2, 1]).narrow(1, 1, 8) + x[1].narrow(0, 4, 8);
                let low = [0.into(), 0.into(), 1.into()];
                let padded = x[0].pad(&low, &[0.into(), 0.into(), 3.into()], 7.5);
                let joined = b.concat(&[x[0], x[0].narrow(2, 3, 8), padded], 2);
                vec![sum, turned, joined]
            }),
        ),
        ("identity", graph(&["f32[B, 3]"], |_, x| vec![x[0], x[0]])),
    ]
}
