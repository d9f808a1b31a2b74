//! Compute pipelines: compiled in parallel, and once per kernel and device.

#[cfg(feature = "translate")]
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use wgpu::{
    AdapterInfo, BindGroupLayout, BindGroupLayoutEntry, BindingType, BufferBindingType,
    ComputePipelineDescriptor, PipelineCompilationOptions, ShaderStages, StorageTextureAccess,
    TextureViewDimension,
};

use crate::error::{Error, ErrorContext, Result};
use crate::interrupt::ActiveLimits;
use crate::kernel::capabilities::SizesSpace;
use crate::kernel::plan::{Access, Kernel};
use crate::kernel::workgroup_memory;

use super::error_scope::{in_error_scope, lock};
use super::memory::texture_format;
use super::parallel;
use super::pipeline_cache::DiskCache;
#[cfg(feature = "translate")]
use super::translate::{TranslatedKernel, Translator};
use super::trusted;
use super::vector_width;

/// A compiled kernel.
pub(super) struct Pipeline {
    pub(super) raw: wgpu::ComputePipeline,
    pub(super) layout: BindGroupLayout,
    /// True if the kernel was dispatched with zero workgroups; see [`super::warm_up`].
    pub(super) is_warmed_up: AtomicBool,
}

/// All pipelines of a device.
pub(super) struct Pipelines {
    entries: Mutex<HashMap<PipelineKey, PipelineEntry>>,
    /// Bind group layouts of kernels.
    layouts: Mutex<HashMap<Signature, BindGroupLayout>>,
    /// Cache of compiled pipelines on disk.
    disk: Option<DiskCache>,
    /// See [`Pipelines::compiles_on_one_thread`].
    compiles_on_one_thread: bool,
    /// See [`DeviceOptions::fill_workgroup_memory`](super::DeviceOptions::fill_workgroup_memory).
    fills_workgroup_memory: bool,
    /// Translates every kernel to the shading languages of other platforms, if the device was opened with that option.
    #[cfg(feature = "translate")]
    translator: Option<Translator>,
}

/// A pipeline; `None` until it is compiled. Locked while the pipeline is compiled: other threads that need the same
/// kernel wait instead of compiling it again.
type PipelineEntry = Arc<Mutex<Option<Arc<Pipeline>>>>;

/// Identity of a kernel; the label is not part of it.
#[derive(PartialEq, Eq, Hash)]
struct PipelineKey {
    wgsl: String,
    signature: Signature,
    zeroes_workgroup_memory: bool,
}

/// Bindings of a kernel: the access of each slot, and the address space of the sizes if the kernel takes any.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Signature {
    bindings: Vec<Access>,
    sizes: Option<SizesSpace>,
}

impl Pipelines {
    pub(super) fn new(
        device: &wgpu::Device,
        info: &AdapterInfo,
        cache: Option<PathBuf>,
    ) -> Pipelines {
        Pipelines {
            entries: Mutex::default(),
            layouts: Mutex::default(),
            disk: cache.and_then(|folder| DiskCache::open(device, info, &folder)),
            compiles_on_one_thread: vector_width::compiles_on_one_thread(info),
            fills_workgroup_memory: false,
            #[cfg(feature = "translate")]
            translator: None,
        }
    }

    /// Sets whether kernels start with filled workgroup memory.
    pub(super) fn with_filled_workgroup_memory(self, fills_workgroup_memory: bool) -> Pipelines {
        Pipelines {
            fills_workgroup_memory,
            ..self
        }
    }

    /// Checks every kernel with a translator.
    #[cfg(feature = "translate")]
    pub(super) fn with_translator(self, translator: Option<Translator>) -> Pipelines {
        Pipelines { translator, ..self }
    }

    /// The kernels that the translator has checked.
    #[cfg(feature = "translate")]
    pub(super) fn translated(&self) -> BTreeSet<TranslatedKernel> {
        let translator = self.translator.as_ref();
        translator.map(Translator::translated).unwrap_or_default()
    }

    /// True if only one thread of this process may use the driver's compiler at a time.
    pub(super) fn compiles_on_one_thread(&self) -> bool {
        self.compiles_on_one_thread
    }

    /// Number of threads that compile the kernels of one program.
    pub(super) fn threads(&self) -> usize {
        match self.compiles_on_one_thread {
            true => 1,
            false => parallel::default_threads(),
        }
    }

    /// Number of compiled pipelines.
    pub(super) fn count(&self) -> usize {
        let is_compiled = |entry: &PipelineEntry| lock(entry).is_some();
        let entries: Vec<PipelineEntry> = lock(&self.entries).values().cloned().collect();
        entries.iter().filter(|entry| is_compiled(entry)).count()
    }

