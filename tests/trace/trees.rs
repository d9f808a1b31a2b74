//! Structures of inputs and outputs: the checks of `test/jit/test_tracer.py` for tuples, lists, maps and named tuples.

use std::collections::{BTreeMap, HashMap};

use onionskin::error::Error;
use onionskin::ir::{Graph, TreeSpec as Shape};
use onionskin::trace::check::CheckOptions;
use onionskin::trace::{
    Size, TraceOptions, TracedTensor, Tree, trace_fn, trace_fn_checked, trace_fn_with,
};

fn x(values: &[f32]) -> TracedTensor {
    TracedTensor::from_vec([values.len()], values.to_vec())
}

fn floats(tensor: &TracedTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn map<T>(entries: impl IntoIterator<Item = (&'static str, T)>) -> BTreeMap<String, T> {
    let entries = entries.into_iter();
    entries
        .map(|(key, value)| (key.to_string(), value))
        .collect()
}

/// Returns the error of a trace that is rejected for its inputs.
fn trace_error<I: Tree>(inputs: I) -> Error {
    trace_fn(inputs, |_| x(&[1.0])).unwrap_err()
}

fn names(graph: &Graph) -> Vec<&str> {
    let inputs = graph.inputs.iter();
    inputs.map(|id| graph.value(*id).name.as_str()).collect()
}

#[derive(Tree)]
struct Boxes {
    corners: TracedTensor,
    scores: Option<TracedTensor>,
}

#[derive(Tree)]
struct Pair<T>(T, T);

#[derive(Tree)]
struct Named<T> {
    r#type: T,
    d: BTreeMap<String, Vec<T>>,
}

/// Counterpart: `test_input_flatten`.
#[test]
fn nested_tuples_are_flattened_in_order() {
    let inputs = || ((x(&[1.0]), (x(&[2.0]), x(&[3.0]))), x(&[4.0]));
    type Inputs = ((TracedTensor, (TracedTensor, TracedTensor)), TracedTensor);
    let traced = trace_fn(inputs(), |((a, (b, c)), d): Inputs| {
        a + b * 10 + c * 100 + d * 1000
    })
    .unwrap();
    assert_eq!(
        names(traced.graph("forward").unwrap()),
        ["x_0", "x_1_0", "x_1_1", "x_1"]
    );
    let y: TracedTensor = traced.call(inputs()).unwrap();
    assert_eq!(floats(&y), [4321.0]);
}

/// Counterpart: `test_trace_namedtuple`.
#[test]
fn fields_of_a_struct_are_arguments_by_name() {
    let boxes = || Boxes {
        corners: x(&[1.0, 2.0]),
        scores: Some(x(&[3.0])),
    };
    let traced = trace_fn(boxes(), |b: Boxes| b.corners * b.scores.unwrap()).unwrap();
    let graph = traced.graph("forward").unwrap();
    assert_eq!(names(graph), ["corners", "scores"]);
    let y: TracedTensor = traced.call(boxes()).unwrap();
    assert_eq!(floats(&y), [3.0, 6.0]);
    let without = Boxes {
        corners: x(&[1.0, 2.0]),
        scores: None,
    };
    let error = traced.call::<_, TracedTensor>(without).unwrap_err();
    assert_eq!(
        error.message(),
        "argument scores does not fit the signature"
    );
}

#[test]
fn a_struct_comes_out_as_a_named_tuple() {
    let traced = trace_fn(x(&[1.0, 2.0]), |x| Boxes {
        scores: None,
        corners: x * 2,
    })
    .unwrap();
    let fields = vec![
        ("corners".to_string(), Shape::Tensor(0)),
        (
            "scores".to_string(),
            Shape::Constant(onionskin::ir::TreeConstant::None),
        ),
    ];
    let graph = traced.graph("forward").unwrap();
    assert_eq!(
        graph.output_tree,
        Some(Shape::NamedTuple("Boxes".to_string(), fields))
    );
    let boxes: Boxes = traced.call(x(&[3.0, 4.0])).unwrap();
    assert_eq!(floats(&boxes.corners), [6.0, 8.0]);
    assert!(boxes.scores.is_none());
}

#[test]
fn unnamed_and_generic_structs_are_tuples_of_what_they_hold() {
    let pairs = Pair(Pair(x(&[1.0]), x(&[2.0])), Pair(x(&[3.0]), x(&[4.0])));
    let traced = trace_fn(pairs, |Pair(a, b): Pair<Pair<TracedTensor>>| {
        Pair(a.0 + b.1, a.1 + b.0)
    })
    .unwrap();
    let pairs = Pair(Pair(x(&[1.0]), x(&[2.0])), Pair(x(&[3.0]), x(&[5.0])));
    let Pair(first, second): Pair<TracedTensor> = traced.call(pairs).unwrap();
    assert_eq!((floats(&first), floats(&second)), (vec![6.0], vec![5.0]));
}

#[test]
fn a_struct_is_read_from_maps_and_tuples_too() {
    let entries = map([
        ("scores", x(&[2.0])),
        ("corners", x(&[1.0])),
        ("more", x(&[3.0])),
    ]);
    let traced = trace_fn(
        entries.clone(),
        |entries: BTreeMap<String, TracedTensor>| entries,
    )
    .unwrap();
    let boxes: Boxes = traced.call(entries.clone()).unwrap();
    assert_eq!(floats(&boxes.corners), [1.0]);
    let error = traced
        .call::<_, Named<TracedTensor>>(entries)
        .map(drop)
        .unwrap_err();
    assert_eq!(
        error.message(),
        r#"missing field "type" in output, got ["corners", "more", "scores"]"#
    );
    let traced = trace_fn(x(&[1.0]), |x| (x.clone(), x)).unwrap();
    let boxes: Boxes = traced.call(x(&[7.0])).unwrap();
    assert_eq!(floats(&boxes.scores.unwrap()), [7.0]);
    let error = traced
        .call::<_, Pair<Pair<TracedTensor>>>(x(&[7.0]))
        .map(drop)
        .unwrap_err();
    assert_eq!(error.message(), "output[0] is a tensor, not Pair");
}

/// Counterpart: `test_input_list_toplevel_flatten`, `test_input_list_of_tuples`.
#[test]
fn lists_are_one_argument_of_a_fixed_length() {
    let list = |count: usize| -> Vec<(TracedTensor, TracedTensor)> {
        (0..count).map(|i| (x(&[i as f32]), x(&[1.0]))).collect()
    };
    let sum = |list: Vec<(TracedTensor, TracedTensor)>| {
        list.into_iter().fold(x(&[0.0]), |sum, (a, b)| sum + a * b)
    };
    let traced = trace_fn((list(3),), |(list,)| sum(list)).unwrap();
    assert_eq!(traced.graph("forward").unwrap().inputs.len(), 6);
    let y: TracedTensor = traced.call((list(3),)).unwrap();
    assert_eq!(floats(&y), [3.0]);
    let error = traced.call::<_, TracedTensor>((list(2),)).unwrap_err();
    assert_eq!(error.message(), "argument x does not fit the signature");
}

/// Counterpart: `test_input_dict_of_lists`, `test_input_dict_insertion_order`, `test_input_dict_of_dicts`.
#[test]
fn maps_of_maps_and_lists_are_taken_by_key_and_more_keys_do_no_harm() {
    let inputs = || {
        let inner = || vec![x(&[1.0]), x(&[2.0])];
        map([
            ("b", map([("inner", inner())])),
            ("a", map([("other", inner())])),
        ])
    };
    type Nested = BTreeMap<String, BTreeMap<String, Vec<TracedTensor>>>;
    let traced = trace_fn((inputs(),), |(d,): (Nested,)| {
        &d["b"]["inner"][1] - &d["a"]["other"][0]
    })
    .unwrap();
    let mut more = inputs();
    more.insert("c".to_string(), BTreeMap::new());
    let y: TracedTensor = traced.call((more,)).unwrap();
    assert_eq!(floats(&y), [1.0]);
    let mut fewer = inputs();
    fewer.insert("a".to_string(), BTreeMap::new());
    let error = traced.call::<_, TracedTensor>((fewer,)).unwrap_err();
    assert_eq!(error.message(), r#"missing key "other" in x["a"], got []"#);
}

/// Counterpart: `test_input_dict_unify`: values of one map may be of several types.
#[test]
fn values_of_a_map_keep_their_types() {
    let inputs = map([
        ("a", x(&[1.5, 2.5])),
        ("n", TracedTensor::from_vec([2], vec![2i64, 3])),
    ]);
    let traced = trace_fn(inputs.clone(), |d: BTreeMap<String, TracedTensor>| {
        &d["a"] * &d["n"]
    })
    .unwrap();
    let y: TracedTensor = traced.call(inputs).unwrap();
    assert_eq!(floats(&y), [3.0, 7.5]);
    let other = map([("a", x(&[1.0])), ("n", x(&[1.0]))]);
    let error = traced.call::<_, TracedTensor>(other).unwrap_err();
    assert_eq!(error.message(), "input x_n is i64, not f32");
}

/// Counterpart: `test_input_dict_checkTrace_mut`: the caller's map stays as it was.
#[test]
fn a_write_to_a_value_of_a_map_is_a_step() {
    let program = |mut d: BTreeMap<String, TracedTensor>| {
        d.get_mut("a").unwrap().add_(1.0);
        &d["a"] * 2.0
    };
    let inputs = map([("a", x(&[1.0, 2.0]))]);
    let (traced, report) =
        trace_fn_checked(inputs.clone(), program, &CheckOptions::default()).unwrap();
    assert_eq!(report.findings, [], "{report}");
    let y: TracedTensor = traced.call(inputs.clone()).unwrap();
    assert_eq!(floats(&y), [4.0, 6.0]);
    assert_eq!(floats(&inputs["a"]), [1.0, 2.0]);
}

/// Counterpart: `test_input_dict_empty`, `test_input_dict_empty_list`, `test_input_list_mixed_type`: "List trace inputs must
/// have elements", "must have consistent types".
#[test]
fn inputs_that_say_nothing_of_their_elements_are_refused_by_path() {
    let none: Vec<TracedTensor> = Vec::new();
    let error = trace_error(Named {
        r#type: x(&[1.0]),
        d: map([("1", none)]),
    });
    assert_eq!(
        error.message(),
        r#"args[1]["1"] is an empty list: an example needs elements"#
    );
    let none: BTreeMap<String, TracedTensor> = BTreeMap::new();
    let error = trace_error((x(&[1.0]), Pair(none.clone(), none)));
    assert_eq!(
        error.message(),
        "args[1][0] is an empty map: an example needs its keys"
    );
    let error = trace_error((vec![Some(x(&[1.0])), None],));
    assert_eq!(
        error.message(),
        "args[0] is a mixed list: item 1 is of another kind than item 0"
    );
}

/// Counterpart: `test_input_dict_of_lists` with sets of unordered keys, and "Type 'Tuple[int]' cannot be traced".
#[test]
fn what_has_no_order_or_is_no_tensor_is_refused_with_advice() {
    let unordered = HashMap::from([("a".to_string(), x(&[1.0]))]);
    let error = trace_error((x(&[1.0]), Pair(unordered.clone(), unordered)));
    assert_eq!(
        error.message(),
        "args[1][0] is a HashMap, whose keys have no order"
    );
    assert_eq!(
        error.advice(),
        Some("use a BTreeMap, or a struct with #[derive(Tree)]")
    );
    let error = trace_error((x(&[1.0]), Size::from(3)));
    assert_eq!(
        error.message(),
        "args[1] is a size, and only tensors can be inputs"
    );
    assert_eq!(error.advice(), Some("take the size from a tensor by `dim`"));
}

/// Counterpart: `test_trace_single_tuple`, `test_trace_returning_dict_with_tensor_tuples`; deeper than PyTorch can return.
#[test]
fn outputs_keep_their_structure_at_any_depth() {
    type Deep = (
        (TracedTensor,),
        BTreeMap<String, (TracedTensor, Vec<TracedTensor>)>,
        Option<TracedTensor>,
    );
    let deep = |x: TracedTensor| -> Deep {
        let entry = (&x + 1, vec![&x + 2, &x + 3]);
        ((x,), map([("k", entry)]), None)
    };
    let traced = trace_fn(x(&[0.0]), deep).unwrap();
    let ((a,), d, none): Deep = traced.call(x(&[10.0])).unwrap();
    let (b, list) = &d["k"];
    let found = [&a, b, &list[0], &list[1]].map(|tensor| floats(tensor)[0]);
    assert_eq!(found, [10.0, 11.0, 12.0, 13.0]);
    assert!(none.is_none());
}

/// Counterpart: "Encountering a list at the output of the tracer might cause the trace to be incorrect".
#[test]
fn a_strict_trace_refuses_lists_and_maps_by_path() {
    let strict = TraceOptions {
        strict: true,
        ..TraceOptions::default()
    };
    let list = |x: TracedTensor| (x.clone(), vec![x]);
    let error = trace_fn_with(x(&[1.0]), list, &strict).unwrap_err();
    assert_eq!(
        error.message(),
        "output[1] is a list, which a strict trace refuses"
    );
    assert_eq!(
        error.advice(),
        Some(
            "return a tuple or a struct, or trace with `strict: false` if its length never changes"
        )
    );
    let entries = |x: TracedTensor| Boxes {
        corners: x.clone(),
        scores: Some(x),
    };
    assert!(trace_fn_with(x(&[1.0]), entries, &strict).is_ok());
    let entries = |x: TracedTensor| Pair(map([("k", x.clone())]), map([("k", x)]));
    let error = trace_fn_with(x(&[1.0]), entries, &strict).unwrap_err();
    assert_eq!(
        error.message(),
        "output[0] is a map, which a strict trace refuses"
    );
}

/// Counterpart: `run_ge_tests`: identity, permuted outputs, an unused input.
#[test]
fn inputs_come_out_as_they_are_and_unused_ones_stay() {
    let inputs = || (x(&[1.0]), x(&[2.0]), x(&[3.0]));
    let traced = trace_fn(
        inputs(),
        |(a, _, c): (TracedTensor, TracedTensor, TracedTensor)| (c, a),
    )
    .unwrap();
    let graph = traced.graph("forward").unwrap();
    assert_eq!((graph.inputs.len(), graph.nodes.len()), (3, 0));
    let (c, a): (TracedTensor, TracedTensor) = traced.call(inputs()).unwrap();
    assert_eq!((floats(&c), floats(&a)), (vec![3.0], vec![1.0]));
}

/// Counterpart: "Only tensors … can be output"; a size is one that generalises.
#[test]
fn sizes_come_out_as_numbers_of_each_call() {
    let traced = trace_fn(x(&[1.0, 2.0]), |x| (x.dim(0) * 3, x)).unwrap();
    let (size, _): (Size, TracedTensor) = traced.call(x(&[1.0; 7])).unwrap();
    assert_eq!(size, 21);
}

/// Counterpart: `test_trace_with_kwargs` and the NameError that lists the arguments.
#[test]
fn arguments_are_given_by_name() {
    let options = TraceOptions {
        names: vec!["x".to_string(), "mask".to_string()],
        ..TraceOptions::default()
    };
    let traced = trace_fn_with(
        (x(&[1.0]), x(&[2.0])),
        |(x, mask): (TracedTensor, TracedTensor)| x - mask,
        &options,
    )
    .unwrap();
    let y: TracedTensor = traced
        .call_named([("mask", x(&[2.0])), ("x", x(&[5.0]))])
        .unwrap();
    assert_eq!(floats(&y), [3.0]);
    let call = |names: &[&'static str]| {
        let inputs = names.iter().map(|name| (*name, x(&[1.0])));
        traced.call_named::<_, TracedTensor>(inputs).unwrap_err()
    };
    let error = call(&["x", "msk"]);
    assert_eq!(error.message(), "no input `msk`; it takes x, mask");
    assert_eq!(error.advice(), Some("did you mean `mask`?"));
    let error = call(&["x", "attention"]);
    assert_eq!(error.message(), "no input `attention`; it takes x, mask");
    assert_eq!(error.advice(), None);
    let error = call(&["x"]);
    assert_eq!(error.message(), "input `mask` is missing");
    assert_eq!(error.advice(), Some("it takes x, mask"));
    assert_eq!(call(&["x", "x"]).message(), "input `x` is given twice");
}

/// Counterpart: keyword arguments that are tuples.
#[test]
fn arguments_by_name_may_be_structures() {
    let pair = |a, b| Pair(x(&[a]), x(&[b]));
    let sum = |(p, q): (Pair<TracedTensor>, Pair<TracedTensor>)| p.0 * q.1 - p.1 * q.0;
    let traced = trace_fn((pair(1.0, 2.0), pair(3.0, 4.0)), sum).unwrap();
    let inputs = [("x_1", pair(3.0, 4.0)), ("x", pair(1.0, 2.0))];
    let y: TracedTensor = traced.call_named(inputs).unwrap();
    assert_eq!(floats(&y), [-2.0]);
}

/// The error of a failed step names the path of the affected output.
#[test]
fn a_failed_output_says_where_it_stands() {
    let boxes = Boxes {
        corners: &x(&[1.0, 2.0]) + &x(&[1.0, 2.0, 3.0]),
        scores: None,
    };
    let error = trace_error((x(&[1.0]), boxes));
    assert_eq!(error.context().last().unwrap(), "args[1].corners");
}
