//! Random operators are explicit nodes; their numbers are a function of seed, counter and index.

use onionskin::aten;
use onionskin::dtype::DType;
use onionskin::gpu::FeatureLevel;
use onionskin::ir::{Argument, Op};
use onionskin::item::Item;
use onionskin::kw;
use onionskin::scalar::Scalar;
use onionskin::tensor::Tensor;
use onionskin::trace::check::{CheckOptions, Id, Traced, inspect};
use onionskin::trace::{
    Arg, TracedTensor, cond, manual_seed, ops, scan, trace_fn, trace_fn_checked, while_loop,
};
use onionskin::{CompileOptions, Device, Model};

use super::samples;

fn floats(tensor: &TracedTensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64
}

/// Returns the Kolmogorov–Smirnov distance between the distribution of values and another one.
fn distance(mut values: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let steps = values.iter().enumerate();
    let distances = steps.map(|(index, x)| {
        let (below, above) = (index as f64 / count, (index + 1) as f64 / count);
        let wanted = distribution(*x);
        (wanted - below).abs().max((above - wanted).abs())
    });
    distances.fold(0.0, f64::max)
}

const COUNT: usize = 20_000;

/// For this number of values, a larger distance has a probability of 1 in 1000.
const LARGEST: f64 = 1.95 / 141.4;

fn close(found: &[f64], wanted: &[f64]) {
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 6e-5, "{found} {wanted}");
    }
}

/// The numbers that `torch.manual_seed(0)` and then `torch.rand(4)`, or `torch.randn(4)`, print on a CUDA device.
#[test]
fn numbers_are_those_of_pytorch_on_cuda() {
    manual_seed(0);
    close(&floats(&ops::rand([4])), &[0.3990, 0.5167, 0.0249, 0.9401]);
    manual_seed(0);
    close(
        &floats(&ops::randn([4])),
        &[-0.9247, -0.4253, -2.6438, 0.1452],
    );
}

#[test]
fn distributions_are_what_they_are_called() {
    manual_seed(1);
    let x = ops::zeros([COUNT]);
    let uniform = floats(&ops::rand([COUNT]));
    assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
    assert!((variance(&uniform) - 1.0 / 12.0).abs() < 2e-3);
    assert!(distance(uniform, |x| x) < LARGEST);
    let normal = floats(&ops::randn([COUNT]));
    assert!(mean(&normal).abs() < 0.02 && (variance(&normal) - 1.0).abs() < 0.03);
    assert!(distance(normal, |x| 0.5 * (1.0 + libm_erf(x / 2f64.sqrt()))) < LARGEST);
    let waiting = floats(&x.exponential_with(kw!(lambd = 2.0)));
    assert!(distance(waiting, |x| 1.0 - (-2.0 * x).exp()) < LARGEST);
    let cauchy = floats(&x.cauchy());
    assert!(distance(cauchy, |x| 0.5 + x.atan() / std::f64::consts::PI) < LARGEST);
    let trials = floats(&x.geometric(0.25));
    assert!((mean(&trials) - 4.0).abs() < 0.1);
    let spread = floats(&x.uniform_with(kw!(from = -1.0, to = 3.0)));
    assert!(distance(spread, |x| (x + 1.0) / 4.0) < LARGEST);
    let wide = floats(&ops::rand_with([COUNT], kw!(dtype = DType::F64)));
    assert!(distance(wide, |x| x) < LARGEST);
}

/// Abramowitz and Stegun 7.1.26, to seven digits.
fn libm_erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let factors = [
        1.061405429,
        -1.453152027,
        1.421413741,
        -0.284496736,
        0.254829592,
    ];
    let series = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    (1.0 - series * (-x * x).exp()).copysign(x)
}

