//! Attention in one kernel, for every way in which models write it, all sizes, and fully masked rows.

use std::collections::BTreeMap;

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::gpu::FeatureLevel;
use onionskin::ir::{Graph, Value};
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::plan::Plan;
use onionskin::op::ConvAxis;

use crate::samples::{self, graph};
use crate::*;

/// Queries, keys and values.
type Operands<'g, 'x> = &'x [Value<'g>];

fn scores<'g>(x: Operands<'g, '_>) -> Value<'g> {
    x[0].matmul(x[1].transpose(-2, -1))
}

/// Replaces NaN in fully masked rows by zeros.
fn without_nan(scores: Value) -> Value {
    let is_empty = scores.eq(f64::NEG_INFINITY).all(&[-1], true);
    is_empty.where_(0.0, scores.softmax(-1))
}

/// Masks scores of keys after the query.
fn causal(scores: Value) -> Value {
    let [rows, keys] = [-2, -1].map(|axis| scores.size(axis));
    let builder = scores.builder();
    let row = builder.iota(DType::I64, vec![rows, 1.into()], 0);
    let key = builder.iota(DType::I64, vec![1.into(), keys], 1);
    key.le(row).where_(scores, f64::NEG_INFINITY)
}

/// Returns queries, keys or values (by `at`) as heads, from a value that holds them side by side.
fn heads<'g>(x: Value<'g>, at: i64, [heads, width]: [i64; 2]) -> Value<'g> {
    let parts = x.narrow(2, at * heads * width, heads * width);
    let shape = vec![x.size(0), x.size(1), heads.into(), width.into()];
    parts.reshape(shape).permute(vec![0, 2, 1, 3])
}

