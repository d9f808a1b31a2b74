//! Sizes as expressions: values computed from them generalise. Comments name counterparts in PyTorch's `test_tracer.py`.

use onionskin::error::ErrorKind;
use onionskin::trace::check::Id;
use onionskin::trace::{
    Size, SymbolicSizes, TraceOptions, TracedTensor, freeze, kw, ops, scan, trace_fn,
    trace_fn_with, while_loop,
};

fn example(shape: &[usize]) -> TracedTensor {
    let data = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.7).sin());
    TracedTensor::from_vec(shape, data.collect())
}

/// Checks that the traced function returns the function's results, for inputs of the example's size and of another.
fn check_generalises(
    first: &[usize],
    other: &[usize],
    function: impl Fn(TracedTensor) -> TracedTensor,
) {
    let traced = trace_fn(example(first), &function).unwrap();
    assert!(traced.warnings.is_empty(), "{:?}", traced.warnings);
    for shape in [first, other] {
        let wanted = function(example(shape)).to_host().unwrap();
        let found: TracedTensor = traced.call(example(shape)).unwrap();
        assert_eq!(found.to_host().unwrap(), wanted, "{shape:?}");
    }
}

/// Counterpart: `test_trace_size`, with arithmetic of all kinds.
#[test]
fn arithmetic_on_sizes() {
    check_generalises(&[4, 6], &[10, 2], |x| {
        let (rows, columns) = (x.dim(0), x.dim(-1));
        x.view([rows / 2, columns * 2])
    });
    check_generalises(&[4, 6], &[2, 3], |x| x.view([x.numel()]));
}

/// Counterpart: `test_trace_arange`, `test_trace_arange_with_grad`.
#[test]
fn arange_and_full_of_sizes() {
    check_generalises(&[4, 6], &[5, 2], |x| &x + ops::arange(x.dim(1)));
    check_generalises(&[4, 6], &[5, 2], |x| {
        let numbers = ops::arange_start(x.dim(0), x.dim(0) + x.dim(1));
        &x * numbers
    });
    check_generalises(&[4, 6], &[5, 2], |x| {
        ops::arange_start_with(0, x.numel(), kw!(step = x.dim(1)))
    });
    check_generalises(&[4, 6], &[5, 2], |x| {
        ops::arange_start_with(x.dim(1), -x.numel(), kw!(step = -x.dim(0)))
    });
    check_generalises(&[4, 6], &[5, 2], |x| ops::full(x.shape(), 3.0) + &x);
    check_generalises(&[4, 6], &[5, 2], |x| ops::zeros((x.dim(0), 1)) - &x);
}

/// Counterpart: `test_trace_slice_full_dim`, slices whose bounds follow from sizes.
#[test]
fn slices_by_sizes() {
    check_generalises(&[4, 6], &[8, 6], |x| {
        x.slice_with(kw!(start = x.dim(0) / 2))
    });
    check_generalises(&[4, 6], &[8, 6], |x| x.slice_with(kw!(end = x.dim(0) - 1)));
    check_generalises(&[4, 6], &[8, 6], |x| x.narrow(0, 1, x.dim(0) - 2));
    let traced = trace_fn(example(&[5]), |x| x.slice_with(kw!(start = 0, end = 5))).unwrap();
    let found: TracedTensor = traced.call(example(&[7])).unwrap();
    assert_eq!(found.shape(), [5], "the literal 5 stays");
}

/// Counterpart: "setitem with dynamic shape" (#43548).
#[test]
fn writes_into_slices_of_any_size() {
    check_generalises(&[4, 6], &[8, 3], |x| {
        let ones = ops::ones([x.dim(0) - 1, x.dim(1)]);
        x.slice_scatter_with(&ones, kw!(start = 1))
    });
}

/// Counterpart: `interpolate(scale_factor=3)` is not baked in.
#[test]
fn scale_factors_stay_factors() {
    check_generalises(&[1, 2, 4, 4], &[1, 2, 5, 7], |x| {
        let sizes = [x.dim(2) * 3, x.dim(3) * 3];
        x.upsample_nearest2d_with(sizes, kw!(scales_h = 3.0, scales_w = 3.0))
    });
}

