//! An archive as a program.

use super::{Archive, ImportOptions};
use crate::archive::Pickled;
use crate::error::Result;
use crate::ir::GraphModule;
use crate::trace::check::{Finding, SubjectKind};
use crate::trace::program::{ModuleTensors, Signature, SourceProgram};
use crate::trace::script::ast::FunctionDef;
use crate::trace::script::import::{import, parameters};
use crate::trace::script::{Script, has_control_flow, inspect, module_tensors};

impl SourceProgram for Archive {
    fn kind(&self) -> SubjectKind {
        // The archive of a traced function is not marked as a trace, but it never branches.
        let branches = || functions(self).is_ok_and(|functions| has_control_flow(&functions));
        let is_script = self.traced_inputs().is_none() && branches();
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
        let Ok(class) = self.root_class() else {
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
        Ok(inspect(self, &functions(self)?))
    }

    fn module_tensors(&self) -> ModuleTensors {
        module_tensors(self)
    }
}

/// All functions and methods of the program.
fn functions(archive: &Archive) -> Result<Vec<&FunctionDef>> {
    let mut functions = Vec::new();
    for name in archive.source().modules() {
        if let Some(file) = archive.source().module(name)? {
            functions.extend(&file.functions);
            functions.extend(file.classes.iter().flat_map(|class| &class.methods));
        }
    }
    Ok(functions)
}
