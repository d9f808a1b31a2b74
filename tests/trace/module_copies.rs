//! Copies of modules, and their conversion to other element types.

use std::sync::Arc;

use onionskin::dtype::DType;
use onionskin::nn::{
    BatchNorm1d, Dropout, Embedding, Linear, ReLU, Sequential, TransformerEncoderLayer,
};
use onionskin::tensor::Tensor;
use onionskin::trace::{
    Forward, Module, Parameter, TracedTensor, init, load_state_dict, state, state_dict, trace,
};

/// A network of every kind of parameter and buffer.
#[derive(Clone, Module)]
struct Net {
    embedding: Embedding,
    layers: Sequential,
    norm: BatchNorm1d,
    scale: Parameter,
}

impl Net {
    fn new() -> Net {
        Net {
            embedding: Embedding::new(5, 4),
            layers: Sequential::new()
                .add(Linear::new(4, 3))
                .add(Dropout::new(0.5))
                .add(ReLU::new()),
            norm: BatchNorm1d::new(3),
            scale: Parameter::new([3], init::ones()),
        }
    }
}

impl Forward<&TracedTensor> for Net {
    type Output = TracedTensor;

    fn forward(&self, ids: &TracedTensor) -> TracedTensor {
        let hidden = self.layers.call(self.embedding.call(ids));
        self.norm.call(hidden) * &self.scale
    }
}

/// Zeros of the types of a module's state.
fn zeros(module: &impl Module) -> onionskin::ir::Weights {
    let entries = state_dict(module).unwrap().into_iter();
    let zero = |tensor: Tensor| Tensor::full(tensor.dtype(), tensor.shape(), 0.0).unwrap();
    entries.map(|(name, tensor)| (name, zero(tensor))).collect()
}

/// As `copy.deepcopy` does in PyTorch.
#[test]
fn a_clone_of_a_module_has_parameters_of_its_own() {
    let net = Net::new();
    let before = state_dict(&net).unwrap();
    let copy = net.clone();
    assert_eq!(state_dict(&copy).unwrap(), before);
    load_state_dict(&copy, &zeros(&copy)).unwrap();
    copy.train();
    assert_eq!(state_dict(&net).unwrap(), before);
    assert_ne!(state_dict(&copy).unwrap(), before);
    let ids = || TracedTensor::from([0i64, 1]);
    assert_eq!(
        net.call(&ids()).to_host().unwrap(),
        net.call(&ids()).to_host().unwrap()
    );
    assert_eq!(
        trace(&copy, ids()).unwrap().module.states.len(),
        3,
        "running statistics"
    );
}

#[test]
fn layers_made_by_clones_are_stored_apart_and_shared_ones_once() {
    let layer = TransformerEncoderLayer::new(4, 2, 8);
    let x = || TracedTensor::from([[[1f32, 2.0, 3.0, 4.0]]]);
    let weights = |chain: &Sequential| trace(chain, x()).unwrap().module.weights.len();
    let one = weights(&Sequential::new().add(layer.clone()));
    let copies = Sequential::new().add(layer.clone()).add(layer.clone());
    assert_eq!(weights(&copies), 2 * one);
    let layer = Arc::new(layer);
    let shared = Sequential::new().add(layer.clone()).add(layer);
    assert_eq!(weights(&shared), one);
}

/// Counterpart: `module.half()`; `num_batches_tracked` stays `int64`.
#[test]
fn a_module_converts_its_floating_point_state() {
    let net = Net::new();
    net.half();
    for (name, tensor) in state(&net) {
        let wanted = match name.as_str() {
            "norm.num_batches_tracked" => DType::I64,
            _ => DType::F16,
        };
        assert_eq!(tensor.dtype(), wanted, "{name}");
    }
    let ids = || TracedTensor::from([[0i64, 1, 2]]);
    let traced = trace(
        &net.layers,
        TracedTensor::from([[1f32, 2.0, 3.0, 4.0]]).to(DType::F16),
    );
    let graph = traced.unwrap().module.graphs.remove(0);
    assert_eq!(graph.ty(graph.outputs[0]).dtype, DType::F16);
    assert_eq!(net.embedding.call(ids()).dtype(), DType::F16);
    net.to(DType::F64).unwrap();
    assert_eq!(net.scale.dtype(), DType::F64);
    net.bfloat16();
    assert_eq!(net.scale.dtype(), DType::BF16);
    net.float();
    net.double();
    assert_eq!(net.scale.dtype(), DType::F64);
    let error = net.to(DType::I64).unwrap_err();
    assert!(error.message().contains("cannot be i64"), "{error}");
}

/// The value of a parameter is converted for one expression, the parameter itself is not.
#[test]
fn a_parameter_keeps_its_type_in_an_expression() {
    let scale = Parameter::new([2], init::ones());
    assert_eq!(scale.to(DType::F16).dtype(), DType::F16);
    assert_eq!(scale.dtype(), DType::F32);
}
