//! Runs the Python tests of the parts of `examples/record.py` that need no PyTorch: `tests/recorder/*.py`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

use std::path::Path;
use std::process::Command;

#[test]
fn recorded_archives_have_no_paths_and_stay_readable() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("tests/recorder/paths.py");
    let output = Command::new("python3")
        .arg("-B")
        .arg(script)
        .current_dir(root)
        .output();
    let Ok(output) = output else {
        println!("skipped: no python3");
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
