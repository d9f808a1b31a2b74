//! The random state of a thread.

use std::cell::Cell;

use crate::aten::{Generator, Operator};
use crate::ir::Argument;

use super::recorder;

thread_local! {
    static GENERATOR: Cell<Generator> = const { Cell::new(Generator::new(0)) };
}

/// Begins the sequence of random numbers that this thread draws, as `torch.manual_seed` does.
///
/// Every call that draws takes the next counter of the sequence, and its node records seed and counter: a graph gives the same
/// numbers in every run.
///
/// Within a branch or loop of a trace it fails: what comes after could not tell which sequence it draws from.
#[track_caller]
pub fn manual_seed(seed: u64) {
    if let Some(recorder) = recorder::active() {
        recorder.begin_sequence(&recorder::caller());
    }
    GENERATOR.set(Generator::new(seed));
}

/// Where the sequence of this thread stands.
pub(super) fn position() -> Generator {
    GENERATOR.get()
}

/// Goes on with the sequence from where it stood.
pub(super) fn resume(position: Generator) {
    GENERATOR.set(position);
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
