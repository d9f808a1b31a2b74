//! Imports archives and runs the graphs on the oracle: the fixtures, and the corpus if it exists.
//!
//! `ONLY=text` replays the cases whose name contains the text, `SHOW=1` prints the result of each.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;

#[path = "import/numbers.rs"]
mod numbers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onionskin::cases::{self, Case, CaseArchive, CaseRef};
use onionskin::compare::compare;
use onionskin::error::{Error, ErrorKind};
use onionskin::item::flatten_arguments;
use onionskin::model::{CompileOptions, Device, Model};
use onionskin::trace::torchscript::{
    Archive, EntryMethod, ImportOptions, InputSpec, SymbolicSizes, import,
};
use random::Random;

/// Result of a case.
#[derive(Debug)]
enum CaseOutcome {
    /// All calls returned the recorded outputs. The number is that of imported graphs; it exceeds one if sizes break guards.
    Passed(usize),
    /// The importer reported something unsupported.
    Unsupported(String),
    /// Any other failure.
    Failed(String),
}

fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let path = std::env::var_os("ONIONSKIN_CORPUS").map_or_else(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

fn show() -> bool {
    std::env::var_os("SHOW").is_some()
}

fn open(archive: &CaseArchive) -> Result<Model, Error> {
    match archive {
        CaseArchive::Path(path) => Model::open(path),
        CaseArchive::Bytes(bytes) => Model::from_bytes(bytes.to_vec()),
    }
}

/// Replays a recorded case, with all sets on one session.
fn replay(case: &Case) -> Result<CaseOutcome, Error> {
    let session = open(&case.archive)?.compile(&Device::Host, &CompileOptions::default())?;
    for set in &case.sets {
        for method in &set.before {
            session.call_method(method, &[])?;
        }
        for call in &set.calls {
            let known = session.compiled_graphs();
            let got = session.call_method(&call.method, &call.inputs)?;
            if show() && known.len() < session.compiled_graphs().len() {
                let refusals = known.iter().map(|variant| {
                    let inputs = flatten_arguments(&variant.graph.input_trees, &call.inputs)?;
                    let shapes: Vec<&[usize]> =
                        inputs.iter().map(|tensor| tensor.shape()).collect();
                    variant.graph.bind(&shapes)
                });
                let refusals: Vec<String> = refusals
                    .map(|refusal| refusal.err().map_or("?".into(), |e| e.to_string()))
                    .collect();
                println!("  another graph for {}: {refusals:?}", set.label);
            }
            let differences = compare(&got, &call.output, set.tolerance);
            if let Some(wrong) = differences.iter().find(|difference| !difference.passed()) {
                return Ok(CaseOutcome::Failed(format!("{}: {wrong}", set.label)));
            }
        }
    }
    for variant in session.compiled_graphs() {
        variant.graph.verify()?;
    }
    Ok(CaseOutcome::Passed(session.compiled_graphs().len()))
}

fn outcome(case: &CaseRef) -> CaseOutcome {
    let result = case.load().and_then(|case| replay(&case));
    result.unwrap_or_else(|error| {
        match error
            .iter()
            .all(|error| error.kind() == ErrorKind::Unsupported)
        {
            true => CaseOutcome::Unsupported(error.to_string()),
            false => CaseOutcome::Failed(error.to_string()),
        }
    })
}

/// Replays every case of a folder.
fn replay_folder(folder: &Path) -> Vec<String> {
    let wanted = std::env::var("ONLY").unwrap_or_default();
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for case in cases::find(folder).unwrap() {
        if !case.name.contains(&wanted) {
            continue;
        }
        let outcome = outcome(&case);
        if show() {
            println!("{}: {outcome:?}", case.name);
        }
        let kind = match outcome {
            CaseOutcome::Passed(0 | 1) => "passed",
            CaseOutcome::Passed(_) => "passed with several graphs",
            CaseOutcome::Unsupported(what) => {
                println!("{}: {what}", case.name);
                "unsupported"
            }
            CaseOutcome::Failed(message) => {
                failures.push(format!("{}: {message}", case.name));
                "failed"
            }
        };
        *counts.entry(kind).or_insert(0) += 1;
    }
    println!("{}: {counts:?}", folder.display());
    failures
}

fn host_and_device(kind: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let mut failures = replay_folder(&fixtures.join(kind));
    match corpus() {
        Some(corpus) => failures.extend(replay_folder(&corpus.join(kind))),
        None => println!("no corpus: only the fixtures were replayed"),
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn programs() {
    host_and_device("programs");
}

#[test]
fn models() {
    host_and_device("models");
}

#[test]
fn networks() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let failures = replay_folder(&fixtures.join("networks"));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Archives written by PyTorch 1.13 to 2.15 import and return the recorded outputs.
#[test]
fn archives_of_all_pytorch_versions_import() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases/versions");
    let cases = cases::find(&folder).unwrap();
    for version in ["1.13.1", "2.0.1", "2.6.0", "2.10.0", "2.15.0"] {
        let of_version = cases.iter().filter(|case| case.name.ends_with(version));
        assert!(2 < of_version.count(), "few cases of {version}");
    }
    all_pass(&cases);
}

fn all_pass(cases: &[CaseRef]) {
    let failures = cases.iter().filter_map(|case| match outcome(case) {
        CaseOutcome::Passed(_) => None,
        other => Some(format!("{}: {other:?}", case.name)),
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// An archive that PyTorch itself cannot load is rejected with advice.
#[test]
fn archives_without_optimised_weights_are_rejected() {
    let archive = archive_of(OPTIMISED);
    let error = import(&archive, &ImportOptions::forward(vec![tensor("f32[2]")])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.advice().unwrap().contains("torch.jit.freeze"));
}

/// Nodes draw with seed 0 and ascending counters; outside of training nothing is drawn.
#[test]
fn random_calls_have_seed_and_counter() {
    let archive = archive_of(DRAWS);
    let module = import(&archive, &ImportOptions::forward(vec![tensor("f32[2]")])).unwrap();
    let text = module.to_string();
    for node in [
        "aten.dropout x, p=0.5, train=true, seed=0, counter=0",
        "aten.rand size=[2], dtype=f32, seed=0, counter=1",
        "aten.uniform b, from=-1.0, seed=0, counter=2",
    ] {
        assert!(text.contains(node), "{text}");
    }
    assert_eq!(text.matches("aten.dropout").count(), 1);
}

const DRAWS: &str = "\
class M(Module):
  __parameters__ = []
  __buffers__ = []
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    a = torch.dropout(x, 0.5, True)
    b = torch.rand([2], dtype=6, layout=0, device=torch.device(\"cpu\"), pin_memory=False)
    c = torch.uniform_(b, -1., 1.)
    return torch.add(torch.dropout(a, 0.5, False), c)
";

fn archive_of(code: &str) -> Archive {
    let records = vec![
        ("m/version".into(), b"3".to_vec()),
        ("m/constants.pkl".into(), b"\x80\x02).".to_vec()),
        ("m/data.pkl".into(), ROOT.to_vec()),
        ("m/code/__torch__.py".into(), code.as_bytes().to_vec()),
    ];
    Archive::from_bytes(zip(records)).unwrap()
}

/// A pickled module of class `__torch__.M` without attributes.
const ROOT: &[u8] = b"\x80\x02c__torch__\nM\n)\x81}b.";

const OPTIMISED: &str = "\
class M(Module):
  __parameters__ = []
  __buffers__ = []
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    weight = ops.prim.ConstantMKLDNNTensor()
    return torch.add(x, weight)
";

fn fixture(name: &str) -> Archive {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
    Archive::open(folder.join(name)).unwrap()
}

fn tensor(ty: &str) -> InputSpec {
    InputSpec::Tensor(ty.parse().unwrap())
}

/// Compares the text of an import with the file beside the archive; `BLESS=1` writes the file.
fn check_text(name: &str, options: &ImportOptions) {
    let text = import(&fixture(&format!("{name}.pt")), options)
        .unwrap()
        .to_string();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default());
}

#[test]
fn a_trace_as_text() {
    check_text("two_layers", &ImportOptions::default());
}

#[test]
fn a_script_as_text() {
    check_text(
        "scripted",
        &ImportOptions::forward(vec![tensor("f32[3, 2]")]),
    );
}

#[test]
fn sizes_are_symbols_where_wanted() {
    let archive = fixture("two_layers.pt");
    let input = |sizes: SymbolicSizes| {
        let options = ImportOptions {
            sizes,
            ..ImportOptions::default()
        };
        let module = import(&archive, &options).unwrap();
        let graph = &module.graphs[0];
        graph.ty(graph.inputs[0]).to_string()
    };
    // The layer determines the last size.
    assert_eq!(input(SymbolicSizes::All), "f32[x_0, 4]");
    assert_eq!(input(SymbolicSizes::None), "f32[2, 4]");
    assert_eq!(
        input(SymbolicSizes::Only(vec![("x".into(), 0)])),
        "f32[x_0, 4]"
    );
    assert_eq!(
        input(SymbolicSizes::Only(vec![("x".into(), 1)])),
        "f32[2, 4]"
    );
}

#[test]
fn tied_weights_are_one() {
    let module = import(&fixture("two_layers.pt"), &ImportOptions::default()).unwrap();
    let names: Vec<&str> = module.weights.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["first.bias", "first.weight", "offset", "second.weight"]
    );
}

#[test]
fn examples_are_asked_for() {
    let error = import(&fixture("scripted.pt"), &ImportOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert_eq!(error.advice(), Some("give --shape for x, limit"));
    let entry = EntryMethod {
        method: "encode".into(),
        ..EntryMethod::default()
    };
    let options = ImportOptions {
        entries: vec![entry],
        ..ImportOptions::default()
    };
    let error = import(&fixture("two_layers.pt"), &options).unwrap_err();
    assert_eq!(error.message(), "the module has no method encode");
    assert_eq!(error.advice(), Some("it has forward"));
}

#[test]
fn too_small_a_tensor_is_an_error_with_its_place() {
    let options = ImportOptions::forward(vec![tensor("f32[2, 5]")]);
    let error = import(&fixture("two_layers.pt"), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Operator);
    assert!(
        error
            .context()
            .iter()
            .any(|frame| frame.contains("(first)")),
        "{error}"
    );
}

/// Replaces parts of a recorded program's text and returns the error of its import.
fn edited(model: &str, edits: &[(&str, &str)], inputs: &[&str]) -> Error {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases/models");
    let bytes = std::fs::read(folder.join(model).join("model.pt")).unwrap();
    let records = unzip(&bytes).into_iter().map(|(name, bytes)| {
        if !name.ends_with(".py") {
            return (name, bytes);
        }
        let text = String::from_utf8(bytes).unwrap();
        let text = edits.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from), "{text}");
            text.replace(from, to)
        });
        (name, text.into_bytes())
    });
    let archive = Archive::from_bytes(zip(records.collect())).unwrap();
    let options = ImportOptions::forward(inputs.iter().map(|ty| tensor(ty)).collect());
    import(&archive, &options).unwrap_err()
}

#[test]
fn lists_whose_length_depends_on_tensors_are_refused() {
    let inputs = ["f32[4, 3]", "i64[]"];
    let lopsided = [("torch.append(rows, torch.prod(x, 0))", "torch.prod(x, 0)")];
    let error = edited("script_containers", &lopsided, &inputs);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.message(),
        "a list of 2 has a different length or type after each branch"
    );
    assert!(
        error
            .context()
            .iter()
            .any(|frame| frame.contains("make_cases.py")),
        "{error:?}"
    );
    let growing = [("torch._set_item(rows, 1, ", "torch.append(rows, ")];
    let error = edited("script_containers", &growing, &inputs);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.message().contains("changes the structure of a list"),
        "{error}"
    );
    let other_key = [("named, \"last\", _2", "named, \"end\", _2")];
    let error = edited("script_containers", &other_key, &inputs);
    assert!(
        error
            .message()
            .contains("a dict of 1 has a different length or type"),
        "{error}"
    );
}