/// Builds plain attention graphs, by names and types of queries, keys and values.
fn plain(of: &[(&'static str, [&str; 3])]) -> Vec<(&'static str, Graph)> {
    let of_types = |types: &[&str; 3]| {
        graph(types, |_, x| {
            vec![(scores(x) * 0.25).softmax(-1).matmul(x[2])]
        })
    };
    let named = of.iter();
    named
        .map(|(name, types)| (*name, of_types(types)))
        .collect()
}

/// Attention with positions innermost in memory: each channel is a row of all positions.
fn by_channel<'g>(x: Operands<'g, '_>) -> Value<'g> {
    let weights = (x[0].transpose(-2, -1).matmul(x[1]) * 0.2).softmax(-1);
    x[2].matmul(weights.transpose(-2, -1))
}

/// Returns graphs that one kernel computes.
pub fn graphs() -> Vec<(&'static str, Graph)> {
    let mut graphs = plain(&[
        ("of one head", ["f32[40, 32]", "f32[40, 32]", "f32[40, 32]"]),
        (
            "of many keys",
            ["f32[24, 16]", "f32[301, 16]", "f32[301, 24]"],
        ),
        (
            "of wide heads",
            [
                "f32[3, 2, 37, 64]",
                "f32[3, 2, 50, 64]",
                "f32[3, 2, 50, 64]",
            ],
        ),
        (
            "of very wide heads",
            ["f32[2, 19, 128]", "f32[2, 21, 128]", "f32[2, 21, 128]"],
        ),
        (
            "of three vec4s",
            ["f32[B, 16, 12]", "f32[B, H, 12]", "f32[B, H, 20]"],
        ),
        (
            "of many rows",
            ["f32[8, 70, 8]", "f32[8, H, 8]", "f32[8, H, 8]"],
        ),
        (
            "of any length",
            ["f32[B, H, 32]", "f32[B, H, 32]", "f32[B, H, 32]"],
        ),
    ]);
    graphs.extend([
        (
            "out of one value",
            graph(&["f32[B, H, 96]"], |_, x| {
                let [q, k, v] = [0, 1, 2].map(|at| heads(x[0], at, [4, 8]));
                let weights = (q * 0.35).matmul(k.transpose(2, 3)).softmax(-1);
                vec![weights.matmul(v).relu()]
            }),
        ),
        (
            "of batches of heads",
            graph(&["f32[2, 3, 20, 16]"; 3], |_, x| {
                let flat =
                    [x[0], x[1], x[2]].map(|x| x.reshape(vec![6.into(), 20.into(), 16.into()]));
                let weights = scores(&flat).reshape(vec![2.into(), 3.into(), 20.into(), 20.into()]);
                let weights = weights
                    .softmax(-1)
                    .reshape(vec![6.into(), 20.into(), 20.into()]);
                vec![weights.matmul(flat[2])]
            }),
        ),
        (
            "with a bias",
            graph(
                &[
                    "f32[2, H, 16]",
                    "f32[2, H, 16]",
                    "f32[2, H, 16]",
                    "f32[H, H]",
                ],
                |_, x| vec![(scores(x) * 0.25 + x[3]).softmax(-1).matmul(x[2])],
            ),
        ),
        (
            "with a bias by row and by column of an image",
            graph(
                &[
                    "f32[2, 24, 16]",
                    "f32[2, 24, 16]",
                    "f32[2, 24, 16]",
                    "f32[2, 4, 6, 4, 1]",
                    "f32[2, 4, 6, 1, 6]",
                ],
                |_, x| {
                    let image = [2, 4, 6, 4, 6].map(Dim::from).to_vec();
                    let added = scores(x).reshape(image) + x[3] + x[4];
                    let scores = added.reshape(vec![2.into(), 24.into(), 24.into()]);
                    vec![scores.softmax(-1).matmul(x[2])]
                },
            ),
        ),
        (
            "with a mask of keys",
            graph(
                &[
                    "f32[B, 20, 16]",
                    "f32[B, 24, 16]",
                    "f32[B, 24, 16]",
                    "f32[B, 1, 24]",
                ],
                |_, x| vec![without_nan(scores(x) * 0.25 + x[3]).matmul(x[2])],
            ),
        ),
        (
            "causal",
            graph(&["f32[B, H, 16]"; 3], |_, x| {
                vec![without_nan(causal(scores(x))).matmul(x[2])]
            }),
        ),
        (
            "causal, of fewer keys than queries",
            graph(
                &["f32[2, 75, 16]", "f32[2, 42, 16]", "f32[2, 42, 16]"],
                |_, x| vec![causal(scores(x)).softmax(-1).matmul(x[2])],
            ),
        ),
        (
            "causal, of more keys than queries",
            graph(
                &["f32[9, 35, 64]", "f32[9, 140, 64]", "f32[9, 140, 64]"],
                |_, x| vec![without_nan(causal(scores(x) * 0.1)).matmul(x[2])],
            ),
        ),
        (
            "of keys by channel",
            graph(
                &["f32[2, 24, 24]", "f32[2, 24, 40]", "f32[2, 40, 24]"],
                |_, x| vec![x[0].matmul(x[1]).softmax(-1).matmul(x[2])],
            ),
        ),
        (
            "of any number of keys by channel",
            graph(
                &["f32[B, 16, 32]", "f32[B, 32, H]", "f32[B, H, 32]"],
                |_, x| vec![(x[0] * 0.2).matmul(x[1]).softmax(-1).matmul(x[2])],
            ),
        ),
        (
            "of nothing but channels",
            graph(
                &["f32[3, 64, 20]", "f32[3, 64, 44]", "f32[3, 64, 44]"],
                |_, x| vec![by_channel(x)],
            ),
        ),
        (
            "of channels of odd images",
            graph(
                &["f32[3, 8, 21]", "f32[3, 8, 45]", "f32[3, 12, 45]"],
                |_, x| vec![by_channel(x).relu()],
            ),
        ),
        (
            "with a residual",
            graph(
                &["f32[4, 30, 16]", "f32[4, 30, 16]", "f32[4, 30, 16]"],
                |_, x| vec![scores(x).softmax(-1).matmul(x[2]) * 0.5 + x[0]],
            ),
        ),
        (
            "with a long epilogue",
            graph(&["f32[2, 24, 64]"; 3], |_, x| {
                vec![gelu(scores(x).softmax(-1).matmul(x[2]))]
            }),
        ),
    ]);
    graphs
}

/// Returns graphs that several kernels compute, because values in between have other readers or one kernel would be slower.
fn unfused_graphs() -> Vec<(&'static str, Graph)> {
    let types = ["f32[2, 24, 24]"; 3];
    let mut graphs = plain(&[
        (
            "few rows",
            ["f32[2, 4, 24]", "f32[2, 40, 24]", "f32[2, 40, 24]"],
        ),
        (
            "heads of 256 channels",
            ["f32[2, 24, 256]", "f32[2, 40, 256]", "f32[2, 40, 256]"],
        ),
        (
            "odd channels",
            ["f32[2, 24, 7]", "f32[2, 40, 7]", "f32[2, 40, 16]"],
        ),
    ]);
    graphs.extend([
        (
            "weights are an output",
            graph(&types, |_, x| {
                let weights = scores(x).softmax(-1);
                vec![weights.matmul(x[2]), weights]
            }),
        ),
        (
            "scores are read twice",
            graph(&types, |_, x| {
                let scores = scores(x);
                vec![scores.softmax(-1).matmul(x[2]) + scores]
            }),
        ),
        (
            "values are made of weights",
            graph(&types, |_, x| {
                let weights = scores(x).softmax(-1);
                vec![weights.matmul(weights)]
            }),
        ),
        (
            "softmax of columns",
            graph(&types, |_, x| vec![scores(x).softmax(-2).matmul(x[2])]),
        ),
        (
            "numbers of rows taken for those of columns",
            graph(&types, |_, x| {
                let scores = scores(x);
                let largest = scores.amax(&[-1], false).unsqueeze(1);
                let shifted = (scores - largest).exp();
                let sum = shifted.sum(&[-1], false).unsqueeze(1);
                vec![(shifted / sum).matmul(x[2])]
            }),
        ),
        (
            "scores of two products",
            graph(&types, |_, x| {
                let both = scores(x) + x[0].matmul(x[2]);
                vec![both.softmax(-1).matmul(x[2])]
            }),
        ),
    ]);
    graphs
}

/// Rotary embedding: rotates the halves of each head's channels by angles.
fn rotary_embedding<'g>(x: Value<'g>, [cosines, sines]: [Value<'g>; 2]) -> Value<'g> {
    let half = x.size(-1).floor_div(&2.into());
    let [first, second] = [0, 1].map(|at| x.narrow(-1, &half * at, half.clone()));
    let turned = x.builder().concat(&[-second, first], -1);
    x * cosines + turned * sines
}

/// Repeats each head of keys or values for two heads of queries (grouped-query attention).
fn repeat_heads(x: Value) -> Value {
    let [batch, heads, rows, width] = [0, 1, 2, 3].map(|axis| x.size(axis));
    let wide = vec![
        batch.clone(),
        heads.clone(),
        2.into(),
        rows.clone(),
        width.clone(),
    ];
    let flat = vec![batch, &heads * 2, rows, width];
    x.unsqueeze(2).expand(wide).reshape(flat)
}

/// Returns graphs in which other kernels write queries, keys and values, with the number of steps.
fn graphs_after_producers() -> Vec<(&'static str, usize, Graph)> {
    let types = ["f32[B, 20, 96]", "f32[20, 8]", "f32[20, 8]"];
    vec![
        (
            "rotated",
            3,
            graph(&types, |_, x| {
                let [q, k, v] = [0, 1, 2].map(|at| heads(x[0], at, [4, 8]));
                let [q, k] = [q, k].map(|heads| rotary_embedding(heads, [x[1], x[2]]));
                vec![causal(scores(&[q, k]) * 0.35).softmax(-1).matmul(v)]
            }),
        ),
        (
            "of norms of heads",
            3,
            graph(&types[..1], |_, x| {
                let [q, k, v] = [0, 1, 2].map(|at| heads(x[0], at, [4, 8]));
                let [q, k] = [q, k].map(|x| x * ((x * x).mean(&[-1], true) + 1e-5).rsqrt());
                vec![scores(&[q, k]).softmax(-1).matmul(v)]
            }),
        ),
        (
            "of keys and values that are repeated",
            2,
            graph(&["f32[B, 4, 20, 8]", "f32[B, 2, 20, 8]"], |_, x| {
                let k = repeat_heads(x[1] * x[1]);
                vec![scores(&[x[0], k]).softmax(-1).matmul(k)]
            }),
        ),
        (
            "of an image, between convolutions",
            4,
            graph(&["f32[B, 16, 6, 10]"], |b, x| {
                let filter = |name, ty: &str| b.weight(name, ty.parse().unwrap());
                let single = || vec![ConvAxis::padded(1, 0); 2];
                let all = x[0].conv(filter("all", "f32[96, 16, 1, 1]"), single(), 1);
                let heads = [x[0].size(0), 2.into(), 48.into(), 60.into()].to_vec();
                let all = all.reshape(heads);
                let [q, k, v] = [0, 1, 2].map(|at| all.narrow(2, 16 * at, 16));
                let image = [x[0].size(0), 32.into(), 6.into(), 10.into()].to_vec();
                let y = by_channel(&[q, k, v]).reshape(image);
                vec![y.conv(filter("last", "f32[16, 32, 1, 1]"), single(), 1)]
            }),
        ),
        (
            "of values computed in another order",
            2,
            graph(
                &["f32[B, 20, 16]", "f32[B, 24, 16]", "f32[B, 16, 24]"],
                |_, x| vec![scores(x).softmax(-1).matmul(x[2].exp().transpose(1, 2))],
            ),
        ),
    ]
}

fn kernels_of_attention(plan: &Plan) -> usize {
    let labels = plan.kernels.iter().map(|kernel| kernel.label.as_str());
    labels.filter(|label| *label == "attention").count()
}

#[test]
fn attention_is_one_kernel() {
    for lanes in [8, 16] {
        let device = samples::rasteriser_of(lanes);
        for (name, graph) in graphs() {
            let plan = plan::plan(&graph, &device).unwrap();
            let found = (plan.steps.len(), kernels_of_attention(&plan));
            // Thirteen rows are too few for sixteen lanes.
            let is_short = lanes == 16 && format!("{graph}").contains('H');
            assert!(found == (1, 1) || is_short, "{name}: {found:?}");
            let failures = samples::untranslatable(&plan);
            assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        }
    }
}

/// Keys and values are written in the layout of attention, and once, even if heads are repeated.
#[test]
fn producers_write_the_layout_of_attention() {
    let device = samples::device(FeatureLevel::Full);
    for (name, steps, graph) in graphs_after_producers() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        let found = (plan.steps.len(), kernels_of_attention(&plan));
        assert_eq!(found, (steps, 1), "{name}");
        if let Some(device) = &device {
            let plan = plan::plan(&graph, device.capabilities()).unwrap();
            assert!(agrees(device, &graph, plan), "{name} differs");
        }
    }
}

#[test]
fn attention_with_other_readers_is_not_fused() {
    for (name, graph) in unfused_graphs() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        assert_eq!(kernels_of_attention(&plan), 0, "{name}");
    }
    let (name, graph) = &graphs()[0];
    let plan = plan::plan(graph, &samples::rasteriser()).unwrap();
    let reason = plan.steps[0].choice.as_ref().unwrap().to_string();
    assert!(
        reason.ends_with("tiles of 8 queries, blocks of 8 keys"),
        "{reason}"
    );
    let causal = graphs().into_iter().find(|(name, _)| *name == "causal");
    let plan = plan::plan(&causal.unwrap().1, &samples::rasteriser()).unwrap();
    let text = &plan.kernels[0].wgsl;
    assert!(text.contains("block < min("), "{text}");
    let (plan, count) = samples::forced(graph, &samples::rasteriser(), KernelVariant::Portable);
    assert_eq!((kernels_of_attention(&plan), count), (0, 2), "{name}");
}

/// Only long epilogues run in an epilogue loop; softmax is not part of an epilogue.
#[test]
fn only_long_epilogues_of_attention_are_loops() {
    for (name, graph) in graphs() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        let is_in_turns = plan.kernels[0].wgsl.contains("for (var turn = 0u;");
        assert_eq!(is_in_turns, name == "with a long epilogue", "{name}");
    }
}

