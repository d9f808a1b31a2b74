//! Custom operators of users, on the host and on a device.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::error::Error;
use onionskin::gpu::FeatureLevel;
use onionskin::grad::Loss;
use onionskin::ir::{GraphModule, Op};
use onionskin::shape::TensorType;
use onionskin::tensor::Tensor;
use onionskin::trace::check::Traced;
use onionskin::trace::{CustomOperator, TracedTensor, leaf, trace_fn};
use onionskin::{CompileOptions, Device, Model};

use super::samples;

const WGSL: &str = "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let index = id.x;
    if index >= x0_size(0u) * x0_size(1u) { return; }
    let column = index % x0_size(1u);
    y0[index] = x0[index] * x1[column] + f32(column);
}
";

fn scale_columns() -> CustomOperator {
    scale_columns_as("tests.scale_columns")
}

/// An operator that scales columns and adds their number.
fn scale_columns_as(name: &str) -> CustomOperator {
    let host = |operands: &[Tensor]| {
        let [x, scale] = operands else {
            return Ok(Vec::new());
        };
        let (values, scales) = (x.to_f32(), scale.to_f32());
        let number = |(index, value): (usize, &f32)| {
            let column = index % scales.len();
            value * scales[column] + column as f32
        };
        let result = values.iter().enumerate().map(number).collect();
        Ok(vec![Tensor::from_vec(x.shape(), result)?])
    };
    CustomOperator::new(name, |types| Ok(types[..1].to_vec()), host)
}

fn with_shader(operator: CustomOperator) -> CustomOperator {
    let workgroups = |types: &[TensorType]| {
        let count = types[0].numel().ceil_div(&Dim::from(64));
        [count, Dim::ONE, Dim::ONE]
    };
    operator.with_shader(WGSL, workgroups)
}

/// The operator of the gradients of [`scale_columns`].
fn scale_columns_backward() -> CustomOperator {
    let host = |operands: &[Tensor]| {
        let [x, scale, gradient] = operands else {
            return Err(Error::input("there are three operands"));
        };
        let (values, scales, gradients) = (x.to_f32(), scale.to_f32(), gradient.to_f32());
        let of_x = gradients.iter().zip(scales.iter().cycle());
        let of_x = of_x.map(|(gradient, scale)| gradient * scale).collect();
        let mut of_scale = vec![0.0; scales.len()];
        for (index, (value, gradient)) in values.iter().zip(&gradients).enumerate() {
            of_scale[index % scales.len()] += value * gradient;
        }
        Ok(vec![
            Tensor::from_vec(x.shape(), of_x)?,
            Tensor::from_vec(scale.shape(), of_scale)?,
        ])
    };
    let types = |types: &[TensorType]| Ok(types[..2].to_vec());
    CustomOperator::new("tests.scale_columns_backward", types, host)
}

fn example(rows: usize, columns: usize) -> TracedTensor {
    let data = (0..rows * columns)
        .map(|i| (i as f32 * 0.3).sin())
        .collect();
    TracedTensor::from_vec([rows, columns], data)
}

fn program(operator: CustomOperator) -> impl Fn((TracedTensor, TracedTensor)) -> TracedTensor {
    move |(x, scale): (TracedTensor, TracedTensor)| {
        let inside = (&x * 2.0).tanh();
        let scaled = operator.call(&[&inside, &scale]).swap_remove(0);
        &scaled * 0.5 + &x
    }
}

