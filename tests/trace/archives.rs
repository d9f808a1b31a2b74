//! Traced programs in PyTorch's archives. Comments name the counterparts in `test/jit/test_tracer.py`;
//! `tests/fixtures/make_traces.py` writes the archives.

use std::io::{Read, Write};

use onionskin::cases::Case;
use onionskin::dtype::DType;
use onionskin::error::{Error, ErrorKind};
use onionskin::ir::{Graph, GraphModule, Node};
use onionskin::item::Item;
use onionskin::tensor::Tensor;
use onionskin::{CompileOptions, Device, Model};

use super::recorded::{self, bytes, fixtures};

fn load(name: &str) -> Case {
    recorded::load(&format!("cases/traces/{name}"))
}

fn replayed(name: &str) -> GraphModule {
    recorded::replay_case(&format!("cases/traces/{name}"))
}

fn nodes<'a>(graph: &'a Graph, op: &str) -> Vec<&'a Node> {
    let nodes = graph.nodes.iter();
    nodes.filter(|node| node.op.name() == op).collect()
}

fn module_paths(graph: &Graph) -> Vec<&str> {
    let nodes = graph.nodes.iter();
    let mut paths: Vec<&str> = nodes.map(|node| node.place.module.as_str()).collect();
    paths.dedup();
    paths
}

/// Replaces a part of an archive's program text.
fn edited(name: &str, from: &str, to: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes(&load(name)))).unwrap();
    let mut copy = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let mut found = false;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        if entry.name().ends_with(".py") {
            let text = String::from_utf8(data).unwrap();
            found |= text.contains(from);
            data = text.replace(from, to).into_bytes();
        }
        let options = zip::write::SimpleFileOptions::default();
        copy.start_file(entry.name(), options).unwrap();
        copy.write_all(&data).unwrap();
    }
    assert!(found, "{from} is not in the program of {name}");
    copy.finish().unwrap().into_inner()
}

fn refusal(name: &str, from: &str, to: &str) -> Error {
    let inputs = &load(name).sets[0].calls[0].inputs;
    let model = Model::from_bytes(edited(name, from, to));
    let imported = model.and_then(|model| model.import_method("forward", Some(inputs)));
    imported.map(drop).unwrap_err()
}

fn import_error_of_archive(name: &str, inputs: &[Item]) -> Error {
    let model = Model::open(fixtures().join(format!("archives/{name}.pt"))).unwrap();
    let imported = model.import_method("forward", Some(inputs));
    imported.map(drop).unwrap_err()
}

/// Counterpart: `test_call_script_fn_from_tracing_fn`, `test_trace_nested_fn`, `test_trace_optional`,
/// `test_trace_script_returning_complex_dict`, `test_script_list_of_lists`, `test_trace_inline_shape`.
#[test]
fn scripted_functions_keep_their_control_flow() {
    let module = replayed("calls_scripts");
    let graph = module.graph("forward").unwrap();
    assert_eq!(nodes(graph, "if").len(), 1, "{graph}");
    let rows = &graph.ty(graph.outputs[0]).shape[0];
    assert_eq!(rows.to_string(), "2*x_0", "{graph}");
}

/// Counterpart: `test_trace_fork_join_and_module`, `test_script_fork_in_trace`.
#[test]
fn tasks_are_run_where_they_are_started() {
    let module = replayed("forks");
    let graph = module.graph("forward").unwrap();
    assert!(module_paths(graph).contains(&"child"), "{graph}");
}

/// Counterpart: `test_hooks_on_submodule`, `test_trace_forward_hooks`: in order and in place, with a hook's own tensor.
#[test]
fn hooks_are_steps_of_the_modules_they_stand_around() {
    let module = replayed("hooked");
    let graph = module.graph("forward").unwrap();
    let ops: Vec<&str> = graph.nodes.iter().map(|node| node.op.name()).collect();
    let wanted = [
        "aten.mul.Scalar",
        "aten.add.Tensor",
        "aten.linear",
        "aten.mul.Scalar",
        "aten.relu",
        "aten.sub.Tensor",
        "aten.tanh",
    ];
    assert_eq!(ops, wanted, "{graph}");
    let lines: Vec<u32> = graph
        .nodes
        .iter()
        .map(|node| node.place.location.as_ref().unwrap().line)
        .collect();
    assert!(lines[0] < lines[1] && lines[1] < lines[3], "{graph}");
}

/// Counterpart: `test_trace_modulelist`, `test_trace_hierarchy`, `test_trace_inverted_hierarchy`, `test_trace_with_none`,
/// `test_trace_conditional_property`, `test_trace_aliased_scripted_submodule`, `test_shared_param`.
#[test]
fn the_hierarchy_of_an_archive_is_kept() {
    let module = replayed("hierarchy");
    let graph = module.graph("forward").unwrap();
    let wanted = [
        "layers.0",
        "alias",
        "layers.1",
        "alias#1",
        "layers.0#1",
        "applies",
        "alias#2",
        "",
    ];
    assert_eq!(module_paths(graph), wanted, "{graph}");
    let weights: Vec<&str> = module.weights.keys().map(String::as_str).collect();
    assert_eq!(
        weights,
        ["layers.0.bias", "layers.0.weight", "layers.1.bias"]
    );
}

