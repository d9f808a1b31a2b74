//! Recordings of a device's commands: a replay with wgpu reads the recorded bytes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod command;
mod samples;

use std::path::Path;

use onionskin::cases::{self, CaseArchive};
use onionskin::error::ErrorKind;
use onionskin::gpu::{
    BufferRange, DeviceOptions, FeatureLevel, GpuDevice, RecordedBinding, RecordedCommand,
    Recording,
};
use onionskin::{CompileOptions, Device, Model};
use wgpu::*;

use command::{Folder, onionskin};

fn options() -> DeviceOptions {
    let choice = std::env::var("ONIONSKIN_DEVICE").unwrap_or_default();
    DeviceOptions {
        choice: choice.parse().unwrap_or_default(),
        feature_level: FeatureLevel::Portable,
        record: true,
        ..DeviceOptions::default()
    }
}

/// Runs all calls of the cases in a folder and returns the recording of each case.
fn recordings(folder: &str) -> Vec<(String, Recording)> {
    let cases = cases::find(&Path::new("tests/fixtures/cases").join(folder)).unwrap();
    let record = |case: &cases::CaseRef| {
        let device = GpuDevice::open(options()).unwrap();
        let loaded = case.load().unwrap();
        let model = match &loaded.archive {
            CaseArchive::Path(path) => Model::open(path),
            CaseArchive::Bytes(bytes) => Model::from_bytes(bytes.to_vec()),
        };
        let (on, options) = (Device::Gpu(device.clone()), CompileOptions::default());
        let session = model.unwrap().compile(&on, &options).unwrap();
        for set in &loaded.sets {
            for method in &set.before {
                session.call_method(method, &[]).unwrap();
            }
            for call in &set.calls {
                session.call_method(&call.method, &call.inputs).unwrap();
            }
        }
        (case.name.clone(), device.recording().unwrap())
    };
    cases.iter().map(record).collect()
}

/// Executes the commands of a recording.
struct Replay<'a> {
    device: &'a wgpu::Device,
    queue: &'a Queue,
    recording: &'a Recording,
    buffers: Vec<Buffer>,
    pipelines: Vec<ComputePipeline>,
    /// The pipeline of each bind group, and the bind group.
    groups: Vec<(usize, BindGroup)>,
}

impl<'a> Replay<'a> {
    fn new(device: &'a GpuDevice, recording: &'a Recording) -> Replay<'a> {
        Replay {
            device: device.wgpu(),
            queue: device.queue(),
            recording,
            buffers: Vec::new(),
            pipelines: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// The bytes of each read: those found and those recorded.
    fn reads(mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let recording = self.recording;
        let commands = recording.commands.iter();
        commands
            .filter_map(|command| self.execute(command))
            .collect()
    }

    fn data(&self, position: usize, size: u64) -> &'a [u8] {
        &self.recording.data[position..position + size as usize]
    }

    /// Executes a command; returns the bytes that it reads.
    fn execute(&mut self, command: &RecordedCommand) -> Option<(Vec<u8>, Vec<u8>)> {
        match command {
            RecordedCommand::CreateBuffer { size, usage } => {
                assert!(BufferUsages::from_bits(*usage).is_some());
                self.buffers.push(self.buffer(*size));
            }
            RecordedCommand::CreatePipeline { wgsl, bindings, .. } => {
                self.pipelines.push(self.pipeline(wgsl, bindings));
            }
            RecordedCommand::CreateBindGroup { pipeline, buffers } => {
                let layout = self.pipelines[*pipeline].get_bind_group_layout(0);
                self.groups
                    .push((*pipeline, self.bind_group(&layout, buffers)));
            }
            RecordedCommand::WriteBuffer { target, data } => {
                let bytes = self.data(*data, target.size);
                let buffer = &self.buffers[target.buffer];
                self.queue.write_buffer(buffer, target.offset, bytes);
            }
            RecordedCommand::CopyBuffer {
                source,
                target,
                target_offset,
            } => self.submit(|encoder| {
                let [from, to] = [source.buffer, *target].map(|buffer| &self.buffers[buffer]);
                encoder.copy_buffer_to_buffer(from, source.offset, to, *target_offset, source.size);
            }),
            RecordedCommand::ClearBuffer { target } => self.submit(|encoder| {
                let buffer = &self.buffers[target.buffer];
                encoder.clear_buffer(buffer, target.offset, Some(target.size));
            }),
            RecordedCommand::Dispatch {
                bind_group,
                workgroups: [x, y, z],
            } => self.submit(|encoder| {
                let (pipeline, group) = &self.groups[*bind_group];
                let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
                pass.set_pipeline(&self.pipelines[*pipeline]);
                pass.set_bind_group(0, group, &[]);
                pass.dispatch_workgroups(*x, *y, *z);
            }),
            RecordedCommand::ReadBuffer { source, data, .. } => {
                return Some((self.read(source), self.data(*data, source.size).to_vec()));
            }
        }
        None
    }

