//! Buffers that kernels read as textures, where a device does that.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::gpu::{Device, DeviceChoice, Input, Program, ProgramOptions, Weights};
use onionskin::kernel::capabilities::{SizesIn, Storage};
use onionskin::kernel::plan::{Access, Kernel, Plan, SlotKind};

use super::plans::*;

/// `y = 2x + 1` for each of `n` vectors, which are read as texels.
fn by_texels() -> Kernel {
    Kernel {
        label: "by_texels".into(),
        wgsl: "
@group(0) @binding(0) var x: texture_storage_2d<rgba32float, read>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> sizes: array<vec4<u32>, 1>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let i = (group.x + group.y * groups.x) * 64u + local;
    if i < sizes[0].x {
        y[i] = 2.0 * textureLoad(x, vec2(i % 1024u, i / 1024u)) + 1.0;
    }
}
"
        .into(),
        bindings: vec![Access::Texels, Access::ReadWrite],
        sizes: 1,
        sizes_in: SizesIn::Uniform,
    }
}

/// A chain of such kernels, over so many elements that vectors hold.
fn textures(length: usize, shape: &[Dim]) -> Plan {
    let vectors = (Dim::product(shape) + 3).floor_div(&Dim::from(4i64));
    let plan = chain(length, shape);
    let mut steps = plan.steps.clone();
    for step in &mut steps {
        step.kernel = 0;
        step.sizes = vec![vectors.clone()];
    }
    Plan {
        kernels: vec![by_texels()],
        steps,
        ..plan
    }
}

fn texel_device() -> Option<Device> {
    let device = device().filter(|device| device.capabilities().texels);
    if device.is_none() {
        println!("no device reads buffers as textures");
    }
    device
}

#[test]
fn inputs_and_what_kernels_have_written_are_read_as_textures() {
    let Some(device) = texel_device() else { return };
    let program = program(&device, textures(5, &[symbol("B")]));
    // Less than a vector, rows of texels and a bit more or less, and as many as are a power of two.
    for count in [1, 4, 4095, 4096, 4100, 8192, 12_287, 65_536, 300_000] {
        let x = floats((0..count).map(|i| i as f32));
        let expected = floats((0..count).map(|i| (0..5).fold(i as f32, |x, _| 2.0 * x + 1.0)));
        assert_eq!(program.run(&[x]).unwrap(), [expected], "{count}");
    }
}

/// The memory is released neither while outputs are in use nor after the device is.
#[test]
fn memory_lives_as_long_as_buffers_and_no_longer_than_the_device() {
    for _ in 0..8 {
        if texel_device().is_none() {
            return;
        }
        // One of its own, which ends here.
        let device = Device::open(DeviceChoice::Software).unwrap();
        let program = program(&device, textures(3, &[Dim::from(4096i64)]));
        let x = floats((0..4096).map(|i| i as f32));
        let run = program.launch(&[Input::Host(&x)]).unwrap();
        let expected = floats((0..4096).map(|i| (0..3).fold(i as f32, |x, _| 2.0 * x + 1.0)));
        assert_eq!(run.read().unwrap(), [expected]);
        let outputs = run.outputs();
        drop(run);
        drop(program);
        drop(device);
        drop(outputs);
    }
}

#[test]
fn weights_integers_and_other_devices_are_refused() {
    let refuse = |device: &Device, reason: &str, change: &dyn Fn(&mut Plan)| {
        let mut plan = textures(3, &[Dim::from(8i64)]);
        change(&mut plan);
        let weights = Weights::from([("w".into(), floats((0..8).map(|i| i as f32)))]);
        let made = Program::new(device, plan, &weights, ProgramOptions::default());
        let error = made.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    if let Some(device) = texel_device() {
        let other = "for what it is not";
        refuse(&device, other, &|plan| plan.slots[1].storage = Storage::I32);
        refuse(&device, other, &|plan| {
            plan.slots[0].kind = SlotKind::Weight("w".into());
            plan.slots[0].dtype = DType::F32;
            plan.inputs.clear();
        });
    }
    if let Some(device) = portable_device() {
        refuse(&device, "binds 1 textures", &|_| {});
    }
}
