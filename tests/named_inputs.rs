//! Inputs by name, for sessions and commands, in dictionaries, tuples and lists.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod command;

use command::{Folder, onionskin};
use onionskin::dtype::DType;
use onionskin::ir::{Builder, GraphModule, NamedTree, TreeConstant, TreeSpec, ValueId};
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

/// `first - second`, for two inputs of one type.
fn difference(trees: Vec<NamedTree>) -> GraphModule {
    let builder = Builder::new("forward");
    let ids: Vec<ValueId> = {
        let input = |name| builder.input(name, "f32[2]".parse().unwrap());
        let (first, second) = (input("first"), input("second"));
        vec![(first - second).id()]
    };
    let graph = builder
        .finish(&ids, trees, Some(TreeSpec::Tensor(0)))
        .unwrap();
    GraphModule {
        graphs: vec![graph],
        ..GraphModule::default()
    }
}

fn input(name: &str, tree: TreeSpec) -> NamedTree {
    let name = name.to_string();
    NamedTree { name, tree }
}

/// Parameters that are not in alphabetical order, as in BERT: ids, then mask.
fn plain() -> GraphModule {
    difference(vec![
        input("input_ids", TreeSpec::Tensor(0)),
        input("attention_mask", TreeSpec::Tensor(1)),
    ])
}

fn nested() -> GraphModule {
    let fields = vec![("ids".to_string(), TreeSpec::Tensor(0))];
    let point = vec![
        ("x".to_string(), TreeSpec::Tensor(1)),
        ("y".to_string(), TreeSpec::Constant(TreeConstant::None)),
    ];
    difference(vec![
        input("batch", TreeSpec::Dict(fields)),
        input(
            "pair",
            TreeSpec::Tuple(vec![TreeSpec::NamedTuple("Point".into(), point)]),
        ),
    ])
}

fn floats(data: [f32; 2]) -> Tensor {
    Tensor::from_vec([2], data.to_vec()).unwrap()
}

fn five() -> Tensor {
    floats([5.0, 6.0])
}

fn one() -> Tensor {
    floats([1.0, 2.0])
}

fn session(module: GraphModule) -> Session {
    let model = Model::from_module(module);
    model
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap()
}

#[test]
fn a_session_tells_names_and_types_of_its_inputs_and_outputs() {
    let texts = |specs: onionskin::Result<Vec<onionskin::ir::TensorSpec>>| -> Vec<String> {
        specs.unwrap().iter().map(ToString::to_string).collect()
    };
    let session = session(nested());
    let inputs = ["batch.ids: f32[2]", "pair.0.x: f32[2]"];
    assert_eq!(texts(session.inputs()), inputs);
    assert_eq!(texts(session.outputs()), ["output: f32[2]"]);
}

#[test]
fn outputs_have_the_keys_of_a_dictionary_and_the_places_of_a_tuple() {
    let leaf = |index| TreeSpec::Tensor(index);
    let tree = TreeSpec::Dict(vec![
        ("logits".into(), leaf(0)),
        ("cache".into(), TreeSpec::Tuple(vec![leaf(1), leaf(2)])),
    ]);
    let names: Vec<String> = tree.leaves("x").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x.logits", "x.cache.0", "x.cache.1"]);
}

#[test]
fn types_are_unknown_while_an_archive_without_examples_has_not_run() {
    let model = Model::open("tests/fixtures/archives/scripted.pt").unwrap();
    let session = model
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap();
    let error = session.inputs().unwrap_err();
    assert!(error.message().contains("not known yet"), "{error}");
}

/// Runs a model that subtracts its inputs. Returns exit code, output and notes.
fn run(model: &str, inputs: &[&str]) -> (i32, String, String) {
    onionskin(&[&["run", model, "--device", "cpu", "--json"], inputs].concat())
}

fn is_four(found: &(i32, String, String)) -> bool {
    found.0 == 0 && found.1.contains("\"data\":[4.0,4.0]")
}

#[test]
fn a_session_takes_inputs_by_name_in_any_order() {
    let session = session(plain());
    assert_eq!(
        session.signature().unwrap().names(),
        ["input_ids", "attention_mask"]
    );
    let given = [("attention_mask", one()), ("input_ids", five())];
    assert_eq!(session.run_named(&given).unwrap()[0].to_f64(), [4.0, 4.0]);
}

#[test]
fn errors_list_missing_unknown_and_doubled_names() {
    let session = session(plain());
    let given = [
        ("mask", one()),
        ("input_ids", five()),
        ("input_ids", one()),
        ("x", one()),
    ];
    let error = session.run_named(&given).unwrap_err();
    let message = error.message();
    for told in [
        "missing: attention_mask",
        "unknown: mask, x",
        "given twice: input_ids",
    ] {
        assert!(message.contains(told), "{message}");
    }
    assert!(
        error
            .advice()
            .unwrap()
            .contains("forward(input_ids, attention_mask)")
    );
}

#[test]
fn dictionaries_and_tuples_are_made_of_dotted_names() {
    let session = session(nested());
    assert_eq!(
        session.signature().unwrap().names(),
        ["batch.ids", "pair.0.x"]
    );
    for field in ["pair.0.x", "pair.0.0"] {
        let given = [(field, one()), ("batch.ids", five())];
        assert_eq!(
            session.run_named(&given).unwrap()[0].to_f64(),
            [4.0, 4.0],
            "{field}"
        );
    }
    let error = session
        .run_named(&[("batch", five()), ("pair.0.x", one())])
        .unwrap_err();
    assert!(
        error
            .message()
            .contains("missing: batch.ids; unknown: batch"),
        "{error}"
    );
}

