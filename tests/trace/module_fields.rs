//! Fields and containers of modules: shared modules, tuples, maps, parameters and buffers, state dicts.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use onionskin::dtype::DType;
use onionskin::ir::Weights;
use onionskin::nn::{self, BatchNorm1d, Linear, NLLLoss, ReLU, Sequential, SpectralNorm};
use onionskin::tensor::Tensor;
use onionskin::trace::{
    Buffer, Forward, Method, Module, Parameter, TracedTensor, init, load_matching, load_state_dict,
    named_buffers, named_parameters, state, state_dict, trace_module,
};

fn value(shape: &[usize], number: f64) -> Tensor {
    Tensor::full(DType::F32, shape, number).unwrap()
}

fn paths(tensors: Vec<(String, TracedTensor)>) -> Vec<String> {
    tensors.into_iter().map(|(path, _)| path).collect()
}

/// A network whose layers are one module, as ALBERT's are.
#[derive(Module)]
struct Shared {
    layers: Vec<Arc<Linear>>,
    again: Rc<Linear>,
    pair: (Linear, ReLU),
    heads: BTreeMap<String, Linear>,
}

fn shared() -> Shared {
    let layer = Arc::new(Linear::new(2, 2).bias(false));
    let tied = Linear::new(2, 2).bias(false).tied(layer.weight());
    let head = || Linear::new(2, 1).bias(false);
    Shared {
        layers: vec![layer.clone(), layer],
        again: Rc::new(tied),
        pair: (head(), ReLU::new()),
        heads: [("b", head()), ("a", head())]
            .map(|(name, head)| (name.to_string(), head))
            .into(),
    }
}

impl Forward<&TracedTensor> for Shared {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.layers.iter().fold(x.clone(), |x, layer| layer.call(x));
        let x = self.again.call(x);
        self.pair.1.call(self.pair.0.call(&x)) + self.heads["a"].call(x)
    }
}

#[test]
fn shared_modules_tuples_and_maps_are_modules() {
    let net = shared();
    let names = [
        "layers.0.weight",
        "layers.1.weight",
        "again.weight",
        "pair.0.weight",
        "heads.a.weight",
        "heads.b.weight",
    ];
    assert_eq!(paths(state(&net)), names);
    let forward = |net: &Shared, x: TracedTensor| net.call(&x);
    let x = TracedTensor::from(value(&[1, 2], 1.0));
    let traced = trace_module(&net, [Method::new("forward", x, forward)]).unwrap();
    let weights: Vec<&str> = traced.module.weights.keys().map(String::as_str).collect();
    assert_eq!(
        weights,
        ["heads.a.weight", "layers.0.weight", "pair.0.weight"]
    );
    let nodes = traced.graph("forward").unwrap().nodes.iter();
    let modules: Vec<&str> = nodes.map(|node| node.place.module.as_str()).collect();
    let wanted = [
        "layers.0",
        "layers.0#1",
        "again",
        "pair.0",
        "pair.1",
        "heads.a",
        "",
    ];
    assert_eq!(modules, wanted);
}

/// Files of Hugging Face name a tied weight once.
#[test]
fn a_state_dict_may_lack_names_of_a_shared_parameter() {
    let net = shared();
    let mut values = state_dict(&net).unwrap();
    values.retain(|name, _| !name.starts_with("layers."));
    values.insert("again.weight".to_string(), value(&[2, 2], 3.0));
    load_state_dict(&net, &values).unwrap();
    assert_eq!(net.layers[0].weight().to_vec::<f32>().unwrap(), [3.0; 4]);
    let unmatched = load_matching(&net, &Weights::new()).unwrap();
    assert_eq!(unmatched.missing.len(), 6);
}

#[test]
fn contradicting_values_of_a_shared_parameter_are_refused() {
    let net = shared();
    let before = state_dict(&net).unwrap();
    let mut values = before.clone();
    values.insert("again.weight".to_string(), value(&[2, 2], 3.0));
    let error = load_state_dict(&net, &values).unwrap_err();
    let message = "layers.0.weight and again.weight are one parameter, but their values differ";
    assert_eq!(error.message(), message);
    assert_eq!(state_dict(&net).unwrap(), before, "nothing is loaded");
}

