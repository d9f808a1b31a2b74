//! What kernels decide by the sizes of the example: layers share a kernel only where it is the same.

use super::Scope;
use crate::dim::Dim;
use crate::ir::Graph;
use crate::pass::plan::cost::example;

/// A number that a kernel is made for because of the example's sizes; it would be right with others, too.
#[derive(Clone)]
pub struct Decision {
    sizes: [Dim; 4],
    rule: fn([usize; 4]) -> usize,
    number: usize,
}

impl Decision {
    fn new(graph: &Graph, sizes: [Dim; 4], rule: fn([usize; 4]) -> usize) -> Decision {
        let number = rule(sizes.each_ref().map(|size| example(graph, size)));
        Decision {
            sizes,
            rule,
            number,
        }
    }

    /// True if the sizes of another graph's example lead to the same.
    pub fn holds_in(&self, graph: &Graph) -> bool {
        Decision::new(graph, self.sizes.clone(), self.rule).number == self.number
    }
}

impl Scope<'_> {
    /// What a rule makes of four sizes of the example.
    pub fn decide(&mut self, sizes: [Dim; 4], rule: fn([usize; 4]) -> usize) -> usize {
        let decision = Decision::new(self.graph, sizes, rule);
        let number = decision.number;
        self.decisions.push(decision);
        number
    }
}