#[test]
fn archives_tell_names_without_being_imported() {
    let model = Model::open("tests/fixtures/archives/draws.pt").unwrap();
    assert_eq!(
        model.signature("forward").unwrap().names(),
        ["x", "count", "limit"]
    );
    let model = Model::open("tests/fixtures/archives/scripted.pt").unwrap();
    assert_eq!(
        model.signature("forward").unwrap().to_string(),
        "forward(x, limit?)"
    );
    let error = model.signature("backward").unwrap_err();
    assert!(error.to_string().contains("no method backward"), "{error}");
}

#[test]
fn an_archive_takes_inputs_by_name() {
    let model = Model::open("tests/fixtures/archives/two_layers.pt").unwrap();
    let session = model
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap();
    let x = Tensor::full(DType::F32, [3, 4], 0.5).unwrap();
    let expected = session.run(std::slice::from_ref(&x)).unwrap();
    assert_eq!(session.run_named(&[("x", x)]).unwrap(), expected);
}

#[test]
fn names_in_a_file_decide_whatever_their_order() {
    let folder = Folder::new("names");
    plain().save(folder.path("model.json")).unwrap();
    let model = folder.file("model.json");
    // The file is sorted by name: the mask comes first.
    let file = folder.tensors(
        "in.safetensors",
        &[("input_ids", five()), ("attention_mask", one())],
    );
    let found = run(&model, &["-i", &file]);
    assert!(is_four(&found), "{found:?}");
    assert!(!found.2.contains("order"), "{found:?}");
}

#[test]
fn names_of_which_some_are_inputs_are_refused() {
    let folder = Folder::new("some");
    plain().save(folder.path("model.json")).unwrap();
    let model = folder.file("model.json");
    let file = folder.tensors("in.npz", &[("input_ids", five()), ("mask", one())]);
    let (code, _, error) = run(&model, &["-i", &file]);
    assert_eq!(code, 3, "{error}");
    for told in [
        "mask is not an input of forward",
        "\"attention_mask\": f[\"mask\"]",
    ] {
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn names_that_are_no_inputs_go_by_order_which_is_told() {
    let folder = Folder::new("order");
    plain().save(folder.path("model.json")).unwrap();
    let model = folder.file("model.json");
    let file = folder.tensors("in.npz", &[("a", five()), ("b", one())]);
    let found = run(&model, &["-i", &file]);
    assert!(is_four(&found), "{found:?}");
    assert!(
        found.2.contains("a is input_ids, b is attention_mask"),
        "{found:?}"
    );
}

#[test]
fn names_are_given_on_the_command_line() {
    let folder = Folder::new("given");
    plain().save(folder.path("model.json")).unwrap();
    nested().save(folder.path("nested.json")).unwrap();
    let (model, nested) = (folder.file("model.json"), folder.file("nested.json"));
    let (five, one) = (
        folder.tensors("five.npy", &[("", five())]),
        folder.tensors("one.npy", &[("", one())]),
    );
    let named = |name: &str, file: &str| format!("{name}={file}");
    let mask = named("attention_mask", &one);
    let in_any_order = run(&model, &["-i", &mask, "-i", &named("input_ids", &five)]);
    assert!(is_four(&in_any_order), "{in_any_order:?}");
    let the_rest_by_order = run(&model, &["-i", &mask, "-i", &five]);
    assert!(is_four(&the_rest_by_order), "{the_rest_by_order:?}");
    let (ids, x) = (named("batch.ids", &five), named("pair.0.x", &one));
    let dotted = run(&nested, &["-i", &x, "-i", &ids]);
    assert!(is_four(&dotted), "{dotted:?}");
    let (code, _, error) = run(&model, &["-i", &mask, "-i", &named("ids", &five)]);
    assert_eq!(code, 3, "{error}");
    assert!(
        error.contains("input_ids is missing; ids is not an input"),
        "{error}"
    );
    let (code, text, error) = onionskin(&[
        "show", &model, "-i", &mask, "-i", &five, "--plan", "--device", "webgpu",
    ]);
    assert_eq!(code, 0, "{text}{error}");
}

#[test]
fn files_called_like_inputs_go_by_their_names() {
    let folder = Folder::new("called");
    plain().save(folder.path("model.json")).unwrap();
    let model = folder.file("model.json");
    let ids = folder.tensors("input_ids.npy", &[("", five())]);
    let mask = folder.tensors("attention_mask.npy", &[("", one())]);
    let found = run(&model, &["-i", &mask, "-i", &ids]);
    assert!(is_four(&found), "{found:?}");
}

#[test]
fn too_many_inputs_are_refused() {
    let folder = Folder::new("many");
    plain().save(folder.path("model.json")).unwrap();
    let shapes = [
        "--shape", "f32[2]", "--shape", "f32[2]", "--shape", "f32[2]",
    ];
    let (code, _, error) = run(&folder.file("model.json"), &shapes);
    assert_eq!(code, 3, "{error}");
    assert!(
        error.contains("3 inputs are given, forward takes 2"),
        "{error}"
    );
}
