//! The adapters of this machine, and the choice of one.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use wgpu::wgt::CooperativeScalarType;
use wgpu::{Adapter, AdapterInfo, Backends, DeviceType, Features, Instance, Limits};

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::capabilities::{Capabilities, CooperativeMatrix};
use crate::kernel::layout::TextureLimits;

use super::trusted::aliased;

/// The choice of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The best GPU, else the software rasteriser.
    #[default]
    Auto,
    /// The best GPU, never a software rasteriser.
    Gpu,
    /// A software rasteriser such as lavapipe or WARP.
    Software,
    /// No adapter at all: the host interpreter, which is chosen before a device is opened.
    Cpu,
    /// The adapter at this index in [`adapters`].
    Index(usize),
    /// The first adapter whose name contains this text; case is ignored.
    Name(String),
}

/// Kind of an adapter's device, from the most to the least preferred one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares memory with the CPU.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// The driver does not report the kind.
    Other,
    /// A software rasteriser.
    Software,
}

/// Properties of an adapter that are known before it is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdapterReport {
    /// Index in the list, for [`DeviceChoice::Index`].
    pub index: usize,
    /// Name that the driver reports.
    pub name: String,
    /// `vulkan`, `metal` or `dx12`.
    pub backend: String,
    /// Kind of device.
    pub kind: AdapterKind,
    /// Driver and its version.
    pub driver: String,
    /// Limits and features that planning depends on.
    pub capabilities: Capabilities,
    /// Optional features that Onionskin uses and the adapter has, under wgpu's names.
    pub features: Vec<String>,
}

/// Every adapter of this machine, in the driver's order.
pub fn adapters() -> Vec<AdapterReport> {
    enumerate_adapters()
        .iter()
        .enumerate()
        .map(|(index, adapter)| report(index, adapter))
        .collect()
}

/// Selects the adapter for a choice. The error lists the adapters found and says what to do.
pub(super) fn select(choice: &DeviceChoice) -> Result<Adapter> {
    let adapters = enumerate_adapters();
    match select_index(choice, &adapters) {
        Some(index) => adapters
            .into_iter()
            .nth(index)
            .ok_or_else(|| Error::internal("the chosen adapter is not in the list")),
        None => Err(no_match_error(choice, &adapters)),
    }
}

/// Checks that an adapter fits a choice. `Auto` and `Cpu` always pass.
///
/// # Errors
/// Fails as opening a device does; the message lists the adapters.
pub fn check_choice(choice: &DeviceChoice) -> Result<()> {
    if matches!(choice, DeviceChoice::Auto | DeviceChoice::Cpu) {
        return Ok(());
    }
    adapter_index(choice).map(drop)
}

/// Index of the adapter that a choice opens.
///
/// # Errors
/// No adapter fits the choice; the message lists the adapters.
pub fn adapter_index(choice: &DeviceChoice) -> Result<usize> {
    let adapters = enumerate_adapters();
    let index = select_index(choice, &adapters);
    index.ok_or_else(|| no_match_error(choice, &adapters))
}

/// Optional features that are enabled where an adapter has them.
pub(super) fn optional_features() -> Features {
    Features::SHADER_F16
        | Features::SHADER_INT64
        | Features::SHADER_F64
        | Features::SUBGROUP
        | Features::SUBGROUP_BARRIER
        | Features::IMMEDIATES
        | Features::TIMESTAMP_QUERY
        | Features::MAPPABLE_PRIMARY_BUFFERS
        | Features::PIPELINE_CACHE
        | Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES
}

/// Capabilities of every device: WebGPU's default limits and no optional feature.
pub fn portable() -> Capabilities {
    let info = wgpu::AdapterInfo::new(DeviceType::Other, wgpu::Backend::BrowserWebGpu);
    capabilities(Features::empty(), &Limits::defaults(), &info)
}

/// The description of a GPU with the features of this adapter.
pub(super) fn as_gpu(info: &AdapterInfo) -> AdapterInfo {
    AdapterInfo {
        device_type: DeviceType::DiscreteGpu,
        ..info.clone()
    }
}

