//! Sessions under load: many threads and sessions, dropped futures, lost devices, and devices with small limits. Every call
//! returns the right numbers or an error.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod samples;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use onionskin::error::ErrorKind;
use onionskin::gpu::{FeatureLevel, Program, ProgramOptions, Progress};
use onionskin::interp;
use onionskin::ir::{GraphModule, Weights};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::plan;
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

/// Doubles rows, and counts the calls in a state.
const COUNTED: &str = "
state calls = #0 of $start
weight start: f32[1]
graph forward(x: f32[2, 3], calls: f32[1]) {
  argument x = #0
  reads calls = #1
  result #0
  writes calls = #1
  y = mul x, 2.0
  next = add calls, 1.0
  return y, next
}";

/// A product of rows with a weight.
const PRODUCT: &str = "
weight w: f32[3, 3]
graph forward(x: f32[B, 3]) {
  size B = 2
  guard 2 <= B
  z = dot x, $w
  y = add z, x
  return y
}";

fn compile(text: &str, device: &Device, options: &CompileOptions) -> Session {
    let mut module: GraphModule = text.parse().unwrap();
    let start = Tensor::from_vec([1], vec![0f32]).unwrap();
    let diagonal = (0..9).map(|at| if at % 4 == 0 { 2f32 } else { 0.0 });
    let weight = Tensor::from_vec([3, 3], diagonal.collect()).unwrap();
    module.weights.insert("start".into(), start);
    module.weights.insert("w".into(), weight);
    Model::from_module(module).compile(device, options).unwrap()
}

fn rows(count: usize, first: usize) -> Tensor {
    let numbers = (0..count * 3).map(|at| (first + at) as f32);
    Tensor::from_vec([count, 3], numbers.collect()).unwrap()
}

fn times(x: &Tensor, factor: f64) -> Vec<f64> {
    x.to_f64().into_iter().map(|x| factor * x).collect()
}

/// The host, and a device of its own if there is one.
fn devices() -> Vec<Device> {
    let gpu = samples::device(FeatureLevel::default()).map(Device::Gpu);
    [Some(Device::Host), gpu].into_iter().flatten().collect()
}

fn destroy(session: &Session) {
    if let Device::Gpu(gpu) = session.device() {
        gpu.wgpu().destroy();
    }
}

#[test]
fn sixteen_threads_share_a_session() {
    for device in devices() {
        let session = compile(PRODUCT, &device, &CompileOptions::default());
        thread::scope(|scope| {
            for number in 0..16 {
                let session = &session;
                scope.spawn(move || {
                    for round in 0..8 {
                        let x = rows(2 + (number + round) % 5, 100 * number + round);
                        let y = session.run(std::slice::from_ref(&x)).unwrap();
                        assert_eq!(y[0].to_f64(), times(&x, 3.0));
                    }
                });
            }
        });
        assert!(session.compiled_graphs().len() <= 2);
    }
}

#[test]
fn sixteen_threads_take_turns_with_a_state() {
    for device in devices() {
        let session = compile(COUNTED, &device, &CompileOptions::default());
        thread::scope(|scope| {
            for number in 0..16 {
                let session = &session;
                scope.spawn(move || {
                    for _ in 0..4 {
                        let x = rows(2, number);
                        let y = session.run(std::slice::from_ref(&x)).unwrap();
                        assert_eq!(y[0].to_f64(), times(&x, 2.0));
                    }
                });
            }
        });
        let calls = session.state("calls").unwrap();
        assert_eq!(calls.tensors()[0].to_f64(), [64.0]);
    }
}

#[test]
fn eight_sessions_share_a_device() {
    for device in devices() {
        thread::scope(|scope| {
            for number in 0..8 {
                let device = &device;
                scope.spawn(move || {
                    let session = compile(PRODUCT, device, &CompileOptions::default());
                    for count in [2, 3, 2, 7] {
                        let x = rows(count, 10 * number);
                        let y = session.run(std::slice::from_ref(&x)).unwrap();
                        assert_eq!(y[0].to_f64(), times(&x, 3.0));
                    }
                });
            }
        });
    }
}

#[test]
fn futures_may_be_dropped_in_flight() {
    for device in devices() {
        let session = compile(PRODUCT, &device, &CompileOptions::default());
        // Compiles for all sizes: a compilation goes on without its future, maybe until the process ends.
        for count in [2, 3] {
            session.run(&[rows(count, 0)]).unwrap();
        }
        for number in 0..40 {
            let x = [rows(2 + number % 2, number)];
            let mut context = Context::from_waker(Waker::noop());
            let mut future = pin!(session.run_async(&x));
            // Most futures are dropped while the device works.
            let _ = future.as_mut().poll(&mut context);
        }
        let x = rows(2, 5);
        let y = session.run_async(std::slice::from_ref(&x));
        assert_eq!(pollster::block_on(y).unwrap()[0].to_f64(), times(&x, 3.0));
    }
}

