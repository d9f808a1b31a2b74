//! Networks as values: names, sharing, aliasing, hierarchy, methods, captured tensors, weights. Counterparts: the tests of
//! modules in `test/jit/test_tracer.py`.

use std::collections::BTreeMap;
use std::path::Path;

use onionskin::dtype::DType;
use onionskin::ir::{Graph, Weights};
use onionskin::nn::{
    self, BatchNorm1d, BatchNorm2d, Conv2d, Dropout, Embedding, Linear, ModuleDict, ReLU,
    Sequential,
};
use onionskin::tensor::Tensor;
use onionskin::tensor_file;
use onionskin::trace::check::{Id, Traced};
use onionskin::trace::{
    Forward, Method, Module, Parameter, TracedTensor, Training, call, load_matching,
    load_state_dict, manual_seed, state, trace, trace_fn, trace_module,
};

fn ones(shape: &[usize]) -> TracedTensor {
    Tensor::full(DType::F32, shape, 1.0).unwrap().into()
}

fn parameter(values: &[f32]) -> Parameter {
    Parameter::from(Tensor::from(values))
}

fn floats(tensor: &TracedTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn paths<M: Module>(module: &M) -> Vec<String> {
    state(module).into_iter().map(|(path, _)| path).collect()
}

fn weights(traced: &Traced) -> Vec<&str> {
    traced.module.weights.keys().map(String::as_str).collect()
}

fn module_paths(graph: &Graph) -> Vec<&str> {
    let nodes = graph.nodes.iter();
    nodes.map(|node| node.place.module.as_str()).collect()
}

/// Traces a module's `forward` for `f32[2, 3]`.
fn traced<M: Module + for<'x> Forward<&'x TracedTensor, Output = TracedTensor>>(
    module: &M,
) -> Traced {
    trace(module, ones(&[2, 3])).unwrap()
}

#[derive(Module)]
struct Scale {
    factor: Parameter,
}

impl Forward<&TracedTensor> for Scale {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        x * &self.factor
    }
}

fn scale(factor: f32) -> Scale {
    Scale {
        factor: parameter(&[factor]),
    }
}

#[derive(Module)]
struct Net {
    r#in: Linear,
    blocks: Vec<Sequential>,
    heads: ModuleDict<Linear>,
    nothing: Option<Linear>,
    training: Training,
    #[module(skip)]
    _log: BTreeMap<String, f32>,
}

fn net() -> Net {
    let block = || {
        Sequential::new()
            .add(ReLU::new())
            .named("last", Linear::new(3, 3))
    };
    Net {
        r#in: Linear::new(3, 3),
        blocks: vec![block(), block()],
        heads: ModuleDict::new([
            ("b", Linear::new(3, 1).bias(false)),
            ("a", Linear::new(3, 2).bias(false)),
        ]),
        nothing: None,
        training: Training::default(),
        _log: BTreeMap::new(),
    }
}

impl Forward<&TracedTensor> for Net {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self
            .blocks
            .iter()
            .fold(self.r#in.call(x), |x, block| block.call(x));
        self.heads.get("a").unwrap().call(x)
    }
}

/// Counterpart: `state_dict` of ModuleList, ModuleDict and Sequential, `test_trace_module_with_none`.
#[test]
fn parameters_have_the_names_that_pytorch_gives_them() {
    let wanted = [
        "in.weight",
        "in.bias",
        "blocks.0.last.weight",
        "blocks.0.last.bias",
        "blocks.1.last.weight",
        "blocks.1.last.bias",
        "heads.b.weight",
        "heads.a.weight",
    ];
    assert_eq!(paths(&net()), wanted);
    let norm = paths(&BatchNorm2d::new(4));
    assert_eq!(
        norm,
        [
            "weight",
            "bias",
            "running_mean",
            "running_var",
            "num_batches_tracked"
        ]
    );
}

/// Counterpart: `test_trace_hierarchy`, ModuleList.
#[test]
fn nodes_have_the_paths_of_the_modules_that_made_them() {
    let net = net();
    let traced = traced(&net);
    let graph = traced.graph("forward").unwrap();
    let wanted = [
        "in",
        "blocks.0.0",
        "blocks.0.last",
        "blocks.1.0",
        "blocks.1.last",
        "heads.a",
    ];
    assert_eq!(module_paths(graph), wanted);
    assert!(
        !weights(&traced).contains(&"heads.b.weight"),
        "an unused parameter is not a weight"
    );
}

