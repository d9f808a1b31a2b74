//! Waits for mapped memory, with or without blocking.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use wgpu::{Buffer, MapMode, SubmissionIndex};

use crate::error::{Error, Result};

use super::device::Device;
use super::fault::{chain, guarded, lock};

/// Buffers being mapped. After a wait, the host may access them: the device is done with them and they are mapped. They are
/// unmapped when this is dropped, even before they were mapped.
pub(super) struct Mapped {
    device: Device,
    buffers: Vec<Buffer>,
    gate: Arc<Gate>,
}

/// Completes when the device is done and every buffer is mapped.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: usize,
    error: Option<Error>,
    waker: Option<Waker>,
}

impl Mapped {
    /// Begins to map buffers, which must be distinct. The list may be empty.
    pub(super) fn begin(device: &Device, buffers: Vec<Buffer>, mode: MapMode) -> Result<Mapped> {
        let gate = Arc::new(Gate::default());
        // One for the device, and one for each buffer.
        lock(&gate.state).pending = 1 + buffers.len();
        let mapped = Mapped {
            device: device.clone(),
            buffers,
            gate,
        };
        guarded(device.wgpu(), || {
            for buffer in &mapped.buffers {
                let gate = mapped.gate.clone();
                buffer.map_async(mode, .., move |result| {
                    gate.done(result.map_err(|error| Error::device(chain(&error))));
                });
            }
            Ok(())
        })?;
        Ok(mapped)
    }

    /// Waits until a submission is done and the buffers are mapped.
    pub(super) fn wait(&self, submission: Option<&SubmissionIndex>) -> Result<()> {
        self.device.poll(submission)?;
        self.gate.done(Ok(()));
        // The callbacks may run on another thread that polls this device and has not called them yet.
        while !self.gate.wait(Duration::from_millis(1))? {
            self.device.poll(None)?;
        }
        self.device.alive()
    }

    /// Waits without blocking the thread. wgpu needs a thread that polls the device, so another one does.
    pub(super) async fn wait_async(&self, submission: &SubmissionIndex) -> Result<()> {
        let (device, gate) = (self.device.clone(), self.gate.clone());
        let submission = submission.clone();
        let spawned = std::thread::Builder::new()
            .name("onionskin-wait".into())
            .spawn(move || gate.drive(&device, &submission));
        spawned.map_err(|error| Error::device(format!("no thread can be started: {error}")))?;
        poll_fn(|context| match self.gate.poll() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                lock(&self.gate.state).waker = Some(context.waker().clone());
                // All may have completed before the waker was set.
                match self.gate.poll() {
                    Ok(false) => Poll::Pending,
                    opened => Poll::Ready(opened.map(|_| ())),
                }
            }
            Err(error) => Poll::Ready(Err(error)),
        })
        .await?;
        self.device.alive()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // An error here means that the device is lost.
        let _ = guarded(self.device.wgpu(), || {
            self.buffers.iter().for_each(Buffer::unmap);
            Ok(())
        });
    }
}

impl Gate {
    fn done(&self, result: Result<()>) {
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

    /// True if all is done.
    fn poll(&self) -> Result<bool> {
        let mut state = lock(&self.state);
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(state.pending == 0),
        }
    }

    /// Waits for at most this duration; true if all is done.
    fn wait(&self, moment: Duration) -> Result<bool> {
        let state = lock(&self.state);
        if state.pending > 0 && state.error.is_none() {
            drop(
                self.changed
                    .wait_timeout(state, moment)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        } else {
            drop(state);
        }
        self.poll()
    }

    /// Polls the device until all is done.
    fn drive(&self, device: &Device, submission: &SubmissionIndex) {
        let mut result = device.poll(Some(submission));
        if result.is_ok() {
            self.done(Ok(()));
        }
        while result.is_ok() && lock(&self.state).pending > 0 {
            self.changed_within(Duration::from_millis(1));
            result = device.poll(None);
        }
        if let Err(error) = result {
            self.done(Err(error));
        }
    }

    fn changed_within(&self, moment: Duration) {
        let state = lock(&self.state);
        if state.pending > 0 {
            drop(self.changed.wait_timeout(state, moment));
        }
    }
}
