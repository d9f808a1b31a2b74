//! Tests of plans without a device: every kernel is valid WGSL and translates to SPIR-V, MSL and HLSL; some are goldens.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;

use onionskin::error::SourcePlace;
use onionskin::gpu::Footprint;
use onionskin::ir::Graph;
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::layout::Layout;
use onionskin::kernel::plan::{Access, Plan, SlotKind};
use onionskin::kernel::series;
use onionskin::kernel::shader;
use onionskin::kernel::translate::translate;
use onionskin::op::{BinaryFunction, ConvAxis, UnaryFunction};
use onionskin::plan;

mod samples;

use samples::{capabilities, rasteriser, rasteriser_of, with_matrices, with_subgroups};

#[test]
fn kernels_are_valid_and_translate() {
    for (name, graph) in samples::all() {
        for device in [capabilities(), rasteriser(), rasteriser_of(16)] {
            let failures = samples::untranslatable(&plan_for(name, &graph, &device));
            assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        }
    }
}

/// A variable with the name of a function that nodes or the library call would shadow it.
#[test]
fn variables_shadow_no_function() {
    let unary = UnaryFunction::ALL.iter().map(|function| function.wgsl());
    let binary = BinaryFunction::ALL.iter().map(|function| function.wgsl());
    let called = unary
        .chain(binary)
        .filter_map(|template| Some(template.split_once('(')?.0));
    let functions: BTreeSet<&str> = called.chain(shader::library_names()).collect();
    assert!(functions.contains("round") && functions.contains("maximum"));
    for (name, graph) in samples::all() {
        for device in [capabilities(), rasteriser()] {
            for kernel in plan_for(name, &graph, &device).kernels {
                let variables = kernel.wgsl.split("var ").skip(1);
                let names = variables.filter_map(|text| text.split([' ', ':']).next());
                let hidden: Vec<&str> = names.filter(|name| functions.contains(name)).collect();
                assert!(hidden.is_empty(), "{name}: {hidden:?}");
            }
        }
    }
}

/// Vec4 functions of the library, which are generated from scalar ones, are valid WGSL.
#[test]
fn functions_for_four_numbers_are_valid() {
    let names: Vec<&str> = shader::library_names()
        .filter(|name| name.ends_with("_four"))
        .collect();
    assert!(
        names.contains(&"erf_of_four") && names.contains(&"exp_of_four"),
        "{names:?}"
    );
    let main = "@compute @workgroup_size(1)\nfn main() {\n}\n";
    let text = shader::assemble(&format!("// {}\n{main}", names.join(" ")), &[]);
    assert!(
        names
            .iter()
            .all(|name| text.contains(&format!("fn {name}(")))
    );
    shader::validate(&text, &capabilities()).unwrap();
}

/// Mesa's disk cache does not distinguish vector widths: a kernel that was compiled for subgroups of eight may be loaded
/// where subgroups have sixteen lanes. Kernels that use subgroups therefore differ in their source.
#[test]
fn subgroup_kernels_differ_by_subgroup_size() {
    let kernels = |lanes| {
        let device = rasteriser_of(lanes);
        let plans = samples::all().into_iter();
        let kernels = plans.flat_map(move |(name, graph)| plan_for(name, &graph, &device).kernels);
        let texts = kernels.map(|kernel| kernel.wgsl);
        texts
            .filter(|wgsl| wgsl.contains("subgroup"))
            .collect::<BTreeSet<String>>()
    };
    let (short, long) = (kernels(8), kernels(16));
    assert!(!short.is_empty() && !long.is_empty());
    let same: Vec<&String> = short.intersection(&long).collect();
    assert!(same.is_empty(), "{same:?}");
}