#[test]
fn whole_numbers_and_truth_values_are_drawn_evenly() {
    manual_seed(2);
    let digits: Vec<i64> = ops::randint_low(-3, 7, [COUNT]).to_vec().unwrap();
    for digit in -3..7 {
        let share = digits.iter().filter(|found| **found == digit).count() as f64 / COUNT as f64;
        assert!((share - 0.1).abs() < 0.01, "{digit} {share}");
    }
    let order: Vec<i64> = ops::randperm(1000).to_vec().unwrap();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted == (0..1000).collect::<Vec<_>>() && order != sorted);
    let third = ops::full([COUNT], 1.0 / 3.0).bernoulli();
    assert!((mean(&floats(&third)) - 1.0 / 3.0).abs() < 0.01);
    let weights = TracedTensor::from_vec([3], vec![1.0f32, 0.0, 3.0]);
    let picks = weights.multinomial_with(COUNT, kw!(replacement = true));
    let picks: Vec<i64> = picks.to_vec().unwrap();
    assert!(!picks.contains(&1));
    let share = picks.iter().filter(|pick| **pick == 2).count() as f64 / COUNT as f64;
    assert!((share - 0.75).abs() < 0.01, "{share}");
    let error = ops::randint(0, [2]).error().unwrap();
    assert!(error.message().contains("from 0 to below 0"), "{error}");
}

#[test]
fn dropout_keeps_the_mean_and_drops_its_share() {
    manual_seed(3);
    let x = ops::ones([COUNT]);
    let dropped = floats(&x.dropout(0.25, true));
    let kept = dropped.iter().filter(|x| **x != 0.0).count() as f64 / COUNT as f64;
    assert!((kept - 0.75).abs() < 0.01 && (mean(&dropped) - 1.0).abs() < 0.02);
    assert_eq!(floats(&x.dropout(0.25, false)), floats(&x));
    assert_eq!(floats(&x.dropout(1.0, true)), vec![0.0; COUNT]);
    let rows = floats(&ops::ones([50, 8, 6]).feature_dropout(0.5, true));
    assert!(rows.chunks(6).all(|row| row.iter().all(|x| *x == row[0])));
    let normal = ops::randn([COUNT]);
    let alpha = floats(&normal.alpha_dropout(0.3, true));
    assert!(mean(&alpha).abs() < 0.03 && (variance(&alpha) - 1.0).abs() < 0.05);
    let slopes = floats(&(-&x).rrelu_with(kw!(training = true)));
    assert!(slopes.iter().all(|x| (-1.0 / 3.0..=-0.125).contains(x)));
    assert!(x.dropout(1.5, true).error().is_some());
}

/// Counterpart: `test_trace_random`, `test_trace_checker_dropout_train`.
#[test]
fn nodes_record_seed_and_counter_and_give_the_same_numbers_again() {
    let function = |x: TracedTensor| {
        let x = x.dropout(0.5, true).relu().dropout(0.5, false);
        (&x + ops::rand([8]), x.randn_like())
    };
    manual_seed(7);
    let wanted = function(ops::ones([8]));
    manual_seed(7);
    let traced = trace_fn(ops::ones([8]), function).unwrap();
    let graph = traced.graph("forward").unwrap();
    let mut seen = Vec::new();
    for node in &graph.nodes {
        let Op::Call(name) = &node.op else { continue };
        let operator = aten::operator(name).unwrap();
        if operator.is_random(&node.arguments) {
            let number = |name| {
                let place = operator.schema.position(name).unwrap();
                node.arguments[place].clone()
            };
            seen.push((
                operator.schema.name.as_str(),
                number("seed"),
                number("counter"),
            ));
        }
    }
    let number = |number| Argument::Number(Scalar::Int(number));
    let counted = ["dropout", "rand", "randn_like"].into_iter().zip(0..);
    let counted: Vec<_> = counted
        .map(|(name, index)| (name, number(7), number(index)))
        .collect();
    assert_eq!(seen, counted);
    assert!(
        graph
            .to_string()
            .contains("p=0.5, train=true, seed=7, counter=0"),
        "{graph}"
    );
    for _ in 0..2 {
        let found: (TracedTensor, TracedTensor) = traced.call(ops::ones([8])).unwrap();
        assert_eq!(floats(&found.0), floats(&wanted.0));
        assert_eq!(floats(&found.1), floats(&wanted.1));
    }
    let named = inspect(graph, &traced.module);
    let named = named.iter().filter(|finding| finding.id == Id::RandomNode);
    assert_eq!(named.count(), 3);
}

