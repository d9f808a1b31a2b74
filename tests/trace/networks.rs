//! Traces of a whole network in one call: the forms of its inputs.

use std::collections::BTreeMap;

use onionskin::nn::{Linear, ReLU, Sequential};
use onionskin::trace::check::CheckOptions;
use onionskin::trace::{
    Forward, Module, Parameter, TraceOptions, TracedTensor, Tree, init, trace, trace_checked,
    trace_with,
};

/// A network that adds a bias.
#[derive(Module)]
struct Net {
    bias: Parameter,
}

fn net() -> Net {
    Net {
        bias: Parameter::new([2], init::ones()),
    }
}

fn x() -> TracedTensor {
    TracedTensor::from([[1f32, 2.0]])
}

#[derive(Tree)]
struct Pair {
    left: TracedTensor,
    right: Option<TracedTensor>,
}

/// Generic structures are inputs too.
#[derive(Tree)]
struct Boxed<T>(T);

/// Implements `Forward` for inputs of a type.
macro_rules! forward {
    ($($input:ty, |$pattern:pat_param| $sum:expr;)*) => {$(
        impl Forward<$input> for Net {
            type Output = TracedTensor;

            fn forward(&self, $pattern: $input) -> TracedTensor {
                $sum + &self.bias
            }
        }
    )*};
}

forward! {
    &TracedTensor, |x| x;
    (&TracedTensor, &TracedTensor), |(x, y)| x + y;
    (&TracedTensor, Option<&TracedTensor>), |(x, y)| y.map_or_else(|| x.clone(), |y| x + y);
    (&TracedTensor, (&[TracedTensor], &[TracedTensor; 2])), |(x, (list, array))| x + &list[0] + &array[1];
    &BTreeMap<String, TracedTensor>, |map| &map["x"];
    &Pair, |pair| pair.right.as_ref().map_or_else(|| pair.left.clone(), |right| &pair.left + right);
    &Boxed<TracedTensor>, |boxed| &boxed.0;
}

#[test]
fn networks_take_their_inputs_by_reference() {
    let (net, pair) = (net(), |right| Pair { left: x(), right });
    let map = BTreeMap::from([("x".to_string(), x())]);
    let traces = [
        (1, trace(&net, x())),
        (2, trace(&net, (x(), x()))),
        (1, trace(&net, (x(), None::<TracedTensor>))),
        (2, trace(&net, (x(), Some(x())))),
        (4, trace(&net, (x(), (vec![x()], [x(), x()])))),
        (1, trace(&net, map)),
        (2, trace(&net, pair(Some(x())))),
        (1, trace(&net, pair(None))),
        (1, trace(&net, Boxed(x()))),
    ];
    for (inputs, traced) in traces {
        let traced = traced.unwrap();
        assert_eq!(traced.graph("forward").unwrap().inputs.len(), inputs);
        let weights: Vec<&String> = traced.module.weights.keys().collect();
        assert_eq!(weights, ["bias"]);
    }
}

#[test]
fn a_trace_of_a_network_serves_other_sizes() {
    let traced = trace(&net(), (x(), x())).unwrap();
    let rows = || TracedTensor::from([[1f32, 2.0], [3.0, 4.0]]);
    let sum: TracedTensor = traced.call((rows(), rows())).unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0, 9.0]);
}

#[test]
fn modules_of_the_library_have_the_line_of_the_trace() {
    let chain = Sequential::new().add(Linear::new(2, 3)).add(ReLU::new());
    let line = line!() + 1;
    let traced = trace(&chain, x()).unwrap();
    let graph = traced.graph("forward").unwrap();
    let paths: Vec<&str> = graph.nodes.iter().map(|node| &*node.place.module).collect();
    assert_eq!(paths, ["0", "1"]);
    for node in &graph.nodes {
        let location = node.place.location.as_ref().unwrap();
        assert!(location.file.ends_with("networks.rs"), "{location}");
        assert_eq!(location.line, line);
    }
}

#[test]
fn options_name_the_arguments() {
    let options = TraceOptions {
        names: vec!["left".into(), "right".into()],
        ..TraceOptions::default()
    };
    let traced = trace_with(&net(), (x(), x()), &options).unwrap();
    let graph = traced.graph("forward").unwrap();
    let names: Vec<&str> = graph.input_trees.iter().map(|input| &*input.name).collect();
    assert_eq!(names, ["left", "right"]);
}

#[test]
fn a_checked_trace_has_a_report() {
    let (traced, report) = trace_checked(&net(), x(), &CheckOptions::default()).unwrap();
    assert!(traced.module.weights.contains_key("bias"));
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn an_operator_that_fails_is_an_error_of_the_trace() {
    let other = TracedTensor::from([1f32, 2.0, 3.0]);
    let error = trace(&net(), other).unwrap_err().to_string();
    assert!(error.contains("do not broadcast"), "{error}");
    assert!(error.contains("networks.rs"), "{error}");
}
