//! Allocations of a run in the steady state: none on the device, and few on the host that are not freed again. The global
//! allocator of this program counts bytes; a second test would disturb the count.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod counting_allocator;

use std::sync::atomic::Ordering::Relaxed;

use counting_allocator::{COUNT, LIVE, PEAK};
use onionskin::ir::{Builder, Graph, GraphModule, Weights};
use onionskin::{CompileOptions, Device, Model, Tensor};

const WIDTH: usize = 1024;
const LAYERS: usize = 8;
/// Total bytes of all weights.
const WEIGHTS: usize = LAYERS * WIDTH * WIDTH * 4;

/// Linear layers, each followed by a softmax. The device stores the weights in another layout.
fn layers() -> Graph {
    let builder = Builder::new("forward");
    let id = {
        let mut x = builder.input("x", "f32[64, 1024]".parse().unwrap());
        for layer in 0..LAYERS {
            let weight = builder.weight(&format!("w{layer}"), "f32[1024, 1024]".parse().unwrap());
            x = x.dot(weight.transpose(0, 1)).relu().softmax(-1);
        }
        x.id()
    };
    builder.finish(&[id], Vec::new(), None).unwrap()
}

fn model() -> Model {
    let values =
        |layer: usize| (0..WIDTH * WIDTH).map(move |i| ((i * (layer + 3)) % 17) as f32 / 17.0);
    let weight = |layer| Tensor::from_vec([WIDTH, WIDTH], values(layer).collect()).unwrap();
    let weights: Weights = (0..LAYERS)
        .map(|layer| (format!("w{layer}"), weight(layer)))
        .collect();
    Model::from_module(GraphModule {
        graphs: vec![layers()],
        weights,
        ..GraphModule::default()
    })
}

#[test]
fn the_steady_state_needs_nothing_new() {
    let required = std::env::var("REQUIRE_GPU").is_ok_and(|value| value == "1");
    let Ok(Device::Gpu(gpu)) = Device::auto() else {
        assert!(!required, "no adapter");
        println!("skipped: no adapter");
        return;
    };
    let session = model()
        .compile(&Device::Gpu(gpu.clone()), &CompileOptions::default())
        .unwrap();
    let x = Tensor::full(onionskin::dtype::DType::F32, [64, WIDTH], 0.5).unwrap();
    let run = || drop(session.run(std::slice::from_ref(&x)).unwrap());
    let created = || {
        session.compiled_graphs()[0]
            .program
            .as_ref()
            .unwrap()
            .statistics()
            .created()
    };
    (0..5).for_each(|_| run());

    let (live, on_device, before) = (LIVE.load(Relaxed), gpu.allocated_bytes(), created());
    PEAK.store(live, Relaxed);
    let count = COUNT.load(Relaxed);
    const RUNS: usize = 20;
    (0..RUNS).for_each(|_| run());
    let (kept, peak) = (
        LIVE.load(Relaxed).saturating_sub(live),
        PEAK.load(Relaxed) - live,
    );
    let allocations = (COUNT.load(Relaxed) - count) / RUNS;
    let steps = session.compiled_graphs()[0]
        .program
        .as_ref()
        .unwrap()
        .plan()
        .steps
        .len();

    println!(
        "heap {live}, of a run at most {peak}, kept {kept}, {allocations} allocations for {steps} steps"
    );
    assert_eq!(created(), before, "buffers, bind groups, pipelines");
    assert_eq!(
        gpu.allocated_bytes(),
        on_device,
        "bytes on the device, whatever they are for"
    );
    // Outputs, and objects that wgpu frees at its next poll.
    assert!(kept < 16 << 10, "{kept} bytes are kept");
    assert!(
        peak < (64 * WIDTH * 4) + (64 << 10),
        "a run takes {peak} bytes"
    );
    assert!(
        allocations < 100 + 10 * steps,
        "{allocations} allocations for {steps} steps"
    );
    // Only the model's weights are kept, no copies that were converted for the device.
    assert!(
        live < WEIGHTS + (8 << 20),
        "{live} bytes in the steady state, {WEIGHTS} of them weights"
    );
}
