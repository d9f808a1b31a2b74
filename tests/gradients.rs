//! Gradients against finite differences in double precision on the host: every scalar function and every primitive.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::grad::Loss;
use onionskin::ir::{Argument, Builder, Graph, GraphModule, TreeSpec, Value, ValueId, Weights};
use onionskin::op::{
    BinaryFunction, ConvAxis, OptimizationBarrier, ReduceFunction, ScanFunction, ScatterFunction,
    UnaryFunction,
};
use onionskin::{Tensor, interp};

/// Distance of the operands of a difference quotient.
const STEP: f64 = 1e-6;
/// Largest difference from the quotient, absolute and relative.
const TOLERANCE: f64 = 2e-6;

/// Numbers in a range, none of them at a multiple of a tenth, where functions have kinks.
fn numbers(count: usize, (low, high): (f64, f64)) -> Vec<f64> {
    let fraction = |index: usize| ((index as f64 + 0.5) * 0.618_033_988_749_895).fract();
    (0..count)
        .map(|index| low + (high - low) * (0.02 + 0.96 * fraction(index)))
        .collect()
}

/// A graph of double precision inputs.
fn graph(shapes: &[&[usize]], build: impl for<'g> Fn(&[Value<'g>]) -> Value<'g>) -> Graph {
    let builder = Builder::new("f");
    let inputs: Vec<Value> = shapes
        .iter()
        .map(|shape| {
            let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
            let ty = format!("f64[{}]", sizes.join(", "));
            builder.input("x", ty.parse().expect("a type"))
        })
        .collect();
    let output = build(&inputs).id();
    builder
        .finish(&[output], Vec::new(), None)
        .expect("a graph")
}

fn parse(text: &str) -> Graph {
    text.parse().unwrap_or_else(|error| panic!("{text}{error}"))
}

/// The output of a graph.
fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<f64> {
    let outputs = interp::run(graph, &Weights::new(), inputs).expect("a run");
    outputs[0].to_f64()
}

/// Compares the gradients of all inputs with difference quotients.
fn check(name: &str, graph: &Graph, inputs: &[Tensor]) {
    let wanted: Vec<ValueId> = graph.inputs.clone();
    let gradient = graph
        .gradient(&Loss::GradOutputs, &wanted)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let shape = interp::run(graph, &Weights::new(), inputs).expect("a run")[0]
        .shape()
        .to_vec();
    let count = shape.iter().product();
    let weights = numbers(count, (0.5, 1.5));
    let given = Tensor::from_f64(DType::F64, shape, weights.clone()).expect("a tensor");
    let all = [inputs, &[given]].concat();
    let outputs = interp::run(&gradient, &Weights::new(), &all)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let loss = |inputs: &[Tensor]| -> f64 {
        let output = run(graph, inputs);
        output
            .iter()
            .zip(&weights)
            .map(|(x, weight)| x * weight)
            .sum()
    };
    for (index, input) in inputs.iter().enumerate() {
        let found = outputs[1 + index].to_f64();
        assert_eq!(
            outputs[1 + index].shape(),
            input.shape(),
            "{name}: shape of {index}"
        );
        for (element, found) in found.into_iter().enumerate() {
            let moved = |distance: f64| {
                let mut numbers = input.to_f64();
                numbers[element] += distance;
                let mut inputs = inputs.to_vec();
                inputs[index] =
                    Tensor::from_f64(DType::F64, input.shape(), numbers).expect("a tensor");
                loss(&inputs)
            };
            let step = STEP * input.to_f64()[element].abs().max(1.0);
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            let error = (found - expected).abs();
            assert!(
                error <= TOLERANCE * (1.0 + expected.abs()),
                "{name}: input {index}, element {element}: {found}, not {expected}"
            );
        }
    }
}

fn tensors(shapes: &[&[usize]]) -> Vec<Tensor> {
    let tensor = |(index, shape): (usize, &&[usize])| {
        let count: usize = shape.iter().product();
        let skipped = numbers(count + 7 * index, (-2.0, 2.0));
        Tensor::from_f64(DType::F64, *shape, skipped[7 * index..].to_vec()).expect("a tensor")
    };
    shapes.iter().enumerate().map(tensor).collect()
}

