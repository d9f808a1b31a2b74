//! Recordings of the commands that a device executes, for replays on other implementations of WebGPU.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use wgpu::{BindGroup, BindGroupEntry, BindingResource, Buffer};

use crate::error::{Error, Result};
use crate::files;
use crate::kernel::capabilities::{SizesSpace, StorageType};
use crate::kernel::plan::{Access, Kernel};

use super::error_scope::lock;

/// Boundary of the data of each command, so that a reader can view the data as an array of any element type.
const DATA_ALIGNMENT: usize = 8;

/// The commands that a device executed since it was opened, with the bytes that the host wrote and read.
///
/// Buffers, pipelines and bind groups are numbered from zero, each in the order of their creation. Dispatches of zero
/// workgroups and measurements of time are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The commands, in an order of execution that gives the bytes of all [`RecordedCommand::ReadBuffer`].
    pub commands: Vec<RecordedCommand>,
    /// The bytes that commands name by their position.
    #[serde(skip)]
    pub data: Vec<u8>,
}

/// A command of WebGPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum RecordedCommand {
    /// Creates a buffer of zeros.
    CreateBuffer {
        /// Size in bytes.
        size: u64,
        /// WebGPU's flags of usages.
        usage: u32,
    },
    /// Creates a compute pipeline, whose entry point is `main`, and the layout of its bind group 0.
    CreatePipeline {
        /// Name of the kernel.
        label: String,
        /// Source of the kernel.
        wgsl: String,
        /// Type of each binding.
        bindings: Vec<RecordedBinding>,
    },
    /// Creates a bind group for a pipeline.
    CreateBindGroup {
        /// Number of the pipeline.
        pipeline: usize,
        /// The bytes that each binding accesses.
        buffers: Vec<BufferRange>,
    },
    /// Writes bytes of the host to a buffer, before all later commands.
    WriteBuffer {
        /// The bytes to write.
        target: BufferRange,
        /// Position of the bytes in [`Recording::data`].
        data: usize,
    },
    /// Copies bytes between buffers.
    CopyBuffer {
        /// The bytes to read.
        source: BufferRange,
        /// Number of the buffer to write.
        target: usize,
        /// First byte to write.
        target_offset: u64,
    },
    /// Sets bytes to zero.
    ClearBuffer {
        /// The bytes to clear.
        target: BufferRange,
    },
    /// Dispatches the pipeline of a bind group.
    Dispatch {
        /// Number of the bind group.
        bind_group: usize,
        /// Workgroups along x, y and z.
        workgroups: [u32; 3],
    },
    /// The host reads bytes of a mapped buffer, after all commands so far.
    ReadBuffer {
        /// The bytes to read.
        source: BufferRange,
        /// Type of the elements: `f32`, `i32`, `u32`, or `f16 in pairs`.
        storage: String,
        /// Position in [`Recording::data`] of the bytes that the device gave.
        data: usize,
    },
}

/// Type of a buffer binding, by WebGPU's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedBinding {
    /// A storage buffer that kernels may write.
    Storage,
    /// A storage buffer that kernels only read.
    ReadOnlyStorage,
    /// A uniform buffer.
    Uniform,
}

/// Bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferRange {
    /// Number of the buffer.
    pub buffer: usize,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

impl Recording {
    /// Writes the commands to `STEM.json` and the data to `STEM.bin`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, stem: &Path) -> Result<()> {
        let commands =
            serde_json::to_vec(self).map_err(|error| Error::internal(error.to_string()))?;
        let file = |extension: &str| {
            let mut name = stem.as_os_str().to_owned();
            name.push(extension);
            PathBuf::from(name)
        };
        files::write(&file(".json"), &commands)?;
        files::write(&file(".bin"), &self.data)
    }

    /// Appends bytes and zeros up to a multiple of four, and returns their position.
    fn append_data(&mut self, bytes: &[u8]) -> usize {
        let position = self.data.len().next_multiple_of(DATA_ALIGNMENT);
        self.data.resize(position, 0);
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(4), 0);
        position
    }
}

/// Records the commands of a device within WebGPU's default limits, which uses buffers and no textures. Objects that
/// commands use stay alive, so that no two have one number.
#[derive(Default)]
pub(super) struct CommandLog {
    state: Mutex<CommandLogState>,
}

#[derive(Default)]
struct CommandLogState {
    recording: Recording,
    buffers: Numbers<Buffer>,
    /// Pipelines by source and bindings.
    pipelines: Numbers<(String, Vec<Access>)>,
    bind_groups: Numbers<BindGroup>,
}

/// Numbers of objects in the order of their creation.
struct Numbers<T>(HashMap<T, usize>);

impl<T> Default for Numbers<T> {
    fn default() -> Numbers<T> {
        Numbers(HashMap::new())
    }
}

impl<T: Eq + Hash> Numbers<T> {
    /// The number of an object, and true if the object is new.
    fn get_or_add(&mut self, object: T) -> (usize, bool) {
        let next = self.0.len();
        let number = *self.0.entry(object).or_insert(next);
        (number, number == next)
    }
}

