//! The trace checker on functions and traces in text, its report beneath: `tests/check/*.check`. `BLESS=1` writes what is
//! found.
//!
//! A file has parts, each after a line `=== NAME`: `first trace` is checked, `second trace` is what tracing again gives (the
//! first, if left out), `function` is what calls run (the first trace, if left out), `options` has a line for each option.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and say what they skip"
)]

mod golden;

use std::collections::BTreeMap;

use onionskin::dtype::DType;
use onionskin::error::{Error, Location, Place, Result};
use onionskin::interp;
use onionskin::ir::Module;
use onionskin::item::{Item, flatten};
use onionskin::tensor::Tensor;
use onionskin::trace::check::{
    Allow, CheckOptions, Finding, Id, Report, Severity, Subject, Traced,
};
use onionskin::trace::check::{check_trace, signature};

#[test]
fn reports() {
    golden::check("tests/check", "check", "\n=== report\n", |input| {
        report(input) + "\n"
    });
}

fn report(input: &str) -> String {
    let parts = parts(input);
    let part = |name: &str| parts.get(name).copied();
    let first = module(part("first trace").expect("a first trace"), 0.0);
    let subject = Texts {
        function: part("function").map_or_else(|| first.clone(), |text| module(text, 0.0)),
        second: part("second trace").map_or_else(|| first.clone(), |text| module(text, 1.0)),
    };
    let traced = Traced {
        module: first,
        warnings: Vec::new(),
    };
    let options = options(part("options").unwrap_or_default());
    match check_trace(&subject, &traced, &options) {
        Ok(report) => report.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

fn parts(input: &str) -> BTreeMap<&str, &str> {
    let parts = input.split("=== ").skip(1);
    parts
        .map(|part| part.split_once('\n').expect("a name"))
        .collect()
}

fn options(text: &str) -> CheckOptions {
    let mut options = CheckOptions::default();
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("strict", _) => options.strict = true,
            ("trace-inputs-only", _) => options.perturb = false,
            ("allow", rule) => options.allow.add(rule),
            ("rtol", value) => options.tolerances.rtol = value.parse().expect("a number"),
            ("entry", name) => options.entry = Some(name.into()),
            _ => panic!("there is no option {line}"),
        }
    }
    options
}

/// A function and its traces, written down.
struct Texts {
    function: Module,
    second: Module,
}

impl Subject for Texts {
    fn trace(&self, _: &[Item]) -> Result<Traced> {
        Ok(Traced {
            module: self.second.clone(),
            warnings: Vec::new(),
        })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        run(&self.function, arguments)
    }
}

fn run(module: &Module, arguments: &[Item]) -> Result<Item> {
    let graph = module.graphs.first().expect("a graph");
    let inputs = flatten(&signature(graph), arguments)?;
    let outputs = interp::run(graph, &module.weights, &inputs)?;
    let plain = graph.plain_outputs();
    let tree = graph.output_tree.as_ref().unwrap_or(&plain);
    Item::build(tree, &outputs, &Default::default())
}

/// The graphs with numbers that count up for the weights that the text declares; those called `changing` begin with `first`.
fn module(text: &str, first: f64) -> Module {
    let mut module: Module = text
        .parse()
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    for line in text.lines().filter_map(|line| line.strip_prefix("weight ")) {
        let (name, ty) = line.split_once(": ").expect("a type");
        let ty: onionskin::shape::TensorType = ty.parse().expect("a type");
        let shape = ty.sizes(&Default::default()).expect("sizes");
        let first = if name == "changing" { first } else { 0.0 };
        let data = (0..shape.iter().product::<usize>()).map(|index| index as f64 + first);
        let tensor = Tensor::from_f64(ty.dtype, shape, data.collect()).expect("a tensor");
        module.weights.insert(name.to_string(), tensor);
    }
    module
}

/// A function in Rust: what it gives, and the text of the graph that tracing it records.
struct Function<'a> {
    call: &'a dyn Fn(&[f64]) -> Vec<f64>,
    trace: &'a dyn Fn(&[f64]) -> String,
}

impl Subject for Function<'_> {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        let module = module(&(self.trace)(&numbers(arguments)), 0.0);
        Ok(Traced {
            module,
            warnings: Vec::new(),
        })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let result = (self.call)(&numbers(arguments));
        Ok(Tensor::from_f64(DType::F32, [result.len()], result)?.into())
    }
}

fn numbers(arguments: &[Item]) -> Vec<f64> {
    arguments
        .iter()
        .flat_map(Item::tensors)
        .flat_map(Tensor::to_f64)
        .collect()
}

fn check(function: &Function<'_>, options: CheckOptions) -> Report {
    let inputs = vec![Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap().into()];
    let traced = function.trace(&inputs).unwrap();
    let options = CheckOptions {
        inputs: vec![inputs],
        ..options
    };
    check_trace(function, &traced, &options).unwrap()
}

fn found(report: &Report) -> Vec<(Id, Option<u32>)> {
    let line = |finding: &Finding| Some(finding.place.location.as_ref()?.line);
    report
        .findings
        .iter()
        .map(|finding| (finding.id, line(finding)))
        .collect()
}

fn scaled(factor: &str, line: u32) -> String {
    format!(
        "graph forward(x: f32[B]) -> f32[B] {{\n  size B = 2\n  a = aten.relu x  @ model.py:3\n  \
         b = aten.mul.Tensor a, {factor}  @ model.py:{line}\n  return b\n}}"
    )
}

fn relu(x: &[f64], factor: f64) -> Vec<f64> {
    x.iter().map(|x| x.max(0.0) * factor).collect()
}