    fn buffer(&self, size: u64) -> Buffer {
        self.device.create_buffer(&BufferDescriptor {
            label: None,
            size,
            usage: BufferUsages::STORAGE
                | BufferUsages::UNIFORM
                | BufferUsages::COPY_SRC
                | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    fn pipeline(&self, wgsl: &str, bindings: &[RecordedBinding]) -> ComputePipeline {
        let entry = |(binding, ty): (u32, &RecordedBinding)| BindGroupLayoutEntry {
            binding,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer {
                ty: match ty {
                    RecordedBinding::Uniform => BufferBindingType::Uniform,
                    storage => BufferBindingType::Storage {
                        read_only: *storage == RecordedBinding::ReadOnlyStorage,
                    },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<BindGroupLayoutEntry> = (0..).zip(bindings).map(entry).collect();
        let device = self.device;
        let layout = device.create_bind_group_layout(&BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let layout = device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let module = device.create_shader_module(ShaderModuleDescriptor {
            label: None,
            source: ShaderSource::Wgsl(wgsl.into()),
        });
        device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: PipelineCompilationOptions::default(),
            cache: None,
        })
    }

    fn bind_group(&self, layout: &BindGroupLayout, ranges: &[BufferRange]) -> BindGroup {
        let entry = |(binding, range): (u32, &BufferRange)| BindGroupEntry {
            binding,
            resource: BindingResource::Buffer(BufferBinding {
                buffer: &self.buffers[range.buffer],
                offset: range.offset,
                size: BufferSize::new(range.size),
            }),
        };
        let entries: Vec<BindGroupEntry> = (0..).zip(ranges).map(entry).collect();
        self.device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout,
            entries: &entries,
        })
    }

    fn submit(&self, record: impl FnOnce(&mut CommandEncoder)) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        record(&mut encoder);
        self.queue.submit([encoder.finish()]);
    }

    fn read(&self, source: &BufferRange) -> Vec<u8> {
        let staging = self.device.create_buffer(&BufferDescriptor {
            label: None,
            size: source.size,
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.submit(|encoder| {
            let buffer = &self.buffers[source.buffer];
            encoder.copy_buffer_to_buffer(buffer, source.offset, &staging, 0, source.size);
        });
        staging.map_async(MapMode::Read, .., |result| result.unwrap());
        self.device.poll(PollType::wait_indefinitely()).unwrap();
        staging.get_mapped_range(..).unwrap().to_vec()
    }
}

#[test]
fn a_replay_reads_what_was_recorded() {
    let Some(device) = samples::device(FeatureLevel::Portable) else {
        return;
    };
    for folder in ["models/script_accumulate", "packed/relu.zip"] {
        for (name, recording) in recordings(folder) {
            let reads = Replay::new(&device, &recording).reads();
            assert!(!reads.is_empty(), "{name} reads nothing");
            for (found, recorded) in reads {
                assert_eq!(found, recorded, "{name}");
            }
        }
    }
}

#[test]
fn a_recording_is_two_files() {
    if samples::device(FeatureLevel::Portable).is_none() {
        return;
    }
    let (_, recording) = recordings("models/dict_output").remove(0);
    let folder = Folder::new("recording");
    let error = recording.write(&folder.path("none/v1.5")).unwrap_err();
    assert!(error.to_string().contains("v1.5.json"), "{error}");

    recording.write(&folder.path("v1.5")).unwrap();
    let commands = std::fs::read(folder.path("v1.5.json")).unwrap();
    let data = std::fs::read(folder.path("v1.5.bin")).unwrap();
    let read: Recording = serde_json::from_slice(&commands).unwrap();
    assert_eq!(Recording { data, ..read }, recording);
}

#[test]
fn cases_that_pass_are_recorded() {
    if samples::device(FeatureLevel::Portable).is_none() {
        return;
    }
    let folder = Folder::new("recordings");
    let case = "tests/fixtures/cases/models/dict_output";
    let record = |folder: &str| {
        let device = std::env::var("ONIONSKIN_DEVICE").unwrap_or("auto".into());
        onionskin(&[
            "test",
            case,
            "--device",
            &device,
            "--portable",
            "--record",
            folder,
        ])
    };
    let (status, output, _) = record(&folder.file("new"));
    assert_eq!(status, 0, "{output}");
    for extension in ["json", "bin"] {
        let name = format!("new/0000-models-dict_output.{extension}");
        assert!(folder.path(&name).is_file(), "{name}");
    }

    std::fs::write(folder.path("file"), "").unwrap();
    let (status, _, error) = record(&folder.file("file"));
    assert!(status != 0 && error.contains("file"), "{error}");

    let (_, _, error) = onionskin(&[
        "test",
        case,
        "--device",
        "cpu",
        "--portable",
        "--record",
        "x",
    ]);
    assert!(error.contains("no commands to record"), "{error}");
}

#[test]
fn only_portable_devices_are_recorded() {
    let full = DeviceOptions {
        feature_level: FeatureLevel::Full,
        ..options()
    };
    let error = GpuDevice::open(full).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Usage);
    let message = "a device with optional features cannot be recorded";
    assert!(error.to_string().contains(message), "{error}");

    if let Some(device) = samples::device(FeatureLevel::Portable) {
        assert_eq!(device.recording(), None);
    }
}
