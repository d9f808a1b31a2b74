//! Tests of commands as users run them: output and exit code.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod command;

use std::path::Path;

use command::{Folder, onionskin};
use onionskin::Tensor;
use onionskin::gpu::adapters;
use serde_json::Value as Json;

fn temporary(name: &str) -> String {
    let name = format!("onionskin-{}-{name}", std::process::id());
    std::env::temp_dir()
        .join(name)
        .to_str()
        .unwrap()
        .to_string()
}

const FROZEN: &str = "tests/fixtures/archives/frozen.pt";
const TWO_LAYERS: &str = "tests/fixtures/archives/two_layers.pt";

#[test]
fn every_id_is_explained() {
    let (code, list, _) = onionskin(&["explain"]);
    assert_eq!(code, 0);
    let (head, rows) = list.split_once('\n').unwrap();
    let column = head.find("found in").unwrap();
    for line in rows.lines() {
        let id = line.split_whitespace().next().unwrap();
        let found_in = line[column..].split("  ").next().unwrap();
        let (code, text, _) = onionskin(&["explain", id]);
        assert_eq!(code, 0, "{id}");
        assert!(text.starts_with(id) && text.contains("Cure: "), "{text}");
        assert!(
            text.contains(&format!("\nfound in graphs of: {found_in}\n")),
            "{text}"
        );
    }
    let (code, _, error) = onionskin(&["explain", "W0213"]);
    assert_eq!(code, 2);
    assert!(error.contains("W0213 is retired"), "{error}");
    let (code, _, error) = onionskin(&["explain", "W0299"]);
    assert_eq!(code, 2);
    assert!(error.contains("the ids of this layer are W0201"), "{error}");
}

