//! Methods and functions of the tracer for every operator.

use std::collections::BTreeMap;

use onionskin::aten::{self, ArgumentType, Composite, Generator, Operator, SchemaParameter};
use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::error::{Error, Result};
use onionskin::interp;
use onionskin::ir::{Argument, Builder, Weights};
use onionskin::kw;
use onionskin::tensor::Tensor;
use onionskin::trace::{Arg, TracedTensor, call, native, ops, trace_fn};

use super::sample_calls::{arguments, inputs, parse, sizes, substitute_symbols};

fn example(shape: &[usize]) -> TracedTensor {
    let count = shape.iter().product::<usize>();
    let data = (0..count).map(|i| i as f32 / 4.0 - 1.0);
    TracedTensor::from_vec(shape, data.collect())
}

fn floats(tensor: &TracedTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[test]
fn every_operator_has_a_method_or_a_function() {
    let mut found = BTreeMap::new();
    for binding in native::bindings() {
        for operator in binding.operators {
            let other = found.insert(*operator, binding.name);
            assert_eq!(other, None, "{operator} has two methods");
        }
    }
    let names: Vec<&str> = aten::operators().map(|operator| &*operator.name).collect();
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !found.contains_key(*name))
        .collect();
    let unknown: Vec<_> = found.keys().filter(|name| !names.contains(name)).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{missing:?} {unknown:?}"
    );
}

