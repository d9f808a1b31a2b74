//! Simple cases of `test/jit/test_tracer.py`: functions of tensors, their inputs and outputs.

use std::collections::BTreeMap;

use onionskin::trace::{TracedTensor, call, is_tracing, trace_fn};

fn example(shape: &[usize]) -> TracedTensor {
    let count = shape.iter().product::<usize>();
    let data = (0..count).map(|i| i as f32 / 4.0 - 1.0);
    TracedTensor::from_vec(shape, data.collect())
}

/// Counterpart: `test_simple`.
#[test]
fn a_function_computes_the_same_traced_and_for_other_sizes() {
    let function = |(x, y): (TracedTensor, TracedTensor)| (&x + &y) * 0.5 - 1.0 / (&x * &x + 2.0);
    let traced = trace_fn((example(&[2, 3]), example(&[3])), function).unwrap();
    for rows in [1, 2, 5] {
        let inputs = || (example(&[rows, 3]), example(&[3]));
        let wanted = function(inputs()).to_vec::<f32>().unwrap();
        let found: TracedTensor = traced.call(inputs()).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), wanted);
    }
}

/// Counterpart: `run_ge_tests`, whose inputs broadcast. The example's sizes decide which operands are expanded; others are rejected.
#[test]
fn broadcasting_is_that_of_the_example() {
    let add = |(x, y): (TracedTensor, TracedTensor)| &x + &y;
    let traced = trace_fn((example(&[2, 3]), example(&[2, 1])), add).unwrap();
    for (rows, columns) in [(5, 3), (1, 7)] {
        let inputs = || (example(&[rows, columns]), example(&[rows, 1]));
        let found: TracedTensor = traced.call(inputs()).unwrap();
        assert_eq!(found.to_host().unwrap(), add(inputs()).to_host().unwrap());
    }
    let other = (example(&[2, 3]), example(&[2, 3]));
    let error = traced.call::<_, TracedTensor>(other).unwrap_err();
    assert_eq!(
        error.message(),
        "input x_1 is f32[x_0, 1], not of shape [2, 3]"
    );
}

/// Counterpart: `test_repeated_input`, `test_repeated_output`.
#[test]
fn one_tensor_twice_is_two_inputs_and_one_value_twice_is_two_outputs() {
    let x = example(&[2]);
    let traced = trace_fn((x.clone(), x), |(a, b)| {
        let sum = a + b;
        (sum.clone(), sum)
    })
    .unwrap();
    let graph = traced.graph("forward").unwrap();
    assert_eq!(graph.inputs.len(), 2);
    assert_eq!(graph.nodes.len(), 1);
    assert_eq!(graph.outputs[0], graph.outputs[1]);
}

#[test]
fn maps_go_in_and_come_out() {
    let inputs = BTreeMap::from([
        ("a".to_string(), example(&[2])),
        ("b".to_string(), example(&[2])),
    ]);
    let traced = trace_fn(inputs.clone(), |x: BTreeMap<String, TracedTensor>| {
        BTreeMap::from([("sum".to_string(), &x["a"] + &x["b"])])
    })
    .unwrap();
    let found: BTreeMap<String, TracedTensor> = traced.call(inputs.clone()).unwrap();
    assert_eq!(found["sum"].to_vec::<f32>().unwrap(), [-2.0, -1.5]);
    let missing: BTreeMap<String, TracedTensor> = inputs.into_iter().take(1).collect();
    let error = traced.call::<_, TracedTensor>(missing).unwrap_err();
    assert_eq!(error.message(), "missing key \"b\" in x, got [\"a\"]");
}

#[test]
fn a_step_that_fails_is_told_with_its_line() {
    let line = line!() + 1;
    let error = trace_fn(example(&[2, 3]), |x| &x + &example(&[4])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("do not broadcast"), "{text}");
    assert!(text.contains(&format!("basics.rs:{line}")), "{text}");
}

/// Counterpart: `test_trace_size`.
#[test]
fn sizes_generalise() {
    let function = |x: TracedTensor| {
        let sizes = (x.dim(1) * 2, x.dim(0), 2);
        call("view", vec![(&x).into(), sizes.into()], Vec::new()).swap_remove(0)
    };
    let traced = trace_fn(example(&[5, 2, 4]), function).unwrap();
    let found: TracedTensor = traced.call(example(&[3, 7, 4])).unwrap();
    assert_eq!(found.shape(), [14, 3, 2]);
}

/// Counterpart: "Tracing can't be nested".
#[test]
fn traces_are_not_nested() {
    let error = trace_fn(example(&[2]), |x| {
        assert!(is_tracing());
        trace_fn(example(&[2]), |y| y).map(|_| x)
    })
    .unwrap_err();
    assert!(error.message().contains("can't be nested"), "{error}");
    assert!(!is_tracing());
}
