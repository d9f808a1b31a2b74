//! An exported program as a program with methods.

use std::collections::BTreeMap;
use std::path::Path;

use super::node_places::NodePlaces;
use super::package::Package;
use super::translate::translate;
use crate::archive::{Container, Pickled};
use crate::budget::Limits;
use crate::error::{ErrorContext, Result};
use crate::ir::GraphModule;
use crate::trace::check::{Finding, SubjectKind};
use crate::trace::program::{
    ImportOptions, InputSpec, ModuleTensors, Signature, SourceProgram, SymbolicSizes,
};
use crate::trace::script::ast::{ClassDef, FunctionDef};
use crate::trace::script::import::{import, parameters};
use crate::trace::script::{inspect, module_tensors};

/// A file of `torch.export.save`: one method `forward`, or one for each of its programs.
#[derive(Debug)]
pub struct ExportedProgram {
    pub(super) package: Package,
    /// The root module.
    pub(super) root: Pickled,
    /// Classes of modules, named tuples and dataclasses by name.
    pub(super) classes: BTreeMap<String, ClassDef>,
    /// The programs by the names of their methods.
    pub(super) methods: BTreeMap<String, ExportedMethod>,
    /// Version of the documents' schema.
    schema_version: u64,
}

/// A program of the file.
#[derive(Debug)]
pub(super) struct ExportedMethod {
    /// The record with its document.
    pub document: String,
    /// Examples of its arguments.
    pub examples: Vec<InputSpec>,
    /// Sizes that may vary.
    pub symbolic_sizes: Vec<(String, usize)>,
    /// Places of its statements.
    pub places: NodePlaces,
}

impl ExportedProgram {
    /// Opens a file. Weights are read when they are used.
    ///
    /// # Errors
    /// The file cannot be read, is no exported program, or is of a version that is not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<ExportedProgram> {
        ExportedProgram::open_with(path, &Limits::default())
    }

    /// Like [`ExportedProgram::open`], with other limits for opening and import.
    ///
    /// # Errors
    /// As [`ExportedProgram::open`].
    pub fn open_with(path: impl AsRef<Path>, limits: &Limits) -> Result<ExportedProgram> {
        let path = path.as_ref();
        let container = Container::open(path, limits)?;
        ExportedProgram::from_container(container).at(|| path.display().to_string())
    }

    /// Opens the program in a ZIP file that is open already.
    ///
    /// # Errors
    /// As [`ExportedProgram::open`].
    pub fn from_container(container: Container) -> Result<ExportedProgram> {
        let package = Package::open(container)?;
        let names = package.programs();
        let mut modules = super::script::ModuleObjects::default();
        let mut functions = Vec::new();
        let mut methods = BTreeMap::new();
        let mut schema_version = 0;
        for name in &names {
            let (method, root): (&str, &[&str]) = match names.as_slice() {
                [_] => ("forward", &[]),
                _ => (name, &[name]),
            };
            let document = package.document(name);
            let program = package.program(name)?;
            schema_version = program.schema_version.major;
            let translated =
                translate(&program, method, &document, root).at(|| document.clone())?;
            modules.add_records(&translated.records);
            modules.add_weights(&program, package.tensors(name)?, root, &translated.places);
            functions.push(translated.function);
            let exported = ExportedMethod {
                document,
                examples: translated.examples,
                symbolic_sizes: translated.symbolic_sizes,
                places: translated.places,
            };
            methods.insert(method.to_string(), exported);
        }
        let (root, classes) = modules.finish(functions);
        Ok(ExportedProgram {
            package,
            root,
            classes,
            methods,
            schema_version,
        })
    }

    /// The functions of all programs.
    fn functions(&self) -> Vec<&FunctionDef> {
        self.classes
            .values()
            .flat_map(|class| &class.methods)
            .collect()
    }

    /// The sizes that the programs were exported for, of those that a caller wants to vary.
    fn symbolic_sizes(&self, wanted: &SymbolicSizes) -> SymbolicSizes {
        let methods = self.methods.values();
        let dynamic = methods.flat_map(|method| method.symbolic_sizes.iter().cloned());
        match wanted {
            SymbolicSizes::All => SymbolicSizes::Only(dynamic.collect()),
            SymbolicSizes::None => SymbolicSizes::None,
            SymbolicSizes::Only(list) => {
                SymbolicSizes::Only(dynamic.filter(|size| list.contains(size)).collect())
            }
        }
    }
}

impl SourceProgram for ExportedProgram {
    fn kind(&self) -> SubjectKind {
        SubjectKind::Export
    }

    fn format(&self) -> &'static str {
        "exported program"
    }

    fn format_version(&self) -> u64 {
        self.schema_version
    }

    fn entries(&self) -> Vec<String> {
        self.methods()
    }

    fn methods(&self) -> Vec<String> {
        self.methods.keys().cloned().collect()
    }

    fn signature(&self, method: &str) -> Result<Signature> {
        Ok(Signature::of_parameters(method, parameters(self, method)?))
    }

    fn import(&self, options: &ImportOptions) -> Result<GraphModule> {
        let sizes = self.symbolic_sizes(&options.sizes);
        import(
            self,
            &ImportOptions {
                sizes,
                ..options.clone()
            },
        )
    }

    fn can_reimport(&self) -> bool {
        true
    }

    fn inspect(&self) -> Result<Vec<Finding>> {
        Ok(inspect(self, &self.functions()))
    }

    fn module_tensors(&self) -> ModuleTensors {
        module_tensors(self)
    }
}
