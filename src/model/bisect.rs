//! Search for the first value that a device computes differently from the oracle, which interprets the graph: see
//! [`crate::interp`].

use crate::compare::Tolerance;
use crate::error::Result;
use crate::gpu::{self, Program, ProgramOptions};
use crate::interp::{BodyFrame, BodyKind, NodeEvent, body_sizes};
use crate::ir::{Graph, Node};
use crate::item::Item;
use crate::kernel::materialization::Precision;
use crate::plan::{self, PlanOptions};
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, ValueSite};

use super::Session;
use super::oracle_runs::{OracleRuns, SearchOptions, SearchProgress, ValueReader, search_ended};

/// Note on a region whose results differ although each body agrees if it is run alone.
const BODIES_AGREE: &str = "every body of the region that ran agrees with the oracle when run alone: either allowed \
                            differences add up over iterations, or the control flow is wrong";

/// Note on a region whose bodies were not searched before the time limit.
const BODIES_UNKNOWN: &str =
    "the time limit of the search passed before the region's bodies were compared";

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
        oracle: OracleRuns::new(weights.as_ref(), options.limit),
        tolerance,
    };
    let sizes = variant.bind(&inputs)?;
    let reader = ValueReader::new(program, &variant.lowered, sizes, &inputs);
    let found = searcher.first(&variant.lowered, &inputs, reader, options.progress);
    match (found, searcher.oracle.take_stopped()) {
        (_, Some(progress)) => Ok(DivergenceSearch::Stopped(progress)),
        (found, None) => Ok(found?.map_or(DivergenceSearch::Agreement, |found| {
            DivergenceSearch::Found(Box::new(found))
        })),
    }
}

/// Compares runs of a device with the oracle's.
struct DivergenceSearcher<'a> {
    device: &'a gpu::GpuDevice,
    precision: Precision,
    oracle: OracleRuns<'a>,
    tolerance: Tolerance,
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
        let outcome = self.oracle.run(graph, inputs, progress, &mut |event| {
            let Some(frame) = event.frame else {
                found = self
                    .compare(event, &mut reader)?
                    .map(|found| (found, event.node.clone()));
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
            Err(_) if self.oracle.take_stopped().is_some() => {
                Ok(Some(found.with_note(BODIES_UNKNOWN)))
            }
            Err(error) => Err(error),
        }
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
            let reader = ValueReader::new(
                &program,
                body,
                body_sizes(body, inputs.iter().map(Tensor::shape)),
                inputs,
            );
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
        Program::new(
            self.device,
            plan,
            self.oracle.weights,
            ProgramOptions::default(),
        )
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

/// Records the inputs of a body of an outermost region, unless that run of the body is recorded already.
fn record_body(entered: &mut Vec<BodyRun>, frame: &BodyFrame) {
    let is_recorded = entered.last().is_some_and(|(kind, _)| *kind == frame.kind);
    if frame.outer.is_none() && !is_recorded {
        entered.push((frame.kind, frame.inputs.to_vec()));
    }
}