#[test]
fn sample_calls_compute_and_are_recorded() {
    let mut failures = Vec::new();
    for row in aten::rows() {
        for case in row.cases {
            if let Err(error) = check(row, case) {
                failures.push(format!("{} ({case}): {error}", row.schemas[0]));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Compares a call by the interpreter, by the tracer, and by the graph that the tracer recorded.
fn check(row: &Composite, case: &str) -> Result<()> {
    let (operator, texts) = parse(row, case)?;
    let texts = substitute_symbols(&texts, &sizes(2, 8));
    let builder = Builder::new("case");
    let mut arguments = arguments(&builder, operator, &texts)?;
    operator.seed_call(&mut arguments, &mut Generator::new(1));
    let operands = builder.finish(&[], Vec::new(), None)?;
    let operands = inputs(&operands, &Bindings::new())?;
    let wanted = interp::call(operator, &arguments, &operands, &Bindings::new())?;
    let tensors: Vec<TracedTensor> = operands.iter().cloned().map(TracedTensor::from).collect();
    let found = values(&native_call(operator, &arguments, &tensors))?;
    if found != wanted {
        return Err(Error::internal("computes something else"));
    }
    if tensors.is_empty() {
        return Ok(());
    }
    let function = |tensors: Vec<TracedTensor>| native_call(operator, &arguments, &tensors);
    let traced = trace_fn(tensors, function)?;
    let graph = traced.graph("forward")?;
    if interp::run(graph, &Weights::new(), &operands)? != wanted {
        return Err(Error::internal("records something else"));
    }
    Ok(())
}

fn values(tensors: &[TracedTensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(TracedTensor::to_host).collect()
}

fn native_call(
    operator: &Operator,
    arguments: &[Argument],
    tensors: &[TracedTensor],
) -> Vec<TracedTensor> {
    let parameters = operator.schema.parameters.iter().zip(arguments);
    let (named, positional): (Vec<_>, Vec<_>) =
        parameters.partition(|(parameter, _)| parameter.keyword_only);
    let arg = |(parameter, argument): (&SchemaParameter, &Argument)| {
        let optional = ArgumentType::Optional(Box::new(ArgumentType::DType));
        let is_dtype = [ArgumentType::DType, optional].contains(&parameter.ty);
        arg(argument, tensors, is_dtype)
    };
    let positional = positional.into_iter().map(arg);
    let named = named.into_iter();
    let named = named.map(|(parameter, argument)| (&*parameter.name, arg((parameter, argument))));
    call(&operator.schema.name, positional.collect(), named.collect())
}

fn arg(argument: &Argument, tensors: &[TracedTensor], is_dtype: bool) -> Arg {
    match argument {
        Argument::Number(code) if is_dtype => {
            Arg::DType(DType::from_torch_code(code.to_i64()).unwrap())
        }
        Argument::Value(id) => Arg::Tensor(tensors[id.index()].clone()),
        Argument::Number(number) => Arg::Number(*number),
        Argument::Size(size) => size.as_const().unwrap().into(),
        Argument::Str(text) => Arg::Str(text.clone()),
        Argument::List(items) => {
            Arg::List(items.iter().map(|item| arg(item, tensors, false)).collect())
        }
        Argument::None => Arg::None,
    }
}

#[test]
fn methods_take_what_pytorch_takes() {
    let x = example(&[2, 3]);
    assert_eq!(floats(&x.relu()), [0.0, 0.0, 0.0, 0.0, 0.0, 0.25]);
    assert_eq!(floats(&x.add(1.0)), floats(&(&x + 1.0)));
    assert_eq!(floats(&x.add_with(&x, kw!(alpha = 2))), floats(&(&x * 3.0)));
    assert_eq!(floats(&x.sum()), [-2.25]);
    assert_eq!(floats(&x.sum_dim([1])), [-2.25, 0.0]);
    let kept = x.sum_dim_with(-1, kw!(keepdim = true, dtype = DType::F64));
    assert_eq!((kept.rank(), kept.dtype()), (2, DType::F64));
    let (values, indices) = x.max_dim(1);
    assert_eq!(floats(&values), [-0.5, 0.25]);
    assert_eq!(indices.to_vec::<i64>().unwrap(), [2, 2]);
    let parts = x.split_with(2, kw!(dim = 1));
    assert_eq!(parts.len(), 2);
    assert_eq!(floats(&ops::cat_with(&parts, kw!(dim = 1))), floats(&x));
    assert_eq!(ops::stack(&[&x, &x]).rank(), 3);
    assert_eq!(floats(&x.gt(0.0).where_(&x, 0.0)), floats(&x.relu()));
    assert_eq!(floats(&ops::arange_start(1, 3).to(DType::F32)), [1.0, 2.0]);
    assert_eq!(floats(&ops::einsum("ij,ij->i", &[&x, &x])).len(), 2);
    assert_eq!(x.reshape([x.dim(1), x.dim(0)]).shape(), [3, 2]);
    assert_eq!(
        floats(&x.index([Arg::None, ops::arange(1).into()])).len(),
        2
    );
    assert_eq!(floats(&ops::pow(2.0, &x.abs())).len(), 6);
    assert_eq!(floats(&ops::clone(&x)), floats(&x));
}

/// The methods do not compile with unknown names.
#[test]
fn an_argument_of_an_unknown_name_is_told_with_a_similar_one() {
    let (x, kernel) = (example(&[1, 1, 3, 3]), example(&[1, 1, 2, 2]));
    let strides = Arg::from([2, 2]);
    let results = call(
        "conv2d",
        vec![x.into(), kernel.into()],
        vec![("strides", strides)],
    );
    let error = results[0].error().unwrap();
    assert_eq!(error.message(), "conv2d has no argument strides");
    assert_eq!(error.advice(), Some("did you mean stride?"));
    let x = example(&[2, 3]);
    let named = vec![("colour", Arg::from("red"))];
    let error = call("softmax", vec![(&x).into(), 1.into()], named)[0]
        .error()
        .unwrap();
    assert!(error.advice().unwrap().contains("ScalarType? dtype=None"));
    let (values, indices) = x.max_dim(7);
    assert!(values.error().is_some() && indices.error().is_some());
}

#[test]
fn options_are_set_by_name() {
    let x = example(&[2, 3]);
    // The values of `kw!` are evaluated where it stands: `?` leaves the function.
    let parts = |axis: Option<i64>| Some(x.split_with(1, kw!(dim = axis?)));
    assert_eq!(
        (parts(Some(1)).unwrap().len(), parts(None).is_none()),
        (3, true)
    );
    let (dim, keepdim) = (1, true);
    // A value is not taken for a parameter of its name.
    let sums = x.sum_dim_with(dim, kw!(keepdim = keepdim, dtype = DType::F64));
    let same = x.sum_dim_with(dim, |options| options.dtype(DType::F64).keepdim(keepdim));
    assert_eq!((sums.rank(), sums.dtype()), (2, DType::F64));
    assert_eq!(floats(&sums), floats(&same));
}

/// Counterpart: `test_inplace_flags`, `test_inplace_copy`.
#[test]
fn in_place_methods_change_the_tensor() {
    let function = |x: TracedTensor| {
        let before = ops::clone(&x);
        x.add_(1.0).mul_(&before).relu_();
        let rows = ops::clone(&x);
        rows.copy_(&before.sum());
        x.transpose_(0, 1);
        (x, rows, before)
    };
    let (x, rows, before) = function(example(&[2, 3]));
    let wanted = floats(&((&before + 1.0) * &before).relu().t());
    assert_eq!(floats(&x), wanted);
    assert_eq!(floats(&rows), [-2.25; 6]);
    let traced = trace_fn(example(&[2, 3]), function).unwrap();
    let (x, _, _): (TracedTensor, TracedTensor, TracedTensor) =
        traced.call(example(&[2, 3])).unwrap();
    assert_eq!(floats(&x), wanted);
}

#[test]
fn in_place_methods_keep_dtype_and_shape() {
    let counts = TracedTensor::from_vec([2], vec![1i64, 2]);
    counts.mul_(2).sub_(TracedTensor::scalar(1i32));
    assert_eq!(
        (counts.dtype(), counts.to_vec::<i64>().unwrap()),
        (DType::I64, vec![1, 3])
    );
    let error = ops::clone(&counts).add_(0.5).error().unwrap();
    assert_eq!(error.message(), "f32[2] can't be written to i64[2]");
    let error = counts.add_(example(&[3, 2])).error().unwrap();
    assert!(error.message().contains("can't be written"), "{error}");
    assert!(
        counts.to_vec::<i64>().is_err(),
        "the failed write is not silent"
    );
    let error = example(&[2]).add_(example(&[3, 2])).error().unwrap();
    assert_eq!(
        error.message(),
        "f32[3, 2] is written to f32[2] of another shape"
    );
}

#[test]
fn every_node_has_the_line_of_its_method() {
    let first = line!() + 2;
    let function = |x: TracedTensor| {
        let y = x.softmax(1);
        y.max_dim_with(0, kw!(keepdim = true))
    };
    let traced = trace_fn(example(&[2, 3]), function).unwrap();
    let nodes = &traced.graph("forward").unwrap().nodes;
    let places = nodes
        .iter()
        .map(|node| node.place.location.as_ref().unwrap());
    let lines: Vec<u32> = places
        .inspect(|place| assert!(place.file.ends_with("methods.rs"), "{}", place.file))
        .map(|place| place.line)
        .collect();
    assert_eq!(lines, [first, first + 1]);
}