#[test]
fn a_branch_on_values_is_found_without_check_inputs() {
    let positive = |x: &[f64]| x.iter().sum::<f64>() > 0.0;
    let function = Function {
        call: &|x| {
            if positive(x) {
                relu(x, 2.0)
            } else {
                x.iter().map(|_| 5.0).collect()
            }
        },
        trace: &|x| match positive(x) {
            true => scaled("2.0", 5),
            false => "graph forward(x: f32[B]) -> f32[B] {\n  size B = 2\n  \
                      a = full 5.0, dtype=f32, shape=[B]  @ model.py:7\n  return a\n}"
                .into(),
        },
    };
    let report = check(&function, CheckOptions::default());
    assert_eq!(found(&report), [(Id::OutputsDiffer, Some(3))], "{report}");
    assert!(report.passed());
    let strict = CheckOptions {
        strict: true,
        ..CheckOptions::default()
    };
    assert!(!check(&function, strict).passed());
    let only = CheckOptions {
        perturb: false,
        ..CheckOptions::default()
    };
    assert!(check(&function, only).findings.is_empty());
}

#[test]
fn a_number_that_was_read_is_found_with_the_line_that_uses_it() {
    let largest = |x: &[f64]| x.iter().copied().fold(0.0, f64::max);
    let function = Function {
        call: &|x| relu(x, largest(x)),
        trace: &|x| scaled(&format!("{:?}", largest(x)), 9),
    };
    let report = check(&function, CheckOptions::default());
    let expected = [
        (Id::PathDependsOnInput, Some(9)),
        (Id::OutputsDiffer, Some(9)),
    ];
    assert_eq!(found(&report), expected, "{report}");
}

#[test]
fn an_unrolled_loop_is_found_where_results_agree() {
    let function = Function {
        call: &|x| relu(x, 1.0),
        trace: &|x| {
            let relus = (0..x.len()).map(|_| "  x = aten.relu x  @ model.py:4\n");
            let mut text = String::from("graph forward(v0: f32[B]) -> f32[B] {\n  size B = 2\n");
            for (index, line) in relus.enumerate() {
                let line = line.replacen("x =", &format!("v{} =", index + 1), 1);
                text += &line.replace("relu x", &format!("relu v{index}"));
            }
            text + &format!("  return v{}\n}}", x.len())
        },
    };
    let report = check(&function, CheckOptions::default());
    // Once for the iterations that are missing, once for those that are too many.
    let expected = [(Id::PathDependsOnInput, Some(4)); 2];
    assert_eq!(found(&report), expected, "{report}");
}

#[test]
fn a_function_that_counts_its_calls_is_found() {
    let calls = std::cell::Cell::new(0.0);
    let next = || {
        calls.set(calls.get() + 1.0);
        calls.get()
    };
    let function = Function {
        call: &|x| relu(x, next()),
        trace: &|_| scaled(&format!("{:?}", next()), 5),
    };
    let options = CheckOptions {
        perturb: false,
        ..CheckOptions::default()
    };
    let report = check(&function, options);
    let ids: Vec<Id> = report.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(
        ids,
        [Id::UnstableFunction, Id::OutputsDiffer, Id::GraphsDiffer],
        "{report}"
    );
}

#[test]
fn warnings_of_the_tracer_are_reported_and_suppressed() {
    let function = Function {
        call: &|x| relu(x, 2.0),
        trace: &|_| scaled("2.0", 5),
    };
    let inputs: Vec<Item> = vec![Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap().into()];
    let mut traced = function.trace(&inputs).unwrap();
    let location = Location {
        file: "model.py".into(),
        line: 4,
    };
    let place = Place {
        module: "head".into(),
        location: Some(location),
    };
    traced
        .warnings
        .push(Finding::new(Id::HostRead, "read 2.0 as f32").at(&place));
    let options = CheckOptions {
        inputs: vec![inputs],
        ..CheckOptions::default()
    };
    let report = check_trace(&function, &traced, &options).unwrap();
    assert_eq!(found(&report), [(Id::HostRead, Some(4))]);
    let allow = Allow::new(["W0201@head"]);
    let report = check_trace(&function, &traced, &CheckOptions { allow, ..options }).unwrap();
    assert_eq!((report.findings.len(), report.suppressed), (0, 1));
    assert_eq!(report.count(Severity::Warning), 0);
}

#[test]
fn a_trace_that_fails_again_is_reported_with_what_was_found_before() {
    struct Once(Traced);
    impl Subject for Once {
        fn trace(&self, _: &[Item]) -> Result<Traced> {
            Err(Error::unsupported("tracing twice").at("model.py:8"))
        }

        fn call(&self, arguments: &[Item]) -> Result<Item> {
            run(&self.0.module, arguments)
        }
    }
    let text = "graph forward(x: f32[2]) -> (f32[2], f32[]) {\n  \
                b = full 1.0, dtype=f32, shape=[]  @ model.py:2\n  return x, b\n}";
    let subject = Once(Traced {
        module: module(text, 0.0),
        warnings: Vec::new(),
    });
    let options = CheckOptions {
        perturb: false,
        ..CheckOptions::default()
    };
    let report = check_trace(&subject, &subject.0, &options).unwrap();
    assert_eq!(
        found(&report),
        [(Id::NoDependence, Some(2)), (Id::RunFailed, None)]
    );
    assert!(
        report
            .to_string()
            .contains("the second trace failed: tracing twice"),
        "{report}"
    );
    assert!(report.to_string().contains("at model.py:8"), "{report}");
}
