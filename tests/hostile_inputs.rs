//! Small JSON graphs, files of tensors and pictures that unfold without bound, or promise what they do not hold: each ends in
//! an error that names the limit, on a thread with a stack of 2 MiB.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod command;

use std::fs::File;
use std::io::{Cursor, Write};
use std::path::Path;

use command::{Folder, onionskin};
use onionskin::budget::Limits;
use onionskin::ir::GraphModule;
use onionskin::tensor_file;
use zip::write::{SimpleFileOptions, ZipWriter};

/// Runs work on a thread with a small stack. Returns its error, with the help.
fn refusal<T: Send + 'static>(
    work: impl FnOnce() -> onionskin::Result<T> + Send + 'static,
) -> String {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let result = thread.spawn(work).unwrap().join().expect("no panic");
    let error = result.err().expect("an error");
    format!("{error} {}", error.advice().unwrap_or_default())
}

fn refused_json(text: String, expected: &str) {
    let error = refusal(move || GraphModule::from_json(text.as_bytes()));
    assert!(error.contains(expected), "{error}");
}

/// Returns a document of a graph with these inputs and nodes.
fn document(inputs: &str, nodes: &str) -> String {
    format!(
        r#"{{"format": "onionskin", "version": 2, "graphs": [{{"name": "forward", "inputs": [{inputs}], "nodes": [{nodes}], "outputs": []}}]}}"#
    )
}

