//! Compares the sizes that the inputs of two graphs may have.

use std::fmt;

use super::super::evaluate::argument_inputs;
use crate::dim::Dim;
use crate::ir::Graph;

/// A size of an input that is a number in one graph and any number in the other.
pub(super) struct DifferingAxis {
    /// Name of the input in the trace.
    input: String,
    axis: usize,
    /// The size in the trace.
    pub(super) trace: Dim,
    /// The size in the export.
    export: Dim,
}

impl fmt::Display for DifferingAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DifferingAxis { input, axis, .. } = self;
        let size = |dim: &Dim| match dim.as_const() {
            Some(size) => format!("only {size}"),
            None => "several sizes".to_string(),
        };
        let (trace, export) = (size(&self.trace), size(&self.export));
        write!(
            f,
            "{input}, axis {axis}: the trace takes {trace}, the export {export}"
        )
    }
}

/// The sizes that one graph leaves open and the other does not. Inputs are matched by position.
pub(super) fn differing_axes(trace: &Graph, export: &Graph) -> Vec<DifferingAxis> {
    let pairs = argument_inputs(trace).iter().zip(argument_inputs(export));
    let mut found = Vec::new();
    for (left, right) in pairs {
        let shapes = (&trace.ty(*left).shape, &export.ty(*right).shape);
        for (axis, (ours, theirs)) in shapes.0.iter().zip(shapes.1).enumerate() {
            if ours.as_const().is_some() != theirs.as_const().is_some() {
                found.push(DifferingAxis {
                    input: trace.value(*left).name.clone(),
                    axis,
                    trace: ours.clone(),
                    export: theirs.clone(),
                });
            }
        }
    }
    found
}