#[test]
fn a_lost_device_is_opened_again_once() {
    let Some(Device::Gpu(device)) = devices().pop() else {
        return;
    };
    let device = Device::Gpu(device);
    let replaced = Arc::new(AtomicUsize::new(0));
    let told = replaced.clone();
    let options = CompileOptions {
        progress: Some(Arc::new(move |progress| {
            let is_replaced = progress == Progress::DeviceReplaced;
            told.fetch_add(usize::from(is_replaced), Ordering::Relaxed);
        })),
        ..CompileOptions::default()
    };
    let counted = compile(COUNTED, &device, &options);
    let product = compile(PRODUCT, &device, &CompileOptions::default());
    let x = rows(2, 1);
    let run = |session: &Session| session.run(std::slice::from_ref(&x));
    assert_eq!(run(&counted).unwrap()[0].to_f64(), times(&x, 2.0));
    assert_eq!(run(&product).unwrap()[0].to_f64(), times(&x, 3.0));

    destroy(&counted);
    let error = run(&counted).unwrap_err();
    assert!(error.to_string().contains("states: calls"), "{error}");
    assert!(counted.state("calls").is_err(), "a lost state has no value");
    counted.reset();
    assert_eq!(run(&counted).unwrap()[0].to_f64(), times(&x, 2.0));
    assert_eq!(run(&product).unwrap()[0].to_f64(), times(&x, 3.0));
    assert_eq!(replaced.load(Ordering::Relaxed), 1);
    let calls = counted.state("calls").unwrap();
    assert_eq!(calls.tensors()[0].to_f64(), [1.0]);
    // Sessions on one device share its replacement.
    let [first, second] = [&counted, &product].map(|session| match session.device() {
        Device::Gpu(gpu) => gpu,
        Device::Host => panic!("the host is no replacement"),
    });
    assert!(first.replaces().is_some());
    assert_eq!(first.wgpu(), second.wgpu());

    destroy(&counted);
    let error = run(&counted).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    assert!(error.to_string().contains("lost"), "{error}");
    assert_eq!(run(&counted).unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn an_application_replaces_its_device_itself() {
    let Some(Device::Gpu(device)) = devices().pop() else {
        return;
    };
    let (raw, queue) = (device.wgpu().clone(), device.queue().clone());
    let shared = onionskin::gpu::GpuDevice::from_wgpu(raw, queue);
    let session = compile(PRODUCT, &shared.into(), &CompileOptions::default());
    session.run(&[rows(2, 0)]).unwrap();
    destroy(&session);
    let error = session.run(&[rows(2, 0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
}

#[test]
fn a_device_may_be_lost_while_threads_use_it() {
    let Some(Device::Gpu(device)) = devices().pop() else {
        return;
    };
    let session = compile(PRODUCT, &Device::Gpu(device), &CompileOptions::default());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..8 {
            let (session, is_over) = (&session, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let x = rows(2 + number % 3, number);
                    match session.run(std::slice::from_ref(&x)) {
                        Ok(y) => assert_eq!(y[0].to_f64(), times(&x, 3.0)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Device, "{error}"),
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(300));
        destroy(&session);
        thread::sleep(Duration::from_millis(700));
        is_over.store(true, Ordering::Relaxed);
    });
    let x = rows(2, 9);
    let y = session.run(std::slice::from_ref(&x)).unwrap();
    assert_eq!(y[0].to_f64(), times(&x, 3.0));
}

/// Capabilities of a device with one limit that is smaller.
fn small_limits(device: &Capabilities) -> Vec<(String, Capabilities)> {
    let mut all = Vec::new();
    let mut add = |name: String, change: &dyn Fn(&mut Capabilities)| {
        let mut capabilities = device.clone();
        change(&mut capabilities);
        all.push((name, capabilities));
    };
    for invocations in [1, 8, 32, 63, 64, 128] {
        let name = format!("{invocations} invocations");
        add(name, &|limits| limits.max_invocations = invocations);
    }
    for bytes in [0, 256, 4096] {
        let name = format!("{bytes} bytes of workgroup memory");
        add(name, &|limits| limits.max_workgroup_memory = bytes);
    }
    for buffers in [1, 2, 4] {
        let name = format!("{buffers} storage buffers");
        add(name, &|limits| limits.max_storage_buffers = buffers);
    }
    for bytes in [16, 1024, 65536] {
        let name = format!("bindings of {bytes} bytes");
        add(name, &|limits| limits.max_binding_size = bytes);
    }
    for groups in [1, 16] {
        let name = format!("{groups} workgroups along a dimension");
        add(name, &|limits| limits.max_workgroups = groups);
    }
    all
}

#[test]
fn small_limits_give_right_numbers_or_errors() {
    let Some(Device::Gpu(device)) = devices().pop() else {
        return;
    };
    let names = ["relu", "softmax", "layer norm", "mean", "linear"];
    let limits = small_limits(device.capabilities());
    assert_eq!(limits.len(), 17);
    for (name, graph) in samples::all() {
        if !names.contains(&name) {
            continue;
        }
        let sizes = [("B".into(), 2), ("S".into(), 5), ("H".into(), 13)].into();
        let types = graph.inputs.iter().map(|input| graph.ty(*input));
        let inputs: Vec<Tensor> = types
            .enumerate()
            .map(|(seed, ty)| samples::tensor(&ty.sizes(&sizes).unwrap(), seed))
            .collect();
        let weights = Weights::new();
        let expected = interp::run(&graph, &weights, &inputs).unwrap();
        for (limit, capabilities) in &limits {
            let planned = plan::plan(&graph, capabilities);
            let found = planned.and_then(|plan| {
                let too_large = |kernel: &onionskin::kernel::plan::Kernel| {
                    let invocations = kernel.workgroup_invocations();
                    invocations > Some(u64::from(capabilities.max_invocations))
                };
                assert!(!plan.kernels.iter().any(too_large), "{name}, {limit}");
                let options = ProgramOptions::default();
                Program::new(&device, plan, &weights, options)?.run(&inputs)
            });
            match found {
                Ok(found) => {
                    let pairs = found.iter().zip(&expected);
                    let worst = pairs.map(|(x, y)| samples::distance(x, y));
                    assert!(worst.fold(0.0, f64::max) < 1e-5, "{name}, {limit}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Plan, "{name}, {limit}: {error}");
                }
            }
        }
    }
}