/// Counterpart: `test_inplace_*`, `test_index_put_*`, `test_lhs_slice_loop`, `test_trace_setitem`, `test_empty_fill_and_zero`.
#[test]
fn writes_of_all_kinds_are_kept() {
    let module = replayed("writes");
    let graph = module.graph("forward").unwrap();
    assert_eq!(module.states.len(), 0, "nothing outlives a call");
    assert_eq!(graph.argument_count(), 1);
}

/// Counterpart: `test_trace_casts`: a node for each cast that changes the type, none for other casts and moves.
#[test]
fn every_cast_of_an_archive_is_one_node() {
    let module = replayed("casts");
    let graph = module.graph("forward").unwrap();
    let ops: Vec<&str> = graph.nodes.iter().map(|node| node.op.name()).collect();
    assert_eq!(ops, ["cast"; 4], "{graph}");
}

/// Counterpart: `test_constant`, `test_legacy_constructor`, `test_trace_tensor_factory`.
#[test]
fn constants_are_weights_and_factories_operators() {
    let module = replayed("constants");
    let graph = module.graph("forward").unwrap();
    let weights: Vec<&str> = module.weights.keys().map(String::as_str).collect();
    assert_eq!(weights, ["constants.c0"], "{graph}");
    assert_eq!(nodes(graph, "aten.ones").len(), 1, "{graph}");
}

/// Counterpart: `test_input_dict_insertion_order`, `test_input_dict_of_tensors`, `test_input_dict_checkTrace_mut`,
/// `test_trace_returning_dict`: values of two types, one of which is written to; further keys are ignored.
#[test]
fn dictionaries_go_in_by_key_and_come_out() {
    let module = replayed("dictionary");
    let graph = module.graph("forward").unwrap();
    assert_eq!(graph.input_trees.len(), 1, "{graph}");
    let case = load("dictionary");
    let Item::Dict(entries) = &case.sets[0].calls[0].inputs[0] else {
        panic!("no dictionary");
    };
    let without = entries.iter().filter(|(key, _)| key != "b").cloned();
    let without = Item::Dict(without.collect());
    let model = Model::from_bytes(bytes(&case)).unwrap();
    let session = model
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap();
    let error = session.call(&[without]).unwrap_err();
    assert_eq!(error.message(), "a dict has no key b");
    assert_eq!(error.advice(), Some("it has a"));
    assert!(error.to_string().contains("make_traces.py:"), "{error}");
}

/// Counterpart: `test_trace_multi_methods`, `test_trace_module_multi_method_exports`: methods share one set of weights; the
/// error for an unknown name lists the methods.
#[test]
fn methods_of_an_archive_share_weights() {
    let model = Model::open(fixtures().join("archives/methods.pt")).unwrap();
    let session = model
        .clone()
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap();
    let weight = Tensor::full(DType::F32, [1, 1, 3, 3], 2.0).unwrap();
    let call = |method| session.call_method(method, &[Item::Tensor(weight.clone())]);
    let floats = |item: Item| item.tensors()[0].to_f32();
    assert_eq!(floats(call("forward").unwrap()), [10.0]);
    assert_eq!(floats(call("weighted_kernel_sum").unwrap()), [1.0; 9]);
    let error = call("encode").unwrap_err();
    assert_eq!(error.message(), "the module has no method encode");
    let methods = "it has forward, weighted_kernel_sum";
    assert_eq!(error.advice(), Some(methods));
}

/// Counterpart: `test_trace_topk`, which only a runtime that allocates memory during the run can execute.
#[test]
fn a_size_that_is_a_value_is_refused_with_its_line() {
    let x = Tensor::from_vec([5], vec![1f32; 5]).unwrap();
    let k = Tensor::from_vec([], vec![2i64]).unwrap();
    let error = import_error_of_archive("largest", &[x.into(), k.into()]);
    let wanted = "aten::topk of (Tensor, int that depends on tensors) — at make_archives.py:134";
    assert_eq!(error.to_string(), wanted);
    let advice = error.advice().unwrap();
    assert!(
        advice.starts_with("sizes and settings must be known"),
        "{advice}"
    );
}

/// Counterpart: `test_trace_returning_dict`: keys that are tensors.
#[test]
fn a_result_by_tensors_is_refused() {
    let x = Tensor::from_vec([2], vec![1f32; 2]).unwrap();
    let error = import_error_of_archive("by_tensor", &[x.into()]);
    assert_eq!(error.message(), "a dict as result has a Tensor as key");
    let advice = "return a dict by strings or numbers, or the keys beside the values";
    assert_eq!(error.advice(), Some(advice));
}

/// Counterpart: `test_autograd_function`: the node `^Foo` calls Python. PyTorch does not export it, but a printed trace
/// contains it.
#[test]
fn a_function_of_python_is_refused_with_what_to_do() {
    let error = refusal("forks", "torch.neg(", "^Foo(1)(");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(
        error.message(),
        "^Foo is a Python autograd.Function; an archive does not contain its code"
    );
    let advice = "call the operators of its forward, or a function with @torch.jit.script, in place of `apply`, and trace again";
    assert_eq!(error.advice(), Some(advice));
    assert!(error.to_string().contains("make_traces.py:86"), "{error}");
}

/// Counterpart: "Cannot call a ScriptModule that is not a submodule of the caller".
#[test]
fn a_module_that_is_not_there_is_named() {
    let error = refusal(
        "hierarchy",
        "applies = self.applies",
        "applies = self.others",
    );
    assert_eq!(error.kind(), ErrorKind::Source);
    assert_eq!(
        error.message(),
        "__torch__.Hierarchy has no attribute others"
    );
}
