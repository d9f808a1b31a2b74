//! Replay of recorded cases with gradients.

use std::path::Path;

use super::TestCommand;
use super::replay::set_label;
use crate::cases::{CaseRef, GradientCall};
use crate::compare::Difference;
use crate::error::Result;
use crate::model::RecordedSubject;
use crate::{CompileOptions, Device, Model};

/// Compares the gradients of all calls of a case that have recorded ones in a folder.
pub(super) fn replay_gradients(
    case: &CaseRef,
    folder: &Path,
    device: &Device,
    test: &TestCommand,
) -> Result<Vec<(String, Difference)>> {
    let loaded = case.load()?;
    let model = test.open(&loaded.archive)?;
    let mut differences = Vec::new();
    for call in loaded.gradient_calls(case.gradients(folder)?)? {
        let found = call_differences(&model, &call, device)?;
        let label = set_label(&call.label);
        differences.extend(found.into_iter().map(|found| (label.clone(), found)));
    }
    Ok(differences)
}

fn call_differences(
    model: &Model,
    call: &GradientCall,
    device: &Device,
) -> Result<Vec<Difference>> {
    let module = model.import_method(&call.call.method, Some(&call.call.inputs))?;
    let subject = RecordedSubject::of(module, call)?;
    let options = CompileOptions {
        entry: call.call.method.clone(),
        release_memory: false,
        ..CompileOptions::default()
    };
    let session = Model::from_module(subject.module.clone()).compile(device, &options)?;
    subject.gradient_differences(&session.call(&subject.arguments)?)
}
