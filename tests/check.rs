//! Tests the trace checker on functions and traces as text, and on archives; the expected report follows the input:
//! `tests/check/*.check`. `BLESS=1` writes the found reports.
//!
//! A file has parts, each after a line `=== NAME`. `first trace` is checked. `second trace` is the result of tracing again;
//! it defaults to the first. `function` is the graph that calls run; it defaults to the first trace. `options` has a line
//! for each option. `archive` names a fixture that is checked instead, with its graph on the host.
//!
//! `export` is a graph that the first trace is compared with; `recorded` computes PyTorch's results for that comparison.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod golden;

use std::collections::BTreeMap;

use onionskin::compare::Tolerance;
use onionskin::dtype::DType;
use onionskin::error::{Error, Location, Result, SourcePlace};
use onionskin::ir::{Graph, GraphModule};
use onionskin::item::Item;
use onionskin::kernel::materialization::Precision;
use onionskin::model::{self, DeviceReference, first_wrong_pass};
use onionskin::pass::{PIPELINE, Pass};
use onionskin::tensor::Tensor;
use onionskin::trace::check::{
    AllowList, CheckOptions, CheckReport, Finding, Id, Severity, Subject, SubjectKind, Traced,
};
use onionskin::trace::check::{check_trace, evaluate, example};
use onionskin::{CompileOptions, Device, Model};

#[test]
fn reports() {
    golden::check("tests/check", "check", "\n=== report\n", |input| {
        report(input) + "\n"
    });
}

fn report(input: &str) -> String {
    let parts = parts(input);
    let part = |name: &str| parts.get(name).copied();
    let options = options(part("options").unwrap_or_default());
    if let Some(name) = part("archive") {
        return check_archive(name.trim(), options).to_string();
    }
    let first = module(part("first trace").expect("a first trace"), 0.0);
    let subject = TextFunction {
        function: part("function").map_or_else(|| first.clone(), |text| module(text, 0.0)),
        second: part("second trace").map_or_else(|| first.clone(), |text| module(text, 1.0)),
    };
    let traced = Traced {
        module: first,
        warnings: Vec::new(),
    };
    let report = check_trace(&subject, &traced, &options);
    let report = match part("export") {
        Some(export) => report.and_then(|report| {
            compare_with_export(report, &traced.module, export, part("recorded"), &options)
        }),
        None => report,
    };
    match report {
        Ok(report) => report.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

/// Adds to a report the comparison of a trace with an export, for the example of the trace.
fn compare_with_export(
    report: CheckReport,
    trace: &GraphModule,
    export: &str,
    recorded: Option<&str>,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let inputs = example(&report.graph)?;
    let recorded = recorded.map(|text| run(&module(text, 0.0), &inputs).expect("a result"));
    let recorded: Vec<Item> = recorded.into_iter().collect();
    let options = CheckOptions {
        inputs: vec![inputs],
        ..options.clone()
    };
    let [trace, export] = [trace.clone(), module(export, 0.0)].map(|graph| TextFunction {
        function: graph.clone(),
        second: graph,
    });
    report.against_export(&trace, &export, &options, &recorded)
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
            ("max-rounds", value) => options.max_rounds = Some(value.parse().expect("a number")),
            ("entry", name) => options.entry = Some(name.into()),
            _ => panic!("there is no option {line}"),
        }
    }
    options
}

/// A function and its traces, as texts of graphs.
struct TextFunction {
    function: GraphModule,
    second: GraphModule,
}