/// Capabilities of a device with these features and limits.
pub(super) fn capabilities(
    features: Features,
    limits: &Limits,
    info: &AdapterInfo,
) -> Capabilities {
    let software = info.device_type == DeviceType::Cpu;
    // Metal counts two more kernel arguments as buffers: the uniform sizes and the lengths of runtime arrays. Kernels
    // for a software rasteriser read their sizes from a storage buffer.
    let extra_buffers = match info.backend {
        wgpu::Backend::Metal => 2,
        _ => u32::from(software),
    };
    let subgroups = features.contains(Features::SUBGROUP);
    let textures = texture_limits(features, limits);
    let is_fixed = subgroups && info.subgroup_min_size == info.subgroup_max_size;
    let has_aliasing = software && textures.bindings > 0 && aliased::is_expected(info);
    let alignment = u64::from(limits.min_storage_buffer_offset_alignment);
    Capabilities {
        max_binding_size: limits
            .max_storage_buffer_binding_size
            .min(limits.max_buffer_size),
        max_buffer_size: limits.max_buffer_size,
        offset_alignment: alignment.max(if has_aliasing { aliased::ALIGNMENT } else { 32 }),
        max_storage_buffers: limits
            .max_storage_buffers_per_shader_stage
            .saturating_sub(extra_buffers),
        max_workgroups: limits.max_compute_workgroups_per_dimension,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        max_workgroup_memory: limits.max_compute_workgroup_storage_size,
        int64: features.contains(Features::SHADER_INT64),
        float64: features.contains(Features::SHADER_F64),
        float16: features.contains(Features::SHADER_F16),
        subgroups,
        subgroup_barriers: features.contains(Features::SUBGROUP_BARRIER),
        subgroup_size: if is_fixed { info.subgroup_min_size } else { 0 },
        cooperative_matrices: Vec::new(),
        software,
        buffer_aliasing: has_aliasing,
        textures,
    }
}

/// Limits of storage textures; all zero if their format may not be both read and written.
fn texture_limits(features: Features, limits: &Limits) -> TextureLimits {
    if !features.contains(Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES) {
        return TextureLimits::default();
    }
    TextureLimits {
        size: limits.max_texture_dimension_2d,
        layers: limits.max_texture_array_layers,
        bindings: limits.max_storage_textures_per_shader_stage,
    }
}

/// Cooperative matrices of an adapter that kernels can use: square ones with accumulators in single precision.
pub(super) fn matrix_units(adapter: &Adapter) -> Vec<CooperativeMatrix> {
    let properties = adapter.cooperative_matrix_properties().into_iter();
    let units = properties.filter_map(|matrix| {
        let is_square = matrix.m_size == matrix.n_size && matrix.n_size == matrix.k_size;
        let half = match (matrix.ab_type, matrix.cr_type) {
            (CooperativeScalarType::F16, CooperativeScalarType::F32) => true,
            (CooperativeScalarType::F32, CooperativeScalarType::F32) => false,
            _ => return None,
        };
        let unit = CooperativeMatrix {
            size: matrix.m_size,
            half,
        };
        (is_square && !matrix.saturating_accumulation).then_some(unit)
    });
    units.collect()
}

impl AdapterKind {
    /// Kind of the adapter that wgpu describes.
    pub(super) fn of(info: &AdapterInfo) -> AdapterKind {
        match info.device_type {
            DeviceType::DiscreteGpu => AdapterKind::Discrete,
            DeviceType::IntegratedGpu => AdapterKind::Integrated,
            DeviceType::VirtualGpu => AdapterKind::Virtual,
            DeviceType::Cpu => AdapterKind::Software,
            DeviceType::Other => AdapterKind::Other,
        }
    }
}

/// True for lavapipe, on Vulkan.
pub(super) fn is_lavapipe(info: &AdapterInfo) -> bool {
    info.backend == wgpu::Backend::Vulkan && info.driver == "llvmpipe"
}

/// Name and version of the driver in one string.
pub(super) fn driver(info: &AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info)
        .trim()
        .to_owned()
}

/// All adapters of the backends that Onionskin supports.
pub(super) fn enumerate_adapters() -> Vec<Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    // Validation layers are enabled by environment variables only, not by every debug build of an application.
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    let instance = Instance::new(descriptor);
    let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    pollster::block_on(instance.enumerate_adapters(backends))
}

