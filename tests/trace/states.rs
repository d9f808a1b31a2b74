//! States, which outlive a call: buffers that a network updates. Counterpart: the buffers of modules that PyTorch traces in
//! training, which the program writes in place.

use std::path::Path;

use onionskin::gpu::FeatureLevel;
use onionskin::item::Item;
use onionskin::nn::{BatchNorm1d, InstanceNorm1d};
use onionskin::tensor::Tensor;
use onionskin::trace::check::{CheckOptions, Traced};
use onionskin::trace::{
    Buffer, Forward, Method, Module, TracedTensor, cond, init, ops, scan, state, trace_fn,
    trace_method_checked, trace_module, while_loop,
};
use onionskin::{CompileOptions, Device, Model};

use super::samples;

fn batch(shift: f32) -> TracedTensor {
    let data = (0..8).map(|i| (i * i) as f32 / 4.0 + shift).collect();
    TracedTensor::from_vec([4, 2], data)
}

fn host(tensor: &TracedTensor) -> Tensor {
    tensor.to_host().unwrap()
}

/// Returns mean and unbiased variance of both columns of [`batch`].
fn statistics(shift: f32) -> [[f32; 2]; 2] {
    let values = host(&batch(shift)).to_f32();
    let column = |index: usize| values.iter().skip(index).step_by(2).copied();
    let mean = |index| column(index).sum::<f32>() / 4.0;
    let variance = |index| {
        let mean = mean(index);
        column(index).map(|x| (x - mean) * (x - mean)).sum::<f32>() / 3.0
    };
    [[mean(0), mean(1)], [variance(0), variance(1)]]
}

/// Returns running mean and variance after batches, as PyTorch computes them.
fn expected_statistics(shifts: &[f32]) -> [[f32; 2]; 2] {
    let mut running = [[0.0; 2], [1.0; 2]];
    for shift in shifts {
        let new = statistics(*shift);
        for (running, new) in running.iter_mut().flatten().zip(new.iter().flatten()) {
            *running = 0.9 * *running + 0.1 * new;
        }
    }
    running
}

fn assert_close(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    for (a, b) in found.iter().zip(wanted) {
        assert!((a - b).abs() < 1e-4, "{found:?} is not {wanted:?}");
    }
}

fn buffers(norm: &BatchNorm1d) -> [Vec<f32>; 3] {
    let state = state(norm);
    ["running_mean", "running_var", "num_batches_tracked"].map(|wanted| {
        let found = state.iter().find(|(name, _)| name == wanted);
        found.unwrap().1.to_vec::<f32>().unwrap()
    })
}

fn trained() -> BatchNorm1d {
    let norm = BatchNorm1d::new(2);
    norm.train();
    norm
}

fn forward(norm: &BatchNorm1d, x: TracedTensor) -> TracedTensor {
    norm.call(&x)
}

#[test]
fn training_gathers_statistics() {
    let norm = trained();
    norm.call(&batch(0.0));
    norm.call(&batch(3.0));
    let [mean, variance] = expected_statistics(&[0.0, 3.0]);
    let [found_mean, found_variance, count] = buffers(&norm);
    assert_close(&found_mean, &mean);
    assert_close(&found_variance, &variance);
    assert_eq!(count, [2.0]);
}

