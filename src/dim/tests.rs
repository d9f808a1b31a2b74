use super::*;
use crate::budget::{Budget, Limits};

fn dim(text: &str) -> Dim {
    text.parse().expect("a size")
}

#[test]
#[cfg_attr(miri, ignore = "thousands of expressions take hours")]
fn normal_forms_are_equal() {
    for (left, right) in [
        ("B*3 + B", "4*B"),
        ("floordiv(2*B + 4, 2)", "B + 2"),
        ("floordiv(4*B + 3, 4)", "B"),
        ("floordiv(B*S*768, S*12)", "64*B"),
        ("floordiv(B*S*64 + B*64, S + 1)", "64*B"),
        ("floordiv(floordiv(H - 1, 2) + 1, 2)", "floordiv(H + 1, 4)"),
        ("floordiv(B*S - 1, S)", "B - 1"),
        ("floordiv(2*B*S + 1, 2*S)", "B"),
        ("max(B, B + 1)", "B + 1"),
        ("-floordiv(-B, 64)", "floordiv(B + 63, 64)"),
        ("-floordiv(-4*B, 64)", "floordiv(4*B + 63, 64)"),
        ("floordiv(1 - B, 2)", "-floordiv(B, 2)"),
        ("-floordiv(floordiv(-B, 2), 3)", "floordiv(B + 5, 6)"),
        ("4*min(64, min(64, B))", "4*min(64, B)"),
        ("min(min(B, 8), min(4, S))", "min(4, min(B, S))"),
        ("min(S, min(B, 4))", "min(min(4, S), B)"),
        ("max(max(B, 8), max(4, B))", "max(8, B)"),
        ("min(B, 3*B + S)", "B"),
        ("max(0, floordiv(B*S, 2))", "floordiv(B*S, 2)"),
        ("max(0, min(B, S))", "min(B, S)"),
        ("min(B, max(B, S))", "B"),
        ("max(B, min(B, S))", "B"),
        ("min(0, B)", "0"),
        ("max(-1, B - 1)", "B - 1"),
    ] {
        assert_eq!(dim(left), dim(right), "{left} and {right}");
    }
}

#[test]
fn text_round_trips() {
    for text in [
        "3",
        "B",
        "2*B*S + 1",
        "floordiv(H - 1, 2) + 1",
        "min(3, B)",
        "-B + 4",
    ] {
        assert_eq!(dim(&dim(text).to_string()), dim(text));
    }
}

#[test]
fn bad_text_is_an_error() {
    for text in ["", "B +", "foo(1, 2)", "3B", "(B", "1 2", "%"] {
        assert!(text.parse::<Dim>().is_err(), "{text}");
    }
}

#[test]
fn solves_for_linear_symbols() {
    let (name, value) = dim("S + 1").solve(&dim("197")).expect("solvable");
    assert_eq!((&*name, value), ("S", dim("196")));
    assert!(dim("floordiv(S, 2)").solve(&dim("3")).is_none());
}

/// Simplified extrema and divisions have the value of the original expressions for all sizes, negative terms included.
#[test]
#[cfg_attr(miri, ignore = "thousands of expressions take hours")]
fn normal_forms_preserve_values() {
    type Function = (fn(&Dim, &Dim) -> Dim, fn(i64, i64) -> i64);
    let functions: [Function; 4] = [
        (Dim::minimum, |a, b| a.min(b)),
        (Dim::maximum, |a, b| a.max(b)),
        (
            |a, b| (a - b).floor_div(&Dim::from(4)),
            |a, b| floor_div(a - b, 4),
        ),
        (
            |a, b| (a + b).ceil_div(&Dim::from(3)),
            |a, b| -floor_div(-a - b, 3),
        ),
    ];
    let leaves = [
        "B", "S", "0", "5", "B - 3", "2*S + 1", "4 - B", "B*S", "-2*S",
    ]
    .map(dim);
    let pairs = |leaves: &[Dim]| {
        let mut made = Vec::new();
        for (a, b) in leaves
            .iter()
            .flat_map(|a| leaves.iter().map(move |b| (a, b)))
        {
            made.extend(functions.iter().map(|(symbolic, _)| symbolic(a, b)));
        }
        made
    };
    let mut inner = pairs(&leaves);
    inner.sort();
    inner.dedup();
    let inner: Vec<Dim> = inner.into_iter().step_by(7).chain(leaves).collect();
    for (a, b) in inner.iter().flat_map(|a| inner.iter().map(move |b| (a, b))) {
        for (symbolic, plain) in &functions {
            let made = symbolic(a, b);
            for (batch, length) in [(0, 0), (1, 0), (0, 3), (2, 5), (9, 4), (3, 64)] {
                let sizes = Bindings::from([("B".into(), batch), ("S".into(), length)]);
                let [found, a, b] = [&made, a, b].map(|dim| dim.eval(&sizes).ok());
                let expected = a.zip(b).map(|(a, b)| plain(a, b));
                assert_eq!(found, expected, "{made} of {a:?} and {b:?}");
            }
        }
    }
}

#[test]
fn sizes_of_many_terms_are_refused() {
    let sum = |count: usize| {
        let products: Vec<String> = (0..count).map(|i| format!("A{i}*B{i}")).collect();
        products.join(" + ").parse::<Dim>()
    };
    assert!(sum(100).is_ok());
    let error = sum(3000).unwrap_err();
    assert_eq!(
        error.message(),
        "a size is too long when it is multiplied out"
    );
}

#[test]
fn evaluates_and_substitutes() {
    let bindings = Bindings::from([("H".into(), 7)]);
    assert_eq!(dim("floordiv(H - 1, 2)*2").eval(&bindings).ok(), Some(6));
    let map = BTreeMap::from([("H".into(), dim("2*B"))]);
    assert_eq!(dim("floordiv(H, 2)").substitute(&map), dim("B"));
}

#[test]
fn sizes_are_charged_within_a_budget() {
    let budget = |values| {
        Budget::new(Limits {
            values,
            ..Limits::default()
        })
    };
    let fourth_power = || {
        let size = Dim::symbol("B") + Dim::symbol("S");
        let square = &size * &size;
        Ok(&square * &square)
    };
    // Each of the three terms has two or three factors.
    let small = budget(0).scope(fourth_power).unwrap();
    assert_eq!(small, fourth_power().unwrap());
    let huge = |values| {
        budget(values).scope(|| {
            let power = fourth_power()?;
            Ok(&power * &power)
        })
    };
    let weight = small.extent().weight;
    assert!(huge(10 * (weight * weight) as u64).is_ok());
    let error = huge(weight as u64).unwrap_err();
    assert!(error.advice().unwrap().contains("--limit values=N"));
    assert_eq!(&small * &small, huge(1 << 20).unwrap());
}

#[test]
fn sizes_nest_within_a_budget() {
    let nested = |levels: usize| {
        let divided = |size: Dim, _| (size + Dim::symbol("B")).floor_div(&Dim::symbol("S"));
        Ok((0..levels).fold(Dim::symbol("B"), divided))
    };
    assert!(Budget::default().scope(|| nested(100)).is_ok());
    let error = Budget::default().scope(|| nested(300)).unwrap_err();
    assert!(
        error.message().contains("nested more than 256 deep"),
        "{error}"
    );
    assert_eq!(nested(300).unwrap().extent().depth, 300);
}
