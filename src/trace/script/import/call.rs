//! Calls of functions, methods and classes. All of them are inlined.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::archive::debug::is_library;
use crate::error::{Error, Result};
use crate::trace::script::Declaration;
use crate::trace::script::ast::{BaseClass, CallExpr, Callee, ClassDef, FunctionDef};

use super::Importer;
use super::datum::{Datum, Instance};
use super::evaluate::CallFrame;

/// The arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// Positional arguments.
    pub positional: Vec<Datum>,
    /// Keyword arguments.
    pub named: Vec<(String, Datum)>,
}

impl From<Vec<Datum>> for Arguments {
    fn from(positional: Vec<Datum>) -> Arguments {
        Arguments {
            positional,
            named: Vec::new(),
        }
    }
}

impl Importer<'_> {
    /// Evaluates a call. `offset` is the byte offset of the call in the frame's file.
    pub(super) fn eval_call(
        &mut self,
        frame: &CallFrame,
        call: &CallExpr,
        offset: usize,
    ) -> Result<Datum> {
        let object = match &call.callee {
            Callee::Method(object, _) => Some(self.eval(frame, object)?),
            _ => None,
        };
        let mut arguments = Arguments::from(self.eval_all(frame, &call.arguments)?);
        for (name, value) in &call.keywords {
            let value = self.eval(frame, value)?;
            arguments.named.push((name.clone(), value));
        }
        self.restore_location(frame, offset);
        let result = match (&call.callee, object) {
            (Callee::Operator(name), _) => self.operator(name, arguments),
            (Callee::Qualified(name), _) => self.call_qualified(name, arguments),
            (Callee::Method(_, name), Some(object)) => self.method(&object, name, arguments),
            (Callee::Name(name), _) => match frame.locals.get(name).cloned() {
                Some(function) => self.call_datum(&function, arguments),
                None => self.named_builtin(frame, name, arguments),
            },
            (Callee::Method(..), None) => Err(Error::internal("a method has no object")),
        }?;
        self.restore_location(frame, offset);
        Ok(result)
    }

    /// Calls the function that a variable holds.
    pub(super) fn call_datum(&mut self, function: &Datum, arguments: Arguments) -> Result<Datum> {
        match function {
            Datum::Function(name) => self.call_qualified(name, arguments),
            Datum::Closure(closure) => {
                let module = self.place.module.clone();
                self.run_function(
                    &closure.function,
                    &module,
                    closure.locals.clone(),
                    arguments,
                )
            }
            Datum::Unknown => Ok(Datum::Unknown),
            other => Err(Error::source(format!("a {} is called", other.describe()))),
        }
    }

    /// Calls a function or class of the archive.
    fn call_qualified(&mut self, name: &str, arguments: Arguments) -> Result<Datum> {
        let script = self.script;
        if let Some(class) = name.strip_suffix(".__new__") {
            return Ok(self.new_instance(class));
        }
        match script.declaration(name)? {
            Some(Declaration::Function(function)) => {
                let module = self.place.module.clone();
                self.run_function(function, &module, BTreeMap::new(), arguments)
            }
            Some(Declaration::Class(class)) => self.construct(class, arguments),
            None => Err(Error::source(format!(
                "the archive declares no function {name}"
            ))),
        }
    }

    /// Makes an object without attributes.
    fn new_instance(&mut self, class: &str) -> Datum {
        Datum::Object(Rc::new(Instance {
            class: class.into(),
            path: self.place.module.clone(),
            pickled: None,
            attributes: RefCell::new(BTreeMap::new()),
            depth: self.scopes.depth(),
        }))
    }

    /// Calls a class: makes a named tuple of its fields, or an object that `__init__` fills.
    fn construct(&mut self, class: &ClassDef, arguments: Arguments) -> Result<Datum> {
        if class.base != BaseClass::NamedTuple {
            let object = self.new_instance(&class.name);
            self.method(&object, "__init__", arguments)?;
            return Ok(object);
        }
        let names = class.attributes.iter().map(|(name, _)| name.clone());
        let values = arguments.positional;
        if values.len() != class.attributes.len() {
            let message = format!("{} takes {} fields", class.name, class.attributes.len());
            return Err(Error::source(message));
        }
        let fields: Vec<(String, Datum)> = names.zip(values).collect();
        Ok(Datum::NamedTuple(class.name.as_str().into(), fields.into()))
    }

    /// Calls a method of an object.
    pub(super) fn method(
        &mut self,
        object: &Datum,
        name: &str,
        arguments: Arguments,
    ) -> Result<Datum> {
        let script = self.script;
        let instance = match object {
            Datum::Object(instance) => instance,
            Datum::Unknown => return Ok(Datum::Unknown),
            other => {
                let message = format!("a {} has no method {name}", other.describe());
                return Err(Error::source(message));
            }
        };
        let class = script.class(&instance.class)?;
        let Some(function) = class.method(name) else {
            let message = format!("{} has no method {name}", instance.class);
            return Err(Error::source(message));
        };
        let mut arguments = arguments;
        arguments.positional.insert(0, object.clone());
        let path = self.path_of_call(instance);
        self.run_function(function, &path, BTreeMap::new(), arguments)
    }

    /// Returns the module path of a call of a method. An object that is not a module of the archive belongs to the call
    /// that made it.
    fn path_of_call(&mut self, instance: &Instance) -> String {
        match instance.pickled {
            Some(_) => self.module_calls.enter(&self.place.module, &instance.path),
            None => instance.path.clone(),
        }
    }

    /// Runs a function of the archive on positional arguments. `module` is the module path for the nodes that it adds.
    pub(super) fn call_function(
        &mut self,
        function: &FunctionDef,
        module: &str,
        arguments: Vec<Datum>,
    ) -> Result<Datum> {
        self.run_function(function, module, BTreeMap::new(), arguments.into())
    }

    /// Runs a function. `locals` are the variables that it has in addition to its parameters.
    fn run_function(
        &mut self,
        function: &FunctionDef,
        module: &str,
        locals: BTreeMap<String, Datum>,
        arguments: Arguments,
    ) -> Result<Datum> {
        let mut frame = CallFrame {
            locals,
            file: function.file.clone(),
            module: module.to_string(),
        };
        self.bind_arguments(&mut frame, function, arguments)?;
        if self.place.location.is_none() {
            // Statements that only read an attribute have no line in the user's source.
            let first = self.script.first_location(&function.file, function.offset);
            self.place.location = first.filter(|location| !is_library(&location.file));
        }
        let result = self.run_block(&mut frame, &function.body)?;
        Ok(result.unwrap_or(Datum::None))
    }

    /// Assigns the arguments of a call, or defaults where the call gives none, to the function's parameters.
    fn bind_arguments(
        &mut self,
        frame: &mut CallFrame,
        function: &FunctionDef,
        arguments: Arguments,
    ) -> Result<()> {
        let (given, wanted) = (arguments.positional.len(), function.parameters.len());
        if wanted < given {
            let message = format!("{} takes {wanted} arguments, not {given}", function.name);
            return Err(Error::source(message));
        }
        let mut positional = arguments.positional.into_iter();
        for parameter in &function.parameters {
            let named = arguments.named.iter();
            let mut named = named.filter(|(name, _)| *name == parameter.name);
            let argument = positional.next();
            let argument = argument.or_else(|| named.next().map(|(_, value)| value.clone()));
            let value = match (argument, &parameter.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.literal(default)?,
                (None, None) => {
                    let (name, parameter) = (&function.name, &parameter.name);
                    let message = format!("{name} is called without its argument {parameter}");
                    return Err(Error::source(message));
                }
            };
            frame.locals.insert(parameter.name.clone(), value);
        }
        Ok(())
    }
}
