//! Gradients of graphs whose modules are computed again in the backward pass.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use onionskin::error::{Result, SourcePlace};
use onionskin::gpu::{Footprint, portable};
use onionskin::grad::{GradientOptions, Loss};
use onionskin::interp;
use onionskin::ir::{Graph, GraphModule, Op};
use onionskin::model::BackwardOptions;
use onionskin::plan;
use onionskin::{Model, Tensor, pass};

const DIGITS: &str = "examples/digits/digits.pt";

fn options(patterns: &[&str]) -> GradientOptions {
    GradientOptions {
        recompute: patterns.iter().map(ToString::to_string).collect(),
    }
}

/// A graph whose nodes belong to modules: the first results of nodes, each with its module.
fn in_modules(text: &str, modules: &[(&str, &str)]) -> Graph {
    let mut graph: Graph = text.parse().unwrap();
    let names: Vec<String> = graph
        .nodes
        .iter()
        .map(|node| graph.value(node.results[0]).name.clone())
        .collect();
    for (node, name) in graph.nodes.iter_mut().zip(names) {
        if let Some((_, module)) = modules.iter().find(|(known, _)| *known == name) {
            node.place = SourcePlace {
                module: module.to_string(),
                location: None,
            };
        }
    }
    graph
}

fn gradient(graph: &Graph, patterns: &[&str]) -> Result<Graph> {
    graph.gradient_with(&Loss::Sum, &graph.inputs, &options(patterns))
}

fn count(graph: &Graph, name: &str) -> usize {
    let nodes = graph.nodes.iter();
    nodes.filter(|node| node.op.name() == name).count()
}

/// Two layers, the second of which calls a module twice.
fn two_layers() -> Graph {
    let text = "graph f(x: f64[4], w: f64[4]) {\n  a = sin x\n  b = mul a, w\n  c = exp b\n  d = tanh c\n  e = exp d\n  \
                g = tanh e\n  return g\n}";
    let modules = [
        ("a", "layers.0"),
        ("b", "layers.0"),
        ("c", "layers.1.block"),
        ("d", "layers.1.block"),
        ("e", "layers.1.block#1"),
        ("g", "layers.1.block#1"),
    ];
    in_modules(text, &modules)
}

#[test]
fn modules_are_computed_again_and_gradients_stay() {
    let graph = two_layers();
    let inputs = [[0.5, -1.0, 0.25, 2.0], [1.5, 0.5, -2.0, 0.1]];
    let inputs = inputs.map(|row| Tensor::from_vec([4], row.to_vec()).unwrap());
    let run = |graph: &Graph| {
        let outputs = interp::run(graph, &Default::default(), &inputs).unwrap();
        outputs.iter().map(Tensor::to_f64).collect::<Vec<_>>()
    };
    let kept = gradient(&graph, &[]).unwrap();
    let expected = run(&kept);
    let optimized = pass::optimize(&kept).unwrap();
    assert_eq!(
        (count(&optimized, "exp"), count(&optimized, "tanh")),
        (2, 2)
    );
    // The output g itself is kept, since it is a result.
    for (patterns, exps) in [
        (&["layers.*"][..], 4),
        (&["layers.1.block"], 4),
        (&["layers.0"], 2),
    ] {
        let again = gradient(&graph, patterns).unwrap();
        assert_eq!(run(&again), expected, "{patterns:?}");
        let optimized = pass::optimize(&again).unwrap();
        assert_eq!(run(&optimized), expected, "{patterns:?}");
        assert_eq!(count(&optimized, "exp"), exps, "{patterns:?}\n{optimized}");
        assert_eq!(count(&optimized, "optimization_barrier"), 0);
    }
}