#[test]
fn batch_norm_in_training_uses_the_batch_and_is_recorded_so() {
    let function = |x: TracedTensor| {
        let (mean, variance) = (ops::zeros([3]), ops::ones([3]));
        x.batch_norm(
            Arg::None,
            Arg::None,
            &mean,
            &variance,
            true,
            0.1,
            1e-5,
            false,
        )
    };
    let x = ops::randn([16, 3]);
    let traced = trace_fn(x.clone(), function).unwrap();
    let text = traced.graph("forward").unwrap().to_string();
    assert!(text.contains("training=true"), "{text}");
    let found: TracedTensor = traced.call(x).unwrap();
    let means = floats(&found.mean_dim([0]));
    let variances = floats(&found.var_dim_with([0], kw!(unbiased = false)));
    assert!(means.iter().all(|mean| mean.abs() < 1e-5), "{means:?}");
    assert!(
        variances
            .iter()
            .all(|variance| (variance - 1.0).abs() < 1e-3)
    );
}

/// Counterpart: `test_trace_checker_dropout_train`, which reports a spurious mismatch. Here the function, its graph and a
/// second trace draw from one seed.
#[test]
fn a_check_of_a_function_that_draws_names_the_node_and_nothing_else() {
    let function = |x: TracedTensor| x.dropout(0.5, true);
    let inputs = ops::ones([8, 4]);
    let (_, report) = trace_fn_checked(inputs, function, &CheckOptions::default()).unwrap();
    let found: Vec<Id> = report.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(found, [Id::RandomNode], "{report}");
}

fn devices() -> Vec<Device> {
    let gpu = samples::device(FeatureLevel::Full).map(Device::from);
    [Some(Device::Host), gpu].into_iter().flatten().collect()
}

fn host(tensors: &[&TracedTensor]) -> Vec<Tensor> {
    let tensors = tensors.iter();
    tensors.map(|tensor| tensor.to_host().unwrap()).collect()
}

/// Checks that a graph returns the untraced program's results on all devices.
fn check_all_devices(traced: &Traced, inputs: &[&TracedTensor], wanted: &[&TracedTensor]) {
    for device in devices() {
        let model = Model::from_module(traced.module.clone());
        let session = model.compile(&device, &CompileOptions::default()).unwrap();
        let found = session.run(&host(inputs)).unwrap();
        for (found, wanted) in found.iter().zip(host(wanted)) {
            close(&found.to_f64(), &wanted.to_f64());
        }
    }
}

fn column(rows: usize) -> TracedTensor {
    TracedTensor::from_vec([rows, 2], vec![1f32; rows * 2])
}

/// A scan that draws before the loop, in each iteration, and after it.
fn drawing_scan(
    x: TracedTensor,
) -> onionskin::error::Result<(TracedTensor, TracedTensor, TracedTensor)> {
    let first = ops::rand([2]);
    let (last, rows) = scan(first, x, |state, row: TracedTensor| {
        let next = state + row.dropout(0.5, true) + ops::rand([2]);
        (next.clone(), next)
    })?;
    Ok((last, rows, ops::rand([2])))
}

/// [`drawing_scan`] as a loop in Rust, which a trace unrolls.
fn unrolled_scan(x: TracedTensor) -> (TracedTensor, TracedTensor, TracedTensor) {
    let mut state = ops::rand([2]);
    let mut rows = Vec::new();
    for row in x.unbind() {
        state = state + row.dropout(0.5, true) + ops::rand([2]);
        rows.push(state.clone());
    }
    let rows = ops::stack(&rows);
    (state, rows, ops::rand([2]))
}

#[test]
fn every_round_of_a_loop_draws_numbers_of_its_own() {
    manual_seed(7);
    let traced = trace_fn(column(3), drawing_scan).unwrap();
    for rows in [3, 1, 40] {
        manual_seed(7);
        let (last, all, after) = drawing_scan(column(rows)).unwrap();
        manual_seed(7);
        let (found_last, found_all, found_after) = unrolled_scan(column(rows));
        assert_eq!(floats(&found_last), floats(&last));
        assert_eq!(floats(&found_all), floats(&all));
        assert_eq!(floats(&found_after), floats(&after));
        check_all_devices(&traced, &[&column(rows)], &[&last, &all, &after]);
    }
    let named = inspect(traced.graph("forward").unwrap(), &traced.module);
    let details = named.iter().flat_map(|finding| &finding.details);
    assert!(!details.into_iter().any(|detail| detail.contains("round")));
}