/// Only kernels in double precision have no MSL.
#[test]
fn only_double_precision_has_no_msl() {
    for (dtype, has_msl) in [("f16", true), ("f32", true), ("i64", true), ("f64", false)] {
        let graph = samples::graph(&[&format!("{dtype}[2]")], |_, x| vec![x[0] + x[0]]);
        let kernel = &plan(dtype, &graph).kernels[0];
        let translations = translate(&kernel.wgsl, &capabilities()).unwrap();
        assert_eq!(translations.msl.is_some(), has_msl, "{dtype}");
        assert!(translations.hlsl.unwrap().contains("main") && !translations.spirv.is_empty());
    }
    let wgsl = "@compute @workgroup_size(1) fn main() { let f64_sounding = 1.0; }";
    assert!(translate(wgsl, &capabilities()).unwrap().msl.is_some());
}

fn plan(name: &str, graph: &Graph) -> Plan {
    plan_for(name, graph, &capabilities())
}

fn plan_for(name: &str, graph: &Graph, device: &Capabilities) -> Plan {
    plan::plan(graph, device).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn templates_and_library_are_valid_by_themselves() {
    let library = [shaders("lib"), shaders("lib/double")].concat();
    let series = series::all().map(|series| series.wgsl() + "\n");
    let library = library.into_iter().map(|(_, text)| text).chain(series);
    let words = ["faults", "started"].into_iter().zip(0..);
    let words = words.map(|(name, place)| {
        format!(
            "@group(0) @binding({place}) var<storage, read_write> {name}: array<atomic<u32>>;\n"
        )
    });
    let library: String = words.chain(library).collect();
    shader::validate(&library, &rasteriser()).unwrap_or_else(|error| panic!("{error}"));
    for (name, text) in shaders("") {
        translate(&text, &rasteriser())
            .map(drop)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Returns the names and sources of the shaders in a folder.
fn shaders(folder: &str) -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let entries = std::fs::read_dir(root.join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == "wgsl"));
    paths
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.display().to_string(), text)
        })
        .collect()
}

/// Formats a plan: kernels, then steps.
fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    for (index, kernel) in plan.kernels.iter().enumerate() {
        text += &format!("kernel {index} {}\n{}\n", kernel.label, kernel.wgsl);
    }
    for step in &plan.steps {
        let slots: Vec<&str> = step
            .bindings
            .iter()
            .map(|slot| plan.slots[slot.0].name.as_str())
            .collect();
        let sizes: Vec<String> = step.sizes.iter().map(ToString::to_string).collect();
        text += &format!(
            "step kernel {} on {} with [{}], workgroups {:?}\n",
            step.kernel,
            slots.join(", "),
            sizes.join(", "),
            step.workgroups
        );
    }
    text
}

/// Graphs with weights, whose layout the planner chooses.
fn with_weights() -> Vec<(&'static str, Graph)> {
    let rows = samples::graph(&["f32[2, 116]"], |builder, x| {
        let weight = builder.weight("weight", "f32[24, 116]".parse().unwrap());
        vec![x[0].dot(weight.permute(vec![1, 0])).relu()]
    });
    let strips = samples::graph(&["f32[1, 8, 9, 5]"], |builder, x| {
        let weight = builder.weight("weight", "f32[8, 1, 3, 3]".parse().unwrap());
        let axis = ConvAxis::padded(1, 1);
        vec![x[0].conv(weight, vec![axis.clone(), axis], 8).relu()]
    });
    vec![("rows of a linear layer", rows), ("strips", strips)]
}

/// Compares plans with goldens; `BLESS=1` rewrites the files.
#[test]
fn plans_match_goldens() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/plan");
    for name in [
        "softmax",
        "linear",
        "embedding",
        "checked rows",
        "depthwise",
        "pad",
        "neighbours",
        "total",
        "linear on a rasteriser",
        "rows of a linear layer on a rasteriser",
        "strips on a rasteriser",
        "softmax on a rasteriser",
        "layer norm",
        "layer norm on a rasteriser",
        "linear by portable",
        "square product by workgroup tile 64x64",
        "conv by workgroup tile 32x32",
        "square product on matrices by cooperative matrices 16x16",
        "row by rows by a matrix",
        "row on subgroups by rows by a matrix",
    ] {
        let (name, variant) = match name.split_once(" by ") {
            Some((name, variant)) => (name, Some(variant.parse().unwrap())),
            None => (name, None),
        };
        let (sample, device) = match name.split_once(" on ") {
            Some((sample, "subgroups")) => (sample, with_subgroups()),
            Some((sample, "matrices")) => (sample, with_matrices()),
            Some((sample, _)) => (sample, rasteriser()),
            None => (name, capabilities()),
        };
        let (_, graph) = samples::all()
            .into_iter()
            .chain(with_weights())
            .find(|(known, _)| *known == sample)
            .unwrap();
        let name = variant.map_or(name.into(), |variant| format!("{name} by {variant}"));
        let found = describe(&match variant {
            Some(variant) => samples::forced(&graph, &device, variant).0,
            None => plan_for(&name, &graph, &device),
        });
        let path = folder.join(format!("{}.txt", name.replace(' ', "_")));
        if std::env::var("BLESS").is_ok_and(|value| value == "1") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == expected,
            "{name} has another plan; BLESS=1 writes it\n{found}"
        );
    }
}

