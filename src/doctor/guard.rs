//! Work that may fail, panic or never end, run so that the caller goes on in any case.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result, panic_message};
use crate::interrupt::{ActiveLimits, RunOptions};

/// Time that work has to end by itself once its limit is over.
const GRACE: Duration = Duration::from_secs(2);

/// The reason why work gave no result.
#[derive(Debug)]
pub(super) enum WorkFailure {
    /// It returned an error.
    Failed(Error),
    /// It panicked with this message.
    Panicked(String),
    /// It did not end in time. Its thread may still run, for instance inside of a driver.
    TimedOut(Duration),
}

/// Runs work on a thread of its own, under the limits of this thread and within a time.
pub(super) fn guarded<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, WorkFailure> {
    let (sender, receiver) = channel();
    let outer = ActiveLimits::current();
    let options = RunOptions {
        timeout: Some(limit),
        ..RunOptions::default()
    };
    let run = move || {
        let caught = catch_unwind(AssertUnwindSafe(|| outer.enter(|| options.scope(work))));
        // Nobody listens any more if the time was over.
        let _ = sender.send(caught);
    };
    let thread = thread::Builder::new().name("onionskin-doctor".into());
    if let Err(error) = thread.spawn(run) {
        let message = format!("no thread can be started: {error}");
        return Err(WorkFailure::Failed(Error::device(message)));
    }
    match receiver.recv_timeout(limit.saturating_add(GRACE)) {
        Ok(Ok(Ok(result))) => Ok(result),
        Ok(Ok(Err(error))) if error.kind() == ErrorKind::Interrupted => {
            Err(WorkFailure::TimedOut(limit))
        }
        Ok(Ok(Err(error))) => Err(WorkFailure::Failed(error)),
        Ok(Err(payload)) => Err(WorkFailure::Panicked(panic_message(&*payload).to_string())),
        Err(_) => Err(WorkFailure::TimedOut(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_passed_on() {
        let limit = Duration::from_secs(60);
        assert_eq!(guarded(limit, || Ok(7)).unwrap(), 7);
        let failed = guarded(limit, || Err::<(), _>(Error::plan("no")));
        assert!(matches!(failed, Err(WorkFailure::Failed(error)) if error.message() == "no"));
    }

    #[test]
    fn a_panic_is_a_failure() {
        let failed = guarded::<()>(Duration::from_secs(60), || panic!("broken"));
        assert!(matches!(failed, Err(WorkFailure::Panicked(message)) if message == "broken"));
    }

    #[test]
    fn a_hang_is_a_failure() {
        let (end, ended) = channel::<()>();
        let failed = guarded(Duration::from_millis(1), move || {
            let _ = ended.recv();
            Ok(())
        });
        assert!(matches!(failed, Err(WorkFailure::TimedOut(_))));
        drop(end);
    }
}
