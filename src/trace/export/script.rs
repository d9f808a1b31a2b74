//! An exported program as a script: modules for its weights, with a method for each graph.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::node_places::NodePlaces;
use super::package::TensorRecords;
use super::program::{ExportedMethod, ExportedProgram};
use super::schema::{SerializedInput, SerializedProgram};
use crate::archive::{Pickled, PickledObject, TensorRecord};
use crate::budget::Budget;
use crate::error::{Location, Result, SourcePlace};
use crate::tensor::Tensor;
use crate::trace::program::InputSpec;
use crate::trace::script::ast::{BaseClass, ClassDef, ForwardHooks, FunctionDef, TypeExpr};
use crate::trace::script::{Declaration, Script};

/// The version of TorchScript's operators that exported programs call: the newest.
const OPERATOR_VERSION: u32 = 10;
/// Class of modules of which the program does not tell the class.
const MODULE_CLASS: &str = "torch.nn.Module";
/// Class of a root module of which the program does not tell the class.
const ROOT_CLASS: &str = "torch.export.ExportedProgram";

impl Script for ExportedProgram {
    fn root(&self) -> &Pickled {
        &self.root
    }

    fn constants(&self) -> &[Pickled] {
        &[]
    }

    fn declaration(&self, name: &str) -> Result<Option<Declaration<'_>>> {
        Ok(self.classes.get(name).map(Declaration::Class))
    }

    fn example_inputs(&self, method: &str) -> Result<Option<Vec<InputSpec>>> {
        let method = self.methods.get(method);
        Ok(method.map(|method| method.examples.clone()))
    }

    fn operator_version(&self) -> u32 {
        OPERATOR_VERSION
    }

    fn location(&self, file: &str, offset: usize) -> Option<Location> {
        self.place(file, offset)?.location.clone()
    }

    fn first_location(&self, _file: &str, _offset: usize) -> Option<Location> {
        None
    }

    fn module_path(&self, file: &str, offset: usize) -> Option<&str> {
        Some(&self.place(file, offset)?.module)
    }

    fn open_tensor(&self, record: &TensorRecord, budget: &Budget) -> Result<Tensor> {
        self.package.open_tensor(record, budget)
    }

    fn new_budget(&self) -> Budget {
        self.package.container().new_budget()
    }
}

impl ExportedProgram {
    fn place(&self, file: &str, offset: usize) -> Option<&SourcePlace> {
        let mut methods = self.methods.values();
        let of_file = |method: &&ExportedMethod| method.document == file;
        methods.find(of_file)?.places.get(offset)
    }
}

/// The modules of a program while they are collected, and its classes.
#[derive(Default)]
pub(super) struct ModuleObjects {
    root: ModuleNode,
    /// Class of the root module, if the program tells it.
    root_class: Option<String>,
    /// Names of the parameters of the root module.
    root_parameters: Vec<String>,
    classes: BTreeMap<String, ClassDef>,
}

/// A module.
#[derive(Default)]
struct ModuleNode {
    class: Option<String>,
    /// Attributes in order.
    attributes: Vec<(String, Attribute)>,
    /// Positions of the attributes.
    positions: HashMap<String, usize>,
}

enum Attribute {
    Weight(Pickled),
    Module(ModuleNode),
}

impl ModuleObjects {
    /// Declares named tuples and dataclasses.
    pub fn add_records(&mut self, records: &BTreeMap<String, Vec<String>>) {
        for (name, fields) in records {
            let fields = fields.iter().map(|field| (field.clone(), TypeExpr::Any));
            let class = ClassDef {
                attributes: fields.collect(),
                ..class(name, BaseClass::NamedTuple)
            };
            self.classes.insert(name.clone(), class);
        }
    }

