//! Sessions on a device: the graphs that they compile, and files of packed weights.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod samples;

use onionskin::gpu::{FeatureLevel, RunInput};
use onionskin::ir::{Builder, GraphModule};
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

/// A graph with an example of two rows that holds for two and more.
const DOUBLE: &str = "
graph forward(x: f32[B, 3]) {
  size B = 2
  guard 2 <= B
  y = mul x, 2.0
  return y
}";

fn session(options: &CompileOptions) -> Option<Session> {
    let module: GraphModule = DOUBLE.parse().unwrap();
    let device = Device::Gpu(samples::device(FeatureLevel::default())?);
    Some(
        Model::from_module(module)
            .compile(&device, options)
            .unwrap(),
    )
}

fn rows(count: usize) -> Tensor {
    let numbers: Vec<f32> = (0..count * 3).map(|i| i as f32).collect();
    Tensor::from_vec([count, 3], numbers).unwrap()
}

fn doubled(x: &Tensor) -> Vec<f64> {
    x.to_f64().into_iter().map(|x| 2.0 * x).collect()
}

fn graphs(session: &Session) -> Vec<String> {
    let variants = session.compiled_graphs().into_iter();
    let shape = |variant: &onionskin::model::CompiledGraph| {
        let graph = &variant.graph;
        graph.ty(graph.inputs[0]).to_string()
    };
    variants.map(|variant| shape(&variant)).collect()
}

#[test]
fn the_sizes_of_the_example_are_compiled_first_and_all_others_when_there_are_others() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    assert_eq!(graphs(&session), ["f32[2, 3]"]);
    for count in [2, 5, 2, 7] {
        let x = rows(count);
        let y = session.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(y[0].to_f64(), doubled(&x));
    }
    assert_eq!(graphs(&session), ["f32[2, 3]", "f32[B, 3]"]);
}

#[test]
fn a_launch_compiles_for_all_sizes_too() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    let x = rows(4);
    let run = session.launch(&[RunInput::Host(&x)]).unwrap();
    assert_eq!(run.read().unwrap()[0].to_f64(), doubled(&x));
    assert_eq!(graphs(&session).len(), 2);
}

#[test]
fn a_graph_for_all_sizes_can_be_asked_for() {
    let options = CompileOptions {
        static_shapes: false,
        ..CompileOptions::default()
    };
    let Some(session) = session(&options) else {
        return;
    };
    session.run(&[rows(2)]).unwrap();
    session.run(&[rows(3)]).unwrap();
    assert_eq!(graphs(&session), ["f32[B, 3]"]);
}

#[test]
fn a_call_that_breaks_guards_is_an_error_of_the_symbolic_graph() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    let error = session.run(&[rows(1)]).unwrap_err();
    assert!(error.to_string().contains("2 <= B"), "{error}");
    assert_eq!(graphs(&session).len(), 1);
}

/// A graph with an example of two rows, whose weight is transposed for the device.
fn product() -> GraphModule {
    let builder = Builder::new("forward");
    let x = builder.input("x", "f32[B, 24]".parse().unwrap());
    let weight = builder.weight("w", "f32[40, 24]".parse().unwrap());
    let id = x.dot(weight.transpose(0, 1)).id();
    let mut graph = builder.finish(&[id], Vec::new(), None).unwrap();
    graph.hints.insert("B".into(), 2);
    let numbers = (0..40 * 24).map(|i| (i % 17) as f32);
    let weight = Tensor::from_vec([40, 24], numbers.collect()).unwrap();
    GraphModule {
        graphs: vec![graph],
        weights: [("w".to_owned(), weight)].into(),
        ..GraphModule::default()
    }
}

#[test]
fn graphs_for_other_sizes_share_the_weights_on_the_device() {
    let Some(device) = samples::device(FeatureLevel::default()) else {
        return;
    };
    let model = Model::from_module(product());
    let session = model.compile(&Device::Gpu(device), &CompileOptions::default());
    let session = session.unwrap();
    let uploaded = |variant: &onionskin::model::CompiledGraph| {
        let program = variant.program.as_ref().unwrap();
        program.statistics().bytes_uploaded
    };
    let first = uploaded(&session.compiled_graphs()[0]);
    assert!(40 * 24 * 4 <= first, "{first} bytes");
    let x = Tensor::from_vec([5, 24], vec![1f32; 5 * 24]).unwrap();
    let found = session.run(std::slice::from_ref(&x)).unwrap();
    let module = product();
    let expected = onionskin::interp::run(&module.graphs[0], &module.weights, &[x]).unwrap();
    assert_eq!(found[0].to_f64(), expected[0].to_f64());
    let variants = session.compiled_graphs();
    assert_eq!(variants.len(), 2);
    assert_eq!(uploaded(&variants[1]), 5 * 24 * 4, "the input alone");
    // Transposed weights are not kept on the host; they can be computed again.
    let names: Vec<String> = variants[1].weights().unwrap().keys().cloned().collect();
    assert_eq!(names, ["w.folded"]);
}

/// A folder of a test that is removed when this is dropped.
struct TemporaryFolder(std::path::PathBuf);

