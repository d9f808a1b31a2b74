//! An open device.

#[cfg(feature = "translate")]
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use wgpu::{AdapterInfo, Features, Limits, PollError, PollType, SubmissionIndex};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernel::capabilities::{Capabilities, CooperativeMatrix};

use super::adapter::{self, AdapterKind};
use super::device_options::{DeviceOptions, FeatureLevel};
use super::error_scope::lock;
use super::pipeline::Pipelines;
use super::recording::{CommandLog, Recording};
#[cfg(feature = "translate")]
use super::translate::{TranslatedKernel, Translator};
use super::trusted::{self, aliased};

/// A thread with limits checks them this often while it waits for the device.
const TIME_BETWEEN_CHECKS: Duration = Duration::from_millis(10);

/// An open device. Clones are the same device.
#[derive(Clone)]
pub struct GpuDevice {
    inner: Arc<DeviceInner>,
}

/// How a device was opened.
struct DeviceOrigin {
    adapter: wgpu::Adapter,
    options: DeviceOptions,
    /// The reason of the loss of the device that this one replaces.
    replaces: Option<String>,
    /// The device that replaces this one once it is lost.
    replacement: Mutex<Option<GpuDevice>>,
}

struct DeviceInner {
    raw: wgpu::Device,
    queue: wgpu::Queue,
    /// `None` if the device belongs to an application, or is a second device on an adapter.
    origin: Option<DeviceOrigin>,
    info: AdapterInfo,
    limits: Limits,
    features: Features,
    capabilities: Capabilities,
    /// The reason of the device's loss, once it is lost.
    lost: Arc<OnceLock<String>>,
    pipelines: Pipelines,
    /// Records the device's commands, if the device was opened so.
    recorder: Option<CommandLog>,
    /// Bytes of memory that buffers share with textures.
    aliased_bytes: aliased::Allocated,
}

impl GpuDevice {
    /// Opens a device. The error lists the available adapters.
    pub fn open(options: impl Into<DeviceOptions>) -> Result<GpuDevice> {
        let options = options.into();
        if options.record && options.feature_level != FeatureLevel::Portable {
            let message = "a device with optional features cannot be recorded";
            return Err(Error::usage(message).help("open it with FeatureLevel::Portable"));
        }
        GpuDevice::on_adapter(adapter::select(&options.choice)?, options, None)
    }

    /// Opens a device on an adapter. `replaces` is the reason of the loss of the device that it replaces.
    fn on_adapter(
        adapter: wgpu::Adapter,
        options: DeviceOptions,
        replaces: Option<String>,
    ) -> Result<GpuDevice> {
        let (features, limits) = match options.feature_level {
            FeatureLevel::Full => (
                adapter.features() & adapter::optional_features(),
                adapter.limits(),
            ),
            FeatureLevel::Portable => (Features::empty(), Limits::defaults()),
        };
        let limits = options.lower_limits.lower(limits);
        let experiments = adapter.features() & Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let (features, experimental_features, matrices) = if options.experiments
            && options.feature_level == FeatureLevel::Full
            && !experiments.is_empty()
        {
            let matrices = adapter::matrix_units(&adapter);
            (
                features | experiments,
                trusted::experimental_features(),
                matrices,
            )
        } else {
            let none = wgpu::ExperimentalFeatures::disabled();
            (features, none, Vec::new())
        };
        let opened = request_device(&adapter, features, limits, experimental_features)?;
        let origin = Some(DeviceOrigin {
            adapter,
            options: options.clone(),
            replaces,
            replacement: Mutex::default(),
        });
        Ok(GpuDevice::new(opened, origin, options, matrices))
    }

    /// The device that replaces this one, which is lost: the same adapter, opened again with the same options. All callers get
    /// the same device.
    ///
    /// # Errors
    /// Fails if the device belongs to an application, is itself a replacement, or cannot be opened.
    pub(crate) fn replacement(&self) -> Result<GpuDevice> {
        let reason = self
            .inner
            .lost
            .get()
            .map_or("for an unknown reason", String::as_str);
        let origin = self.inner.origin.as_ref();
        let Some(origin) = origin.filter(|origin| origin.replaces.is_none()) else {
            return Err(device_lost(reason));
        };
        let mut replacement = lock(&origin.replacement);
        if let Some(device) = &*replacement {
            return Ok(device.clone());
        }
        let (adapter, options) = (origin.adapter.clone(), origin.options.clone());
        let device = GpuDevice::on_adapter(adapter, options, Some(reason.to_string()))?;
        Ok(replacement.insert(device).clone())
    }

    /// The reason of the loss of the device that this one replaces; `None` if it replaces none. See
    /// [`Session::device`](crate::Session::device).
    pub fn replaces(&self) -> Option<&str> {
        self.inner.origin.as_ref()?.replaces.as_deref()
    }

