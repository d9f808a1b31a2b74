//! The graphs of a session: found, or imported and compiled, for a call.

use std::sync::Arc;

use super::{Session, lock, lock_under_limits};
use crate::error::{Error, Result};
use crate::gpu::Progress;
use crate::ir::{Graph, GraphModule};
use crate::item::Item;
use crate::model::compiled_graph::{CallTensors, CompiledGraph, SessionDevice, accept_inputs};
use crate::model::session_states::SessionStates;
use crate::model::{Device, no_matching_graph};
use crate::tensor::Tensor;

/// The graph that serves a call and the result of the query about it. Else the reason why the last graph does not serve
/// the call; `Err(None)` if there is no graph.
type ServingGraph<T> = Result<(Arc<CompiledGraph>, T), Option<Error>>;

/// Maximum number of compiled graphs that a session keeps. Without the limit, states whose numbers change in each run
/// would compile one graph per run.
const MAX_COMPILED_GRAPHS: usize = 64;

impl Session {
    /// Replaces a lost device, and drops the graphs that were compiled for it.
    pub(super) fn replace_lost_device(&self) -> Result<()> {
        let is_replaced = lock(&self.device).replace_lost()?;
        if let (true, Some(progress)) = (is_replaced, &self.options.progress) {
            progress(Progress::DeviceReplaced);
        }
        lock(&self.compiled_graphs).retain(|compiled_graph| !compiled_graph.is_lost());
        Ok(())
    }

    /// The compiled graphs of a method, oldest first.
    pub(super) fn compiled_graphs_of(
        &self,
        method: &str,
    ) -> impl Iterator<Item = Arc<CompiledGraph>> {
        let compiled_graphs = self.compiled_graphs().into_iter();
        compiled_graphs.filter(move |compiled_graph| compiled_graph.graph.name == method)
    }

    /// A compiled graph without states that serves a call, and its inputs. Calls of such graphs do not wait for each
    /// other.
    pub(super) fn find_stateless(
        &self,
        method: &str,
        call_tensors: CallTensors,
    ) -> Option<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let mut stateless = self
            .compiled_graphs_of(method)
            .filter(|compiled_graph| !compiled_graph.graph.has_states());
        stateless.find_map(|compiled_graph| {
            let inputs = accept_inputs(
                &compiled_graph.graph,
                call_tensors,
                &SessionStates::default(),
            )
            .ok()?;
            Some((compiled_graph, inputs))
        })
    }

    /// The compiled graph that serves a call, and its inputs. If no graph does, imports and compiles one.
    pub(super) fn compiled_graph_for(
        &self,
        method: &str,
        arguments: &[Item],
        call_tensors: CallTensors,
        states: &mut SessionStates,
    ) -> Result<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let fits = |graph: &Graph| accept_inputs(graph, call_tensors, states);
        let refusal = match self.find_serving(method, &fits)? {
            Ok(found) => return Ok(found),
            Err(refusal) => refusal,
        };
        let is_first_graph = refusal.is_none();
        let may_import =
            self.model.program().can_reimport() && (self.options.respecialize || is_first_graph);
        if !may_import && !is_first_graph {
            return Err(no_matching_graph(refusal));
        }
        let module = self.import(method, arguments, states)?;
        self.add(method, module, states)?;
        self.find_serving(method, &|graph| accept_inputs(graph, call_tensors, states))?
            .map_err(no_matching_graph)
    }

    /// The first graph of a method that serves a call, with the result of `fits`, or the reason why the last one does
    /// not. A graph compiled only for the example's sizes is compiled for all sizes if the call has others.
    pub(super) fn find_serving<T>(
        &self,
        method: &str,
        fits: &dyn Fn(&Graph) -> Result<T>,
    ) -> Result<ServingGraph<T>> {
        let mut refusal = None;
        for compiled_graph in self.compiled_graphs_of(method) {
            match fits(&compiled_graph.graph) {
                Ok(found) => return Ok(Ok((compiled_graph, found))),
                Err(error) => refusal = Some(error),
            }
        }
        let mut example_sized = lock_under_limits(&self.example_sized)?;
        for index in 0..example_sized.len() {
            let (name, module) = &example_sized[index];
            if name != method {
                continue;
            }
            let graph = module.graph(name)?;
            match fits(graph) {
                Ok(found) => {
                    let compiled_graph = self.compile(graph.clone(), module)?;
                    example_sized.remove(index);
                    return Ok(Ok((compiled_graph, found)));
                }
                Err(error) => refusal = Some(error),
            }
        }
        Ok(Err(refusal))
    }

    /// Imports a method for a call. Numbers in states that vary between calls become inputs, unless the graph then
    /// needs more conditions and loops than a graph for one number.
    fn import(
        &self,
        method: &str,
        arguments: &[Item],
        states: &SessionStates,
    ) -> Result<GraphModule> {
        let compiled_graphs: Vec<Arc<CompiledGraph>> = self.compiled_graphs_of(method).collect();
        let varying = states.varying_numbers(&compiled_graphs);
        let count_regions = |graph: &Graph| {
            let nodes = graph.nodes.iter();
            nodes.filter(|node| !node.bodies().is_empty()).count()
        };
        let max_regions = compiled_graphs
            .iter()
            .map(|compiled_graph| count_regions(&compiled_graph.graph))
            .max();
        if !varying.is_empty()
            && let Ok(module) = self
                .model
                .import_entry(method, Some(arguments), states, &varying)
            && Some(count_regions(module.graph(method)?)) <= max_regions
        {
            return Ok(module);
        }
        self.model
            .import_entry(method, Some(arguments), states, &[])
    }

    /// Compiles an imported graph, for the example's sizes first if the options ask for it.
    pub(super) fn add(
        &self,
        method: &str,
        module: GraphModule,
        states: &mut SessionStates,
    ) -> Result<()> {
        let new_states = states.add_states(&module)?;
        let graph = module.graph(method)?;
        let for_example_sizes = self.options.static_shapes
            && matches!(self.device(), Device::Gpu(_))
            && !graph.hints.is_empty();
        let graph = if for_example_sizes {
            graph.with_sizes(&graph.hints)
        } else {
            graph.clone()
        };
        // A weight of earlier graphs may be a state that this method writes.
        let outdated = |graph: &Graph| {
            let mut weights = graph.weights();
            weights.any(|(name, _)| new_states.iter().any(|state| state == name))
        };
        lock(&self.compiled_graphs).retain(|known| !outdated(&known.graph));
        lock(&self.example_sized)
            .retain(|(method, known)| !known.graph(method).is_ok_and(outdated));
        self.compile(graph, &module)?;
        if for_example_sizes {
            lock(&self.example_sized).push((method.to_string(), module));
        }
        Ok(())
    }

    /// Compiles a graph and keeps it. Drops the oldest compiled graph if there are too many.
    fn compile(&self, graph: Graph, module: &GraphModule) -> Result<Arc<CompiledGraph>> {
        let SessionDevice {
            device,
            weight_cache,
        } = lock(&self.device).clone();
        let (weights, options) = (&module.weights, &self.options);
        let compiled = CompiledGraph::new(graph, weights, &device, options, &weight_cache)?;
        let compiled_graph = Arc::new(compiled);
        let mut compiled_graphs = lock(&self.compiled_graphs);
        if compiled_graphs.len() >= MAX_COMPILED_GRAPHS {
            compiled_graphs.remove(0);
        }
        compiled_graphs.push(compiled_graph.clone());
        Ok(compiled_graph)
    }
}
