//! Choices that a kernel makes by the example's sizes. Layers share a kernel only where the choices are equal.

use super::KernelScope;
use crate::dim::Dim;
use crate::ir::Graph;
use crate::plan::cost::example_size;

/// A number for which a kernel is specialised because of the example's sizes. The kernel would be correct with another
/// one, too.
#[derive(Clone)]
pub struct ExampleDecision {
    sizes: [Dim; 4],
    rule: fn([usize; 4]) -> usize,
    number: usize,
}

impl ExampleDecision {
    fn new(graph: &Graph, sizes: [Dim; 4], rule: fn([usize; 4]) -> usize) -> ExampleDecision {
        let number = rule(sizes.each_ref().map(|size| example_size(graph, size)));
        ExampleDecision {
            sizes,
            rule,
            number,
        }
    }

    /// Returns whether the sizes of another graph's example lead to the same number.
    pub fn holds_in(&self, graph: &Graph) -> bool {
        ExampleDecision::new(graph, self.sizes.clone(), self.rule).number == self.number
    }
}

impl KernelScope<'_> {
    /// Applies a rule to four sizes of the example, and records the decision.
    pub fn decide(&mut self, sizes: [Dim; 4], rule: fn([usize; 4]) -> usize) -> usize {
        let decision = ExampleDecision::new(self.graph, sizes, rule);
        let number = decision.number;
        self.decisions.push(decision);
        number
    }
}
