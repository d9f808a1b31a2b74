//! Compares the device with the host oracle: sample graphs at two sizes from one plan, and every function for every dtype.
//!
//! Without an adapter the tests print a note and pass; with `REQUIRE_GPU=1` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::BTreeMap;

use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::error::Result;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Graph, Value};
use onionskin::op::*;
use onionskin::plan;
use onionskin::shape::TensorType;
use onionskin::tensor::Tensor;

mod samples;

fn device() -> Option<GpuDevice> {
    samples::device(FeatureLevel::Full)
}

/// A reproducible sequence of numbers in 0..1.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    /// Returns a tensor with elements in a range; integers are small.
    fn tensor(&mut self, dtype: DType, shape: &[usize], low: f64, high: f64) -> Tensor {
        let numel = shape.iter().product();
        let values = (0..numel)
            .map(|_| low + (high - low) * self.next())
            .collect::<Vec<f64>>();
        if dtype == DType::Bool {
            return Tensor::from_bools(
                shape,
                values.into_iter().map(|value| value > (low + high) / 2.0),
            )
            .unwrap();
        }
        Tensor::from_f64(dtype, shape, values).unwrap()
    }
}

/// Returns the relative and absolute tolerance of a dtype, those of `torch.testing.assert_close`.
fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (1e-3, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F32 => (1.3e-6, 1e-5),
        DType::F64 => (1e-7, 1e-7),
        _ => (0.0, 0.0),
    }
}

/// Returns the first difference beyond the tolerances.
fn difference(found: &Tensor, expected: &Tensor) -> Option<String> {
    if (found.dtype(), found.shape()) != (expected.dtype(), expected.shape()) {
        return Some(format!("{found:?} is not {expected:?}"));
    }
    let (relative, absolute) = tolerance(expected.dtype());
    if !expected.dtype().is_float() {
        let pairs = found.to_i64().into_iter().zip(expected.to_i64());
        return pairs
            .enumerate()
            .find(|(_, (x, y))| x != y)
            .map(|(place, (x, y))| format!("[{place}] {x} is not {y}"));
    }
    let pairs = found.to_f64().into_iter().zip(expected.to_f64());
    let differs = |x: f64, y: f64| {
        let same = x == y || (x.is_nan() && y.is_nan());
        let distance = (x - y).abs();
        !same && (distance.is_nan() || distance > absolute + relative * y.abs())
    };
    pairs
        .enumerate()
        .find(|(_, (x, y))| differs(*x, *y))
        .map(|(place, (x, y))| format!("[{place}] {x} is not {y}"))
}

fn program(device: &GpuDevice, graph: &Graph) -> Result<Program> {
    let plan = plan::plan(graph, device.capabilities())?;
    Program::new(device, plan, &Default::default(), ProgramOptions::default())
}

/// Runs a program on inputs and compares its outputs with the oracle's.
fn compare(name: &str, graph: &Graph, program: &Result<Program>, inputs: &[Tensor]) -> Vec<String> {
    let expected = interp::run(graph, &BTreeMap::new(), inputs)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let found = match program.as_ref().map(|program| program.run(inputs)) {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return vec![format!("{name}: {error}")],
        // The device lacks double precision, which is not a difference.
        Err(error) if error.message().contains("no double precision") => return Vec::new(),
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let pairs = found.iter().zip(&expected).enumerate();
    pairs
        .filter_map(|(index, (found, expected))| {
            difference(found, expected).map(|what| format!("{name}, output {index}: {what}"))
        })
        .collect()
}

fn report(failures: Vec<String>) {
    assert!(
        failures.is_empty(),
        "{} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn samples_agree() {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    for (name, graph) in samples::all() {
        let program = program(&device, &graph);
        for (round, (b, s, h)) in [(2, 5, 13), (3, 70, 8)].into_iter().enumerate() {
            let bindings = Bindings::from([("B".into(), b), ("S".into(), s), ("H".into(), h)]);
            let mut random = RandomNumbers(round as u64);
            let inputs: Vec<Tensor> = graph
                .inputs
                .iter()
                .map(|input| {
                    let ty = graph.ty(*input);
                    let (low, high) = if ty.dtype.is_float() {
                        (-2.0, 2.0)
                    } else {
                        (-3.0, 4.0)
                    };
                    random.tensor(ty.dtype, &ty.sizes(&bindings).unwrap(), low, high)
                })
                .collect();
            failures.extend(compare(
                &format!("{name} at {b}, {s}, {h}"),
                &graph,
                &program,
                &inputs,
            ));
        }
    }
    report(failures);
}

/// Returns numbers at which functions have special values.
fn special_values(dtype: DType) -> Vec<f64> {
    if !dtype.is_float() {
        return vec![0.0, 1.0, -1.0, 2.0, -3.0, 7.0, 127.0, -128.0, 255.0, 100.0];
    }
    let edges = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        2.0,
        3.0,
    ];
    let wide = [
        1e-6, -1e-6, 1e-3, 88.0, -88.0, 100.0, -100.0, 1e4, -1e4, 12.0, -12.0, 0.99, 1.01, 4.0,
        -4.0,
    ];
    [edges.as_slice(), &wide].concat()
}

