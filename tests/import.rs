//! Imports archives and runs the graphs on the oracle: the fixtures, and the corpus where it is present.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use onionskin::error::{Error, Kind};
use onionskin::interp;
use onionskin::ir::Module;
use onionskin::trace::torchscript::{Archive, Entry, ImportOptions, InputSpec, import};
use support::{Case, Tolerance};

/// What became of a case.
#[derive(Debug)]
enum Outcome {
    /// All input sets give the recorded outputs. How many graphs it took: one, or more where sizes needed others.
    Passed(usize),
    /// The dictionary lacks operators; what was missing.
    Missing(String),
    /// Anything else.
    Failed(String),
}

fn imported(case: &Case, inputs: Option<Vec<InputSpec>>) -> Result<Module, Error> {
    let archive = Archive::from_bytes(case.file("model.pt"))?;
    let entry = Entry {
        inputs,
        ..Entry::default()
    };
    let options = ImportOptions {
        entries: vec![entry],
        ..ImportOptions::default()
    };
    import(&archive, &options)
}

fn outcome(error: &Error) -> Outcome {
    let lacks = |error: &Error| error.kind() == Kind::Unsupported;
    if error.iter().all(lacks) {
        return Outcome::Missing(error.to_string());
    }
    Outcome::Failed(error.to_string())
}

/// Runs a case as it was recorded. One graph must do for all sets of inputs whose sizes its guards allow.
fn replay(case: &Case) -> Outcome {
    let sets = match case.description.get("sets") {
        Some(sets) => sets.as_array().unwrap().clone(),
        None => vec![operator_set(case)],
    };
    let mut graphs: Vec<(Vec<InputSpec>, Module)> = Vec::new();
    for set in &sets {
        if set.get("calls").is_some() {
            return Outcome::Missing("a case of several calls".to_string());
        }
        let tensors = case.tensors(set["file"].as_str().unwrap());
        let mut flat = Vec::new();
        let given = set["inputs"].as_array().unwrap().iter();
        let specs: Vec<InputSpec> = given
            .map(|value| support::spec(value, &tensors, &mut flat))
            .collect();
        let shapes: Vec<&[usize]> = flat.iter().map(|tensor| tensor.shape()).collect();
        let fits = |(made_for, module): &(Vec<InputSpec>, Module)| {
            same_constants(made_for, &specs) && module.graphs[0].bind(&shapes).is_ok()
        };
        if !graphs.iter().any(fits) {
            if let Some((_, module)) = graphs.first()
                && std::env::var_os("SHOW").is_some()
            {
                let refused = module.graphs[0].bind(&shapes).err();
                println!("{}: {} again: {refused:?}", case.name, set["label"]);
            }
            match imported(case, Some(specs.clone())) {
                Ok(module) => graphs.push((specs.clone(), module)),
                Err(error) => return outcome(&error),
            }
        }
        let (_, module) = graphs.iter().find(|graph| fits(graph)).unwrap();
        let graph = &module.graphs[0];
        let outputs = match interp::run(graph, &module.weights, &flat) {
            Ok(outputs) => outputs,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let tolerance = Tolerance {
            rtol: set["rtol"].as_f64().unwrap(),
            atol: set["atol"].as_f64().unwrap(),
        };
        let tree = graph.output_tree.clone().unwrap();
        let bindings = graph.bind(&shapes).unwrap();
        let compared = support::compare(
            &set["output"],
            &tensors,
            &tree,
            &outputs,
            &bindings,
            tolerance,
        );
        if let Err(message) = compared {
            return Outcome::Failed(format!("set {}: {message}", set["label"]));
        }
    }
    Outcome::Passed(graphs.len())
}

/// An operator's case in the form of a set.
fn operator_set(case: &Case) -> serde_json::Value {
    let tensors = |key: &str, prefix: &str| -> Vec<serde_json::Value> {
        let count = case.description[key].as_array().unwrap().len();
        (0..count)
            .map(|index| serde_json::json!({"tensor": format!("{prefix}{index}")}))
            .collect()
    };
    let mut outputs = tensors("outputs", "out");
    let output = match outputs.len() {
        1 => outputs.remove(0),
        _ => serde_json::json!({ "tuple": outputs }),
    };
    serde_json::json!({
        "label": "",
        "file": "io.safetensors",
        "inputs": tensors("inputs", "in"),
        "output": output,
        "rtol": case.description["rtol"],
        "atol": case.description["atol"],
    })
}

fn same_constants(a: &[InputSpec], b: &[InputSpec]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (InputSpec::Tensor(a), InputSpec::Tensor(b)) => {
                a.dtype == b.dtype && a.rank() == b.rank()
            }
            (InputSpec::Tuple(a), InputSpec::Tuple(b))
            | (InputSpec::List(a), InputSpec::List(b)) => same_constants(a, b),
            (InputSpec::Dict(a), InputSpec::Dict(b)) => {
                let values = |entries: &[(String, InputSpec)]| {
                    entries
                        .iter()
                        .map(|(_, value)| value.clone())
                        .collect::<Vec<_>>()
                };
                a.iter()
                    .map(|(key, _)| key)
                    .eq(b.iter().map(|(key, _)| key))
                    && same_constants(&values(a), &values(b))
            }
            (a, b) => a == b,
        })
}

/// Replays every case of a folder; with `SHOW` set, prints what became of each.
fn replay_folder(folder: &Path) -> BTreeMap<&'static str, usize> {
    let wanted = std::env::var("ONLY").unwrap_or_default();
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for path in support::cases(folder) {
        if !path.to_string_lossy().contains(&wanted) {
            continue;
        }
        for case in Case::read(&path) {
            let outcome = replay(&case);
            if std::env::var_os("SHOW").is_some() {
                println!("{}: {outcome:?}", case.name);
            }
            let kind = match outcome {
                Outcome::Passed(1) => "passed",
                Outcome::Passed(_) => "passed with several graphs",
                Outcome::Missing(_) => "operators missing",
                Outcome::Failed(message) => {
                    failures.push(format!("{}: {message}", case.name));
                    "failed"
                }
            };
            *counts.entry(kind).or_insert(0) += 1;
        }
    }
    println!("{}: {counts:?}", folder.display());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    counts
}

fn both(kind: &str) {
    replay_folder(&support::fixtures().join(kind));
    match support::corpus() {
        Some(corpus) => drop(replay_folder(&corpus.join(kind))),
        None => println!("no corpus: only the fixtures were replayed"),
    }
}

#[test]
fn programs() {
    both("programs");
}

#[test]
fn models() {
    both("models");
}

#[test]
fn operators() {
    both("ops");
}