/// Layers that differ in sizes only share kernels that take long to compile.
#[test]
fn layers_share_kernels() {
    for (name, graph, kernels) in samples::layers::all_networks() {
        let plan = plan_for(name, &graph, &rasteriser());
        let found = plan.kernels.iter().map(|kernel| kernel.wgsl.as_str());
        let found: Vec<&str> = found.collect();
        assert_eq!(found.len(), kernels, "{name}:\n{}", found.join("\n\n"));
    }
}

/// A device with WebGPU's default of 8 storage buffers concatenates 130 values.
#[test]
fn concatenations_of_many_values_are_written_in_parts() {
    let graph = samples::graph(&["f32[2, 130]"], |b, x| {
        let columns: Vec<_> = (0..130)
            .map(|column| x[0].narrow(1, column, 1).sum(&[0], true))
            .collect();
        vec![b.concat(&columns, 1)]
    });
    let plan = plan("concat", &graph);
    assert!(plan.kernels.iter().all(|kernel| kernel.bindings.len() <= 8));
    assert_eq!(plan.steps.len(), 260);
}

/// An unsupported feature is an error with a name and advice.
#[test]
fn limits_are_errors() {
    let graph = samples::graph(&["f64[2]"], |_, x| vec![x[0].relu()]);
    let small = Capabilities {
        float64: false,
        ..capabilities()
    };
    let error = plan::plan(&graph, &small).err().unwrap();
    assert!(error.to_string().contains("no double precision"), "{error}");
    assert!(error.advice().is_some());
}

/// Workgroups that a device cannot run are an error of the plan, which names the kernel.
#[test]
fn workgroups_larger_than_the_device_allows_are_errors() {
    let graph = samples::graph(&["f32[B, 3]"], |_, x| vec![x[0].relu()]);
    let of = |max_invocations| Capabilities {
        max_invocations,
        ..capabilities()
    };
    let error = plan::plan(&graph, &of(32)).err().unwrap();
    let text = error.to_string();
    assert!(
        text.contains("workgroups of 64 invocations; the device allows 32"),
        "{text}"
    );
    assert!(error.advice().is_some());
    assert!(plan::plan(&graph, &of(64)).is_ok());
}

/// A linear layer in a module of its own.
fn linear() -> Graph {
    samples::graph(&["f32[B, 8]"], |builder, x| {
        builder.set_place(&SourcePlace {
            module: "encoder.fc".into(),
            location: None,
        });
        let weight = builder.weight("encoder.fc.weight", "f32[8, 1024]".parse().unwrap());
        vec![x[0].dot(weight).relu() + 1.0]
    })
}

/// Capabilities with a maximum binding size in bytes.
fn with_binding_limit(limit: u64) -> Capabilities {
    Capabilities {
        max_binding_size: limit,
        ..capabilities()
    }
}

