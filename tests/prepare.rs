//! Tests of preparing graphs: `tests/prepare/*.prepare` hold options, a line, a module, a line, and the expected result.
//! `BLESS=1` writes the found results.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod golden;

use onionskin::cases::{self, CaseArchive};
use onionskin::dtype::DType;
use onionskin::error::Result;
use onionskin::ir::{Graph, GraphModule, Op};
use onionskin::item::Item;
use onionskin::nn::{Linear, ReLU};
use onionskin::scalar::Scalar;
use onionskin::tensor::Tensor;
use onionskin::trace::prepare::{PrepareOptions, Prepared, prepare};
use onionskin::trace::{self, Forward, Method};
use onionskin::{CompileOptions, Device, Model};

#[test]
fn prepared_graphs() {
    golden::check("tests/prepare", "prepare", "\n=== prepared\n", |input| {
        let (options, text) = input.split_once("=== module\n").expect("a module");
        match prepared(&options_of(options), &module(text)) {
            Ok(Prepared { module, report }) => format!("{module}\n{report}"),
            Err(error) => format!("error: {error}\n"),
        }
    });
}

/// Prepares a module. Checks that preparing it again changes nothing and that text and JSON round-trip.
fn prepared(options: &PrepareOptions, module: &GraphModule) -> Result<Prepared> {
    let made = prepare(module, options)?;
    let again = prepare(&made.module, &PrepareOptions::default())?;
    assert!(
        again.module.graphs == made.module.graphs,
        "{}",
        again.module
    );
    assert_eq!(again.report.rewrites, []);
    let read: GraphModule = made.module.to_string().parse()?;
    assert!(read.graphs == made.module.graphs, "{}", made.module);
    let read = GraphModule::from_json(made.module.to_json("w.safetensors")?.as_bytes())?;
    assert!(read.graphs == made.module.graphs, "{}", made.module);
    Ok(made)
}

fn options_of(text: &str) -> PrepareOptions {
    let mut options = PrepareOptions::default();
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("copy-parameters", _) => options.copy_parameters = true,
            ("leaf", path) => options.leaves.push(path.into()),
            ("set", setting) => {
                let (name, value) = setting.split_once('=').expect("NAME=VALUE");
                let value = match value {
                    "true" => Scalar::Bool(true),
                    "false" => Scalar::Bool(false),
                    number => Scalar::Float(number.parse().expect("a number")),
                };
                options.fixed.push((name.into(), value));
            }
            _ => panic!("there is no option {line}"),
        }
    }
    options
}

/// Parses graphs and gives their declared weights ascending numbers.
fn module(text: &str) -> GraphModule {
    let mut module: GraphModule = text
        .parse()
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    for line in text.lines().filter_map(|line| line.strip_prefix("weight ")) {
        let (name, ty) = line.split_once(": ").expect("a type");
        let ty: onionskin::shape::TensorType = ty.parse().expect("a type");
        let shape = ty.sizes(&Default::default()).expect("sizes");
        let data = (0..shape.iter().product::<usize>()).map(|index| index as f64 / 8.0);
        let tensor = Tensor::from_f64(ty.dtype, shape, data.collect()).expect("a tensor");
        module
            .weights
            .insert(name.trim_matches('"').to_string(), tensor);
    }
    module
}

/// Every model of the repository can be prepared, still runs, and has unique names.
#[test]
fn models_are_prepared() {
    let cases = cases::find(std::path::Path::new("tests/fixtures/cases/models")).unwrap();
    assert!(!cases.is_empty());
    for found in cases {
        let case = found.load().unwrap();
        let CaseArchive::Path(path) = &case.archive else {
            panic!("{} is in no folder", found.name);
        };
        let options = PrepareOptions {
            inputs: case.sets[0].calls[0].inputs.clone(),
            ..PrepareOptions::default()
        };
        let model = Model::open(path).unwrap();
        let module = model.import_for(&options.inputs).unwrap();
        let made = prepared(&options, &module);
        let made = made.unwrap_or_else(|error| panic!("{}: {error}", found.name));
        for graph in &made.module.graphs {
            let mut names = Vec::new();
            names_of(graph, &mut names);
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{graph}");
        }
    }
}

