//! Control flow that a trace keeps in the graph.

use onionskin::dtype::DType;
use onionskin::ir::{Op, Region};
use onionskin::trace::{TracedTensor, call, cond, scan, trace_fn, while_loop};

fn op(name: &str, arguments: Vec<onionskin::trace::Arg>) -> TracedTensor {
    call(name, arguments, Vec::new()).swap_remove(0)
}

fn vector(values: &[f32]) -> TracedTensor {
    TracedTensor::from_vec([values.len()], values.to_vec())
}

fn floats(tensor: &TracedTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// Adds the absolute value of the sum to every element.
fn conditional_sum(x: TracedTensor) -> onionskin::error::Result<TracedTensor> {
    let sum = op("sum", vec![(&x).into()]);
    let is_negative = op("lt", vec![(&sum).into(), 0.0.into()]);
    let scale = TracedTensor::scalar(2f32);
    cond(&is_negative, || &x - &sum, || &x * &scale + &sum)
}

#[test]
fn both_branches_are_in_the_graph() {
    let traced = trace_fn(vector(&[1.0, 2.0]), conditional_sum).unwrap();
    let graph = traced.graph("forward").unwrap();
    let is_condition =
        |op: &Op| matches!(op, Op::Region(region) if matches!(**region, Region::If { .. }));
    assert!(graph.nodes.iter().any(|node| is_condition(&node.op)));
    for values in [&[1.0, 2.0][..], &[-3.0, 1.0], &[0.5, 0.25, 1.0]] {
        let wanted = conditional_sum(vector(values)).unwrap();
        let found: TracedTensor = traced.call(vector(values)).unwrap();
        assert_eq!(floats(&found), floats(&wanted));
    }
}

#[test]
fn branches_of_different_types_are_refused() {
    let error = trace_fn(vector(&[1.0]), |x| {
        let yes = op("all", vec![(&x).into()]);
        cond(
            &yes,
            || x.clone(),
            || op("gt", vec![(&x).into(), 0.0.into()]),
        )
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the branches' results are (f32[x_0]) and (bool[x_0])"),
        "{text}"
    );
    assert!(text.contains("control.rs"), "{text}");
    let error = trace_fn(vector(&[1.0]), |x| {
        let yes = op("all", vec![(&x).into()]);
        cond(&yes, || vec![x.clone()], || vec![x.clone(), x.clone()])
    })
    .unwrap_err();
    assert_eq!(
        error.message(),
        "the branches return a list of 1 and a list of 2"
    );
}

#[test]
fn a_condition_is_one_truth_value() {
    let error = trace_fn(vector(&[1.0]), |x| cond(&x, || x.clone(), || x.clone())).unwrap_err();
    assert_eq!(error.message(), "the condition is f32[1], not bool[]");
}

/// Doubles a value until its sum exceeds a limit.
fn doubling_loop(
    (x, limit): (TracedTensor, TracedTensor),
) -> onionskin::error::Result<(TracedTensor, TracedTensor)> {
    let steps = TracedTensor::scalar(0i64);
    while_loop(
        (x, steps),
        |(x, _)| {
            op(
                "lt",
                vec![op("sum", vec![x.into()]).into(), (&limit).into()],
            )
        },
        |(x, steps)| (x * 2.0, steps + 1),
    )
}

#[test]
fn loops_run_as_often_as_the_values_say() {
    let limit = || TracedTensor::scalar(10f32);
    let traced = trace_fn((vector(&[1.0, 2.0]), limit()), doubling_loop).unwrap();
    for values in [&[1.0, 2.0][..], &[100.0], &[0.125, 0.125, 0.25]] {
        let (wanted, count) = doubling_loop((vector(values), limit())).unwrap();
        let found: (TracedTensor, TracedTensor) = traced.call((vector(values), limit())).unwrap();
        assert_eq!(floats(&found.0), floats(&wanted));
        assert_eq!(
            found.1.to_vec::<i64>().unwrap(),
            count.to_vec::<i64>().unwrap()
        );
    }
}

#[test]
fn the_state_keeps_its_type() {
    let error = trace_fn(vector(&[1.0]), |x| {
        let more = |x: &TracedTensor| op("any", vec![op("lt", vec![x.into(), 9.0.into()]).into()]);
        while_loop(x, more, |x| op("gt", vec![(&x).into(), 9.0.into()]))
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("carried values before and after are (f32[x_0]) and (bool[x_0])"),
        "{text}"
    );
}

/// Computes running means by a scan, as a recurrent network does.
fn running_means(
    x: TracedTensor,
) -> onionskin::error::Result<(TracedTensor, (TracedTensor, TracedTensor))> {
    let zeros = call("zeros", vec![vec![x.dim(1)].into()], Vec::new()).swap_remove(0);
    let (last, means) = scan(zeros, x, |state, row: TracedTensor| {
        let next = &state * 0.5 + &row * 0.5;
        (
            next.clone(),
            (next.clone(), op("gt", vec![next.into(), 0.0.into()])),
        )
    })?;
    Ok((last, means))
}

#[test]
fn scans_serve_other_lengths() {
    let example = |rows: usize, columns: usize| {
        let data = (0..rows * columns)
            .map(|i| (i as f32 * 0.7).sin())
            .collect();
        TracedTensor::from_vec([rows, columns], data)
    };
    let traced = trace_fn(example(3, 2), running_means).unwrap();
    for (rows, columns) in [(3, 2), (1, 2), (7, 4)] {
        let (last, (means, signs)) = running_means(example(rows, columns)).unwrap();
        let found: (TracedTensor, (TracedTensor, TracedTensor)) =
            traced.call(example(rows, columns)).unwrap();
        assert_eq!(floats(&found.0), floats(&last));
        assert_eq!(floats(&found.1.0), floats(&means));
        assert_eq!(found.1.1.dtype(), DType::Bool);
        assert_eq!(
            found.1.1.to_vec::<u8>().unwrap(),
            signs.to_vec::<u8>().unwrap()
        );
    }
}

#[test]
fn values_of_a_branch_stay_in_it() {
    let error = trace_fn(vector(&[1.0]), |x| {
        let yes = op("all", vec![(&x).into()]);
        let mut leaked = None;
        let result = cond(
            &yes,
            || x.clone(),
            || {
                leaked = Some(&x * 2.0);
                x.clone()
            },
        );
        result.map(|x| x + leaked.unwrap_or_else(|| TracedTensor::scalar(0f32)))
    })
    .unwrap_err();
    assert!(
        error
            .message()
            .contains("inside of a branch or loop is used outside"),
        "{error}"
    );
}

#[test]
fn regions_nest() {
    let program = |x: TracedTensor| {
        let more = |x: &TracedTensor| op("lt", vec![op("sum", vec![x.into()]).into(), 20.0.into()]);
        while_loop(x, more, |x| {
            let big = op("any", vec![op("gt", vec![(&x).into(), 4.0.into()]).into()]);
            let next = cond(&big, || &x + 1.0, || &x * 2.0);
            next.unwrap_or(x)
        })
    };
    let traced = trace_fn(vector(&[1.0, 2.0]), program).unwrap();
    for values in [&[1.0, 2.0][..], &[0.5, 0.5, 0.5], &[30.0]] {
        let wanted = program(vector(values)).unwrap();
        let found: TracedTensor = traced.call(vector(values)).unwrap();
        assert_eq!(floats(&found), floats(&wanted));
    }
}