    /// True if both are one device.
    pub(super) fn is_same(&self, other: &GpuDevice) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// True if the device is known to be lost.
    pub fn is_lost(&self) -> bool {
        self.inner.lost.get().is_some()
    }

    /// Opens another device on the same adapter, with the same capabilities except experimental features.
    pub(super) fn reopen(&self) -> Result<GpuDevice> {
        let missing = || Error::internal("the adapter of an application's device is not known");
        let origin = self.inner.origin.as_ref().ok_or_else(missing)?;
        let none = wgpu::ExperimentalFeatures::disabled();
        let features = self.inner.features - Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let opened = request_device(&origin.adapter, features, self.inner.limits.clone(), none)?;
        let options = DeviceOptions {
            gpu_kernels: origin.options.gpu_kernels,
            fill_workgroup_memory: origin.options.fill_workgroup_memory,
            ..DeviceOptions::without_cache()
        };
        Ok(GpuDevice::new(opened, None, options, Vec::new()))
    }

    /// Uses an application's own wgpu device, with the features and limits that it was opened with.
    ///
    /// The application's callbacks for errors and device loss stay installed.
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> GpuDevice {
        let opened = (device, queue, Arc::default());
        GpuDevice::new(opened, None, DeviceOptions::without_cache(), Vec::new())
    }

    fn new(
        (raw, queue, lost): OpenedDevice,
        origin: Option<DeviceOrigin>,
        options: DeviceOptions,
        matrices: Vec<CooperativeMatrix>,
    ) -> GpuDevice {
        let (info, limits, features) = (raw.adapter_info(), raw.limits(), raw.features());
        let planned = match options.gpu_kernels {
            true => adapter::as_gpu(&info),
            false => info.clone(),
        };
        let adapter_capabilities = adapter::capabilities(features, &limits, &planned);
        let capabilities = Capabilities {
            cooperative_matrices: matrices,
            buffer_aliasing: adapter_capabilities.buffer_aliasing && aliased::is_supported(&raw),
            ..adapter_capabilities
        };
        let pipelines = Pipelines::new(&raw, &info, options.cache)
            .with_filled_workgroup_memory(options.fill_workgroup_memory);
        #[cfg(feature = "translate")]
        let pipelines = pipelines.with_translator(
            options
                .translate
                .then(|| Translator::new(&capabilities, options.kernels)),
        );
        GpuDevice {
            inner: Arc::new(DeviceInner {
                raw,
                queue,
                origin,
                info,
                limits,
                features,
                capabilities,
                lost,
                pipelines,
                recorder: options.record.then(CommandLog::default),
                aliased_bytes: aliased::Allocated::default(),
            }),
        }
    }

    /// Limits and features of the device.
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// The adapter's name.
    pub fn name(&self) -> &str {
        &self.inner.info.name
    }

    /// The driver and its version.
    pub fn driver(&self) -> String {
        adapter::driver(&self.inner.info)
    }

    /// The adapter's kind.
    pub fn kind(&self) -> AdapterKind {
        AdapterKind::of(&self.inner.info)
    }

    /// wgpu's description of the adapter.
    pub fn info(&self) -> &AdapterInfo {
        &self.inner.info
    }

    /// The wgpu device, for sharing buffers.
    pub fn wgpu(&self) -> &wgpu::Device {
        &self.inner.raw
    }

    /// The wgpu queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// Bytes allocated on the device for buffers and textures of all programs; none if the backend does not report
    /// them.
    pub fn allocated_bytes(&self) -> Option<u64> {
        let report = self.inner.raw.generate_allocator_report()?;
        Some(report.total_allocated_bytes + self.inner.aliased_bytes.load(Relaxed))
    }

    /// Counter of the bytes of memory that buffers share with textures.
    pub(super) fn aliased_bytes(&self) -> &aliased::Allocated {
        &self.inner.aliased_bytes
    }

    /// Number of pipelines that exist on this device, for all of its programs.
    pub fn pipeline_count(&self) -> usize {
        self.inner.pipelines.count()
    }

    /// Kernels that were translated; empty unless the device was opened with `translate`.
    #[cfg(feature = "translate")]
    pub fn translated(&self) -> BTreeSet<TranslatedKernel> {
        self.inner.pipelines.translated()
    }

    /// The commands of the device so far; `None` unless the device was opened with `record`. The recording is complete once
    /// all runs have been read.
    pub fn recording(&self) -> Option<Recording> {
        self.inner.recorder.as_ref().map(CommandLog::recording)
    }

    /// Passes the recorder to a function if the device records its commands.
    pub(super) fn record(&self, function: impl FnOnce(&CommandLog)) {
        if let Some(recorder) = &self.inner.recorder {
            function(recorder);
        }
    }

