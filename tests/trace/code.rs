//! Graphs as Rust source: the printed source is a file of this folder, compiled here, and computes the graph's results.
//!
//! `BLESS=1` writes the files.

use std::path::Path;

use onionskin::dtype::DType;
use onionskin::interp;
use onionskin::ir::{Graph, GraphModule};
use onionskin::tensor::Tensor;
use onionskin::trace::check::Traced;
use onionskin::trace::torchscript::Archive;
use onionskin::trace::torchscript::{ImportOptions, import};
use onionskin::trace::{TracedTensor, cond, manual_seed, nn, ops, scan, trace_fn, while_loop};
use onionskin::{kw, pass};

/// The printed functions.
mod printed {
    macro_rules! printed {
        ($($name:ident $file:literal;)*) => {$(
            #[allow(unused_imports, non_snake_case, clippy::all, reason = "as printed")]
            pub mod $name {
                use onionskin::dtype::DType;
                use onionskin::error::Result;
                use onionskin::kw;
                use onionskin::trace::{Arg, Size, TracedTensor, cond, ops, while_loop};

                include!($file);

                pub const TEXT: &str = include_str!($file);
            }
        )*};
    }

    printed! {
        shapes "code/shapes.rs";
        control "code/control.rs";
        random "code/random.rs";
        network "code/network.rs";
        two_layers "code/two_layers.rs";
        primitives "code/primitives.rs";
    }
}

fn example(shape: &[usize]) -> TracedTensor {
    let count = shape.iter().product::<usize>();
    let data = (0..count).map(|i| (i as f32 * 0.7).sin());
    TracedTensor::from_vec(shape, data.collect())
}

/// Checks that the source is the file's, and that the function returns the graph's results.
fn check(
    file: &str,
    text: &str,
    module: &GraphModule,
    inputs: &[&[usize]],
    function: impl Fn(&[TracedTensor]) -> Vec<TracedTensor>,
) {
    let code = module.code().unwrap();
    if std::env::var_os("BLESS").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/code");
        std::fs::write(folder.join(file), &code).unwrap();
    } else {
        assert_eq!(code, text, "{file}");
    }
    let inputs: Vec<TracedTensor> = inputs.iter().map(|shape| example(shape)).collect();
    let values: Vec<Tensor> = inputs.iter().map(|x| x.to_host().unwrap()).collect();
    let wanted = interp::run(&module.graphs[0], &module.weights, &values).unwrap();
    let found: Vec<Tensor> = function(&inputs)
        .iter()
        .map(|y| y.to_host().unwrap())
        .collect();
    assert_eq!(found, wanted, "{file}");
}

fn weight(module: &GraphModule) -> impl Fn(&str) -> TracedTensor {
    |name| TracedTensor::from(module.weights[name].clone())
}

#[test]
fn shapes_lists_and_tuples() {
    let function = |(x, y): (TracedTensor, TracedTensor)| {
        let wide = x.reshape((x.dim(0) * 2, x.dim(1) / 2, 1));
        let parts = x.chunk_with(2, kw!(dim = 1));
        let joined = ops::cat_with(&[&parts[1], &parts[0], &y], kw!(dim = -1));
        let (largest, at) = joined.max_dim_with(1, kw!(keepdim = true));
        let rows = joined.index([Some(&ops::arange(2)), None]);
        let steps = ops::arange_start_with(0, x.dim(0) + 1, kw!(dtype = DType::F32));
        let scaled = joined
            .add_with(&largest, kw!(alpha = 0.5))
            .clamp_with(kw!(min = -0.5));
        (wide.sum_dim([2]), scaled, at, rows.softmax(-1), steps)
    };
    let traced = trace_fn((example(&[3, 4]), example(&[3, 1])), function).unwrap();
    for rows in [3, 5] {
        let inputs: [&[usize]; 2] = [&[rows, 4], &[rows, 1]];
        check(
            "shapes.rs",
            printed::shapes::TEXT,
            &traced.module,
            &inputs,
            |x| {
                let (a, b, c, d, e) = printed::shapes::forward(&x[0], &x[1]).unwrap();
                vec![a, b, c, d, e]
            },
        );
    }
}