fn check_shapes(
    name: &str,
    shapes: &[&[usize]],
    build: impl for<'g> Fn(&[Value<'g>]) -> Value<'g>,
) {
    check(name, &graph(shapes, build), &tensors(shapes));
}

#[test]
fn unary_functions() {
    for function in UnaryFunction::ALL.iter().copied() {
        let is_float =
            function.is_float_only() || matches!(function.name(), "neg" | "abs" | "sign");
        let has_derivative = function.derivative().expect("a formula").is_some();
        if !is_float || !has_derivative || matches!(function.name(), "isnan" | "signbit") {
            continue;
        }
        let graph = graph(&[&[40]], |x| x[0].function(function));
        let numbers = numbers(40, function.sample_range());
        let x = Tensor::from_f64(DType::F64, [40], numbers).expect("a tensor");
        check(function.name(), &graph, &[x]);
    }
}

#[test]
fn binary_functions() {
    use BinaryFunction as F;
    let functions = [
        F::Add,
        F::Sub,
        F::Mul,
        F::Div,
        F::Remainder,
        F::Fmod,
        F::Maximum,
        F::Minimum,
        F::Atan2,
        F::Copysign,
        F::Hypot,
    ];
    for function in functions {
        check_shapes(function.name(), &[&[40], &[40]], |x| {
            x[0].combine(function, x[1])
        });
    }
    check_shapes("pow", &[&[40], &[40]], |x| {
        (x[0].abs() + 0.1).combine(F::Pow, x[1])
    });
    check_shapes("pow of numbers", &[&[40]], |x| {
        x[0].combine(F::Pow, 5.0) + x[0].builder().combine(F::Pow, 2.0, x[0])
    });
    for function in [F::Igamma, F::Igammac, F::Zeta] {
        check_shapes(function.name(), &[&[40]], |x| {
            let positive = x[0].abs() + 0.5;
            x[0].builder().combine(function, 2.5, positive)
        });
    }
}

#[test]
fn other_pointwise_primitives() {
    check_shapes("select", &[&[4, 5], &[4, 5]], |x| {
        x[0].gt(x[1]).where_(x[0] * 2.0, x[1] * x[1])
    });
    check_shapes("cast", &[&[4]], |x| {
        x[0] * x[0].to(DType::I64).to(DType::F64)
    });
    check_shapes("optimization_barrier", &[&[4]], |x| {
        let barrier = Argument::from(x[0].sin());
        let behind = x[0].builder().apply(OptimizationBarrier {}, vec![barrier]);
        behind * x[0]
    });
}

#[test]
fn primitives_that_move_elements() {
    check_shapes("reshape, permute", &[&[2, 3, 4]], |x| {
        let y = x[0].permute([2, 0, 1]);
        (y * y).reshape([Dim::from(6), Dim::from(4)])
    });
    check_shapes("expand", &[&[3, 1], &[1, 4], &[]], |x| {
        x[0] * x[1] + x[2] * x[0]
    });
    check_shapes("slices", &[&[7, 5]], |x| {
        let part = x[0].narrow(0, 1, 4);
        let steps = x[0].slice(0, Some(1.into()), None, 2);
        let flipped = x[0].flip(&[0, 1]);
        part * part + flipped.narrow(0, 0, 4) * x[0].narrow(0, 2, 4) + steps.sum(&[0], true)
    });
    check_shapes("pad", &[&[3, 2]], |x| {
        let sizes = |a: i64, b: i64| [Dim::from(a), Dim::from(b)];
        let y = x[0].pad(&sizes(1, 0), &sizes(2, 3), 0.5);
        y * y
    });
    check_shapes("concat", &[&[2, 3], &[4, 3]], |x| {
        let y = x[0].builder().concat(&[x[0], x[1], x[0]], 0);
        y * y
    });
    let windows = [
        (3, 1, 1),
        (3, 2, 1),
        (7, 3, 1),
        (2, 5, 1),
        (2, 3, 2),
        (3, 2, 2),
        (18, 1, 1),
    ];
    for (size, stride, dilation) in windows {
        check_shapes("unfold", &[&[2, 20, 2]], |x| {
            let y = x[0].unfold(1, size, stride, dilation);
            y * y
        });
    }
}