    pub(super) fn pipelines(&self) -> &Pipelines {
        &self.inner.pipelines
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// True if the feature is enabled on the device.
    pub(super) fn has(&self, feature: Features) -> bool {
        self.inner.features.contains(feature)
    }

    /// True if the host can map the buffers that kernels use and kernels stay as fast, because device memory is host
    /// memory.
    pub(super) fn maps_directly(&self) -> bool {
        self.has(Features::MAPPABLE_PRIMARY_BUFFERS) && self.inner.capabilities.software
    }

    /// True if the driver compiles kernels when they are first dispatched.
    pub(super) fn compiles_at_first_dispatch(&self) -> bool {
        adapter::is_lavapipe(&self.inner.info)
    }

    /// Fails if the device was lost.
    pub(super) fn check_alive(&self) -> Result<()> {
        match self.inner.lost.get() {
            None => Ok(()),
            Some(reason) => Err(device_lost(reason)),
        }
    }

    /// Waits until a submission is done. Without a submission, lets the device make progress and returns at once.
    ///
    /// # Errors
    /// Fails if the device is lost, or a limit of this thread is exceeded: then the device may still work.
    pub(crate) fn poll(&self, submission: Option<&SubmissionIndex>) -> Result<()> {
        let Some(index) = submission else {
            return self.poll_once(PollType::Poll).map(|_| ());
        };
        if interrupt::can_interrupt() {
            while !self.poll_for(index, TIME_BETWEEN_CHECKS)? {
                interrupt::check()?;
            }
            return Ok(());
        }
        let wait = PollType::Wait {
            submission_index: Some(index.clone()),
            timeout: None,
        };
        self.poll_once(wait).map(|_| ())
    }

    /// Waits for at most this duration until a submission is done; returns whether it is.
    pub(super) fn poll_for(&self, submission: &SubmissionIndex, timeout: Duration) -> Result<bool> {
        self.poll_once(PollType::Wait {
            submission_index: Some(submission.clone()),
            timeout: Some(timeout),
        })
    }

    /// Polls the device; false if the time of the poll is over.
    fn poll_once(&self, poll: PollType) -> Result<bool> {
        // wgpu panics if the device is lost while it waits.
        match catch_unwind(AssertUnwindSafe(|| self.inner.raw.poll(poll))) {
            Ok(Ok(_)) => self.check_alive().map(|()| true),
            Ok(Err(PollError::Timeout)) => Ok(false),
            Ok(Err(error)) => Err(Error::device(error.to_string())),
            Err(_) => Err(device_lost(
                self.inner
                    .lost
                    .get()
                    .map_or("while waiting for it", String::as_str),
            )),
        }
    }
}

/// A device, its queue, and the reason of its loss, which wgpu's callback sets.
type OpenedDevice = (wgpu::Device, wgpu::Queue, Arc<OnceLock<String>>);

/// Opens a device on an adapter.
fn request_device(
    adapter: &wgpu::Adapter,
    required_features: Features,
    required_limits: Limits,
    experimental_features: wgpu::ExperimentalFeatures,
) -> Result<OpenedDevice> {
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("onionskin"),
        required_features,
        required_limits,
        experimental_features,
        // `MemoryHints::Performance` reserves large blocks even for small models. In the steady state nothing is
        // allocated.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        trace: wgpu::Trace::Off,
    };
    let opened = pollster::block_on(adapter.request_device(&descriptor));
    let refused = |error| {
        let name = adapter.get_info().name;
        Error::device(format!("opening a device on {name} failed: {error}"))
    };
    let (raw, queue) = opened.map_err(refused)?;
    let lost = Arc::new(OnceLock::new());
    install_callbacks(&raw, &lost);
    Ok((raw, queue, lost))
}

/// Installs callbacks for errors outside of error scopes, which are dropped, and for the loss of the device.
fn install_callbacks(device: &wgpu::Device, lost: &Arc<OnceLock<String>>) {
    // Every call that can fail is made in an error scope. An error outside of one is dropped, because wgpu's default is
    // a panic; the calls that depend on the failed one then fail within a scope.
    device.on_uncaptured_error(Arc::new(|_| {}));
    let lost = lost.clone();
    device.set_device_lost_callback(move |reason, message| {
        let _ = lost.set(format!("{reason:?} {message}").trim().to_owned());
    });
}

/// The error of a lost device.
fn device_lost(reason: &str) -> Error {
    Error::device(format!("the device was lost: {reason}"))
        .help("open the device again; if it happens again, the driver resets it because a kernel runs too long or faults")
}

impl fmt::Debug for GpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = &self.inner.info;
        write!(
            f,
            "Device({}, {}, {})",
            info.name,
            info.backend,
            adapter::driver(info)
        )
    }
}
