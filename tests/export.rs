//! Exported programs (`.pt2`): PyTorch's numbers, inputs that a program refuses, packages without a graph, damaged documents.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod random;

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use onionskin::cases::{self, Case, CaseArchive};
use onionskin::compare::compare;
use onionskin::error::{Error, ErrorKind, Result};
use onionskin::item::Item;
use onionskin::model::{CompileOptions, Device, Model};
use onionskin::shape::TensorType;
use onionskin::tensor::Tensor;
use onionskin::trace::CustomOperator;
use onionskin::trace::export::ExportedProgram;
use random::Random;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases/exports")
}

fn case(name: &str) -> Case {
    let path = folder().join(format!("{name}.zip"));
    cases::find(&path).unwrap().remove(0).load().unwrap()
}

fn bytes(name: &str) -> Vec<u8> {
    match case(name).archive {
        CaseArchive::Bytes(bytes) => bytes.to_vec(),
        CaseArchive::Path(path) => std::fs::read(path).unwrap(),
    }
}

fn model(name: &str) -> Model {
    Model::from_bytes(bytes(name)).unwrap()
}

/// Runs a program on the host.
fn run(model: &Model, arguments: &[Item]) -> Result<Item> {
    let session = model.compile(&Device::Host, &CompileOptions::default())?;
    session.call(arguments)
}

fn zeros(shape: &[usize]) -> Item {
    let count = shape.iter().product();
    Item::Tensor(Tensor::from_vec(shape.to_vec(), vec![0.0f32; count]).unwrap())
}

/// The records of a package.
fn records(package: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut zip = zip::ZipArchive::new(Cursor::new(package)).unwrap();
    let read = |index| {
        let mut file = zip.by_index(index).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (file.name().to_string(), bytes)
    };
    (0..zip::ZipArchive::new(Cursor::new(package)).unwrap().len())
        .map(read)
        .collect()
}

