//! Functions of libtorch's tensors: traced by libtorch, imported as graphs, and called for reference results.

use std::sync::atomic::{AtomicU64, Ordering};

use tch::nn::Module;

use super::convert::{from_libtorch, to_libtorch};
use super::{catch_panic, tch_error};
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, ValueId};
use crate::item::Item;
use crate::pass::dce;
use crate::tensor::Tensor;
use crate::trace::check::{Subject, Traced};
use crate::trace::program::{ImportOptions, InputSpec};
use crate::trace::torchscript::{Archive, import};

/// A function of libtorch's tensors, as a subject of the trace checker, which traces it again and calls it. It takes tensors
/// only.
pub struct LibtorchFunction<F> {
    function: F,
}

impl<F> std::fmt::Debug for LibtorchFunction<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LibtorchFunction").finish_non_exhaustive()
    }
}

impl<F: Fn(&[tch::Tensor]) -> Vec<tch::Tensor>> LibtorchFunction<F> {
    /// Wraps a function of a list of tensors. One result is returned as it is, several as a tuple.
    pub fn new(function: F) -> LibtorchFunction<F> {
        LibtorchFunction { function }
    }
}

impl LibtorchFunction<()> {
    /// Wraps the `forward` of a module.
    pub fn of_module<M: Module>(
        module: &M,
    ) -> LibtorchFunction<impl Fn(&[tch::Tensor]) -> Vec<tch::Tensor>> {
        LibtorchFunction::new(|inputs: &[tch::Tensor]| {
            let outputs = inputs.iter().take(1).map(|input| module.forward(input));
            outputs.collect()
        })
    }
}

/// Traces a function with these inputs as the example. Tensors that the function captures become weights.
///
/// # Errors
/// The function fails, captures a variable that requires grad (`VarStore::freeze` ends that), or does something that a graph
/// cannot hold.
pub fn trace(
    inputs: &[Tensor],
    function: impl Fn(&[tch::Tensor]) -> Vec<tch::Tensor>,
) -> Result<Traced> {
    let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
    LibtorchFunction::new(function).trace(&arguments)
}

impl<F: Fn(&[tch::Tensor]) -> Vec<tch::Tensor>> Subject for LibtorchFunction<F> {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        let inputs = tensors(arguments)?;
        let (archive, ranks) = trace_to_archive(&inputs, &self.function)?;
        let specs = arguments.iter().flat_map(Item::tensors);
        let options = ImportOptions::forward(specs.map(InputSpec::from).collect());
        let mut module = import(&archive, &options)?;
        if ranks.len() > 1 {
            let graphs = module
                .graphs
                .iter()
                .map(|graph| unpack_results(graph, &ranks));
            module.graphs = graphs.collect::<Result<_>>()?;
        }
        let warnings = Vec::new();
        Ok(Traced { module, warnings })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let inputs = tensors(arguments)?;
        let outputs = catch_panic(|| (self.function)(&inputs))?;
        let outputs = outputs
            .iter()
            .map(|output| from_libtorch(output).map(Item::Tensor));
        let mut outputs: Vec<Item> = outputs.collect::<Result<_>>()?;
        Ok(match outputs.len() {
            1 => outputs.remove(0),
            _ => Item::Tuple(outputs),
        })
    }

    fn seed(&self, seed: u64) {
        tch::manual_seed(seed.cast_signed());
    }
}

/// Copies the arguments, which must be tensors, to libtorch.
fn tensors(arguments: &[Item]) -> Result<Vec<tch::Tensor>> {
    let tensor = |item: &Item| match item {
        Item::Tensor(tensor) => to_libtorch(tensor),
        _ => Err(Error::usage("functions of libtorch take tensors only")),
    };
    arguments.iter().map(tensor).collect()
}

/// Traces a function by libtorch. Returns the archive and the ranks of the results. If the function fails, the error is
/// returned after libtorch has ended the trace.
fn trace_to_archive(
    inputs: &[tch::Tensor],
    function: &impl Fn(&[tch::Tensor]) -> Vec<tch::Tensor>,
) -> Result<(Archive, Vec<usize>)> {
    let mut ranks = Ok(Vec::new());
    let mut traced = |inputs: &[tch::Tensor]| {
        let outputs = catch_panic(|| {
            let outputs = function(inputs);
            let ranks = outputs.iter().map(tch::Tensor::dim).collect();
            (pack_results(outputs), ranks)
        });
        let (outputs, output_ranks) = match outputs {
            Ok((outputs, output_ranks)) => (outputs, Ok(output_ranks)),
            Err(error) => (
                inputs
                    .iter()
                    .take(1)
                    .map(tch::Tensor::shallow_clone)
                    .collect(),
                Err(error),
            ),
        };
        ranks = output_ranks;
        outputs
    };
    let module = tch::CModule::create_by_tracing("Traced", "forward", inputs, &mut traced);
    let ranks = ranks?;
    let module = module.map_err(|error| tch_error(&error))?;
    Ok((Archive::from_bytes(archive_bytes(&module)?)?, ranks))
}

/// Flattens and concatenates several results, since libtorch writes functions of one result only. [`unpack_results`] undoes
/// it.
fn pack_results(outputs: Vec<tch::Tensor>) -> Vec<tch::Tensor> {
    if outputs.len() < 2 {
        return outputs;
    }
    let flat = outputs.iter().map(|output| match output.dim() {
        1 => output.shallow_clone(),
        _ => output.reshape([-1]),
    });
    vec![tch::Tensor::cat(&flat.collect::<Vec<_>>(), 0)]
}

/// Returns the graph with the results that were concatenated as separate outputs of these ranks.
fn unpack_results(graph: &Graph, ranks: &[usize]) -> Result<Graph> {
    let operands = |id: &ValueId| match graph.value(*id).definition {
        Definition::Node(node, _) => graph.nodes.get(node).map(Node::operands),
        _ => None,
    };
    let concatenated = graph.outputs.first().and_then(operands).unwrap_or_default();
    let results = concatenated.iter().zip(ranks).map(|(id, rank)| match rank {
        1 => Some(*id),
        _ => operands(id)?.first().copied(),
    });
    let results: Option<Vec<ValueId>> = results.collect();
    let is_complete = |results: &Vec<ValueId>| {
        let types = results.iter().map(|id| graph.ty(*id).rank());
        types.eq(ranks.iter().copied())
    };
    let missing = || Error::internal("the separate results of the trace are not in its graph");
    let mut graph = Graph {
        outputs: results.filter(is_complete).ok_or_else(missing)?,
        ..graph.clone()
    };
    graph.output_tree = Some(graph.default_outputs());
    dce(&graph)
}

/// Returns the bytes of an archive. libtorch writes archives to files only.
fn archive_bytes(module: &tch::CModule) -> Result<Vec<u8>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("onionskin-{}-{number}.pt", std::process::id());
    let path = std::env::temp_dir().join(name);
    let saved = module.save(&path).map_err(|error| tch_error(&error));
    let bytes = saved.and_then(|()| std::fs::read(&path).map_err(|error| Error::io(&path, error)));
    // Removal fails if the file was never written.
    let _ = std::fs::remove_file(&path);
    bytes
}
