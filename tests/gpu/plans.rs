//! Handwritten small kernels and plans.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::error::SourcePlace;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::kernel::capabilities::{SizesSpace, StorageType};
use onionskin::kernel::layout::Layout;
use onionskin::kernel::plan::{Access, Kernel, Plan, Slot, SlotId, SlotKind, Step, Workgroups};
use onionskin::kernel::work::Work;
use onionskin::tensor::Tensor;

use crate::samples;

/// The device under test.
pub fn device() -> Option<GpuDevice> {
    samples::device(FeatureLevel::Full)
}

/// The device under test, within WebGPU's default limits.
pub fn portable_device() -> Option<GpuDevice> {
    samples::device(FeatureLevel::Portable)
}

/// `y = a·x + b` for each of `n` elements; `n` is read from a uniform buffer.
pub fn affine(storage: StorageType, input: Access, a: i32, b: i32) -> Kernel {
    let ty = storage.wgsl();
    let enable = if storage == StorageType::F16 {
        "enable f16;"
    } else {
        ""
    };
    let access = match input {
        Access::Read => "read",
        _ => "read_write",
    };
    Kernel {
        label: format!("affine_{ty}"),
        wgsl: format!(
            "{enable}
@group(0) @binding(0) var<storage, {access}> x: array<{ty}>;
@group(0) @binding(1) var<storage, read_write> y: array<{ty}>;
@group(0) @binding(2) var<uniform> sizes: array<vec4<u32>, 1>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {{
    let i = (group.x + group.y * groups.x) * 64u + local;
    if i < sizes[0].x {{
        y[i] = {ty}({a}) * x[i] + {ty}({b});
    }}
}}
"
        ),
        bindings: vec![input, Access::ReadWrite],
        sizes: 1,
        sizes_space: SizesSpace::Uniform,
        zeroes_workgroup_memory: false,
    }
}

/// `z = x + y` over slots that are all in the arena.
pub fn add() -> Kernel {
    Kernel {
        label: "add".into(),
        wgsl: "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@group(0) @binding(3) var<uniform> sizes: array<vec4<u32>, 1>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < sizes[0].x {
        z[id.x] = x[id.x] + y[id.x];
    }
}
"
        .into(),
        bindings: vec![Access::ReadWrite; 3],
        sizes: 1,
        sizes_space: SizesSpace::Uniform,
        zeroes_workgroup_memory: false,
    }
}

pub fn slot(name: &str, dtype: DType, storage: StorageType, shape: &[Dim], kind: SlotKind) -> Slot {
    Slot {
        name: name.into(),
        dtype,
        storage,
        shape: shape.to_vec(),
        layout: Layout::Linear,
        kind,
    }
}

pub fn step(kernel: usize, bindings: &[usize], n: &Dim) -> Step {
    Step {
        kernel,
        bindings: bindings.iter().map(|index| SlotId(*index)).collect(),
        sizes: vec![n.clone()],
        workgroups: Workgroups::Linear(n.ceil_div(&Dim::from(64i64))),
        place: SourcePlace {
            module: format!("layer{}", bindings[0]),
            location: None,
        },
        nodes: vec![format!("node{}", bindings[0])],
        choice: None,
        work: Work::default(),
    }
}

/// A plan of one kernel from an input to an output of equal type.
pub fn single(dtype: DType, storage: StorageType, shape: &[Dim], a: i32, b: i32) -> Plan {
    Plan {
        kernels: vec![affine(storage, Access::Read, a, b)],
        slots: vec![
            slot("x", dtype, storage, shape, SlotKind::Input(0)),
            slot("y", dtype, storage, shape, SlotKind::Output),
        ],
        steps: vec![step(0, &[0, 1], &Dim::product(shape))],
        inputs: vec![Some(SlotId(0))],
        outputs: vec![SlotId(1)],
        ..Plan::default()
    }
}

/// A plan of `length` steps `x → 2x + 1`, which pass temporaries through the arena.
pub fn chain(length: usize, shape: &[Dim]) -> Plan {
    let f32s = |name: &str, kind| slot(name, DType::F32, StorageType::F32, shape, kind);
    let mut slots = vec![f32s("x", SlotKind::Input(0))];
    for first in 0..length - 1 {
        let last = first + 1;
        slots.push(f32s(
            &format!("t{first}"),
            SlotKind::Temporary { first, last },
        ));
    }
    slots.push(f32s("y", SlotKind::Output));
    let n = Dim::product(shape);
    let steps = (0..length).map(|index| step(usize::from(index > 0), &[index, index + 1], &n));
    Plan {
        kernels: vec![
            affine(StorageType::F32, Access::Read, 2, 1),
            affine(StorageType::F32, Access::ReadWrite, 2, 1),
        ],
        steps: steps.collect(),
        inputs: vec![Some(SlotId(0))],
        outputs: vec![SlotId(length)],
        slots,
        ..Plan::default()
    }
}

pub fn symbol(name: &str) -> Dim {
    Dim::symbol(name)
}

pub fn floats(values: impl IntoIterator<Item = f32>) -> Tensor {
    let values: Vec<f32> = values.into_iter().collect();
    Tensor::from_vec([values.len()], values).unwrap()
}

pub fn program(device: &GpuDevice, plan: Plan) -> Program {
    Program::new(device, plan, &TensorMap::new(), ProgramOptions::default()).unwrap()
}
