//! The modules of a program with their parameters and buffers.

use std::collections::HashSet;

use super::Script;
use crate::archive::{Pickled, PickledObject, TensorRecord};
use crate::trace::program::ModuleTensors;

/// The modules of a program. A tensor that several have belongs to the first.
pub fn module_tensors(script: &dyn Script) -> ModuleTensors {
    let root = script.root().as_object();
    root.map_or_else(ModuleTensors::default, |root| {
        tensors_of(script, "", root, &mut HashSet::new())
    })
}

/// The tensors of a program that are parameters of modules.
pub(super) fn parameter_records(script: &dyn Script) -> HashSet<&TensorRecord> {
    let mut found = HashSet::new();
    let mut objects: Vec<&PickledObject> = Vec::new();
    if let Some(root) = script.root().as_object() {
        objects.push(root);
    }
    while let Some(object) = objects.pop() {
        let class = script.class(&object.class).ok();
        let is_parameter = |name: &str| {
            class.is_some_and(|class| class.parameters.iter().any(|known| known == name))
        };
        for (name, value) in &object.attributes {
            match value {
                Pickled::Tensor(record) if is_parameter(name) => {
                    found.insert(&**record);
                }
                Pickled::Object(object) => objects.push(object),
                _ => {}
            }
        }
    }
    found
}

/// Returns the tensors of a module that are not in `known`, and adds them to it.
fn tensors_of<'a>(
    script: &dyn Script,
    name: &str,
    object: &'a PickledObject,
    known: &mut HashSet<&'a TensorRecord>,
) -> ModuleTensors {
    let mut module = ModuleTensors {
        name: name.to_string(),
        class: class_name(&object.class).to_string(),
        ..ModuleTensors::default()
    };
    let class = script.class(&object.class).ok();
    let is_buffer = |name: &str| class.is_some_and(|class| class.buffers.iter().any(|b| b == name));
    for (name, value) in &object.attributes {
        match value {
            Pickled::Tensor(record) if known.insert(record) => {
                let own = match is_buffer(name) {
                    true => &mut module.buffers,
                    false => &mut module.parameters,
                };
                own.push(record.tensor_type());
            }
            Pickled::Object(object) => {
                let submodule = tensors_of(script, name, object, known);
                module.modules.push(submodule);
            }
            _ => {}
        }
    }
    module
}

/// `Bottleneck` for `__torch__.torchvision.models.resnet.Bottleneck`.
fn class_name(qualified: &str) -> &str {
    qualified.rsplit('.').next().unwrap_or(qualified)
}