/// The statistics are states of the graph; tracing and checking do not change those of the module.
#[test]
fn a_trace_of_training_gathers_statistics_from_call_to_call() {
    let norm = trained();
    let options = CheckOptions::default();
    let (traced, report) = trace_method_checked(&norm, batch(0.0), forward, &options).unwrap();
    assert!(report.passed(), "{report}");
    assert_eq!(buffers(&norm), [vec![0.0; 2], vec![1.0; 2], vec![0.0]]);
    let names: Vec<&str> = traced.module.states.iter().map(|one| &*one.name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for device in devices() {
        let session = Model::from_module(traced.module.clone())
            .compile(&device, &CompileOptions::default())
            .unwrap();
        for shift in [0.0, 3.0] {
            let wanted = host(&norm.call(&batch(shift)));
            let found = session.run(&[host(&batch(shift))]).unwrap();
            assert_close(&found[0].to_f32(), &wanted.to_f32());
        }
        let [mean, variance] = expected_statistics(&[0.0, 3.0]);
        let kept = |name: &str| session.state(name).unwrap().tensors()[0].to_f32();
        assert_close(&kept("running_mean"), &mean);
        assert_close(&kept("running_var"), &variance);
        assert_eq!(kept("num_batches_tracked"), [2.0]);
    }
}

fn devices() -> Vec<Device> {
    let gpu = samples::device(FeatureLevel::Full).map(Device::from);
    [Some(Device::Host), gpu].into_iter().flatten().collect()
}

/// PyTorch updates the statistics within the operator, whose schema does not declare it.
#[test]
fn an_archive_of_training_gathers_statistics() {
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
    let model = Model::open(archives.join("training.pt")).unwrap();
    for device in devices() {
        let session = model
            .clone()
            .compile(&device, &CompileOptions::default())
            .unwrap();
        let x = Tensor::from_vec([2, 3], vec![1f32, 2.0, 3.0, 3.0, 2.0, 7.0]).unwrap();
        session.call(&[Item::Tensor(x)]).unwrap();
        let kept = |name: &str| session.state(name).unwrap().tensors()[0].to_f32();
        // Tracing called the module once, with ones.
        assert_close(
            &kept("norm.running_mean"),
            &[0.09 + 0.2, 0.09 + 0.2, 0.09 + 0.5],
        );
        assert_close(&kept("norm.running_var"), &[0.81 + 0.2, 0.81, 0.81 + 0.8]);
        assert_eq!(kept("norm.num_batches_tracked"), [2.0]);
    }
}

#[derive(Module)]
struct Sum {
    total: Buffer,
}

fn sum() -> Sum {
    Sum {
        total: Buffer::new([2], init::zeros()),
    }
}

fn add(net: &Sum, x: TracedTensor) -> onionskin::error::Result<TracedTensor> {
    net.total.store(&(&net.total + &x))?;
    Ok(&net.total * 2.0)
}

/// One method writes a state that another one reads; a stored value is visible at once.
#[test]
fn methods_share_what_is_stored() {
    let net = sum();
    let x = || TracedTensor::from_vec([2], vec![1f32, 2.0]);
    let read = |net: &Sum, x: TracedTensor| x - &net.total;
    let methods = [Method::new("read", x(), read), Method::new("add", x(), add)];
    let traced: Traced = trace_module(&net, methods).unwrap();
    let first: TracedTensor = traced.call_entry("add", x()).unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let text: onionskin::ir::GraphModule = traced.module.to_string().parse().unwrap();
    assert_eq!(text.states, traced.module.states);
    let session = Model::from_module(traced.module)
        .compile(
            &Device::Host,
            &CompileOptions {
                entry: "add".into(),
                ..CompileOptions::default()
            },
        )
        .unwrap();
    let call = |method: &str| {
        let found = session.call_method(method, &[host(&x()).into()]).unwrap();
        found.tensors()[0].to_f32()
    };
    assert_eq!(call("add"), [2.0, 4.0]);
    assert_eq!(call("add"), [4.0, 8.0]);
    assert_eq!(call("read"), [-1.0, -2.0]);
}

#[test]
fn invalid_stores_are_errors_with_their_line() {
    let net = sum();
    let x = || TracedTensor::from_vec([2], vec![1f32, 2.0]);
    let error = trace_fn(x(), |x| net.total.store(&x.sum()).map(|()| x)).unwrap_err();
    assert_eq!(
        error.message(),
        "expected a value of type f32[2] for a buffer, got f32[]"
    );
    assert!(error.to_string().contains("trace/states.rs"), "{error}");
    let error = trace_fn(x(), |x| (&x * 2.0).store(&x).map(|()| x)).unwrap_err();
    assert_eq!(
        error.message(),
        "only a parameter or buffer can be stored to"
    );
    let error = net.total.store(&TracedTensor::scalar(1f32)).unwrap_err();
    assert_eq!(
        error.message(),
        "expected a value of type f32[2] for a buffer, got f32[]"
    );
}

/// A total and the number of its additions, which a network updates in branches and loops.
#[derive(Module)]
struct Tally {
    total: Buffer,
    count: Buffer,
}

fn tally() -> Tally {
    Tally {
        total: Buffer::from(Tensor::from([1f32, 0.0])),
        count: Buffer::from(Tensor::from(0i64)),
    }
}

type Fallible = onionskin::error::Result<TracedTensor>;

/// One branch updates both buffers, the other branch one of them.
fn in_branches(net: &Tally, x: TracedTensor) -> Fallible {
    let stored = cond(
        &x.sum().gt(0.0),
        || {
            let stored = net.total.store(&(&net.total + x.sum_dim([0])));
            stored.and_then(|()| net.count.store(&(&net.count + 1)))?;
            Ok::<_, onionskin::error::Error>(&net.total * 2.0)
        },
        || {
            net.total.store(&(&net.total * 0.5))?;
            Ok(x.sum_dim([0]))
        },
    );
    Ok(stored?? + &net.total)
}

fn in_a_scan(net: &Tally, x: TracedTensor) -> Fallible {
    net.count.store(&(&net.count + 10))?;
    let (last, rows) = scan(ops::zeros([2]), x, |state, row: TracedTensor| {
        let next = state + &net.total * 0.5 + row;
        let stored = net.total.store(&next);
        let stored = stored.and_then(|()| net.count.store(&(&net.count + 1)));
        stored.map_or_else(
            |_| (next.clone(), next.clone()),
            |()| (next.clone(), &next + &net.total),
        )
    })?;
    Ok(rows + last + &net.total)
}

/// A branch in a loop, whose condition is a state that the iterations update.
fn in_a_loop(net: &Tally, x: TracedTensor) -> Fallible {
    net.count.store(&net.count.zeros_like())?;
    let x = while_loop(
        x,
        |_| net.count.lt(3),
        |x| {
            let next = cond(
                &net.total.sum().gt(4.0),
                || net.total.store(&(&net.total * 0.25)).map(|()| &x - 1.0),
                || {
                    net.total
                        .store(&(&net.total + x.sum_dim([0])))
                        .map(|()| &x + 1.0)
                },
            );
            let counted = net.count.store(&(&net.count + 1));
            let next = next.and_then(|next| next);
            counted.and(next).unwrap_or(x)
        },
    )?;
    Ok(x + &net.total)
}

type Program = fn(&Tally, TracedTensor) -> Fallible;

/// States that branches and loops update are further results of their regions, and equal those of the running module.
#[test]
fn branches_and_loops_store() {
    let programs: [(&str, Program); 3] = [
        ("branches", in_branches),
        ("scan", in_a_scan),
        ("loop", in_a_loop),
    ];
    for (name, program) in programs {
        let net = tally();
        let example = batch(0.0);
        let options = CheckOptions::default();
        let (traced, report) = trace_method_checked(&net, example, program, &options).unwrap();
        assert!(report.passed(), "{name}: {report}");
        assert_eq!(net.total.to_vec::<f32>().unwrap(), [1.0, 0.0], "{name}");
        for device in devices() {
            let net = tally();
            let session = Model::from_module(traced.module.clone())
                .compile(&device, &CompileOptions::default())
                .unwrap();
            for shift in [0.0, -6.0, -9.0, 2.0] {
                let wanted = host(&program(&net, batch(shift)).unwrap());
                let found = session.run(&[host(&batch(shift))]).unwrap();
                assert_close(&found[0].to_f32(), &wanted.to_f32());
                for (name, buffer) in [("total", &net.total), ("count", &net.count)] {
                    let kept = session.state(name).unwrap().tensors()[0].to_f32();
                    assert_close(&kept, &host(buffer).to_f32());
                }
            }
        }
    }
}

/// PyTorch's `momentum=None`: the statistics are the mean over all batches.
#[test]
fn batches_have_equal_weight_without_momentum() {
    let norm = BatchNorm1d::new(2).momentum(None);
    norm.train();
    let shifts = [0.0, 3.0, -7.0];
    let traced = trace_module(&norm, [Method::new("forward", batch(0.0), forward)]).unwrap();
    let of_batches = shifts.map(statistics);
    let mean = |kind: usize, column: usize| {
        of_batches
            .iter()
            .map(|batch| batch[kind][column])
            .sum::<f32>()
            / 3.0
    };
    let wanted = [0, 1].map(|kind| [mean(kind, 0), mean(kind, 1)]);
    for device in devices() {
        let session = Model::from_module(traced.module.clone())
            .compile(&device, &CompileOptions::default())
            .unwrap();
        for shift in shifts {
            session.run(&[host(&batch(shift))]).unwrap();
        }
        let kept = |name: &str| session.state(name).unwrap().tensors()[0].to_f32();
        assert_close(&kept("running_mean"), &wanted[0]);
        assert_close(&kept("running_var"), &wanted[1]);
    }
    for shift in shifts {
        norm.call(&batch(shift));
    }
    let [mean, variance, count] = buffers(&norm);
    assert_close(&mean, &wanted[0]);
    assert_close(&variance, &wanted[1]);
    assert_eq!(count, [3.0]);
}

/// The expected numbers are those of PyTorch 2.13: two calls, the second without a batch axis.
#[test]
fn an_instance_norm_gathers_statistics() {
    let norm = InstanceNorm1d::with(2, false, true);
    norm.train();
    let numbers: Vec<f32> = (0..12).map(|x| (x * x) as f32 / 10.0).collect();
    let x = TracedTensor::from_vec([2, 2, 3], numbers.clone());
    let second = TracedTensor::from_vec([2, 3], numbers[..6].to_vec());
    let means = [[0.25666666, 0.58666664], [0.24766666, 0.694_666_6]];
    let variances = [[1.000_333_3, 1.132_333_3], [0.904_633_3, 1.083_433_3]];
    let traced = trace_module(
        &norm,
        [Method::new(
            "forward",
            x.clone(),
            |norm: &InstanceNorm1d, x: TracedTensor| norm.call(&x),
        )],
    )
    .unwrap();
    let kept = |name: &str| {
        let state = state(&norm);
        let found = state.iter().find(|(known, _)| known == name);
        found.unwrap().1.to_vec::<f32>().unwrap()
    };
    for (call, x) in [&x, &second].into_iter().enumerate() {
        norm.call(x).to_host().unwrap();
        assert_close(&kept("running_mean"), &means[call]);
        assert_close(&kept("running_var"), &variances[call]);
    }
    assert_eq!(kept("num_batches_tracked"), [0.0]);
    for device in devices() {
        let session = Model::from_module(traced.module.clone())
            .compile(&device, &CompileOptions::default())
            .unwrap();
        session.run(&[host(&x)]).unwrap();
        let kept = |name: &str| session.state(name).unwrap().tensors()[0].to_f32();
        assert_close(&kept("running_mean"), &means[0]);
        assert_close(&kept("running_var"), &variances[0]);
    }
}