#[test]
fn unfused_attention_agrees() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for (name, graph) in unfused_graphs() {
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        assert!(
            agrees(&device, &graph, plan),
            "{name} differs from the oracle"
        );
    }
}

/// Fully masked rows, rows that begin with minus infinity, and NaN.
#[test]
fn attention_of_infinities_and_nan_agrees() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let types = ["f32[16, 8]", "f32[24, 8]", "f32[24, 8]", "f32[16, 24]"];
    let with = |of: for<'g> fn(Value<'g>) -> Value<'g>| {
        graph(&types, |_, x| vec![of(scores(x) + x[3]).matmul(x[2])])
    };
    let mut seed = 5;
    let mut inputs: Vec<Tensor> = [[16, 8], [24, 8], [24, 8]]
        .map(|shape| crate::tensor(&mut seed, DType::F32, &shape))
        .into();
    let mut mask = vec![0f32; 16 * 24];
    mask[..24].fill(f32::NEG_INFINITY);
    mask[24..24 + 23].fill(f32::NEG_INFINITY);
    mask[2 * 24..2 * 24 + 9].fill(f32::NEG_INFINITY);
    mask[3 * 24 + 5] = f32::NAN;
    mask[4 * 24 + 20] = f32::INFINITY;
    mask[5 * 24 + 1] = -1e30;
    mask[6 * 24] = 3e38;
    inputs.push(Tensor::from_vec(vec![16, 24], mask).unwrap());
    for graph in [with(without_nan), with(|x| x.softmax(-1))] {
        let expected = interp::run(&graph, &BTreeMap::new(), &inputs).unwrap();
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        let program = Program::new(
            &device,
            plan,
            &Default::default(),
            ProgramOptions::default(),
        );
        let found = program.unwrap().run(&inputs).unwrap();
        let pairs = found[0].to_f64().into_iter().zip(expected[0].to_f64());
        for (place, (found, expected)) in pairs.enumerate() {
            let is_same = (found - expected).abs() < 1e-5 || found.is_nan() && expected.is_nan();
            assert!(is_same, "{found} for {expected} at {place}");
        }
    }
}