    /// Adds the weights of a program below the module at the path `root`.
    pub fn add_weights(
        &mut self,
        program: &SerializedProgram,
        tensors: TensorRecords,
        root: &[&str],
        places: &NodePlaces,
    ) {
        for spec in &program.graph_module.signature.input_specs {
            let (path, is_buffer) = match spec {
                SerializedInput::Parameter { parameter_name, .. } => (parameter_name, false),
                SerializedInput::Buffer { buffer_name, .. } => (buffer_name, true),
                SerializedInput::TensorConstant {
                    tensor_constant_name,
                    ..
                } => (tensor_constant_name, true),
                _ => continue,
            };
            let Some(value) = tensors.get(path) else {
                continue;
            };
            let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
            // A damaged program may have a weight and a module of one name.
            let Some(node) = self.module(root, module, places) else {
                continue;
            };
            node.set(name, value.clone());
            if module.is_empty() && root.is_empty() && !is_buffer {
                self.root_parameters.push(name.to_string());
            } else if let Some(class) = node
                .class
                .clone()
                .and_then(|class| self.classes.get_mut(&class))
            {
                let names = match is_buffer {
                    true => &mut class.buffers,
                    false => &mut class.parameters,
                };
                names.push(name.to_string());
            }
        }
        if root.is_empty() {
            self.root_class = places.class("").map(str::to_string);
        }
    }

    /// The module at a path below `root`, with the classes of the modules on the way; none if a weight has the name of one.
    fn module(
        &mut self,
        root: &[&str],
        path: &str,
        places: &NodePlaces,
    ) -> Option<&mut ModuleNode> {
        let mut node = &mut self.root;
        for name in root {
            node = node.module(name)?;
        }
        let mut end = 0;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            node = node.module(name)?;
            end += name.len();
            let known = path.get(..end).and_then(|path| places.class(path));
            end += 1;
            if node.class.is_none() {
                let name = known.unwrap_or(MODULE_CLASS);
                let new = || class(name, BaseClass::Module);
                self.classes.entry(name.to_string()).or_insert_with(new);
                node.class = Some(name.to_string());
            }
        }
        Some(node)
    }

    /// The root module and all classes. The functions are the methods of the root.
    pub fn finish(mut self, functions: Vec<FunctionDef>) -> (Pickled, BTreeMap<String, ClassDef>) {
        let module = || class(MODULE_CLASS, BaseClass::Module);
        let classes = &mut self.classes;
        classes
            .entry(MODULE_CLASS.to_string())
            .or_insert_with(module);
        let known = self.root_class.take();
        let name = known.filter(|name| !self.classes.contains_key(name));
        let name = name.unwrap_or_else(|| ROOT_CLASS.to_string());
        let root = ClassDef {
            methods: functions,
            parameters: self.root_parameters,
            ..class(&name, BaseClass::Module)
        };
        self.classes.insert(name.clone(), root);
        self.root.class = Some(name);
        (self.root.pickled(), self.classes)
    }
}

impl ModuleNode {
    /// The position of an attribute, which is a module without attributes if it is new.
    fn position(&mut self, name: &str) -> usize {
        let next = self.attributes.len();
        let position = *self.positions.entry(name.to_string()).or_insert(next);
        if position == next {
            let module = Attribute::Module(ModuleNode::default());
            self.attributes.push((name.to_string(), module));
        }
        position
    }

    /// The submodule of a name; none if the name is that of a weight.
    fn module(&mut self, name: &str) -> Option<&mut ModuleNode> {
        let position = self.position(name);
        match self.attributes.get_mut(position) {
            Some((_, Attribute::Module(module))) => Some(module),
            _ => None,
        }
    }

    fn set(&mut self, name: &str, value: Pickled) {
        let position = self.position(name);
        if let Some((_, attribute)) = self.attributes.get_mut(position) {
            *attribute = Attribute::Weight(value);
        }
    }

    fn pickled(self) -> Pickled {
        let attributes = self.attributes.into_iter().map(|(name, attribute)| {
            let value = match attribute {
                Attribute::Weight(value) => value,
                Attribute::Module(module) => module.pickled(),
            };
            (Arc::from(name), value)
        });
        let class = self.class.unwrap_or_else(|| MODULE_CLASS.to_string());
        Pickled::Object(Arc::new(PickledObject {
            attributes: attributes.collect(),
            class: class.into(),
        }))
    }
}

/// A class without attributes and methods.
fn class(name: &str, base: BaseClass) -> ClassDef {
    ClassDef {
        name: name.to_string(),
        base,
        attributes: Vec::new(),
        constants: Vec::new(),
        parameters: Vec::new(),
        buffers: Vec::new(),
        hooks: ForwardHooks::default(),
        methods: Vec::new(),
        file: Arc::from(""),
        offset: 0,
    }
}
