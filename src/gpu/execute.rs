//! Execution of a program: a [`Run`] uploads inputs, submits the plan's commands, and reads outputs back.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use wgpu::{Buffer, BufferUsages, CommandEncoder, ComputePass, MapMode, SubmissionIndex};

use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::interrupt;
use crate::kernel::layout::Layout;
use crate::kernel::plan::{RuntimeChecks, SlotId, SlotKind};
use crate::tensor::Tensor;

use super::convert;
use super::device::GpuDevice;
use super::device_tensor::{DeviceStorage, DeviceTensor, FreeBuffers, RunInput};
use super::error_scope::in_error_scope;
use super::memory::{SlotMemory, to_row_major};
use super::program::{Keep, Program, ProgramInner};
use super::run_context::{HostAccess, RunBinding, RunContext};
use super::schedule::{CommandRecorder, execute_plan};
use super::statistics::add;
use super::transfer::PendingMapping;
use super::upload::{check_inputs, record_uploads, write_inputs};

/// A submitted run. The outputs stay valid until the `Run` is dropped; then other runs may use their memory.
pub struct Run {
    program: Program,
    /// Memory locations and bind groups for the sizes of the run.
    pub(super) binding: Arc<RunBinding>,
    /// The run's memory; `None` only while the run is dropped.
    context: Option<RunContext>,
    /// The last submission of the run's commands.
    pub(super) submission: SubmissionIndex,
    /// True if the outputs were copied to the memory that the host reads.
    staged: bool,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("program", &self.program)
            .field("staged", &self.staged)
            .finish_non_exhaustive()
    }
}

impl Run {
    /// Submits a run of the whole plan. If `staged`, the run also copies the outputs to memory that the host reads.
    pub(super) fn start(
        program: &Program,
        sizes: &Bindings,
        inputs: &[RunInput],
        staged: bool,
    ) -> Result<Run> {
        let record = |recorder: &mut CommandRecorder, binding: &RunBinding| {
            execute_plan(&program.inner, binding, recorder)?;
            if staged {
                let downloads = binding.downloads.iter();
                record_downloads(
                    &program.inner.device,
                    &mut recorder.encoder,
                    binding,
                    downloads,
                );
            }
            Ok(())
        };
        Run::submit(program, sizes, inputs, staged, record)
    }

    /// Uploads inputs, records commands with `record`, and submits them. `record` may submit commands and wait for
    /// numbers that control flow depends on. `staged` states whether `record` copies the outputs to memory that the
    /// host reads.
    pub(super) fn submit(
        program: &Program,
        sizes: &Bindings,
        inputs: &[RunInput],
        staged: bool,
        record: impl FnOnce(&mut CommandRecorder, &RunBinding) -> Result<()>,
    ) -> Result<Run> {
        let inner = &program.inner;
        interrupt::check()?;
        inner.device.check_alive()?;
        let mut context = inner.acquire_context();
        let bound = context.bindings_for(inner, sizes);
        let checked = bound.and_then(|binding| {
            check_inputs(inner, &binding, inputs)?;
            Ok(binding)
        });
        let binding = match checked {
            Ok(binding) => binding,
            Err(error) => {
                inner.release_context(context);
                return Err(error);
            }
        };
        write_inputs(inner, &context, &binding, inputs)?;
        let submission = in_error_scope(inner.device.wgpu(), || {
            let mut recorder = CommandRecorder::new(inner, &binding);
            record_uploads(inner, &mut recorder.encoder, &binding, inputs);
            clear_words(inner, &mut recorder.encoder, &binding)?;
            record(&mut recorder, &binding)?;
            recorder.submit()
        })?;
        add(&inner.counters.runs, 1);
        context.submission = Some(submission.clone());
        Ok(Run {
            program: program.clone(),
            binding,
            context: Some(context),
            submission,
            staged,
        })
    }

