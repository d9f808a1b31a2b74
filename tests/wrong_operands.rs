//! Calls every row of the dictionary with operands of wrong ranks, sizes and dtypes, and with wrong numbers: the result is
//! an error that names the operator, or outputs, but no panic and no endless call.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod random;
mod sample_calls;

use std::panic::{AssertUnwindSafe, catch_unwind};

use onionskin::aten::{self, Composite, Operator};
use onionskin::dim::Bindings;
use onionskin::error::Result;
use onionskin::interp;
use onionskin::ir::Weights;
use onionskin::pass;
use sample_calls::{graph_of, inputs, parse, sizes, substitute_symbols};

/// Texts of a call's arguments.
type ArgumentTexts = Vec<Option<String>>;

/// Number of elements of the largest operand in a wrong call that is run.
const MOST_ELEMENTS: usize = 64;

/// Number of threads that share the rows.
const THREADS: usize = 4;

#[test]
fn wrong_operands_are_errors() {
    std::panic::set_hook(Box::new(|_| {}));
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    aten::rows()
                        .skip(thread)
                        .step_by(THREADS)
                        .flat_map(panics)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} calls panic:\n{}",
        failures.join("\n")
    );
}

/// Returns the wrong calls of a row's samples that panic.
fn panics(row: &Composite) -> Vec<String> {
    let mut found = Vec::new();
    for case in row.cases {
        let (operator, texts) = parse(row, case).unwrap();
        let texts = substitute_symbols(&texts, &sizes(2, 8));
        for wrong in wrong_calls(&texts) {
            let called = catch_unwind(AssertUnwindSafe(|| call(operator, &wrong)));
            if called.is_err() {
                found.push(format!("{} ({})", operator.name, shown(&wrong)));
            }
        }
    }
    found
}

fn shown(texts: &ArgumentTexts) -> String {
    let texts: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
    texts.join(", ")
}

/// Imports, lowers and runs a call; any of these may reject it.
fn call(operator: &'static Operator, texts: &ArgumentTexts) -> Result<()> {
    let none = Bindings::new();
    let graph = graph_of(operator, texts, None)?;
    pass::decompose(&graph)?;
    let is_small = |id| {
        graph
            .ty(id)
            .sizes(&none)
            .is_ok_and(|sizes| numel(&sizes) <= MOST_ELEMENTS)
    };
    if graph
        .inputs
        .iter()
        .chain(&graph.outputs)
        .all(|id| is_small(*id))
    {
        interp::run(&graph, &Weights::new(), &inputs(&graph, &none)?)?;
    }
    Ok(())
}

fn numel(sizes: &[usize]) -> usize {
    sizes
        .iter()
        .fold(1, |product: usize, size| product.saturating_mul(*size))
}

/// Returns calls that each have one wrong argument, in every way.
fn wrong_calls(texts: &ArgumentTexts) -> Vec<ArgumentTexts> {
    let mut calls = Vec::new();
    for (place, text) in texts.iter().enumerate() {
        let Some(text) = text else { continue };
        for wrong in wrong_texts(text) {
            let mut call = texts.clone();
            call[place] = Some(wrong);
            calls.push(call);
        }
    }
    calls
}

fn wrong_texts(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, end) in types(text) {
        let (before, after) = (&text[..start], &text[end..]);
        let wrong = wrong_types(&text[start..end]).into_iter();
        found.extend(wrong.map(|ty| format!("{before}{ty}{after}")));
    }
    if text.parse::<f64>().is_ok() {
        found.extend(["-9", "-1", "0", "1", "2", "7", "0.5", "True"].map(str::to_string));
    }
    if text.starts_with('[') && types(text).is_empty() {
        let wrong = [
            "[]",
            "[0]",
            "[-1]",
            "[7]",
            "[0, 1]",
            "[1, 1, 1]",
            "[-1, -1]",
            "[2, 0, 2, 1]",
        ];
        found.extend(wrong.map(str::to_string));
    }
    found
}

/// Returns the ranges of tensor types in a text.
fn types(text: &str) -> Vec<(usize, usize)> {
    let names = [
        "bool", "u8", "i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64",
    ];
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(bracket) = text[from..].find('[').map(|place| from + place) {
        let start = text[..bracket]
            .rfind(|c: char| !c.is_ascii_alphanumeric())
            .map_or(0, |place| place + 1);
        let end = text[bracket..]
            .find(']')
            .map_or(text.len(), |place| bracket + place + 1);
        if names.contains(&&text[start..bracket]) {
            found.push((start, end));
            from = end;
        } else {
            from = bracket + 1;
        }
    }
    found
}

fn wrong_types(ty: &str) -> Vec<String> {
    let (dtype, sizes) = ty.trim_end_matches(']').split_once('[').unwrap();
    let own: Vec<String> = sizes
        .split(',')
        .map(|size| size.trim().to_string())
        .filter(|size| !size.is_empty())
        .collect();
    let mut shapes: Vec<Vec<String>> = [
        &[][..],
        &["0"],
        &["1"],
        &["9"],
        &["2", "3"],
        &["3", "0", "2"],
        &["2", "3", "4", "5"],
        &["1", "2", "1", "2", "1", "2"],
    ]
    .iter()
    .map(|sizes| sizes.iter().map(ToString::to_string).collect())
    .collect();
    for axis in 0..own.len() {
        for size in ["0", "1", "9"] {
            let mut shape = own.clone();
            shape[axis] = size.to_string();
            shapes.push(shape);
        }
        let mut shape = own.clone();
        shape.remove(axis);
        shapes.push(shape);
    }
    shapes.push([&["1".to_string()], own.as_slice()].concat());
    shapes.push([own.as_slice(), &["3".to_string()]].concat());
    let mut found: Vec<String> = shapes
        .iter()
        .map(|shape| format!("{dtype}[{}]", shape.join(", ")))
        .collect();
    let dtypes = ["bool", "u8", "i64", "f16", "f64"];
    found.extend(dtypes.map(|dtype| format!("{dtype}[{}]", own.join(", "))));
    found
}