#[test]
fn a_frozen_size_holds_for_the_example_only() {
    let traced = trace_fn(example(&[4, 6]), |x| {
        let rows = freeze(&x.dim(0)).unwrap();
        x.view([rows * 6])
    })
    .unwrap();
    assert_eq!(traced.warnings.len(), 1);
    assert_eq!(traced.warnings[0].id, Id::FrozenSize);
    assert_eq!(traced.warnings[0].message, "the size x_0 is fixed to 4");
    assert!(traced.warnings[0].place.to_string().contains("sizes.rs"));
    let error = traced
        .call::<_, TracedTensor>(example(&[5, 6]))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
}

/// Counterpart: `F.conv2d(…, groups=x.shape[0])`, whose groups PyTorch's trace fixes without a word.
#[test]
fn an_argument_that_takes_numbers_only_fixes_a_size() {
    let line = line!() + 4;
    let program = |x: TracedTensor| {
        let one_image = x.reshape((1, x.dim(0), x.dim(1), x.dim(2)));
        let filters = one_image.transpose(0, 1);
        one_image.conv2d_with(&filters, kw!(groups = x.dim(0)))
    };
    let traced = trace_fn(example(&[3, 4, 5]), program).unwrap();
    assert_eq!(traced.warnings.len(), 1, "{:?}", traced.warnings);
    assert_eq!(traced.warnings[0].id, Id::FrozenSize);
    let message = "groups of aten._convolution is a number: the size x_0 is fixed to 3";
    assert_eq!(traced.warnings[0].message, message);
    let place = traced.warnings[0].place.to_string();
    assert!(place.contains(&format!("sizes.rs:{line}")), "{place}");
    let refused = traced.call::<_, TracedTensor>(example(&[2, 4, 5]));
    assert!(refused.is_err());
}

#[test]
fn iteration_over_an_axis_that_may_vary_is_warned_of() {
    let unrolled = |x: TracedTensor| {
        let rows = x.unbind();
        rows.iter()
            .fold(TracedTensor::scalar(0f32), |sum, row| sum * 0.5 + row.sum())
    };
    let found = trace_fn(example(&[3, 2]), unrolled).unwrap();
    let found: Vec<Id> = found.warnings.iter().map(|warning| warning.id).collect();
    assert!(found.contains(&Id::DynamicIteration), "{found:?}");
    let options = TraceOptions {
        sizes: SymbolicSizes::None,
        ..TraceOptions::default()
    };
    let fixed = trace_fn_with(example(&[3, 2]), unrolled, &options).unwrap();
    assert!(
        !fixed
            .warnings
            .iter()
            .any(|warning| warning.id == Id::DynamicIteration)
    );
}

#[test]
fn only_the_named_sizes_vary() {
    let options = TraceOptions {
        sizes: SymbolicSizes::Only(vec![("x".into(), 0)]),
        ..TraceOptions::default()
    };
    let traced = trace_fn_with(example(&[3, 2]), |x| x.relu(), &options).unwrap();
    assert_eq!(
        traced.module.graphs[0]
            .ty(traced.module.graphs[0].inputs[0])
            .to_string(),
        "f32[x_0, 2]"
    );
    assert!(traced.call::<_, TracedTensor>(example(&[9, 2])).is_ok());
    let error = traced
        .call::<_, TracedTensor>(example(&[9, 3]))
        .unwrap_err();
    assert_eq!(
        error.message(),
        "input x is f32[x_0, 2], not of shape [9, 3]"
    );
}

#[test]
fn sizes_come_out_as_numbers() {
    let traced = trace_fn(example(&[3, 2]), |x| (x.dim(0) * 2, x.relu())).unwrap();
    let (size, _): (Size, TracedTensor) = traced.call(example(&[5, 2])).unwrap();
    assert_eq!(size, 10);
}

