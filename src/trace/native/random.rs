//! The thread's random state: the seed, and the counter of the next call that draws random numbers.

use std::cell::Cell;

use crate::aten::{Generator, Operator};
use crate::ir::Argument;

use super::call_site;
use super::recorder;

thread_local! {
    static GENERATOR: Cell<Generator> = const { Cell::new(Generator::new(0)) };
}

/// Seeds this thread's random numbers, as `torch.manual_seed` does.
///
/// Every random call takes the next counter of the sequence, and its node records seed and counter: a graph draws equal
/// numbers in every run.
///
/// A call within a branch or loop of a trace makes the trace fail, since the sequence of later calls would depend on
/// the control flow.
#[track_caller]
pub fn manual_seed(seed: u64) {
    if let Some(recorder) = recorder::active() {
        recorder.begin_sequence(&call_site::caller());
    }
    GENERATOR.set(Generator::new(seed));
}

/// This thread's current random state.
pub(super) fn rng_state() -> Generator {
    GENERATOR.get()
}

/// Restores the random state.
pub(super) fn set_rng_state(state: Generator) {
    GENERATOR.set(state);
}

/// Returns the random state for numbers drawn outside of the graph. Advances it by one call.
pub(in crate::trace) fn next_generator() -> Generator {
    let generator = GENERATOR.get();
    GENERATOR.set(Generator {
        counter: generator.counter.wrapping_add(1),
        ..generator
    });
    generator
}

/// Sets the seed and counter arguments of a call that draws random numbers. Advances the random state.
pub(super) fn seed_call(operator: &'static Operator, arguments: &mut [Argument]) {
    let mut generator = GENERATOR.get();
    operator.seed_call(arguments, &mut generator);
    GENERATOR.set(generator);
}
