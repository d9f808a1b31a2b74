//! An archive as a program.

use std::collections::HashSet;

use super::inspect::{has_control_flow, inspect};
use super::{Archive, ImportOptions};
use crate::archive::{Pickled, PickledObject, TensorRecord};
use crate::error::Result;
use crate::ir::GraphModule;
use crate::trace::check::{Finding, SubjectKind};
use crate::trace::program::{ModuleTensors, Signature, SourceProgram};
use crate::trace::script::Script;
use crate::trace::script::ast::ClassDef;
use crate::trace::script::import::{import, parameters};

impl SourceProgram for Archive {
    fn kind(&self) -> SubjectKind {
        // The archive of a traced function is not marked as a trace, but it never branches.
        let is_script = self.traced_inputs().is_none() && has_control_flow(self).unwrap_or(false);
        match is_script {
            true => SubjectKind::Script,
            false => SubjectKind::Trace,
        }
    }

    fn format(&self) -> &'static str {
        "TorchScript archive"
    }

    fn format_version(&self) -> u64 {
        u64::from(self.version())
    }

    fn entries(&self) -> Vec<String> {
        let traced = self.traced_inputs().and_then(Pickled::as_dict);
        let names = traced.iter().flat_map(|dict| &dict.entries);
        let names: Vec<String> = names
            .filter_map(|(name, _)| Some(name.as_str()?.to_string()))
            .collect();
        match names.is_empty() {
            true => vec!["forward".to_string()],
            false => names,
        }
    }

    fn methods(&self) -> Vec<String> {
        let Some(class) = root_class(self) else {
            return self.entries();
        };
        let names = class.methods.iter().map(|method| method.name.clone());
        names.filter(|name| !name.starts_with('_')).collect()
    }

    fn signature(&self, method: &str) -> Result<Signature> {
        Ok(Signature::of_parameters(method, parameters(self, method)?))
    }

    fn import(&self, options: &ImportOptions) -> Result<GraphModule> {
        import(self, options)
    }

    fn can_reimport(&self) -> bool {
        true
    }

    fn inspect(&self) -> Result<Vec<Finding>> {
        inspect(self)
    }

    fn module_tensors(&self) -> ModuleTensors {
        let root = self.root().as_object();
        root.map_or_else(ModuleTensors::default, |root| {
            module_tensors(self, "", root, &mut HashSet::new())
        })
    }
}

fn root_class(archive: &Archive) -> Option<&ClassDef> {
    let root = archive.root().as_object()?;
    archive.class(&root.class).ok()
}

/// Returns the tensors of a module that are not in `known`, and adds them to it.
fn module_tensors<'a>(
    archive: &Archive,
    name: &str,
    object: &'a PickledObject,
    known: &mut HashSet<&'a TensorRecord>,
) -> ModuleTensors {
    let mut module = ModuleTensors {
        name: name.to_string(),
        class: class_name(&object.class).to_string(),
        ..ModuleTensors::default()
    };
    let class = archive.class(&object.class).ok();
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
                let submodule = module_tensors(archive, name, object, known);
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
