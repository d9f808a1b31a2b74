//! The random state of a thread.

use std::cell::Cell;

use crate::aten::{Generator, Operator};
use crate::ir::Argument;

thread_local! {
    static GENERATOR: Cell<Generator> = const { Cell::new(Generator::new(0)) };
}

/// Begins the sequence of random numbers that this thread draws, as `torch.manual_seed` does.
///
/// Every call that draws takes the next counter of the sequence, and its node records seed and counter: a graph gives the same
/// numbers in every run.
pub fn manual_seed(seed: u64) {
    GENERATOR.set(Generator::new(seed));
}

/// The state for something that draws beside the graph, which counts as a call.
pub(in crate::trace) fn next_generator() -> Generator {
    let generator = GENERATOR.get();
    GENERATOR.set(Generator {
        counter: generator.counter.wrapping_add(1),
        ..generator
    });
    generator
}

/// Gives a call that draws the next counter.
pub(super) fn seed(operator: &'static Operator, arguments: &mut [Argument]) {
    let mut generator = GENERATOR.get();
    operator.seed(arguments, &mut generator);
    GENERATOR.set(generator);
}
