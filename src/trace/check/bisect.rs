//! The first value on which two runs disagree.

use std::fmt;

use super::canonical::first_result;
use crate::compare::{Difference, Tolerance, compare_tensors};
use crate::error::{Place, Result};
use crate::interp;
use crate::ir::{Graph, Node, Weights};
use crate::pass::inline;
use crate::tensor::Tensor;

/// The first value on which two runs disagree.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Name of the value in the graph that ran.
    pub value: String,
    /// The operation that made it.
    pub op: String,
    /// Where it stands in the user's model.
    pub place: Place,
    /// How far off it is.
    pub difference: Difference,
}

impl Divergence {
    /// The result `value` of a node, off by this much.
    pub fn new(value: &str, node: &Node, difference: Difference) -> Divergence {
        Divergence {
            value: value.to_string(),
            op: node.op.name().to_string(),
            place: node.place.clone(),
            difference,
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "first value that differs: {} = {}  @ {}",
            self.value, self.op, self.place
        )?;
        write!(f, "  {}", self.difference)
    }
}

/// A graph with its weights.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Values of the weights that it names.
    pub weights: &'a Weights,
}

/// Runs two traces of one function on the same inputs and finds the first node whose value differs. Nodes are compared in
/// order until the graphs do different things; that is then where they diverge, if no value differs before.
///
/// # Errors
/// A graph does not run on the inputs.
pub fn first_difference(
    got: Program<'_>,
    expected: Program<'_>,
    inputs: &[Tensor],
    tolerance: Tolerance,
) -> Result<Option<Divergence>> {
    let (ours, theirs) = (inline(got.graph)?, inline(expected.graph)?);
    let mut wanted = Vec::new();
    interp::run_watched(&theirs, expected.weights, inputs, &mut |node, results| {
        wanted.push((node.clone(), results.to_vec()));
        Ok(())
    })?;
    let mut wanted = wanted.into_iter();
    let mut found = None;
    interp::run_watched(&ours, got.weights, inputs, &mut |node, results| {
        if found.is_none() {
            found = compare_node(&ours, node, results, wanted.next(), tolerance);
        }
        Ok(())
    })?;
    let more = wanted.next().filter(|_| found.is_none());
    Ok(found.or_else(|| {
        let (node, _) = more?;
        let name = first_result(&theirs, &node)?;
        let missing = Difference::incomparable(&name, "is in the other trace only".into());
        Some(Divergence::new(&name, &node, missing))
    }))
}

fn compare_node(
    graph: &Graph,
    node: &Node,
    results: &[Tensor],
    wanted: Option<(Node, Vec<Tensor>)>,
    tolerance: Tolerance,
) -> Option<Divergence> {
    let other = |what: &str| {
        let name = first_result(graph, node).unwrap_or_default();
        let why = format!("the other trace has {what} here");
        Divergence::new(&name, node, Difference::incomparable(&name, why))
    };
    let Some((theirs, expected)) = wanted else {
        return Some(other("no further operator"));
    };
    if theirs.op.name() != node.op.name() {
        return Some(other(theirs.op.name()));
    }
    let pairs = results.iter().zip(&expected).zip(&node.results);
    let mut differences = pairs.map(|((got, expected), id)| {
        let name = &graph.value(*id).name;
        let allowed = scaled(tolerance, expected);
        Divergence::new(name, node, compare_tensors(name, got, expected, allowed))
    });
    differences.find(|found| !found.difference.passed())
}

/// Inner values are held to the relative tolerance of their largest element, since small ones are differences of large.
pub fn scaled(tolerance: Tolerance, expected: &Tensor) -> Tolerance {
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
