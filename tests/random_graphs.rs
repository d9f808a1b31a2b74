//! Random small graphs: no pass changes their results, and they survive printing and parsing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;
mod samples;

use onionskin::dim::{Bindings, Dim};
use onionskin::dtype::DType;
use onionskin::interp;
use onionskin::ir::{Builder, Graph, GraphModule, Region, Value, Weights};
use onionskin::op::{ReduceFunction, ScanFunction};
use onionskin::pass;
use onionskin::plan;
use onionskin::scalar::Scalar;
use onionskin::tensor::Tensor;
use random::Random;

fn float(random: &mut Random) -> f64 {
    random.pick(&[
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        -3.25,
        1e9,
        f64::INFINITY,
        f64::NAN,
    ])
}

fn random_graph(random: &mut Random) -> Graph {
    let builder = Builder::with_symbols("f", Bindings::from([("B".into(), 4)]), Vec::new());
    let mut values = vec![
        builder.input("x", "f32[B, 3]".parse().expect("a type")),
        builder.input("y", "f32[B, 3]".parse().expect("a type")),
        builder.input("n", "i64[B, 3]".parse().expect("a type")),
        builder.weight("w", "f32[3]".parse().expect("a type")),
        builder.weight("v", "f32[4, 3]".parse().expect("a type")),
    ];
    for _ in 0..2 + random.below(20) {
        if let Some(value) = random_value(&builder, random, &values) {
            values.push(value);
        }
    }
    let mut outputs: Vec<_> = values
        .iter()
        .rev()
        .take(3)
        .map(|value| value.id())
        .collect();
    outputs.push(random.pick(&values).id());
    builder
        .finish(&outputs, Vec::new(), None)
        .expect("no rule is broken")
}

/// Adds a random value; `None` if the chosen operator does not fit the operands.
fn random_value<'g>(
    builder: &'g Builder,
    random: &mut Random,
    values: &[Value<'g>],
) -> Option<Value<'g>> {
    let x = random.pick(values);
    let result = apply(builder, random, values, x);
    builder.check().ok()?;
    (result.rank() < 5).then_some(result)
}

fn apply<'g>(
    builder: &'g Builder,
    random: &mut Random,
    values: &[Value<'g>],
    x: Value<'g>,
) -> Value<'g> {
    let y = random.pick(values);
    let rank = x.rank() as i64;
    let any_axis = |random: &mut Random| random.below(x.rank().max(1)) as i64;
    match random.below(27) {
        0 => -x,
        1 => -(-x),
        2 => x.tanh(),
        3 => x + y,
        4 => x * float(random),
        5 => x + float(random),
        6 => x.rsub(float(random)),
        7 => x.to(random.pick(&[
            DType::F16,
            DType::F32,
            DType::I64,
            DType::Bool,
            DType::I8,
            DType::F64,
        ])),
        8 => x.eq(y).logical_not(),
        9 => x.lt(float(random)).where_(x, y),
        10 => x.ne(x).where_(x, float(random)),
        11 => x.reshape(vec![x.numel()]),
        12 => x.unsqueeze(any_axis(random)),
        13 if rank > 1 => x.transpose(any_axis(random), any_axis(random)),
        14 => x.expand([vec![Dim::from(2)], x.shape()].concat()),
        15 if rank > 0 => x.slice(
            any_axis(random),
            Some(Dim::ONE),
            None,
            1 + random.below(2) as i64,
        ),
        16 if rank > 0 => x.flip(&[any_axis(random)]),
        17 if rank > 0 => x.to_float().sum(&[any_axis(random)], random.below(2) == 0),
        18 if rank > 0 => x.reduce(ReduceFunction::Max, &[any_axis(random)], false),
        19 if rank > 0 => builder.concat(&[x, x], any_axis(random)),
        20 if rank > 0 => x.pad(
            &vec![Dim::ONE; x.rank()],
            &vec![Dim::ZERO; x.rank()],
            float(random),
        ),
        21 => builder.full(x.dtype(), x.shape(), float(random)),
        22 if rank > 0 => builder.iota(DType::I64, x.shape(), any_axis(random) as usize),
        23 if rank > 0 && x.dtype() != DType::Bool => x.scan(ScanFunction::Sum, any_axis(random)),
        24 => random_condition(builder, random, x),
        25 => random_loop(builder, random, x),
        26 => composite_body(builder, random, x),
        _ => x.abs() + x.abs(),
    }
}