impl TemporaryFolder {
    fn new(name: &str) -> TemporaryFolder {
        let name = format!("onionskin-sessions-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TemporaryFolder(path)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs [`product`] with a scaled weight and a file of packed weights, and checks the numbers.
fn run_packed(
    device: &onionskin::gpu::GpuDevice,
    factor: f32,
    path: &std::path::Path,
) -> onionskin::model::PackedWeightsReport {
    let mut module = product();
    let numbers = (0..40 * 24).map(|i| (i % 17) as f32 * factor).collect();
    let weight = Tensor::from_vec([40, 24], numbers).unwrap();
    module.weights.insert("w".into(), weight);
    let options = CompileOptions {
        packed: Some(path.to_path_buf()),
        ..CompileOptions::default()
    };
    let session =
        Model::from_module(module.clone()).compile(&Device::Gpu(device.clone()), &options);
    let session = session.unwrap();
    let x = Tensor::from_vec([2, 24], vec![1f32; 2 * 24]).unwrap();
    let found = session.run(std::slice::from_ref(&x)).unwrap();
    let expected = onionskin::interp::run(&module.graphs[0], &module.weights, &[x]).unwrap();
    assert_eq!(found[0].to_f64(), expected[0].to_f64());
    session.packed().unwrap()
}

#[test]
fn packed_weights_are_written_once_and_reused() {
    let Some(device) = samples::device(FeatureLevel::default()) else {
        return;
    };
    let folder = TemporaryFolder::new("taken");
    let path = folder.0.join("weights.safetensors");
    let counts = |factor| {
        let report = run_packed(&device, factor, &path);
        assert_eq!(report.ignored, Vec::<String>::new());
        [report.loaded, report.written]
    };
    assert_eq!(counts(1.0), [0, 1]);
    let size = std::fs::metadata(&path).unwrap().len();
    assert_eq!(counts(1.0), [1, 0]);
    // The weight has changed: the file is rewritten.
    assert_eq!(counts(2.0), [0, 1]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
    assert_eq!(counts(2.0), [1, 0]);
    // The file also holds another device's layout.
    if let Some(other) = samples::device(FeatureLevel::Portable) {
        let report = run_packed(&other, 2.0, &path);
        assert_eq!(report.loaded + report.written, 1, "{report}");
        assert_eq!(counts(2.0), [1, 0]);
        assert_eq!(run_packed(&other, 2.0, &path).loaded, 1);
    }
    assert_eq!(
        std::fs::read_dir(&folder.0).unwrap().count(),
        1,
        "no other file"
    );
}

#[test]
fn damaged_files_of_packed_weights_are_ignored() {
    let Some(device) = samples::device(FeatureLevel::default()) else {
        return;
    };
    let folder = TemporaryFolder::new("damaged");
    let path = folder.0.join("weights.safetensors");
    run_packed(&device, 1.0, &path);
    let sound = std::fs::read(&path).unwrap();
    let check = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let report = run_packed(&device, 1.0, &path);
        if report.loaded + report.written == 0 {
            // The damaged file might be another program's.
            assert!(!report.ignored.is_empty(), "{what}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "{what}");
            return false;
        }
        assert_eq!(report.loaded + report.written, 1, "{what}: {report}");
        // Only a weight with a damaged key is missed without a report.
        assert!(report.loaded == 1 || !report.ignored.is_empty() || what.starts_with("bit"));
        assert_eq!(run_packed(&device, 1.0, &path).loaded, 1, "{what}");
        true
    };
    for length in (0..sound.len()).step_by(sound.len() / 40 + 1) {
        let is_repaired = check(&sound[..length], &format!("cut at {length}"));
        assert!(is_repaired || (1..100).contains(&length), "cut at {length}");
    }
    for bit in (0..sound.len() * 8).step_by(sound.len() * 8 / 100 + 1) {
        let mut damaged = sound.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        check(&damaged, &format!("bit {bit}"));
    }
    assert!(!check(b"something else", "another file"));
}

#[test]
fn unwritable_packed_weights_are_reported() {
    let Some(device) = samples::device(FeatureLevel::default()) else {
        return;
    };
    let folder = TemporaryFolder::new("unwritten");
    let report = run_packed(&device, 1.0, &folder.0.join("missing").join("weights"));
    assert_eq!([report.loaded, report.written], [0, 0]);
    assert!(report.ignored[0].starts_with("not written: "), "{report}");
}

#[test]
fn a_session_reports_symbolic_sizes() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    let inputs = || session.inputs().unwrap()[0].to_string();
    assert_eq!(inputs(), "x: f32[B, 3]");
    session.run(&[rows(5)]).unwrap();
    assert_eq!(inputs(), "x: f32[B, 3]");
    assert_eq!(session.outputs().unwrap()[0].ty.to_string(), "f32[B, 3]");
}

#[test]
fn a_run_that_must_compile_first_does_so_on_another_thread() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    let x = rows(5);
    // No graph serves five rows yet: the first poll starts a thread and returns.
    let inputs = [x.clone()];
    let mut run = std::pin::pin!(session.run_async(&inputs));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_pending());
    let y = pollster::block_on(run).unwrap();
    assert_eq!(y[0].to_f64(), doubled(&x));
    // Clones share compiled graphs.
    assert_eq!(graphs(&session.clone()).len(), 2);
}

#[test]
fn run_async_on_the_host_does_not_block() {
    let module: GraphModule = DOUBLE.parse().unwrap();
    let model = Model::from_module(module);
    let session = model
        .compile(&Device::Host, &CompileOptions::default())
        .unwrap();
    let x = rows(4);
    let y = pollster::block_on(session.run_async(std::slice::from_ref(&x))).unwrap();
    assert_eq!(y[0].to_f64(), doubled(&x));
    let wrong = pollster::block_on(session.run_async(&[]));
    assert!(wrong.is_err());
}
