//! In-place operators write to the memory that tensors share, with and without a trace, as in PyTorch.

use onionskin::kw;
use onionskin::trace::check::CheckOptions;
use onionskin::trace::{
    Buffer, Method, Module, TracedTensor, call, cond, init, leaf, ops, scan, state, trace_fn,
    trace_fn_checked, trace_module, while_loop,
};

fn floats(tensor: &TracedTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn matrix() -> TracedTensor {
    TracedTensor::from_vec([2, 3], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
}

/// Checks that a program gives these values without a trace, and that its trace gives them too and passes its check.
#[track_caller]
fn gives(program: fn(TracedTensor) -> TracedTensor, wanted: &[f32]) {
    assert_eq!(floats(&program(matrix())), wanted, "without a trace");
    let options = CheckOptions::default();
    let (traced, report) = trace_fn_checked(matrix(), program, &options).unwrap();
    assert!(report.passed(), "{report}");
    let result: TracedTensor = traced.call(matrix()).unwrap();
    assert_eq!(floats(&result), wanted, "in a trace");
}

/// Values are PyTorch's for `x = torch.arange(1., 7.).reshape(2, 3)`.
#[test]
fn writes_to_views_change_their_base() {
    gives(
        |x| {
            x.slice_with(kw!(dim = 1, start = 1)).add_(10.0);
            x
        },
        &[1.0, 12.0, 13.0, 4.0, 15.0, 16.0],
    );
    gives(
        |x| {
            x.t().mul_(2.0);
            x
        },
        &[2.0, 4.0, 6.0, 8.0, 10.0, 12.0],
    );
    gives(
        |x| {
            x.select(0, 0).zero_();
            x
        },
        &[0.0, 0.0, 0.0, 4.0, 5.0, 6.0],
    );
    gives(
        |x| {
            x.view([-1]).fill_(7.0);
            x
        },
        &[7.0; 6],
    );
    gives(
        |x| {
            x.diagonal().fill_(0.0);
            x
        },
        &[0.0, 2.0, 3.0, 4.0, 0.0, 6.0],
    );
    gives(
        |x| {
            x.slice_with(kw!(dim = 1, step = 2)).neg_();
            x
        },
        &[-1.0, 2.0, -3.0, -4.0, 5.0, -6.0],
    );
    gives(
        |x| {
            x.as_strided([2], [4]).fill_(0.0);
            x
        },
        &[0.0, 2.0, 3.0, 4.0, 0.0, 6.0],
    );
}

#[test]
fn views_see_writes_to_their_base() {
    gives(
        |x| {
            let row = x.select(0, 1);
            let column = x.t().select(0, 2);
            x.add_(1.0);
            ops::cat(&[row, column])
        },
        &[5.0, 6.0, 7.0, 4.0, 7.0],
    );
    gives(
        |x| {
            let rows = x.unbind();
            rows[0].copy_(&rows[1]);
            x.select(0, 1).zero_();
            ops::cat(&[&rows[0], &rows[1]])
        },
        &[4.0, 5.0, 6.0, 0.0, 0.0, 0.0],
    );
}

/// `reshape` copies where strides do not allow a view, and `contiguous` copies a transposed tensor.
#[test]
fn writes_to_copies_do_not_change_the_base() {
    gives(
        |x| {
            ops::clone(&x).zero_();
            x.t().reshape([-1]).zero_();
            x.t().contiguous().zero_();
            x
        },
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    );
    gives(
        |x| {
            x.reshape([3, 2]).select(0, 0).zero_();
            x.contiguous().select(1, 2).zero_();
            x
        },
        &[0.0, 0.0, 0.0, 4.0, 5.0, 0.0],
    );
}

#[test]
fn clones_of_a_handle_are_one_tensor() {
    gives(
        |x| {
            let same = x.clone();
            same.add_(1.0);
            same.t_();
            x
        },
        &[2.0, 5.0, 3.0, 6.0, 4.0, 7.0],
    );
}

#[test]
fn operators_in_place_are_called_by_name() {
    gives(
        |x| {
            call("mul_", vec![x.select(1, 0).into(), 3.0.into()], Vec::new());
            call(
                "transpose_",
                vec![(&x).into(), 0.into(), 1.into()],
                Vec::new(),
            )
            .swap_remove(0)
        },
        &[3.0, 12.0, 2.0, 5.0, 3.0, 6.0],
    );
}

/// The guard holds for sizes whose memory is shared in the same way.
#[test]
fn a_traced_write_to_a_view_holds_for_other_sizes() {
    let program = |x: TracedTensor| {
        let width = x.dim(1);
        x.slice_with(kw!(dim = 1, start = 1, end = width - 1))
            .mul_(-1.0);
        x
    };
    let traced = trace_fn(matrix(), program).unwrap();
    let wider = TracedTensor::from_vec([1, 4], vec![1f32, 2.0, 3.0, 4.0]);
    let result: TracedTensor = traced.call(wider).unwrap();
    assert_eq!(floats(&result), [1.0, -2.0, -3.0, 4.0]);
}

#[test]
fn branches_and_loops_write_to_tensors_from_outside() {
    gives(
        |x| {
            let total = ops::clone(&x);
            cond(
                &x.sum().gt(0.0),
                || {
                    total.select(0, 0).add_(10.0);
                    total.sum()
                },
                || total.sum(),
            )
            .unwrap();
            total
        },
        &[11.0, 12.0, 13.0, 4.0, 5.0, 6.0],
    );
    gives(
        |x| {
            let count = x.select(0, 0).select(0, 0);
            while_loop(
                ops::clone(&count),
                |n| n.lt(3.5),
                |n| {
                    count.add_(2.0);
                    n + 1.0
                },
            )
            .unwrap();
            x
        },
        &[7.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    );
    gives(
        |x| {
            let (_, rows) = scan(
                ops::clone(&x.sum()),
                x.clone(),
                |total, row: TracedTensor| {
                    x.t().select(0, 0).sub_(1.0);
                    row.zero_();
                    total.add_(1.0);
                    (total, row)
                },
            )
            .unwrap();
            rows + x
        },
        &[-1.0, 2.0, 3.0, 2.0, 5.0, 6.0],
    );
}

/// The state of a loop is a copy: a write to it does not reach the tensor that was passed in.
#[test]
fn the_state_of_a_loop_is_a_copy() {
    gives(
        |x| {
            let start = (x.clone(), TracedTensor::scalar(0i64));
            let (doubled, _) = while_loop(
                start,
                |(_, round)| round.lt(3),
                |(x, round)| {
                    x.mul_(2.0);
                    (x, round + 1)
                },
            )
            .unwrap();
            doubled + x
        },
        &[9.0, 18.0, 27.0, 36.0, 45.0, 54.0],
    );
}

/// A function that is one node gets copies of its inputs, too.
#[test]
fn the_inputs_of_a_leaf_are_copies() {
    gives(
        |x| {
            let grown = leaf("grow_in_place", x.clone(), |x: TracedTensor| {
                x.add_(1.0);
                x
            });
            grown.unwrap() + x
        },
        &[3.0, 5.0, 7.0, 9.0, 11.0, 13.0],
    );
}

#[derive(Module)]
struct Counter {
    count: Buffer,
}

#[test]
fn a_write_to_a_buffer_outlives_the_call() {
    let counter = Counter {
        count: Buffer::new([2], init::zeros()),
    };
    let count = |counter: &Counter, x: TracedTensor| {
        counter.count.select(0, 1).add_(x.sum());
        ops::clone(&counter.count)
    };
    let traced = trace_module(&counter, [Method::new("forward", matrix(), count)]).unwrap();
    assert_eq!(traced.module.states.len(), 1);
    assert_eq!(traced.module.states[0].name, "count");
    assert_eq!(
        floats(&state(&counter)[0].1),
        [0.0, 0.0],
        "tracing changes nothing"
    );
    assert_eq!(floats(&count(&counter, matrix())), [0.0, 21.0]);
    assert_eq!(floats(&count(&counter, matrix())), [0.0, 42.0]);
}

#[test]
fn a_tensor_from_outside_keeps_its_sizes_within_a_branch() {
    let line = line!() + 3;
    let program = |x: TracedTensor| {
        let turn = || {
            x.t_();
            x.sum()
        };
        cond(&x.sum().gt(0.0), turn, || x.sum()).unwrap()
    };
    let error = trace_fn(matrix(), program).unwrap_err();
    assert!(
        error.message().contains("from outside of the trace"),
        "{error}"
    );
    let place = error.to_string();
    assert!(place.contains(&format!("in_place.rs:{line}")), "{place}");
}

#[test]
fn a_write_that_does_not_fit_is_blamed_on_its_line() {
    let line = line!() + 2;
    let program = |x: TracedTensor| {
        x.add_(1.5);
        x
    };
    let counts = TracedTensor::from_vec([2], vec![1i64, 2]);
    let error = trace_fn(counts.clone(), program).unwrap_err().to_string();
    assert!(error.contains("can't be written to i64[x_0]"), "{error}");
    assert!(error.contains(&format!("in_place.rs:{line}")), "{error}");
    let error = program(counts).to_host().unwrap_err().to_string();
    assert!(error.contains(&format!("in_place.rs:{line}")), "{error}");
}

/// A read on the host makes a constant of the graph, whichever tensor it reads.
#[test]
fn reads_of_parameters_and_stored_buffers_are_told() {
    let counter = Counter {
        count: Buffer::new([1], init::constant(2.0)),
    };
    let line = line!() + 3;
    let program = |counter: &Counter, x: TracedTensor| {
        counter.count.store(&(&counter.count + 1.0)).unwrap();
        let scale = counter.count.to_scalar().unwrap().to_f64();
        x * scale
    };
    let traced = trace_module(&counter, [Method::new("forward", matrix(), program)]).unwrap();
    let [warning] = traced.warnings.as_slice() else {
        panic!("{:?}", traced.warnings);
    };
    assert_eq!(warning.id.code(), "W0201");
    assert!(warning.message.contains("count"), "{warning}");
    assert!(
        warning.to_string().contains(&format!("in_place.rs:{line}")),
        "{warning}"
    );
    let graph = traced.graph("forward").unwrap().to_string();
    assert!(graph.contains("3.0"), "the value after the store: {graph}");
}
