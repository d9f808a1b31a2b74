//! Search for the first value that a device computes differently from the oracle, which interprets the graph: see
//! [`interp`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::compare::Tolerance;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{self, Program, ProgramOptions, RunInput};
use crate::interp::{self, BodyFrame, BodyKind, NodeEvent, body_sizes};
use crate::ir::{Graph, Node, Weights};
use crate::item::Item;
use crate::kernel::materialization::Precision;
use crate::plan::{self, PlanOptions};
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, ValueSite};

use super::Session;

/// Note on a region whose results differ although each body agrees if it is run alone.
const BODIES_AGREE: &str = "every body of the region that ran agrees with the oracle when run alone: either allowed \
                            differences add up over iterations, or the control flow is wrong";

/// Note on a region whose bodies were not searched before the time limit.
const BODIES_UNKNOWN: &str =
    "the time limit of the search passed before the region's bodies were compared";

/// Maximum bytes of device values that the host holds at once, unless one value is larger.
const MAX_CHUNK_BYTES: usize = 256 << 20;

/// Time limit and progress callback of a search.
#[derive(Clone, Copy, Default)]
pub struct SearchOptions<'a> {
    /// The search ends after the node during which this time has passed; `None` for no limit.
    pub limit: Option<Duration>,
    /// Called after each node of the graph.
    pub progress: Option<&'a dyn Fn(SearchProgress)>,
}

impl fmt::Debug for SearchOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchOptions")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Progress of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// Nodes that the oracle has run.
    pub done: usize,
    /// Nodes of the graph.
    pub total: usize,
}

/// Outcome of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DivergenceSearch {
    /// The first value that differs.
    Found(Box<Divergence>),
    /// All values that both sides have agree. Values that were fused into kernels exist only on the oracle.
    Agreement,
    /// The time limit passed. The values of the nodes so far agree.
    Stopped(SearchProgress),
}

impl DivergenceSearch {
    /// The value that differs, if one was found.
    pub fn found(self) -> Option<Divergence> {
        match self {
            DivergenceSearch::Found(found) => Some(*found),
            DivergenceSearch::Agreement | DivergenceSearch::Stopped(_) => None,
        }
    }
}

/// Runs a call on a session's device and on the oracle, and finds the first value that differs. If a region defines
/// that value, its bodies are run separately, on the oracle's inputs of each iteration, and the first value in them
/// that differs is reported.
///
/// The oracle drops each value after its last use. The device's values are read in chunks, each by a run of the program
/// within its usual memory, so that the host holds one chunk at a time.
///
/// # Errors
/// Fails if the call fails on either side.
pub fn first_divergence(
    session: &Session,
    arguments: &[Item],
    tolerance: Tolerance,
    options: SearchOptions,
) -> Result<DivergenceSearch> {
    let (variant, inputs) = session.compile_for(arguments)?;
    let Some(program) = &variant.program else {
        return Ok(DivergenceSearch::Agreement);
    };
    let weights = variant.weights()?;
    let searcher = DivergenceSearcher {
        device: program.device(),
        precision: session.precision(),
        weights: weights.as_ref(),
        tolerance,
        end: options
            .limit
            .and_then(|limit| Instant::now().checked_add(limit)),
        stopped: RefCell::default(),
    };
    let sizes = variant.bind(&inputs)?;
    let reader = ValueReader::new(program, &variant.lowered, sizes, &inputs);
    let found = searcher.first(&variant.lowered, &inputs, reader, options.progress);
    match (found, searcher.stopped.take()) {
        (_, Some(progress)) => Ok(DivergenceSearch::Stopped(progress)),
        (found, None) => Ok(found?.map_or(DivergenceSearch::Agreement, |found| {
            DivergenceSearch::Found(Box::new(found))
        })),
    }
}

/// Reads the values of a graph from a device, in chunks on demand.
struct ValueReader<'a> {
    program: &'a Program,
    sizes: Bindings,
    inputs: &'a [Tensor],
    /// Names and bytes of values with their own memory, in node order.
    order: Vec<(&'a str, usize)>,
    /// Number of values read so far.
    read: usize,
    /// Values of the last chunk that were not taken yet, by name.
    chunk: HashMap<String, Tensor>,
}

impl<'a> ValueReader<'a> {
    fn new(
        program: &'a Program,
        graph: &'a Graph,
        sizes: Bindings,
        inputs: &'a [Tensor],
    ) -> ValueReader<'a> {
        let results = graph.nodes.iter().flat_map(|node| &node.results);
        let named = results.filter_map(|id| {
            let name = graph.value(*id).name.as_str();
            Some((name, program.value_bytes(&sizes, name)?))
        });
        ValueReader {
            order: named.collect(),
            program,
            sizes,
            inputs,
            read: 0,
            chunk: HashMap::new(),
        }
    }

    /// Removes and returns a value, by name; reads chunks until the value is there. `None` if the value has no memory
    /// or was not computed.
    fn take(&mut self, name: &str) -> Result<Option<Tensor>> {
        let is_next = |(next, _): &(&str, usize)| *next == name;
        while !self.chunk.contains_key(name) && self.order.iter().skip(self.read).any(is_next) {
            self.read_chunk()?;
        }
        Ok(self.chunk.remove(name))
    }

    /// Replaces the chunk in memory by the next values that fit a chunk, at least one.
    fn read_chunk(&mut self) -> Result<()> {
        let mut bytes = 0usize;
        let remaining = self.order.iter().skip(self.read);
        let next_chunk = remaining.take_while(|(_, size)| {
            bytes = bytes.saturating_add(*size);
            bytes <= MAX_CHUNK_BYTES || bytes == *size
        });
        let names: HashSet<&str> = next_chunk.map(|(name, _)| *name).collect();
        self.read += names.len().max(1);
        let host_inputs: Vec<RunInput> = self.inputs.iter().map(RunInput::Host).collect();
        self.chunk = self.program.capture(&self.sizes, &host_inputs, &names)?;
        Ok(())
    }
}