    /// The outputs on the device. Commands submitted to the same queue may use them while the run lives.
    pub fn outputs(&self) -> Vec<DeviceTensor> {
        let outputs = &self.program.inner.plan.outputs;
        outputs
            .iter()
            .filter_map(|slot| self.device_tensor(*slot))
            .collect()
    }

    /// Waits until the device is done and returns the first failed check of the model as an error: an assertion, an
    /// index out of range, an integer division by zero. [`Run::read`] does this too.
    ///
    /// # Errors
    /// Fails if a check of the model failed, or the device did.
    pub fn check(&self) -> Result<()> {
        let Some(checks) = &self.program.inner.plan.runtime_checks else {
            return self.wait();
        };
        let device = &self.program.inner.device;
        let (access, submission) = in_error_scope(device.wgpu(), || self.copy_slot(checks.slot.0))?;
        let mapped = PendingMapping::begin(
            device,
            distinct_buffers([&access].into_iter()),
            MapMode::Read,
        )?;
        mapped.wait(Some(&submission))?;
        self.read_check_flags(checks, &access)
    }

    /// Waits until the device is done.
    pub fn wait(&self) -> Result<()> {
        self.program.inner.device.poll(Some(&self.submission))
    }

    /// Reads the outputs back.
    pub fn read(&self) -> Result<Vec<Tensor>> {
        let downloads = self.downloads(&self.program.inner.plan.outputs);
        let (mapped, submission) = self.begin_read(&downloads)?;
        mapped.wait(Some(&submission))?;
        self.decode_outputs(&downloads)
    }

    /// Reads some outputs back, given by their indices in any order.
    pub(crate) fn read_some(&self, outputs: &[usize]) -> Result<Vec<Tensor>> {
        let all = &self.program.inner.plan.outputs;
        let slots = outputs.iter().filter_map(|index| all.get(*index).copied());
        let slots: Vec<SlotId> = slots.collect();
        let downloads = self.downloads(&slots);
        let (mapped, submission) = self.begin_read(&downloads)?;
        mapped.wait(Some(&submission))?;
        self.check_flags(&downloads)?;
        self.decode_slots(&slots, &downloads)
    }

    /// True if an output can stay on the device: its elements there are those that the host would read.
    pub(crate) fn can_keep(&self, output: usize) -> bool {
        let plan = &self.program.inner.plan;
        plan.outputs.get(output).is_some_and(|slot| {
            let slot = &plan.slots[slot.0];
            // The host checks the range of integers that are stored as others.
            let is_exact = convert::is_bitwise_equal(slot.dtype, slot.storage)
                || slot.dtype.is_float()
                || slot.dtype == DType::Bool;
            is_exact && slot.layout == Layout::Linear
        })
    }

    /// Copies outputs, given by their indices, to buffers that outlive the run: free ones of their size, or new ones.
    pub(crate) fn keep(&self, outputs: &[usize], mut free: FreeBuffers) -> Result<Vec<Tensor>> {
        let inner = &self.program.inner;
        let device = &inner.device;
        in_error_scope(device.wgpu(), || {
            let mut encoder = device.wgpu().create_command_encoder(&Default::default());
            let mut kept = Vec::new();
            for output in outputs {
                let slot = inner.plan.outputs.get(*output).copied();
                let Some(source) = slot.and_then(|slot| self.device_tensor(slot)) else {
                    return Err(Error::internal("an output to keep has no buffer"));
                };
                let bytes = source.bytes().next_multiple_of(4).max(4);
                let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
                let new = || inner.counters.buffer(device.wgpu(), "state", bytes, usage);
                let buffer = free.take(bytes).unwrap_or_else(new);
                if source.bytes() > 0 {
                    let from = (&source.buffer, source.offset);
                    encoder.copy_buffer_to_buffer(from.0, from.1, &buffer, 0, bytes);
                    device.record(|recorder| recorder.copy_buffer(from, (&buffer, 0), bytes));
                }
                let tensor = DeviceTensor {
                    buffer,
                    offset: 0,
                    ..source
                };
                kept.push(DeviceStorage::tensor_of(device, tensor)?);
            }
            device.queue().submit([encoder.finish()]);
            Ok(kept)
        })
    }