/// Adds a condition with two random bodies.
fn random_condition<'g>(builder: &'g Builder, random: &mut Random, x: Value<'g>) -> Value<'g> {
    let all: Vec<i64> = (0..x.rank() as i64).collect();
    let differs = x.ne(float(random)).to(DType::F32);
    let taken = differs.reduce(ReduceFunction::Max, &all, false).ne(0.0);
    let region = Region::If {
        then: random_body(builder, random, x, false),
        otherwise: random_body(builder, random, x, false),
    };
    let arguments = vec![taken.into(), x.into()];
    let results = builder.region(region, arguments, vec![builder.ty(x.id())]);
    results[0]
}

/// Adds a random body as a single node.
fn composite_body<'g>(builder: &'g Builder, random: &mut Random, x: Value<'g>) -> Value<'g> {
    let body = random_body(builder, random, x, false);
    let types = vec![builder.ty(x.id())];
    builder.region(Region::Call { body }, vec![x.into()], types)[0]
}

/// Adds a loop with a random body.
fn random_loop<'g>(builder: &'g Builder, random: &mut Random, x: Value<'g>) -> Value<'g> {
    let region = Region::Loop {
        body: random_body(builder, random, x, true),
        carried: 1,
    };
    let arguments = vec![
        Scalar::Int(random.below(4) as i64).into(),
        Scalar::Bool(random.below(4) > 0).into(),
        x.into(),
    ];
    let results = builder.region(region, arguments, vec![builder.ty(x.id())]);
    results[0]
}

/// Builds a random function from a type to itself. The body of a loop also takes the iteration and returns whether to go on.
fn random_body(outer: &Builder, random: &mut Random, x: Value, is_round: bool) -> Graph {
    let mut sizes = outer.symbols().hints();
    let given: Vec<_> = x.shape().iter().flat_map(Dim::symbols).collect();
    sizes.retain(|name, _| given.contains(name));
    let builder = Builder::with_symbols("body", sizes, Vec::new());
    let round = is_round.then(|| builder.input("round", "i64[]".parse().expect("a type")));
    let given = builder.input("x", outer.ty(x.id()));
    let result = match random.below(5) {
        0 => given * 2.0,
        1 => given.eq(given).where_(given, float(random)),
        2 => given,
        3 => round.unwrap_or(given).to(x.dtype()).expand(x.shape()) + given,
        _ => given.to_float().tanh(),
    };
    let result = result.to(x.dtype());
    let again = builder.full(DType::Bool, [], random.below(3) > 0);
    let mut outputs = vec![result.id()];
    if is_round {
        outputs.insert(0, again.id());
    }
    builder.finish(&outputs, Vec::new(), None).expect("a body")
}

fn inputs(random: &mut Random, batch: usize) -> Vec<Tensor> {
    let mut floats = || {
        let data = (0..batch * 3).map(|_| float(random)).collect();
        Tensor::from_f64(DType::F32, [batch, 3], data).expect("fits")
    };
    let (x, y) = (floats(), floats());
    let data = (0..batch * 3).map(|_| random.below(7) as i64 - 3).collect();
    vec![
        x,
        y,
        Tensor::from_i64(DType::I64, [batch, 3], data).expect("fits"),
    ]
}

