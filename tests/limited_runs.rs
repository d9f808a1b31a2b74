//! Limits of time and memory of runs, and their cancellation, on the host and on a device.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod samples;

use std::sync::Arc;
use std::time::{Duration, Instant};

use onionskin::dtype::DType;
use onionskin::error::ErrorKind;
use onionskin::gpu::FeatureLevel;
use onionskin::ir::GraphModule;
use onionskin::item::Item;
use onionskin::tensor::TensorStorage;
use onionskin::{CancelToken, CompileOptions, Device, Error, Model, RunOptions, Session, Tensor};

/// Iterates as often as its input says, and adds the result to a state.
const LOOP: &str = "
state total = #0 of $start
weight start: f32[2]
graph forward(n: i64[], total: f32[2]) {
  argument n = #0
  reads total = #1
  result #0
  writes total = #1
  start: f32[2] = full 0.0, shape=[2], dtype=f32
  y = loop n, true, start, carried=1 @ model.py:7 {
    graph body(i: i64[], x: f32[2]) {
      again: bool[] = full true, shape=[], dtype=bool
      more = add x, 1.0
      return again, more
    }
  }
  next = add total, y
  return y, next
}";

/// Iterates as often as its input says, without a state; the condition is never read back.
const STATELESS: &str = "
graph forward(n: i64[], x: f32[2]) {
  argument n = #0
  argument x = #1
  result #0
  y = loop n, true, x, carried=1 @ model.py:7 {
    graph body(i: i64[], x: f32[2]) {
      again: bool[] = full true, shape=[], dtype=bool
      more = add x, 1.0
      return again, more
    }
  }
  return y
}";

/// Sessions of a text on the host, and on a device if there is one.
fn sessions(text: &str) -> Vec<Session> {
    let gpu = samples::device(FeatureLevel::default()).map(Device::Gpu);
    let devices = [Some(Device::Host), gpu].into_iter().flatten();
    let compile = |device: Device| {
        let mut module: GraphModule = text.parse().unwrap();
        let start = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
        module.weights.insert("start".into(), start);
        let model = Model::from_module(module);
        model.compile(&device, &CompileOptions::default()).unwrap()
    };
    devices.map(compile).collect()
}

fn rounds(count: i64) -> Tensor {
    Tensor::from_vec([], vec![count]).unwrap()
}

fn zeros() -> Tensor {
    Tensor::from_vec([2], vec![0f32; 2]).unwrap()
}

fn timeout(millis: u64) -> RunOptions {
    RunOptions {
        timeout: Some(Duration::from_millis(millis)),
        ..RunOptions::default()
    }
}

/// The call ended by a limit, and soon.
fn assert_interrupted(error: &Error, start: Instant) {
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{error}");
}

#[test]
fn a_loop_ends_at_the_time_limit_and_leaves_the_states() {
    for session in sessions(LOOP) {
        session.run(&[rounds(3)]).unwrap();
        let total = session.state("total").unwrap();
        let start = Instant::now();
        let error = session
            .run_with(&[rounds(i64::MAX)], &timeout(200))
            .unwrap_err();
        assert_interrupted(&error, start);
        assert_eq!(error.message(), "did not end within 200ms");
        assert!(error.to_string().contains("model.py:7"), "{error}");
        assert!(error.advice().unwrap().contains("RunOptions::timeout"));
        assert_eq!(session.state("total").unwrap(), total);
        let outputs = session.run_with(&[rounds(3)], &timeout(60_000)).unwrap();
        assert_eq!(outputs[0].to_f32(), [3.0, 3.0]);
        let total = session.state("total").unwrap();
        assert_eq!(total.tensors()[0].to_f32(), [7.0, 8.0]);
    }
}

#[test]
fn a_loop_that_reads_nothing_back_ends_at_the_time_limit() {
    for session in sessions(STATELESS) {
        let start = Instant::now();
        let endless = session.run_with(&[rounds(i64::MAX), zeros()], &timeout(200));
        assert_interrupted(&endless.unwrap_err(), start);
        let outputs = session.run(&[rounds(5), zeros()]).unwrap();
        assert_eq!(outputs[0].to_f32(), [5.0, 5.0]);
    }
}

#[test]
fn a_token_ends_a_run_from_another_thread() {
    for session in sessions(STATELESS) {
        let token = CancelToken::new();
        let options = RunOptions {
            cancel: Some(token.clone()),
            ..RunOptions::default()
        };
        let arguments = [rounds(i64::MAX), zeros()].map(Item::Tensor);
        let run = std::thread::spawn({
            let (session, options) = (session.clone(), options.clone());
            move || session.call_with(&arguments, &options)
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!run.is_finished());
        let start = Instant::now();
        token.cancel();
        let error = run.join().unwrap().unwrap_err();
        assert_interrupted(&error, start);
        assert_eq!(error.message(), "the call was cancelled");
        // The token stays cancelled.
        let error = session.run_with(&[rounds(1), zeros()], &options);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Interrupted);
        assert!(session.run(&[rounds(1), zeros()]).is_ok());
    }
}