    /// Reads the outputs back without blocking the thread.
    pub async fn read_async(&self) -> Result<Vec<Tensor>> {
        let downloads = self.downloads(&self.program.inner.plan.outputs);
        let (mapped, submission) = self.begin_read(&downloads)?;
        mapped.wait_async(&submission).await?;
        self.decode_outputs(&downloads)
    }

    /// True if the plan has a slot of this name; values fused into kernels have none.
    pub fn has_slot(&self, name: &str) -> bool {
        let mut slots = self.program.inner.plan.slots.iter();
        slots.any(|slot| slot.name == name)
    }

    /// Reads the slot with a name, whatever its kind. A value between kernels can only be read if the program was made
    /// with [`Keep::Everything`].
    pub fn slot(&self, name: &str) -> Result<Tensor> {
        let inner = &self.program.inner;
        let slots = &inner.plan.slots;
        let index = slots
            .iter()
            .position(|slot| slot.name == name)
            .ok_or_else(|| Error::usage(format!("the plan has no slot {name}")))?;
        let temporary = matches!(
            slots[index].kind,
            SlotKind::Temporary { .. } | SlotKind::Subview { .. }
        );
        if temporary && inner.options.keep == Keep::Outputs {
            let message = format!("the memory of {name} may have been reused for other values");
            return Err(Error::usage(message).help("make the program with Keep::Everything"));
        }
        self.read_slot(SlotId(index))
    }

    /// Reads the current contents of a slot.
    pub(super) fn read_slot(&self, slot: SlotId) -> Result<Tensor> {
        let device = &self.program.inner.device;
        let (access, submission) = in_error_scope(device.wgpu(), || self.copy_slot(slot.0))?;
        let mapped = PendingMapping::begin(
            device,
            distinct_buffers([&access].into_iter()),
            MapMode::Read,
        )?;
        mapped.wait(Some(&submission))?;
        self.decode(slot, &access)
    }

    /// A slot as a tensor in its buffer; every output has a buffer.
    fn device_tensor(&self, slot: SlotId) -> Option<DeviceTensor> {
        let info = &self.program.inner.plan.slots[slot.0];
        let buffer = self.binding.memory[slot.0].buffer().ok()?;
        Some(DeviceTensor {
            buffer: buffer.clone(),
            offset: self.binding.sizing.placements[slot.0].location.offset,
            dtype: info.dtype,
            storage: info.storage,
            shape: self.binding.sizing.shapes[slot.0].clone(),
        })
    }

    /// The memory from which the host reads slots, and that of the check flags.
    fn downloads(&self, slots: &[SlotId]) -> Vec<&(SlotId, HostAccess)> {
        let checks = self.program.inner.plan.runtime_checks.as_ref();
        let checks = checks.map(|checks| checks.slot);
        let all = self.binding.downloads.iter();
        all.filter(|(slot, _)| slots.contains(slot) || checks == Some(*slot))
            .collect()
    }

    /// Begins to map the memory from which the host reads outputs. First copies the outputs to that memory if the
    /// run did not. Also returns the submission to wait for.
    fn begin_read(
        &self,
        downloads: &[&(SlotId, HostAccess)],
    ) -> Result<(PendingMapping, SubmissionIndex)> {
        let device = &self.program.inner.device;
        let copied = self.staged || downloads.iter().all(|(_, access)| !access.staged);
        let submission = if copied {
            self.submission.clone()
        } else {
            in_error_scope(device.wgpu(), || {
                let mut encoder = device.wgpu().create_command_encoder(&Default::default());
                let downloads = downloads.iter().copied();
                record_downloads(device, &mut encoder, &self.binding, downloads);
                Ok(device.queue().submit([encoder.finish()]))
            })?
        };
        let accesses = downloads.iter().map(|(_, access)| access);
        let mapped = PendingMapping::begin(device, distinct_buffers(accesses), MapMode::Read)?;
        Ok((mapped, submission))
    }