#[test]
fn states_of_unusual_kinds_are_refused() {
    let module = [("self.highest = ", "self.__annotations = ")];
    let error = edited("script_states", &module, &["f32[4, 3]"]);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("changes its attribute"), "{error}");
}

/// Programs with randomly replaced numbers or words import or fail, and never panic.
#[test]
fn changed_programs_never_panic() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for (name, inputs) in [
        ("two_layers.pt", vec![tensor("f32[2, 4]")]),
        ("scripted.pt", vec![tensor("f32[3, 2]")]),
        (
            "../cases/models/script_containers/model.pt",
            vec![tensor("f32[4, 3]"), tensor("i64[]")],
        ),
        (
            "../cases/models/script_states/model.pt",
            vec![tensor("f32[4, 3]")],
        ),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
        let records = unzip(&std::fs::read(folder.join(name)).unwrap());
        for _ in 0..1500 {
            let changed = records.iter().map(|(name, bytes)| {
                let mut bytes = bytes.clone();
                if name.ends_with(".py") {
                    bytes = change(&String::from_utf8(bytes).unwrap(), &mut random).into_bytes();
                }
                (name.clone(), bytes)
            });
            let options = ImportOptions::forward(inputs.clone());
            let archive = Archive::from_bytes(zip(changed.collect()));
            let _ = archive.and_then(|archive| import(&archive, &options));
        }
    }
}

/// Replaces a few words of a text by others of it, or by numbers at the ends of a range.
fn change(text: &str, random: &mut Random) -> String {
    let mut words: Vec<&str> = text
        .split_inclusive(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    for _ in 0..=random.below(3) {
        let (here, there) = (random.below(words.len()), random.below(words.len()));
        let edges = [
            "0",
            "-1",
            "-9223372036854775808",
            "9223372036854775807",
            "None",
            "inf",
        ];
        match random.below(3) {
            0 => words.swap(here, there),
            1 => words[here] = words[there],
            _ => words[here] = edges[random.below(edges.len())],
        }
    }
    words.concat()
}

fn unzip(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let files = (0..archive.len()).map(|index| {
        let mut file = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
        (file.name().to_string(), bytes)
    });
    files.collect()
}

fn zip(records: Vec<(String, Vec<u8>)>) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in records {
        writer.start_file(name, options).unwrap();
        std::io::Write::write_all(&mut writer, &bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}