fn input(index: usize, ty: &str) -> String {
    format!(r#"{{"name": "x{index}", "type": "{ty}"}}"#)
}

/// Returns a node whose operands are this JSON.
fn node(operands: &str) -> String {
    format!(r#"{{"results": [], "op": "aten.add", "operands": {operands}}}"#)
}

#[test]
fn json_reaches_the_limits_before_its_values_are_made() {
    let zeros = |count: usize| format!("[{}0]", "0,".repeat(count));
    refused_json(document("", &node(&zeros(2_000_000))), "--limit length=N");
    let lists = format!("[{}0]", format!("{},", zeros(900_000)).repeat(5));
    refused_json(document("", &node(&lists)), "--limit values=N");
    let objects = format!("[{}0]", r#"{"a":0},"#.repeat(600_000));
    let objects = format!("[{objects},{objects}]");
    refused_json(document("", &node(&objects)), "--limit bytes=N");
    let text = format!("[\"{}\"]", "a".repeat(2_000_000));
    refused_json(document("", &node(&text)), "--limit length=N");
}

#[test]
fn nested_json_is_refused() {
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    refused_json(document("", &node(&nested)), "recursion limit");
    let limits = Limits {
        depth: 20,
        ..Limits::default()
    };
    let nested = format!("{}{}", "[".repeat(30), "]".repeat(30));
    let text = document("", &node(&nested));
    let error = refusal(move || GraphModule::from_json_with(text.as_bytes(), &limits));
    assert!(error.contains("nested more than 20 deep"), "{error}");
}

#[test]
fn sizes_that_multiply_out_reach_the_limit_of_values() {
    // Ten symbols times ten symbols are 100 terms.
    let sum = |letter: char| -> String {
        let symbols = (0..10).map(|index| format!("{letter}{index}"));
        symbols.collect::<Vec<_>>().join("+")
    };
    let size = format!("({})*({})", sum('a'), sum('b'));
    let ty = format!("f32[{}]", vec![size; 100].join(","));
    let inputs: Vec<String> = (0..50).map(|index| input(index, &ty)).collect();
    let text = document(&inputs.join(","), "");
    let limits = Limits {
        values: 1 << 20,
        ..Limits::default()
    };
    let error = refusal(move || GraphModule::from_json_with(text.as_bytes(), &limits));
    assert!(error.contains("--limit values=N"), "{error}");
    let ty = format!("f32[{}1]", "1,".repeat(500_000));
    let inputs: Vec<String> = (0..10).map(|index| input(index, &ty)).collect();
    refused_json(document(&inputs.join(","), ""), "--limit values=N");
}

#[test]
fn a_long_json_file_is_not_read() {
    let folder = Folder::new("long-json");
    let path = folder.path("long.json");
    let mut file = File::create(&path).unwrap();
    file.write_all(document("", "").as_bytes()).unwrap();
    file.set_len(8 << 30).unwrap();
    let error = refusal(move || GraphModule::load(&path));
    assert!(error.contains("--limit bytes=N"), "{error}");
}

#[test]
fn limits_for_json_can_be_raised_and_lowered() {
    let text = document(&input(0, "f32[2]"), "");
    let limits = |values| Limits {
        values,
        ..Limits::default()
    };
    assert!(GraphModule::from_json_with(text.as_bytes(), &limits(22)).is_ok());
    let folder = Folder::new("json-limits");
    let path = folder.path("m.json");
    std::fs::write(&path, &text).unwrap();
    assert!(GraphModule::load_with(&path, &limits(22)).is_ok());
    for error in [
        refusal(move || GraphModule::load_with(&path, &limits(21))),
        refusal(move || GraphModule::from_json_with(text.as_bytes(), &limits(21))),
    ] {
        assert!(error.contains("more than 21 values"), "{error}");
    }
}

/// Returns a `.npz` file of this entry.
fn npz(entry: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("a.npy", options).unwrap();
    zip.write_all(entry).unwrap();
    zip.finish().unwrap().into_inner()
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

#[test]
fn inflated_arrays_reach_the_limit_of_bytes() {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4194304,), }\n";
    let bytes = npz(&npy(header, &vec![0; 4 << 20]));
    assert!(bytes.len() < 100_000);
    let limits = |bytes| Limits {
        bytes,
        ..Limits::default()
    };
    let read =
        |bytes: Vec<u8>, limits: Limits| tensor_file::npy::parse_archive_with(&bytes, &limits);
    assert!(read(bytes.clone(), limits(5 << 20)).is_ok());
    let error = refusal(move || read(bytes, limits(1 << 20)));
    assert!(error.contains("--limit bytes=N"), "{error}");
}

#[test]
fn headers_of_arrays_promise_nothing() {
    let shape = |shape: &str| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n");
        npy(&header, &[0; 16])
    };
    let fortran =
        "{'descr': '<f4', 'fortran_order': True, 'shape': (65536, 65536, 65536, 65536), }\n";
    let fortran = npy(fortran, &[0; 16]);
    let nested = npy(&format!("{}\n", "(".repeat(9_000)), b"");
    let long = b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec();
    for (bytes, expected) in [
        (shape("1000000000, 1000000000,"), "does not fit 16 bytes"),
        (shape("9223372036854775807, 4,"), "the shape is too large"),
        (shape("0, 99999999999999999999,"), "the shape is too large"),
        (shape(&"1,".repeat(5000)), "more than 10000"),
        (fortran, "the shape is too large"),
        (nested, "structured"),
        // The parser took minutes for fourteen brackets. Those in strings close none.
        (npy(&"{".repeat(14), b""), "structured"),
        (npy(&"[')',".repeat(20), b""), "structured"),
        (long, "more than 10000"),
    ] {
        let error = refusal(move || tensor_file::npy::parse(&bytes));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn headers_of_safetensors_reach_the_limits() {
    let folder = Folder::new("safetensors");
    let write = |name: &str, header: &str| {
        let length = (header.len() as u64).to_le_bytes();
        std::fs::write(folder.path(name), [&length, header.as_bytes()].concat()).unwrap();
        folder.path(name)
    };
    let tensor = |shape: &str| {
        format!(r#"{{"a": {{"dtype": "F32", "shape": [{shape}], "data_offsets": [0, 0]}}}}"#)
    };
    let long = write(
        "long.safetensors",
        &tensor(&format!("{}0", "1,".repeat(2_000_000))),
    );
    let nested = write("nested.safetensors", &tensor(&"[".repeat(100_000)));
    let huge = write("huge.safetensors", &tensor("18446744073709551615, 2"));
    for (path, expected) in [
        (long, "--limit length=N"),
        (nested, "recursion limit"),
        (huge, "overflow"),
    ] {
        let error = refusal(move || tensor_file::read(&path));
        assert!(error.contains(expected), "{error}");
    }
    let path = write("promise.safetensors", "{");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..8].copy_from_slice(&4_000u64.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let error = refusal(move || tensor_file::read(&path));
    assert!(error.contains("does not fit the length"), "{error}");
}

/// Runs the program and returns its error.
fn failing(arguments: &[&str]) -> String {
    let (code, _, error) = onionskin(arguments);
    assert!(code == 2 || code == 3, "{code}: {error}");
    error
}

#[test]
fn inputs_of_the_command_line_are_charged() {
    let folder = Folder::new("inputs");
    let model = folder.file("m.json");
    let huge = document(&input(0, "f32[100000, 100000]"), "");
    std::fs::write(&model, huge).unwrap();
    let error = failing(&["run", &model, "--random", "--device", "cpu"]);
    assert!(error.contains("--limit bytes=N"), "{error}");
    let shape = "--shape=f32[1000000000, 1000000000]";
    let error = failing(&["run", &model, shape, "--device", "cpu"]);
    assert!(error.contains("not enough memory"), "{error}");
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4194304,), }\n";
    let array = folder.file("a.npz");
    std::fs::write(Path::new(&array), npz(&npy(header, &vec![0; 4 << 20]))).unwrap();
    let limit = "--limit=bytes=1000000";
    let error = failing(&["run", &model, "-i", &array, "--device", "cpu", limit]);
    assert!(error.contains("unfolds to more than"), "{error}");
}
