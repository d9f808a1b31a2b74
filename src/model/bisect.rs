//! The first value that a device computes otherwise than the oracle.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::compare::Tolerance;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{self, Input, Program, ProgramOptions};
use crate::interp::{self, Event, Part, Within, body_sizes};
use crate::ir::{Graph, Node, Weights};
use crate::item::Item;
use crate::kernel::stored::Precision;
use crate::pass::{self, PlanOptions};
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, Site};

use super::Session;

/// The remark about a region whose bodies are all right.
const BODIES_AGREE: &str = "on its own, every body that ran computes what the oracle does: differences that are allowed in \
                            a round add up, or control flow itself is wrong";

/// The remark about a region whose bodies there was no time to search.
const BODIES_UNKNOWN: &str = "the limit of the search passed before its bodies were compared";

/// Bytes of the device's values that the host holds at once.
const CHUNK: usize = 256 << 20;

/// How a search goes, and how long it may take.
#[derive(Clone, Copy, Default)]
pub struct SearchOptions<'a> {
    /// The search ends after the node during which this has passed; none for no limit.
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

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// Nodes that the oracle has run.
    pub done: usize,
    /// Nodes of the graph.
    pub total: usize,
}

/// The outcome of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Search {
    /// The first value that differs.
    Found(Box<Divergence>),
    /// All values that both have agree; values that were fused into kernels exist on the oracle only.
    Agreement,
    /// The limit passed. The values of the nodes so far agree.
    Stopped(SearchProgress),
}

impl Search {
    /// The value that differs; none if none was found.
    pub fn found(self) -> Option<Divergence> {
        match self {
            Search::Found(found) => Some(*found),
            Search::Agreement | Search::Stopped(_) => None,
        }
    }
}

/// Runs a call on a session's device and the oracle beside it, and finds the first value that differs. If that is made by a
/// region, its bodies are run on their own, on what the oracle gave them, round by round, and the first value in them that
/// differs is named.
///
/// The oracle drops each value after its last use. The device's values are read in chunks, each by a run of the program in the
/// memory that it needs anyway, so that the host holds one chunk at a time.
///
/// # Errors
/// The call fails on either side.
pub fn first_divergence(
    session: &Session,
    arguments: &[Item],
    tolerance: Tolerance,
    options: SearchOptions,
) -> Result<Search> {
    let (variant, inputs) = session.prepare(arguments)?;
    let Some(program) = &variant.program else {
        return Ok(Search::Agreement);
    };
    let weights = variant.weights()?;
    let searcher = Searcher {
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
    let reader = Reader::new(program, &variant.lowered, sizes, &inputs);
    let found = searcher.first(&variant.lowered, &inputs, reader, options.progress);
    match (found, searcher.stopped.take()) {
        (_, Some(progress)) => Ok(Search::Stopped(progress)),
        (found, None) => {
            Ok(found?.map_or(Search::Agreement, |found| Search::Found(Box::new(found))))
        }
    }
}

/// The values of a graph on a device, read in chunks as they are asked for.
struct Reader<'a> {
    program: &'a Program,
    sizes: Bindings,
    inputs: &'a [Tensor],
    /// Names of values that have memory of their own, in order of nodes, with their bytes.
    order: Vec<(&'a str, usize)>,
    /// How many of them were read.
    read: usize,
    held: HashMap<String, Tensor>,
}

impl<'a> Reader<'a> {
    fn new(
        program: &'a Program,
        graph: &'a Graph,
        sizes: Bindings,
        inputs: &'a [Tensor],
    ) -> Reader<'a> {
        let results = graph.nodes.iter().flat_map(|node| &node.results);
        let named = results.filter_map(|id| {
            let name = graph.value(*id).name.as_str();
            Some((name, program.value_bytes(&sizes, name)?))
        });
        Reader {
            order: named.collect(),
            program,
            sizes,
            inputs,
            read: 0,
            held: HashMap::new(),
        }
    }

    /// A value, which is not asked for again; none if it has no memory of its own, or did not come about.
    fn take(&mut self, name: &str) -> Result<Option<Tensor>> {
        let is_next = |(next, _): &(&str, usize)| *next == name;
        while !self.held.contains_key(name) && self.order.iter().skip(self.read).any(is_next) {
            self.read_chunk()?;
        }
        Ok(self.held.remove(name))
    }

    /// Reads the next values that fit a chunk, at least one, in the place of those that were held.
    fn read_chunk(&mut self) -> Result<()> {
        let mut bytes = 0usize;
        let left = self.order.iter().skip(self.read);
        let fits = left.take_while(|(_, size)| {
            bytes = bytes.saturating_add(*size);
            bytes <= CHUNK || bytes == *size
        });
        let names: HashSet<&str> = fits.map(|(name, _)| *name).collect();
        self.read += names.len().max(1);
        let hosted: Vec<Input> = self.inputs.iter().map(Input::Host).collect();
        self.held = self.program.capture(&self.sizes, &hosted, &names)?;
        Ok(())
    }
}