fn dtypes(device: &GpuDevice) -> Vec<DType> {
    let can = |dtype: &DType| *dtype != DType::F64 || device.capabilities().float64;
    DType::ALL.into_iter().filter(can).collect()
}

#[test]
fn unary_functions_agree() {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    for dtype in dtypes(&device) {
        for function in UnaryFunction::ALL {
            if let Some(found) = unary(&device, dtype, *function) {
                failures.extend(found);
            }
        }
    }
    report(failures);
}

/// Mesa's rasteriser takes numbers above 2²⁴ for integers if its vectors have 512 bits.
#[test]
fn doubles_are_rounded_exactly() {
    let Some(device) = device() else { return };
    if !device.capabilities().float64 {
        return println!("skipped: no double precision");
    }
    let halves = (-9..10).map(|x| f64::from(x) / 2.0);
    let large = [
        16_777_217.5,
        8.2e11 + 0.25,
        4_503_599_627_370_495.5,
        9e15,
        1e300,
    ];
    let signed = large.iter().flat_map(|x| [*x, -*x]);
    let values = halves.chain(signed).chain([1e-300, f64::INFINITY]);
    let values: Vec<f64> = values.collect();
    let ty = TensorType::new(DType::F64, [values.len()]);
    let input = [Tensor::from_vec([values.len()], values).unwrap()];
    for function in [
        UnaryFunction::Floor,
        UnaryFunction::Ceil,
        UnaryFunction::Round,
        UnaryFunction::Trunc,
    ] {
        let graph = samples::graph(&[&ty.to_string()], |b, x| {
            vec![b.apply(Unary { function }, vec![x[0].into()])]
        });
        let found = program(&device, &graph).unwrap().run(&input).unwrap();
        let expected = interp::run(&graph, &BTreeMap::new(), &input).unwrap();
        assert_eq!(found[0].to_f64(), expected[0].to_f64(), "{function:?}");
    }
}

/// Returns the differences of a unary function; `None` if it is not defined for the dtype.
fn unary(device: &GpuDevice, dtype: DType, function: UnaryFunction) -> Option<Vec<String>> {
    let mut values = special_values(dtype);
    let (low, high) = function.sample_range();
    let mut random = RandomNumbers(7);
    values.extend((0..400).map(|_| low + (high - low) * random.next()));
    if dtype == DType::F32 && matches!(function, UnaryFunction::Sin | UnaryFunction::Cos) {
        values.extend((0..100).map(|k| 1.7f64.powi(k)));
    }
    let x = Tensor::from_f64(dtype, [values.len()], values.clone()).unwrap();
    let defined = Unary { function };
    let ty = TensorType::new(dtype, [values.len()]);
    let symbols = onionskin::symbols::Symbols::default();
    Primitive::from(defined.clone())
        .infer(&symbols, &[Operand::Value(&ty)])
        .ok()?;
    let graph = samples::graph(&[&ty.to_string()], |b, x| {
        vec![b.apply(defined.clone(), vec![x[0].into()])]
    });
    let program = program(device, &graph);
    let name = format!("{} {dtype}", function.name());
    Some(compare_each(&name, &graph, &program, &[x]))
}

