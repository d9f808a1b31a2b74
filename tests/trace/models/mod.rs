//! Networks written with `onionskin::nn` equal those that PyTorch traced: with an archive's weights they return its recorded
//! outputs, and their graph is the archive's.

use std::path::{Path, PathBuf};

use onionskin::cases;
use onionskin::compare::compare;
use onionskin::ir::Graph;
use onionskin::item::{Item, flatten_arguments};
use onionskin::nn;
use onionskin::trace::check::{Traced, diff};
use onionskin::trace::{
    Forward, Method, Module, TraceOptions, TracedTensor, Tree, load_matching, trace_module,
};
use onionskin::{Model, interp};

mod albert;
mod autoencoder;
mod convnext;
mod detr;
mod experts;
mod gpt2;
mod gru_tagger;
#[macro_use]
mod layers;
mod losses_and_decoders;
mod lstm_language_model;
mod mixer;
mod pointnet;
mod resnet;
mod small;
mod stylegan;
mod unet;
mod vit;
mod wavenet;

/// Returns a case of the corpus or of the fixtures; `None`, with a note, if this machine lacks the corpus.
fn case(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = std::env::var_os("ONIONSKIN_CORPUS").map(PathBuf::from);
    let corpus = corpus.unwrap_or_else(|| root.join("../shared/corpus"));
    let folders = [corpus, root.join("tests/fixtures/cases")];
    let mut paths = folders
        .iter()
        .map(|folder| folder.join("models").join(name));
    let found = paths.find(|path| path.is_dir());
    if found.is_none() {
        println!("no {name} here: only the fixtures were compared");
    }
    found
}

/// The folder of a network that `tests/fixtures/make_networks.py` records. One trace serves all its sets.
fn network(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures/cases/networks").join(name)
}

/// [`check_network`] of a network that takes one tensor.
fn check_network_of_one<M, O: Tree>(folder: &Path, net: &M) -> usize
where
    M: Module + for<'x> Forward<&'x TracedTensor, Output = O>,
{
    check_network(folder, net, &[], |inputs, options| {
        let forward = |net: &M, x: TracedTensor| net.call(&x);
        Method::with("forward", tensor(inputs, 0), forward, options)
    })
}

/// [`check_network`] of a network that takes two tensors.
fn check_network_of_two<M, O: Tree>(folder: &Path, net: &M) -> usize
where
    M: Module + for<'x> Forward<(&'x TracedTensor, &'x TracedTensor), Output = O>,
{
    check_network(folder, net, &[], |inputs, options| {
        let forward = |net: &M, (x, y): (TracedTensor, TracedTensor)| net.call((&x, &y));
        let inputs = (tensor(inputs, 0), tensor(inputs, 1));
        Method::with("forward", inputs, forward, options)
    })
}

/// Checks that a network with an archive's weights, traced with the inputs of the first set, has the archive's graph and
/// returns the outputs of all sets. `unused` are tensors of the archive that the network does not have.
///
/// For sizes that break a guard, the network is traced again, just as an archive is imported again. Returns the number of
/// traces.
fn check_network<'f, M: Module>(
    folder: &Path,
    module: &M,
    unused: &[&str],
    method: impl Fn(&[Item], TraceOptions) -> Method<'f, M>,
) -> usize {
    let archive = folder.join("model.pt");
    let unmatched = load_matching(module, &nn::load(&archive).unwrap()).unwrap();
    assert_eq!(unmatched.missing, [""; 0]);
    assert_eq!(unmatched.unexpected, unused);
    let imported = Model::open(&archive).unwrap().import().unwrap();
    let wanted = imported.graph("forward").unwrap();
    let names: Vec<String> = wanted
        .input_trees
        .iter()
        .map(|input| input.name.clone())
        .collect();
    let trace = |inputs: &[Item]| {
        let options = TraceOptions {
            names: names.clone(),
            ..TraceOptions::default()
        };
        trace_module(module, [method(inputs, options)]).unwrap()
    };
    let case = cases::find(folder).unwrap().remove(0).load().unwrap();
    let mut traced = trace(&case.sets[0].calls[0].inputs);
    let mut traces = 1;
    assert_eq!(traced.warnings, []);
    check_same_graph(wanted, traced.graph("forward").unwrap());
    for set in &case.sets {
        let call = &set.calls[0];
        if !guards_hold(traced.graph("forward").unwrap(), &call.inputs) {
            traced = trace(&call.inputs);
            traces += 1;
        }
        let got = run(&traced, &call.inputs);
        let differences = compare(&got, &call.output, set.tolerance);
        let wrong = differences.iter().find(|difference| !difference.passed());
        assert!(wrong.is_none(), "{}: {}", set.label, wrong.unwrap());
    }
    traces
}

/// Checks that graphs do the same, with equal names of weights and paths of modules, at the user's lines.
fn check_same_graph(wanted: &Graph, graph: &Graph) {
    if let Some(difference) = diff(wanted, graph) {
        panic!("{difference}");
    }
    assert_eq!(names_of_weights(graph), names_of_weights(wanted));
    assert_eq!(paths(graph), paths(wanted));
    for node in &graph.nodes {
        let line = node.place.location.as_ref().unwrap();
        let is_users = line.file.starts_with("tests/trace/");
        assert!(is_users, "{line} is not a line of the user's source");
    }
}

/// True if the graph's guards hold for the sizes of inputs.
fn guards_hold(graph: &Graph, inputs: &[Item]) -> bool {
    let inputs = flatten_arguments(&graph.input_trees, inputs).unwrap();
    let shapes: Vec<&[usize]> = inputs.iter().map(|tensor| tensor.shape()).collect();
    graph.bind(&shapes).is_ok()
}

fn run(traced: &Traced, inputs: &[Item]) -> Item {
    let graph = traced.graph("forward").unwrap();
    let inputs = flatten_arguments(&graph.input_trees, inputs).unwrap();
    let outputs = interp::run(graph, &traced.module.weights, &inputs).unwrap();
    let tree = graph.output_tree.clone().unwrap();
    Item::build(&tree, &outputs, &Default::default()).unwrap()
}

fn names_of_weights(graph: &Graph) -> Vec<&str> {
    let mut names: Vec<&str> = graph.weights().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

/// Returns the module paths of a graph's nodes.
fn paths(graph: &Graph) -> Vec<&str> {
    let nodes = graph.nodes.iter();
    nodes.map(|node| node.place.module.as_str()).collect()
}

/// Returns the tensor of an argument.
fn tensor(inputs: &[Item], index: usize) -> TracedTensor {
    match &inputs[index] {
        Item::Tensor(tensor) => tensor.clone().into(),
        other => panic!("{other:?} is not a tensor"),
    }
}