/// As `named_parameters` and `named_buffers` of PyTorch's modules do.
#[test]
fn parameters_and_buffers_are_told_apart() {
    #[derive(Module)]
    struct Net {
        norm: BatchNorm1d,
        loss: NLLLoss,
        spectral: SpectralNorm<Linear>,
        position: Buffer,
    }
    let net = Net {
        norm: BatchNorm1d::new(2),
        loss: NLLLoss::new().weight(value(&[2], 1.0)),
        spectral: SpectralNorm::new(Linear::new(2, 2)),
        position: Buffer::from(value(&[3], 0.0)),
    };
    let original = "spectral.parametrizations.weight.original";
    let parameters = ["norm.weight", "norm.bias", "spectral.bias", original];
    assert_eq!(paths(named_parameters(&net)), parameters);
    let buffers = [
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
        "loss.weight",
        "spectral.parametrizations.weight.0._u",
        "spectral.parametrizations.weight.0._v",
        "position",
    ];
    assert_eq!(paths(named_buffers(&net)), buffers);
    assert_eq!(state(&net).len(), parameters.len() + buffers.len());
}

#[test]
fn a_clone_of_a_parameter_is_its_own_and_a_share_is_not() {
    let weight = Parameter::new([2], init::ones());
    let (copy, shared) = (weight.clone(), weight.share());
    weight.add_(1.0);
    let values = [&weight, &copy, &shared].map(|tensor| tensor.to_vec::<f32>().unwrap());
    assert_eq!(values, [[2.0, 2.0], [1.0, 1.0], [2.0, 2.0]]);
    let sum: TracedTensor = 2.0 * &weight - &copy;
    assert_eq!(sum.to_vec::<f32>().unwrap(), [3.0, 3.0]);
    assert_eq!((-&weight).to_vec::<f32>().unwrap(), [-2.0, -2.0]);
}

#[test]
fn a_parameter_that_cannot_be_drawn_tells_its_line() {
    let line = line!() + 1;
    let weight = Parameter::new([2], init::kaiming_uniform());
    let error = weight.error().unwrap().to_string();
    assert!(error.contains("needs two axes or more"), "{error}");
    assert!(
        error.contains(&format!("module_fields.rs:{line}")),
        "{error}"
    );
}

#[test]
fn saved_parameters_are_read_again() {
    let (net, other) = (Linear::new(3, 2), Linear::new(3, 2));
    let file =
        std::env::temp_dir().join(format!("onionskin-save-{}.safetensors", std::process::id()));
    nn::save(&file, &net).unwrap();
    let values = nn::load(&file);
    std::fs::remove_file(&file).unwrap();
    load_state_dict(&other, &values.unwrap()).unwrap();
    assert_eq!(state_dict(&other).unwrap(), state_dict(&net).unwrap());
}

#[test]
fn chains_are_shared_by_threads_and_list_their_modules() {
    let chain = Sequential::new()
        .add(Linear::new(2, 3))
        .named("last", ReLU::new());
    let names: Vec<&str> = chain.iter().map(|(name, _)| name).collect();
    assert_eq!((chain.len(), names), (2, vec!["0", "last"]));
    assert!(!chain.is_empty() && chain.get(2).is_none());
    let x = TracedTensor::from(value(&[1, 2], 1.0));
    let wanted = chain.call(&x).to_vec::<f32>().unwrap();
    let last = chain
        .get(1)
        .unwrap()
        .apply(&chain.get(0).unwrap().apply(&x));
    assert_eq!(last.to_vec::<f32>().unwrap(), wanted);
    let found = std::thread::scope(|scope| {
        let run = scope.spawn(|| chain.call(&x).to_vec::<f32>().unwrap());
        run.join().unwrap()
    });
    assert_eq!(found, wanted);
}
