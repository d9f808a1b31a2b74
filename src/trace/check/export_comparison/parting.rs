//! Finds where the runs of two graphs part that compute one function by different operators, such as a trace and an export.
//!
//! A value of one run has a *counterpart* if the other run computes an equal value. From a result that differs, the search goes
//! back through values without counterparts. The runs part at the first node of them whose operands all have counterparts.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::super::ValueSite;
use super::super::bisect::{GraphWithWeights, value_difference};
use crate::compare::Tolerance;
use crate::dtype::DType;
use crate::error::Result;
use crate::interp;
use crate::ir::ValueId;
use crate::pass::inline;
use crate::tensor::Tensor;

/// Most bytes of values that a search keeps of one run.
const MAX_BYTES: usize = 1 << 30;

/// The values of a run, without those within bodies of regions.
pub(super) struct RecordedRun {
    nodes: Vec<RecordedNode>,
    /// The node that computes each value.
    producers: HashMap<ValueId, usize>,
    outputs: Vec<ValueId>,
}

struct RecordedNode {
    site: ValueSite,
    operands: Vec<ValueId>,
    results: Vec<(ValueId, Tensor)>,
}

/// Where a run parts from another.
pub(super) struct Parting {
    /// The first value without a counterpart; none if the other run has all values of this one.
    pub(super) first: Option<ValueSite>,
    /// The first result that differs.
    pub(super) result: ValueSite,
}

/// Continues a sentence that begins with the name of the run.
impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.first {
            None => write!(f, "returns {}", self.result),
            Some(first) if *first == self.result => write!(f, "parts at {first}"),
            Some(first) => write!(f, "parts at {first}, and returns {}", self.result),
        }
    }
}

/// Values of a run by element type and shape.
type ValuesByType<'a> = HashMap<(DType, &'a [usize]), Vec<Candidate<'a>>>;

/// A value that others are compared with. Most values differ in one of a few elements, which are compared first.
struct Candidate<'a> {
    tensor: &'a Tensor,
    /// Some of its elements.
    samples: Vec<f64>,
    /// The largest magnitude of a finite element.
    largest: f64,
}

/// Number of elements that are compared first.
const SAMPLES: usize = 16;

impl<'a> Candidate<'a> {
    fn new(tensor: &'a Tensor) -> Candidate<'a> {
        let elements = tensor.to_f64();
        let magnitudes = elements.iter().map(|element| element.abs());
        let finite = magnitudes.filter(|magnitude| magnitude.is_finite());
        let step = elements.len().div_ceil(SAMPLES).max(1);
        Candidate {
            tensor,
            samples: elements.iter().step_by(step).copied().collect(),
            largest: finite.fold(0.0, f64::max),
        }
    }

    fn equals(&self, other: &Candidate<'_>, tolerance: Tolerance) -> bool {
        let slack = tolerance.atol + 2.0 * tolerance.rtol * self.largest.max(other.largest);
        let differs = |(left, right): (&f64, &f64)| (left - right).abs() > slack;
        let mut samples = self.samples.iter().zip(&other.samples);
        !samples.any(differs) && are_equal(self.tensor, other.tensor, tolerance)
    }
}

impl RecordedRun {
    /// Runs a graph and keeps its values; none if they take too much memory.
    ///
    /// # Errors
    /// The graph does not run on the inputs.
    pub(super) fn of(run: GraphWithWeights<'_>, inputs: &[Tensor]) -> Result<Option<RecordedRun>> {
        let graph = inline(run.graph)?;
        let mut recorded = RecordedRun {
            nodes: Vec::new(),
            producers: HashMap::new(),
            outputs: graph.outputs.clone(),
        };
        let mut bytes = 0;
        interp::run_observed(&graph, run.weights, inputs, &mut |event| {
            let sizes = event.results.iter().map(|tensor| tensor.bytes().len());
            bytes += sizes.sum::<usize>();
            match event.frame.is_none() && bytes <= MAX_BYTES {
                true => recorded.push(RecordedNode {
                    site: ValueSite::of_first_result(event),
                    operands: event.node.operands(),
                    results: std::iter::zip(event.node.results.clone(), event.results.to_vec())
                        .collect(),
                }),
                false if MAX_BYTES < bytes => recorded.nodes.clear(),
                false => {}
            }
            Ok(())
        })?;
        Ok((bytes <= MAX_BYTES).then_some(recorded))
    }

