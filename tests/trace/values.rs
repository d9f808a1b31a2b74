//! Constants, casts, indices, writes, names and lines. Comments name counterparts in PyTorch's `test_tracer.py`.

use onionskin::dtype::DType;
use onionskin::nn::{Conv1d, Conv2d, ConvTranspose3d};
use onionskin::trace::check::{Id, Traced};
use onionskin::trace::{Forward, Module, Parameter, TracedTensor, kw, ops, state, trace_fn};

fn example(shape: &[usize]) -> TracedTensor {
    let data = (0..shape.iter().product::<usize>()).map(|i| i as f32 - 2.5);
    TracedTensor::from_vec(shape, data.collect())
}

fn names(traced: &Traced) -> Vec<String> {
    let nodes = traced.module.graphs[0].nodes.iter();
    nodes.map(|node| node.op.name().to_string()).collect()
}

fn agrees(traced: &Traced, program: impl Fn(TracedTensor) -> TracedTensor, shape: &[usize]) {
    let wanted = program(example(shape)).to_host().unwrap();
    let found: TracedTensor = traced.call(example(shape)).unwrap();
    assert_eq!(found.to_host().unwrap(), wanted);
}

/// Counterpart: `test_constant`.
#[test]
fn data_becomes_a_constant_that_is_warned_of() {
    let line = line!() + 1;
    let program = |x: TracedTensor| &x + TracedTensor::from_vec([2], vec![1f32, 2.0]);
    let traced = trace_fn(example(&[3, 2]), program).unwrap();
    assert_eq!(traced.warnings.len(), 1);
    assert_eq!(traced.warnings[0].id, Id::DataConstructor);
    assert!(
        traced.warnings[0]
            .place
            .to_string()
            .contains(&format!("values.rs:{line}"))
    );
    assert_eq!(
        traced.module.weights.keys().collect::<Vec<_>>(),
        ["constant"]
    );
    agrees(&traced, program, &[5, 2]);
}

#[test]
fn tensors_of_the_surroundings_are_reported_once() {
    let scale = TracedTensor::from_vec([2], vec![0.5f32, 2.0]);
    let program = |x: TracedTensor| &x * &scale + &scale;
    let traced = trace_fn(example(&[3, 2]), program).unwrap();
    let ids: Vec<Id> = traced.warnings.iter().map(|warning| warning.id).collect();
    assert_eq!(ids, [Id::CapturedConstant]);
    assert_eq!(traced.module.weights.len(), 1);
    agrees(&traced, program, &[1, 2]);
}

/// Counterpart: `test_trace_tensor_factory`.
#[test]
fn factories_are_operators_not_constants() {
    let traced = trace_fn(example(&[2]), |x| &x + ops::ones([2]) + ops::arange(2)).unwrap();
    assert!(traced.module.weights.is_empty());
    assert!(traced.warnings.is_empty());
    assert!(
        names(&traced)
            .iter()
            .any(|name| name.starts_with("aten.arange"))
    );
}

/// Counterpart: `test_wrapped_number`.
#[test]
fn numbers_do_not_promote_tensors() {
    let half = TracedTensor::from_vec([2], vec![1.0f32, 3.0]).to(DType::F16);
    assert_eq!((&half * 2.0).dtype(), DType::F16);
    assert_eq!((&half + TracedTensor::scalar(1f32)).dtype(), DType::F16);
    assert_eq!(
        (&half + TracedTensor::from_vec([1], vec![1f32])).dtype(),
        DType::F32
    );
    let integers = TracedTensor::from_vec([2], vec![1i32, 2]);
    assert_eq!((&integers * 2.5).dtype(), DType::F32);
    assert_eq!((&integers / 2).dtype(), DType::F32);
}

