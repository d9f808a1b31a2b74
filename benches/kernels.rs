//! Measures single kernels: `cargo bench --bench kernels [-- FILTER]`, on the device that `ONIONSKIN_DEVICE` names.
//!
//! Each benchmark is a small graph, planned for the device like a part of a model. It measures the time of the graph's
//! kernels alone, by the device's clock if it has one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark may panic, and prints the cases that it skips"
)]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onionskin::gpu::{self, DeviceChoice, GpuDevice, Program, ProgramOptions};
use onionskin::ir::{Builder, Value};
use onionskin::op::ConvAxis;
use onionskin::pass;
use onionskin::plan;
use onionskin::shape::TensorType;
use onionskin::tensor::Tensor;

/// Amount of work that a kernel's throughput counts.
enum Work {
    Operations(u64),
    Bytes(u64),
}

/// The device, and the benchmark runner.
struct KernelBench<'a> {
    criterion: &'a mut Criterion,
    device: GpuDevice,
}

impl KernelBench<'_> {
    fn kernel(
        &mut self,
        name: &str,
        size: &str,
        of: Work,
        types: &[&str],
        body: impl for<'g> Fn(&[Value<'g>]) -> Value<'g>,
    ) {
        let (program, inputs) = self.program(types, body);
        let mut group = self.criterion.benchmark_group(name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(300));
        group.throughput(match of {
            Work::Operations(count) => Throughput::Elements(count),
            Work::Bytes(count) => Throughput::Bytes(count),
        });
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|rounds| {
                let time = |_| program.profile(&inputs).unwrap().1.total();
                Duration::from_nanos((0..rounds).map(time).sum())
            });
        });
        group.finish();
    }

    fn program(
        &self,
        types: &[&str],
        body: impl for<'g> Fn(&[Value<'g>]) -> Value<'g>,
    ) -> (Program, Vec<Tensor>) {
        let types: Vec<TensorType> = types.iter().map(|ty| ty.parse().unwrap()).collect();
        let builder = Builder::new("bench");
        let result = {
            let names = (0..types.len()).map(|index| format!("x{index}"));
            let inputs = names
                .zip(&types)
                .map(|(name, ty)| builder.input(&name, ty.clone()));
            body(&inputs.collect::<Vec<_>>()).id()
        };
        let graph = builder.finish(&[result], Vec::new(), None).unwrap();
        let plan = pass::optimize(&graph)
            .and_then(|graph| plan::plan(&graph, self.device.capabilities()))
            .unwrap();
        let options = ProgramOptions::default();
        let program = Program::new(&self.device, plan, &Default::default(), options).unwrap();
        (program, types.iter().map(values).collect())
    }
}

/// Returns distinct numbers between -1 and 1.
fn values(ty: &TensorType) -> Tensor {
    let sizes = ty.sizes(&Default::default()).unwrap();
    let count: usize = sizes.iter().product();
    let data = (0..count).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0);
    Tensor::from_vec(sizes, data.collect()).unwrap()
}

fn all(criterion: &mut Criterion) {
    gpu::widen_vectors();
    let choice = std::env::var("ONIONSKIN_DEVICE").unwrap_or_default();
    let choice: DeviceChoice = choice.parse().unwrap_or_default();
    let device = match GpuDevice::open(choice) {
        Ok(device) => device,
        Err(error) => return println!("nothing measured: {error}"),
    };
    println!("on {}", device.name());
    let mut bench = KernelBench { criterion, device };
    products(&mut bench);
    convolutions(&mut bench);
    rows(&mut bench);
    elements(&mut bench);
}

fn products(bench: &mut KernelBench) {
    for [m, k, n] in [
        [512, 512, 512],
        [1024, 1024, 1024],
        [128, 384, 1536],
        [1, 768, 768],
    ] {
        let types = [&*format!("f32[{m}, {k}]"), &*format!("f32[{k}, {n}]")];
        let operations = Work::Operations(2 * m * k * n);
        bench.kernel("gemm", &format!("{m}x{k}x{n}"), operations, &types, |x| {
            x[0].dot(x[1])
        });
    }
}

fn convolutions(bench: &mut KernelBench) {
    for (name, channels, filter, groups, stride, pad, out) in [
        ("3x3 64->64 56x56", 64, [64, 64, 3], 1, 1, 1, 56),
        ("1x1 64->128 56x56", 64, [128, 64, 1], 1, 1, 0, 56),
        ("3x3/2 64->128 56x56", 64, [128, 64, 3], 1, 2, 1, 28),
        ("depthwise 3x3 64 56x56", 64, [64, 1, 3], 64, 1, 1, 56),
        ("groups of 4, 3x3 128 56x56", 128, [128, 4, 3], 32, 1, 1, 56),
    ] {
        let [to, from, side] = filter;
        let image = format!("f32[1, {channels}, 56, 56]");
        let filter = format!("f32[{to}, {from}, {side}, {side}]");
        let operations = Work::Operations(2 * to * from * side * side * out * out);
        let axes = vec![ConvAxis::padded(stride, pad), ConvAxis::padded(stride, pad)];
        bench.kernel("conv", name, operations, &[&image, &filter], |x| {
            x[0].conv(x[1], axes.clone(), groups)
        });
    }
}

fn rows(bench: &mut KernelBench) {
    let bytes = |count: u64| Work::Bytes(2 * 4 * count);
    bench.kernel(
        "softmax",
        "128x1024",
        bytes(128 * 1024),
        &["f32[128, 1024]"],
        |x| x[0].softmax(-1),
    );
    let types = ["f32[128, 768]", "f32[768]", "f32[768]"];
    bench.kernel("layer norm", "128x768", bytes(128 * 768), &types, |x| {
        let centred = x[0] - x[0].mean(&[1], true);
        let variance = (centred * centred).mean(&[1], true);
        centred * (variance + 1e-5).rsqrt() * x[1] + x[2]
    });
    let types = ["f32[1, 16384]"];
    bench.kernel("sort", "1x16384", bytes(16_384), &types, |x| {
        x[0].sort(1, false).0
    });
    let types = ["f32[1048576]"];
    bench.kernel("sum", "2^20", Work::Bytes(4 << 20), &types, |x| {
        x[0].sum(&[0], false)
    });
    let types = ["f32[1000, 1000]"];
    bench.kernel(
        "sum",
        "columns 1000x1000",
        Work::Bytes(4_000_000),
        &types,
        |x| x[0].sum(&[0], false),
    );
}

fn elements(bench: &mut KernelBench) {
    let million = || Work::Bytes(8_000_000);
    bench.kernel(
        "elementwise",
        "relu 1000000",
        million(),
        &["f32[1000000]"],
        |x| x[0].relu(),
    );
    bench.kernel(
        "elementwise",
        "gelu 1000000",
        million(),
        &["f32[1000000]"],
        |x| x[0] * 0.5 * ((x[0] * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0),
    );
    let types = ["f32[1000, 1000]", "f32[1000, 1000]", "f32[1000]"];
    bench.kernel(
        "elementwise",
        "x·y + b 1000x1000",
        Work::Bytes(12_000_000),
        &types,
        |x| x[0] * x[1] + x[2],
    );
}

criterion_group!(benches, all);
criterion_main!(benches);