#[test]
fn warnings_pass_and_are_suppressed() {
    let (code, text, _) = onionskin(&["check", FROZEN, "--device", "cpu"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("warning[W0211]") && text.contains("at make_archives.py:92"),
        "{text}"
    );
    let allow = ["--allow", "W0211@make_archives.py:92", "--allow", "W0715"];
    let arguments = [&["check", FROZEN, "--device", "cpu"], allow.as_slice()].concat();
    let (_, text, _) = onionskin(&arguments);
    assert!(
        text.contains("make_archives.py:93") && text.contains("2 suppressed"),
        "{text}"
    );
    assert!(!text.contains("W0715"), "{text}");
}

#[test]
fn a_check_writes_json_and_a_page() {
    let page = temporary("page.html");
    let (_, text, _) = onionskin(&[
        "check", FROZEN, "--device", "cpu", "--json", "--html", &page,
    ]);
    assert!(
        text.starts_with("{\"format\":\"onionskin-check-1\","),
        "{text}"
    );
    let json: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(json["passed"], true);
    assert_eq!(json["findings"][0]["id"], "W0211");
    assert_eq!(json["findings"][0]["value"], "view");
    assert_eq!(json["findings"][0]["place"]["location"]["line"], 92);
    assert_eq!(json["verdict"], "warned");
    assert_eq!(json["runs"][0]["outcome"], "ok");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(
        html.starts_with("<!DOCTYPE html>")
            && html.contains("<tr id=\"value-view\" class=\"warning\">")
            && html.contains("<span class=\"warned\">warned</span>")
            && html.contains("<code>python examples/record.py")
    );
    std::fs::remove_file(page).unwrap();
}

#[test]
fn a_check_against_recorded_outputs_fails_if_they_differ() {
    let (right, wrong) = (temporary("right.npz"), temporary("wrong.npz"));
    let run = ["run", TWO_LAYERS, "--shape", "f32[2, 4]", "--device", "cpu"];
    let (code, ..) = onionskin(&[run.as_slice(), &["-o", &right]].concat());
    assert_eq!(code, 0);
    let check = [
        "check",
        TWO_LAYERS,
        "--shape",
        "f32[2, 4]",
        "--device",
        "cpu",
        "--against",
        "recorded",
    ];
    let (code, text, _) = onionskin(&[check.as_slice(), &["--expected", &right]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("and recorded outputs are equal")
            && text.contains("by recorded outputs for 1 set of inputs."),
        "{text}"
    );
    let run = ["run", TWO_LAYERS, "--shape", "f32[3, 4]", "--device", "cpu"];
    let (code, ..) = onionskin(&[run.as_slice(), &["-o", &wrong]].concat());
    assert_eq!(code, 0);
    let (code, text, _) = onionskin(&[check.as_slice(), &["--expected", &wrong]].concat());
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("error[E0701]") && text.contains("instead of"),
        "{text}"
    );
    let (code, _, error) = onionskin(&check);
    assert_eq!(code, 2, "{error}");
    for path in [right, wrong] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_check_names_missing_comparisons() {
    let check = |model| onionskin(&["check", model, "--device", "cpu"]).1;
    let trace = check(TWO_LAYERS);
    assert!(
        trace.contains("Not compared with the program") && trace.contains("a Python `if`"),
        "{trace}"
    );
    let script = check("tests/fixtures/cases/models/script_accumulate");
    assert!(
        script.contains("Not compared with PyTorch") && !script.contains("Python `if`"),
        "{script}"
    );
}

#[test]
fn packed_weights_are_taken_by_the_next_run() {
    if adapters().is_empty() {
        println!("skipped: no adapter");
        return;
    }
    let packed = temporary("packed.safetensors");
    let run = || {
        onionskin(&[
            "run",
            TWO_LAYERS,
            "--shape",
            "f32[2, 4]",
            "--packed",
            &packed,
        ])
    };
    let (code, first, note) = run();
    assert!(
        code == 0 && note.contains(": 0 packed weights read, "),
        "{note}"
    );
    let (code, second, note) = run();
    assert!(code == 0 && note.contains(" read, 0 written"), "{note}");
    assert_eq!(first, second);
    std::fs::remove_file(packed).unwrap();
}

#[test]
fn check_refuses_half_precision_on_the_host() {
    let (code, _, error) = onionskin(&["check", FROZEN, "--device", "cpu", "--dtype", "f16"]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("the host stores f32 values in f32"),
        "{error}"
    );
}

#[test]
fn missing_libtorch_is_named() {
    let (code, _, error) = onionskin(&["check", FROZEN, "--against", "libtorch"]);
    assert_eq!(code, 2);
    assert!(error.contains("feature libtorch"), "{error}");
}

/// With zero tolerance a device differs from the oracle in the last digits, and the first differing value is named.
#[test]
fn verify_names_the_first_differing_value() {
    let digits = "examples/digits/digits.pt";
    let (code, text, _) = onionskin(&[
        "verify", digits, "--device", "cpu", "--rtol", "0", "--atol", "0",
    ]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("ok   against the graph as imported"),
        "{text}"
    );
    if !has_adapter() {
        return;
    }
    let (code, text, _) = onionskin(&["verify", digits]);
    assert_eq!(code, 0, "{text}");
    let exact = ["verify", digits, "--rtol", "0", "--atol", "0", "--json"];
    let (code, text, _) = onionskin(&exact);
    let json: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 1, "{text}");
    let culprit = &json["runs"][0]["culprit"];
    let text = culprit["text"].as_str().unwrap();
    assert!(text.contains("first value that differs"), "{culprit}");
    let value = culprit["first_divergence"]["value"].as_str().unwrap();
    assert!(text.contains(value), "{culprit}");
}

#[test]
fn prepare_names_operators_and_proves_the_results_equal() {
    let (prepared, report) = (temporary("prepared.json"), temporary("report.json"));
    let run = [
        "prepare", TWO_LAYERS, "-o", &prepared, "--report", &report, "--json",
    ];
    let (code, text, error) = onionskin(&run);
    assert_eq!(code, 0, "{error}");
    let (code, summary, error) = onionskin(&run[..6]);
    assert_eq!(code, 0, "{error}");
    assert!(
        summary.contains("operators named after") && summary.contains("bit for bit"),
        "{summary}"
    );
    assert!(
        summary.lines().count() < 8 && !summary.contains(" -> "),
        "{summary}"
    );
    let json: Json = serde_json::from_str(&text).unwrap();
    assert!(
        json["rewrites"]
            .as_array()
            .is_some_and(|list| !list.is_empty()),
        "{text}"
    );
    assert!(std::fs::read_to_string(&report).is_ok_and(|text| !text.is_empty()));
    let (code, shown, error) = onionskin(&["show", &prepared, "--graph"]);
    assert_eq!(code, 0, "{error}");
    assert!(shown.contains("graph forward("), "{shown}");
    let (code, _, error) =
        onionskin(&["prepare", TWO_LAYERS, "-o", &prepared, "--leaf", "nowhere"]);
    assert_ne!(code, 0);
    assert!(
        error.contains("no operator is in a module nowhere"),
        "{error}"
    );
    let module: Json = serde_json::from_slice(&std::fs::read(&prepared).unwrap()).unwrap();
    let weights = module["weights"]["file"].as_str().unwrap();
    let weights = Path::new(&prepared).with_file_name(weights);
    for path in [Path::new(&prepared), &weights, Path::new(&report)] {
        std::fs::remove_file(path).unwrap();
    }
}

/// Returns the standard error of a command that runs with environment variables.
fn standard_error(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onionskin"))
        .args(arguments)
        .env_remove("XDG_RUNTIME_DIR")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_unknown_device_is_an_error_that_lists_the_devices() {
    if !has_adapter() {
        return;
    }
    for arguments in [
        &["run", TWO_LAYERS, "--random"][..],
        &["bench", TWO_LAYERS, "--random"],
        &["check", TWO_LAYERS],
        &["verify", TWO_LAYERS],
        &["compare", TWO_LAYERS, "--random"],
        &["demo"],
    ] {
        let (code, _, error) = onionskin(&[arguments, &["--device", "nonesuch"]].concat());
        assert_eq!(code, 2, "{error}");
        assert!(
            error.contains("no adapter fits the choice nonesuch; there is 0: "),
            "{error}"
        );
    }
}

#[test]
fn colours_are_for_terminals() {
    let run = ["run", "tests/fixtures/archives/state_dict.pt"];
    assert!(!standard_error(&run, &[]).contains('\u{1b}'));
    assert!(standard_error(&run, &[("CLICOLOR_FORCE", "1")]).contains("\u{1b}[31merror[E0101]"));
}

/// Mesa's device-selection layer prints a warning where there is no desktop.
#[test]
fn drivers_print_nothing() {
    if !has_adapter() {
        return;
    }
    let run = ["run", TWO_LAYERS, "--random"];
    let text = standard_error(&run, &[]);
    let own = ["inputs: random", "on "];
    for line in text.lines() {
        assert!(own.iter().any(|start| line.starts_with(start)), "{text}");
    }
}

/// Prints a note and returns false where there is no adapter and `REQUIRE_GPU` does not demand one.
fn has_adapter() -> bool {
    let found = !adapters().is_empty();
    let required = std::env::var("REQUIRE_GPU").is_ok_and(|value| value == "1");
    assert!(found || !required, "no adapter");
    if !found {
        println!("skipped: no adapter");
    }
    found
}

/// The steps of a profile have names, times and work, which its tables sum up.
fn profile_steps_are_complete(profile: &Json) {
    let steps = profile["steps"].as_array().unwrap();
    let second = steps
        .iter()
        .find(|step| step["module"] == "second")
        .unwrap();
    assert_eq!(second["location"], "make_archives.py:35", "{second}");
    assert_eq!(second["runs"], 1);
    assert!(second["inline"].is_array());
    let mut sums = std::collections::BTreeMap::<&str, f64>::new();
    for step in steps {
        assert!(!step["nodes"].as_array().unwrap().is_empty(), "{step}");
        let number = |key: &str| {
            step[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{key}: {step}"))
        };
        assert!(number("flop") > 0.0 && number("bytes") > 0.0, "{step}");
        assert!(
            0.0 < number("min_ns") && number("min_ns") <= number("ns") + 1e-6,
            "{step}"
        );
        *sums.entry(step["kernel"].as_str().unwrap()).or_default() += number("ns") / 1e6;
    }
    for kernel in profile["kernels"].as_array().unwrap() {
        let (name, ms) = (
            kernel["name"].as_str().unwrap(),
            kernel["ms"].as_f64().unwrap(),
        );
        assert!((sums[name] - ms).abs() < 1e-9, "{kernel}");
    }
}

/// Rates of a profile stay below the ceilings, the trace nests kernels in modules, and the page holds all of it.
#[test]
fn a_profile_writes_a_trace_and_a_page() {
    if !has_adapter() {
        return;
    }
    let (trace, page) = (temporary("trace.json"), temporary("profile.html"));
    let profile = [
        "profile",
        TWO_LAYERS,
        "--shape",
        "f32[2, 4]",
        "--json",
        "--trace",
        &trace,
        "--html",
        &page,
    ];
    let (code, text, error) = onionskin(&profile);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.starts_with("{\"format\":\"onionskin-profile-1\",\"graph\":\"forward\","),
        "{text}"
    );
    let json: Json = serde_json::from_str(&text).unwrap();
    profile_steps_are_complete(&json);
    let positive = |value: &Json| value.as_f64().is_some_and(|number| number > 0.0);
    assert!(positive(&json["ceilings"]["gb_per_s"]) && positive(&json["ceilings"]["gflops"]));
    for kernel in json["kernels"].as_array().unwrap() {
        assert!(
            ["ms", "gflops", "gb_per_s", "of_ceiling"]
                .iter()
                .all(|key| positive(&kernel[*key]))
        );
    }
    assert!(
        json["modules"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["name"] == "second")
    );
    let events: Json = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let of = |category: &str| {
        events
            .iter()
            .filter(|event| event["cat"] == category)
            .count()
    };
    assert_eq!((of("kernel"), of("module")), (3, 3), "{events:?}");
    let kernel = events
        .iter()
        .find(|event| event["cat"] == "kernel")
        .unwrap();
    assert!(kernel["ph"] == "X" && positive(&kernel["dur"]) && kernel["ts"] == 0.0);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("make_archives.py:33"));
    let outside = [
        "src=",
        "href=\"http",
        "href=\"/",
        "url(",
        "@import",
        "{{",
        "/* style */",
        "/* script */",
    ];
    assert!(
        outside.iter().all(|mark| !html.contains(mark)),
        "the page needs other files"
    );
    for path in [trace, page] {
        std::fs::remove_file(path).unwrap();
    }
}

/// If one file of a profile cannot be written, the other one is not written either.
#[test]
fn a_profile_writes_all_files_or_none() {
    if !has_adapter() {
        return;
    }
    let trace = temporary("alone.json");
    let page = temporary("folder.html");
    std::fs::create_dir(&page).unwrap();
    let profile = [
        "profile",
        TWO_LAYERS,
        "--shape",
        "f32[2, 4]",
        "--trace",
        &trace,
        "--html",
        &page,
        "--force",
    ];
    let (code, _, error) = onionskin(&profile);
    assert_eq!(code, 2, "{error}");
    assert!(!std::path::Path::new(&trace).exists());
    std::fs::remove_dir(page).unwrap();
}

/// Cold starts run with the options of the other runs.
#[test]
fn a_bench_without_checks_starts_without_them() {
    let raises = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/archives/raises.pt"
    );
    let folder = Folder::new("no-checks");
    let tensors = [
        ("x", Tensor::from_vec([2], vec![1.0f32, -2.0]).unwrap()),
        ("count", Tensor::from_vec([], vec![1i64]).unwrap()),
        ("index", Tensor::from_vec([2], vec![0i64, 1]).unwrap()),
    ];
    let inputs = folder.tensors("inputs.safetensors", &tensors);
    let bench = [
        "bench",
        raises,
        "-i",
        &inputs,
        "--device",
        "cpu",
        "--runs",
        "1",
        "--seconds",
        "0",
    ];
    let (code, _, error) = onionskin(&bench);
    assert!(
        code == 3 && error.contains("x must be positive"),
        "{code} {error}"
    );
    let (code, _, error) = onionskin(&[&bench[..], &["--no-checks"]].concat());
    assert_eq!(code, 0, "{error}");
}