#[test]
fn a_dimension_that_there_is_not_is_named() {
    let error = trace_fn(example(&[3, 2]), |x| x.view((x.dim(2), 3))).unwrap_err();
    assert_eq!(
        error.message(),
        "dimension 2 is out of range for 2 dimensions"
    );
    assert!(error.to_string().contains("sizes.rs"), "{error}");
}

/// Counterpart: the trace of 130 slices that hits the limit of kernel arguments.
#[test]
fn many_inputs_are_joined() {
    let program = |x: TracedTensor| {
        let rows: Vec<TracedTensor> = (0..130)
            .map(|row| x.select(0, row) * (row as f32))
            .collect();
        ops::stack(&rows)
    };
    let traced = trace_fn(example(&[130, 3]), program).unwrap();
    let found: TracedTensor = traced.call(example(&[130, 3])).unwrap();
    assert_eq!(
        found.to_host().unwrap(),
        program(example(&[130, 3])).to_host().unwrap()
    );
    let Some(device) = super::samples::device(onionskin::gpu::FeatureLevel::Full) else {
        return;
    };
    let model = onionskin::Model::from_module(traced.module.clone());
    let session = model
        .compile(&device.into(), &onionskin::CompileOptions::default())
        .unwrap();
    let found = session
        .run(&[example(&[130, 3]).to_host().unwrap()])
        .unwrap();
    assert_eq!(found[0], program(example(&[130, 3])).to_host().unwrap());
}

/// A size that a first trace left behind has the name of a size of the second one, and another value.
#[test]
fn a_size_of_another_trace_is_refused() {
    let left = std::cell::RefCell::new(None);
    let first = |x: TracedTensor| {
        left.replace(Some(x.dim(0)));
        x
    };
    trace_fn(example(&[4]), first).unwrap();
    let size = left.take().unwrap();
    let line = line!() + 1;
    let divide = |x: TracedTensor| &x / &size;
    let error = trace_fn(example(&[3]), divide).unwrap_err();
    assert_eq!(
        error.message(),
        "a size of another trace (4 in its example) is used"
    );
    assert!(
        error.to_string().contains(&format!("sizes.rs:{line}")),
        "{error}"
    );
    let error = trace_fn(example(&[3]), |x| (x, size.clone())).unwrap_err();
    assert_eq!(
        error.message(),
        "a size of another trace (4 in its example) is used"
    );
    let error = trace_fn(example(&[3]), |x| freeze(&size).map(|_| x)).unwrap_err();
    assert_eq!(
        error.message(),
        "a size of another trace (4 in its example) is used"
    );
}

/// A branch on a size is decided by the example. The graph serves the sizes with the same answer, and refuses others.
#[test]
fn a_comparison_of_a_size_is_a_guard_with_its_line() {
    let line = line!() + 1;
    let program = |x: TracedTensor| if x.dim(0) == 3 { &x * 2.0 } else { -&x };
    let traced = trace_fn(example(&[4, 2]), program).unwrap();
    assert_eq!(traced.warnings, []);
    let guards = &traced.graph("forward").unwrap().guards;
    assert_eq!(guards.len(), 1);
    assert_eq!(guards[0].to_string(), "x_0 != 3");
    let place = guards[0].place.to_string();
    assert!(place.contains(&format!("sizes.rs:{line}")), "{place}");
    let found: TracedTensor = traced.call(example(&[5, 2])).unwrap();
    assert_eq!(
        found.to_host().unwrap(),
        (-example(&[5, 2])).to_host().unwrap()
    );
    let error = traced
        .call::<_, TracedTensor>(example(&[3, 2]))
        .unwrap_err();
    assert!(error.to_string().contains("x_0 != 3"), "{error}");
}

