//! Printed results of commands, and protection of files from being overwritten.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod command;

use command::{Folder, onionskin};
use onionskin::Tensor;
use onionskin::ir::GraphModule;

const TWO_LAYERS: &str = "tests/fixtures/archives/two_layers.pt";

fn saved(folder: &Folder, name: &str, text: &str) -> String {
    let module: GraphModule = text.parse().unwrap();
    module.save(folder.path(name)).unwrap();
    folder.file(name)
}

fn doubled(folder: &Folder, ty: &str) -> String {
    let text = format!("graph forward(x: {ty}) {{\n  y = add x, x\n  return y\n}}");
    saved(folder, "doubled.json", &text)
}

#[test]
fn integers_are_printed_as_integers() {
    let folder = Folder::new("integers");
    let model = doubled(&folder, "i64[2]");
    let x = Tensor::from_vec([2], vec![2_590_024_777_812_637_192i64, -3]).unwrap();
    let x = folder.tensors("x.npy", &[("", x)]);
    let (code, text, error) = onionskin(&["run", &model, "-i", &x, "--device", "cpu"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("min -6 max 5180049555625274384"), "{text}");
    assert!(text.contains("[5180049555625274384, -6]"), "{text}");
    let (_, text, _) = onionskin(&["run", &model, "-i", &x, "--device", "cpu", "--top-k", "1"]);
    assert!(text.contains("1. 5180049555625274384  0"), "{text}");
}

#[test]
fn the_largest_entries_are_shown_as_they_are_or_as_percentages() {
    let folder = Folder::new("largest");
    let model = doubled(&folder, "f32[1, 3]");
    let x = Tensor::from_vec([1, 3], vec![0f32, 2.0, 1.0]).unwrap();
    let x = folder.tensors("x.npy", &[("", x)]);
    let run = ["run", &model, "-i", &x, "--device", "cpu", "--top-k", "2"];
    let (_, text, _) = onionskin(&run);
    assert!(
        text.contains("[0] 1. 4.000000  1\n[0] 2. 2.000000  2"),
        "{text}"
    );
    let (_, text, _) = onionskin(&[run.as_slice(), &["--softmax"]].concat());
    assert!(
        text.contains("[0] 1.  86.7 %  1\n[0] 2.  11.7 %  2"),
        "{text}"
    );
    let (code, ..) = onionskin(&["run", &model, "-i", &x, "--softmax"]);
    assert_eq!(code, 2);
}

#[test]
fn softmax_is_not_applied_twice() {
    let folder = Folder::new("softmax");
    let text = "graph forward(x: f32[1, 2]) {\n  y = aten.softmax.int x, -1\n  return y\n}";
    let model = saved(&folder, "softmax.json", text);
    let x = Tensor::from_vec([1, 2], vec![0f32, 2.0]).unwrap();
    let x = folder.tensors("x.npy", &[("", x)]);
    for option in [&[][..], &["--softmax"]] {
        let run = ["run", &model, "-i", &x, "--device", "cpu", "--top-k", "1"];
        let (code, text, error) = onionskin(&[run.as_slice(), option].concat());
        assert_eq!(code, 0, "{error}");
        assert!(text.contains("[0] 1. 0.880797  1"), "{text}");
        assert!(error.contains("its outputs are probabilities"), "{error}");
    }
}

/// Checks that a command refuses to write a file and leaves it unchanged.
fn refused(arguments: &[&str], file: &str, told: &str) {
    let before = std::fs::read(file).ok();
    let (code, text, error) = onionskin(arguments);
    assert_eq!(code, 2, "{arguments:?}: {text}{error}");
    assert!(error.contains(told), "{error}");
    assert_eq!(std::fs::read(file).ok(), before);
}

fn written(arguments: &[&str]) {
    let (code, text, error) = onionskin(arguments);
    assert_eq!(code, 0, "{arguments:?}: {text}{error}");
}

/// The weights file that a graph names.
fn weights_of(folder: &Folder, graph: &str) -> String {
    let (_, weights) = GraphModule::load_with_file(folder.path(graph)).unwrap();
    weights.unwrap().to_str().unwrap().to_string()
}

#[test]
fn foreign_weights_beside_an_archive_are_not_touched() {
    let folder = Folder::new("weights");
    let model = folder.copy(TWO_LAYERS, "model.pt");
    let weights = folder.file("model.safetensors");
    // Other programs write safetensors files without our metadata.
    let foreign = b"\x02\0\0\0\0\0\0\0{}";
    std::fs::write(&weights, foreign).unwrap();
    written(&["import", &model]);
    assert_eq!(std::fs::read(&weights).unwrap(), foreign);
    let json = folder.file("model.json");
    std::fs::write(&json, "{\"format\": \"another\"}").unwrap();
    refused(
        &["import", &model],
        &json,
        "is not marked as written by onionskin",
    );
    written(&["import", &model, "--force"]);
}

#[test]
fn files_that_are_read_are_never_written_over() {
    let folder = Folder::new("read");
    let model = folder.copy(TWO_LAYERS, "model.pt");
    refused(
        &["import", &model, "-o", &model, "--force"],
        &model,
        "is an input of this command",
    );
    written(&["import", &model]);
    let (json, weights) = (folder.file("model.json"), weights_of(&folder, "model.json"));
    let run = [
        "run",
        &json,
        "--shape",
        "f32[2, 4]",
        "--device",
        "cpu",
        "--force",
        "-o",
    ];
    refused(
        &[run.as_slice(), &[&weights]].concat(),
        &weights,
        "is an input of this command",
    );
    let x = folder.tensors(
        "x.npz",
        &[("x", Tensor::from_vec([1, 4], vec![0f32; 4]).unwrap())],
    );
    let run = [
        "run", &model, "-i", &x, "--device", "cpu", "--force", "-o", &x,
    ];
    refused(&run, &x, "is an input of this command");
    written(&["run", &model, "-i", &x, "--device", "cpu"]);
}

#[test]
fn only_files_of_usual_names_are_written() {
    let folder = Folder::new("names");
    let model = folder.copy(TWO_LAYERS, "model.pt");
    let text = folder.file("model.txt");
    refused(
        &["import", &model, "-o", &text],
        &text,
        "does not end in .json",
    );
    let weights = folder.file("graph.safetensors");
    refused(
        &["import", &model, "-o", &weights, "--force"],
        &weights,
        "the name of a file of weights",
    );
    let page = folder.file("page.pt");
    let check = ["check", &model, "--device", "cpu", "--html", &page];
    refused(&check, &page, "does not end in .html");
}

/// A command may overwrite its own files, but not files without a mark of this program.
#[test]
fn own_files_are_overwritten() {
    let folder = Folder::new("again");
    let model = folder.copy(TWO_LAYERS, "model.pt");
    let (json, page) = (folder.file("model.json"), folder.file("page.html"));
    let (prepared, report, text) = (
        folder.file("p.json"),
        folder.file("r.json"),
        folder.file("r.txt"),
    );
    let (arrays, tensors, array) = (
        folder.file("y.npz"),
        folder.file("y.safetensors"),
        folder.file("y.npy"),
    );
    let run = [
        "run",
        &model,
        "--shape",
        "f32[2, 4]",
        "--device",
        "cpu",
        "-o",
    ];
    for _ in 0..2 {
        written(&["import", &model, "-o", &json]);
        written(&["check", &model, "--device", "cpu", "--html", &page]);
        written(&["prepare", &model, "-o", &prepared, "--report", &report]);
        written(&["prepare", &model, "-o", &prepared, "--report", &text]);
        written(&[run.as_slice(), &[&arrays]].concat());
        written(&[run.as_slice(), &[&tensors]].concat());
    }
    written(&[run.as_slice(), &[&array]].concat());
    refused(
        &[run.as_slice(), &[&array]].concat(),
        &array,
        "is not marked as written by onionskin",
    );
    for file in [&page, &report, &text, &arrays] {
        std::fs::write(file, "mine").unwrap();
    }
    refused(
        &["check", &model, "--device", "cpu", "--html", &page],
        &page,
        "exists",
    );
    refused(
        &["prepare", &model, "-o", &prepared, "--report", &report],
        &report,
        "exists",
    );
    refused(
        &["prepare", &model, "-o", &prepared, "--report", &text],
        &text,
        "exists",
    );
    refused(&[run.as_slice(), &[&arrays]].concat(), &arrays, "exists");
}

/// Every value that the device keeps is listed, with its figures and its place, and the worst of them in a table.
#[test]
fn all_values_are_compared_on_request() {
    let compare = ["compare", TWO_LAYERS, "--shape", "f32[2, 4]", "--values"];
    let host = [&compare[..], &["--device", "cpu"]].concat();
    let (code, _, error) = onionskin(&host);
    assert!(
        code == 2 && error.contains("the host is the oracle"),
        "{error}"
    );
    assert_eq!(onionskin(&[&compare[..], &["--no-search"]].concat()).0, 2);
    if onionskin::gpu::adapters().is_empty() {
        return;
    }
    let (code, text, error) = onionskin(&[&compare[..], &["--json"]].concat());
    assert_eq!(code, 0, "{error}");
    assert!(
        text.starts_with("{\"format\":\"onionskin-compare-1\",\"graph\":\"forward\","),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let values = json["values"].as_array().unwrap();
    let names: Vec<&str> = values
        .iter()
        .map(|value| value["value"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{text}");
    assert_eq!(names[1], "linear_1");
    let value = &values[1];
    assert_eq!(
        (&value["module"], &value["location"]),
        (&"second".into(), &"make_archives.py:35".into())
    );
    assert_eq!((&value["wrong"], &value["numel"]), (&0.into(), &6.into()));
    assert!(value["max_abs_error"].is_f64() && json["first_divergence"].is_null());
    let (_, table, _) = onionskin(&compare);
    assert!(
        table.contains("against the oracle: 3 of 3, the worst first"),
        "{table}"
    );
    for name in names {
        assert!(table.contains(&format!("0 of 6  {name} = ")), "{table}");
    }
    let exact = [
        &compare[..],
        &["--rtol", "0", "--atol", "0", "--search-limit", "0"],
    ]
    .concat();
    let (_, table, _) = onionskin(&exact);
    assert!(table.contains("the comparison ended after 0 s"), "{table}");
}

#[test]
fn a_search_can_be_left_out() {
    let folder = Folder::new("search");
    let model = folder.copy(TWO_LAYERS, "model.pt");
    let y = Tensor::from_vec([1], vec![0f32]).unwrap();
    let y = folder.tensors("y.npy", &[("", y)]);
    let compare = [
        "compare",
        &model,
        "--shape",
        "f32[2, 4]",
        "--device",
        "cpu",
        "--against",
        &y,
        "--json",
    ];
    let (code, text, error) = onionskin(&[compare.as_slice(), &["--no-search"]].concat());
    assert_eq!(code, 1, "{text}{error}");
    assert!(text.contains("\"first_divergence\":null"), "{text}");
    let both = [compare.as_slice(), &["--no-search", "--search-limit", "3"]].concat();
    assert_eq!(onionskin(&both).0, 2);
}