impl Subject for TextFunction {
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

fn run(module: &GraphModule, arguments: &[Item]) -> Result<Item> {
    evaluate(module.graphs.first().expect("a graph"), module, arguments)
}

/// Parses graphs and gives their declared weights ascending numbers; those of weights called `changing` begin at `first`.
fn module(text: &str, first: f64) -> GraphModule {
    let mut module: GraphModule = text
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

/// A function in Rust, with the text of the graph that tracing it records.
struct RustFunction<'a> {
    call: &'a dyn Fn(&[f64]) -> Vec<f64>,
    trace: &'a dyn Fn(&[f64]) -> String,
}

impl Subject for RustFunction<'_> {
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

fn check(function: &RustFunction<'_>, options: CheckOptions) -> CheckReport {
    let inputs = vec![Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap().into()];
    let traced = function.trace(&inputs).unwrap();
    let options = CheckOptions {
        inputs: vec![inputs],
        ..options
    };
    check_trace(function, &traced, &options).unwrap()
}

fn found(report: &CheckReport) -> Vec<(Id, Option<u32>)> {
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
    let function = RustFunction {
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
    let function = RustFunction {
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
    let function = RustFunction {
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
    // One finding is about missing iterations, one about superfluous ones.
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
    let function = RustFunction {
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
    let function = RustFunction {
        call: &|x| relu(x, 2.0),
        trace: &|_| scaled("2.0", 5),
    };
    let inputs: Vec<Item> = vec![Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap().into()];
    let mut traced = function.trace(&inputs).unwrap();
    let location = Location {
        file: "model.py".into(),
        line: 4,
    };
    let place = SourcePlace {
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
    let allow = AllowList::new(["W0201@head"]);
    let report = check_trace(&function, &traced, &CheckOptions { allow, ..options }).unwrap();
    assert_eq!((report.findings.len(), report.suppressed), (0, 1));
    assert_eq!(report.count(Severity::Warning), 0);
}

#[test]
fn a_trace_that_fails_again_is_reported_with_what_was_found_before() {
    struct RetraceFails(Traced);
    impl Subject for RetraceFails {
        fn trace(&self, _: &[Item]) -> Result<Traced> {
            Err(Error::unsupported("tracing twice").at("model.py:8"))
        }

        fn call(&self, arguments: &[Item]) -> Result<Item> {
            run(&self.0.module, arguments)
        }
    }
    let text = "graph forward(x: f32[2]) -> (f32[2], f32[]) {\n  \
                b = full 1.0, dtype=f32, shape=[]  @ model.py:2\n  return x, b\n}";
    let subject = RetraceFails(Traced {
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

/// Checks an archive of the fixtures on the host.
fn check_archive(name: &str, options: CheckOptions) -> CheckReport {
    let path = format!(
        "{}/tests/fixtures/archives/{name}.pt",
        env!("CARGO_MANIFEST_DIR")
    );
    let model = Model::open(path).unwrap();
    let reference = DeviceReference {
        device: &Device::Host,
        precision: Precision::Single,
        expected: None,
        tolerance: Tolerance {
            rtol: 0.0,
            atol: 0.0,
        },
    };
    model::check(&model, &options, &reference).unwrap()
}

#[test]
fn frozen_sizes_of_archives_are_found_with_their_lines() {
    let report = check_archive("frozen", CheckOptions::default());
    let expected = [
        (Id::SizeLiteral, Some(92)),
        (Id::SizeLiteral, Some(93)),
        (Id::SizeRefused, None),
    ];
    assert_eq!(found(&report), expected, "{report}");
    assert!(
        report.to_string().contains("7 in aten.view is size 0 of x"),
        "{report}"
    );
    assert!(
        report.to_string().contains("a batch of 8 in place of 7: "),
        "{report}"
    );
    assert!(report.passed());
}

#[test]
fn sizes_that_vary_are_no_findings() {
    let report = check_archive("two_layers", CheckOptions::default());
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn training_mode_and_random_numbers_of_archives_are_found() {
    let report = check_archive("training", CheckOptions::default());
    let expected = [
        (Id::TrainingMode, Some(106)),
        (Id::RandomNode, Some(107)),
        (Id::RandomNode, Some(107)),
    ];
    assert_eq!(found(&report), expected, "{report}");
    let text = report.to_string();
    let question = "did you leave the model in training mode?";
    assert_eq!(text.matches(question).count(), 1, "{text}");
    assert!(text.contains("at make_archives.py:107 (dropout)"), "{text}");
}

#[test]
fn devices_in_programs_are_found() {
    let x: Item = Tensor::full(DType::F32, [3], 1.0).unwrap().into();
    let options = CheckOptions {
        inputs: vec![vec![x]],
        ..CheckOptions::default()
    };
    let report = check_archive("on_another_device", options);
    let found = found(&report);
    assert!(found.contains(&(Id::FrozenDevice, Some(113))), "{report}");
}

#[test]
fn recorded_outputs_that_differ_are_errors() {
    let x: Item = Tensor::full(DType::F32, [2, 4], 1.0).unwrap().into();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/archives/two_layers.pt"
    );
    let model = Model::open(path).unwrap();
    let expected = [Tensor::full(DType::F32, [2, 3], 7.0).unwrap().into()];
    let reference = DeviceReference {
        device: &Device::Host,
        precision: Precision::Single,
        expected: Some(("recorded outputs", &expected)),
        tolerance: Tolerance {
            rtol: 1e-3,
            atol: 1e-3,
        },
    };
    let options = CheckOptions {
        inputs: vec![vec![x]],
        ..CheckOptions::default()
    };
    let report = model::check(&model, &options, &reference).unwrap();
    assert_eq!(found(&report), [(Id::DeviceDiffers, None)], "{report}");
    assert!(!report.passed());
}

#[test]
fn a_page_marks_findings_in_the_graph_and_escapes_text() {
    let text = "graph forward(x: f32[2]) -> (f32[2], f32[]) {\n  \
                b = full 1.0, dtype=f32, shape=[]  @ \"a<b>.py\":2\n  return x, b\n}";
    let module = module(text, 0.0);
    let subject = TextFunction {
        function: module.clone(),
        second: module.clone(),
    };
    let traced = Traced {
        module,
        warnings: Vec::new(),
    };
    let report = check_trace(&subject, &traced, &CheckOptions::default()).unwrap();
    let page = report.to_html("model.pt").unwrap();
    assert!(
        page.contains("<tr id=\"value-b\" class=\"error\"><td><a href=\"#finding-0\">E0714</a>")
    );
    assert!(page.contains("a&lt;b&gt;.py:2") && !page.contains("a<b>"));
    let json = report.to_json();
    assert_eq!(json["findings"][0]["id"], "E0714");
    assert_eq!(json["passed"], false);
}

#[test]
fn a_compiled_model_is_verified_for_every_entry() {
    let text = "graph forward(x: f32[2]) -> f32[2] {\n  a = aten.gelu x\n  return a\n}\n\
                graph encode(x: f32[B], n: i64[B]) -> f32[B] {\n  size B = 3\n  \
                a = aten.mul.Tensor x, n\n  return a\n}";
    let model = Model::from_module(module(text, 0.0));
    let x: Item = Tensor::full(DType::F32, [2], 1.5).unwrap().into();
    let exact = Tolerance {
        rtol: 0.0,
        atol: 0.0,
    };
    let found = model::verify(
        &model,
        &Device::Host,
        &CompileOptions::default(),
        &[vec![x]],
        exact,
    )
    .unwrap();
    let entries: Vec<_> = found
        .iter()
        .map(|one| (&*one.entry, one.set, one.passed()))
        .collect();
    assert_eq!(
        entries,
        [("forward", Some(0), true), ("encode", None, true)]
    );
}

#[test]
fn inputs_that_no_entry_takes_are_an_error() {
    let text = "graph forward(x: f32[2]) -> f32[2] {\n  a = aten.gelu x\n  return a\n}";
    let model = Model::from_module(module(text, 0.0));
    let sets = [2, 3].map(|size| vec![Tensor::full(DType::F32, [size], 1.5).unwrap().into()]);
    let exact = Tolerance {
        rtol: 0.0,
        atol: 0.0,
    };
    let error = model::verify(
        &model,
        &Device::Host,
        &CompileOptions::default(),
        &sets,
        exact,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "input x is f32[2], not of shape [3] — at inputs 2"
    );
}

#[test]
fn a_pass_that_changes_a_value_is_named() {
    let graph: Graph = "graph forward(x: f32[2]) -> f32[2] {\n  a = mul x, 2.0  @ model.py:4\n  \
                        b = add a, 1.0  @ model.py:5\n  return b\n}"
        .parse()
        .unwrap();
    let wrong = Pass {
        name: "wrong",
        run: |graph| {
            graph
                .to_string()
                .replace("add a, 1.0", "add a, 3.0")
                .parse()
        },
    };
    let x = Tensor::full(DType::F32, [2], 1.5).unwrap();
    let exact = Tolerance {
        rtol: 0.0,
        atol: 0.0,
    };
    let passes = [&PIPELINE[1], &wrong];
    let found = first_wrong_pass(
        &graph,
        &Default::default(),
        std::slice::from_ref(&x),
        passes,
        exact,
    );
    let (name, divergence) = found.unwrap().unwrap();
    assert_eq!(
        (name, &*divergence.site.value, &*divergence.site.op),
        ("wrong", "b", "add")
    );
    assert_eq!(divergence.site.place.to_string(), "model.py:5");
    let found = first_wrong_pass(&graph, &Default::default(), &[x], PIPELINE, exact);
    assert!(found.unwrap().is_none());
}

/// An importer whose graph holds for one size only. The field is the length of an `arange` in the program, by size.
struct SingleSizeImporter(fn(usize) -> usize);

impl Subject for SingleSizeImporter {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        let size = numbers(arguments).len();
        let text = format!(
            "graph forward(x: f32[{size}]) -> (f32[{size}], f32[{count}]) {{\n  a = aten.relu x\n  \
             b = aten.arange end={count}, dtype=f32  @ model.py:3\n  return a, b\n}}",
            count = (self.0)(size)
        );
        Ok(Traced {
            module: module(&text, 0.0),
            warnings: Vec::new(),
        })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        run(&self.trace(arguments)?.module, arguments)
    }

    fn kind(&self) -> SubjectKind {
        SubjectKind::Trace
    }
}

#[test]
fn numbers_that_follow_the_sizes_of_an_import_are_not_frozen() {
    let inputs = vec![Tensor::full(DType::F32, [5], 1.0).unwrap().into()];
    let ids = |subject: SingleSizeImporter| -> Vec<Id> {
        let traced = subject.trace(&inputs).unwrap();
        let options = CheckOptions {
            inputs: vec![inputs.clone()],
            ..CheckOptions::default()
        };
        let report = check_trace(&subject, &traced, &options).unwrap();
        report.findings.iter().map(|finding| finding.id).collect()
    };
    assert_eq!(ids(SingleSizeImporter(|size| size)), [Id::SizeRefused]);
    let frozen = [Id::NoDependence, Id::SizeLiteral, Id::SizeRefused];
    assert_eq!(ids(SingleSizeImporter(|_| 5)), frozen);
}
