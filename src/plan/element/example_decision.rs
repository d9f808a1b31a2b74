//! Choices that a kernel makes by the sizes of the example inputs. Layers share a kernel only where the choices are
//! equal.

use super::KernelScope;
use crate::dim::Dim;
use crate::ir::Graph;
use crate::plan::cost::example_size;

/// A number for which a kernel is specialised because of the example's sizes. The kernel would be correct with another
/// one, too.
#[derive(Clone)]
pub struct ExampleDecision {
    /// Sizes that the rule depends on.
    sizes: [Dim; 4],
    rule: fn([usize; 4]) -> usize,
    /// Result of the rule for the example's values of the sizes.
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
    /// Applies a rule to the example's values of four sizes, and records the decision. Returns its number.
    pub fn decide(&mut self, sizes: [Dim; 4], rule: fn([usize; 4]) -> usize) -> usize {
        let decision = ExampleDecision::new(self.graph, sizes, rule);
        let number = decision.number;
        self.decisions.push(decision);
        number
    }
}
