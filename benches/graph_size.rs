//! Measures how the work before a model runs grows with its graph: `cargo bench --bench graph_size [-- FILTER]`.
//!
//! The time per node should not depend on the number of nodes. The rate that Criterion prints is nodes per second.
//! `ONIONSKIN_DEVICE` names the device of the step `compile`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench may panic, and says where it skips the device"
)]

use std::io::{Cursor, Write};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onionskin::gpu::{self, DeviceChoice, GpuDevice, Program, ProgramOptions};
use onionskin::ir::GraphModule;
use onionskin::item::Item;
use onionskin::pass;
use onionskin::plan;
use onionskin::prelude::*;
use zip::write::{SimpleFileOptions, ZipWriter};

/// Numbers of nodes.
const SIZES: [usize; 4] = [100, 300, 1000, 3000];

/// A kind of network that may have any number of nodes.
struct NetworkShape {
    name: &'static str,
    /// Traces a network with about this many nodes.
    trace: fn(usize) -> GraphModule,
}

const SHAPES: [NetworkShape; 4] = [
    NetworkShape {
        name: "chain of products",
        trace: |nodes| traced(&ProductChain::new(nodes / 2)),
    },
    NetworkShape {
        name: "chain of additions",
        trace: |nodes| traced(&AdditionChain(nodes)),
    },
    NetworkShape {
        name: "transformer blocks",
        trace: |nodes| traced(&TransformerBlocks::new(nodes.div_ceil(22))),
    },
    NetworkShape {
        name: "wide concatenation",
        trace: |nodes| traced(&WideConcat::new(nodes - 1)),
    },
];

/// A TorchScript archive that repeats a statement.
struct Script {
    name: &'static str,
    statement: &'static str,
    nodes_of_statement: usize,
}

const SCRIPTS: [Script; 3] = [
    Script {
        name: "archive of products",
        statement: "    y = torch.softmax(torch.matmul(y, x), -1)\n",
        nodes_of_statement: 2,
    },
    Script {
        name: "archive of additions",
        statement: "    y = torch.add(y, x)\n",
        nodes_of_statement: 1,
    },
    Script {
        name: "archive of writes in place",
        statement: "    _0 = torch.add_(torch.select(y, 0, 1), 1)\n",
        nodes_of_statement: 4,
    },
];

impl Script {
    /// Returns an archive of a module without weights, whose graph has about this many nodes.
    fn archive(&self, nodes: usize) -> Vec<u8> {
        let statements = self.statement.repeat(nodes / self.nodes_of_statement);
        let source = format!(
            "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  \
             def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n    y = torch.mul(x, 2)\n{statements}    return y\n"
        );
        let module = b"\x80\x02c__torch__\nM\n)\x81}(X\x08\0\0\0training\x89ub.";
        let records: [(&str, &[u8]); 4] = [
            ("data.pkl", module),
            ("constants.pkl", b"\x80\x02)."),
            ("version", b"3"),
            ("code/__torch__.py", source.as_bytes()),
        ];
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in records {
            zip.start_file(format!("archive/{name}"), SimpleFileOptions::default())
                .unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }
}

/// `softmax(x @ weight)` for each weight.
#[derive(Module)]
struct ProductChain {
    weights: Vec<Parameter>,
}

impl ProductChain {
    fn new(layers: usize) -> ProductChain {
        let weights = (0..layers).map(|_| Parameter::new([8, 8], init::ones()));
        ProductChain {
            weights: weights.collect(),
        }
    }
}

impl Forward<&TracedTensor> for ProductChain {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        self.weights
            .iter()
            .fold(x.clone(), |x, weight| x.matmul(weight).softmax(-1))
    }
}

/// `x + x + …`.
#[derive(Module)]
struct AdditionChain(#[module(skip)] usize);

impl Forward<&TracedTensor> for AdditionChain {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        (0..self.0).fold(x.clone(), |sum, _| sum + x)
    }
}

/// Attention and a network with one hidden layer, normalised and added, for each layer.
#[derive(Module)]
struct TransformerBlocks {
    layers: Vec<nn::TransformerEncoderLayer>,
}