#[test]
fn an_asynchronous_run_has_limits() {
    for session in sessions(STATELESS) {
        let run = |count: i64, millis: u64| {
            let (inputs, options) = ([rounds(count), zeros()], timeout(millis));
            pollster::block_on(session.run_async_with(&inputs, &options))
        };
        let start = Instant::now();
        assert_interrupted(&run(i64::MAX, 200).unwrap_err(), start);
        assert_eq!(run(2, 60_000).unwrap()[0].to_f32(), [2.0, 2.0]);
    }
}

#[test]
fn a_call_that_waits_for_another_ends_at_its_time_limit() {
    for session in sessions(LOOP) {
        let other = session.clone();
        let token = CancelToken::new();
        let options = RunOptions {
            cancel: Some(token.clone()),
            ..RunOptions::default()
        };
        let busy = std::thread::spawn(move || other.run_with(&[rounds(i64::MAX)], &options));
        // Runs succeed, or end while they compile, until the endless one has begun.
        let waits = |_: &i32| match session.run_with(&[rounds(1)], &timeout(100)) {
            Err(error) => error.to_string().contains("another call"),
            Ok(_) => false,
        };
        assert!((0..1000).find(waits).is_some());
        token.cancel();
        assert!(busy.join().unwrap().is_err());
    }
}

/// A model that compiles under a limit that is over compiles again later.
#[test]
fn imports_and_compilations_have_limits() {
    for session in sessions(STATELESS) {
        let module: GraphModule = STATELESS.parse().unwrap();
        let model = Model::from_module(module);
        let compile = || model.compile(&session.device(), &CompileOptions::default());
        let error = timeout(0).scope(compile).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
        assert!(error.to_string().contains("importing"), "{error}");
        assert!(timeout(600_000).scope(compile).is_ok());
    }
    let archive = "tests/fixtures/archives/two_layers.pt";
    let model = Model::open(archive).unwrap();
    let error = timeout(0).scope(|| model.import()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
}

#[cfg(feature = "cli")]
#[test]
fn a_command_ends_at_its_time_limit_without_a_partial_file() {
    let folder = std::env::temp_dir().join(format!("onionskin-limited-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let module: GraphModule = STATELESS.parse().unwrap();
    let model = folder.join("endless.json");
    module.save(&model).unwrap();
    let inputs = [("n".into(), rounds(i64::MAX)), ("x".into(), zeros())];
    onionskin::tensor_file::write(&folder.join("inputs.npz"), &inputs).unwrap();
    let start = Instant::now();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onionskin"))
        .current_dir(&folder)
        .args(["run", "endless.json", "-i", "inputs.npz", "-o", "out.npz"])
        .args(["--timeout", "0.3", "--device", "cpu"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("E0503") && text.contains("300ms"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(!folder.join("out.npz").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Values of which each takes 256 kB times the batch.
const WIDE: &str = "
graph forward(x: f32[B]) {
  argument x = #0
  result #0
  column: f32[B, 1] = reshape x, shape=[B, 1]
  wide: f32[B, 65536] = expand column, shape=[B, 65536] @ wide.py:3
  y = exp wide @ wide.py:4
  z = add wide, y @ wide.py:5
  sum = reduce z, axes=[1], function=sum
  return sum
}";

#[test]
fn a_run_that_would_exceed_its_memory_does_not_start() {
    let module: GraphModule = WIDE.parse().unwrap();
    let model = Model::from_module(module);
    let options = CompileOptions::default();
    let session = model.compile(&Device::Host, &options).unwrap();
    let limit = RunOptions {
        host_memory: Some(4 << 20),
        ..RunOptions::default()
    };
    let ones = |batch: usize| Tensor::full(DType::F32, [batch], 1.0).unwrap();
    let error = session.run_with(&[ones(4)], &limit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
    let text = error.to_string();
    assert!(
        text.contains("the limit is 4.2 MB") && text.contains("wide.py:5"),
        "{text}"
    );
    assert_eq!(
        session.run_with(&[ones(1)], &limit).unwrap()[0].shape(),
        [1]
    );
    assert_eq!(session.run(&[ones(4)]).unwrap()[0].shape(), [4]);
    // More than any machine has, and more than 64 bits count.
    for batch in [1 << 28, 1 << 50] {
        let huge = Tensor::from_storage(DType::F32, vec![batch], Arc::new(Unread(batch * 4)));
        let error = session.run(&[huge.unwrap()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    }
}

/// Bytes that nobody reads.
struct Unread(usize);

impl TensorStorage for Unread {
    fn bytes(&self) -> &[u8] {
        panic!("the bytes are read")
    }

    fn len(&self) -> usize {
        self.0
    }
}

#[test]
fn a_command_does_not_start_a_run_that_would_exceed_its_memory() {
    let folder = std::env::temp_dir().join(format!("onionskin-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let module: GraphModule = WIDE.parse().unwrap();
    module.save(folder.join("wide.json")).unwrap();
    let run = |limit: &str| {
        std::process::Command::new(env!("CARGO_BIN_EXE_onionskin"))
            .current_dir(&folder)
            .args(["run", "wide.json", "--shape", "f32[4]", "--device", "cpu"])
            .args(["--host-memory", limit])
            .output()
            .unwrap()
    };
    let refused = run("4M");
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(
        text.contains("E0504") && text.contains("--host-memory"),
        "{text}"
    );
    assert_eq!(run("1G").status.code(), Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}
