//! Tuning: measurements on a device are kept in a file, used on that device and ignored elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dtype::DType;
use onionskin::gpu::FeatureLevel;
use onionskin::ir::{GraphModule, NamedTree, TreeSpec};
use onionskin::item::Item;
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::materialization::Precision;
use onionskin::model::{Tuning, TuningProgress};
use onionskin::{CompileOptions, Device, Model, Tensor};

mod samples;

/// Returns a model of one product, its device and an argument.
fn model_device_and_argument() -> Option<(Model, Device, Item)> {
    let device = samples::device(FeatureLevel::Full)?;
    let mut graph = samples::graph(&["f32[24, 40]"], |_, x| {
        vec![x[0].dot(x[0].permute([1, 0]))]
    });
    graph.name = "forward".into();
    graph.input_trees = vec![NamedTree {
        name: "x".into(),
        tree: TreeSpec::Tensor(0),
    }];
    let module = GraphModule {
        graphs: vec![graph],
        weights: Default::default(),
        ..GraphModule::default()
    };
    let values = (0..960).map(|number| number as f32 / 960.0).collect();
    let x = Tensor::from_vec([24, 40], values).unwrap();
    Some((
        Model::from_module(module),
        Device::Gpu(device),
        Item::Tensor(x),
    ))
}

#[test]
fn measurements_are_saved_and_used() {
    let Some((model, device, x)) = model_device_and_argument() else {
        return;
    };
    let (mut chosen, mut times) = (Vec::new(), Vec::new());
    let tell = &mut |progress: TuningProgress| match progress {
        TuningProgress::Trying { done, layers, .. } => assert_eq!((done, layers), (0, 1)),
        TuningProgress::Chosen { layer, with, .. } => chosen.push((layer.to_string(), with)),
        TuningProgress::Done { before, after } => times.extend([before, after]),
    };
    let measured = Tuning::measure(
        &model,
        &device,
        Precision::Half,
        std::slice::from_ref(&x),
        tell,
    )
    .unwrap();
    assert_eq!(chosen.len(), 1);
    assert!(chosen[0].1 > 0.0);
    assert!(times.len() == 2 && times.iter().all(|time| *time > 0.0));
    assert!(chosen[0].0.starts_with("dot f32 24x40 40x24"));
    let path = std::env::temp_dir().join(format!("onionskin-tuning-{}.json", std::process::id()));
    measured.write(&path).unwrap();
    let read = Tuning::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read, measured);
    assert!(read.choices_for(&device, Precision::Half).is_ok());
}

/// The plan has the file's choice, which changes results by no more than rounding.
#[test]
fn choices_are_used() {
    let Some((model, device, x)) = model_device_and_argument() else {
        return;
    };
    let Device::Gpu(gpu) = &device else { return };
    let key = String::from("dot f32 24x40 40x24");
    let tuning = Tuning {
        choices: [(key.clone(), KernelVariant::Portable.to_string())].into(),
        ..Tuning::of(gpu, Precision::Single)
    };
    let options = CompileOptions {
        variant_overrides: tuning.choices_for(&device, Precision::Single).unwrap(),
        ..CompileOptions::default()
    };
    assert_eq!(
        options.variant_overrides.get(&key),
        Some(&KernelVariant::Portable)
    );
    let call = |options: &CompileOptions| {
        let session = model.compile(&device, options).unwrap();
        let result = session.call(std::slice::from_ref(&x)).unwrap();
        let (variant, _) = session.compile_for(std::slice::from_ref(&x)).unwrap();
        let program = variant.program.as_ref().unwrap();
        let taken = program
            .plan()
            .steps
            .iter()
            .filter_map(|step| step.choice.as_ref());
        let is_given = taken
            .into_iter()
            .any(|choice| choice.reason == "requested by the tuning or the options");
        assert_eq!(is_given, !options.variant_overrides.is_empty());
        let leaves = result.leaves().into_iter();
        let tensors = leaves.filter_map(|(_, leaf)| match leaf {
            Item::Tensor(tensor) => Some(tensor.to_f64()),
            _ => None,
        });
        tensors.flatten().collect::<Vec<f64>>()
    };
    let (tuned, plain) = (call(&options), call(&CompileOptions::default()));
    assert_eq!((tuned.len(), plain.len()), (24 * 24, 24 * 24));
    let pairs = tuned.into_iter().zip(plain);
    assert!(
        pairs
            .into_iter()
            .all(|(x, y)| (x - y).abs() <= 1e-5 + 1.3e-6 * y.abs())
    );
}

#[test]
fn other_devices_versions_and_precisions_ignore_it() {
    let Some((_, device, _)) = model_device_and_argument() else {
        return;
    };
    let Device::Gpu(gpu) = &device else { return };
    let single = Precision::Single;
    let here = || Tuning::of(gpu, single);
    let mut others = [here(), here(), here(), Tuning::of(gpu, Precision::Half)];
    others[0].adapter = "another".into();
    others[1].driver = "another".into();
    others[2].version = "another".into();
    let said = [
        "adapter",
        "driver",
        "version",
        "dtype f16, but the current dtype is f32",
    ];
    for (what, tuning) in said.into_iter().zip(others) {
        let error = tuning.choices_for(&device, single).unwrap_err().to_string();
        assert!(error.contains("ignored") && error.contains(what), "{error}");
    }
    assert!(here().choices_for(&Device::Host, single).is_err());
}

/// A file of an earlier version does not name a storage dtype: it was single precision.
#[test]
fn files_without_a_dtype_are_read() {
    let path = std::env::temp_dir().join(format!("onionskin-tuned-{}.json", std::process::id()));
    let text = r#"{"adapter": "a", "driver": "b", "version": "c", "choices": {}}"#;
    std::fs::write(&path, text).unwrap();
    let read = Tuning::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read.unwrap().dtype, DType::F32);
}