/// Checks that the traced program and the program itself agree on the host and on a device, for other sizes too.
fn agrees(traced: &Traced, program: &dyn Fn((TracedTensor, TracedTensor)) -> TracedTensor) {
    let text = traced.module.to_string();
    let parsed: GraphModule = text.parse().unwrap();
    assert_eq!(parsed.graphs, traced.module.graphs, "{text}");
    let session = samples::device(FeatureLevel::Full).map(|device| {
        let model = Model::from_module(traced.module.clone());
        model
            .compile(&Device::from(device), &CompileOptions::default())
            .unwrap()
    });
    for rows in [3, 1, 70] {
        let inputs = || (example(rows, 4), example(1, 4).reshape(vec![4]));
        let wanted = program(inputs()).to_host().unwrap();
        let found: TracedTensor = traced.call(inputs()).unwrap();
        assert_eq!(found.to_host().unwrap(), wanted);
        let Some(session) = &session else { continue };
        let (x, scale) = inputs();
        for _ in 0..2 {
            let found = session
                .run(&[x.to_host().unwrap(), scale.to_host().unwrap()])
                .unwrap();
            for (a, b) in found[0].to_f32().iter().zip(wanted.to_f32()) {
                assert!((a - b).abs() < 1e-5, "{a} is not {b}");
            }
        }
    }
}

fn traced(program: &dyn Fn((TracedTensor, TracedTensor)) -> TracedTensor) -> Traced {
    let traced = trace_fn((example(3, 4), example(1, 4).reshape(vec![4])), program).unwrap();
    let nodes = &traced.module.graphs[0].nodes;
    let custom = nodes.iter().filter(|node| node.op.name() == "custom");
    assert_eq!(custom.count(), 1);
    traced
}

#[test]
fn a_host_function_runs_between_kernels() {
    let program = program(scale_columns());
    agrees(&traced(&program), &program);
}

#[test]
fn a_shader_runs_among_kernels() {
    let program = program(with_shader(scale_columns()));
    agrees(&traced(&program), &program);
}

/// The gradients of the sum of a program's output, on the host and on a device.
fn gradients(operator: CustomOperator) -> Vec<Vec<Vec<f32>>> {
    let traced = traced(&program(operator));
    let graph = &traced.module.graphs[0];
    let gradient = graph.gradient(&Loss::Sum, &graph.inputs).unwrap();
    let inputs = [example(3, 4), example(1, 4).reshape(vec![4])].map(|x| x.to_host().unwrap());
    let entry = gradient.name.clone();
    let module = GraphModule {
        graphs: vec![gradient],
        ..traced.module
    };
    let model = Model::from_module(module);
    let options = CompileOptions {
        entry,
        ..CompileOptions::default()
    };
    let devices = samples::device(FeatureLevel::Full).map(Device::from);
    let devices = devices.into_iter().chain([Device::Host]);
    let run = |device| {
        let session = model.compile(&device, &options).unwrap();
        let outputs = session.run(&inputs).unwrap();
        outputs[1..].iter().map(Tensor::to_f32).collect()
    };
    devices.map(run).collect()
}

#[test]
fn gradients_come_from_the_operator_for_them() {
    let (x, scale) = (example(3, 4), example(1, 4));
    let inside: Vec<f32> = (&x * 2.0).tanh().to_host().unwrap().to_f32();
    let scale = scale.to_host().unwrap().to_f32();
    let of_x = inside.iter().zip(scale.iter().cycle());
    let of_x: Vec<f32> = of_x.map(|(t, scale)| 1.0 + scale * (1.0 - t * t)).collect();
    let of_scale = (0..4).map(|column| inside[column..].iter().step_by(4).sum::<f32>() * 0.5);
    let wanted = [of_x, of_scale.collect()];
    let on_the_host = scale_columns_as("tests.with_gradient");
    let on_the_device = with_shader(scale_columns_as("tests.with_shader_and_gradient"));
    for operator in [on_the_host, on_the_device] {
        for found in gradients(operator.with_gradient(scale_columns_backward())) {
            for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
                assert!((found - wanted).abs() < 1e-5, "{found} is not {wanted}");
            }
        }
    }
}

