//! Functions that take any bytes: each input ends in values or errors, within a small stack, memory and time.

mod allocator;
mod archives;
mod graphs;
pub mod records;
mod tensors;

use std::time::Duration;

use onionskin::RunOptions;
use onionskin::budget::Limits;

pub use allocator::CappedAllocator;

/// A target: its name and its function.
type Target = (&'static str, fn(&[u8]));

/// All targets. Each is a program in `fuzz_targets/` and a list of tokens in `dictionaries/`.
pub const TARGETS: &[Target] = &[
    ("archive", archives::archive),
    ("pickle", archives::pickle),
    ("source", archives::source),
    ("run", graphs::run),
    ("json", graphs::json),
    ("tensors", tensors::tensors),
];

/// The stack that the library promises to need.
const STACK: usize = 2 << 20;

/// Longest time of an input. Work that overruns it by seconds never asks for the time, which libFuzzer's `-timeout` finds.
const TIME: Duration = Duration::from_secs(1);

/// Most bytes of values in a run on the host. A single operation on that many is quick.
const HOST_MEMORY: u64 = 4 << 20;

/// A sixteenth of the default limits, so that inputs that reach them are quick. [`CappedAllocator`] is in proportion.
fn limits() -> Limits {
    let default = Limits::default();
    Limits {
        bytes: default.bytes / 16,
        values: default.values / 16,
        steps: default.steps / 16,
        length: default.length / 16,
        ..default
    }
}

/// Runs an input of a target on a thread with a small stack.
///
/// # Panics
/// There is no such target, or the input makes the library panic.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = target.expect("a target of this name");
    let options = RunOptions {
        timeout: Some(TIME),
        host_memory: Some(HOST_MEMORY),
        ..RunOptions::default()
    };
    let work = || options.scope(|| target(data));
    let thread = std::thread::Builder::new().stack_size(STACK);
    let ended = std::thread::scope(|scope| {
        let started = thread.spawn_scoped(scope, work);
        started.expect("a thread").join()
    });
    ended.expect("no panic");
}
