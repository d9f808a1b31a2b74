//! Error messages for wrong command lines: `tests/command_errors/*.console` hold commands with exit codes and output.
//!
//! `BLESS=1` rewrites the files.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod command;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use command::Folder;
use onionskin::dtype::DType;
use onionskin::tensor::Tensor;

/// Runs the commands of a file and compares their output.
fn check(name: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/command_errors/{name}.console"));
    let expected = fs::read_to_string(&path).unwrap();
    let folder = files(name);
    let commands = expected.lines().filter(|line| line.starts_with("$ "));
    let found: String = commands.map(|line| run(line, &folder)).collect();
    if std::env::var("BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, &found).unwrap();
        return;
    }
    assert!(!found.is_empty(), "{name} has no command");
    let lines = found.lines().zip(expected.lines());
    let first = lines.enumerate().find(|(_, (found, line))| found != line);
    assert!(found == expected, "{name}: {first:?}; BLESS=1 accepts it");
}

/// Runs a command. Returns its line with exit code, standard output and standard error.
fn run(line: &str, folder: &Folder) -> String {
    let words = words(line.strip_prefix("$ onionskin ").unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_onionskin"))
        .args(words)
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    let text = without_times(&String::from_utf8(bytes).unwrap());
    format!("{line}\nexit {code}\n{text}\n")
}

/// Replaces durations, which differ between runs.
fn without_times(text: &str) -> String {
    let words = text.split(' ').collect::<Vec<_>>();
    let is_time = |at: usize| words.get(at + 1).is_some_and(|next| next.starts_with("ms"));
    let shown = words
        .iter()
        .enumerate()
        .map(|(at, word)| match is_time(at) {
            true => "…",
            false => word,
        });
    shown.collect::<Vec<_>>().join(" ")
}

/// Splits a command line into words; quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// Creates the files that the commands read.
fn files(name: &str) -> Folder {
    let folder = Folder::new(&format!("mistakes-{name}"));
    for (from, to) in [
        ("examples/digits/digits.pt", "digits.pt"),
        ("examples/digits/images/12_is_6.png", "digit.png"),
        ("examples/digits/labels.txt", "labels.txt"),
        ("tests/fixtures/archives/tokens.pt", "tokens.pt"),
        ("tests/fixtures/archives/two_layers.pt", "two_layers.pt"),
        ("tests/fixtures/archives/draws.pt", "draws.pt"),
        ("tests/fixtures/archives/state_dict.pt", "state_dict.pt"),
    ] {
        folder.copy(from, to);
    }
    arrays(&folder);
    non_model_files(&folder);
    folder
}

fn arrays(folder: &Folder) {
    let full = |dtype: DType, shape: &[usize]| Tensor::full(dtype, shape.to_vec(), 1.0).unwrap();
    for (name, dtype, shape) in [
        ("x.npy", DType::F32, &[1, 1, 8, 8][..]),
        ("double.npy", DType::F64, &[1, 1, 8, 8]),
        ("hwc.npy", DType::U8, &[8, 8, 1]),
        ("nhwc.npy", DType::F32, &[2, 8, 8, 1]),
        ("chw.npy", DType::F32, &[1, 8, 8]),
        ("wide.npy", DType::F32, &[1, 1, 9, 9]),
        ("ids.npy", DType::I64, &[1, 5]),
        ("flat_ids.npy", DType::I64, &[5]),
        ("float_ids.npy", DType::F32, &[1, 5]),
        ("mask.npy", DType::I64, &[1, 5]),
    ] {
        folder.tensors(name, &[("x", full(dtype, shape))]);
    }
    let ids = || full(DType::I64, &[1, 5]);
    folder.tensors("half.npz", &[("input_ids", ids()), ("mask", ids())]);
    let half = [("input_ids", ids()), ("mask", ids())];
    folder.tensors("half.safetensors", &half);
    let float = full(DType::F32, &[1, 5]);
    let floats = [("attention_mask", ids()), ("input_ids", float)];
    folder.tensors("floats.npz", &floats);
    folder.tensors("floats.safetensors", &floats);
    folder.tensors("three.npz", &[("a", ids()), ("b", ids()), ("c", ids())]);
    folder.tensors("weights.safetensors", &[("w", full(DType::F32, &[2]))]);
    let special = vec![1.0, f32::NAN, f32::INFINITY, f32::NAN];
    let special = Tensor::from_vec([1, 4], special).unwrap();
    folder.tensors("nan.npy", &[("x", special)]);
}

/// Creates files that are not models.
fn non_model_files(folder: &Folder) {
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path(name), bytes).unwrap();
    let object = b"\x80\x02ctorchvision.models.resnet\nResNet\nq\x00)\x81q\x01}q\x02b.";
    let yolo = b"\x80\x02}q\x00X\x05\x00\x00\x00modelq\x01cultralytics.nn.tasks\nDetectionModel\nq\x02)\x81s.";
    let old = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";
    write("module.pt", &zip(&[("archive/data.pkl", object)]));
    write("yolo.pt", &zip(&[("yolo/data.pkl", yolo)]));
    write(
        "program.pt2",
        &zip(&[("p/archive_format", b"pt2"), ("p/models/model.json", b"{}")]),
    );
    write("files.zip", &zip(&[("a.txt", b"a")]));
    write("old.pth", old);
    write("model.onnx", b"\x08\x08\x12\x07pytorch\x1a\x052.0.0");
    write(
        "pointer.pt",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    );
    write(
        "page.pt",
        b"\n<!DOCTYPE html>\n<html><body>404</body></html>",
    );
    write("model.pt.gz", b"\x1f\x8b\x08\x00");
    write("empty.pt", b"");
    write("notes.txt", b"some notes\n");
    write("graph.json", b"{\"nodes\": []}");
    let archive = fs::read(folder.path("digits.pt")).unwrap();
    write("cut.pt", &archive[..archive.len() / 2]);
    fs::create_dir(folder.path("folder")).unwrap();
}

fn zip(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in records {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn file_kinds_are_recognised() {
    check("files");
}

#[test]
fn wrong_arguments_are_listed_before_anything_runs() {
    check("arguments");
}

#[test]
fn missing_inputs_are_errors_with_a_working_command() {
    check("missing");
}

#[test]
fn wrong_inputs_are_errors_with_a_fix() {
    check("wrong");
}

#[test]
fn pictures_random_inputs_and_scores_are_reported() {
    check("made_up");
}
