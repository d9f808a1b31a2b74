//! Plans without a device: every kernel is valid WGSL and translates to SPIR-V, MSL and HLSL; some are read by people.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use onionskin::ir::Graph;
use onionskin::kernel::plan::{Capabilities, Plan};
use onionskin::kernel::shader;
use onionskin::pass;

mod samples;

/// A device with everything that plans make use of, and WebGPU's default limits.
fn capabilities() -> Capabilities {
    Capabilities {
        max_binding_size: 128 << 20,
        max_buffer_size: 256 << 20,
        max_storage_buffers: 8,
        max_workgroups: 65_535,
        max_invocations: 256,
        max_workgroup_memory: 16_384,
        int64: true,
        float64: true,
        float16: true,
        subgroups: false,
        software: false,
    }
}

#[test]
fn kernels_are_valid_and_translate() {
    for (name, graph) in samples::all() {
        let plan = plan(name, &graph);
        for kernel in &plan.kernels {
            translate(&kernel.wgsl).unwrap_or_else(|error| {
                panic!("{name}: {}\n{}\n{error}", kernel.label, kernel.wgsl)
            });
        }
    }
}

fn plan(name: &str, graph: &Graph) -> Plan {
    pass::plan(graph, &capabilities()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Validates, and writes SPIR-V, HLSL and, without double precision, which Metal lacks, MSL.
fn translate(wgsl: &str) -> Result<(), String> {
    use naga::back::{hlsl, msl, spv};
    shader::validate(wgsl, &capabilities()).map_err(|error| error.to_string())?;
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.to_string())?;
    let info = naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::all(),
    )
    .validate(&module)
    .map_err(|error| error.to_string())?;
    let options = spv::Options {
        lang_version: (1, 3),
        ..Default::default()
    };
    spv::write_vec(&module, &info, &options, None).map_err(|error| format!("SPIR-V: {error}"))?;
    let place = hlsl::BindTarget::default();
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_2,
        fake_missing_bindings: true,
        special_constants_binding: Some(place),
        ..Default::default()
    };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &Default::default())
        .write(&module, &info, None)
        .map_err(|error| format!("HLSL: {error}"))?;
    if !wgsl.contains("f64") {
        let options = msl::Options {
            lang_version: (2, 4),
            fake_missing_bindings: true,
            ..Default::default()
        };
        msl::write_string(&module, &info, &options, &Default::default())
            .map_err(|error| format!("MSL: {error}"))?;
    }
    Ok(())
}

#[test]
fn templates_and_library_are_valid_by_themselves() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut library = String::new();
    for name in ["float", "integer", "double"] {
        let path = folder.join("lib").join(format!("{name}.wgsl"));
        library += &std::fs::read_to_string(path).unwrap();
    }
    shader::validate(&library, &capabilities()).unwrap_or_else(|error| panic!("{error}"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "wgsl")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            translate(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// The text of a plan: kernels, then steps.
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

/// Plans as people read them; `BLESS=1` writes the files anew.
#[test]
fn plans_read_well() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/plan");
    for name in [
        "softmax",
        "linear",
        "embedding",
        "depthwise",
        "pad",
        "total",
    ] {
        let (_, graph) = samples::all()
            .into_iter()
            .find(|(known, _)| *known == name)
            .unwrap();
        let found = describe(&plan(name, &graph));
        let path = folder.join(format!("{name}.txt"));
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

/// A device with WebGPU's default of 8 storage buffers joins 130 values.
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

/// What a device cannot do is listed at once, with names and advice.
#[test]
fn limits_are_errors() {
    let graph = samples::graph(&["f64[2]"], |_, x| vec![x[0].relu()]);
    let small = Capabilities {
        float64: false,
        ..capabilities()
    };
    let error = pass::plan(&graph, &small).err().unwrap();
    assert!(error.to_string().contains("no double precision"), "{error}");
    assert!(error.advice().is_some());
}