impl TransformerBlocks {
    fn new(layers: usize) -> TransformerBlocks {
        let layer = |_| nn::TransformerEncoderLayer::new(8, 2, 16);
        TransformerBlocks {
            layers: (0..layers).map(layer).collect(),
        }
    }
}

impl Forward<&TracedTensor> for TransformerBlocks {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = x.unsqueeze(0);
        self.layers.iter().fold(x, |x, layer| layer.call(&x))
    }
}

/// The concatenation of `x * weight` for all weights.
#[derive(Module)]
struct WideConcat {
    weights: Vec<Parameter>,
}

impl WideConcat {
    fn new(parts: usize) -> WideConcat {
        let weights = (0..parts).map(|_| Parameter::new([8, 8], init::ones()));
        WideConcat {
            weights: weights.collect(),
        }
    }
}

impl Forward<&TracedTensor> for WideConcat {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let parts = self.weights.iter().map(|weight| x * weight);
        ops::cat(&parts.collect::<Vec<_>>())
    }
}

/// Traces a network for an input of 8 rows of 8 numbers.
fn traced<M>(network: &M) -> GraphModule
where
    M: Module + for<'a> Forward<&'a TracedTensor, Output = TracedTensor>,
{
    let example = TracedTensor::from_vec([8, 8], vec![0.5f32; 64]);
    trace(network, example).unwrap().module
}

/// Measures a step for a number of nodes.
fn measure(criterion: &mut Criterion, name: &str, nodes: usize, step: &mut dyn FnMut()) {
    let mut group = criterion.benchmark_group(name);
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .throughput(Throughput::Elements(nodes as u64));
    group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
        bencher.iter(&mut *step)
    });
    group.finish();
}

fn all(criterion: &mut Criterion) {
    gpu::widen_vectors();
    let choice = std::env::var("ONIONSKIN_DEVICE").unwrap_or_default();
    let choice: DeviceChoice = choice.parse().unwrap_or_default();
    let device = GpuDevice::open(choice);
    match &device {
        Ok(device) => println!("compiles on {}", device.name()),
        Err(error) => println!("does not compile: {error}"),
    }
    for script in SCRIPTS {
        for size in SIZES {
            import(criterion, &script, size);
        }
    }
    for shape in SHAPES {
        for size in SIZES {
            steps(criterion, &shape, size, device.as_ref().ok());
        }
    }
}

/// Measures the import of an archive, opening included.
fn import(criterion: &mut Criterion, script: &Script, size: usize) {
    let archive = script.archive(size);
    let example = [Item::Tensor(
        Tensor::from_vec([8, 8], vec![0.5f32; 64]).unwrap(),
    )];
    let import = || Model::from_bytes(archive.clone())?.import_for(&example);
    let nodes = import().unwrap().graphs[0].nodes.len();
    measure(
        criterion,
        &format!("{}/import", script.name),
        nodes,
        &mut || drop(import().unwrap()),
    );
}

/// Measures every step of a network.
fn steps(criterion: &mut Criterion, shape: &NetworkShape, size: usize, device: Option<&GpuDevice>) {
    let module = (shape.trace)(size);
    let nodes = module.graphs[0].nodes.len();
    let mut step = |step: &str, action: &mut dyn FnMut()| {
        measure(criterion, &format!("{}/{step}", shape.name), nodes, action);
    };
    step("trace", &mut || drop((shape.trace)(size)));
    step("optimise", &mut || {
        drop(pass::optimize_module(&module).unwrap())
    });
    let optimised = pass::optimize_module(&module).unwrap();
    let graph = &optimised.graphs[0];
    let capabilities = device.map_or_else(gpu::portable, |device| device.capabilities().clone());
    step("plan", &mut || {
        drop(plan::plan(graph, &capabilities).unwrap())
    });
    let Some(device) = device else { return };
    let plan = plan::plan(graph, &capabilities).unwrap();
    let weights = &optimised.weights;
    step("compile", &mut || {
        drop(Program::new(device, plan.clone(), weights, ProgramOptions::default()).unwrap())
    });
}

criterion_group!(benches, all);
criterion_main!(benches);
