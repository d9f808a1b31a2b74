//! Properties of modules that PyTorch traced: text and JSON parse to equal modules, files are equal bytes, and passes change
//! no results.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;

use std::path::{Path, PathBuf};

use onionskin::cases::{self, CaseArchive};
use onionskin::error::ErrorKind;
use onionskin::interp;
use onionskin::ir::{GraphModule, json};
use onionskin::item::{Item, flatten_arguments};
use onionskin::model::Model;
use onionskin::pass;
use onionskin::tensor::Tensor;
use onionskin::{CompileOptions, Device};
use random::Random;
use serde_json::Value as Json;

/// Returns the modules of the recorded cases, each with the arguments of a call.
fn modules() -> Vec<(String, GraphModule, Vec<Item>)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let folder = std::env::var_os("ONIONSKIN_CASES").map_or(fixtures, PathBuf::from);
    let mut modules = Vec::new();
    for case in cases::find(&folder).unwrap() {
        let Ok(loaded) = case.load() else { continue };
        let model = match &loaded.archive {
            CaseArchive::Path(path) => Model::open(path),
            CaseArchive::Bytes(bytes) => Model::from_bytes(bytes.to_vec()),
        };
        let inputs = loaded.sets.iter().flat_map(|set| &set.calls).next();
        let (Ok(model), Some(call)) = (model, inputs) else {
            continue;
        };
        if let Ok(module) = model.import_for(&call.inputs) {
            modules.push((case.name.clone(), module, call.inputs.clone()));
        }
    }
    assert!(20 < modules.len(), "few cases are imported");
    modules
}

#[test]
fn traced_modules_round_trip() {
    let schema: Json = serde_json::from_str(json::SCHEMA).unwrap();
    for (name, module, arguments) in modules() {
        module
            .verify()
            .unwrap_or_else(|error| panic!("{name}: {error}\n{module}"));
        let text = module.to_string();
        let read: GraphModule = text
            .parse()
            .unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        assert!(read.graphs == module.graphs, "{name}: {text}\n{read}");
        let written = module.to_json("weights.safetensors").unwrap();
        let read = GraphModule::from_json(written.as_bytes());
        let read = read.unwrap_or_else(|error| panic!("{name}: {error}\n{written}"));
        assert!(read.graphs == module.graphs, "{name}: {written}");
        let document: Json = serde_json::from_str(&written).unwrap();
        if let Err(fault) = matches_schema(&schema, &schema, &document) {
            panic!("{name}: {fault}\n{written}");
        }
        let small = pass::optimize_module(&module);
        let small = small.unwrap_or_else(|error| panic!("{name}: {error}\n{module}"));
        small
            .verify()
            .unwrap_or_else(|error| panic!("{name}: {error}\n{small}"));
        // Bodies for symbolic sizes may round differently than those that the oracle builds for known sizes.
        let lowered = GraphModule {
            graphs: vec![pass::decompose(&module.graphs[0]).unwrap()],
            ..module.clone()
        };
        assert_eq!(
            run(&small, &arguments),
            run(&lowered, &arguments),
            "{name}: {small}"
        );
    }
}

/// Returns the bits of the oracle's results, with one pattern for NaN; or the error.
fn run(module: &GraphModule, arguments: &[Item]) -> Result<Vec<Vec<u64>>, String> {
    let graph = &module.graphs[0];
    let inputs =
        flatten_arguments(&graph.input_trees, arguments).map_err(|error| error.to_string())?;
    let results = interp::run(graph, &module.weights, &inputs);
    let results = results.map_err(|error| error.message().to_string())?;
    let bits = |x: f64| {
        if x.is_nan() {
            f64::NAN.to_bits()
        } else {
            x.to_bits()
        }
    };
    let elements = |tensor: &Tensor| tensor.to_f64().into_iter().map(bits).collect();
    Ok(results.iter().map(elements).collect())
}

