//! Lifted graphs take weights and states as inputs and return new states.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and print the checks that they skip"
)]

use onionskin::Model;
use onionskin::cases::{self, CaseArchive};
use onionskin::dtype::DType;
use onionskin::interp;
use onionskin::ir::{Graph, GraphModule, NamedTree, Weights};
use onionskin::pass::{dce, lift, unlift};
use onionskin::tensor::Tensor;
use onionskin::trace::check::{example, inputs};

/// Checks that a lifted graph computes the same without weights of its own, and that lifting can be undone.
fn check_lifted(module: &GraphModule, graph: &Graph, given: &[Tensor]) -> GraphModule {
    let lifted = lift(module);
    lifted
        .verify()
        .unwrap_or_else(|error| panic!("{error}\n{lifted}"));
    let other = lifted.graph(&graph.name).unwrap();
    let weights = other
        .input_trees
        .iter()
        .filter_map(|input| input.name.strip_prefix('$'));
    let weights = weights.map(|name| module.weights[name].clone());
    let all: Vec<Tensor> = given.iter().cloned().chain(weights).collect();
    let expected = interp::run(graph, &module.weights, given).unwrap();
    assert_eq!(
        interp::run(other, &Weights::new(), &all).unwrap(),
        expected,
        "{lifted}"
    );
    let text: GraphModule = lifted.to_string().parse().unwrap();
    assert!(text.graphs == lifted.graphs, "{lifted}");
    let unlifted = unlift(&lifted).unwrap();
    unlifted
        .verify()
        .unwrap_or_else(|error| panic!("{error}\n{unlifted}"));
    let again = unlifted.graph(&graph.name).unwrap();
    assert_eq!(
        interp::run(again, &module.weights, given).unwrap(),
        expected
    );
    if graph.nodes.iter().all(|node| node.bodies().is_empty()) {
        assert!(unlifted.graphs == module.graphs, "{unlifted}");
    }
    lifted
}

#[test]
fn models_are_lifted() {
    let cases = cases::find(std::path::Path::new("tests/fixtures/cases/models")).unwrap();
    assert!(!cases.is_empty());
    for found in cases {
        let case = found.load().unwrap();
        let CaseArchive::Path(path) = &case.archive else {
            panic!("{} is in no folder", found.name);
        };
        let call = &case.sets[0].calls[0];
        let module = Model::open(path).unwrap().import_for(&call.inputs).unwrap();
        let graph = module.graphs.first().unwrap();
        check_lifted(
            &module,
            graph,
            &inputs(graph, &module, &call.inputs).unwrap(),
        );
    }
}

fn module(text: &str, weights: &[(&str, f64)]) -> GraphModule {
    let mut module: GraphModule = text.parse().unwrap();
    let weights = weights.iter().map(|(name, value)| {
        let tensor = Tensor::full(DType::F32, [3], *value).unwrap();
        (name.to_string(), tensor)
    });
    module.weights.extend(weights);
    module
}

fn names(inputs: &[NamedTree]) -> Vec<&str> {
    inputs.iter().map(|input| input.name.as_str()).collect()
}

#[test]
fn states_are_returned() {
    let text = "weight scale: f32[3]
weight hidden: f32[3]
state hidden = #0 of $hidden
graph step(x: f32[3], hidden: f32[3]) {
  argument x = #0
  reads hidden = #1
  result #0
  writes hidden = #1
  a = add x, hidden
  b = mul a, $scale
  return a, b
}";
    let module = module(text, &[("scale", 2.0), ("hidden", 0.5)]);
    let graph = &module.graphs[0];
    let given = inputs(graph, &module, &example(graph).unwrap()).unwrap();
    let lifted = check_lifted(&module, graph, &given);
    let graph = &lifted.graphs[0];
    assert_eq!(names(&graph.input_trees), ["x", "@hidden", "$scale"]);
    assert!(graph.reads.is_empty() && graph.writes.is_empty());
    assert!(
        lifted
            .to_string()
            .contains("result namedtuple onionskin.Lifted(result=#0, hidden=#1)"),
        "{lifted}"
    );
}

#[test]
fn nested_graphs_get_their_weights() {
    let text = "weight w: f32[3]
weight b: f32[3]
graph f(c: bool[], w: f32[3]) {
  y = if c, w {
    graph then(w: f32[3]) {
      z = loop 3, true, w, carried=1 {
        graph body(round: i64[], x: f32[3]) {
          more: bool[] = full true, dtype=bool, shape=[]
          n = mul x, $w
          m = add n, $b
          return more, m
        }
      }
      return z
    }
    graph otherwise(w: f32[3]) {
      return w
    }
  }
  s = sub y, $w
  return s
}";
    let module = module(text, &[("w", 2.0), ("b", 0.25)]);
    let graph = &module.graphs[0];
    let given = |taken: f64| {
        let taken = Tensor::full(DType::Bool, [], taken).unwrap();
        vec![taken, Tensor::full(DType::F32, [3], 1.5).unwrap()]
    };
    check_lifted(&module, graph, &given(0.0));
    let lifted = check_lifted(&module, graph, &given(1.0));
    assert_eq!(names(&lifted.graphs[0].input_trees), ["c", "w", "$b", "$w"]);
}

/// Passes may run between lifting and its reversal.
#[test]
fn missing_weights_are_errors() {
    let text = "weight w: f32[3]\ngraph f(x: f32[3]) {\n  y = add x, $w\n  return y\n}";
    let mut lifted = lift(&module(text, &[("w", 2.0)]));
    lifted.graphs[0] = dce(&lifted.graphs[0]).unwrap();
    assert!(unlift(&lifted).unwrap().graphs == module(text, &[]).graphs);
    lifted.weights.clear();
    let error = unlift(&lifted).unwrap_err();
    assert!(
        error.to_string().contains("the module has no weight w"),
        "{error}"
    );
    let behind = "graph f(w: f32[3], x: f32[3]) {
  argument \"$w\" = #0
  argument x = #1
  return x
}";
    let error = unlift(&module(behind, &[("w", 2.0)])).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("an input follows the weight w; weights must be the last inputs"),
        "{error}"
    );
}
