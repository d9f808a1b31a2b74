//! Tests of `onionskin show`: summary, plan and kernels.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod command;

use command::{Folder, onionskin};
use onionskin::cases::{self, CaseArchive};
use onionskin::gpu::portable;
use onionskin::ir::GraphModule;
use onionskin::item::Item;
use onionskin::kernel::shader;
use onionskin::tensor::Tensor;
use serde_json::Value as Json;

const TWO_LAYERS: &str = "tests/fixtures/archives/two_layers.pt";

/// Compares a text with a file of `tests/commands`; `BLESS=1` rewrites the file.
fn golden(name: &str, found: &str) {
    let path = format!("{}/tests/commands/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("BLESS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(found, expected, "BLESS=1 accepts this");
    let widest = found.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?} columns");
}

fn shown(arguments: &[&str]) -> String {
    let (code, text, error) = onionskin(&[&["show"], arguments].concat());
    assert_eq!(code, 0, "{error}");
    text
}

fn json(arguments: &[&str]) -> Json {
    serde_json::from_str(&shown(&[arguments, &["--json"]].concat())).unwrap()
}

/// Writes a graph to a file and returns its path.
fn graph(folder: &Folder, name: &str, text: &str) -> String {
    let module: GraphModule = text.parse().unwrap();
    module.save(folder.path(name)).unwrap();
    folder.file(name)
}

#[test]
fn a_summary_matches_its_golden() {
    golden("two_layers.summary", &shown(&[TWO_LAYERS]));
    golden(
        "states.summary",
        &shown(&["tests/fixtures/cases/models/script_states/model.pt"]),
    );
    golden(
        "training.summary",
        &shown(&["tests/fixtures/archives/training.pt"]),
    );
}

#[test]
fn a_summary_can_be_json() {
    let found = json(&[TWO_LAYERS, "--shape", "f32[5, 4]"]);
    assert_eq!(found["format"], "onionskin summary");
    assert_eq!(
        (&found["origin"], &found["methods"]),
        (&"trace".into(), &serde_json::json!(["forward"]))
    );
    let graph = &found["graphs"][0];
    assert_eq!(graph["inputs"][0]["type"], "f32[x_0, 4]");
    assert_eq!(graph["inputs"][0]["example"], "f32[5, 4]");
    assert_eq!(graph["needs"]["multiply_adds"], 5 * (4 * 3 + 3 * 3 + 3 * 3));
    assert_eq!(graph["needs"]["memory"]["weights"], 192);
    assert!(graph["needs"]["obstacles"].as_array().unwrap().is_empty());
    // The second layer shares its weights with the third.
    assert_eq!(
        found["parameters"]["parameters"]["count"],
        4 * 3 + 3 + 3 * 3
    );
}

/// Modules below the depth are counted in their parents.
#[test]
fn modules_open_by_depth() {
    let lines = |depth: &str| {
        let text = shown(&["examples/digits/digits.pt", "--depth", depth]);
        let (_, rest) = text.split_once("\nparameters\n").unwrap();
        let lines = rest.lines().take_while(|line| !line.starts_with("  and "));
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect();
        lines.map(words).collect::<Vec<Vec<String>>>()
    };
    let (closed, open) = (lines("0"), lines("9"));
    let total = ["model", "DigitReader", "15,498", "62.0", "kB"];
    assert_eq!(closed, [total]);
    assert_eq!(open[0], total);
    let within = open
        .iter()
        .filter(|line| line[1] == "Conv2d" || line[1] == "Linear");
    assert_eq!(within.count(), 4, "{open:?}");
}