    /// Fails if a check flag says that a check failed.
    fn read_check_flags(&self, checks: &RuntimeChecks, access: &HostAccess) -> Result<()> {
        let bytes = self.binding.sizing.placements[checks.slot.0].bytes;
        access
            .memory
            .read(access.offset..access.offset + bytes, |view| {
                self.record_read(checks.slot, access, view);
                if view.iter().all(|byte| *byte == 0) {
                    return Ok(());
                }
                let words = view.chunks_exact(4);
                let words =
                    words.filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?)));
                let words: Vec<u32> = words.collect();
                let error = checks.first_error(&words, &self.binding.sizes);
                error.map_or(Ok(()), Err)
            })
    }

    /// Makes the output tensors from mapped memory. Fails if a check of the model failed.
    fn decode_outputs(&self, downloads: &[&(SlotId, HostAccess)]) -> Result<Vec<Tensor>> {
        self.check_flags(downloads)?;
        self.decode_slots(&self.program.inner.plan.outputs, downloads)
    }

    /// Fails if a check of the model failed. The check flags must be mapped.
    fn check_flags(&self, downloads: &[&(SlotId, HostAccess)]) -> Result<()> {
        let Some(checks) = &self.program.inner.plan.runtime_checks else {
            return Ok(());
        };
        let flags = downloads.iter().find(|(slot, _)| *slot == checks.slot);
        flags.map_or(Ok(()), |(_, access)| self.read_check_flags(checks, access))
    }

    /// Makes tensors of slots from mapped memory. A slot that occurs twice is decoded once.
    fn decode_slots(
        &self,
        slots: &[SlotId],
        downloads: &[&(SlotId, HostAccess)],
    ) -> Result<Vec<Tensor>> {
        let mut decoded = HashMap::<SlotId, Tensor>::new();
        for (slot, access) in downloads {
            if slots.contains(slot) {
                decoded.insert(*slot, self.decode(*slot, access)?);
            }
        }
        let find = |slot: &SlotId| {
            let tensor = decoded.get(slot).cloned();
            tensor.ok_or_else(|| Error::internal("an output was not read"))
        };
        slots.iter().map(find).collect()
    }

    /// Makes a tensor from the contents of a slot, which the host must be able to access.
    fn decode(&self, slot: SlotId, access: &HostAccess) -> Result<Tensor> {
        let inner = &self.program.inner;
        let info = &inner.plan.slots[slot.0];
        let shape = &self.binding.sizing.shapes[slot.0];
        let bytes = self.binding.sizing.placements[slot.0].bytes;
        let result = if bytes == 0 {
            convert::decode(info.dtype, info.storage, shape, &[])
        } else {
            let end = access.offset + bytes.next_multiple_of(4);
            access.memory.read(access.offset..end, |view| {
                let bytes = view.get(..bytes as usize).unwrap_or_default();
                self.record_read(slot, access, bytes);
                match info.layout {
                    Layout::Linear => convert::decode(info.dtype, info.storage, shape, bytes),
                    _ => {
                        let bytes = to_row_major(&info.layout, info.storage, shape, bytes);
                        convert::decode(info.dtype, info.storage, shape, &bytes)
                    }
                }
            })
        };
        add(&inner.counters.downloaded, bytes);
        result.at(|| info.name.clone())
    }

    /// Records that the host reads the bytes of a slot, if the device records its commands.
    fn record_read(&self, slot: SlotId, access: &HostAccess, bytes: &[u8]) {
        let inner = &self.program.inner;
        let storage = inner.plan.slots[slot.0].storage;
        if let Ok(buffer) = access.memory.buffer() {
            let device = &inner.device;
            device.record(|recorder| recorder.read_buffer(buffer, access.offset, storage, bytes));
        }
    }

    /// Copies a slot, given by its index, to a new buffer that the host can map. Also returns the submission of the
    /// copy.
    fn copy_slot(&self, slot: usize) -> Result<(HostAccess, SubmissionIndex)> {
        let inner = &self.program.inner;
        let device = &inner.device;
        let placement = &self.binding.sizing.placements[slot];
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let buffer = inner
            .counters
            .buffer(device.wgpu(), "slot", placement.binding_bytes, usage);
        let mut encoder = device.wgpu().create_command_encoder(&Default::default());
        let source = self.binding.memory[slot].buffer()?;
        let (offset, bytes) = (placement.location.offset, placement.binding_bytes);
        encoder.copy_buffer_to_buffer(source, offset, &buffer, 0, bytes);
        device.record(|recorder| recorder.copy_buffer((source, offset), (&buffer, 0), bytes));
        let access = HostAccess {
            memory: SlotMemory::Buffer(buffer),
            offset: 0,
            staged: true,
        };
        Ok((access, device.queue().submit([encoder.finish()])))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            self.program.inner.release_context(context);
        }
    }
}