/// Modules without fields still have paths of their own.
#[test]
fn two_modules_without_parameters_are_told_apart() {
    #[derive(Module)]
    struct Two {
        first: ReLU,
        second: ReLU,
    }
    impl Forward<&TracedTensor> for Two {
        type Output = TracedTensor;

        fn forward(&self, x: &TracedTensor) -> TracedTensor {
            self.second.call(self.first.call(x))
        }
    }
    let traced = traced(&Two {
        first: ReLU::new(),
        second: ReLU::new(),
    });
    assert_eq!(
        module_paths(traced.graph("forward").unwrap()),
        ["first", "second"]
    );
}

/// The library calls operators at lines of its own; nodes and errors name the user's.
#[test]
fn nodes_and_errors_of_library_modules_have_the_users_line() {
    let (linear, net) = (Linear::new(3, 2), Sequential::new().add(ReLU::new()));
    let line = line!() + 1;
    let traced = trace_fn(ones(&[2, 3]), |x| net.call(linear.call(x))).unwrap();
    for node in &traced.graph("forward").unwrap().nodes {
        let location = node.place.location.as_ref().unwrap();
        assert_eq!((location.file.as_str(), location.line), (file!(), line));
    }
    let line = line!() + 1;
    let error = linear.call(ones(&[2, 5])).error().unwrap();
    assert_eq!(
        error.context().last().unwrap(),
        &format!("{}:{line}", file!())
    );
}

/// Counterpart: `test_shared_param`; PyTorch refuses "parameter sharing between modules".
#[test]
fn a_parameter_that_two_modules_share_is_stored_once() {
    #[derive(Module)]
    struct Tied {
        embedding: Embedding,
        head: Linear,
    }
    let embedding = Embedding::new(5, 3);
    let head = Linear::new(3, 5).bias(false).tied(embedding.weight());
    let tied = Tied { embedding, head };
    let ids = TracedTensor::from_vec([2], vec![4i64, 0]);
    let forward = |tied: &Tied, ids: TracedTensor| tied.head.call(tied.embedding.call(ids));
    let traced = trace_module(&tied, [Method::new("forward", ids, forward)]).unwrap();
    assert_eq!(weights(&traced), ["embedding.weight"]);
    assert_eq!(paths(&tied), ["embedding.weight", "head.weight"]);
    let value = Tensor::full(DType::F32, [5, 3], 2.0).unwrap();
    let unmatched =
        load_matching(&tied, &Weights::from([("head.weight".to_string(), value)])).unwrap();
    assert_eq!(unmatched.missing, [""; 0]);
    assert_eq!(floats(tied.embedding.weight()), [2.0; 15]);
}

/// Counterpart: `test_trace_aliased_parameter`.
#[test]
fn a_parameter_given_as_input_is_an_input() {
    let scale = scale(3.0);
    let forward = |scale: &Scale, x: TracedTensor| &x + scale.call(&x);
    let traced = trace_module(
        &scale,
        [Method::new("forward", (*scale.factor).clone(), forward)],
    )
    .unwrap();
    assert_eq!(traced.graph("forward").unwrap().inputs.len(), 1);
    let y: TracedTensor = traced.call(TracedTensor::from([5f32])).unwrap();
    assert_eq!(floats(&y), [20.0]);
}

/// Counterpart: `test_trace_modulelist`, "inverted hierarchy": a module that is an argument; "Modules that are called during
/// a trace must be registered as submodules".
#[test]
fn a_module_from_outside_is_named_after_its_type() {
    let (one, other) = (scale(2.0), scale(3.0));
    let apply = |module: &Scale, x: &TracedTensor| module.call(x);
    let traced = trace_fn(ones(&[1]), |x| {
        apply(&other, &apply(&one, &apply(&one, &x)))
    })
    .unwrap();
    assert_eq!(weights(&traced), ["scale.factor", "scale_1.factor"]);
    let graph = traced.graph("forward").unwrap();
    assert_eq!(module_paths(graph), ["scale", "scale#1", "scale_1"]);
    assert_eq!(traced.warnings, [], "parameters are not constants");
}