/// A model that cannot be imported has a summary with all refusals.
#[test]
fn the_summary_lists_refusals() {
    let folder = Folder::new("refused");
    for case in cases::find("tests/fixtures/refused".as_ref()).unwrap() {
        let case = case.load().unwrap();
        let CaseArchive::Bytes(bytes) = case.archive else {
            panic!("no archive");
        };
        std::fs::write(folder.path("model.pt"), bytes.as_slice()).unwrap();
        let model = folder.file("model.pt");
        let inputs = case.sets[0].calls[0].inputs.iter();
        let types = inputs.flat_map(Item::tensors).map(Tensor::tensor_type);
        let shapes: Vec<String> = types.map(|ty| format!("--shape={ty}")).collect();
        let shapes: Vec<&str> = shapes.iter().map(String::as_str).collect();
        let (code, _, error) = onionskin(&[&["show", &model, "--graph"], &shapes[..]].concat());
        assert_eq!(code, 3, "{error}");
        let arguments = [&[model.as_str()], &shapes[..]].concat();
        let text = shown(&arguments);
        assert!(text.contains("does not run on any device\n"), "{text}");
        let found = json(&arguments);
        let refusals = found["refusals"].as_array().unwrap();
        for refusal in refusals {
            let reason = refusal["reason"].as_str().unwrap();
            assert!(
                error.contains(reason.split(", at ").next().unwrap()),
                "{error}"
            );
        }
        assert_eq!(refusals.len(), error.matches("error[E").count(), "{error}");
    }
}

/// The summary names devices without double precision or with small bindings, and the remedy.
#[test]
fn the_summary_lists_unsupported_devices_with_remedies() {
    let folder = Folder::new("obstacles");
    let doubles = graph(
        &folder,
        "doubles.json",
        "graph forward(x: f64[4]) -> f64[4] {\n  y: f64[4] = tanh x\n  return y\n}\n",
    );
    let text = shown(&[&doubles]);
    assert!(
        text.contains("does not run on devices without double precision")
            && text.contains("2 values are f64; the first is x")
            && text.contains("--device cpu"),
        "{text}"
    );
    let large = graph(
        &folder,
        "large.json",
        "graph forward(x: f32[40000000]) -> f32[40000000] {\n  y: f32[40000000] = tanh x\n  return y\n}\n",
    );
    let found = &json(&[&large])["graphs"][0]["needs"];
    assert_eq!(found["memory"]["inputs"], 160_000_000);
    let obstacles = found["obstacles"].as_array().unwrap();
    assert_eq!(obstacles.len(), 2, "{found}");
    assert_eq!(
        obstacles[0]["devices"],
        "devices with WebGPU's default limits"
    );
}

/// Compares plans for any device with goldens: with the example's sizes, with the inputs', and with formulas.
#[test]
fn a_plan_matches_its_golden() {
    let plan = ["--plan", "--device", "webgpu"];
    let of_example = shown(&[&[TWO_LAYERS], &plan[..]].concat());
    golden("two_layers.plan", &of_example);
    let given = shown(&[&[TWO_LAYERS, "--shape", "f32[2, 4]"], &plan[..]].concat());
    assert_eq!(given, of_example);
    let formulas = shown(&[&[TWO_LAYERS, "--formulas"], &plan[..]].concat());
    golden("two_layers.formulas", &formulas);
    let (code, _, error) = onionskin(&["show", TWO_LAYERS, "--formulas"]);
    assert_eq!(code, 2, "{error}");
}