/// Counterpart: `test_trace_casts`. The node is that of imported graphs.
#[test]
fn each_cast_is_one_node() {
    for dtype in [DType::U8, DType::I64, DType::F16] {
        let traced = trace_fn(example(&[2]), |x| x.to(dtype)).unwrap();
        assert_eq!(names(&traced), ["cast"]);
    }
    let traced = trace_fn(
        (example(&[2]), TracedTensor::from_vec([1], vec![1i64])),
        |(x, y): (TracedTensor, TracedTensor)| x.type_as(&y),
    );
    assert_eq!(names(&traced.unwrap()), ["cast"]);
}

#[test]
fn a_conversion_that_changes_nothing_is_the_tensor_itself() {
    let program = |x: TracedTensor| {
        x.to(DType::F32).add_(1.0);
        x.to_with(DType::F32, kw!(copy = true)).mul_(2.0);
        x
    };
    let traced = trace_fn(example(&[2]), program).unwrap();
    assert_eq!(names(&traced), ["aten.add.Scalar"]);
    agrees(&traced, program, &[3]);
}

/// Counterpart: `torch._C._jit_pass_dce`, which ends every trace.
#[test]
fn unused_computations_are_not_recorded() {
    let bias = Parameter::from(example(&[3]));
    let program = |x: TracedTensor| {
        let _ = (&x + &bias).softmax(-1).rand_like();
        let copy = ops::clone(&x);
        copy.select(0, 0).zero_();
        x.relu()
    };
    let traced = trace_fn(example(&[2, 3]), program).unwrap();
    assert_eq!(names(&traced), ["aten.relu"]);
    assert!(traced.module.weights.is_empty());
    agrees(&traced, program, &[5, 3]);
}

/// Counterpart: `sum` of Python, which begins with 0.
#[test]
fn sums_of_tensors_begin_with_zero() {
    let program = |x: TracedTensor| [x.relu(), x.neg(), x.exp()].iter().sum::<TracedTensor>();
    let traced = trace_fn(example(&[2]), program).unwrap();
    let sums = ["aten.add.Scalar", "aten.add.Tensor", "aten.add.Tensor"];
    assert_eq!(names(&traced)[3..], sums);
    agrees(&traced, program, &[3]);
    let nothing: TracedTensor = Vec::<TracedTensor>::new().into_iter().sum();
    assert_eq!(nothing.to_vec::<i64>().unwrap(), [0]);
}

/// PyTorch records them as `_convolution`, like the modules.
#[test]
fn functional_convolutions_are_recorded_as_modules_are() {
    fn check<M: Module + for<'x> Forward<&'x TracedTensor, Output = TracedTensor>>(
        module: M,
        x: TracedTensor,
        function: impl Fn(&TracedTensor) -> TracedTensor,
    ) {
        let weights = trace_fn(x.clone(), |x| module.call(&x)).unwrap();
        let function = trace_fn(x, |x| function(&x)).unwrap();
        assert_eq!(names(&function), names(&weights));
        let arguments = |traced: &Traced| traced.module.graphs[0].nodes[0].arguments.clone();
        assert_eq!(arguments(&function), arguments(&weights));
    }
    let conv = Conv1d::new(2, 4, 3).padding(1).groups(2);
    let (w, b) = (conv.weight().clone(), state(&conv)[1].1.clone());
    check(conv, example(&[1, 2, 5]), |x| {
        x.conv1d_with(&w, kw!(bias = &b, padding = 1, groups = 2))
    });
    let conv = Conv2d::new(2, 4, 3).stride([2, 1]).dilation(2).bias(false);
    let w = conv.weight().clone();
    check(conv, example(&[1, 2, 9, 7]), |x| {
        x.conv2d_with(&w, kw!(stride = [2, 1], dilation = 2))
    });
    let conv = Conv2d::new(2, 4, 3).same().bias(false);
    let w = conv.weight().clone();
    check(conv, example(&[1, 2, 4, 5]), |x| {
        x.conv2d_with(&w, kw!(padding = "same"))
    });
    let conv = ConvTranspose3d::new(2, 4, 2)
        .stride(2)
        .output_padding(1)
        .bias(false);
    let w = conv.weight().clone();
    check(conv, example(&[1, 2, 2, 3, 2]), |x| {
        x.conv_transpose3d_with(&w, kw!(stride = 2, output_padding = 1))
    });
}