#[test]
fn reductions_and_scans() {
    use ReduceFunction as R;
    for function in [R::Sum, R::Prod, R::Max, R::Min] {
        check_shapes(&format!("{function:?}"), &[&[2, 3, 4]], |x| {
            x[0].reduce(function, &[0, 2], false)
        });
    }
    for function in [
        ScanFunction::Sum,
        ScanFunction::Prod,
        ScanFunction::LogSumExp,
    ] {
        check_shapes(&format!("{function:?}"), &[&[2, 5, 2]], |x| {
            x[0].scan(function, 1)
        });
    }
    // Products with one zero and with several zeros in a row.
    let data = vec![1.5, 0.0, 2.0, -1.0, 0.0, 3.0, 0.0, 0.5, 1.0, 2.0, 0.5, 1.25];
    let x = Tensor::from_f64(DType::F64, [3, 4], data).expect("a tensor");
    let product = graph(&[&[3, 4]], |x| x[0].reduce(R::Prod, &[1], false));
    check("product with zeros", &product, std::slice::from_ref(&x));
    let scan = graph(&[&[3, 4]], |x| x[0].scan(ScanFunction::Prod, 1));
    check("cumulative product with zeros", &scan, &[x]);
}

#[test]
fn products_and_convolutions() {
    check_shapes("dot", &[&[2, 3, 4], &[2, 4, 5]], |x| x[0].dot(x[1]));
    check_shapes("matmul", &[&[2, 3, 4], &[4]], |x| x[0].matmul(x[1]));
    check_shapes("transposed factors", &[&[2, 4, 3], &[2, 5, 4]], |x| {
        x[0].transpose(-1, -2).dot(x[1].transpose(-1, -2))
    });
    check_shapes("factors in another order", &[&[3, 2, 4], &[4, 2, 5]], |x| {
        x[0].transpose(0, 1).dot(x[1].transpose(0, 1))
    });
    let axis = |stride, low, high, dilation, base_dilation| ConvAxis {
        stride,
        low,
        high,
        dilation,
        base_dilation,
    };
    for axes in [
        vec![axis(1, 0, 0, 1, 1)],
        vec![axis(2, 1, 2, 1, 1)],
        vec![axis(3, 2, 0, 2, 1)],
        vec![axis(1, 2, 2, 1, 2)],
        vec![axis(2, 1, 3, 2, 3)],
        vec![axis(1, -1, 0, 1, 1)],
    ] {
        let name = format!("conv {axes:?}");
        check_shapes(&name, &[&[2, 4, 8], &[6, 2, 3]], |x| {
            x[0].conv(x[1], axes.clone(), 2)
        });
    }
    let axes = vec![axis(2, 1, 1, 1, 1), axis(1, 0, 1, 2, 1)];
    check_shapes("conv of planes", &[&[2, 3, 5, 6], &[4, 3, 3, 2]], |x| {
        x[0].conv(x[1], axes.clone(), 1)
    });
}

#[test]
fn primitives_with_indices() {
    let index = |x: &Value<'_>, sizes: [i64; 2]| {
        let sizes = sizes.map(Dim::from);
        let iota = |axis| x.builder().iota(DType::I64, sizes.clone(), axis);
        (iota(0) * 2 + iota(1)).remainder(4).id()
    };
    check_shapes("gather", &[&[4, 3]], |x| {
        let index = x[0].builder().value(index(&x[0], [6, 3]));
        let y = x[0].gather(0, index);
        y * y
    });
    use ScatterFunction as S;
    for function in [S::Add, S::Mul, S::Max, S::Min] {
        check_shapes(&format!("scatter {function:?}"), &[&[4, 3], &[5, 3]], |x| {
            let index = x[0].builder().value(index(&x[0], [5, 3]));
            let y = x[0].scatter(0, index, x[1], function);
            y * y
        });
    }
    check_shapes("scatter", &[&[4, 3], &[2, 3]], |x| {
        let index = x[0].builder().value(index(&x[0], [2, 3]));
        let y = x[0].scatter(0, index, x[1], S::Set);
        y * y
    });
    check_shapes("sort", &[&[3, 6]], |x| {
        let (sorted, _) = x[0].sort(1, true);
        sorted * sorted * sorted
    });
    check_shapes("topk", &[&[3, 6]], |x| {
        let (top, _) = x[0].topk(2, 1, true);
        top * top * top
    });
}

