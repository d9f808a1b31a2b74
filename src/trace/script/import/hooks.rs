//! Hooks of the root module. TorchScript's compiler writes the hooks of other modules as calls in the program.

use std::rc::Rc;

use crate::error::{Error, Result};
use crate::trace::script::ast::{ClassDef, FunctionDef};

use super::Importer;
use super::datum::{Datum, Instance};

impl Importer<'_> {
    /// Calls an entry method and returns its result. `arguments` begins with the module. For `forward`, also calls the
    /// module's hooks before and after it.
    pub(super) fn call_with_hooks(
        &mut self,
        root: &Rc<Instance>,
        function: &FunctionDef,
        arguments: Vec<Datum>,
    ) -> Result<Datum> {
        let script = self.script;
        let class = script.class(&root.class)?;
        if function.name != "forward" {
            return self.call_function(function, &root.path, arguments);
        }
        let module = Datum::Object(root.clone());
        let mut inputs: Vec<Datum> = arguments.into_iter().skip(1).collect();
        for name in &class.hooks.pre {
            let hook_arguments = vec![module.clone(), Datum::tuple(inputs.clone())];
            match self.call_function(hook(class, name)?, &root.path, hook_arguments)? {
                Datum::None => {}
                Datum::Tuple(changed) => inputs = changed.to_vec(),
                single => inputs = vec![single],
            }
        }
        let forward_arguments = std::iter::once(module.clone()).chain(inputs.clone());
        let mut result = self.call_function(function, &root.path, forward_arguments.collect())?;
        for name in &class.hooks.post {
            let hook_arguments = vec![module.clone(), Datum::tuple(inputs.clone()), result.clone()];
            match self.call_function(hook(class, name)?, &root.path, hook_arguments)? {
                Datum::None => {}
                changed => result = changed,
            }
        }
        Ok(result)
    }
}

/// Finds the method of a hook by its name.
fn hook<'a>(class: &'a ClassDef, name: &str) -> Result<&'a FunctionDef> {
    let missing = || Error::source(format!("{} has no hook {name}", class.name));
    class.method(name).ok_or_else(missing)
}