/// Nested conditions and loops draw in every iteration that runs.
fn nested_draws(
    (x, limit): (TracedTensor, TracedTensor),
) -> onionskin::error::Result<(TracedTensor, TracedTensor)> {
    let below = |x: &TracedTensor| (x + ops::rand([2])).sum().lt(&limit);
    let x = while_loop(x, below, |x| {
        let grown = while_loop(
            (x.clone(), TracedTensor::scalar(0i64)),
            |(_, round)| round.lt(2),
            |(x, round)| (x + ops::rand([2]), round + 1),
        );
        let (x, _) = grown.unwrap_or((x, limit.clone()));
        let chosen = cond(
            &x.sum().gt(3.0),
            || &x + ops::rand([2]),
            || &x - ops::rand([2]) * ops::rand([2]),
        );
        chosen.unwrap_or(x)
    })?;
    Ok((x, ops::rand([2])))
}

#[test]
fn regions_return_their_counters() {
    let inputs = |limit: f32| (ops::zeros([2]), TracedTensor::scalar(limit));
    manual_seed(3);
    let traced = trace_fn(inputs(4.0), nested_draws).unwrap();
    for limit in [4.0, -1.0, 9.0] {
        manual_seed(3);
        let (x, after) = nested_draws(inputs(limit)).unwrap();
        let (start, limit) = inputs(limit);
        check_all_devices(&traced, &[&start, &limit], &[&x, &after]);
    }
    let (_, report) =
        trace_fn_checked(inputs(4.0), nested_draws, &CheckOptions::default()).unwrap();
    assert!(report.passed(), "{report}");
    let text = traced.module.to_string();
    let parsed: onionskin::ir::GraphModule = text.parse().unwrap();
    assert_eq!(parsed.graphs, traced.module.graphs);
}

#[test]
fn a_sequence_begins_outside_of_branches() {
    let within = |x: TracedTensor| {
        let draw = || {
            manual_seed(1);
            &x + ops::rand([2])
        };
        cond(&x.sum().gt(0.0), draw, || x.clone())
    };
    let error = trace_fn(ops::ones([2]), within).unwrap_err();
    assert!(
        error.message().contains("seeded within a branch"),
        "{error}"
    );
    assert!(error.to_string().contains("trace/random.rs"), "{error}");
}

/// A sequence that restarts after a loop also restarts in the graph.
#[test]
fn a_sequence_restarts_after_a_loop() {
    let program = |x: TracedTensor| {
        manual_seed(5);
        let (_, rows) = scan(ops::zeros([2]), x, |state, row: TracedTensor| {
            (state, row + ops::rand([2]))
        })?;
        manual_seed(5);
        Ok::<_, onionskin::error::Error>((rows, ops::rand([2])))
    };
    let traced = trace_fn(column(2), program).unwrap();
    let (rows, again) = program(column(4)).unwrap();
    check_all_devices(&traced, &[&column(4)], &[&rows, &again]);
}

/// A scripted program draws in every iteration that runs, and draws the numbers of an unrolled program.
#[test]
fn scripted_loops_draw_like_unrolled_ones() {
    let archives = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
    let model = Model::open(archives.join("draws.pt")).unwrap();
    let x = || Item::Tensor(Tensor::from_vec([2], vec![1f32, 2.0]).unwrap());
    let count = |count: i64| Item::Tensor(Tensor::from_vec([], vec![count]).unwrap());
    let limit = |limit: f32| Item::Tensor(Tensor::from_vec([], vec![limit]).unwrap());
    for device in devices() {
        let session = model
            .clone()
            .compile(&device, &CompileOptions::default())
            .unwrap();
        let call = |method: &str, inputs: &[Item]| session.call_method(method, inputs).unwrap();
        for (method, rounds, below) in [("written_out", 3, -1e9), ("one_more", 0, 4.5)] {
            let found = call("forward", &[x(), count(rounds), limit(below)]);
            let wanted = call(method, &[x()]);
            for (found, wanted) in found.tensors().iter().zip(wanted.tensors()) {
                close(&found.to_f64(), &wanted.to_f64());
            }
        }
    }
}
