//! Reads whole TorchScript archives: the fixtures, every archive of the corpus if it exists, and thousands of fixtures with
//! changed bytes, none of which may panic.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use onionskin::archive::{Container, Pickled, PickledObject, state_dict};
use onionskin::budget::{Budget, Limits};
use onionskin::trace::script::Script;
use onionskin::trace::script::ast::{FunctionDef, Stmt, StmtKind};
use onionskin::trace::torchscript::{Archive, ArchiveSource, parser};
use random::Random;

#[derive(Debug, Default)]
struct Counts {
    archives: usize,
    modules: usize,
    statements: usize,
    tensors: usize,
    located: usize,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives")
}

fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let path = std::env::var_os("ONIONSKIN_CORPUS").map_or_else(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

/// Reads all contents of an archive.
fn read_all(archive: &Archive, counts: &mut Counts) -> onionskin::error::Result<()> {
    counts.archives += 1;
    archive.version();
    for value in archive.constants().iter().chain([archive.root()]) {
        read_value(archive, value, counts)?;
    }
    for method in ["forward", "encode"] {
        archive.traced_input_types(method);
    }
    let source = archive.source();
    for module in source.modules() {
        counts.modules += 1;
        let Some(file) = source.module(module)? else {
            continue;
        };
        let methods = file.classes.iter().flat_map(|class| &class.methods);
        for function in methods.chain(&file.functions) {
            read_function(source, function, counts);
        }
    }
    Ok(())
}

fn read_function(source: &ArchiveSource, function: &FunctionDef, counts: &mut Counts) {
    read_statements(source, &function.file, &function.body, counts);
}

fn read_statements(source: &ArchiveSource, file: &str, body: &[Stmt], counts: &mut Counts) {
    for statement in body {
        counts.statements += 1;
        counts.located += usize::from(source.location(file, statement.offset).is_some());
        match &statement.kind {
            StmtKind::If {
                then, otherwise, ..
            } => {
                read_statements(source, file, then, counts);
                read_statements(source, file, otherwise, counts);
            }
            StmtKind::While { body, .. }
            | StmtKind::For { body, .. }
            | StmtKind::With { body, .. } => read_statements(source, file, body, counts),
            StmtKind::Define(function) => read_function(source, function, counts),
            _ => {}
        }
    }
}

fn read_value(
    archive: &Archive,
    value: &Pickled,
    counts: &mut Counts,
) -> onionskin::error::Result<()> {
    match value {
        Pickled::Tensor(record) => {
            counts.tensors += 1;
            archive.tensor(record)?;
        }
        Pickled::Object(object) => {
            let PickledObject { class, attributes } = &**object;
            archive.class(class)?;
            for (_, value) in attributes {
                read_value(archive, value, counts)?;
            }
        }
        Pickled::Dict(dict) => {
            check_tag(dict.type_tag.as_deref())?;
            for (key, value) in &dict.entries {
                read_value(archive, key, counts)?;
                read_value(archive, value, counts)?;
            }
        }
        Pickled::List(list) => check_tag(list.type_tag.as_deref())?,
        _ => {}
    }
    for item in value.as_items().unwrap_or_default() {
        read_value(archive, item, counts)?;
    }
    Ok(())
}

fn check_tag(tag: Option<&str>) -> onionskin::error::Result<()> {
    tag.map(parser::parse_type).transpose().map(drop)
}

/// Calls a function with every archive of the corpus, including those in ZIP files of cases.
fn for_each_archive(corpus: &Path, mut visit: impl FnMut(&str, Vec<u8>)) {
    for model in list(&corpus.join("models")) {
        let path = model.join("model.pt");
        visit(
            &path.display().to_string(),
            fs::read(&path).expect("a model"),
        );
    }
    let folders = ["ops", "programs", "versions"].map(|folder| corpus.join(folder));
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        for path in list(folder) {
            let bytes = fs::read(&path).expect("cases");
            let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).expect("a ZIP file of cases");
            for index in 0..zip.len() {
                let mut entry = zip.by_index(index).expect("a case");
                if entry.name().ends_with("model.pt") {
                    let name = format!("{}/{}", path.display(), entry.name());
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes).expect("a case");
                    visit(&name, bytes);
                }
            }
        }
    }
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the corpus");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_archive_can_be_read() {
    let mut counts = Counts::default();
    for name in ["two_layers.pt", "scripted.pt"] {
        let archive = Archive::open(fixtures().join(name)).expect("a fixture");
        read_all(&archive, &mut counts).expect("a fixture");
    }
    assert!(counts.located > 10, "{counts:?}");
    let mut failures = Vec::new();
    let cases = fixtures().with_file_name("cases");
    for folder in corpus().iter().chain([&cases]) {
        for_each_archive(folder, |name, bytes| {
            let archive = Archive::from_bytes(bytes);
            let result = archive.and_then(|archive| read_all(&archive, &mut counts));
            failures.extend(result.err().map(|error| format!("{name}: {error}")));
        });
    }
    if corpus().is_none() {
        eprintln!("the corpus is absent: read only the fixtures");
    }
    eprintln!("{counts:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn locations_lead_to_the_users_own_lines() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/make_archives.py");
    let script = fs::read_to_string(path).expect("the script that made the fixtures");
    let lines: Vec<&str> = script.lines().map(str::trim).collect();
    for (archive, class, code, line) in [
        (
            "two_layers.pt",
            "__torch__.TwoLayers",
            "torch.relu_(",
            "x.relu_()",
        ),
        (
            "two_layers.pt",
            "__torch__.torch.nn.modules.linear.Linear",
            "torch.linear(",
            "x = self.first(x)",
        ),
        (
            "scripted.pt",
            "__torch__.Scripted",
            "torch.mul(x4, scale0)",
            "x = x * scale",
        ),
        (
            "scripted.pt",
            "__torch__.Scripted",
            "ops.prim.RaiseException(",
            "raise ValueError(\"not plain\")",
        ),
    ] {
        let archive = Archive::open(fixtures().join(archive)).expect("a fixture");
        let file = &archive.class(class).expect("a class").file;
        let text = archive.container().text(file).expect("its source");
        let offset = text.find(code).expect("the code");
        let location = archive.location(file, offset).expect("a location");
        assert_eq!(location.file, "make_archives.py");
        assert_eq!(lines[location.line as usize - 1], line, "{code}");
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let position = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(position.max(1)),
            1 => bytes.insert(position, random.below(256) as u8),
            2 => drop(bytes.remove(position)),
            3 => bytes[position] ^= 1 << random.below(8),
            4 => bytes[position] = [0, 0x7f, 0x80, 0xff, b'(', b'.'][random.below(6)],
            _ => bytes[position] = random.below(256) as u8,
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

#[test]
fn changed_archives_never_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for name in [
        "two_layers.pt",
        "scripted.pt",
        "state_dict.pt",
        "nested_tensors.pt",
    ] {
        let original = fs::read(fixtures().join(name)).expect("a fixture");
        for _ in 0..2000 {
            let mut bytes = original.clone();
            mutate(&mut bytes, &mut random);
            let archive = Archive::from_bytes(bytes.clone());
            let _ = archive.and_then(|archive| read_all(&archive, &mut Counts::default()));
            let _ = Container::from_bytes(bytes, &Limits::default())
                .and_then(|zip| state_dict::tensors(&zip));
        }
    }
}