/// Cases of `fixtures/make_gradients.py`: kinks, ties, bounds and special values, as PyTorch has them.
#[test]
fn conventions_of_pytorch() {
    let text = std::fs::read_to_string("tests/fixtures/gradients.json").expect("the fixture");
    let recorded: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let cases = recorded["cases"].as_array().expect("cases");
    assert!(cases.len() > 40, "{} cases", cases.len());
    let faults: Vec<String> = cases.iter().filter_map(fault_of).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The difference of a case from PyTorch; `None` if there is none.
fn fault_of(case: &serde_json::Value) -> Option<String> {
    let name = case["name"].as_str().expect("a name");
    let graph = parse(case["graph"].as_str().expect("a graph"));
    let lists = |key: &str| -> Vec<Vec<f32>> {
        let parse = |number: &serde_json::Value| number.as_str().expect("a string").parse();
        let list = |list: &serde_json::Value| {
            let numbers = list.as_array().expect("a list").iter();
            numbers
                .map(|number| parse(number).expect("a number"))
                .collect()
        };
        case[key]
            .as_array()
            .expect("lists")
            .iter()
            .map(list)
            .collect()
    };
    let tensor = |data: Vec<f32>, ty: &onionskin::shape::TensorType| {
        let sizes = ty.shape.iter();
        let shape: Vec<usize> = sizes
            .map(|size| size.as_const().expect("a number") as usize)
            .collect();
        Tensor::from_vec(shape, data).expect("a tensor")
    };
    let inputs = graph.inputs.iter().zip(lists("inputs"));
    let mut tensors: Vec<Tensor> = inputs
        .map(|(id, data)| tensor(data, graph.ty(*id)))
        .collect();
    let output = graph.ty(graph.outputs[0]);
    let count = output.numel().as_const().expect("a number");
    tensors.push(tensor(
        (1..=count).map(|number| number as f32).collect(),
        output,
    ));
    let gradient = match graph.gradient(&Loss::GradOutputs, &graph.inputs) {
        Ok(gradient) => gradient,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let outputs = match interp::run(&gradient, &Weights::new(), &tensors) {
        Ok(outputs) => outputs,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    for (index, expected) in lists("gradients").into_iter().enumerate() {
        let found = outputs[1 + index].to_f32();
        let is_near = |(x, y): (&f32, &f32)| {
            (x - y).abs() <= 1e-5 * (1.0 + y.abs()) || x == y || (x.is_nan() && y.is_nan())
        };
        if found.len() != expected.len() || !found.iter().zip(&expected).all(is_near) {
            return Some(format!(
                "{name}, input {index}: {found:?}, not {expected:?}"
            ));
        }
    }
    None
}

/// The errors of graphs and losses that have no gradient.
#[test]
fn faults_are_listed_at_once() {
    let text = "graph f(x: f32[3], i: i64[3]) -> (f32[3], f32[], f32[3]) {
  y: f32[3] = bessel_j0 x
  z: f32[3] = bessel_y0 y
  s: f32[] = reduce z, function=sum, axes=[0]
  return y, s, z
}
";
    let graph = parse(text);
    let message = |loss: &Loss, wanted: &[ValueId]| {
        let error = graph.gradient(loss, wanted).expect_err("an error");
        error.to_string()
    };
    let all = message(&Loss::Sum, &graph.inputs[..1]);
    assert!(
        all.contains("bessel_j0") && all.contains("bessel_y0"),
        "{all}"
    );
    let integer = message(&Loss::Sum, &graph.inputs[1..]);
    assert!(integer.contains("i: i64[3] has no gradient"), "{integer}");
    let names = graph.output_specs();
    let shape = message(&Loss::Output(names[0].name.clone()), &graph.inputs[..1]);
    assert!(shape.contains("is not one float"), "{shape}");
    let unknown = message(&Loss::Output(String::from("loss")), &graph.inputs[..1]);
    assert!(unknown.contains("there is no output loss"), "{unknown}");
}

/// Both branches of a condition have gradients, and the branch that is taken decides.
#[test]
fn conditions() {
    let text = "graph f(x: f64[3], w: f64[3]) -> f64[3] {
  low: f64[] = reduce x, function=sum, axes=[0]
  c: bool[] = gt low, 0.0
  y: f64[3] = if c, x, w {
    graph then(a: f64[3], b: f64[3]) -> f64[3] {
      r: f64[3] = mul a, b
      return r
    }
    graph otherwise(a: f64[3], b: f64[3]) -> f64[3] {
      r: f64[3] = tanh b
      return r
    }
  }
  return y
}
";
    let graph = parse(text);
    let tensor =
        |data: [f64; 3]| Tensor::from_f64(DType::F64, [3], data.to_vec()).expect("a tensor");
    for x in [[0.5, 1.5, 0.25], [-0.5, -1.5, -0.25]] {
        check("if", &graph, &[tensor(x), tensor([0.3, -0.7, 1.1])]);
    }
}

/// A loop has gradients of what it carries and of its constants, whether a condition or the bound ends it.
#[test]
fn loops() {
    let text = "graph f(x: f64[3], w: f64[3]) -> f64[3] {
  n: i64[] = full 4, dtype=i64, shape=[]
  y: f64[3], rounds: i64[] = loop 4, true, x, 0, w, carried=2 {
    graph body(i: i64[], a: f64[3], k: i64[], b: f64[3]) -> (bool[], f64[3], i64[]) {
      p: f64[3] = mul a, b
      t: f64[3] = tanh p
      step: f64[] = cast k, dtype=f64
      steps: f64[3] = expand step, shape=[3]
      m: f64[3] = mul t, steps
      next: f64[3] = add a, m
      s: f64[] = reduce next, function=sum, axes=[0]
      again: bool[] = lt s, 8.0
      j: i64[] = add k, 1
      return again, next, j
    }
  }
  return y
}
";
    let tensor =
        |data: [f64; 3]| Tensor::from_f64(DType::F64, [3], data.to_vec()).expect("a tensor");
    // The number of iterations is known, unknown, and a number that is computed.
    for trips in ["4", "9223372036854775807", "n"] {
        let graph = parse(&text.replace("loop 4", &format!("loop {trips}")));
        for x in [[0.5, 0.75, 0.25], [1.5, 2.5, 0.8], [7.0, 1.0, 1.0]] {
            check("loop", &graph, &[tensor(x), tensor([0.3, -0.7, 1.1])]);
        }
    }
}