/// A weight of 32,768 bytes is split into buffers of at most 12,000 bytes.
#[test]
fn weights_larger_than_a_binding_are_split() {
    let plan = plan::plan(&linear(), &with_binding_limit(12_000)).unwrap();
    let pieces = plan.slots.iter().filter_map(|slot| match slot.layout {
        Layout::Chunk { start, count } => Some((slot.name.as_str(), start, count)),
        _ => None,
    });
    assert_eq!(
        pieces.collect::<Vec<_>>(),
        [
            ("$encoder.fc.weight from element 0 to 2992", 0, 2992),
            ("$encoder.fc.weight from element 2992 to 5984", 2992, 2992),
            ("$encoder.fc.weight from element 5984 to 8192", 5984, 2208),
        ]
    );
}

/// The error for a kernel that needs too many buffers names the weight.
#[test]
fn weights_in_too_many_pieces_are_refused() {
    let error = plan::plan(&linear(), &with_binding_limit(2_000)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dot_to_add needs 19 buffers and textures, the device binds 8 and 0; 17 are chunks of the weight \
         encoder.fc.weight, each of at most 2000 bytes — at (encoder.fc)"
    );
    assert!(error.advice().unwrap().contains("split the weight"));
}

/// One kernel would read six buffers; the device binds three.
#[test]
fn values_are_stored_for_devices_that_bind_few_buffers() {
    let graph = samples::graph(&["f32[B, 8]"; 6], |_, x| {
        vec![x[0] * x[1] + x[2] * x[3] + x[4] * x[5]]
    });
    let small = Capabilities {
        max_storage_buffers: 3,
        ..capabilities()
    };
    let plan = plan::plan(&graph, &small).unwrap();
    assert_eq!(plan.steps.len(), 5);
    for kernel in &plan.kernels {
        assert!(kernel.bindings.len() <= 3, "{}", kernel.wgsl);
    }
}

#[test]
fn activations_larger_than_a_binding_are_refused() {
    let small = with_binding_limit(128 << 10);
    let plan = plan::plan(&linear(), &small).unwrap();
    let error = Footprint::of(&plan, &small, &[("B".into(), 64)].into()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(
            " takes 262144 bytes as f32[64, 1024]; the device binds at most 131072 bytes"
        ),
        "{text}"
    );
    assert!(text.contains("(encoder.fc)"), "{text}");
    assert!(error.advice().unwrap().contains("smaller inputs"));
}

/// Every step writes a slot that it binds, and temporaries are written before they are read, also by copies and layout
/// conversions.
#[test]
fn every_step_lists_its_writes() {
    for (name, graph) in samples::all() {
        for device in [capabilities(), rasteriser()] {
            let plan = plan_for(name, &graph, &device);
            let mut written: Vec<_> = Vec::new();
            for step in &plan.steps {
                let writes = &step.work.writes;
                assert!(!writes.is_empty(), "{name}: {:?}", step.nodes);
                assert!(
                    writes.iter().all(|slot| step.bindings.contains(slot)),
                    "{name}"
                );
                // The fault words are zeroed before a run.
                let faults = plan.runtime_checks.as_ref().map(|faults| faults.slot);
                let reads = step.bindings.iter().filter(|slot| !writes.contains(slot));
                for slot in reads.filter(|slot| Some(**slot) != faults) {
                    let slot_info = &plan.slots[slot.0];
                    let is_made =
                        !matches!(slot_info.kind, SlotKind::Input(_) | SlotKind::Weight(_));
                    assert!(
                        !is_made || written.contains(slot),
                        "{name}: {}",
                        slot_info.name
                    );
                }
                for slot in writes {
                    written.push(*slot);
                    // A slot counts as written once a part of it is.
                    let mut slot = *slot;
                    while let SlotKind::Subview { parent, .. } = &plan.slots[slot.0].kind {
                        slot = *parent;
                        written.push(slot);
                    }
                }
            }
        }
    }
}