fn package(records: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in records {
        zip.start_file(name.as_str(), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A program whose document is changed.
fn changed(name: &str, change: impl Fn(String) -> String) -> Vec<u8> {
    let mut records = records(&bytes(name));
    for (record, bytes) in &mut records {
        if record.ends_with("models/model.json") {
            *bytes = change(String::from_utf8(bytes.clone()).unwrap()).into_bytes();
        }
    }
    package(&records)
}

#[test]
fn programs_give_pytorchs_numbers() {
    let mut count = 0;
    for case in cases::find(&folder()).unwrap() {
        let name = &case.name;
        let case = case.load().unwrap();
        let CaseArchive::Bytes(bytes) = &case.archive else {
            panic!("{name} is no zip file");
        };
        let model = Model::from_bytes(bytes.to_vec()).unwrap();
        for set in &case.sets {
            let session = model
                .compile(&Device::Host, &CompileOptions::default())
                .unwrap();
            for call in &set.calls {
                let got = session.call(&call.inputs).unwrap();
                for difference in compare(&got, &call.output, set.tolerance) {
                    assert!(difference.passed(), "{name}, {}: {difference}", set.label);
                }
            }
        }
        count += 1;
    }
    assert!(30 < count, "{count} programs");
}

#[test]
fn sizes_within_the_range_of_the_export_share_a_graph() {
    let session = model("batch-2.13.0")
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap();
    for (batch, length) in [(3, 5), (1, 2), (64, 64), (2, 7)] {
        session.call(&[zeros(&[batch, length, 6])]).unwrap();
    }
    assert_eq!(session.compiled_graphs().len(), 1);
}

/// Inputs that a program was not exported for, the beginning of the error, and a part of its help.
#[test]
fn other_inputs_are_refused_with_the_reason() {
    let structures = |scale: f64| {
        let dict = Item::Dict(vec![
            ("x".into(), zeros(&[3, 2])),
            (
                "y".into(),
                Item::Tensor(Tensor::from_vec([3], vec![0i64; 3]).unwrap()),
            ),
        ]);
        let pair = Item::Tuple(vec![zeros(&[3, 2]), Item::List(vec![zeros(&[2])])]);
        let mask = Tensor::from_bytes(onionskin::dtype::DType::Bool, vec![1, 2], &[1, 0]).unwrap();
        let scale = Item::Number(onionskin::scalar::Scalar::Float(scale));
        vec![dict, pair, scale, Item::Tensor(mask), zeros(&[2])]
    };
    let cases = [
        (
            "tied-2.13.0",
            vec![Item::Tensor(
                Tensor::from_vec([2, 5], vec![1i64; 10]).unwrap(),
            )],
            "tokens has size 2 along axis 0, but the program was exported for exactly 1",
            "dynamic_shapes={\"tokens\": {0: torch.export.Dim.AUTO}}",
        ),
        (
            "batch-2.13.0",
            vec![zeros(&[65, 5, 6])],
            "x has size 65 along axis 0, but the program was exported for at most 64",
            "dynamic_shapes",
        ),
        (
            "batch-2.13.0",
            vec![zeros(&[3, 5, 7])],
            "x has size 7 along axis 2, but the program was exported for exactly 6",
            "dynamic_shapes",
        ),
        (
            "related-2.13.0",
            vec![zeros(&[3, 4]), zeros(&[5, 4])],
            "y has size 5 along axis 0, but the program was exported for exactly 6",
            "dynamic_shapes",
        ),
        (
            "structures-2.13.0",
            structures(3.0),
            "the program was exported for scale = 2.0 only",
            "torch.export fixes numbers",
        ),
    ];
    for (name, arguments, message, help) in cases {
        let error = run(&model(name), &arguments).unwrap_err();
        assert_eq!(error.message(), message, "{name}");
        assert_eq!(error.kind(), ErrorKind::Input, "{name}");
        let advice = error.advice().unwrap();
        assert!(advice.contains(help), "{advice}");
    }
    run(&model("structures-2.13.0"), &structures(2.0)).unwrap();
}

#[test]
fn inputs_have_the_names_of_the_parameters() {
    let signature = |name: &str| model(name).signature("forward").unwrap().to_string();
    assert_eq!(signature("batch-2.13.0"), "forward(x)");
    assert_eq!(
        signature("structures-2.13.0"),
        "forward(batch.x, batch.y, pair.0, pair.1.0, scale?, mask, bias)"
    );
}

#[test]
fn assertions_of_values_are_checked() {
    let arguments = |count: i64| {
        let count = Tensor::from_vec([], vec![count]).unwrap();
        [zeros(&[2, 3]), Item::Tensor(count)]
    };
    run(&model("values-2.13.0"), &arguments(6)).unwrap();
    let error = run(&model("values-2.13.0"), &arguments(7)).unwrap_err();
    assert!(error.to_string().contains("u0 <= 6"), "{error}");
}

#[test]
fn everything_unsupported_is_listed_with_its_line() {
    let package = changed("batch-2.13.0", |text| {
        text.replace("torch.ops.aten.gelu.default", "torch.ops.mine.gelu.default")
            .replace(
                "torch.ops.aten.softmax.int",
                "torch.ops.mine.softmax.default",
            )
    });
    let error = Model::from_bytes(package).unwrap().import().unwrap_err();
    let text = error.to_string();
    for part in ["mine::gelu", "mine::softmax", "make_exports.py:"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn operators_of_other_namespaces_are_the_users_own() {
    let types = |operands: &[TensorType]| Ok(operands.to_vec());
    let host = |operands: &[Tensor]| {
        let doubled = operands[0]
            .to_f64()
            .iter()
            .map(|x| 2.0 * *x as f32)
            .collect();
        Ok(vec![Tensor::from_vec(
            operands[0].shape().to_vec(),
            doubled,
        )?])
    };
    CustomOperator::new("mine::double", types, host).register();
    let package = changed("map-2.13.0", |text| {
        text.replace(
            "torch.ops.aten.relu.default",
            "torch.ops.mine.double.default",
        )
    });
    let ones = |shape: &[usize]| {
        let count = shape.iter().product();
        Item::Tensor(Tensor::from_vec(shape.to_vec(), vec![1.0f32; count]).unwrap())
    };
    let arguments = [ones(&[4, 3]), ones(&[3])];
    let got = run(&Model::from_bytes(package).unwrap(), &arguments).unwrap();
    let Item::Tensor(got) = got else {
        panic!("{got:?}");
    };
    // 2 (x y) + sum(x)
    assert_eq!(got.to_f64(), vec![5.0; 12]);
}

#[test]
fn packages_without_a_graph_are_refused_by_name() {
    let error = |names: &[&str]| -> Error {
        let records = names.iter().map(|name| (name.to_string(), b"{}".to_vec()));
        let records: Vec<(String, Vec<u8>)> = records.collect();
        Model::from_bytes(package(&records)).unwrap_err()
    };
    let compiled = error(&["m/archive_format", "m/data/aotinductor/model/a.so"]);
    assert!(compiled.message().contains("AOTInductor"), "{compiled}");
    assert!(compiled.advice().unwrap().contains("torch.export.save("));
    let lowered = error(&["m/archive_format", "m/data/executorch/model.pte"]);
    assert!(lowered.message().contains("ExecuTorch"), "{lowered}");
    let other = error(&["m/archive_format"]);
    assert!(other.message().contains("no models/*.json"), "{other}");
}

#[test]
fn other_versions_of_the_schema_are_refused() {
    let package = changed("batch-2.13.0", |text| {
        text.replace(
            "\"schema_version\": {\"major\": 8",
            "\"schema_version\": {\"major\": 9",
        )
    });
    let error = Model::from_bytes(package).unwrap_err();
    assert!(error.message().contains("version 9."), "{error}");
    let newer = changed("batch-2.13.0", |text| {
        text.replace("\"minor\": 20", "\"minor\": 99, \"new\": [1]")
    });
    Model::from_bytes(newer).unwrap().import().unwrap();
}

/// No change of a document makes the reader or the importer panic.
#[test]
fn damaged_documents_are_errors() {
    let names = [
        "batch-2.13.0",
        "cond-2.13.0",
        "while-2.13.0",
        "counter.core-2.13.0",
        "structures-2.13.0",
    ];
    let mut random = Random(7);
    let mut refused = 0;
    for round in 0..300 {
        let name = names[round % names.len()];
        let text = records(&bytes(name))
            .into_iter()
            .find(|(record, _)| record.ends_with("models/model.json"))
            .map(|(_, bytes)| String::from_utf8(bytes).unwrap())
            .unwrap();
        let words: Vec<&str> = text.split_inclusive([' ', ',', ':']).collect();
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        for _ in 0..1 + random.below(3) {
            let (to, from) = (random.below(words.len()), random.below(words.len()));
            match random.below(3) {
                0 => words[to] = words[from].clone(),
                1 => words[to] = String::new(),
                _ => words.swap(to, from),
            }
        }
        let damaged = changed(name, |_| words.concat());
        let imported = Model::from_bytes(damaged).and_then(|model| model.import());
        refused += usize::from(imported.is_err());
    }
    assert!(100 < refused, "{refused} of 300 were refused");
}

#[test]
fn weights_are_read_when_they_are_used() {
    let path = std::env::temp_dir().join(format!("onionskin-export-{}.pt2", std::process::id()));
    std::fs::write(&path, bytes("tied-2.13.0")).unwrap();
    let program = ExportedProgram::open(&path);
    std::fs::remove_file(&path).unwrap();
    let tensors = onionskin::trace::program::SourceProgram::module_tensors(&program.unwrap());
    let names: Vec<&str> = tensors
        .modules
        .iter()
        .map(|module| module.name.as_str())
        .collect();
    assert_eq!(names, ["embed", "head"]);
    let counts = tensors.modules.iter().map(|module| module.parameters.len());
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [1, 0],
        "the tied weight belongs to the first module"
    );
}

/// Marks of calls of `torch.vmap` may be missing or nest at will in a damaged file.
#[test]
fn marks_of_vmap_are_matched() {
    let begin = r#"{"target": "torch._functorch.predispatch._vmap_increment_nesting", "inputs": [{"name": "", "arg": {"as_int": 2}}], "outputs": []},"#;
    let open = |count: usize| {
        let marks = begin.repeat(count);
        let package = changed("associative_scan-2.13.0", |text| {
            text.replacen("\"nodes\": [", &format!("\"nodes\": [{marks}"), 1)
        });
        Model::from_bytes(package).unwrap_err().to_string()
    };
    assert!(
        open(1).contains("a call of torch.vmap has no end"),
        "{}",
        open(1)
    );
    assert!(
        open(100_000).contains("nested more than 64 deep"),
        "{}",
        open(100_000)
    );
}

/// The program has guards on its sizes: `int(0.5 * n) == 2`, `n % 2 == 0`, and `m % 3 == 0` of a tensor in a named tuple.
#[test]
fn inputs_that_break_a_guard_are_refused() {
    let model = model("guarded-2.13.0");
    let run = |n: usize, m: usize| {
        let count = Tensor::from_vec([], vec![1i64]).unwrap();
        let pair = Item::Tuple(vec![zeros(&[m]), count.into()]);
        run(&model, &[zeros(&[n, 3]), pair])
    };
    run(4, 6).unwrap();
    run(4, 9).unwrap();
    for (n, m, guard) in [
        (5, 6, "% 2) == 0"),
        (6, 6, "math.trunc(0.5*"),
        (4, 7, "% 3) == 0"),
    ] {
        let error = run(n, m).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        assert!(error.to_string().contains(guard), "{error}");
    }
}

/// Guards that are unknown or too long are errors; long ones do not overflow the stack.
#[test]
fn other_guards_are_errors() {
    let open = |guard: &str| {
        let package = changed("guarded-2.13.0", |text| text.replace("% 2) == 0", guard));
        Model::from_bytes(package).and_then(|model| model.import())
    };
    assert!(open("% 2) is 0").unwrap_err().to_string().contains("is 0"));
    for terms in [100, 300, 100_000] {
        let guard = format!("% 2) + {}1 >= 1", "0 + ".repeat(terms));
        let result = open(&guard);
        assert_eq!(result.is_err(), terms > 100, "{terms}: {:?}", result.err());
    }
}