#[test]
fn wrong_gradient_operators_are_named() {
    let fault = |operator: CustomOperator| {
        let traced = traced(&program(operator));
        let graph = &traced.module.graphs[0];
        graph.gradient(&Loss::Sum, &graph.inputs).unwrap_err()
    };
    let one_result = CustomOperator::new(
        "tests.one_gradient",
        |types| Ok(types[..1].to_vec()),
        |operands| Ok(operands[..1].to_vec()),
    );
    let integers = CustomOperator::new(
        "tests.integer_gradients",
        |types| {
            Ok(types[..2]
                .iter()
                .map(|ty| TensorType::new(DType::I64, ty.shape.clone()))
                .collect())
        },
        |operands| Ok(operands[..2].to_vec()),
    );
    let cases = [
        (
            one_result,
            "tests.one_gradient returns (f32[x_0, x_size_1]); the gradients of tests.with_wrong_gradient are (f32[x_0, x_size_1], f32[x_1_0])",
        ),
        (integers, "tests.integer_gradients returns (i64["),
    ];
    for (gradient, message) in cases {
        let error = fault(scale_columns_as("tests.with_wrong_gradient").with_gradient(gradient));
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains("custom.rs"), "{error}");
    }
}

#[test]
fn a_function_is_kept_whole_although_it_reads_values() {
    let program = |(x, scale): (TracedTensor, TracedTensor)| {
        let double = &x * 2.0;
        let chosen = leaf(
            "tests.choose",
            (double, scale),
            |(x, scale): (TracedTensor, TracedTensor)| {
                let is_large = x.abs().amax().to_scalar().is_ok_and(|m| m.to_f64() > 1.0);
                if is_large { &x * &scale } else { &x + &scale }
            },
        );
        chosen.map_or_else(|error| panic!("{error}"), |chosen| chosen + 1.0)
    };
    let traced = traced(&program);
    assert!(traced.warnings.is_empty(), "{:?}", traced.warnings);
    agrees(&traced, &program);
}

#[test]
fn a_function_that_is_not_registered_is_named() {
    let program = program(scale_columns());
    let traced = traced(&program);
    let text = traced
        .module
        .to_string()
        .replace("tests.scale_columns", "tests.unknown");
    let module: GraphModule = text.parse().unwrap();
    let inputs = [example(3, 4), example(1, 4).reshape(vec![4])].map(|x| x.to_host().unwrap());
    let error = onionskin::interp::run(&module.graphs[0], &module.weights, &inputs).unwrap_err();
    assert_eq!(
        error.message(),
        "no host function is registered as tests.unknown"
    );
    assert!(
        error.advice().unwrap().contains("tests.scale_columns"),
        "{error}"
    );
    assert!(error.to_string().contains("custom.rs"), "{error}");
}

#[test]
fn results_of_other_types_are_refused() {
    let wrong = CustomOperator::new(
        "tests.wrong",
        |types| Ok(types.to_vec()),
        |operands| Ok(vec![operands[0].reshape([operands[0].numel()])?]),
    );
    let error = trace_fn(example(2, 3), move |x| wrong.call(&[&x]).swap_remove(0)).unwrap_err();
    assert!(
        error
            .message()
            .contains("tests.wrong returned (f32[6]); the graph expects (f32[2, 3])"),
        "{error}"
    );
}

#[test]
fn a_shader_that_is_wrong_fails_with_its_text() {
    let operator = scale_columns().with_shader("fn main() { y0[0] = 1u; }", |_| {
        [Dim::ONE, Dim::ONE, Dim::ONE]
    });
    let traced = traced(&program(operator));
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let model = Model::from_module(traced.module);
    let error = model
        .compile(&Device::from(device), &CompileOptions::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("tests.scale_columns"), "{error}");
    assert!(error.to_string().contains("y0[0] = 1u"), "{error}");
    assert!(
        matches!(error.kind(), onionskin::error::ErrorKind::Plan),
        "{error}"
    );
}

#[test]
fn custom_operators_survive_passes() {
    let traced = traced(&program(with_shader(scale_columns())));
    let module = onionskin::pass::optimize_module(&traced.module).unwrap();
    let custom = module.graphs[0]
        .nodes
        .iter()
        .filter(|node| matches!(&node.op, Op::Primitive(p) if p.name() == "custom"));
    assert_eq!(custom.count(), 1);
}
