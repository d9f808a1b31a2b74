//! Background work on a separate thread, with a future for the result.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use crate::error::{Error, Result, panic_message};

/// The result of a thread, and the waker of the task that awaits it.
struct Pending<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

/// Runs `work` on a new thread. The thread starts at the first poll of the future, and continues if the future is
/// dropped.
///
/// # Errors
/// Fails if `work` fails or panics, or if no thread can be started.
pub(super) async fn in_background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let pending = Arc::new(Mutex::new(Pending {
        result: None,
        waker: None,
    }));
    let shared = pending.clone();
    let thread_body = move || finish(&shared, run(work));
    let spawned = std::thread::Builder::new()
        .name(name.into())
        .spawn(thread_body);
    spawned.map_err(|error| Error::device(format!("no thread can be started: {error}")))?;
    poll_fn(|context| {
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        match pending.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                pending.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// The result of `work`; a panic becomes an error.
fn run<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::internal(panic_message(&*panic))))
}

/// Stores the result of a thread and wakes the task that awaits it.
fn finish<T>(pending: &Mutex<Pending<T>>, result: Result<T>) {
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    pending.result = Some(result);
    let waker = pending.waker.take();
    drop(pending);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_gives_the_result_of_its_thread() {
        let here = std::thread::current().id();
        let there = in_background("test", move || Ok(std::thread::current().id()));
        assert_ne!(pollster::block_on(there).unwrap(), here);
    }

    #[test]
    fn a_panic_of_the_thread_is_an_error() {
        let result: Result<()> = pollster::block_on(in_background("test", || panic!("told")));
        assert!(result.unwrap_err().message().contains("told"));
    }
}
