//! Tests of documents that say less, or other things, than the commands write.

use serde_json::{Value as Json, json};

use super::OverlayFile;
use crate::error::Result;
use crate::ir::GraphModule;
use crate::view::{ViewOptions, page_data};

/// Boxes: the graph, the input, `a` and `b` on two lines of a module, the output.
fn module() -> GraphModule {
    let node = |operand: &str, name: &str, line: u32| {
        json!({
            "results": [{"name": name, "type": "f32[2]"}],
            "op": "aten.relu",
            "operands": [operand],
            "place": {"location": {"file": "net.py", "line": line}},
        })
    };
    let document = json!({
        "format": "onionskin",
        "version": 1,
        "graphs": [{
            "name": "forward",
            "inputs": [{"name": "x", "type": "f32[2]"}],
            "nodes": [node("x", "a", 1), node("a", "b", 2)],
            "outputs": ["b"],
        }],
    });
    GraphModule::from_json(document.to_string().as_bytes()).expect("a graph")
}

/// A plan with one step.
fn plan(values: &[&str], line: &str, kernel: u64) -> Json {
    json!({
        "format": "onionskin-plan-1",
        "device": "a device",
        "graphs": [{
            "graph": "forward",
            "kernels": [{"name": "01_relu", "wgsl": "fn main() {}"}],
            "steps": [{
                "kernel": kernel, "nodes": values, "inline": [], "workgroups": [1], "flop": 2, "bytes": 16, "writes": [0],
                "module": "", "location": line, "reasons": [],
            }],
            "slots": [],
        }],
    })
}

fn data_with(name: &str, document: Json) -> Result<Json> {
    let overlays = vec![OverlayFile::of(name, document).expect("a known format")];
    let options = ViewOptions {
        overlays,
        ..ViewOptions::default()
    };
    page_data(&module(), "net", &options)
}

fn error_with(document: Json) -> String {
    let error = data_with("saved.json", document).expect_err("an error");
    error.to_string()
}

#[test]
fn a_step_is_at_its_line_where_no_value_has_its_name() {
    let boxes = |values: &[&str], line| {
        let data = data_with("", plan(values, line, 0)).expect("data");
        data["steps"][0]["boxes"].clone()
    };
    assert_eq!(boxes(&["a"], "net.py:2"), json!([2]));
    assert_eq!(boxes(&["renamed"], "net.py:2"), json!([3]));
    assert_eq!(boxes(&["renamed"], "net.py:3"), json!([]));
}

#[test]
fn only_a_plan_from_a_file_may_be_of_another_model() {
    let other = plan(&["renamed"], "other.py:1", 0);
    assert!(data_with("", other.clone()).is_ok());
    let error = error_with(other);
    assert!(error.contains("saved.json names no value"), "{error}");
}

#[test]
fn a_step_needs_a_kernel_of_its_document() {
    let error = error_with(plan(&["a"], "net.py:1", u64::MAX));
    assert!(
        error.contains("saved.json") && error.contains("1 kernels"),
        "{error}"
    );
}

#[test]
fn bytes_of_slots_saturate() {
    let mut document = plan(&["a"], "net.py:1", 0);
    let slot = json!({"name": "a", "type": "f32[2]", "kind": "temporary", "bytes": u64::MAX, "first": 0, "last": u64::MAX});
    document["graphs"][0]["slots"] = json!([slot, slot]);
    let data = data_with("saved.json", document).expect("data");
    assert_eq!(data["memory"], json!([u64::MAX]));
}

#[test]
fn findings_need_a_graph_of_the_model() {
    let check = |graph| json!({"format": "onionskin-check-1", "graph": graph, "verdict": "ok", "findings": []});
    assert!(data_with("saved.json", check("forward")).is_ok());
    let error = error_with(check("encode"));
    assert!(error.contains("saved.json names no value"), "{error}");
}
