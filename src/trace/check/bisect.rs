//! Finds the first value on which two runs disagree.

use std::fmt;

use serde_json::{Value as Json, json};

use super::value_site::{EnclosingBody, ValueSite};
use crate::compare::{Difference, Tolerance, compare_tensors};
use crate::error::Result;
use crate::interp::{self, BodyFrame, NodeEvent};
use crate::ir::{Graph, Weights};
use crate::pass::inline;
use crate::tensor::Tensor;

/// The first value on which two runs disagree.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// The value in the graph whose run is compared with the expected one.
    pub site: ValueSite,
    /// The difference of the value.
    pub difference: Difference,
    /// A further remark, or empty.
    pub note: String,
}

impl Divergence {
    /// A divergence without a note.
    pub fn new(site: ValueSite, difference: Difference) -> Divergence {
        Divergence {
            site,
            difference,
            note: String::new(),
        }
    }

    /// Compares a value with the expected one. None if it is within the tolerance.
    pub fn compare(
        site: ValueSite,
        got: &Tensor,
        expected: &Tensor,
        tolerance: Tolerance,
    ) -> Option<Divergence> {
        let difference = value_difference(&site.value, got, expected, tolerance);
        (!difference.passed()).then(|| Divergence::new(site, difference))
    }

    /// Adds the regions that enclose `frame`, the region body that contains the value.
    #[must_use]
    pub fn enclosed_by(mut self, frame: &BodyFrame) -> Divergence {
        self.site = self.site.enclosed_by(Some(frame));
        self.difference.path.clone_from(&self.site.value);
        self
    }

    /// Sets the note.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Divergence {
        self.note = note.to_string();
        self
    }

    /// The divergence as a JSON object.
    pub fn to_json(&self) -> Json {
        let ValueSite {
            value,
            op,
            place,
            enclosing,
        } = &self.site;
        json!({
            "value": value,
            "op": op,
            "place": place.to_string(),
            "within": enclosing.iter().map(EnclosingBody::to_string).collect::<Vec<_>>(),
            "difference": self.difference.to_string(),
            "note": self.note,
        })
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "first value that differs: {}\n  {}",
            self.site, self.difference
        )?;
        match self.note.as_str() {
            "" => Ok(()),
            note => write!(f, "\n  {note}"),
        }
    }
}

/// A graph with its weights.
#[derive(Clone, Copy, Debug)]
pub struct GraphWithWeights<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Values of the weights that it names.
    pub weights: &'a Weights,
}

/// A node that has run, with its results.
struct NodeRun {
    site: ValueSite,
    results: Vec<Tensor>,
}

/// Runs two traces of one function on equal inputs and finds the first node whose value differs, also in bodies of regions.
///
/// Nodes are compared in execution order until their operators differ. If no value differs before, the divergence is that
/// node.
///
/// # Errors
/// A graph does not run on the inputs.
pub fn first_difference(
    got: GraphWithWeights<'_>,
    expected: GraphWithWeights<'_>,
    inputs: &[Tensor],
    tolerance: Tolerance,
) -> Result<Option<Divergence>> {
    let (ours, theirs) = (inline(got.graph)?, inline(expected.graph)?);
    let mut expected_runs = Vec::new();
    interp::run_observed(&theirs, expected.weights, inputs, &mut |event| {
        expected_runs.push(NodeRun {
            site: ValueSite::of_first_result(event),
            results: event.results.to_vec(),
        });
        Ok(())
    })?;
    let mut remaining_runs = expected_runs.into_iter();
    let mut divergence = None;
    interp::run_observed(&ours, got.weights, inputs, &mut |event| {
        if divergence.is_none() {
            divergence = compare_node(event, remaining_runs.next(), tolerance);
        }
        Ok(())
    })?;
    let extra_run = remaining_runs.next().filter(|_| divergence.is_none());
    Ok(divergence.or_else(|| {
        let site = extra_run?.site;
        let missing = Difference::incomparable(&site.value, "is in the other trace only".into());
        Some(Divergence::new(site, missing))
    }))
}

/// Compares a node that has run with the corresponding node of the expected run, `wanted`. None if they agree.
fn compare_node(
    event: &NodeEvent,
    wanted: Option<NodeRun>,
    tolerance: Tolerance,
) -> Option<Divergence> {
    let diverges_at = |what: &str| {
        let site = ValueSite::of_first_result(event);
        let why = format!("the other trace has {what} here");
        let difference = Difference::incomparable(&site.value, why);
        Divergence::new(site, difference)
    };
    let Some(wanted) = wanted else {
        return Some(diverges_at("no further operator"));
    };
    if wanted.site.op != event.node.op.name() {
        return Some(diverges_at(&wanted.site.op));
    }
    let results = event.node.results.iter().zip(event.results);
    let mut differences = results.zip(&wanted.results).map(|((id, got), expected)| {
        Divergence::compare(ValueSite::of_result(event, *id), got, expected, tolerance)
    });
    differences.find_map(|divergence| divergence)
}

/// The difference of an intermediate value from the expected one. The relative tolerance refers to the largest expected
/// element.
pub fn value_difference(
    name: &str,
    got: &Tensor,
    expected: &Tensor,
    tolerance: Tolerance,
) -> Difference {
    compare_tensors(name, got, expected, scale_tolerance(tolerance, expected))
}

/// Scales the relative tolerance by the largest element, since small intermediate values may be differences of large ones.
fn scale_tolerance(tolerance: Tolerance, expected: &Tensor) -> Tolerance {
    let finite = expected
        .to_f64()
        .into_iter()
        .map(f64::abs)
        .filter(|value| value.is_finite());
    let largest = finite.fold(0.0, f64::max);
    Tolerance {
        atol: tolerance.atol.max(tolerance.rtol * largest),
        ..tolerance
    }
}
