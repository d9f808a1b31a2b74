use super::*;
use crate::dim::Bindings;

fn symbols() -> Symbols {
    Symbols::new(Bindings::from([("H".into(), 7)]), Vec::new())
}

fn size(text: &str) -> ScriptNumber {
    ScriptNumber::Int(text.parse().unwrap())
}

#[test]
fn halving_a_size_stays_symbolic() {
    let symbols = symbols();
    let half = binary(
        &symbols,
        "mul",
        &size("H").to_float(),
        &ScriptNumber::Float(0.5),
    )
    .unwrap()
    .unwrap();
    let floor = unary(&symbols, "floor", &half).unwrap().unwrap();
    assert_eq!(floor, size("floordiv(H, 2)"));
    assert!(symbols.guards().is_empty());
}

#[test]
fn inexact_factors_fix_the_size() {
    let symbols = symbols();
    let product = binary(&symbols, "mul", &size("H"), &ScriptNumber::Float(0.3)).unwrap();
    assert_eq!(product, Some(ScriptNumber::Float(7.0 * 0.3)));
    assert_eq!(symbols.resolve(&"H".parse().unwrap()), Dim::from(7));
}

#[test]
fn comparisons_record_guards() {
    let symbols = symbols();
    let answer = binary(&symbols, "lt", &size("H"), &ScriptNumber::Float(7.5)).unwrap();
    assert_eq!(answer, Some(ScriptNumber::Bool(true)));
    assert_eq!(symbols.guards().len(), 1);
    let same = binary(&symbols, "eq", &size("2*H"), &size("H + H")).unwrap();
    assert_eq!(same, Some(ScriptNumber::Bool(true)));
    assert_eq!(symbols.guards().len(), 1);
}

#[test]
fn known_integers_wrap() {
    let symbols = symbols();
    let apply = |name: &str, a: i64, b: i64| {
        binary(&symbols, name, &ScriptNumber::int(a), &ScriptNumber::int(b)).unwrap()
    };
    assert_eq!(apply("add", i64::MAX, 1), Some(ScriptNumber::int(i64::MIN)));
    assert_eq!(apply("mul", 1 << 62, 4), Some(ScriptNumber::int(0)));
    assert_eq!(
        apply("pow", 3, 41),
        Some(ScriptNumber::int(3i64.wrapping_pow(41)))
    );
    assert_eq!(apply("script_lshift", 1, 64), Some(ScriptNumber::int(1)));
    assert_eq!(apply("__lshift__", 1, 64), Some(ScriptNumber::int(0)));
    assert_eq!(apply("trunc_divide", -7, 2), Some(ScriptNumber::int(-3)));
    assert_eq!(
        ScriptNumber::Float(1e30).to_int(&symbols).unwrap(),
        Dim::from(i64::MIN)
    );
}

#[test]
fn rounded_quotients_do_not_become_whole() {
    let symbols = symbols();
    let quotient = |by: f64| {
        binary(&symbols, "div", &size("H"), &ScriptNumber::Float(by))
            .unwrap()
            .unwrap()
    };
    let third = quotient(3.0);
    assert_eq!(third, ScriptNumber::Ratio("H".parse().unwrap(), 3));
    let doubled = binary(&symbols, "mul", &third, &ScriptNumber::int(2)).unwrap();
    assert_eq!(
        doubled,
        Some(ScriptNumber::Ratio("2*H".parse().unwrap(), 3))
    );
    let rounded = unary(&symbols, "round", &third).unwrap();
    assert_eq!(rounded, Some(size("floordiv(2*H + 3, 6)")));
    let product = binary(&symbols, "mul", &quotient(49.0), &ScriptNumber::int(49)).unwrap();
    assert_eq!(product, Some(ScriptNumber::Float(7.0 / 49.0 * 49.0)));
}
