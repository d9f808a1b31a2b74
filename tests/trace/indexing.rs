//! Indices and operators record what PyTorch records for the same Python line, and give its results. The lines and their
//! order are those of `tests/fixtures/make_indexing.py`.

use onionskin::Model;
use onionskin::interp;
use onionskin::ir::{Definition, Graph, GraphModule, Weights};
use onionskin::pass::optimize_module;
use onionskin::tensor::Tensor;
use onionskin::tensor_file;
use onionskin::trace::check::diff;
use onionskin::trace::torchscript::{EntryMethod, ImportOptions, InputSpec};
use onionskin::trace::{
    Ellipsis, NewAxis, Steps, SymbolicSizes, TraceOptions, TracedTensor, Tree, trace_fn,
    trace_fn_with,
};

use super::recorded::fixtures;

/// The inputs of every line.
#[derive(Clone, Tree)]
struct Inputs {
    /// `f32[2, 3, 4]`
    x: TracedTensor,
    /// `i64[2]`: 1, 0
    i: TracedTensor,
    /// `bool[2, 3]`
    m: TracedTensor,
    /// `f32[3, 4]`
    v: TracedTensor,
    /// `i64[]`: 1
    n: TracedTensor,
}

/// A line of Python, and the same in Rust.
type Line = (&'static str, fn(&mut Inputs) -> TracedTensor);

/// All lines in order.
#[rustfmt::skip]
#[allow(clippy::eq_op, reason = "the recorded lines have equal operands")]
const LINES: &[Line] = &[
    ("x[0]", |t| t.x.i(0)),
    ("x[-1]", |t| t.x.i(-1)),
    ("x[:]", |t| t.x.i(..)),
    ("x[...]", |t| t.x.i(Ellipsis)),
    ("x[None]", |t| t.x.i(NewAxis)),
    ("x[:, None]", |t| t.x.i((.., NewAxis))),
    ("x[..., None]", |t| t.x.i((Ellipsis, NewAxis))),
    ("x[..., 0]", |t| t.x.i((Ellipsis, 0))),
    ("x[:, 0]", |t| t.x.i((.., 0))),
    ("x[:, 1:]", |t| t.x.i((.., 1..))),
    ("x[:, :2]", |t| t.x.i((.., ..2))),
    ("x[:, 1:3, ::2]", |t| t.x.i((.., 1..=2, (..).step(2)))),
    ("x[:, -2:]", |t| t.x.i((.., -2..))),
    ("x[:, :-1]", |t| t.x.i((.., ..-1))),
    ("x[:, :100]", |t| t.x.i((.., ..100))),
    ("x[:, 0:3]", |t| t.x.i((.., 0..3))),
    ("x[0, 1, 2]", |t| t.x.i((0, 1, 2))),
    ("x[0, ..., 1:3]", |t| t.x.i((0, Ellipsis, 1..3))),
    ("x[0, 1:, None, -1]", |t| t.x.i((0, 1.., NewAxis, -1))),
    ("x[:, x.size(1) - 1]", |t| t.x.i((.., t.x.dim(1) - 1))),
    ("x[:, :x.size(2) - 2]", |t| t.x.i((.., ..t.x.dim(2) - 2))),
    ("x[..., x.size(2) - 3:x.size(2)]", |t| t.x.i((Ellipsis, t.x.dim(2) - 3..t.x.dim(2)))),
    ("x[i]", |t| t.x.i(&t.i)),
    ("x[:, i]", |t| t.x.i((.., &t.i))),
    ("x[:, None, i]", |t| t.x.i((.., NewAxis, &t.i))),
    ("x[i, :, i]", |t| t.x.i((&t.i, .., &t.i))),
    ("x[i, 1:, i]", |t| t.x.i((&t.i, 1.., &t.i))),
    ("x[i, 0]", |t| t.x.i((&t.i, 0))),
    ("x[..., i]", |t| t.x.i((Ellipsis, &t.i))),
    ("x[i, ..., i]", |t| t.x.i((&t.i, Ellipsis, &t.i))),
    ("x[[0, 1]]", |t| t.x.i([0, 1])),
    ("x[:, [2, 0]]", |t| t.x.i((.., [2, 0]))),
    ("x[0, [2, 0], 1]", |t| t.x.i((0, vec![2, 0], 1))),
    ("x[:, i.view(2, 1), i]", |t| t.x.i((.., t.i.view([2, 1]), &t.i))),
    ("x[i + 0, None]", |t| t.x.i((&t.i + 0, NewAxis))),
    ("x[n]", |t| t.x.i(&t.n)),
    ("x[:, n]", |t| t.x.i((.., &t.n))),
    ("x[0] = 1.0", |t| t.x.i_put_(0, 1.0)),
    ("x[:, 0] = 2", |t| t.x.i_put_((.., 0), 2)),
    ("x[0] = v", |t| t.x.i_put_(0, &t.v)),
    ("x[:, :1] = x[:, 1:2]", |t| t.x.i_put_((.., ..1), t.x.i((.., 1..2)))),
    ("x[0, 1, 2] = n", |t| t.x.i_put_((0, 1, 2), &t.n)),
    ("x[:, 0] = v[0]", |t| t.x.i_put_((.., 0), t.v.i(0))),
    ("x[...] = v", |t| t.x.i_put_(Ellipsis, &t.v)),
    ("x[:, :1] = v[None, None, 0]", |t| t.x.i_put_((.., ..1), t.v.i((NewAxis, NewAxis, 0)))),
    ("x[i] = 3.0", |t| t.x.i_put_(&t.i, 3.0)),
    ("x[i] = v", |t| t.x.i_put_(&t.i, &t.v)),
    ("x[:, i] = v[:2]", |t| t.x.i_put_((.., &t.i), t.v.i(..2))),
    ("x[i, 1:] = v[None, 1:]", |t| t.x.i_put_((&t.i, 1..), t.v.i((NewAxis, 1..)))),
    ("x[0, i] = v[:2]", |t| t.x.i_put_((0, &t.i), t.v.i(..2))),
    ("x[[0, 1]] = v", |t| t.x.i_put_([0, 1], &t.v)),
    ("x[m] = 0.0", |t| t.x.i_put_(&t.m, 0.0)),
    ("x[m] = v[0]", |t| t.x.i_put_(&t.m, t.v.i(0))),
    ("x[0] = x[0] + 1", |t| t.x.i_put_(0, t.x.i(0) + 1)),
    ("i & 1", |t| &t.i & 1),
    ("i | i", |t| &t.i | &t.i),
    ("i ^ 3", |t| &t.i ^ 3),
    ("1 & i", |t| 1 & &t.i),
    ("m & m", |t| &t.m & &t.m),
    ("~m", |t| !&t.m),
    ("~i", |t| !&t.i),
    ("i << 1", |t| &t.i << 1),
    ("i >> 1", |t| &t.i >> 1),
    ("i & i.size(0)", |t| &t.i & t.i.dim(0)),
    ("i &= 1", |t| { t.i &= 1; t.i.clone() }),
    ("i |= i", |t| { t.i |= t.i.clone(); t.i.clone() }),
    ("i ^= 3", |t| { t.i ^= 3; t.i.clone() }),
    ("x += 1", |t| { t.x += 1; t.x.clone() }),
    ("x += x.size(0)", |t| { t.x += t.x.dim(0); t.x.clone() }),
    ("x -= v", |t| { t.x -= &t.v; t.x.clone() }),
    ("x *= 2.0", |t| { t.x *= 2.0; t.x.clone() }),
    ("x /= v", |t| { t.x /= &t.v; t.x.clone() }),
    ("x %= 2.0", |t| { t.x %= 2.0; t.x.clone() }),
    ("i <<= 1", |t| { t.i <<= 1; t.i.clone() }),
    ("i >>= 1", |t| { t.i >>= 1; t.i.clone() }),
];

/// The recorded inputs and results by name.
fn recorded() -> Weights {
    let entries = tensor_file::read(&fixtures().join("indexing/io.safetensors")).unwrap();
    entries.into_iter().collect()
}

/// Names of the inputs.
const INPUTS: [&str; 5] = ["x", "i", "m", "v", "n"];

/// Lines whose index is a number in a tensor. PyTorch reads it and selects; the tracer calls `index`.
const READ_NUMBERS: &[&str] = &["x[n]", "x[:, n]"];

/// How a line in Rust differs from the recorded one.
fn difference(model: &Model, recorded: &Weights, number: usize) -> Result<(), String> {
    let (python, rust) = LINES[number];
    let tensors = INPUTS.map(|name| recorded[name].clone());
    let wanted = &recorded[&format!("{number:02} {python}")];
    let [x, i, m, v, n] = tensors.clone().map(TracedTensor::from);
    let mut inputs = Inputs { x, i, m, v, n };
    let sizes = sizes(python);
    let options = TraceOptions {
        sizes: sizes.clone(),
        ..TraceOptions::default()
    };
    let traced = trace_fn_with(inputs.clone(), |mut inputs| rust(&mut inputs), &options);
    let traced = traced.map_err(|error| error.to_string())?.module;
    let replayed = interp::run(&traced.graphs[0], &traced.weights, &tensors).unwrap();
    let found = rust(&mut inputs).to_host();
    let found = found.map_err(|error| error.to_string())?;
    for found in [&found, &replayed[0]] {
        if found != wanted {
            return Err(format!("{found:?} instead of {wanted:?}"));
        }
    }
    let imported = imported(model, &format!("case{number}"), &tensors, sizes);
    let [imported, traced] = [imported, traced].map(|module| comparable(&module, python));
    match diff(&imported, &traced) {
        Some(difference) if !READ_NUMBERS.contains(&python) => Err(difference.to_string()),
        _ => Ok(()),
    }
}

/// True for a line that assigns to an index. PyTorch's trace has the sizes of its target as numbers.
fn assigns(python: &str) -> bool {
    python.contains("] = ")
}

/// The sizes that are symbols in the graphs of a line.
fn sizes(python: &str) -> SymbolicSizes {
    match assigns(python) {
        true => SymbolicSizes::None,
        false => SymbolicSizes::All,
    }
}

/// The graph of a method of the archive.
fn imported(model: &Model, method: &str, inputs: &[Tensor], sizes: SymbolicSizes) -> GraphModule {
    let inputs = inputs.iter();
    let inputs = inputs.map(|tensor| InputSpec::Tensor(tensor.tensor_type()));
    let entry = EntryMethod {
        method: method.to_string(),
        inputs: Some(inputs.collect()),
    };
    let options = ImportOptions {
        entries: vec![entry],
        sizes,
        ..ImportOptions::default()
    };
    model.import_with(&options).unwrap()
}

/// The graph to compare. An import has primitives in place of `fill_` and `copy_`, so that graphs of assignments are
/// compared after the passes. Constants have one name.
fn comparable(module: &GraphModule, python: &str) -> Graph {
    let mut graph = match assigns(python) {
        true => optimize_module(module).unwrap().graphs.remove(0),
        false => module.graphs[0].clone(),
    };
    for value in &mut graph.values {
        if let Definition::Weight(name) = &mut value.definition {
            *name = "constant".into();
        }
    }
    graph
}

#[test]
fn lines_record_what_pytorch_records() {
    let model = Model::open(fixtures().join("indexing/model.pt")).unwrap();
    let recorded = recorded();
    assert_eq!(recorded.len(), LINES.len() + INPUTS.len());
    let failure = |number: usize| {
        let failure = difference(&model, &recorded, number).err()?;
        Some(format!("{}: {failure}", LINES[number].0))
    };
    let failures: Vec<String> = (0..LINES.len()).filter_map(failure).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn views_share_memory_and_serve_other_sizes() {
    let function = |x: TracedTensor| {
        x.i((.., -1)).fill_(0.0);
        let mut first = x.i((0, ..));
        first += 1.0;
        x
    };
    let example = || TracedTensor::from([[1f32, 2.0], [3.0, 4.0]]);
    let wanted = [2.0, 1.0, 3.0, 0.0];
    assert_eq!(function(example()).to_vec::<f32>().unwrap(), wanted);
    let traced = trace_fn(example(), function).unwrap();
    let longer: TracedTensor = traced.call(TracedTensor::from([[1f32, 2.0, 3.0]])).unwrap();
    assert_eq!(longer.to_vec::<f32>().unwrap(), [2.0, 3.0, 1.0]);
}

#[test]
fn wrong_indices_are_told_with_their_line() {
    let x = TracedTensor::from([[1f32, 2.0]]);
    let error = x.i((.., 0, 0)).error().unwrap();
    assert_eq!(
        error.message(),
        "too many indices for a tensor of 2 dimensions: 3"
    );
    let line = line!() + 1;
    let error = x.i((.., 2)).error().unwrap().to_string();
    assert!(error.contains(&format!("indexing.rs:{line}")), "{error}");
    assert!(x.i_put_((.., 0, 0), 1.0).error().is_some());
}

#[test]
fn an_operator_that_fails_leaves_an_error() {
    let mut counts = TracedTensor::from([1i64, 2]);
    counts += 0.5;
    let error = counts.error().unwrap();
    assert_eq!(error.message(), "f32[2] can't be written to i64[2]");
}