/// The answers of a traced program are those of the program without a trace.
#[test]
fn comparisons_answer_as_without_a_trace() {
    let answers = |x: &TracedTensor| {
        let (rows, columns) = (x.dim(0), x.dim(1));
        [
            rows == columns,
            rows != columns,
            rows < columns,
            rows <= columns,
            rows > columns,
            rows >= columns,
            rows == 4,
            rows < 4,
            rows <= 3_usize,
            rows > 3_i64,
            rows >= 5,
            2 * &rows - 2 == columns,
            rows.min(5) == 4,
            columns.max(7) == 7,
            &columns / 4 == 1,
            &columns % 4 == 2,
            columns.ceil_div(4) == 2,
        ]
    };
    for shape in [[4, 6], [6, 4], [4, 4], [3, 6]] {
        let wanted = answers(&example(&shape));
        let mut found = None;
        let program = |x: TracedTensor| {
            found = Some(answers(&x));
            x.relu()
        };
        trace_fn(example(&shape), program).unwrap();
        assert_eq!(found, Some(wanted), "{shape:?}");
    }
}

/// An assertion on a size holds for every call of the graph.
#[test]
fn an_equality_that_holds_fixes_the_size() {
    let traced = trace_fn(example(&[4, 3]), |x| {
        assert_eq!(x.dim(1), 3);
        x.relu()
    })
    .unwrap();
    assert!(traced.call::<_, TracedTensor>(example(&[9, 3])).is_ok());
    let error = traced
        .call::<_, TracedTensor>(example(&[9, 2]))
        .unwrap_err();
    assert_eq!(
        error.message(),
        "input x is f32[x_0, 3], not of shape [9, 2]"
    );
}

#[test]
fn a_size_divided_by_zero_fails_where_it_is_used() {
    let line = line!() + 1;
    let error = trace_fn(example(&[4, 3]), |x| x.view([x.dim(0) / 0, 3.into()])).unwrap_err();
    let message = "the size x_0 is divided by zero (x_0 = 4)";
    assert_eq!(error.message(), message);
    assert!(
        error.to_string().contains(&format!("sizes.rs:{line}")),
        "{error}"
    );
    let eager = example(&[4]);
    let error = eager.narrow(0, 0, eager.dim(0) % 0).to_host().unwrap_err();
    assert_eq!(error.message(), "the size 4 is divided by zero");
}

/// A size that a first trace left behind can't be compared in a second one, also within an expression.
#[test]
fn a_comparison_with_a_size_of_another_trace_is_refused() {
    let left = std::cell::RefCell::new(None);
    let first = |x: TracedTensor| {
        left.replace(Some(x.dim(0)));
        x
    };
    trace_fn(example(&[4]), first).unwrap();
    let size = left.take().unwrap();
    let compare = |x: TracedTensor| if x.dim(0) + &size == 7 { x } else { -x };
    let error = trace_fn(example(&[3]), compare).unwrap_err();
    assert!(
        error.message().starts_with("a size of another trace"),
        "{error}"
    );
}

/// A loop uses a size from outside of its body, in its graph and in the run of the example.
#[test]
fn loops_use_sizes_from_outside() {
    check_generalises(&[4, 3], &[2, 5], |x| {
        let columns = x.dim(1);
        let step =
            |sum: TracedTensor, row: TracedTensor| (&sum + &row, row + ops::arange(&columns));
        scan(ops::zeros([&columns]), x, step).unwrap().1
    });
    check_generalises(&[4], &[7], |x| {
        let rows = x.dim(0);
        let (count, _) = while_loop(
            (TracedTensor::scalar(0i64), x),
            |(count, _)| count.lt(&rows),
            |(count, x)| (count + 1, x * 0.5),
        )
        .unwrap();
        count
    });
    check_generalises(&[4], &[7], |x| {
        let rows = x.dim(0);
        let start = TracedTensor::scalar(0i64);
        while_loop(start, |i| i.lt(&rows), |i| i + 1).unwrap() + &x
    });
    check_generalises(&[4], &[7], |x| {
        let start = TracedTensor::scalar(0i64);
        while_loop(start, |i| i.lt(x.dim(0)), |i| i + 1).unwrap() + &x
    });
}