    /// Returns the pipelines of kernels and how many of them had to be compiled. Calls `made` after each one. Collects
    /// errors, so that all kernels that do not compile are reported at once.
    pub(super) fn get_or_create_all(
        &self,
        device: &wgpu::Device,
        kernels: &[Kernel],
        on_kernel: &(dyn Fn() + Sync),
    ) -> Result<(Vec<Arc<Pipeline>>, usize)> {
        let limits = ActiveLimits::current();
        let get = |kernel: &Kernel| {
            // The limit is checked again below, where one error stands for all kernels.
            if limits.check().is_err() {
                return None;
            }
            let pipeline = self.get_or_create(device, kernel);
            on_kernel();
            Some(pipeline)
        };
        let results = parallel::map(self.threads(), kernels, get);
        limits.check().at(|| "compiling kernels".into())?;
        let results =
            results.ok_or_else(|| Error::device("the driver failed while compiling kernels"))?;
        let (mut pipelines, mut created, mut errors) = (Vec::new(), 0, Vec::new());
        for result in results.into_iter().flatten() {
            match result {
                Ok((pipeline, is_new)) => {
                    created += usize::from(is_new);
                    pipelines.push(pipeline);
                }
                Err(error) => errors.push(error),
            }
        }
        if created > 0
            && let Some(disk) = &self.disk
        {
            disk.save();
        }
        match Error::all(errors) {
            Some(error) => Err(error),
            None => Ok((pipelines, created)),
        }
    }

    /// Returns the pipeline of a kernel, and true if it had to be compiled.
    pub(super) fn get_or_create(
        &self,
        device: &wgpu::Device,
        kernel: &Kernel,
    ) -> Result<(Arc<Pipeline>, bool)> {
        let signature = Signature {
            bindings: kernel.bindings.clone(),
            sizes: (kernel.sizes > 0).then_some(kernel.sizes_space),
        };
        let key = PipelineKey {
            wgsl: kernel.wgsl.clone(),
            signature: signature.clone(),
            zeroes_workgroup_memory: kernel.zeroes_workgroup_memory,
        };
        let entry = lock(&self.entries).entry(key).or_default().clone();
        let mut entry = lock(&entry);
        if let Some(pipeline) = &*entry {
            return Ok((pipeline.clone(), false));
        }
        let pipeline = Arc::new(self.create(device, kernel, &signature)?);
        *entry = Some(pipeline.clone());
        Ok((pipeline, true))
    }

    /// Compiles a kernel.
    fn create(
        &self,
        device: &wgpu::Device,
        kernel: &Kernel,
        signature: &Signature,
    ) -> Result<Pipeline> {
        let failed = |error: Error| {
            Error::device(format!(
                "kernel {} does not compile: {}",
                kernel.label,
                error.message()
            ))
        };
        #[cfg(feature = "translate")]
        if let Some(translator) = &self.translator {
            translator.check(kernel).map_err(failed)?;
        }
        in_error_scope(device, || {
            let filled = match self.fills_workgroup_memory {
                true => workgroup_memory::filled(kernel)?,
                false => None,
            };
            let wgsl = filled.as_ref().unwrap_or(&kernel.wgsl);
            let module = trusted::shader(device, &kernel.label, wgsl);
            let layout = self.layout(device, signature);
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(&kernel.label),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let raw = device.create_compute_pipeline(&ComputePipelineDescriptor {
                label: Some(&kernel.label),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: kernel.zeroes_workgroup_memory,
                    ..PipelineCompilationOptions::default()
                },
                cache: self.disk.as_ref().map(DiskCache::raw),
            });
            Ok(Pipeline {
                raw,
                layout,
                is_warmed_up: AtomicBool::new(false),
            })
        })
        .map_err(failed)
    }

    /// The bind group layout of a signature; creates it if needed.
    fn layout(&self, device: &wgpu::Device, signature: &Signature) -> BindGroupLayout {
        lock(&self.layouts)
            .entry(signature.clone())
            .or_insert_with(|| create_layout(device, signature))
            .clone()
    }
}

fn create_layout(device: &wgpu::Device, signature: &Signature) -> BindGroupLayout {
    let storage = signature
        .bindings
        .iter()
        .map(|access| binding_type(*access));
    let sizes = signature.sizes.map(sizes_type);
    let entries: Vec<BindGroupLayoutEntry> = (0..)
        .zip(storage.chain(sizes))
        .map(|(binding, ty)| BindGroupLayoutEntry {
            binding,
            visibility: ShaderStages::COMPUTE,
            ty,
            count: None,
        })
        .collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &entries,
    })
}

/// Type of the binding of a slot.
fn binding_type(access: Access) -> BindingType {
    match access {
        Access::Read | Access::ReadWrite | Access::CheckFlags | Access::StartedWorkgroups => {
            buffer(BufferBindingType::Storage {
                read_only: access == Access::Read,
            })
        }
        Access::TextureArray(texel) => BindingType::StorageTexture {
            access: StorageTextureAccess::ReadOnly,
            format: texture_format(texel),
            view_dimension: TextureViewDimension::D2Array,
        },
        Access::AliasedTexture(texel) => BindingType::StorageTexture {
            access: StorageTextureAccess::ReadOnly,
            format: texture_format(texel),
            view_dimension: TextureViewDimension::D2,
        },
    }
}

/// Type of the binding of a kernel's sizes.
fn sizes_type(space: SizesSpace) -> BindingType {
    match space {
        SizesSpace::Uniform => buffer(BufferBindingType::Uniform),
        SizesSpace::Storage => binding_type(Access::Read),
    }
}

/// Type of a buffer binding.
fn buffer(ty: BufferBindingType) -> BindingType {
    BindingType::Buffer {
        ty,
        has_dynamic_offset: false,
        min_binding_size: None,
    }
}