fn names_of(graph: &Graph, names: &mut Vec<String>) {
    for node in &graph.nodes {
        assert!(!node.place.module.is_empty(), "{graph}");
        names.push(node.place.module.clone());
        node.bodies()
            .into_iter()
            .for_each(|body| names_of(body, names));
    }
}

/// A leaf module is one node in the graph, and its device program is the model's.
#[test]
fn leaves_compile() {
    let text = "graph forward(x: f32[B, 3]) {
  y = aten.relu x  @ (block.act)
  z = aten.add.Tensor y, x  @ (block)
  w = aten.tanh z
  return w
}";
    let module: GraphModule = text.parse().unwrap();
    let options = PrepareOptions {
        leaves: vec!["block".into()],
        ..PrepareOptions::default()
    };
    let made = prepare(&module, &options).unwrap().module;
    let is_region = |graph: &Graph| {
        graph
            .nodes
            .iter()
            .any(|node| matches!(node.op, Op::Region(_)))
    };
    assert!(is_region(&made.graphs[0]));
    assert!(!is_region(
        &onionskin::pass::optimize(&made.graphs[0]).unwrap()
    ));
    let x = Tensor::from_f64(DType::F32, [2, 3], vec![-1.0, 2.0, 0.5, 0.0, -3.0, 1.0]).unwrap();
    let run = |module: GraphModule| {
        let model = Model::from_module(module);
        let session = model
            .compile(&Device::Host, &CompileOptions::default())
            .unwrap();
        session.run(std::slice::from_ref(&x)).unwrap()
    };
    assert_eq!(run(made), run(module));
}

/// Results are compared on the caller's inputs.
#[test]
fn given_inputs_are_compared() {
    let module: GraphModule = "graph forward(x: f32[B, 3]) {\n  y = aten.relu x\n  return y\n}"
        .parse()
        .unwrap();
    let with = |shape: [usize; 2]| PrepareOptions {
        inputs: vec![Item::Tensor(Tensor::full(DType::F32, shape, 1.0).unwrap())],
        ..PrepareOptions::default()
    };
    let made = prepare(&module, &with([7, 3])).unwrap();
    assert_eq!(made.report.checks[0].inputs, ["f32[7, 3]"]);
    let error = prepare(&module, &with([7, 4])).unwrap_err();
    assert!(error.to_string().contains("not of shape [7, 4]"), "{error}");
}

#[derive(onionskin::trace::Module)]
struct Twice {
    block: Block,
}

#[derive(onionskin::trace::Module)]
struct Block {
    fc: Linear,
    relu: ReLU,
}

impl Forward<&trace::TracedTensor> for Block {
    type Output = trace::TracedTensor;

    fn forward(&self, x: &trace::TracedTensor) -> trace::TracedTensor {
        self.relu.call(self.fc.call(self.relu.call(x)))
    }
}

/// A module that is called several times has an instance for each call, in Rust and in PyTorch: `self.relu` of a residual
/// block.
#[test]
fn calls_of_a_module_are_instances() {
    let net = Twice {
        block: Block {
            fc: Linear::new(3, 3),
            relu: ReLU::new(),
        },
    };
    let x = trace::TracedTensor::from_vec([2, 3], vec![1f32, -2.0, 3.0, 0.5, -1.0, 2.0]);
    let forward = Method::new("forward", x, |net: &Twice, x: trace::TracedTensor| {
        net.block.call(&net.block.call(&x))
    });
    let traced = trace::trace_module(&net, [forward]).unwrap();
    let options = PrepareOptions {
        copy_parameters: true,
        ..PrepareOptions::default()
    };
    let made = prepared(&options, &traced.module).unwrap().module;
    let mut names = Vec::new();
    names_of(&made.graphs[0], &mut names);
    let block = |name: &str| ["relu", "fc", "relu_1"].map(|part| format!("{name}.{part}"));
    assert_eq!(names, [block("block"), block("block_1")].concat());
    let weights: Vec<&str> = made.graphs[0].weights().map(|(name, _)| name).collect();
    for name in [
        "block.fc.weight",
        "block.fc.bias",
        "block_1.fc.weight",
        "block_1.fc.bias",
    ] {
        assert!(
            weights.contains(&name) && made.weights.contains_key(name),
            "{name}"
        );
    }
}
