//! Measures the figures of the README: `cargo bench --bench figures -- [CASE_FOLDER] [MODEL...]`.
//!
//! For each recorded model, in separate processes: import time, time from process start to the first output with an empty
//! and with a warm shader cache, median latency in the steady state on the device and on the host, peak memory. With
//! `PYTHON` set to an interpreter that has PyTorch, its eager mode on two threads is measured as well.

#![expect(clippy::print_stdout, reason = "the benchmark prints a table")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onionskin::cases::{self, CaseArchive, CaseRef};
use onionskin::{CompileOptions, Device, Model, gpu};

/// Models that are measured if none is named.
const MODELS: [&str; 5] = [
    "squeezenet1_1",
    "mobilenet_v2_w05",
    "resnet18_half",
    "bert_small",
    "gpt2_small",
];
/// Duration of the measurement of the steady state.
const STEADY_DURATION: Duration = Duration::from_secs(3);

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    gpu::widen_vectors();
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let [first, case, device] = arguments.as_slice()
        && first == "--steady"
    {
        return steady(Path::new(case), device);
    }
    let folder = arguments
        .first()
        .map_or("../shared/corpus/models", String::as_str);
    let names: Vec<&str> = match arguments.get(1..) {
        Some(names) if !names.is_empty() => names.iter().map(String::as_str).collect(),
        _ => MODELS.to_vec(),
    };
    println!("device: {}", Device::auto()?);
    println!(
        "| model | import | cold, no cache | cold, cache | steady | host | PyTorch | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for name in names {
        println!("{}", row(&Path::new(folder).join(name), name)?);
    }
    Ok(())
}

fn row(case: &Path, name: &str) -> Result<String, Failure> {
    let cache = std::env::temp_dir().join(format!("onionskin-figures-{}", std::process::id()));
    let (cold, warm) = (first_output(case, &cache)?, first_output(case, &cache)?);
    std::fs::remove_dir_all(&cache).ok();
    let device = child(case, "auto")?;
    let host = child(case, "cpu")?;
    let ms = |value: f64| format!("{value:.1} ms");
    let field = |line: &[f64], index: usize| line.get(index).copied().unwrap_or(f64::NAN);
    Ok(format!(
        "| {name} | {} | {} | {} | {} | {} | {} | {:.0} MB |",
        ms(field(&device, 0)),
        ms(cold),
        ms(warm),
        ms(field(&device, 1)),
        ms(field(&host, 1)),
        pytorch(case).map_or("–".to_string(), ms),
        field(&device, 2),
    ))
}

/// Returns the milliseconds of a whole process that replays the case's first call.
fn first_output(case: &Path, cache: &Path) -> Result<f64, Failure> {
    let start = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_onionskin"))
        .args(["run", "--json", "--device", "auto"])
        .arg(case.join("model.pt"))
        .args(shapes(case)?)
        .env("MESA_SHADER_CACHE_DIR", cache)
        .stdout(std::process::Stdio::null())
        .status()?;
    if status.success() {
        Ok(start.elapsed().as_secs_f64() * 1e3)
    } else {
        Err("the first run failed".into())
    }
}

/// Returns the first call's inputs as command-line arguments for zeros.
fn shapes(case: &Path) -> Result<Vec<String>, Failure> {
    let (_, inputs) = load(case)?;
    let types = inputs
        .iter()
        .flat_map(onionskin::item::Item::tensors)
        .map(|tensor| tensor.tensor_type().to_string());
    Ok(types.flat_map(|ty| ["--shape".to_string(), ty]).collect())
}

fn load(case: &Path) -> Result<(PathBuf, Vec<onionskin::item::Item>), Failure> {
    let found: Vec<CaseRef> = cases::find(case)?;
    let case = found.first().ok_or("there is no case")?.load()?;
    let CaseArchive::Path(path) = case.archive else {
        return Err("the case is not a folder".into());
    };
    let call = case
        .sets
        .into_iter()
        .next()
        .and_then(|set| set.calls.into_iter().next());
    Ok((path, call.ok_or("the case has no call")?.inputs))
}

/// Runs this program on one case in a separate process.
fn child(case: &Path, device: &str) -> Result<Vec<f64>, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--steady")
        .arg(case)
        .arg(device)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// Prints import time, median latency in milliseconds and peak memory in megabytes.
fn steady(case: &Path, device: &str) -> Result<(), Failure> {
    let (archive, inputs) = load(case)?;
    let start = Instant::now();
    Model::open(&archive)?.import_for(&inputs)?;
    let import = start.elapsed().as_secs_f64() * 1e3;
    let session =
        Model::open(&archive)?.compile(&Device::open(device)?, &CompileOptions::default())?;
    session.call(&inputs)?;
    let (watch, mut times) = (Instant::now(), Vec::new());
    while times.len() < 5 || watch.elapsed() < STEADY_DURATION {
        let start = Instant::now();
        session.call(&inputs)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!("{import} {} {}", times[times.len() / 2], peak_memory());
    Ok(())
}

/// Returns the peak resident size of this process in megabytes, if the system reports it.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1e3)
}

/// Returns PyTorch's median latency for the case's first call.
fn pytorch(case: &Path) -> Option<f64> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/bench_pytorch.py");
    let output = Command::new(std::env::var_os("PYTHON")?)
        .arg(script)
        .arg(case)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let number = text.split("\"median_ms\":").nth(1)?.trim_start();
    number.split([',', '}', '\n']).next()?.trim().parse().ok()
}
