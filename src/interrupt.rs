//! Limits of time and memory of imports, compilations and runs, and their cancellation.
//!
//! [`RunOptions`] hold for a thread while a closure runs. Work asks `check` between its steps whether it must end. Helper
//! threads ask the `ActiveLimits` of the thread that started them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};

/// Limits of a call. The default has none of time, and [`RunOptions::HOST_MEMORY`] of memory.
///
/// ```no_run
/// # fn main() -> onionskin::Result<()> {
/// use std::time::Duration;
/// use onionskin::{CancelToken, CompileOptions, Device, Model, RunOptions, Tensor};
///
/// let cancel = CancelToken::new();
/// let options = RunOptions {
///     timeout: Some(Duration::from_secs(2)),
///     cancel: Some(cancel.clone()),
///     ..RunOptions::default()
/// };
/// let model = Model::open("model.pt")?;
/// // The limits hold for every call in the closure: here for the import and the compilation.
/// let session = options.scope(|| model.compile(&Device::auto()?, &CompileOptions::default()))?;
/// let inputs = [Tensor::from_vec([1], vec![1.0f32])?];
/// let outputs = session.run_with(&inputs, &options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Longest time of the call, with the import and the compilation that it needs.
    pub timeout: Option<Duration>,
    /// Ends the call from another thread.
    pub cancel: Option<CancelToken>,
    /// Most bytes that values on the host take at a time while a graph runs there, instead of
    /// [`RunOptions::HOST_MEMORY`]. Inputs, weights and the memory of a GPU are not counted. A run that would exceed the limit
    /// returns [`ErrorKind::Memory`] before it starts.
    pub host_memory: Option<u64>,
}

impl RunOptions {
    /// Default of [`RunOptions::host_memory`]: 4 GiB.
    pub const HOST_MEMORY: u64 = 4 << 30;

    /// Runs a closure under these limits, which hold for every import, compilation and run that it makes on this thread. The
    /// time starts now. Limits of an outer scope hold too.
    ///
    /// A call that exceeds a limit returns [`ErrorKind::Interrupted`]. Work ends between its steps: statements of an import,
    /// passes, kernels, nodes on the host, iterations of loops, and batches of dispatches. A single step runs to its end.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        if !self.can_interrupt() && self.host_memory.is_none() {
            return work();
        }
        let outer = ActiveLimits::current();
        let limit = Limit {
            options: self.clone(),
            start: Instant::now(),
            outer: outer.clone(),
        };
        let limits = ActiveLimits(Some(Arc::new(limit)));
        limits.enter(work)
    }

    /// True if these limits can end work that has started.
    fn can_interrupt(&self) -> bool {
        self.timeout.is_some() || self.cancel.is_some()
    }
}

/// Ends calls from another thread. Clones are the same token.
///
/// A cancelled token stays cancelled: calls that start with it end at once.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    is_cancelled: Arc<AtomicBool>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Makes the calls that hold this token end with [`ErrorKind::Interrupted`].
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// True once [`CancelToken::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

/// One scope of limits.
struct Limit {
    options: RunOptions,
    start: Instant,
    outer: ActiveLimits,
}

/// The limits that hold for a thread.
#[derive(Clone, Default)]
pub(crate) struct ActiveLimits(Option<Arc<Limit>>);

thread_local! {
    static ACTIVE: RefCell<ActiveLimits> = const { RefCell::new(ActiveLimits(None)) };
}

/// Restores the limits of the outer scope when dropped, even by a panic.
struct OuterLimits(ActiveLimits);

impl Drop for OuterLimits {
    fn drop(&mut self) {
        ACTIVE.set(std::mem::take(&mut self.0));
    }
}

impl ActiveLimits {
    /// The limits of this thread.
    pub(crate) fn current() -> ActiveLimits {
        ACTIVE.with_borrow(ActiveLimits::clone)
    }

