//! Runs a network on an application's wgpu device and continues with its output on the device.
//!
//! ```text
//! cargo run --release --example share_device
//! ```
//!
//! The application opens the device, runs the digit reader on it, and finds the most probable digit of each image with its
//! own shader, which reads the network's output buffer. Only the answers are read back.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;

use onionskin::gpu::RunInput;
use onionskin::{CompileOptions, Device, Model, Tensor, gpu, tensor_file};
use wgpu::util::{BufferInitDescriptor, DeviceExt};

/// The application's shader: returns the index of the largest of ten scores, with one invocation per image.
const LIKELIEST: &str = "
@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> answers: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let image = id.x;
    if image >= arrayLength(&answers) { return; }
    var best = 0u;
    for (var digit = 1u; digit < 10u; digit++) {
        if scores[image * 10u + digit] > scores[image * 10u + best] { best = digit; }
    }
    answers[image] = best;
}
";

fn main() -> Result<(), Box<dyn Error>> {
    let (device, queue) = open_device()?;
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/digits"));
    let model = Model::open(folder.join("digits.pt"))?;
    let shared = Device::from(gpu::GpuDevice::from_wgpu(device.clone(), queue.clone()));
    let session = model.compile(&shared, &CompileOptions::default())?;
    let recorded = tensor_file::read(&folder.join("expected.safetensors"))?;
    let (_, images) = recorded
        .iter()
        .find(|(name, _)| name == "input")
        .ok_or("the images are missing")?;
    let run = session.launch(&[RunInput::Host(images)])?;
    let outputs = run.outputs();
    let logits = outputs.first().ok_or("the network has no output")?;
    println!(
        "the logits stay on the application's device, in a buffer of {} bytes",
        logits.buffer.size()
    );
    println!("read as {:?}", answers(&device, &queue, logits, images)?);
    Ok(())
}

/// Opens the application's device, as it would without Onionskin.
fn open_device() -> Result<(wgpu::Device, wgpu::Queue), Box<dyn Error>> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    let adapter =
        pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    println!("application on {}", adapter.get_info().name);
    Ok(pollster::block_on(adapter.request_device(
        &wgpu::DeviceDescriptor {
            label: Some("application"),
            required_features: wgpu::Features::empty(),
            required_limits: wgpu::Limits::defaults(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        },
    ))?)
}

/// Runs the application's shader on the network's output.
fn answers(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    logits: &gpu::DeviceTensor,
    images: &Tensor,
) -> Result<Vec<u32>, Box<dyn Error>> {
    let count = images.shape().first().copied().unwrap_or(0);
    let size = 4 * count as u64;
    let answers = device.create_buffer_init(&BufferInitDescriptor {
        label: Some("answers"),
        contents: &vec![0; 4 * count],
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
    });
    let readback = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("readback"),
        size,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("likeliest"),
        source: wgpu::ShaderSource::Wgsl(LIKELIEST.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("likeliest"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let scores = wgpu::BufferBinding {
        buffer: &logits.buffer,
        offset: logits.offset,
        size: std::num::NonZeroU64::new(10 * size),
    };
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(scores),
            },
            wgpu::BindGroupEntry {
                binding: 1,
                resource: answers.as_entire_binding(),
            },
        ],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(u32::try_from(count.div_ceil(64))?, 1, 1);
    }
    encoder.copy_buffer_to_buffer(&answers, 0, &readback, 0, size);
    queue.submit([encoder.finish()]);
    readback.slice(..).map_async(wgpu::MapMode::Read, |_| {});
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let bytes = readback.get_mapped_range(..)?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}