/// WebGPU forbids it, though native drivers permit it.
#[test]
fn no_step_binds_a_slot_twice_that_it_may_write() {
    let vectors_and_elements = samples::graph(&["f32[4, 8]", "i32[8]"], |_, x| {
        let made = x[0].softmax(-1);
        let picked = made.index_select(1, x[1]);
        vec![made * 2.0 - picked]
    });
    let name = "vectors and elements of one value";
    let mut merged = plan(name, &vectors_and_elements).kernels.into_iter();
    assert!(
        merged.any(|kernel| kernel.wgsl.contains(" % 4u]")),
        "{name}"
    );

    for (name, graph) in [samples::all(), vec![(name, vectors_and_elements)]].concat() {
        for device in [capabilities(), onionskin::gpu::portable()] {
            let Ok(plan) = plan::plan(&graph, &device) else {
                continue;
            };
            for step in &plan.steps {
                let accesses = &plan.kernels[step.kernel].bindings;
                for (index, slot) in step.bindings.iter().enumerate() {
                    let is_again = step.bindings[..index].contains(slot);
                    let is_fixed = accesses[index] == Access::Read;
                    assert!(is_fixed || !is_again, "{name}: {:?}", step.nodes);
                }
            }
        }
    }
}

/// Where the device supports it, kernels read inputs and temporaries as textures, but not weights, parts of other slots or
/// slots that they write.
#[test]
fn inputs_and_values_between_kernels_are_read_as_texels() {
    let graph = samples::graph(&["f32[64, 64]"], |_, x| {
        let soft = x[0].softmax(1);
        let shown = soft.dot(x[0]);
        vec![shown, shown.dot(soft).softmax(1)]
    });
    let plan = plan_for("texels", &graph, &rasteriser());
    let mut kinds = Vec::new();
    for step in &plan.steps {
        let accesses = &plan.kernels[step.kernel].bindings;
        for (slot, access) in step.bindings.iter().zip(accesses) {
            if let Access::AliasedTexture(_) = access {
                kinds.push(plan.slots[slot.0].kind.clone());
                assert!(!step.work.writes.contains(slot));
            }
        }
    }
    let is_whole =
        |kind: &SlotKind| !matches!(kind, SlotKind::Weight(_) | SlotKind::Subview { .. });
    let is_between = |kind: &SlotKind| matches!(kind, SlotKind::Temporary { .. });
    assert!(kinds.iter().all(is_whole) && kinds.iter().any(is_between));
    assert!(kinds.contains(&SlotKind::Input(0)), "{kinds:?}");
    let without = Capabilities {
        buffer_aliasing: false,
        ..rasteriser()
    };
    let plan = plan_for("buffers", &graph, &without);
    let mut accesses = plan.kernels.iter().flat_map(|kernel| &kernel.bindings);
    assert!(accesses.all(|access| !matches!(access, Access::AliasedTexture(_))));
}

/// A copy writes only its destination, though source and destination have one layout.
#[test]
fn copies_write_one_slot() {
    let graph = samples::graph(&["f32[8, 8]"], |_, x| vec![x[0]]);
    let plan = plan_for("copy", &graph, &capabilities());
    let written = plan.steps.iter().map(|step| &step.work.writes);
    assert_eq!(written.collect::<Vec<_>>(), [&plan.outputs]);
}

/// Steps of an unrolled loop, and layers that read slices of a cache, differ only in offsets and share kernels.
#[test]
fn slices_at_other_offsets_share_kernels() {
    let unrolled = |steps: i64| {
        samples::graph(&["f32[8, 2, 64]", "f32[2, 64]"], |builder, x| {
            let weight = builder.weight("weight_hh", "f32[64, 64]".parse().unwrap());
            (0..steps).fold(vec![x[1]], |hidden, step| {
                vec![(x[0].select(0, step) + hidden[0].dot(weight)).tanh()]
            })
        })
    };
    let cached = |layers: i64| {
        samples::graph(&["f32[8, 4, 16]", "f32[8, 16]"], |builder, x| {
            let layer = |layer| {
                let past = x[0].narrow(0, layer, 1).reshape(&[4.into(), 16.into()]);
                builder.concat(&[past, x[1].narrow(0, layer, 1)], 0)
            };
            (0..layers).map(layer).collect()
        })
    };
    let kernels = |graph: Graph| plan_for("pieces", &graph, &rasteriser()).kernels.len();
    assert_eq!(kernels(unrolled(3)), kernels(unrolled(7)));
    assert_eq!((kernels(cached(1)), kernels(cached(8))), (1, 1));
}
