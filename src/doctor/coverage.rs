//! Tests that the checks cover every primitive, kernel variant and kernel template.

use std::collections::BTreeSet;
use std::path::Path;

use super::cases::all_cases;
use super::check::PreparedCase;
use crate::files;
use crate::gpu;
use crate::ir::{Graph, Op, Primitive};
use crate::kernel::capabilities::{Capabilities, CooperativeMatrix};
use crate::kernel::choice::KernelVariant;
use crate::kernel::layout::TextureLimits;

fn prepared() -> Vec<PreparedCase> {
    let cases = all_cases().unwrap().into_iter();
    cases.map(|case| PreparedCase::new(case).unwrap()).collect()
}

/// A device within WebGPU's default limits, a GPU with subgroups and cooperative matrices, and software rasterisers.
fn devices() -> Vec<Capabilities> {
    let portable = gpu::portable();
    let gpu = Capabilities {
        int64: true,
        float64: true,
        float16: true,
        subgroups: true,
        subgroup_barriers: true,
        subgroup_size: 32,
        max_workgroup_memory: 32 << 10,
        ..portable.clone()
    };
    let sizes = [8, 16].into_iter();
    let matrices =
        sizes.flat_map(|size| [true, false].map(|half| CooperativeMatrix { size, half }));
    let matrices = Capabilities {
        cooperative_matrices: matrices.collect(),
        ..gpu.clone()
    };
    let rasteriser = |subgroup_size| Capabilities {
        subgroup_size,
        software: true,
        buffer_aliasing: true,
        textures: TextureLimits {
            size: 8192,
            layers: 256,
            bindings: 8,
        },
        max_storage_buffers: 16,
        ..gpu.clone()
    };
    let rasterisers = [rasteriser(8), rasteriser(16)];
    [portable, gpu.clone(), matrices]
        .into_iter()
        .chain(rasterisers)
        .collect()
}

/// Adds the names of a graph's primitives.
fn add_primitives(graph: &Graph, names: &mut BTreeSet<String>) {
    for node in &graph.nodes {
        if let Op::Primitive(primitive) = &node.op {
            let json = serde_json::to_value(primitive).unwrap();
            names.insert(json["op"].as_str().unwrap().to_string());
        }
        node.bodies()
            .into_iter()
            .for_each(|body| add_primitives(body, names));
    }
}

#[test]
fn every_primitive_has_a_check() {
    let mut found = BTreeSet::new();
    for case in prepared() {
        add_primitives(case.graph().unwrap(), &mut found);
    }
    let all = Primitive::NAMES.iter().map(ToString::to_string);
    let missing = all.filter(|name| !found.contains(name));
    // The passes remove optimization barriers before a graph is planned for a device.
    let missing: Vec<String> = missing
        .filter(|name| name != "optimization_barrier")
        .collect();
    assert!(
        missing.is_empty(),
        "checks.txt has no graph with {missing:?}"
    );
}

/// First lines of the kernel templates: comments that kernels keep.
fn templates() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let wgsl = paths.filter(|path| path.extension().is_some_and(|ending| ending == "wgsl"));
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    // Devices are measured by these, not models run.
    let wgsl = wgsl.filter(|path| !name(path).starts_with("ceiling_"));
    let head = |path: &Path| {
        files::read_to_string(path)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_string()
    };
    wgsl.map(|path| (name(&path), head(&path))).collect()
}

/// A new kernel variant or template without a check fails here.
#[test]
fn every_kernel_family_has_a_check() {
    let cases = prepared();
    let mut variants = BTreeSet::new();
    let mut missing = templates();
    for capabilities in devices() {
        for case in &cases {
            let group = case.case.group;
            let admitted = case.admitted(&capabilities).unwrap().into_iter();
            let wanted = admitted.filter(|variant| !variants.contains(&(group, *variant)));
            for variant in [None]
                .into_iter()
                .chain(wanted.map(Some).collect::<Vec<_>>())
            {
                let Ok(Some(plan)) = case.plan(&capabilities, variant) else {
                    continue;
                };
                let choices = plan.steps.iter().filter_map(|step| step.choice.as_ref());
                let chosen = choices.map(|choice| choice.variant);
                variants.extend(
                    variant
                        .into_iter()
                        .chain(chosen)
                        .map(|variant| (group, variant)),
                );
                missing.retain(|(_, head)| {
                    !plan.kernels.iter().any(|kernel| kernel.wgsl.contains(head))
                });
            }
        }
    }
    let used: BTreeSet<KernelVariant> = variants.into_iter().map(|(_, variant)| variant).collect();
    let unused = KernelVariant::ALL
        .iter()
        .filter(|variant| !used.contains(variant));
    let unused: Vec<String> = unused.map(ToString::to_string).collect();
    assert!(
        unused.is_empty(),
        "checks.txt has no graph for the variants {unused:?}"
    );
    assert!(
        missing.is_empty(),
        "checks.txt has no graph for the templates {missing:?}"
    );
}