/// Checksums catch most changes of compressed records, so their contents are changed as well.
#[test]
fn changed_records_never_panic() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for name in [
        "two_layers.pt",
        "scripted.pt",
        "state_dict.pt",
        "nested_tensors.pt",
    ] {
        let container =
            Container::open(&fixtures().join(name), &Limits::default()).expect("a fixture");
        for record in container.names().map(str::to_owned).collect::<Vec<_>>() {
            let original = container.record(&record).expect("a record");
            let original: &[u8] = original.as_ref();
            if original.is_empty() {
                continue;
            }
            for _ in 0..500 {
                let mut bytes = original.to_vec();
                mutate(&mut bytes, &mut random);
                read_record(&record, &bytes);
            }
        }
    }
}

fn read_record(name: &str, bytes: &[u8]) {
    use onionskin::archive::{debug::DebugMap, pickle};
    if name.ends_with(".debug_pkl") {
        let _ = DebugMap::read(bytes, &Limits::default()).map(|map| map.location(100));
    } else if name.ends_with(".pkl") {
        let _ = pickle::unpickle(bytes, "data", &Budget::default());
    } else if name.ends_with(".py") {
        let _ = parser::parse_file(
            name,
            "__torch__",
            &String::from_utf8_lossy(bytes),
            &Budget::default(),
        );
    }
}