    /// Runs a closure under these limits.
    pub(crate) fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        let outer = OuterLimits(ACTIVE.replace(self));
        let result = work();
        drop(outer);
        result
    }

    /// Fails if a limit is exceeded.
    pub(crate) fn check(&self) -> Result<()> {
        self.scopes().try_for_each(Limit::check)
    }

    /// The scopes, from the innermost on.
    fn scopes(&self) -> impl Iterator<Item = &Limit> {
        std::iter::successors(self.0.as_deref(), |limit| limit.outer.0.as_deref())
    }

    fn can_interrupt(&self) -> bool {
        self.scopes().any(|limit| limit.options.can_interrupt())
    }

    fn host_memory(&self) -> u64 {
        let limits = self.scopes().filter_map(|limit| limit.options.host_memory);
        limits.min().unwrap_or(RunOptions::HOST_MEMORY)
    }
}

impl Limit {
    fn check(&self) -> Result<()> {
        let RunOptions {
            timeout, cancel, ..
        } = &self.options;
        if cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            let message = "the call was cancelled";
            let help = "call again with a token that is not cancelled; states are unchanged";
            return Err(Error::new(ErrorKind::Interrupted, message).help(help));
        }
        match timeout {
            Some(timeout) if self.start.elapsed() >= *timeout => Err(timed_out(*timeout)),
            _ => Ok(()),
        }
    }
}

/// The error of work that did not end in time.
pub(crate) fn timed_out(timeout: Duration) -> Error {
    let message = format!("did not end within {timeout:?}");
    let help = "if the model needs longer, raise the limit: --timeout SECONDS, or RunOptions::timeout in the library";
    Error::new(ErrorKind::Interrupted, message).help(help)
}

/// Fails if a limit of this thread is exceeded.
///
/// # Errors
/// [`ErrorKind::Interrupted`]: the time is over, or the call was cancelled.
pub(crate) fn check() -> Result<()> {
    ACTIVE.with_borrow(ActiveLimits::check)
}

/// True if a limit of this thread can end work that has started.
pub(crate) fn can_interrupt() -> bool {
    ACTIVE.with_borrow(ActiveLimits::can_interrupt)
}

/// Most bytes that values on the host may take at a time: see [`RunOptions::host_memory`].
pub(crate) fn host_memory() -> u64 {
    ACTIVE.with_borrow(ActiveLimits::host_memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(timeout: Duration) -> RunOptions {
        RunOptions {
            timeout: Some(timeout),
            ..RunOptions::default()
        }
    }

    #[test]
    fn a_scope_ends_with_its_closure() {
        let options = timeout(Duration::ZERO);
        let error = options.scope(check).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert!(error.advice().unwrap().contains("--timeout"));
        assert!(std::panic::catch_unwind(|| options.scope(|| panic!("told"))).is_err());
        assert!(check().is_ok() && !can_interrupt());
    }

    #[test]
    fn limits_of_outer_scopes_hold() {
        let long = timeout(Duration::MAX);
        let outer = RunOptions {
            cancel: Some(CancelToken::new()),
            ..RunOptions::default()
        };
        let cancelled = outer.scope(|| {
            assert!(long.scope(check).is_ok());
            outer.cancel.as_ref().unwrap().cancel();
            long.scope(check)
        });
        assert_eq!(cancelled.unwrap_err().message(), "the call was cancelled");
    }

    #[test]
    fn the_least_memory_of_all_scopes_holds() {
        let memory = |bytes| RunOptions {
            host_memory: Some(bytes),
            ..RunOptions::default()
        };
        assert_eq!(host_memory(), RunOptions::HOST_MEMORY);
        assert_eq!(memory(9 << 30).scope(host_memory), 9 << 30);
        let nested =
            memory(1 << 30).scope(|| (can_interrupt(), memory(9 << 30).scope(host_memory)));
        assert_eq!(nested, (false, 1 << 30));
    }

    #[test]
    fn other_threads_ask_the_limits_of_the_first() {
        let checked = timeout(Duration::ZERO).scope(|| {
            let limits = ActiveLimits::current();
            let ask = || (check().is_ok(), limits.check().is_err());
            std::thread::scope(|scope| scope.spawn(ask).join().unwrap())
        });
        assert_eq!(checked, (true, true));
    }
}
