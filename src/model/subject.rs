use crate::error::Result;
use crate::item::Item;
use crate::trace::check::{Subject, Traced, evaluate};

use super::Model;

/// A method of a model, as the checker's subject: the function that was traced is not at hand, so that calls run what is
/// imported for their arguments.
pub struct Method<'a> {
    /// The model.
    pub model: &'a Model,
    /// `forward`, or another method's name.
    pub name: &'a str,
}

impl Subject for Method<'_> {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        let module = self.model.import_method(self.name, Some(arguments))?;
        Ok(Traced {
            module,
            warnings: Vec::new(),
        })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let module = self.model.import_method(self.name, Some(arguments))?;
        evaluate(module.graph(self.name)?, &module, arguments)
    }

    fn is_original(&self) -> bool {
        false
    }
}