/// Counterpart: `test_trace_c10_ops` and captures; "Cannot insert a TracedTensor that requires grad as a constant".
#[test]
fn captured_tensors_are_constants_that_are_warned_of_and_parameters_are_weights() {
    let (captured, learned) = (ones(&[3]), parameter(&[1.0, 2.0, 3.0]));
    let traced = trace_fn(ones(&[3]), |x| x * &captured + &captured + &learned).unwrap();
    assert_eq!(weights(&traced), ["constant", "constant_1"]);
    let [warning] = traced.warnings.as_slice() else {
        panic!("{:?}", traced.warnings)
    };
    assert_eq!(warning.id, Id::CapturedConstant);
    assert_eq!(
        warning.message,
        "f32[3], made outside of the trace, became the constant constant"
    );
}

/// Counterpart: `test_constant`: `torch.tensor` within a trace.
#[test]
fn tensors_made_of_data_are_constants_that_are_warned_of() {
    let line = line!() + 2;
    let traced = trace_fn(ones(&[2]), |x| {
        x + TracedTensor::from_vec([2], vec![1f32, 2.0])
    })
    .unwrap();
    let [warning] = traced.warnings.as_slice() else {
        panic!("{:?}", traced.warnings)
    };
    assert_eq!(warning.id, Id::DataConstructor);
    assert_eq!(
        warning.message,
        "f32[2], made from host data, became the constant constant"
    );
    assert_eq!(warning.place.location.as_ref().unwrap().line, line);
}

/// Counterpart: `test_trace_multi_methods`: `trace_module(n, {forward: …, weighted_kernel_sum: …})`.
#[test]
fn methods_are_entry_graphs_over_one_set_of_weights() {
    let net = scale(4.0);
    let forward = Method::new("forward", ones(&[2]), |net: &Scale, x: TracedTensor| {
        net.call(&x)
    });
    let sum = |net: &Scale, (x, y): (TracedTensor, TracedTensor)| (x + y) * &net.factor;
    let weighted = Method::new("weighted_sum", (ones(&[2]), ones(&[2])), sum);
    let traced = trace_module(&net, [forward, weighted]).unwrap();
    assert_eq!(weights(&traced), ["factor"]);
    let y: TracedTensor = traced
        .call_entry("weighted_sum", (ones(&[3]), ones(&[3])))
        .unwrap();
    assert_eq!(floats(&y), [8.0; 3]);
    let error = traced
        .call_entry::<_, TracedTensor>("encode", ones(&[2]))
        .unwrap_err();
    assert_eq!(
        error.message(),
        "there is no entry graph encode; there is forward, weighted_sum"
    );
}

/// Counterpart: `test_trace_checker_dropout_notrain`, the training flag of modules.
#[test]
fn training_and_evaluation_are_set_in_the_whole_network() {
    let net = Sequential::new()
        .add(BatchNorm1d::new(3))
        .add(Sequential::new().add(Dropout::new(0.0)));
    let kinds = |net: &Sequential| {
        let traced = traced(net);
        let nodes = traced.graph("forward").unwrap().nodes.iter();
        nodes
            .map(|node| node.op.name().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&net), ["aten.batch_norm"]);
    net.train();
    let trained = [
        "aten.add.Scalar",
        "aten._native_batch_norm_legit_functional",
        "aten.dropout",
    ];
    assert_eq!(kinds(&net), trained, "statistics are gathered");
    let text = traced(&net).graph("forward").unwrap().to_string();
    assert!(text.contains("training=true"), "{text}");
    net.eval();
    assert_eq!(kinds(&net), ["aten.batch_norm"]);
}

/// Counterpart: `load_state_dict(strict=True)`.
#[test]
fn weights_that_do_not_fit_are_listed_at_once_and_none_is_loaded() {
    let net = Linear::new(2, 1);
    let before = floats(net.weight());
    let value = |shape: &[usize]| Tensor::full(DType::F64, shape, 7.0).unwrap();
    let wrong = Weights::from([
        ("weight".to_string(), value(&[2])),
        ("gain".to_string(), value(&[1])),
    ]);
    let error = load_state_dict(&net, &wrong).unwrap_err();
    let messages: Vec<&str> = error.iter().map(|error| error.message()).collect();
    let wanted = [
        "weight has shape [1, 2], its value has shape [2]",
        "there is no value for bias",
        "the module has no gain",
    ];
    assert_eq!(messages, wanted);
    assert_eq!(floats(net.weight()), before);
    let right = Weights::from([
        ("weight".to_string(), value(&[1, 2])),
        ("bias".to_string(), value(&[1])),
    ]);
    load_state_dict(&net, &right).unwrap();
    assert_eq!(floats(net.weight()), [7.0, 7.0]);
    assert_eq!(net.weight().dtype(), DType::F32);
}