/// Counterpart: `test_trace_detach`, `test_trace_contiguous`, "`linear` recorded as `aten::linear`".
#[test]
fn what_does_nothing_is_recorded() {
    let weight = Parameter::from(example(&[4, 3]));
    let program = |x: TracedTensor| x.contiguous().detach().linear(&weight);
    let traced = trace_fn(example(&[2, 3]), program).unwrap();
    assert_eq!(
        names(&traced),
        ["aten.contiguous", "aten.detach", "aten.linear"]
    );
    let optimized = onionskin::pass::optimize_module(&traced.module).unwrap();
    assert!(
        !optimized.graphs[0]
            .nodes
            .iter()
            .any(|node| node.op.name() == "reshape"),
        "{optimized}"
    );
    agrees(&traced, program, &[5, 3]);
}

/// Counterpart: `test_trace_max_pool2d`: one node, whatever it is made of.
#[test]
fn a_pooling_is_one_node() {
    let program = |x: TracedTensor| x.max_pool2d([2, 2]);
    let traced = trace_fn(example(&[1, 2, 4, 6]), program).unwrap();
    assert_eq!(names(&traced), ["aten.max_pool2d"]);
    agrees(&traced, program, &[3, 2, 8, 4]);
}

/// Counterpart: negative slices and indices, `x[y]`, `index_put` with a mask.
#[test]
fn indices_of_all_kinds() {
    let programs: [fn(TracedTensor) -> TracedTensor; 5] = [
        |x| x.select(0, -1),
        |x| x.slice_with(kw!(start = -2)),
        |x| x.slice_with(kw!(start = -3, end = -1, step = 1)),
        |x| x.index([x.sum_dim([1]).argsort()]),
        |x| x.index_put([x.gt(0.0)], &TracedTensor::scalar(7f32)),
    ];
    for program in programs {
        let traced = trace_fn(example(&[4, 3]), program).unwrap();
        agrees(&traced, program, &[4, 3]);
    }
}

/// Counterpart: `test_inplace_*`: a write changes the tensor, and adds no node but the operator's.
#[test]
fn writes_of_whole_tensors_are_single_nodes() {
    let program = |x: TracedTensor| {
        let y = &x * 2.0;
        let before = y.clone();
        y.add_(1.0).relu_();
        y.masked_fill_(&x.gt(1.0), -9.0);
        y + before
    };
    let traced = trace_fn(example(&[2, 3]), program).unwrap();
    agrees(&traced, program, &[4, 3]);
    assert_eq!(
        names(&traced),
        [
            "aten.mul.Scalar",
            "aten.add.Scalar",
            "aten.relu",
            "aten.gt.Scalar",
            "aten.masked_fill.Scalar",
            "aten.add.Tensor"
        ]
    );
}

/// Counterpart: `test_trace_variable_names`.
#[test]
fn names_and_lines_are_the_programs() {
    let line = line!() + 1;
    let traced = trace_fn(example(&[2]), |x| (&x * 2.0).named("doubled").relu()).unwrap();
    let graph = &traced.module.graphs[0];
    assert_eq!(graph.value(graph.nodes[0].results[0]).name, "doubled");
    for node in &graph.nodes {
        assert!(
            node.place
                .to_string()
                .contains(&format!("values.rs:{line}")),
            "{}",
            node.place
        );
    }
}

#[test]
fn the_first_failure_is_told_and_what_follows_is_not() {
    let error = trace_fn(example(&[2, 3]), |x| x.matmul(&x).softmax(5).relu()).unwrap_err();
    let text = error.to_string();
    assert_eq!(text.matches("values.rs").count(), 1, "{text}");
    assert!(text.contains("matmul"), "{text}");
}