/// Compares results; the message of the first difference shows its operands.
fn compare_each(
    name: &str,
    graph: &Graph,
    program: &Result<Program>,
    inputs: &[Tensor],
) -> Vec<String> {
    let mut failures = compare(name, graph, program, inputs);
    for failure in &mut failures {
        let place = failure
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .and_then(|(place, _)| place.parse::<usize>().ok());
        if let Some(place) = place {
            let operands: Vec<f64> = inputs
                .iter()
                .filter_map(|input| input.to_f64().get(place).copied())
                .collect();
            failure.push_str(&format!(" at {operands:?}"));
        }
    }
    failures
}

#[test]
fn binary_functions_agree() {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    for dtype in dtypes(&device) {
        for function in BinaryFunction::ALL {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            // The oracle divides in double precision, which truncates differently next to integer quotients.
            let numbers = match function {
                BinaryFunction::TruncDivide => Vec::new(),
                _ => special_values(dtype),
            };
            for x in &numbers {
                for y in &numbers {
                    left.push(*x);
                    right.push(*y);
                }
            }
            let mut random = RandomNumbers(9);
            let [(low, high), (lowest, highest)] = function.sample_ranges();
            for _ in 0..300 {
                left.push(low + (high - low) * random.next());
                right.push(lowest + (highest - lowest) * random.next());
            }
            if *function == BinaryFunction::NextAfter && dtype != DType::F32 {
                continue;
            }
            let count = left.len();
            let ty = TensorType::new(dtype, [count]);
            let symbols = onionskin::symbols::Symbols::default();
            let apply = Primitive::from(Binary {
                function: *function,
            });
            if apply
                .infer(&symbols, &[Operand::Value(&ty), Operand::Value(&ty)])
                .is_err()
            {
                continue;
            }
            let text = ty.to_string();
            let graph = samples::graph(&[&text, &text], |b, x| {
                vec![b.apply(apply.clone(), vec![x[0].into(), x[1].into()])]
            });
            let program = program(&device, &graph);
            let inputs = [
                Tensor::from_f64(dtype, [count], left).unwrap(),
                Tensor::from_f64(dtype, [count], right).unwrap(),
            ];
            failures.extend(compare_each(
                &format!("{} {dtype}", function.name()),
                &graph,
                &program,
                &inputs,
            ));
        }
    }
    report(failures);
}

#[test]
fn casts_agree() {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    for from in dtypes(&device) {
        for to in dtypes(&device) {
            let numbers = [
                0.0, 1.0, -1.0, 0.4, -0.6, 2.5, 100.25, 127.0, -128.0, 255.0, 300.0, -40000.0,
                65504.0, 70000.0, 1e-7, 6.1e-5, 3e-5,
            ];
            let x = Tensor::from_f64(from, [numbers.len()], numbers.to_vec()).unwrap();
            let graph = samples::graph(&[&x.tensor_type().to_string()], |_, x| vec![x[0].to(to)]);
            failures.extend(compare_each(
                &format!("{from} to {to}"),
                &graph,
                &program(&device, &graph),
                &[x],
            ));
        }
    }
    report(failures);
}

/// Builds a graph for each dtype for which the primitive is defined.
fn each_dtype(
    device: &GpuDevice,
    name: &str,
    shapes: &[&str],
    range: (f64, f64),
    body: impl for<'g> Fn(&[Value<'g>]) -> Vec<Value<'g>>,
) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in dtypes(device) {
        let types: Vec<String> = shapes
            .iter()
            .map(|shape| format!("{dtype}{shape}"))
            .collect();
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        let Some(graph) = samples::try_graph(&types, |_, x| body(x)) else {
            continue;
        };
        let (low, high) = range;
        let mut random = RandomNumbers(3);
        let bindings = Bindings::from([("B".into(), 3), ("S".into(), 40), ("H".into(), 6)]);
        let inputs: Vec<Tensor> = graph
            .inputs
            .iter()
            .map(|input| {
                let sizes = graph.ty(*input).sizes(&bindings).unwrap();
                random.tensor(dtype, &sizes, low, high)
            })
            .collect();
        let program = program(device, &graph);
        failures.extend(compare(
            &format!("{name} {dtype}"),
            &graph,
            &program,
            &inputs,
        ));
    }
    failures
}

