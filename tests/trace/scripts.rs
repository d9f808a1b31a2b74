//! Programs with every construct of PyTorch's TorchScript printer; `tests/fixtures/make_scripts.py` records them.

use onionskin::error::{Error, ErrorKind};

use super::recorded::{import_error, replay_case};

macro_rules! replay {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                replay_case(concat!("cases/scripts/", stringify!($name)));
            }
        )+
    };
}

replay! {
    parameter_lists
    parameter_dicts
    modules
    enums
    named_tuples
    interfaces
    classes
    hooks
    overloads
    exported
    withs
    flow
    forked
    awaited
    slices
    collections
    refined
    functions
    literals
    strings
    methods
    devices
}

/// Buffers of unsupported layouts and dtypes are rejected only if a program reads them.
#[test]
fn unread_buffers_are_not_rejected() {
    replay_case("cases/scripts/unused");
}

/// Returns the errors of a case, each with the user's line.
fn import_errors(name: &str) -> Vec<String> {
    let error = import_error(&format!("refused/{name}"));
    let unsupported = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let text = error.to_string();
        assert!(text.contains("make_scripts.py:"), "{text}");
        error.message().to_string()
    };
    error.iter().map(unsupported).collect()
}

#[test]
fn tensors_of_other_layouts_are_named() {
    assert_eq!(import_errors("sparse"), ["buffer is a sparse tensor"]);
    assert_eq!(import_errors("rows"), ["buffer is a sparse tensor"]);
    assert_eq!(
        import_errors("negative"),
        ["buffer is a lazily negated tensor"]
    );
}

#[test]
fn complex_numbers_are_named() {
    let expected = ["number is a complex number", "the complex number 1.5-2j"];
    let mut found = import_errors("complex");
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn generators_are_named() {
    let found = import_errors("generator");
    assert!(found[0].contains("aten::Generator"), "{found:?}");
}
