//! Graphs: their JSON and text forms, and runs on the host.

use onionskin::dim::Bindings;
use onionskin::ir::{Graph, GraphModule};
use onionskin::shape::TensorType;
use onionskin::{CompileOptions, Device, Error, Model, Result, Tensor};

use super::archives::{import_for_examples, model_of_source};
use super::limits;

/// Largest number of elements of an input or a weight.
const ELEMENTS: usize = 1 << 16;

/// A JSON document or a text form. A valid module, printed in either form, is read back as it was.
pub fn json(data: &[u8]) {
    let Ok(module) = parse(data) else {
        return;
    };
    let text = module.to_string();
    if module.verify().is_err() {
        return;
    }
    let again: GraphModule = text.parse().expect("a printed module can be parsed");
    assert_eq!(again.to_string(), text);
    let document = module.to_json("weights.safetensors");
    let document = document.expect("a valid module can be printed");
    let again = GraphModule::from_json(document.as_bytes());
    assert_eq!(
        again.expect("a printed document can be read").graphs,
        module.graphs
    );
}

/// An archive, a source, a JSON document or a text form, imported for small inputs and run on the host.
pub fn run(data: &[u8]) {
    let _ = match data {
        [b'P', b'K', ..] => Model::from_bytes_with(data.to_vec(), &limits()).and_then(run_model),
        _ => match parse(data) {
            Ok(module) => run_module(module),
            Err(_) => model_of_source(data).and_then(run_model),
        },
    };
}

fn parse(data: &[u8]) -> Result<GraphModule> {
    if data.first() == Some(&b'{') {
        return GraphModule::from_json_with(data, &limits());
    }
    String::from_utf8_lossy(data).parse()
}

/// Runs `forward` for its traced inputs, else for examples.
fn run_model(model: Model) -> Result<()> {
    let imported = model.import().or_else(|_| {
        let arguments = import_for_examples(&model)?;
        model.import_for(&arguments)
    });
    let module = imported?;
    let arguments = example_inputs(module.graph("forward")?)?;
    let session = model.compile(&Device::Host, &CompileOptions::default())?;
    session.run(&arguments)?;
    // Another call may need another import.
    session.run(&arguments.iter().map(longer).collect::<Result<Vec<_>>>()?)?;
    Ok(())
}

/// Runs each graph of a module for its example sizes, with weights of small numbers.
fn run_module(mut module: GraphModule) -> Result<()> {
    let weights = module.graphs.iter().flat_map(|graph| {
        let weights = graph.weights();
        weights.map(|(name, id)| (name.to_string(), graph.ty(id).clone()))
    });
    let weights: Vec<(String, TensorType)> = weights.collect();
    for (name, ty) in weights {
        module.weights.insert(name, example(&ty, &Bindings::new())?);
    }
    module.verify()?;
    for graph in &module.graphs {
        let options = CompileOptions {
            entry: graph.name.clone(),
            ..CompileOptions::default()
        };
        let session = Model::from_module(module.clone()).compile(&Device::Host, &options)?;
        let _ = session.run(&example_inputs(graph)?);
    }
    Ok(())
}

/// Tensors for the inputs of a graph, by its example sizes.
fn example_inputs(graph: &Graph) -> Result<Vec<Tensor>> {
    let inputs = graph.inputs.iter();
    inputs
        .map(|id| example(graph.ty(*id), &graph.hints))
        .collect()
}

/// A tensor of small numbers; an error if it would be large.
fn example(ty: &TensorType, hints: &Bindings) -> Result<Tensor> {
    let sizes = ty.sizes(hints)?;
    let product = |count: usize, size: &usize| count.checked_mul(*size);
    let count = sizes.iter().try_fold(1, product);
    let count = count.filter(|count| *count <= ELEMENTS);
    let count = count.ok_or_else(|| Error::input("an input is large"))?;
    let numbers = (0..count).map(|index| i64::try_from(index % 3).unwrap_or(0));
    Tensor::from_i64(ty.dtype, sizes, numbers.collect())
}

/// A tensor whose first size is one more.
fn longer(tensor: &Tensor) -> Result<Tensor> {
    let mut ty = tensor.tensor_type();
    if let Some(first) = ty.shape.first_mut() {
        *first = first.clone() + 1;
    }
    example(&ty, &Bindings::new())
}
