//! Random operators on a device.

use onionskin::aten::{self, Generator};
use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Argument, Builder, Graph, Weights};
use onionskin::pass;
use onionskin::plan;
use onionskin::scalar::Scalar;

use crate::samples;

fn int(number: i64) -> Argument {
    Argument::Number(Scalar::Int(number))
}

/// A graph that calls an operator of random numbers, with defaults for missing arguments.
fn drawn(name: &str, mut arguments: Vec<Argument>) -> Graph {
    let operator = aten::operator(name).unwrap();
    let rest = operator.schema.parameters.iter().skip(arguments.len());
    let defaults: Vec<_> = rest.map(|one| one.default.clone().unwrap()).collect();
    arguments.extend(defaults);
    let mut generator = Generator {
        seed: !0,
        counter: 5,
    };
    operator.seed_call(&mut arguments, &mut generator);
    let builder = Builder::new("draw");
    let result = operator.call(&builder, arguments).unwrap()[0].id();
    let graph = builder.finish(&[result], Vec::new(), None).unwrap();
    pass::optimize(&graph).unwrap()
}

#[test]
fn uniform_numbers_integers_and_orders_have_the_same_bits_as_on_the_host() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let size = || Argument::List(vec![Dim::from(300).into(), Dim::from(7).into()]);
    let dtype = |dtype: DType| int(dtype.torch_code());
    let graphs = [
        drawn("aten.rand", vec![size(), dtype(DType::F32)]),
        drawn("aten.rand", vec![size(), dtype(DType::F16)]),
        drawn("aten.randint", vec![int(1000), size()]),
        drawn("aten.randperm", vec![int(2000)]),
    ];
    for graph in &graphs {
        let wanted = interp::run(graph, &Weights::new(), &[]).unwrap();
        let plan = plan::plan(graph, device.capabilities()).unwrap();
        let program = Program::new(&device, plan, &Weights::new(), ProgramOptions::default());
        assert_eq!(program.unwrap().run(&[]).unwrap(), wanted, "{graph}");
    }
}

#[test]
fn normal_numbers_are_those_of_the_host_up_to_rounding() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = drawn("aten.randn", vec![Argument::List(vec![int(5000)])]);
    let wanted = interp::run(&graph, &Weights::new(), &[]).unwrap();
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let program = Program::new(&device, plan, &Weights::new(), ProgramOptions::default());
    let found = program.unwrap().run(&[]).unwrap();
    let pairs = found[0].to_f64().into_iter().zip(wanted[0].to_f64());
    let largest = pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    assert!(largest < 2e-5, "{largest}");
}
