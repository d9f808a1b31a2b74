//! Runs console blocks in a scratch folder with the files of the Python blocks, the blocks with a file name (`json
//! softmax.json`), and `examples` of the repository.
//!
//! Words behind `console` name requirements of a block, or its variable output:
//!
//! - `gpu`: an adapter. Without one the block is skipped, unless `REQUIRE_GPU=1`.
//! - `torch`: the Python blocks of the page. Without `ONIONSKIN_PYTHON` the block is skipped.
//! - `volatile`: most of its output varies.
//!
//! `# exit code N` at the end of a command is its exit code, if that is not 0.

use std::path::{Path, PathBuf};
use std::process::Command;

use onionskin::gpu::adapters;

use crate::command::Folder;
use crate::output_match::{Counts, keep_gap, output_matches, without_times};
use crate::page::{Block, Page};
use crate::python;

/// A command and its output.
struct CommandStep<'a> {
    command: &'a str,
    output: String,
}

/// Returns the differences between a page and the output of its blocks; none if `BLESS` is set, which writes the output.
pub fn differences(page: &Page) -> Vec<String> {
    let blocks = page.blocks();
    if !blocks.iter().any(|block| block.language() == "console") {
        return Vec::new();
    }
    let folder = Folder::new(&page.path.replace(['/', '.'], "-"));
    let has_python = prepare(&folder, &blocks);
    let mut wrong = Vec::new();
    let mut text = page.text.clone();
    for block in blocks.iter().filter(|block| block.language() == "console") {
        if let Some(lack) = missing_requirement(block, has_python) {
            println!("{}:{} was not run: {lack}", page.path, block.line);
            continue;
        }
        let (found, complaints) = run(block, &folder);
        let place = |complaint| format!("{}:{}: {complaint}", page.path, block.line);
        wrong.extend(complaints.into_iter().map(place));
        text = text.replacen(&block.text, &found, 1);
    }
    if std::env::var_os("BLESS").is_some() {
        if text != page.text {
            page.write(&text);
        }
        wrong.retain(|complaint| complaint.contains("exit code"));
    }
    wrong
}

/// Creates the files that the blocks need in a folder. Returns whether Python wrote those of the page.
fn prepare(folder: &Folder, blocks: &[Block]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in python::fixtures() {
        std::fs::copy(
            &file,
            folder.path(file.file_name().unwrap().to_str().unwrap()),
        )
        .unwrap();
    }
    for (name, text) in blocks
        .iter()
        .filter_map(|block| Some((block.file()?, &block.text)))
    {
        std::fs::write(folder.path(name), text).unwrap();
    }
    let _ = std::fs::remove_file(folder.path("examples"));
    std::os::unix::fs::symlink(root.join("examples"), folder.path("examples")).unwrap();
    let is_needed = blocks.iter().any(|block| block.is("torch"));
    is_needed && python::run(blocks, &folder.path(""))
}

fn missing_requirement(block: &Block, has_python: bool) -> Option<&'static str> {
    let requires_gpu = std::env::var("REQUIRE_GPU").is_ok_and(|value| value == "1");
    if block.is("torch") && !has_python {
        return Some("ONIONSKIN_PYTHON names no Python with torch");
    }
    (block.is("gpu") && !requires_gpu && adapters().is_empty()).then_some("there is no adapter")
}

/// Runs a block. Returns it with new outputs where they differ, and the differences.
fn run(block: &Block, folder: &Folder) -> (String, Vec<String>) {
    let counts = if block.is("volatile") {
        Counts::Labels
    } else {
        Counts::All
    };
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for step in steps(block) {
        let (code, found) = shell(step.command, &folder.path(""));
        if code != expected_code(step.command) {
            wrong.push(format!("exit code {code} of `{}`\n{found}", step.command));
        }
        text += &format!("$ {}\n", step.command);
        if output_matches(&step.output, &found, counts) {
            text += &step.output;
        } else {
            wrong.push(format!("`{}` prints\n{found}", step.command));
            let new = keep_gap(&step.output, &found);
            text += &match counts {
                Counts::All => without_times(&new),
                Counts::Labels => new,
            };
        }
    }
    (text, wrong)
}

fn steps(block: &Block) -> Vec<CommandStep<'_>> {
    let mut steps: Vec<CommandStep> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(CommandStep {
                command,
                output: String::new(),
            }),
            (None, Some(step)) => step.output += &format!("{line}\n"),
            (None, None) => panic!("line {}: a console block begins with a command", block.line),
        }
    }
    steps
}

fn expected_code(command: &str) -> i32 {
    let code = command
        .split_once("# exit code ")
        .map(|(_, code)| code.trim());
    code.map_or(0, |code| code.parse().unwrap())
}

/// Runs a command line. Returns its exit code and its output on both streams.
fn shell(command: &str, folder: &Path) -> (i32, String) {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_onionskin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let folders = [program.parent().unwrap().to_path_buf()]
        .into_iter()
        .chain(folders);
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {command}")])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(folders).unwrap())
        // Lavapipe's vectors of the pages, which all processors have.
        .env("LP_NATIVE_VECTOR_WIDTH", "256")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text)
}