/// Validates a value by the part of JSON Schema that the published schema uses.
fn matches_schema(root: &Json, schema: &Json, value: &Json) -> Result<(), String> {
    let fault = |what: &str| Err(format!("{value} is not as {what} says: {schema}"));
    if let Some(path) = schema["$ref"].as_str() {
        return matches_schema(
            root,
            &root["$defs"][path.rsplit('/').next().unwrap()],
            value,
        );
    }
    if let Some(choices) = schema["anyOf"].as_array()
        && !choices
            .iter()
            .any(|choice| matches_schema(root, choice, value).is_ok())
    {
        return fault("anyOf");
    }
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        return fault("const");
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        return fault("enum");
    }
    let has_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => true,
    };
    let minimum = schema["minimum"].as_i64();
    if !has_type || minimum.is_some_and(|minimum| value.as_i64() < Some(minimum)) {
        return fault("type");
    }
    for item in value.as_array().into_iter().flatten() {
        matches_schema(root, &schema["items"], item)?;
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        if value.get(key.as_str().unwrap()).is_none() {
            return fault("required");
        }
    }
    for (key, item) in value.as_object().into_iter().flatten() {
        match (
            schema["properties"].get(key),
            &schema["additionalProperties"],
        ) {
            (Some(property), _) => matches_schema(root, property, item)?,
            (None, Json::Bool(false)) => return fault("additionalProperties"),
            (None, others) => matches_schema(root, others, item)?,
        }
    }
    Ok(())
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("onionskin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_round_trip_to_equal_bytes() {
    let folder = Folder::new("forms");
    let mut modules = modules().into_iter();
    let (_, module, _) = modules
        .find(|(_, module, _)| !module.weights.is_empty())
        .unwrap();
    let (first, second) = (folder.0.join("model.json"), folder.0.join("again.json"));
    module.save(&first).unwrap();
    let read = GraphModule::load(&first).unwrap();
    assert!(read.graphs == module.graphs && read.weights == module.weights);
    read.save(&second).unwrap();
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let text = String::from_utf8(bytes(&second)).unwrap();
    assert_eq!(
        text.replace("\"again-", "\"model-").into_bytes(),
        bytes(&first)
    );
    let weights = |path: &Path| GraphModule::load_with_file(path).unwrap().1.unwrap();
    assert_eq!(bytes(&weights(&first)), bytes(&weights(&second)));

    std::fs::remove_file(weights(&first)).unwrap();
    assert_eq!(GraphModule::load(&first).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn unreadable_files_are_errors_with_advice() {
    let folder = Folder::new("refusals");
    let path = folder.0.join("model.json");
    let refuse = |text: &str| {
        std::fs::write(&path, text).unwrap();
        GraphModule::load(&path).unwrap_err()
    };
    let newer = refuse(r#"{"format": "onionskin", "version": 3, "graphs": []}"#);
    assert_eq!(
        newer.message(),
        "version 3 of the format is newer than 2, the newest known here"
    );
    assert!(newer.advice().unwrap().contains("newer onionskin"));
    let other = refuse(r#"{"nodes": []}"#);
    assert_eq!(other.message(), "the field \"format\" is not \"onionskin\"");
    let outside = refuse(
        r#"{"format": "onionskin", "version": 2, "weights": {"file": "../a", "tensors": {}}, "graphs": []}"#,
    );
    assert_eq!(
        outside.message(),
        "the weights file \"../a\" must be a file name in the folder of this file"
    );
    let node = refuse(
        r#"{"format": "onionskin", "version": 2, "graphs": [{"name": "f", "inputs": [], "outputs": [],
            "nodes": [{"op": "neg", "operands": ["x"], "results": [], "place": {"module": "fc"}}]}]}"#,
    );
    let message = node.to_string();
    assert!(
        message.starts_with(
            "the value x is not defined before its use — at node 0 (neg), in (fc), in graph f"
        ),
        "{message}"
    );
    let invalid = refuse(
        r#"{"format": "onionskin", "version": 2, "graphs": [{"name": "f", "inputs": [{"name": "x", "type": "f32[2]"}],
            "outputs": [], "nodes": [{"op": "neg", "operands": ["x"], "results": [{"name": "y", "type": "f32[3]"}]}]}]}"#,
    );
    assert_eq!(invalid.kind(), ErrorKind::Verify);
}

/// Graphs of version 1 require their sizes to be at least 1, which they do not say.
#[test]
fn documents_of_version_1_serve_no_empty_batch() {
    let text = |version: usize| {
        r#"{"format": "onionskin", "version": VERSION, "graphs": [{"name": "forward", "sizes": {"B": 2},
            "inputs": [{"name": "x", "type": "f32[B, 4, 4]"}], "outputs": ["y"],
            "nodes": [{"results": [{"name": "y", "type": "f32[B, 2, 2]"}], "op": "aten.avg_pool2d", "operands": ["x"],
            "attributes": {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]}}]}]}"#
            .replace("VERSION", &version.to_string())
    };
    let run = |version: usize, batch: usize| {
        let module = GraphModule::from_json(text(version).as_bytes())?;
        module.verify()?;
        let session =
            Model::from_module(module).compile(&Device::Host, &CompileOptions::default())?;
        session.run(&[Tensor::from_vec([batch, 4, 4], vec![1f32; batch * 16])?])
    };
    assert_eq!(run(1, 3).unwrap()[0].shape(), [3, 2, 2]);
    let error = run(1, 0).unwrap_err();
    assert!(error.to_string().contains("1 <= B"), "{error}");
    let error = run(2, 3).unwrap_err();
    assert!(error.to_string().contains("no guard states it"), "{error}");
}

/// Every document parses or is rejected without a panic.
#[test]
fn damaged_documents_are_refused() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for (_, module, _) in modules().into_iter().take(30) {
        let text = module.to_json("weights.safetensors").unwrap().into_bytes();
        for _ in 0..40 {
            let mut damaged = text.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(damaged.len());
                damaged[at] = b"[]{}\",:0123456789-.einfxyB$ "[random.below(28)];
            }
            if let Ok(read) = GraphModule::from_json(&damaged) {
                let _ = GraphModule {
                    weights: module.weights.clone(),
                    ..read
                }
                .verify();
            }
        }
    }
}