/// A weight that only the body of a region reads has a gradient.
#[test]
fn weights_of_bodies() {
    let text = "weight w: f64[2]
graph f(x: f64[2]) {
  y = loop 3, true, x, carried=1 {
    graph body(i: i64[], a: f64[2]) {
      yes: bool[] = full true, dtype=bool, shape=[]
      r = mul a, $w
      return yes, r
    }
  }
  return y
}";
    let module: GraphModule = text.parse().unwrap();
    let mut graph = module.graphs[0].clone();
    graph.pass_weights();
    let weights = graph.differentiable_values();
    let gradient = graph.gradient(&Loss::Sum, &weights).unwrap();
    let tensor = |data: [f64; 2]| Tensor::from_f64(DType::F64, [2], data.to_vec()).unwrap();
    let values = Weights::from_iter([(String::from("w"), tensor([0.5, 2.0]))]);
    let outputs = interp::run(&gradient, &values, &[tensor([1.0, 3.0])]).unwrap();
    assert_eq!(outputs[1].to_f64(), [0.125, 8.0]);
    assert_eq!(outputs[2].to_f64(), [0.75, 36.0]);
}

/// The loss is the output that the result's structure names, in whatever order it names them.
#[test]
fn losses_follow_the_structure_of_the_result() {
    let mut graph = parse(
        "graph f(x: f32[]) -> (f32[], f32[]) {\n  a: f32[] = mul x, 2.0\n  b: f32[] = mul x, 5.0\n  return a, b\n}\n",
    );
    graph.output_tree = Some(TreeSpec::Tuple(vec![
        TreeSpec::Tensor(1),
        TreeSpec::Tensor(0),
    ]));
    let name = graph.output_specs()[0].name.clone();
    let gradient = graph.gradient(&Loss::Output(name), &graph.inputs).unwrap();
    let x = Tensor::from_vec([], vec![1.0f32]).unwrap();
    let outputs = interp::run(&gradient, &Weights::new(), &[x]).unwrap();
    assert_eq!(outputs[2].to_f32(), [5.0]);
}