/// A benchmark reports its measurements, alone and compared with a recorded peer.
#[test]
fn a_bench_measures_times_dispatches_and_memory() {
    let peers = temporary("peers.json");
    std::fs::write(&peers, r#"{"a peer": 0.001}"#).unwrap();
    let bench = [
        "bench",
        TWO_LAYERS,
        "--shape",
        "f32[2, 4]",
        "--runs",
        "3",
        "--seconds",
        "0",
        "--json",
        "--against",
        &peers,
    ];
    let (code, text, error) = onionskin(&[&bench[..], &["--device", "cpu", "--no-cold"]].concat());
    assert_eq!(code, 0, "{error}");
    let json: Json = serde_json::from_str(&text).unwrap();
    let least = |json: &Json, key: &str| {
        json[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key}: {json}"))
    };
    assert!(least(&json, "low_ms") <= least(&json, "median_ms"));
    assert!(least(&json, "median_ms") <= least(&json, "high_ms"));
    assert_eq!(
        (&json["runs"], &json["operators"]),
        (&Json::from(3), &Json::from(7))
    );
    assert!(json["on_device"].is_null() && json["fresh_ms"].is_null());
    let ratio = least(&json["against"]["a peer"], "ratio");
    assert!((ratio - least(&json, "median_ms") / 0.001).abs() < 1e-6 * ratio);
    std::fs::write(&peers, r#"{"a peer": "fast"}"#).unwrap();
    let (code, _, error) = onionskin(&bench);
    assert_eq!(code, 3);
    assert!(
        error.contains("a peer is \"fast\"; expected a positive number of milliseconds"),
        "{error}"
    );
    std::fs::remove_file(&peers).unwrap();
    if !has_adapter() {
        return;
    }
    let (code, text, error) = onionskin(&bench[..9]);
    assert_eq!(code, 0, "{error}");
    let json: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(json["on_device"]["dispatches"], 3);
    assert!(least(&json, "fresh_ms") > 0.0 && least(&json, "fresh_cached_ms") > 0.0);
    assert!(
        least(&json["on_device"], "graph_ms") > 0.0
            && least(&json["on_device"], "kernels_ms") > 0.0
    );
    assert_eq!(json["on_device"]["weight_bytes"], 64 + 32 + 64 + 32);
}

/// Plans and profiles use the choices tuned on their device; a note reports choices of another device.
#[test]
fn plans_and_profiles_use_tuned_choices() {
    if !has_adapter() {
        return;
    }
    let tuned = temporary("tuned.json");
    let model = [TWO_LAYERS, "--shape", "f32[2, 4]"];
    let call = |command: &[&str]| {
        let (code, text, error) = onionskin(&[&command[..1], &model[..], &command[1..]].concat());
        assert_eq!(code, 0, "{error}");
        (text, error)
    };
    call(&["tune", "--output", &tuned]);
    let file = std::fs::read_to_string(&tuned).unwrap();
    let mut tuning: Json = serde_json::from_str(&file).unwrap();
    tuning["choices"] = serde_json::json!({"dot f32 2x4 4x3": "portable"});
    std::fs::write(&tuned, tuning.to_string()).unwrap();
    let plan = ["show", "--plan", "--tuned", &tuned];
    let asked = "portable: requested by the tuning or the options";
    let (text, error) = call(&plan);
    assert!(text.contains(asked) && !error.contains("tuned"), "{text}");
    call(&["profile", "--json", "--tuned", &tuned]);
    tuning["adapter"] = "another".into();
    std::fs::write(&tuned, tuning.to_string()).unwrap();
    for command in [&plan[..], &["profile", "--json", "--tuned", &tuned]] {
        let (text, error) = call(command);
        assert!(!text.contains(asked), "{text}");
        assert!(error.contains("another"), "{error}");
    }
    std::fs::remove_file(&tuned).unwrap();
}

/// Gradients of the fixtures, in a folder of their own and beside a case.
#[test]
fn recorded_gradients_are_compared() {
    let cases = "tests/fixtures/cases";
    let only = "--only=models/dynamic_batch";
    let below = ["test", cases, "--device", "cpu", only, "--gradients"];
    let (code, text, error) = onionskin(&[&below[..], &["tests/fixtures/gradients"]].concat());
    assert_eq!(code, 0, "{text}{error}");
    assert!(text.contains("1 of 1 passed"), "{text}");

    let folder = temporary("gradients-beside");
    let case = Path::new(&folder).join("models/dynamic_batch");
    std::fs::create_dir_all(&case).unwrap();
    for file in std::fs::read_dir(format!("{cases}/models/dynamic_batch")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), case.join(file.file_name())).unwrap();
    }
    let beside = ["test", &folder, "--device", "cpu", "--gradients", &folder];
    let (code, text, _) = onionskin(&beside);
    assert_ne!(code, 0, "no gradients were recorded: {text}");
    let recorded = "tests/fixtures/gradients/models/dynamic_batch.safetensors";
    std::fs::copy(recorded, case.join("gradients.safetensors")).unwrap();
    let (code, text, error) = onionskin(&beside);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(code, 0, "{text}{error}");
    assert!(text.contains("1 of 1 passed"), "{text}");
}