/// Report on the adapter at an index.
pub(super) fn report(index: usize, adapter: &Adapter) -> AdapterReport {
    let info = adapter.get_info();
    let enabled = adapter.features() & optional_features();
    AdapterReport {
        index,
        name: info.name.clone(),
        backend: info.backend.to_string(),
        kind: AdapterKind::of(&info),
        driver: driver(&info),
        capabilities: capabilities(enabled, &adapter.limits(), &info),
        features: enabled
            .iter_names()
            .map(|(name, _)| name.to_owned())
            .collect(),
    }
}

/// Index of the adapter for a choice; `None` if no adapter fits.
fn select_index(choice: &DeviceChoice, adapters: &[Adapter]) -> Option<usize> {
    let infos: Vec<AdapterInfo> = adapters.iter().map(Adapter::get_info).collect();
    let best = |fits: &dyn Fn(AdapterKind) -> bool| {
        (0..infos.len())
            .filter(|index| fits(AdapterKind::of(&infos[*index])))
            .min_by_key(|index| AdapterKind::of(&infos[*index]))
    };
    match choice {
        DeviceChoice::Auto => best(&|_| true),
        DeviceChoice::Gpu => best(&|kind| kind != AdapterKind::Software),
        DeviceChoice::Software => best(&|kind| kind == AdapterKind::Software),
        DeviceChoice::Cpu => None,
        DeviceChoice::Index(index) => (*index < infos.len()).then_some(*index),
        DeviceChoice::Name(substring) => {
            let lowercase = substring.to_lowercase();
            infos
                .iter()
                .position(|info| info.name.to_lowercase().contains(&lowercase))
        }
    }
}

/// The error of a choice that no adapter fits; its message lists the adapters.
fn no_match_error(choice: &DeviceChoice, adapters: &[Adapter]) -> Error {
    if *choice == DeviceChoice::Cpu {
        return Error::usage("the host has no adapter to open");
    }
    let reports: Vec<String> = adapters
        .iter()
        .enumerate()
        .map(|(index, adapter)| report(index, adapter).to_string())
        .collect();
    let message = if reports.is_empty() {
        "no GPU adapter and no software rasteriser was found".to_owned()
    } else {
        format!(
            "no adapter fits the choice {choice}; there is {}",
            reports.join("; ")
        )
    };
    // A wrong name or number is a usage error; a missing kind of device is a property of the machine.
    let kind = match choice {
        DeviceChoice::Index(_) | DeviceChoice::Name(_) => ErrorKind::Usage,
        _ => ErrorKind::Device,
    };
    Error::new(kind, message).help(if reports.is_empty() {
        "install the GPU's Vulkan driver, or the software rasteriser lavapipe (Debian, Ubuntu, Fedora: \
         mesa-vulkan-drivers; Arch: vulkan-swrast); the device cpu runs on the host without any adapter"
    } else {
        "choose one of these by number or by a part of its name, or auto, gpu, software, cpu"
    })
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdapterKind::Discrete => "discrete GPU",
            AdapterKind::Integrated => "integrated GPU",
            AdapterKind::Virtual => "virtual GPU",
            AdapterKind::Other => "GPU",
            AdapterKind::Software => "software rasteriser",
        })
    }
}

impl fmt::Display for AdapterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdapterReport {
            index,
            name,
            backend,
            kind,
            driver,
            ..
        } = self;
        write!(f, "{index}: {name} ({kind}, {backend}, {driver})")
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Gpu => f.write_str("gpu"),
            DeviceChoice::Software => f.write_str("software"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Index(index) => write!(f, "{index}"),
            DeviceChoice::Name(name) => f.write_str(name),
        }
    }
}

/// Every string is a choice: a keyword, a number, or else a part of an adapter's name.
impl FromStr for DeviceChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<DeviceChoice, Infallible> {
        Ok(match text.trim().to_lowercase().as_str() {
            "" | "auto" => DeviceChoice::Auto,
            "gpu" => DeviceChoice::Gpu,
            "software" => DeviceChoice::Software,
            "cpu" | "host" => DeviceChoice::Cpu,
            other => match other.parse() {
                Ok(index) => DeviceChoice::Index(index),
                Err(_) => DeviceChoice::Name(text.trim().to_owned()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_round_trip() {
        for text in ["auto", "gpu", "software", "cpu", "3", "NVIDIA H200"] {
            let choice: DeviceChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
    }
}
