//! Operators accept the element types that PyTorch accepts: calls recorded by `tests/fixtures/make_dtypes.py`, with each tensor
//! argument in turn converted to another type.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod random;
mod sample_calls;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use onionskin::aten::{self, Operator};
use sample_calls::graph_of;
use serde::Deserialize;

/// The types that take the place of an argument's.
const DTYPES: [&str; 4] = ["f32", "i64", "i32", "bool"];

/// A call that PyTorch accepts.
#[derive(Deserialize)]
struct RecordedCall {
    /// Arguments by parameter.
    call: BTreeMap<String, String>,
    /// For each tensor parameter, the types that PyTorch accepts.
    accepted: BTreeMap<String, Vec<String>>,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// `accepted_dtypes_differences.txt` lists the differences from PyTorch. `BLESS=1` writes it.
#[test]
fn operators_accept_the_types_that_pytorch_accepts() {
    let text = std::fs::read_to_string(fixture("accepted_dtypes.json")).unwrap();
    let recorded: BTreeMap<String, Vec<RecordedCall>> = serde_json::from_str(&text).unwrap();
    let mut found = BTreeSet::new();
    for (name, calls) in &recorded {
        let operator = aten::operator(name).unwrap();
        for call in calls {
            found.extend(differences(operator, call));
        }
    }
    let found: String = found.iter().map(|line| format!("{line}\n")).collect();
    let path = fixture("accepted_dtypes_differences.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap());
}

/// The types that only one of the two accepts, a line for each parameter.
fn differences(operator: &'static Operator, recorded: &RecordedCall) -> Vec<String> {
    let texts = |changed: &str, dtype: &str| {
        let parameters = operator.schema.parameters.iter();
        let text = |name: &str| {
            let text = recorded.call.get(name)?;
            Some(match name == changed {
                true => with_dtype(text, dtype),
                false => text.clone(),
            })
        };
        parameters.map(|parameter| text(&parameter.name)).collect()
    };
    let as_recorded: Vec<Option<String>> = texts("", "");
    if graph_of(operator, &as_recorded, None).is_err() {
        // The form of the call is refused whatever the types are, such as a result whose size depends on values.
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (parameter, accepted) in &recorded.accepted {
        let is_accepted = |dtype: &str| {
            let texts: Vec<Option<String>> = texts(parameter, dtype);
            graph_of(operator, &texts, None).is_ok()
        };
        let ours: Vec<&str> = DTYPES
            .into_iter()
            .filter(|dtype| is_accepted(dtype))
            .collect();
        let more: Vec<&str> = ours
            .iter()
            .filter(|dtype| !accepted.iter().any(|other| other == *dtype))
            .copied()
            .collect();
        let less: Vec<&String> = accepted
            .iter()
            .filter(|dtype| !ours.contains(&dtype.as_str()))
            .collect();
        let line =
            |what: &str, dtypes: String| format!("{} {parameter}: {what} {dtypes}", operator.name);
        if !more.is_empty() {
            lines.push(line("PyTorch refuses", more.join(" ")));
        }
        if !less.is_empty() {
            lines.push(line(
                "we refuse",
                less.iter()
                    .map(|dtype| dtype.as_str())
                    .collect::<Vec<_>>()
                    .join(" "),
            ));
        }
    }
    lines
}

/// A tensor's text with another element type: `f32[2, 3]` becomes `i64[2, 3]`.
fn with_dtype(text: &str, dtype: &str) -> String {
    let shape = text.find('[').map_or("", |start| &text[start..]);
    format!("{dtype}{shape}")
}