impl CommandLog {
    /// A copy of all that was recorded so far.
    pub(super) fn recording(&self) -> Recording {
        lock(&self.state).recording.clone()
    }

    /// Records that a bind group for a kernel was created.
    pub(super) fn create_bind_group(
        &self,
        group: &BindGroup,
        kernel: &Kernel,
        entries: &[BindGroupEntry],
    ) {
        let state = &mut *lock(&self.state);
        let pipeline = state.pipeline(kernel);
        let buffers = entries.iter().filter_map(|entry| match &entry.resource {
            BindingResource::Buffer(binding) => {
                let rest = binding.buffer.size() - binding.offset;
                let size = binding.size.map_or(rest, u64::from);
                Some(state.range(binding.buffer, binding.offset, size))
            }
            _ => None,
        });
        let buffers = buffers.collect();
        state.bind_groups.get_or_add(group.clone());
        state.push(RecordedCommand::CreateBindGroup { pipeline, buffers });
    }

    /// Records that the host writes bytes, padded with zeros to a multiple of four.
    pub(super) fn write_buffer(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) {
        let state = &mut *lock(&self.state);
        let size = (bytes.len() as u64).next_multiple_of(4);
        let target = state.range(buffer, offset, size);
        let data = state.recording.append_data(bytes);
        state.push(RecordedCommand::WriteBuffer { target, data });
    }

    /// Records that the device copies bytes.
    pub(super) fn copy_buffer(
        &self,
        (source, source_offset): (&Buffer, u64),
        (target, target_offset): (&Buffer, u64),
        size: u64,
    ) {
        let state = &mut *lock(&self.state);
        let command = RecordedCommand::CopyBuffer {
            source: state.range(source, source_offset, size),
            target: state.buffer(target),
            target_offset,
        };
        state.push(command);
    }

    /// Records that the device sets bytes to zero.
    pub(super) fn clear_buffer(&self, buffer: &Buffer, offset: u64, size: u64) {
        let state = &mut *lock(&self.state);
        let target = state.range(buffer, offset, size);
        state.push(RecordedCommand::ClearBuffer { target });
    }

    /// Records that the device dispatches the pipeline of a bind group.
    pub(super) fn dispatch(&self, group: &BindGroup, workgroups: [u32; 3]) {
        let state = &mut *lock(&self.state);
        let (bind_group, _) = state.bind_groups.get_or_add(group.clone());
        state.push(RecordedCommand::Dispatch {
            bind_group,
            workgroups,
        });
    }

    /// Records that the host reads bytes of a buffer.
    pub(super) fn read_buffer(
        &self,
        buffer: &Buffer,
        offset: u64,
        storage: StorageType,
        bytes: &[u8],
    ) {
        let state = &mut *lock(&self.state);
        let source = state.range(buffer, offset, bytes.len() as u64);
        let data = state.recording.append_data(bytes);
        let storage = storage.to_string();
        state.push(RecordedCommand::ReadBuffer {
            source,
            storage,
            data,
        });
    }
}

impl CommandLogState {
    fn push(&mut self, command: RecordedCommand) {
        self.recording.commands.push(command);
    }

    /// Bytes of a buffer.
    fn range(&mut self, buffer: &Buffer, offset: u64, size: u64) -> BufferRange {
        BufferRange {
            buffer: self.buffer(buffer),
            offset,
            size,
        }
    }

    /// The number of a buffer; records its creation at its first use.
    fn buffer(&mut self, buffer: &Buffer) -> usize {
        let (number, is_new) = self.buffers.get_or_add(buffer.clone());
        if is_new {
            self.push(RecordedCommand::CreateBuffer {
                size: buffer.size(),
                usage: buffer.usage().bits(),
            });
        }
        number
    }

    /// The number of a kernel's pipeline; records its creation at its first use.
    fn pipeline(&mut self, kernel: &Kernel) -> usize {
        let key = (kernel.wgsl.clone(), kernel.bindings.clone());
        let (number, is_new) = self.pipelines.get_or_add(key);
        if is_new {
            self.push(RecordedCommand::CreatePipeline {
                label: kernel.label.clone(),
                wgsl: kernel.wgsl.clone(),
                bindings: binding_types(kernel),
            });
        }
        number
    }
}

/// Types of a kernel's bindings: its slots, then its sizes if it has any.
fn binding_types(kernel: &Kernel) -> Vec<RecordedBinding> {
    let slots = kernel.bindings.iter().map(|access| match access {
        Access::Read => RecordedBinding::ReadOnlyStorage,
        _ => RecordedBinding::Storage,
    });
    let sizes = (kernel.sizes > 0).then_some(match kernel.sizes_space {
        SizesSpace::Uniform => RecordedBinding::Uniform,
        SizesSpace::Storage => RecordedBinding::ReadOnlyStorage,
    });
    slots.chain(sizes).collect()
}
