use super::*;

fn dim(text: &str) -> Dim {
    text.parse().expect("a size")
}

#[test]
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

#[test]
fn evaluates_and_substitutes() {
    let bindings = Bindings::from([("H".into(), 7)]);
    assert_eq!(dim("floordiv(H - 1, 2)*2").eval(&bindings).ok(), Some(6));
    let map = BTreeMap::from([("H".into(), dim("2*B"))]);
    assert_eq!(dim("floordiv(H, 2)").substitute(&map), dim("B"));
}
