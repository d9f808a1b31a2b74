//! Maps buffers for the host and waits until they are mapped, with or without blocking the thread.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use wgpu::{Buffer, MapMode, SubmissionIndex};

use crate::error::{Error, Result};

use super::device::GpuDevice;
use super::error_scope::{in_error_scope, lock, with_causes};

/// Time between two polls of a device.
const TIME_BETWEEN_POLLS: Duration = Duration::from_millis(1);

/// Buffers being mapped. After a wait, the host may access them: the device is done with them and they are mapped.
/// Dropping the value unmaps the buffers, also those that are not mapped yet.
pub(super) struct PendingMapping {
    device: GpuDevice,
    buffers: Vec<Buffer>,
    completion: Arc<Completion>,
}

/// A thread that polls a device for a future. It ends with the future: a thread that still uses the driver while the process
/// ends can crash the process.
struct PollingThread {
    thread: Option<JoinHandle<()>>,
    completion: Arc<Completion>,
}

impl Drop for PollingThread {
    fn drop(&mut self) {
        lock(&self.completion.state).is_abandoned = true;
        self.completion.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is an error of the device, which the completion holds.
            let _ = thread.join();
        }
    }
}

/// Completes when the device is done and every buffer is mapped.
#[derive(Default)]
struct Completion {
    state: Mutex<CompletionState>,
    changed: Condvar,
}

#[derive(Default)]
struct CompletionState {
    /// Number of buffers that are not mapped yet, and one more until the device is done.
    pending: usize,
    /// The first error.
    error: Option<Error>,
    /// Wakes the task that waits without blocking.
    waker: Option<Waker>,
    /// True if nobody waits any more.
    is_abandoned: bool,
}

impl PendingMapping {
    /// Begins to map buffers, which must be distinct. The list may be empty.
    pub(super) fn begin(
        device: &GpuDevice,
        buffers: Vec<Buffer>,
        mode: MapMode,
    ) -> Result<PendingMapping> {
        let completion = Arc::new(Completion::default());
        // One for the device, and one for each buffer.
        lock(&completion.state).pending = 1 + buffers.len();
        let mapped = PendingMapping {
            device: device.clone(),
            buffers,
            completion,
        };
        in_error_scope(device.wgpu(), || {
            for buffer in &mapped.buffers {
                let shared = mapped.completion.clone();
                buffer.map_async(mode, .., move |result| {
                    shared.complete_one(result.map_err(|error| Error::device(with_causes(&error))));
                });
            }
            Ok(())
        })?;
        Ok(mapped)
    }

    /// Waits until a submission is done and the buffers are mapped.
    pub(super) fn wait(&self, submission: Option<&SubmissionIndex>) -> Result<()> {
        self.device.poll(submission)?;
        self.completion.complete_one(Ok(()));
        // The callbacks may run on another thread that polls this device and has not called them yet.
        while !self.completion.wait(TIME_BETWEEN_POLLS)? {
            self.device.poll(None)?;
        }
        self.device.check_alive()
    }

    /// Waits without blocking the thread. wgpu needs a thread that polls the device, so another one does.
    pub(super) async fn wait_async(&self, submission: &SubmissionIndex) -> Result<()> {
        let (device, completion) = (self.device.clone(), self.completion.clone());
        let submission = submission.clone();
        let spawned = std::thread::Builder::new()
            .name("onionskin-wait".into())
            .spawn(move || completion.poll_until_done(&device, &submission));
        let spawned =
            spawned.map_err(|error| Error::device(format!("no thread can be started: {error}")))?;
        let _thread = PollingThread {
            thread: Some(spawned),
            completion: self.completion.clone(),
        };
        poll_fn(|context| match self.completion.poll() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                lock(&self.completion.state).waker = Some(context.waker().clone());
                // All may have completed before the waker was set.
                match self.completion.poll() {
                    Ok(false) => Poll::Pending,
                    completed => Poll::Ready(completed.map(|_| ())),
                }
            }
            Err(error) => Poll::Ready(Err(error)),
        })
        .await?;
        self.device.check_alive()
    }
}

impl Drop for PendingMapping {
    fn drop(&mut self) {
        // An error here means that the device is lost.
        let _ = in_error_scope(self.device.wgpu(), || {
            self.buffers.iter().for_each(Buffer::unmap);
            Ok(())
        });
    }
}

impl Completion {
    /// Counts one buffer as mapped, or the device as done; records an error.
    fn complete_one(&self, result: Result<()>) {
        let mut state = lock(&self.state);
        state.pending = state.pending.saturating_sub(1);
        if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// True if the device is done and all buffers are mapped. Fails with the first error.
    fn poll(&self) -> Result<bool> {
        let mut state = lock(&self.state);
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(state.pending == 0),
        }
    }

    /// Waits for a completion for at most this duration. Returns as [`Completion::poll`] does.
    fn wait(&self, duration: Duration) -> Result<bool> {
        let state = lock(&self.state);
        if state.pending > 0 && state.error.is_none() {
            drop(
                self.changed
                    .wait_timeout(state, duration)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        } else {
            drop(state);
        }
        self.poll()
    }

    /// Polls the device until it is done and all buffers are mapped, or until nobody waits any more. Records an error of the
    /// device.
    fn poll_until_done(&self, device: &GpuDevice, submission: &SubmissionIndex) {
        if let Err(error) = self.poll_while_awaited(device, submission) {
            self.complete_one(Err(error));
        }
    }

    fn poll_while_awaited(&self, device: &GpuDevice, submission: &SubmissionIndex) -> Result<()> {
        while !device.poll_for(submission, TIME_BETWEEN_POLLS)? {
            if lock(&self.state).is_abandoned {
                return Ok(());
            }
        }
        self.complete_one(Ok(()));
        while self.is_awaited() {
            self.wait_for_change(TIME_BETWEEN_POLLS);
            device.poll(None)?;
        }
        Ok(())
    }

    /// True if a buffer is not mapped yet and somebody waits for it.
    fn is_awaited(&self) -> bool {
        let state = lock(&self.state);
        state.pending > 0 && !state.is_abandoned
    }

    /// Waits for a completion for at most this duration.
    fn wait_for_change(&self, duration: Duration) {
        let state = lock(&self.state);
        if state.pending > 0 {
            drop(self.changed.wait_timeout(state, duration));
        }
    }
}
