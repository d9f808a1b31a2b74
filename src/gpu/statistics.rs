//! Counts of created objects and executed work of a program.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wgpu::{Buffer, BufferDescriptor, BufferUsages};

/// Counts since a program was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Runs started.
    pub runs: u64,
    /// Dispatches recorded.
    pub dispatches: u64,
    /// Numbers that the host read during runs, for conditions and loops.
    pub readbacks: u64,
    /// Pipelines compiled for this program, without those that the device already had.
    pub pipelines_created: u64,
    /// Kernels that warm-up made the driver compile, by a dispatch with zero workgroups; 0 for drivers that compile a
    /// kernel with its pipeline.
    pub kernels_warmed_up: u64,
    /// Buffers created: weights, memory of runs, sizes, staging.
    pub buffers_created: u64,
    /// Bytes of those buffers.
    pub bytes_created: u64,
    /// Bind groups created.
    pub bind_groups_created: u64,
    /// Bytes of inputs and weights sent to the device.
    pub bytes_uploaded: u64,
    /// Bytes of outputs read back.
    pub bytes_downloaded: u64,
}

impl Statistics {
    /// Counts of buffers, bind groups and pipelines created. They do not change in a run with cached sizes.
    pub fn created(&self) -> [u64; 3] {
        [
            self.buffers_created,
            self.bind_groups_created,
            self.pipelines_created,
        ]
    }
}

/// The counters that [`Statistics`] is a copy of.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) runs: AtomicU64,
    pub(super) dispatches: AtomicU64,
    pub(super) readbacks: AtomicU64,
    pub(super) pipelines: AtomicU64,
    pub(super) warmed_up: AtomicU64,
    pub(super) buffers: AtomicU64,
    pub(super) buffer_bytes: AtomicU64,
    pub(super) bind_groups: AtomicU64,
    pub(super) uploaded: AtomicU64,
    pub(super) downloaded: AtomicU64,
}

impl Counters {
    pub(super) fn statistics(&self) -> Statistics {
        Statistics {
            runs: self.runs.load(Relaxed),
            dispatches: self.dispatches.load(Relaxed),
            readbacks: self.readbacks.load(Relaxed),
            pipelines_created: self.pipelines.load(Relaxed),
            kernels_warmed_up: self.warmed_up.load(Relaxed),
            buffers_created: self.buffers.load(Relaxed),
            bytes_created: self.buffer_bytes.load(Relaxed),
            bind_groups_created: self.bind_groups.load(Relaxed),
            bytes_uploaded: self.uploaded.load(Relaxed),
            bytes_downloaded: self.downloaded.load(Relaxed),
        }
    }

    /// Creates a buffer and counts it.
    pub(super) fn buffer(
        &self,
        device: &wgpu::Device,
        label: &str,
        size: u64,
        usage: BufferUsages,
    ) -> Buffer {
        self.create(device, label, size, usage, false)
    }

    /// Creates a buffer that is mapped for writing, and counts it.
    pub(super) fn mapped_buffer(
        &self,
        device: &wgpu::Device,
        label: &str,
        size: u64,
        usage: BufferUsages,
    ) -> Buffer {
        self.create(device, label, size, usage, true)
    }

    fn create(
        &self,
        device: &wgpu::Device,
        label: &str,
        size: u64,
        usage: BufferUsages,
        mapped_at_creation: bool,
    ) -> Buffer {
        add(&self.buffers, 1);
        add(&self.buffer_bytes, size);
        device.create_buffer(&BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation,
        })
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}