struct Searcher<'a> {
    device: &'a gpu::Device,
    precision: Precision,
    weights: &'a Weights,
    tolerance: Tolerance,
    end: Option<Instant>,
    /// How far the search was when the limit had passed.
    stopped: RefCell<Option<SearchProgress>>,
}

/// A body that ran, and what it was given.
type Entered = (Part, Vec<Tensor>);

impl Searcher<'_> {
    /// The first value of a graph that a run on the device has otherwise than the oracle.
    fn first(
        &self,
        graph: &Graph,
        inputs: &[Tensor],
        mut reader: Reader,
        progress: Option<&dyn Fn(SearchProgress)>,
    ) -> Result<Option<Divergence>> {
        let (mut found, mut entered) = (None, Vec::new());
        let mut count = SearchProgress {
            done: 0,
            total: graph.nodes.len(),
        };
        let ran = interp::run_watched(graph, self.weights, inputs, &mut |event| {
            self.check_limit(count)?;
            let Some(within) = event.within else {
                found = self
                    .compare(event, &mut reader)?
                    .map(|found| (found, event.node.clone()));
                count.done += 1;
                progress.inspect(|progress| progress(count));
                return match found {
                    Some(_) => Err(ended()),
                    None => {
                        entered.clear();
                        Ok(())
                    }
                };
            };
            enter(&mut entered, within);
            Ok(())
        });
        let Some((found, node)) = found else {
            return ran.map(|_| None);
        };
        if entered.is_empty() {
            return Ok(Some(found));
        }
        match self.inside(graph, &node, &entered) {
            Ok(inner) => Ok(Some(inner.unwrap_or_else(|| found.noted(BODIES_AGREE)))),
            Err(_) if self.stopped.take().is_some() => Ok(Some(found.noted(BODIES_UNKNOWN))),
            Err(error) => Err(error),
        }
    }

    /// Ends the oracle's run once the limit has passed.
    fn check_limit(&self, count: SearchProgress) -> Result<()> {
        if self.end.is_none_or(|end| Instant::now() < end) {
            return Ok(());
        }
        self.stopped.replace(Some(count));
        Err(ended())
    }

    /// The first value that differs in the bodies of a region, each run on its own.
    fn inside(
        &self,
        graph: &Graph,
        region: &Node,
        entered: &[Entered],
    ) -> Result<Option<Divergence>> {
        let mut compiled = None;
        for (part, inputs) in entered {
            let Some(body) = part.body_of(region) else {
                continue;
            };
            let program = match compiled.take() {
                Some(program) => program,
                None => self.compile(body)?,
            };
            let reader = Reader::new(&program, body, body_sizes(body, inputs), inputs);
            if let Some(found) = self.first(body, inputs, reader, None)? {
                return Ok(Some(found.through(&Within {
                    outer: None,
                    graph,
                    region,
                    part: *part,
                    inputs,
                })));
            }
            // All that ran of one region is the same body: a branch, or rounds.
            compiled = Some(program);
        }
        Ok(None)
    }

    fn compile(&self, body: &Graph) -> Result<Program> {
        let wanted = PlanOptions {
            precision: self.precision,
            ..PlanOptions::default()
        };
        let plan = pass::plan_by(body, self.device.capabilities(), &wanted)?;
        Program::new(self.device, plan, self.weights, ProgramOptions::default())
    }

    /// The first result of a node that is in memory of its own and differs from the oracle's.
    fn compare(&self, event: &Event, reader: &mut Reader) -> Result<Option<Divergence>> {
        for (id, expected) in event.node.results.iter().zip(event.results) {
            if let Some(got) = reader.take(&event.graph.value(*id).name)? {
                let found =
                    Divergence::between(Site::of(event, *id), &got, expected, self.tolerance);
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }
}

/// The error by which a run of the oracle ends that has shown enough. Nobody sees it.
fn ended() -> Error {
    Error::internal("the search has ended")
}

/// Keeps what the body of an outermost region was given, once for each body and round.
fn enter(entered: &mut Vec<Entered>, within: &Within) {
    let is_known = entered.last().is_some_and(|(part, _)| *part == within.part);
    if within.outer.is_none() && !is_known {
        entered.push((within.part, within.inputs.to_vec()));
    }
}