/// Counterpart: `load_state_dict(strict=False)`.
#[test]
fn what_matches_is_loaded_and_the_rest_is_named() {
    let net = Linear::new(1, 1);
    let value = Tensor::full(DType::F32, [1], 7.0).unwrap();
    let some = Weights::from([
        ("bias".to_string(), value.clone()),
        ("gain".to_string(), value),
    ]);
    let unmatched = load_matching(&net, &some).unwrap();
    assert_eq!(unmatched.missing, ["weight"]);
    assert_eq!(unmatched.unexpected, ["gain"]);
    assert_eq!(
        floats(&net.call(&TracedTensor::from_vec([1], vec![0f32]))),
        [7.0]
    );
}

/// Counterpart: `torch.load` and `torch.jit.load` of weights.
#[test]
fn weights_are_read_from_safetensors_state_dicts_and_archives() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let dict = nn::load(fixtures.join("archives/state_dict.pt")).unwrap();
    assert!(!dict.is_empty());
    let archive = nn::load(fixtures.join("modules/recurrent/model.pt")).unwrap();
    assert!(
        archive.contains_key("lstm.weight_ih_l1_reverse"),
        "{:?}",
        archive.keys()
    );
    let file = std::env::temp_dir().join(format!("onionskin-{}.safetensors", std::process::id()));
    let entries: Vec<_> = archive.clone().into_iter().collect();
    tensor_file::write(&file, &entries).unwrap();
    let again = nn::load(&file);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(again.unwrap(), archive);
    let missing = nn::load("missing.safetensors").unwrap_err();
    assert!(
        missing.message().starts_with("missing.safetensors: "),
        "{missing}"
    );
}

/// A module rejects the inputs that PyTorch's rejects, with its messages.
#[test]
fn inputs_of_wrong_ranks_are_refused() {
    let error = BatchNorm2d::new(3).call(ones(&[2, 3])).error().unwrap();
    assert_eq!(error.message(), "BatchNorm2d expects 4D input, got 2D");
    let error = BatchNorm1d::new(3)
        .call(ones(&[2, 3, 4, 5]))
        .error()
        .unwrap();
    assert_eq!(
        error.message(),
        "BatchNorm1d expects 2D or 3D input, got 4D"
    );
    let error = Conv2d::new(3, 1, 1).call(ones(&[3])).error().unwrap();
    assert_eq!(error.message(), "Conv2d expects 3D or 4D input, got 1D");
}

/// Initial values have PyTorch's bounds, but other numbers.
#[test]
fn initial_parameters_follow_from_the_seed_and_stay_within_their_bounds() {
    let drawn = |seed| {
        manual_seed(seed);
        floats(Linear::new(16, 64).weight())
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    let values = drawn(3);
    assert!(values.iter().all(|value| value.abs() <= 0.25));
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    assert!(mean.abs() < 0.02, "{mean}");
    manual_seed(0);
    let values = floats(Embedding::new(64, 32).weight());
    let variance = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
    assert!((0.9..1.1).contains(&variance), "{variance}");
}

/// Counterpart: `test_trace_save_load_copy`: later changes of the module do not affect the trace.
#[test]
fn a_trace_keeps_the_weights_that_it_was_made_with() {
    let net = scale(2.0);
    let traced = traced(&net);
    let value = Tensor::full(DType::F32, [1], 9.0).unwrap();
    load_state_dict(&net, &Weights::from([("factor".to_string(), value)])).unwrap();
    let y: TracedTensor = traced.call(ones(&[2, 3])).unwrap();
    assert_eq!(floats(&y), [2.0; 6]);
    assert_eq!(
        floats(&call("neg", vec![(&net.factor).into()], Vec::new())[0]),
        [-9.0]
    );
}
