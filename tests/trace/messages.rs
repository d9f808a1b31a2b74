//! Messages of mistakes in traced programs: they name sizes with the example's numbers, element types, arguments and the line.

use std::panic::Location;

use onionskin::nn::{Conv2d, CrossEntropyLoss, Embedding, Linear};
use onionskin::trace::{Forward, TracedTensor, Tree, call, trace_fn};

fn floats(shape: &[usize]) -> TracedTensor {
    TracedTensor::from_vec(shape, vec![0.5f32; shape.iter().product()])
}

fn integers(shape: &[usize]) -> TracedTensor {
    TracedTensor::from_vec(shape, vec![1i64; shape.iter().product()])
}

/// Checks the message of a program, and that it names one of the lines of the call of this function, which are at most ten.
#[track_caller]
fn check<I: Tree, O: Tree>(inputs: I, program: impl FnOnce(I) -> O, message: &str) {
    let caller = Location::caller();
    let error = trace_fn(inputs, program).map(|_| ()).unwrap_err();
    assert_eq!(error.message(), message);
    let text = error.to_string();
    let lines = caller.line()..caller.line() + 10;
    let is_named = |line| text.contains(&format!("{}:{line}", caller.file()));
    assert!(
        lines.clone().any(is_named),
        "{text} names no line of {lines:?}"
    );
}

#[test]
fn sizes_have_the_numbers_of_the_example() {
    let pair = || (floats(&[2, 3]), floats(&[2, 4]));
    let message = "sizes x_size_1 and x_1_1 do not broadcast (x_size_1 = 3, x_1_1 = 4)";
    check(pair(), |(a, b)| a + b, message);
    let message = "f32[x_0, x_size_1] and f32[x_1_0, x_1_1] do not multiply as matrices \
                   (x_0 = 2, x_size_1 = 3, x_1_0 = 2, x_1_1 = 4)";
    check(pair(), |(a, b)| a.mm(&b), message);
    let message = "index 5 lies outside of axis 0 of f32[x_0, x_1] (x_0 = 2, x_1 = 3)";
    check(floats(&[2, 3]), |x| x.select(0, 5), message);
    let message = "f32[x_1_0, x_0] is written to f32[x_0] of another shape (x_1_0 = 3, x_0 = 2)";
    check(
        (floats(&[2]), floats(&[3, 2])),
        |(a, b)| a.add_(&b),
        message,
    );
}

#[test]
fn a_wrong_element_type_is_told() {
    let pair = || (floats(&[2, 3]), integers(&[3, 5]));
    check(pair(), |(a, b)| a.matmul(&b), "f32 and i64 do not multiply");
    check(
        pair(),
        |(a, b)| b.t().mm(&a.t()),
        "i64 and f32 do not multiply",
    );
    let x = || floats(&[2, 3]);
    check(
        x(),
        |x| Embedding::new(3, 4).call(&x),
        "Embedding expects integers (i64 or i32), got f32",
    );
    check(
        integers(&[2, 3]),
        |x| Linear::new(3, 4).call(&x),
        "Linear expects f32 input like its weight, got i64",
    );
    check(
        x(),
        |x| x.index_select(0, &x),
        "index_select wants integers as `index`, got f32",
    );
    check(
        x(),
        |x| x.where_(&x, &x),
        "where wants bool as `condition`, got f32",
    );
    check(
        x(),
        |x| x.masked_fill(&x, 0.0),
        "masked_fill wants bool as `mask`, got f32",
    );
    check(
        integers(&[2, 3]),
        |x| x.softmax(1),
        "softmax wants floating-point numbers as `self`, got i64",
    );
    check(
        x(),
        |x| call("bitwise_not", vec![x.into()], vec![]).swap_remove(0),
        "bitwise_not is not defined for f32",
    );
    check(x(), |x| -x.gt(0.0), "neg is not defined for bool");
}

#[test]
fn a_wrong_argument_is_named() {
    let x = || floats(&[2, 3]);
    check(
        x(),
        |x| x.sum_dim("x"),
        "sum wants a list of integers or None as `dim`, got \"x\"",
    );
    check(
        x(),
        |x| call("softmax", vec![x.into(), 0.5.into()], vec![]).swap_remove(0),
        "softmax wants an integer as `dim`, got 0.5",
    );
    check(
        x(),
        |x| call("softmax", vec![x.into()], vec![]).swap_remove(0),
        "softmax lacks the argument `dim`",
    );
    check(
        x(),
        |x| call("relu", vec![x.into(), 1.into()], vec![]).swap_remove(0),
        "relu takes 1 positional argument, got 2",
    );
    check(
        x(),
        |x| call("sum", vec![x.into()], vec![("dims", 1.into())]).swap_remove(0),
        "sum has no argument dims",
    );
}

#[test]
fn modules_speak_of_channels_and_features() {
    let message = "expected input[1, 2, 8, 8] to have 3 channels, but got 2 channels instead";
    check(
        floats(&[1, 2, 8, 8]),
        |x| Conv2d::new(3, 4, 3).call(&x),
        message,
    );
    let message = "expected input[2, 5] to have 3 features, but got 5 features instead";
    check(floats(&[2, 5]), |x| Linear::new(3, 4).call(&x), message);
    let message = "cross_entropy_loss wants classes as integers, or probabilities of the shape of the scores, got f32[x_1_0] \
                   for f32[x_0, x_size_1] (x_1_0 = 2, x_0 = 2, x_size_1 = 3)";
    check(
        (floats(&[2, 3]), floats(&[2])),
        |(x, y)| CrossEntropyLoss::new().call((&x, &y)),
        message,
    );
}