#[test]
fn reads_are_warned_of_with_the_value() {
    let traced = trace_fn(example(&[2]), |x| {
        let sum = x.sum().to_scalar().unwrap();
        &x * sum
    })
    .unwrap();
    assert_eq!(traced.warnings[0].id, Id::HostRead);
    assert_eq!(
        traced.warnings[0].message,
        "the program reads f32[] [-4.0]: results computed from it on the host are constants of the graph"
    );
}

/// Counterpart: "a tensor of two traces".
#[test]
fn tensors_of_another_trace_are_refused() {
    let mut leaked = None;
    trace_fn(example(&[2]), |x| {
        leaked = Some(&x * 2.0);
        x
    })
    .unwrap();
    let leaked = leaked.unwrap();
    assert_eq!(
        leaked.to_vec::<f32>().unwrap(),
        [-5.0, -3.0],
        "outside of a trace it has its value"
    );
    let error = trace_fn(example(&[2]), |x| &x + &leaked).unwrap_err();
    assert_eq!(error.message(), "a tensor of another trace is used");
}

/// Counterpart: save, load, and the bytes of both.
#[test]
fn what_is_saved_is_what_was_traced() {
    let weight = Parameter::from(example(&[4, 3]));
    let traced = trace_fn(example(&[2, 3]), |x| x.linear(&weight)).unwrap();
    let folder = std::env::temp_dir().join(format!("onionskin-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (first, second) = (folder.join("first.json"), folder.join("second.json"));
    traced.module.save(&first).unwrap();
    let loaded = onionskin::ir::GraphModule::load(&first).unwrap();
    assert_eq!(loaded.graphs, traced.module.graphs);
    assert_eq!(loaded.weights, traced.module.weights);
    loaded.save(&second).unwrap();
    let text = |path| std::fs::read_to_string(path).unwrap();
    assert_eq!(text(&first).replace("first", "second"), text(&second));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Counterpart: "deleting a weight is an error".
#[test]
fn a_weight_that_is_gone_is_named() {
    let weight = Parameter::from(example(&[4, 3]));
    let mut traced = trace_fn(example(&[2, 3]), |x| x.linear(&weight)).unwrap();
    traced.module.weights.clear();
    let error = traced
        .call::<_, TracedTensor>(example(&[2, 3]))
        .unwrap_err();
    assert_eq!(error.message(), "there is no weight constant");
}

/// Counterpart: `test_trace_topk`. A size that is a tensor's value is read, with a warning.
#[test]
fn a_size_from_a_value_is_a_read() {
    let program = |(x, k): (TracedTensor, TracedTensor)| {
        let k = k.to_scalar().unwrap().to_i64();
        x.topk(k).0
    };
    let inputs = || (example(&[5]), TracedTensor::scalar(2i64));
    let traced = trace_fn(inputs(), program).unwrap();
    assert_eq!(traced.warnings[0].id, Id::HostRead);
    let found: TracedTensor = traced.call(inputs()).unwrap();
    assert_eq!(found.to_vec::<f32>().unwrap(), [1.5, 0.5]);
    let error = trace_fn(inputs(), |(x, k): (TracedTensor, TracedTensor)| {
        x.topk(&k).0
    })
    .unwrap_err();
    assert!(
        error
            .message()
            .contains("topk wants an integer as `k`, got a tensor"),
        "{error}"
    );
}

/// A number is never an element type: `x.view(6)` is one axis of 6 elements, not a view as `f32`, whose code is 6.
#[test]
fn numbers_are_not_element_types() {
    let x = TracedTensor::from([[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert_eq!(x.view(6).shape(), [6]);
    assert_eq!(x.view(-1).shape(), [6]);
    assert_eq!(x.view(x.numel()).shape(), [6]);
    assert_eq!(x.reshape(6).shape(), [6]);
    assert_eq!(ops::zeros(3).shape(), [3]);
    assert_eq!(x.view(DType::F32).shape(), [2, 3]);
    assert!(x.to(3).error().is_some());
    let error = x.sum_dim(DType::F32).error().unwrap();
    let message = "sum wants a list of integers or None as `dim`, got an element type";
    assert_eq!(error.message(), message);
}