#[test]
fn branches_are_computed_again() {
    let text = "graph f(x: f64[3], w: f64[3]) -> f64[3] {
  low: f64[] = reduce x, function=sum, axes=[0]
  c: bool[] = gt low, 0.0
  y: f64[3] = if c, x, w {
    graph then(a: f64[3], b: f64[3]) -> f64[3] {
      r: f64[3] = mul a, b
      return r
    }
    graph otherwise(a: f64[3], b: f64[3]) -> f64[3] {
      r: f64[3] = tanh b
      return r
    }
  }
  z: f64[3] = exp y
  return z
}
";
    let modules = [("low", "gate"), ("c", "gate"), ("y", "gate"), ("z", "head")];
    let graph = in_modules(text, &modules);
    let inputs = [[0.75f64, 1.0, -0.5], [1.0f64, 2.0, -3.0]];
    let inputs = inputs.map(|row| Tensor::from_vec([3], row.to_vec()).unwrap());
    let run = |graph: &Graph| interp::run(graph, &Default::default(), &inputs).unwrap();
    let (kept, again) = (
        gradient(&graph, &[]).unwrap(),
        gradient(&graph, &["gate"]).unwrap(),
    );
    assert_eq!(run(&again), run(&kept));
    assert!(count(&again, "if") > count(&kept, "if"), "{again}");
}

#[test]
fn a_pattern_that_matches_nothing_lists_the_modules() {
    let error = gradient(&two_layers(), &["layers.*", "blocks"]).unwrap_err();
    assert!(
        error.to_string().contains("no module matches blocks"),
        "{error}"
    );
    assert_eq!(error.advice(), Some("modules are layers.0, layers.1.block"));
}

/// A chain of layers, each of which is computed again from its input.
#[test]
fn memory_shrinks() {
    let layer = |index: usize| {
        let [x, a, b, y] = [4 * index, 4 * index + 1, 4 * index + 2, 4 * index + 3];
        format!(
            "  v{a} = aten.matmul v{x}, w{index}\n  v{b} = aten.sigmoid v{a}\n  v{y} = aten.matmul v{b}, w{index}\n  v{} = \
             aten.tanh v{y}\n",
            y + 1
        )
    };
    let weights: Vec<String> = (0..4)
        .map(|index| format!("w{index}: f32[64, 64]"))
        .collect();
    let layers: String = (0..4).map(layer).collect();
    let text = format!(
        "graph forward(v0: f32[512, 64], {}) {{\n{layers}  return v16\n}}",
        weights.join(", ")
    );
    let names: Vec<(String, String)> = (1..17)
        .map(|value| (format!("v{value}"), format!("layers.{}", (value - 1) / 4)))
        .collect();
    let names: Vec<(&str, &str)> = names
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let graph = in_modules(&text, &names);
    let temporaries = |patterns: &[&str]| {
        let graph = pass::optimize(&gradient(&graph, patterns).unwrap()).unwrap();
        let plan = plan::plan(&graph, &portable()).unwrap();
        Footprint::of(&plan, &portable(), &Default::default())
            .unwrap()
            .temporaries
    };
    let value = 512 * 64 * 4;
    let (kept, again) = (temporaries(&[]), temporaries(&["layers.*"]));
    // Each layer but the last keeps its sigmoid no longer.
    assert!(again + 3 * value <= kept, "{again} of {kept} bytes");
}

#[test]
fn convolutions_of_a_network_are_computed_again() {
    let model = Model::open(DIGITS).unwrap();
    let backward = |patterns: &[&str]| {
        let options = BackwardOptions {
            gradient: options(patterns),
            ..BackwardOptions::default()
        };
        model.with_backward("forward", &options).unwrap()
    };
    let convs = |model: &Model| {
        let module: GraphModule = model.import_method("forward", None).unwrap();
        let graph = pass::optimize(&module.graphs[0]).unwrap();
        let nodes = graph.nodes.iter();
        nodes
            .filter(|node| matches!(&node.op, Op::Primitive(_)) && node.op.name() == "conv")
            .count()
    };
    let (kept, again) = (backward(&[]), backward(&["features"]));
    assert!(
        convs(&again) > convs(&kept),
        "{} and {}",
        convs(&again),
        convs(&kept)
    );
    let image = Tensor::full(onionskin::dtype::DType::F32, [2, 1, 8, 8], 0.25).unwrap();
    let run = |model: &Model| {
        let session = model
            .compile(&onionskin::Device::Host, &Default::default())
            .unwrap();
        session.run(std::slice::from_ref(&image)).unwrap()
    };
    assert_eq!(run(&again), run(&kept));
}