/// Compares runs of a device with the oracle's.
struct DivergenceSearcher<'a> {
    device: &'a gpu::GpuDevice,
    precision: Precision,
    weights: &'a Weights,
    tolerance: Tolerance,
    /// End of the time limit; `None` for no limit.
    end: Option<Instant>,
    /// Progress when the limit passed.
    stopped: RefCell<Option<SearchProgress>>,
}

/// A body that ran, with its inputs.
type BodyRun = (BodyKind, Vec<Tensor>);

impl DivergenceSearcher<'_> {
    /// The first value of a graph that differs between the device, whose values `reader` reads, and the oracle.
    fn first(
        &self,
        graph: &Graph,
        inputs: &[Tensor],
        mut reader: ValueReader,
        progress: Option<&dyn Fn(SearchProgress)>,
    ) -> Result<Option<Divergence>> {
        // `entered` holds the bodies that ran since the last node of the graph itself.
        let (mut found, mut entered) = (None, Vec::new());
        let mut count = SearchProgress {
            done: 0,
            total: graph.nodes.len(),
        };
        let outcome = interp::run_observed(graph, self.weights, inputs, &mut |event| {
            self.check_limit(count)?;
            let Some(frame) = event.frame else {
                found = self
                    .compare(event, &mut reader)?
                    .map(|found| (found, event.node.clone()));
                count.done += 1;
                progress.inspect(|progress| progress(count));
                return match found {
                    Some(_) => Err(search_ended()),
                    None => {
                        entered.clear();
                        Ok(())
                    }
                };
            };
            record_body(&mut entered, frame);
            Ok(())
        });
        let Some((found, node)) = found else {
            return outcome.map(|_| None);
        };
        if entered.is_empty() {
            return Ok(Some(found));
        }
        match self.search_bodies(graph, &node, &entered) {
            Ok(inner) => Ok(Some(inner.unwrap_or_else(|| found.with_note(BODIES_AGREE)))),
            Err(_) if self.stopped.take().is_some() => Ok(Some(found.with_note(BODIES_UNKNOWN))),
            Err(error) => Err(error),
        }
    }

    /// Ends the oracle's run once the limit has passed.
    fn check_limit(&self, count: SearchProgress) -> Result<()> {
        if self.end.is_none_or(|end| Instant::now() < end) {
            return Ok(());
        }
        self.stopped.replace(Some(count));
        Err(search_ended())
    }

    /// The first value that differs in the bodies of a region, each run separately.
    fn search_bodies(
        &self,
        graph: &Graph,
        region: &Node,
        entered: &[BodyRun],
    ) -> Result<Option<Divergence>> {
        let mut compiled = None;
        for (kind, inputs) in entered {
            let Some(body) = kind.body_of(region) else {
                continue;
            };
            let program = match compiled.take() {
                Some(program) => program,
                None => self.compile(body)?,
            };
            let reader = ValueReader::new(&program, body, body_sizes(body, inputs), inputs);
            if let Some(found) = self.first(body, inputs, reader, None)? {
                return Ok(Some(found.enclosed_by(&BodyFrame {
                    outer: None,
                    graph,
                    region,
                    kind: *kind,
                    inputs,
                })));
            }
            // All runs of one region are of a single body: one branch, or iterations.
            compiled = Some(program);
        }
        Ok(None)
    }

    /// Compiles the body of a region as a separate program.
    fn compile(&self, body: &Graph) -> Result<Program> {
        let options = PlanOptions {
            precision: self.precision,
            ..PlanOptions::default()
        };
        let plan = plan::plan_with_options(body, self.device.capabilities(), &options)?;
        Program::new(self.device, plan, self.weights, ProgramOptions::default())
    }

    /// The first result of a node that has its own memory and differs from the oracle's.
    fn compare(&self, event: &NodeEvent, reader: &mut ValueReader) -> Result<Option<Divergence>> {
        for (id, expected) in event.node.results.iter().zip(event.results) {
            if let Some(got) = reader.take(&event.graph.value(*id).name)? {
                let found = Divergence::compare(
                    ValueSite::of_result(event, *id),
                    &got,
                    expected,
                    self.tolerance,
                );
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }
}

/// Internal error that stops the oracle's run early. It is never reported.
fn search_ended() -> Error {
    Error::internal("the search has ended")
}

/// Records the inputs of a body of an outermost region, unless that run of the body is recorded already.
fn record_body(entered: &mut Vec<BodyRun>, frame: &BodyFrame) {
    let is_recorded = entered.last().is_some_and(|(kind, _)| *kind == frame.kind);
    if frame.outer.is_none() && !is_recorded {
        entered.push((frame.kind, frame.inputs.to_vec()));
    }
}