/// Sets check flags and counters to zero.
fn clear_words(
    program: &ProgramInner,
    encoder: &mut CommandEncoder,
    binding: &RunBinding,
) -> Result<()> {
    for slot in program.plan.word_slots() {
        let placement = &binding.sizing.placements[slot.0];
        let buffer = binding.memory[slot.0].buffer()?;
        let (offset, bytes) = (placement.location.offset, placement.bytes);
        encoder.clear_buffer(buffer, offset, Some(bytes));
        let device = &program.device;
        device.record(|recorder| recorder.clear_buffer(buffer, offset, bytes));
    }
    Ok(())
}

/// Records the dispatch of the step at an index; nothing if the step has no workgroups.
pub(super) fn record_step(
    program: &ProgramInner,
    pass: &mut ComputePass,
    binding: &RunBinding,
    index: usize,
) {
    let Some(group) = &binding.bind_groups[index] else {
        return;
    };
    let [x, y, z] = binding.sizing.workgroups[index];
    pass.set_pipeline(&program.pipelines[program.plan.steps[index].kernel].raw);
    pass.set_bind_group(0, group, &[]);
    pass.dispatch_workgroups(x, y, z);
    program
        .device
        .record(|recorder| recorder.dispatch(group, [x, y, z]));
    add(&program.counters.dispatches, 1);
}

/// Records copies of the outputs and the check flags to the staging memory that the host reads.
pub(super) fn record_downloads<'a>(
    device: &GpuDevice,
    encoder: &mut CommandEncoder,
    binding: &RunBinding,
    downloads: impl Iterator<Item = &'a (SlotId, HostAccess)>,
) {
    for (slot, access) in downloads {
        let placement = &binding.sizing.placements[slot.0];
        let bytes = placement.bytes.next_multiple_of(4);
        let (source, target) = (binding.memory[slot.0].buffer(), access.memory.buffer());
        if let (true, Ok(source), Ok(target)) = (access.staged && bytes > 0, source, target) {
            let (from, to) = (placement.location.offset, access.offset);
            encoder.copy_buffer_to_buffer(source, from, target, to, bytes);
            device.record(|recorder| recorder.copy_buffer((source, from), (target, to), bytes));
        }
    }
}

/// The distinct buffers that must be mapped before the host accesses this memory.
pub(super) fn distinct_buffers<'a>(accesses: impl Iterator<Item = &'a HostAccess>) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    for access in accesses {
        if let SlotMemory::Buffer(buffer) = &access.memory
            && !buffers.contains(buffer)
        {
            buffers.push(buffer.clone());
        }
    }
    buffers
}
