//! Replays cases of `tests/fixtures` that PyTorch recorded, on the host and on a device.

use std::path::{Path, PathBuf};

use onionskin::cases::{self, Case, CaseArchive};
use onionskin::compare::compare;
use onionskin::error::Error;
use onionskin::gpu::FeatureLevel;
use onionskin::ir::GraphModule;
use onionskin::{CompileOptions, Device, Model};

use super::samples;

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Loads a case by folder and name: `cases/traces/casts`.
pub fn load(case: &str) -> Case {
    let file = fixtures().join(format!("{case}.zip"));
    cases::find(&file).unwrap()[0].load().unwrap()
}

pub fn bytes(case: &Case) -> Vec<u8> {
    match &case.archive {
        CaseArchive::Bytes(bytes) => bytes.to_vec(),
        CaseArchive::Path(path) => std::fs::read(path).unwrap(),
    }
}

/// Returns the host, and the device under test if there is one.
pub fn devices() -> impl Iterator<Item = Device> {
    let device = samples::device(FeatureLevel::Full).map(Device::from);
    [Some(Device::Host), device].into_iter().flatten()
}

/// Checks an archive's results for all inputs, on the host and on a device. Returns its graph for the first inputs.
pub fn replay_case(name: &str) -> GraphModule {
    let case = load(name);
    let model = Model::from_bytes(bytes(&case)).unwrap();
    for device in devices() {
        let session = model
            .clone()
            .compile(&device, &CompileOptions::default())
            .unwrap();
        for set in &case.sets {
            for call in &set.calls {
                let got = session.call(&call.inputs);
                let got = got.unwrap_or_else(|error| panic!("{name}, {}: {error}", set.label));
                for difference in compare(&got, &call.output, set.tolerance) {
                    assert!(difference.passed(), "{name}, {}: {difference}", set.label);
                }
            }
        }
    }
    let first = &case.sets[0].calls[0].inputs;
    model.import_method("forward", Some(first)).unwrap()
}

/// Returns the error of a case that cannot be imported.
pub fn import_error(name: &str) -> Error {
    let case = load(name);
    let inputs = &case.sets[0].calls[0].inputs;
    let model = Model::from_bytes(bytes(&case));
    let imported = model.and_then(|model| model.import_method("forward", Some(inputs)));
    imported.map(drop).unwrap_err()
}
