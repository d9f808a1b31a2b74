//! Kernel deduplication: kernels that differ in numbers only are one kernel on a rasteriser, where compiling once saves more
//! than reading the numbers as sizes costs.

use onionskin::ir::{Graph, Value};

use crate::samples;
use crate::*;

/// Applies a layer to inputs of several sizes.
fn apply_to_each(types: &[&str], layer: fn(Value) -> Value) -> Graph {
    samples::graph(types, |_, x| x.iter().map(|x| layer(*x)).collect())
}

/// The softmax of the rows of a matrix.
fn softmax(x: Value) -> Value {
    x.softmax(1)
}

/// Subtracts means, which divide by the length, from rows, and multiplies by means of squares.
fn centred(x: Value) -> Value {
    let x = x - x.mean(&[1], true);
    x * (x * x).mean(&[1], true)
}

/// A transposition with pointwise work.
fn transposed(x: Value) -> Value {
    x.permute([0, 2, 1]).relu() * 0.5
}

/// Sums over the middle axis.
fn middle_sums(x: Value) -> Value {
    x.sum(&[1], false)
}

/// Returns graphs whose layers differ only in sizes, some of them odd, with the number of their kernels.
fn layers() -> Vec<(&'static str, Graph, usize)> {
    let attention = |sizes: &[[i64; 3]]| {
        let types: Vec<String> = sizes
            .iter()
            .flat_map(|[queries, keys, depth]| {
                [
                    format!("f32[{queries}, {depth}]"),
                    format!("f32[{depth}, {keys}]"),
                ]
            })
            .collect();
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        samples::graph(&types, |_, x| {
            x.chunks(2).map(|pair| pair[0].dot(pair[1])).collect()
        })
    };
    vec![
        (
            "rows of a length",
            apply_to_each(&["f32[7, 16]", "f32[33, 16]", "f32[130, 16]"], softmax),
            1,
        ),
        (
            "rows of several lengths and their means",
            apply_to_each(&["f32[9, 40]", "f32[5, 56]", "f32[6, 48]"], centred),
            1,
        ),
        (
            "rows of odd lengths",
            apply_to_each(&["f32[9, 35]", "f32[5, 39]"], centred),
            1,
        ),
        (
            "rows of any number",
            apply_to_each(&["f32[9, 40]", "f32[B, 40]", "f32[S, 40]"], softmax),
            1,
        ),
        (
            "other orders",
            apply_to_each(&["f32[5, 24, 7]", "f32[3, 16, 21]"], transposed),
            1,
        ),
        (
            "other orders by blocks",
            apply_to_each(&["f32[5, 24, 8]", "f32[3, 12, 20]"], transposed),
            1,
        ),
        (
            "other orders of odd sizes",
            apply_to_each(&["f32[3, 5, 7]", "f32[5, 9, 11]"], transposed),
            1,
        ),
        (
            "products of values",
            attention(&[[128, 80, 64], [256, 88, 64]]),
            1,
        ),
        (
            "products of values of odd sizes",
            attention(&[[129, 69, 64], [129, 73, 64]]),
            1,
        ),
    ]
}

#[test]
fn layers_that_differ_in_numbers_share_a_kernel() {
    let device = samples::device(FeatureLevel::Full);
    let device = device.filter(|device| device.capabilities().software);
    for (name, graph, kernels) in layers() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        assert_eq!(plan.kernels.len(), kernels, "{name}");
        assert_eq!(plan.steps.len(), graph.outputs.len(), "{name}");
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        if let Some(device) = &device {
            let plan = plan::plan(&graph, device.capabilities()).unwrap();
            let distance = worst_error(device, &graph, plan);
            assert!(distance <= 1.0, "{name}: {distance}");
        }
    }
}

/// Kernels are not shared where runs would lose more time than the start saves: divisions to index many elements, and loops
/// that would not be unrolled. Nor are they shared on GPUs.
#[test]
fn kernels_are_not_shared_where_that_is_slower() {
    for (name, graph, device) in [
        (
            "many elements",
            apply_to_each(&["f32[40, 480, 700]", "f32[36, 240, 1204]"], transposed),
            samples::rasteriser(),
        ),
        (
            "short loops",
            apply_to_each(&["f32[64, 6, 5]", "f32[32, 7, 5]"], middle_sums),
            samples::rasteriser(),
        ),
        (
            "a GPU",
            apply_to_each(&["f32[3, 5, 7]", "f32[5, 9, 11]"], transposed),
            samples::capabilities(),
        ),
    ] {
        let plan = plan::plan(&graph, &device).unwrap();
        assert_eq!(plan.kernels.len(), 2, "{name}");
    }
}