/// True if tensors are bitwise equal, except that all NaNs are equal.
fn bitwise_equal(a: &Tensor, b: &Tensor) -> bool {
    let bits = |tensor: &Tensor| -> Vec<u64> {
        let canonical = |x: f64| {
            if x.is_nan() {
                f64::NAN.to_bits()
            } else {
                x.to_bits()
            }
        };
        tensor.to_f64().into_iter().map(canonical).collect()
    };
    a == b || (a.dtype(), a.shape(), bits(a)) == (b.dtype(), b.shape(), bits(b))
}

fn check(before: &Graph, after: &Graph, weights: [&Weights; 2], inputs: &[Tensor], what: &str) {
    let expected = match interp::run(before, weights[0], inputs) {
        Ok(expected) => expected,
        // Sizes other than the example's may break a guard.
        Err(_) => return,
    };
    let found = interp::run(after, weights[1], inputs)
        .unwrap_or_else(|error| panic!("{what}: {error}\n{before}\n{after}"));
    for (expected, found) in expected.iter().zip(&found) {
        assert!(
            bitwise_equal(expected, found),
            "{what}: {expected:?} became {found:?}\n{before}\n{after}"
        );
    }
}

#[test]
fn passes_keep_results() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let data = vec![0.5f32, -0.0, 3.0];
    let weights = Weights::from([
        ("w".to_string(), Tensor::from_vec([3], data).expect("fits")),
        (
            "v".to_string(),
            Tensor::full(DType::F32, [4, 3], -1.5).expect("fits"),
        ),
    ]);
    for _ in 0..400 {
        let graph = random_graph(&mut random);
        graph
            .verify()
            .unwrap_or_else(|error| panic!("{error}\n{graph}"));
        let samples = [inputs(&mut random, 4), inputs(&mut random, 2)];
        let mut before = graph.clone();
        for pass in pass::PIPELINE {
            let after = (pass.run)(&before).unwrap_or_else(|error| panic!("{error}\n{before}"));
            after
                .verify()
                .unwrap_or_else(|error| panic!("{error}\n{after}"));
            for sample in &samples {
                check(&before, &after, [&weights, &weights], sample, pass.name);
            }
            before = after;
        }
        let module = GraphModule {
            graphs: vec![before],
            weights: weights.clone(),
            ..GraphModule::default()
        };
        let folded = pass::fold_weights(&module).expect("folds");
        folded
            .verify()
            .unwrap_or_else(|error| panic!("{error}\n{folded}"));
        for sample in &samples {
            let both = [&weights, &folded.weights];
            check(&graph, &folded.graphs[0], both, sample, "fold_weights");
        }
        let plan = plan::plan(&folded.graphs[0], &samples::capabilities())
            .unwrap_or_else(|error| panic!("{error}\n{}", folded.graphs[0]));
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

#[test]
fn text_round_trips() {
    let mut random = Random(0x0dd0_15ea_5e0f_f1ce);
    for _ in 0..200 {
        let graph = random_graph(&mut random);
        let text = graph.to_string();
        let read: Graph = text
            .parse()
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read.to_string(), text);
        assert!(read == graph, "{text}");
    }
}

/// Every text parses or is rejected, and parsed graphs can be verified and printed.
#[test]
fn damaged_text_is_refused() {
    let mut random = Random(0xbad_c0de);
    let pieces: Vec<char> = "()[]{}\"\\#@%$=,:.-+*0123456789 \nabxyB_é"
        .chars()
        .collect();
    for _ in 0..60 {
        let text: Vec<char> = random_graph(&mut random).to_string().chars().collect();
        for _ in 0..50 {
            let mut damaged = text.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(damaged.len());
                match random.below(3) {
                    0 => damaged[at] = random.pick(&pieces),
                    1 => drop(damaged.remove(at)),
                    _ => damaged.insert(at, random.pick(&pieces)),
                }
            }
            let damaged: String = damaged.into_iter().collect();
            if let Ok(graph) = damaged.parse::<Graph>() {
                let _ = graph.verify();
                let _ = graph.to_string();
            }
        }
    }
}