    fn push(&mut self, node: RecordedNode) {
        let index = self.nodes.len();
        let results = node.results.iter().map(|(id, _)| (*id, index));
        self.producers.extend(results);
        self.nodes.push(node);
    }

    /// Where this run parts from another; none if their results are equal or an input is the result.
    pub(super) fn parts_from(&self, other: &RecordedRun, tolerance: Tolerance) -> Option<Parting> {
        let differing = self.differing_outputs(other, tolerance);
        let result = self.nodes.get(*self.producers_of(&differing).first()?)?;
        let mut search = CounterpartSearch {
            run: self,
            values: other.values(),
            known: HashMap::new(),
            tolerance,
        };
        let first = search.first_unmatched(&differing);
        let first = first.and_then(|index| self.nodes.get(index));
        Some(Parting {
            first: first.map(|node| node.site.clone()),
            result: result.site.clone(),
        })
    }

    /// The outputs that differ from those of another run at the same position.
    fn differing_outputs(&self, other: &RecordedRun, tolerance: Tolerance) -> Vec<ValueId> {
        let others = other.outputs.iter().map(|id| other.value(*id));
        let pairs = self
            .outputs
            .iter()
            .zip(others.chain(std::iter::repeat(None)));
        let differ = |ours: Option<&Tensor>, theirs: Option<&Tensor>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => !are_equal(ours, theirs, tolerance),
            _ => true,
        };
        pairs
            .filter(|(id, theirs)| differ(self.value(**id), *theirs))
            .map(|(id, _)| *id)
            .collect()
    }

    fn value(&self, id: ValueId) -> Option<&Tensor> {
        let node = self.nodes.get(*self.producers.get(&id)?)?;
        let mut results = node.results.iter();
        let (_, tensor) = results.find(|(result, _)| *result == id)?;
        Some(tensor)
    }

    fn producers_of(&self, values: &[ValueId]) -> Vec<usize> {
        let producers = values.iter().filter_map(|id| self.producers.get(id));
        producers.copied().collect()
    }

    fn values(&self) -> ValuesByType<'_> {
        let mut values = ValuesByType::new();
        for (_, tensor) in self.nodes.iter().flat_map(|node| &node.results) {
            let key = (tensor.dtype(), tensor.shape());
            values.entry(key).or_default().push(Candidate::new(tensor));
        }
        values
    }
}

/// A search for the nodes of a run without counterparts among the values of another.
struct CounterpartSearch<'a> {
    run: &'a RecordedRun,
    values: ValuesByType<'a>,
    /// Whether nodes have counterparts, as far as is known.
    known: HashMap<usize, bool>,
    tolerance: Tolerance,
}

impl CounterpartSearch<'_> {
    /// The first node without a counterpart whose operands have counterparts, on the way to some values.
    fn first_unmatched(&mut self, values: &[ValueId]) -> Option<usize> {
        let mut open = self.unmatched_producers(values);
        let mut seen = HashSet::new();
        let mut first: Option<usize> = None;
        while let Some(index) = open.pop() {
            if !seen.insert(index) {
                continue;
            }
            let node = self.run.nodes.get(index);
            let unmatched = self.unmatched_producers(node.map_or(&[], |node| &node.operands));
            if unmatched.is_empty() {
                first = Some(first.map_or(index, |first| first.min(index)));
            }
            open.extend(unmatched);
        }
        first
    }

    /// The nodes without counterparts that compute some values.
    fn unmatched_producers(&mut self, values: &[ValueId]) -> Vec<usize> {
        let mut producers = self.run.producers_of(values);
        producers.retain(|index| !self.has_counterpart(*index));
        producers
    }

    fn has_counterpart(&mut self, index: usize) -> bool {
        if let Some(known) = self.known.get(&index) {
            return *known;
        }
        let results = self
            .run
            .nodes
            .get(index)
            .map_or(&[][..], |node| &node.results);
        let found = results.iter().all(|(_, result)| {
            let result = Candidate::new(result);
            let key = (result.tensor.dtype(), result.tensor.shape());
            let mut candidates = self.values.get(&key).into_iter().flatten();
            candidates.any(|other| result.equals(other, self.tolerance))
        });
        self.known.insert(index, found);
        found
    }
}

fn are_equal(left: &Tensor, right: &Tensor, tolerance: Tolerance) -> bool {
    left.bytes() == right.bytes() && left.shape() == right.shape() && left.dtype() == right.dtype()
        || value_difference("", left, right, tolerance).passed()
}