/// An attention whose result feeds the scores of another one.
#[test]
fn attention_of_attention_agrees() {
    let of_two = graph(
        &[
            "f32[2, 24, 16]",
            "f32[2, 40, 16]",
            "f32[2, 40, 32]",
            "f32[2, 32, 8]",
        ],
        |_, x| vec![scores(x).softmax(-1).matmul(x[2]).softmax(-1).matmul(x[3])],
    );
    let plan = plan::plan(&of_two, &samples::rasteriser()).unwrap();
    assert_eq!(kernels_of_attention(&plan), 1);
    if let Some(device) = samples::device(FeatureLevel::Full) {
        let plan = plan::plan(&of_two, device.capabilities()).unwrap();
        assert!(agrees(&device, &of_two, plan));
    }
}

/// Attention without keys returns zeros.
#[test]
fn attention_of_no_keys_agrees() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = &plain(&[("of no keys", ["f32[16, 8]", "f32[H, 8]", "f32[H, 8]"])])[0].1;
    let plan = plan::plan(graph, device.capabilities()).unwrap();
    let program = Program::new(
        &device,
        plan,
        &Default::default(),
        ProgramOptions::default(),
    );
    let inputs = [[16, 8], [0, 8], [0, 8]].map(|shape| samples::tensor(&shape, 1));
    let found = program.unwrap().run(&inputs).unwrap();
    let expected = interp::run(graph, &BTreeMap::new(), &inputs).unwrap();
    assert_eq!(found[0].to_f64(), expected[0].to_f64());
}