#[test]
fn kernels_agree_for_every_dtype() {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    let small = (-4.0, 4.0);
    for function in [
        ReduceFunction::Sum,
        ReduceFunction::Prod,
        ReduceFunction::Max,
        ReduceFunction::Min,
    ] {
        for axes in [vec![0], vec![1], vec![0, 2], vec![0, 1, 2]] {
            let name = format!("{function:?} {axes:?}");
            let range = if function == ReduceFunction::Prod {
                (0.8, 1.2)
            } else {
                small
            };
            failures.extend(each_dtype(&device, &name, &["[B, S, 4]"], range, |x| {
                vec![x[0].builder().apply(
                    Reduce {
                        function,
                        axes: axes.clone(),
                    },
                    vec![x[0].into()],
                )]
            }));
        }
    }
    for axis in 0..3 {
        failures.extend(each_dtype(&device, "argmax", &["[B, S, 4]"], small, |x| {
            vec![x[0].argmax(axis, false)]
        }));
        failures.extend(each_dtype(&device, "argmin", &["[B, S, 4]"], small, |x| {
            vec![x[0].argmin(axis, true)]
        }));
        failures.extend(each_dtype(&device, "sort", &["[B, S, 4]"], small, |x| {
            let (values, indices) = x[0].sort(axis, axis == 1);
            vec![values, indices]
        }));
        for function in [
            ScanFunction::Sum,
            ScanFunction::Prod,
            ScanFunction::Max,
            ScanFunction::Min,
            ScanFunction::LogSumExp,
        ] {
            let range = if function == ScanFunction::Prod {
                (0.8, 1.2)
            } else {
                small
            };
            failures.extend(each_dtype(
                &device,
                &format!("scan {function:?}"),
                &["[B, S, 4]"],
                range,
                |x| vec![x[0].scan(function, axis)],
            ));
        }
    }
    failures.extend(each_dtype(
        &device,
        "neighbours",
        &["[B, 8, 12]", "[8, 1]"],
        small,
        |x| {
            let turned = x[0].permute([0, 2, 1]).narrow(1, 1, 8);
            vec![x[0] * x[1], turned, x[0].narrow(2, 3, 8) + x[1]]
        },
    ));
    failures.extend(each_dtype(
        &device,
        "dot",
        &["[B, 9, S]", "[B, S, 5]"],
        small,
        |x| vec![x[0].dot(x[1])],
    ));
    failures.extend(each_dtype(
        &device,
        "dot of a row",
        &["[1, S]", "[S, 130]"],
        small,
        |x| vec![x[0].dot(x[1])],
    ));
    let axis = |stride, low, high, dilation, base_dilation| ConvAxis {
        stride,
        low,
        high,
        dilation,
        base_dilation,
    };
    let geometries = [
        vec![axis(1, 0, 0, 1, 1), axis(1, 0, 0, 1, 1)],
        vec![axis(2, 1, 1, 1, 1), axis(1, 2, 2, 2, 1)],
        vec![axis(1, 1, 2, 1, 2), axis(1, 2, 2, 1, 3)],
        vec![axis(1, -1, 0, 1, 1), axis(1, 0, -1, 1, 1)],
    ];
    for (number, axes) in geometries.into_iter().enumerate() {
        failures.extend(each_dtype(
            &device,
            &format!("conv {number}"),
            &["[B, 6, H, 9]", "[8, 3, 3, 2]"],
            small,
            |x| vec![x[0].conv(x[1], axes.clone(), 2)],
        ));
    }
    for function in [
        ScatterFunction::Set,
        ScatterFunction::Add,
        ScatterFunction::Mul,
        ScatterFunction::Max,
        ScatterFunction::Min,
    ] {
        failures.extend(each_dtype(
            &device,
            &format!("scatter {function:?}"),
            &["[B, 7]", "[2, S]"],
            small,
            |x| {
                let index = x[1].to(DType::I64) * 1;
                let clamped = index.clamp(Some((-7).into()), Some(6.into()));
                vec![x[0].scatter(1, clamped, x[1], function)]
            },
        ));
        // All elements of a row meet at one element, whose position no element of the index changes.
        failures.extend(each_dtype(
            &device,
            &format!("scatter {function:?} to a constant position"),
            &["[B, 7]", "[2, 2]"],
            small,
            |x| {
                let index = x[0].builder().full(DType::I64, x[1].shape(), 3);
                vec![x[0].scatter(1, index, x[1], function)]
            },
        ));
    }
    report(failures);
}