/// A plan in JSON has the steps, kernels and slots of the text form, which refer to each other.
#[test]
fn a_plan_can_be_json() {
    let plan = [TWO_LAYERS, "--plan", "--device", "webgpu"];
    let text = shown(&[&plan[..], &["--json"]].concat());
    assert!(
        text.starts_with("{\"format\":\"onionskin-plan-1\",\"device\":\"any device"),
        "{text}"
    );
    let found: Json = serde_json::from_str(&text).unwrap();
    let graph = &found["graphs"][0];
    assert_eq!(
        (&graph["graph"], &graph["sizes"]),
        (&"forward".into(), &serde_json::json!({"x_0": 2}))
    );
    let totals = &graph["totals"];
    assert_eq!(
        (&totals["operators"], &totals["weights"]),
        (&7.into(), &192.into())
    );
    assert!(totals["min_ns"].is_null(), "{totals}");
    let lists = ["kernels", "steps", "slots"].map(|key| graph[key].as_array().unwrap());
    let [kernels, steps, slots] = lists;
    for key in ["flop", "bytes"] {
        let sum: i64 = steps.iter().map(|step| step[key].as_i64().unwrap()).sum();
        assert_eq!(totals[key], sum);
    }
    let index = |value: &Json| usize::try_from(value.as_u64().unwrap()).unwrap();
    let shown = shown(&plan);
    for step in steps {
        let kernel = &kernels[index(&step["kernel"])];
        assert!(shown.contains(kernel["name"].as_str().unwrap()), "{kernel}");
        assert!(kernel["wgsl"].as_str().unwrap().contains("fn main"));
        let of = |key: &str| step[key].as_array().unwrap().iter().map(index);
        for slot in of("reads").chain(of("writes")) {
            let value = format!("{} {}", slots[slot]["name"], slots[slot]["type"]);
            assert!(shown.contains(&value.replace('"', "")), "{value}");
        }
        assert_eq!(step["reasons"][0][0], "kernel", "{step}");
    }
    let first = &steps[0];
    assert_eq!(
        (&first["module"], &first["location"]),
        (&"first".into(), &"make_archives.py:33".into())
    );
    assert_eq!(first["inline"], serde_json::json!(["expand"]));
    let between = &slots[index(&first["writes"][0])];
    assert_eq!(between["kind"], "temporary");
    assert_eq!(
        (index(&between["first"]), index(&between["last"])),
        (0, 1),
        "{between}"
    );
    let (code, _, error) = onionskin(&[&["show"], &plan[..], &["--formulas", "--json"]].concat());
    assert!(
        code == 2 && error.contains("'--formulas'"),
        "{code} {error}"
    );
}

/// Steps in bodies of regions are in the list of all steps; control flow names them.
#[test]
fn a_plan_in_json_has_control_flow() {
    let folder = Folder::new("flows");
    let text = "graph forward(x: f32[4], n: i64[]) -> f32[4] {
  y: f32[4] = loop n, true, x, carried=1  @ model.py:3 {
    graph body(i: i64[], p: f32[4]) -> (bool[], f32[4]) {
      again = full true, dtype=bool, shape=[]
      q = tanh p  @ model.py:4
      return again, q
    }
  }
  return y
}";
    let model = graph(&folder, "loop.json", text);
    let found = json(&[&model, "--plan", "--device", "webgpu"]);
    let plan = &found["graphs"][0];
    let flow = &plan["flows"][0];
    assert_eq!(
        (&flow["kind"], &flow["location"]),
        (&"loop".into(), &"model.py:3".into())
    );
    let block = &flow["blocks"][0];
    assert!(
        block["text"]
            .as_str()
            .unwrap()
            .starts_with("repeat at most n times"),
        "{block}"
    );
    let [start, end] =
        [0, 1].map(|at| usize::try_from(block["steps"][at].as_u64().unwrap()).unwrap());
    let body = &plan["steps"].as_array().unwrap()[start..end];
    assert!(
        body.iter().any(|step| step["location"] == "model.py:4"),
        "{plan}"
    );
}

#[test]
fn kernels_are_written_whole_or_not_at_all() {
    let parent = Folder::new("kernels");
    let folder = parent.file("new");
    let show = ["show", TWO_LAYERS, "--device", "webgpu", "--wgsl", &folder];
    let (code, text, error) = onionskin(&show);
    assert_eq!((code, text.as_str()), (0, ""), "{error}");
    let names = || {
        let entries = std::fs::read_dir(&folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let written = names();
    assert!(
        written[0].starts_with("01_dot_") && written[0].ends_with(".wgsl"),
        "{written:?}"
    );
    for name in &written {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        shader::validate(&text, &portable()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let first = std::fs::read_to_string(format!("{folder}/{}", written[0])).unwrap();
    let (header, _) = first.split_once("\n\n").unwrap();
    golden("first_kernel.header", &format!("{header}\n"));
    let (code, _, error) = onionskin(&show);
    assert_eq!(code, 2);
    assert!(error.contains("is not an empty folder"), "{error}");
    assert_eq!(names(), written);
}

#[test]
fn lifted_graphs_take_their_weights_as_inputs() {
    let text = shown(&[TWO_LAYERS, "--lift"]);
    assert!(
        !text.contains("\nweight ") && !text.starts_with("weight "),
        "{text}"
    );
}
