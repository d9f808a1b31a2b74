//! Buffer–texture aliasing: buffers that kernels read as textures.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::gpu::{DeviceChoice, GpuDevice, Program, ProgramOptions, RunInput, TensorMap};
use onionskin::kernel::capabilities::{SizesSpace, StorageType};
use onionskin::kernel::layout::{Layout, Panels, StridedRange, Texel};
use onionskin::kernel::plan::{Access, Kernel, Plan, SlotId, SlotKind};
use onionskin::tensor::Tensor;

use super::plans::*;

/// `y = 2x + 1` for each of `n` vectors, which the kernel reads as texels.
fn texel_kernel() -> Kernel {
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
        bindings: vec![Access::AliasedTexture(Texel::F32), Access::ReadWrite],
        sizes: 1,
        sizes_space: SizesSpace::Uniform,
        zeroes_workgroup_memory: false,
    }
}

/// A chain of these kernels over a number of elements that fills vectors.
fn texel_chain(length: usize, shape: &[Dim]) -> Plan {
    let vectors = (Dim::product(shape) + 3).floor_div(&Dim::from(4i64));
    let plan = chain(length, shape);
    let mut steps = plan.steps.clone();
    for step in &mut steps {
        step.kernel = 0;
        step.sizes = vec![vectors.clone()];
    }
    Plan {
        kernels: vec![texel_kernel()],
        steps,
        ..plan
    }
}

/// `y = 2w + 1` for weights of the given sizes, which the kernels read as texels.
fn weight_texel_plan(sizes: &[usize]) -> (Plan, TensorMap, Vec<Tensor>) {
    let mut plan = Plan {
        kernels: vec![texel_kernel()],
        ..Plan::default()
    };
    let (mut weights, mut expected) = (TensorMap::new(), Vec::new());
    for (number, size) in sizes.iter().enumerate() {
        let name = format!("w{number}");
        let shape = [Dim::from(*size)];
        let slots = plan.slots.len();
        for kind in [SlotKind::Weight(name.clone()), SlotKind::Output] {
            let slot = slot(&name, DType::F32, StorageType::F32, &shape, kind);
            plan.slots.push(slot);
        }
        let vectors = Dim::from(size.div_ceil(4));
        plan.steps.push(step(0, &[slots, slots + 1], &vectors));
        plan.outputs.push(SlotId(slots + 1));
        let element = |i: usize| (number * 1000 + i) as f32;
        weights.insert(name, floats((0..*size).map(element)));
        expected.push(floats((0..*size).map(|i| 2.0 * element(i) + 1.0)));
    }
    (plan, weights, expected)
}

fn texel_device() -> Option<GpuDevice> {
    let device = device().filter(|device| device.capabilities().buffer_aliasing);
    if device.is_none() {
        println!("no device reads buffers as textures");
    }
    device
}

#[test]
fn inputs_and_temporaries_are_read_as_textures() {
    let Some(device) = texel_device() else { return };
    let program = program(&device, texel_chain(5, &[symbol("B")]));
    // Less than a vector; rows of texels, one more and one less; and powers of two.
    for count in [1, 4, 4095, 4096, 4100, 8192, 12_287, 65_536, 300_000] {
        let x = floats((0..count).map(|i| i as f32));
        let expected = floats((0..count).map(|i| (0..5).fold(i as f32, |x, _| 2.0 * x + 1.0)));
        assert_eq!(program.run(&[x]).unwrap(), [expected], "{count}");
    }
}

#[test]
fn weights_are_read_as_textures() {
    let Some(device) = texel_device() else { return };
    // Small and large weights, some of which do not fit behind others in a block.
    let sizes = [
        1, 5, 4096, 16_384, 16_385, 70_000, 3, 4100, 12_288, 16_000, 300_000, 8,
    ];
    let sizes = [sizes; 3].concat();
    let (plan, weights, expected) = weight_texel_plan(&sizes);
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    assert_eq!(program.run(&[]).unwrap(), expected);
}

/// Small weights share a block without waste; it lives as long as a program uses any of them.
#[test]
fn small_weights_share_memory() {
    if texel_device().is_none() {
        return;
    }
    let device = GpuDevice::open(DeviceChoice::Software).unwrap();
    let options = ProgramOptions::default();
    let made = |sizes: &[usize]| {
        let (plan, weights, expected) = weight_texel_plan(sizes);
        let program = Program::new(&device, plan, &weights, options.clone()).unwrap();
        (program, expected)
    };
    // The first program allocates memory that the device keeps. Each weight takes the offset alignment of textures.
    let apart = device.capabilities().offset_alignment;
    made(&[10]).0.run(&[]).unwrap();
    let start = device.allocated_bytes().unwrap();
    let (first, _) = made(&[10; 100]);
    assert_eq!(device.allocated_bytes().unwrap() - start, 99 * apart + 64);
    let (second, expected) = made(&[[10; 100].as_slice(), &[64]].concat());
    assert_eq!(device.allocated_bytes().unwrap() - start, 100 * apart + 256);
    drop(first);
    assert_eq!(second.run(&[]).unwrap(), expected);
    drop(second);
    assert_eq!(device.allocated_bytes().unwrap(), start);
}

/// Memory is neither released while outputs are in use nor used after its device is gone.
#[test]
fn memory_lives_as_long_as_buffers_and_no_longer_than_the_device() {
    for _ in 0..8 {
        if texel_device().is_none() {
            return;
        }
        // This device is dropped below.
        let device = GpuDevice::open(DeviceChoice::Software).unwrap();
        let program = program(&device, texel_chain(3, &[Dim::from(4096i64)]));
        let x = floats((0..4096).map(|i| i as f32));
        let run = program.launch(&[RunInput::Host(&x)]).unwrap();
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
fn panels_integers_and_other_devices_are_refused() {
    let refuse = |device: &GpuDevice, reason: &str, change: &dyn Fn(&mut Plan)| {
        let mut plan = texel_chain(3, &[Dim::from(8i64)]);
        change(&mut plan);
        let weights = TensorMap::from([("w".into(), floats((0..8).map(|i| i as f32)))]);
        let made = Program::new(device, plan, &weights, ProgramOptions::default());
        let error = made.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    if let Some(device) = texel_device() {
        let other = "with the wrong access";
        refuse(&device, other, &|plan| {
            plan.slots[1].storage = StorageType::I32
        });
        refuse(&device, other, &|plan| {
            plan.slots[0].kind = SlotKind::Weight("w".into());
            plan.slots[0].layout = Layout::Panels(Panels {
                batch: StridedRange {
                    count: 1,
                    stride: 0,
                },
                k_ranges: vec![StridedRange {
                    count: 4,
                    stride: 1,
                }],
                columns: StridedRange {
                    count: 2,
                    stride: 4,
                },
                k_block: 4,
                width: 32,
                strip: 32,
                winograd_tile: None,
            });
            plan.inputs.clear();
        });
    }
    if let Some(device) = portable_device() {
        refuse(&device, "binds 1 textures", &|_| {});
    }
}

/// Buffer–texture aliasing leaves the device's clock intact: timestamps that all have one value, or none, would give
/// impossible rates.
#[test]
fn aliasing_leaves_timestamps_intact() {
    let Some(device) = texel_device() else { return };
    program(&device, texel_chain(1, &[symbol("B")]));
    let operations = device.ceilings().unwrap().arithmetic;
    assert!(operations < 1e6, "{operations} GFLOP/s");
}
