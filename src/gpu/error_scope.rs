//! wgpu's error scopes: device errors become values.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wgpu::ErrorFilter;

use crate::error::{Error, Result};

/// Runs an action and returns the first device error that it raises on this thread.
///
/// wgpu reports an error to the innermost scope of the thread, so concurrent users of a device see only their own
/// errors.
pub(super) fn in_error_scope<T>(
    device: &wgpu::Device,
    action: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let internal = device.push_error_scope(ErrorFilter::Internal);
    let memory = device.push_error_scope(ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(ErrorFilter::Validation);
    let result = action();
    let errors = [
        pollster::block_on(validation.pop()),
        pollster::block_on(memory.pop()),
        pollster::block_on(internal.pop()),
    ];
    match errors.into_iter().flatten().next() {
        Some(error) => Err(from_wgpu(&error)),
        None => result,
    }
}

fn from_wgpu(error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { source } => Error::device(format!(
            "the device is out of memory: {}",
            with_causes(source.as_ref())
        ))
        .help("use smaller inputs, close other programs that use the device, or run on the host"),
        wgpu::Error::Validation { source, .. } => Error::device(with_causes(source.as_ref())),
        wgpu::Error::Internal { source, .. } => Error::device(format!(
            "internal error of the driver: {}",
            with_causes(source.as_ref())
        )),
    }
}

/// Message of an error followed by its causes.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string().trim_end().to_owned();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(cause.to_string().trim());
        source = cause.source();
    }
    text
}

/// Locks a mutex. The data behind mutexes here is valid at every moment, so a poisoned mutex is safe to use.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
