//! Tensors in device memory: inputs and outputs of runs, and values that stay on the device between runs.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use wgpu::{Buffer, BufferUsages, MapMode};

use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::Layout;
use crate::tensor::{Tensor, TensorStorage};

use super::convert;
use super::device::GpuDevice;
use super::error_scope::in_error_scope;
use super::execute::Run;
use super::program::Program;
use super::statistics::Counters;
use super::transfer::PendingMapping;

/// A tensor in a device buffer: an output of a run, or an input that the application made.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// The buffer. As an input it needs the usage `COPY_SRC`.
    pub buffer: Buffer,
    /// Bytes from the start of the buffer; a multiple of 4.
    pub offset: u64,
    /// Element type of the model.
    pub dtype: DType,
    /// Element type in the buffer.
    pub storage: StorageType,
    /// Sizes, outermost first. The elements are contiguous.
    pub shape: Vec<usize>,
}

/// An input of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunInput<'a> {
    /// A host tensor, which is uploaded.
    Host(&'a Tensor),
    /// A device tensor, which is copied on the device.
    Device(&'a DeviceTensor),
}

impl RunInput<'_> {
    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        match self {
            RunInput::Host(tensor) => tensor.shape(),
            RunInput::Device(tensor) => &tensor.shape,
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            RunInput::Host(tensor) => tensor.dtype(),
            RunInput::Device(tensor) => tensor.dtype,
        }
    }
}

impl<'a> From<&'a Tensor> for RunInput<'a> {
    fn from(tensor: &'a Tensor) -> RunInput<'a> {
        RunInput::Host(tensor)
    }
}

impl<'a> From<&'a DeviceTensor> for RunInput<'a> {
    fn from(tensor: &'a DeviceTensor) -> RunInput<'a> {
        RunInput::Device(tensor)
    }
}

impl DeviceTensor {
    /// Number of bytes in the buffer.
    pub(super) fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.storage.size()
    }
}

/// The bytes of a tensor in a buffer of its own on a device. The host reads them when they are used.
pub(crate) struct DeviceStorage {
    device: GpuDevice,
    tensor: DeviceTensor,
    /// The tensor on the host, once its bytes were used.
    read: OnceLock<Tensor>,
}

impl DeviceStorage {
    /// A tensor whose bytes stay on the device.
    pub(super) fn tensor_of(device: &GpuDevice, tensor: DeviceTensor) -> Result<Tensor> {
        let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
        let storage = DeviceStorage {
            device: device.clone(),
            tensor,
            read: OnceLock::new(),
        };
        Tensor::from_storage(dtype, shape, Arc::new(storage))
    }

    /// The storage of a tensor; `None` if its bytes are not on a device.
    fn of(tensor: &Tensor) -> Option<&DeviceStorage> {
        tensor.storage().as_any()?.downcast_ref()
    }

    /// Reads the tensor back.
    fn read(&self) -> Result<Tensor> {
        let DeviceTensor {
            dtype,
            storage,
            shape,
            ..
        } = &self.tensor;
        let bytes = self.tensor.bytes();
        if bytes == 0 {
            return convert::decode(*dtype, *storage, shape, &[]);
        }
        let device = &self.device;
        device.check_alive()?;
        let (buffer, submission) = in_error_scope(device.wgpu(), || {
            let size = bytes.next_multiple_of(4);
            let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
            let buffer = Counters::default().buffer(device.wgpu(), "state to read", size, usage);
            let mut encoder = device.wgpu().create_command_encoder(&Default::default());
            let (source, offset) = (&self.tensor.buffer, self.tensor.offset);
            encoder.copy_buffer_to_buffer(source, offset, &buffer, 0, size);
            device.record(|recorder| recorder.copy_buffer((source, offset), (&buffer, 0), size));
            Ok((buffer, device.queue().submit([encoder.finish()])))
        })?;
        let mapped = PendingMapping::begin(device, vec![buffer.clone()], MapMode::Read)?;
        mapped.wait(Some(&submission))?;
        let view = buffer.get_mapped_range(..bytes);
        let view = view.map_err(|error| Error::device(error.to_string()))?;
        convert::decode(*dtype, *storage, shape, &view)
    }
}

/// True if the bytes of a tensor were on a device that is lost.
pub(crate) fn is_lost(tensor: &Tensor) -> bool {
    let storage = DeviceStorage::of(tensor);
    storage.is_some_and(|storage| storage.device.is_lost() && storage.read.get().is_none())
}

/// Buffers that nobody reads any more.
#[derive(Default)]
pub(crate) struct FreeBuffers(Vec<Buffer>);

impl FreeBuffers {
    /// The buffers of those tensors on a device whose bytes no other tensor shares. These tensors must not be read again.
    pub(crate) fn of<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> FreeBuffers {
        let exclusive = tensors.filter(|tensor| !tensor.is_shared());
        let storages = exclusive.filter_map(DeviceStorage::of);
        FreeBuffers(
            storages
                .map(|storage| storage.tensor.buffer.clone())
                .collect(),
        )
    }

    /// Removes and returns a buffer of this size.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Buffer> {
        let index = self.0.iter().position(|buffer| buffer.size() == bytes)?;
        Some(self.0.swap_remove(index))
    }
}

impl TensorStorage for DeviceStorage {
    /// Reads the bytes back on first use and keeps them.
    ///
    /// # Panics
    /// The device is lost.
    #[expect(
        clippy::panic,
        reason = "a lost device has no bytes; `load` returns the error"
    )]
    fn bytes(&self) -> &[u8] {
        let read = || self.read().unwrap_or_else(|error| panic!("{error}"));
        self.read.get_or_init(read).bytes()
    }

    fn len(&self) -> usize {
        self.tensor.shape.iter().product::<usize>() * self.tensor.dtype.size()
    }

    fn load(&self) -> Result<Option<Arc<dyn TensorStorage>>> {
        let tensor = self.read.get().cloned().map_or_else(|| self.read(), Ok)?;
        Ok(Some(tensor.into_storage()))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Program {
    /// Like [`Program::launch_with`], with tensors on the host or on a device. Tensors of another device, and those that the
    /// program stores otherwise, are read back first.
    pub(crate) fn launch_tensors(&self, sizes: &Bindings, inputs: &[Tensor]) -> Result<Run> {
        let placed = inputs.iter().enumerate();
        let placed = placed.map(|(index, tensor)| match DeviceStorage::of(tensor) {
            Some(storage) if !self.reads(storage, index) => tensor.load(),
            _ => Ok(tensor.clone()),
        });
        let placed: Vec<Tensor> = placed.collect::<Result<_>>()?;
        let inputs = placed.iter().map(|tensor| match DeviceStorage::of(tensor) {
            Some(storage) => RunInput::Device(&storage.tensor),
            None => RunInput::Host(tensor),
        });
        self.launch_with(sizes, &inputs.collect::<Vec<_>>())
    }

    /// True if the device can copy a tensor to an input of the program, given by its index.
    fn reads(&self, storage: &DeviceStorage, input: usize) -> bool {
        let (plan, tensor) = (self.plan(), &storage.tensor);
        let slot = plan.inputs.get(input).copied().flatten();
        let is_copied = slot.is_none_or(|slot| {
            let slot = &plan.slots[slot.0];
            let row = tensor.shape.last().map_or(0, |row| *row as u64);
            // A device copies whole words.
            let is_aligned =
                slot.layout == Layout::Linear || (row * slot.storage.size()).is_multiple_of(4);
            slot.storage == tensor.storage && is_aligned
        });
        storage.device.is_same(self.device()) && is_copied
    }
}