#[test]
fn branches_and_loops() {
    let function = |x: TracedTensor| {
        let total = x.sum();
        let branch = cond(&total.gt(0.0), || &x * 2.0, || (&x - 1.0).relu()).unwrap();
        let (halved, rounds) = while_loop(
            (branch.abs(), ops::tensor(0)),
            |(y, _)| y.amax().gt(0.1),
            |(y, n)| (&y / 2.0, n + 1),
        )
        .unwrap();
        let (sum, sums): (TracedTensor, TracedTensor) = scan(
            ops::zeros([x.dim(1)]),
            x.clone(),
            |state: TracedTensor, row: TracedTensor| {
                let state = state + row;
                (state.clone(), state)
            },
        )
        .unwrap();
        (halved, rounds, sum, sums)
    };
    let traced = trace_fn(example(&[3, 4]), function).unwrap();
    for rows in [2, 3] {
        check(
            "control.rs",
            printed::control::TEXT,
            &traced.module,
            &[&[rows, 4]],
            |x| {
                let (a, b, c, d) = printed::control::forward(&x[0]).unwrap();
                vec![a, b, c, d]
            },
        );
    }
}

#[test]
fn random_numbers() {
    manual_seed(11);
    let function = |x: TracedTensor| x.dropout(0.25, true) + x.randn_like();
    let traced = trace_fn(example(&[3, 4]), function).unwrap();
    check(
        "random.rs",
        printed::random::TEXT,
        &traced.module,
        &[&[5, 4]],
        |x| vec![printed::random::forward(&x[0]).unwrap()],
    );
}

fn network() -> Traced {
    use onionskin::trace::{Forward, Method, trace_module};
    manual_seed(0);
    let network = nn::Sequential::new()
        .add(nn::Conv2d::new(3, 4, 3).padding(1))
        .add(nn::BatchNorm2d::new(4))
        .add(nn::ReLU::new())
        .add(nn::Flatten::new())
        .add(nn::Linear::new(4 * 16, 2));
    let method = Method::new("forward", example(&[2, 3, 4, 4]), |network: &_, x| {
        Forward::call(network, x)
    });
    trace_module(&network, [method]).unwrap()
}

#[test]
fn a_network_with_weights() {
    let traced = network();
    let module = &traced.module;
    check(
        "network.rs",
        printed::network::TEXT,
        module,
        &[&[2, 3, 4, 4]],
        |x| vec![printed::network::forward(weight(module), &x[0]).unwrap()],
    );
}

#[test]
fn an_archive_of_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
    let archive = Archive::open(folder.join("two_layers.pt")).unwrap();
    let module = import(&archive, &ImportOptions::default()).unwrap();
    check(
        "two_layers.rs",
        printed::two_layers::TEXT,
        &module,
        &[&[2, 4]],
        |x| vec![printed::two_layers::forward(weight(&module), &x[0]).unwrap()],
    );
}

/// Primitives that importers insert among calls.
#[test]
fn primitives_that_pytorch_has_operators_for() {
    let text = "graph forward(x: f32[B, 4]) -> (f32[B, 3], f32[2, B, 2], f32[B, 4]) {
  size B = 3
  iota: f32[B, 4] = iota dtype=f32, shape=[B, 4], axis=0
  add: f32[B, 4] = add x, iota
  negated: f32[B, 4] = neg add
  slice: f32[B, 3] = slice negated, axis=1, start=1, length=3, step=1
  reshape: f32[B, 2, 2] = reshape negated, shape=[B, 2, 2]
  permute: f32[2, B, 2] = permute reshape, axes=[1, 0, 2]
  less: bool[B, 4] = lt x, 0.25
  select: f32[B, 4] = select less, 2.0, x
  return slice, permute, select
}
";
    let graphs = vec![text.parse::<Graph>().unwrap()];
    let module = GraphModule {
        graphs,
        ..GraphModule::default()
    };
    check(
        "primitives.rs",
        printed::primitives::TEXT,
        &module,
        &[&[5, 4]],
        |x| {
            let (a, b, c) = printed::primitives::forward(&x[0]).unwrap();
            vec![a, b, c]
        },
    );
}

#[test]
fn steps_without_an_operator_are_refused() {
    let traced = trace_fn(example(&[3, 4]), |x| x.conv1d(&example(&[3, 3, 2]))).unwrap();
    let graph: Graph = pass::decompose(traced.graph("forward").unwrap()).unwrap();
    let error = graph.code().unwrap_err();
    assert!(
        error.message().contains("has no PyTorch operator"),
        "{error}"
    );
}
