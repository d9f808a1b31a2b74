//! Runs of the oracle that are compared with a device: the oracle's run with a time limit, and the device's values.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{Program, RunInput};
use crate::interp::{self, NodeEvent};
use crate::ir::{Graph, Weights};
use crate::tensor::Tensor;

/// Maximum bytes of device values that the host holds at once, unless one value is larger.
const MAX_CHUNK_BYTES: usize = 256 << 20;

/// Time limit and progress callback of a search or of a comparison of all values.
#[derive(Clone, Copy, Default)]
pub struct SearchOptions<'a> {
    /// It ends after the node during which this time has passed; `None` for no limit.
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

/// Progress of a search or of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// Nodes that the oracle has run.
    pub done: usize,
    /// Nodes of the graph.
    pub total: usize,
}

/// Runs graphs on the oracle until a time limit.
pub(super) struct OracleRuns<'a> {
    pub(super) weights: &'a Weights,
    /// End of the time limit; `None` for no limit.
    end: Option<Instant>,
    /// Progress when the limit passed.
    stopped: Cell<Option<SearchProgress>>,
}

impl<'a> OracleRuns<'a> {
    /// Begins the time limit.
    pub(super) fn new(weights: &'a Weights, limit: Option<Duration>) -> OracleRuns<'a> {
        OracleRuns {
            weights,
            end: limit.and_then(|limit| Instant::now().checked_add(limit)),
            stopped: Cell::new(None),
        }
    }

    /// Runs a graph and calls `observe` for every node, those of bodies too. The run ends at the first error.
    ///
    /// # Errors
    /// The run fails, `observe` fails, or the limit has passed: see [`OracleRuns::take_stopped`].
    pub(super) fn run(
        &self,
        graph: &Graph,
        inputs: &[Tensor],
        progress: Option<&dyn Fn(SearchProgress)>,
        observe: &mut dyn FnMut(&NodeEvent) -> Result<()>,
    ) -> Result<()> {
        let mut count = SearchProgress {
            done: 0,
            total: graph.nodes.len(),
        };
        let outcome = interp::run_observed(graph, self.weights, inputs, &mut |event| {
            self.check_limit(count)?;
            let observed = observe(event);
            if event.frame.is_none() {
                count.done += 1;
                progress.inspect(|progress| progress(count));
            }
            observed
        });
        outcome.map(drop)
    }

    /// Ends the oracle's run once the limit has passed.
    fn check_limit(&self, count: SearchProgress) -> Result<()> {
        if self.end.is_none_or(|end| Instant::now() < end) {
            return Ok(());
        }
        self.stopped.replace(Some(count));
        Err(search_ended())
    }

    /// Removes and returns the progress at which the limit ended a run, if it did.
    pub(super) fn take_stopped(&self) -> Option<SearchProgress> {
        self.stopped.take()
    }
}

/// Internal error that stops the oracle's run early. It is never reported.
pub(super) fn search_ended() -> Error {
    Error::internal("the search has ended")
}

/// Reads the values of a graph from a device, in chunks on demand.
pub(super) struct ValueReader<'a> {
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
    pub(super) fn new(
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
    pub(super) fn take(&mut self, name: &str) -> Result<Option<Tensor>> {
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
