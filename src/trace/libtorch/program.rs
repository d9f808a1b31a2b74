//! TorchScript archives that libtorch runs.

use std::path::Path;

use super::convert::{from_ivalue, to_ivalue};
use super::{catch_panic, tch_error};
use crate::error::{ErrorContext, Result};
use crate::item::Item;

/// An archive that libtorch runs.
#[derive(Debug)]
pub struct LibtorchProgram {
    module: tch::CModule,
}

impl LibtorchProgram {
    /// Opens a TorchScript archive.
    ///
    /// # Errors
    /// libtorch cannot read it.
    pub fn open(path: &Path) -> Result<LibtorchProgram> {
        let module = tch::CModule::load(path).map_err(|error| tch_error(&error));
        let module = module.at(|| path.display().to_string())?;
        Ok(LibtorchProgram { module })
    }

    /// Opens the bytes of a TorchScript archive.
    ///
    /// # Errors
    /// libtorch cannot read them.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<LibtorchProgram> {
        let module = tch::CModule::load_data(&mut bytes).map_err(|error| tch_error(&error))?;
        Ok(LibtorchProgram { module })
    }

    /// Calls a method. Attributes that the method changes stay changed.
    ///
    /// # Errors
    /// libtorch refuses the arguments, fails, or returns something other than tensors, numbers, strings and structures of
    /// these.
    pub fn call(&self, method: &str, arguments: &[Item]) -> Result<Item> {
        let arguments = arguments.iter().map(to_ivalue);
        let arguments: Vec<tch::IValue> = arguments.collect::<Result<_>>()?;
        let result = catch_panic(|| self.module.method_is(method, &arguments))?;
        from_ivalue(&result.map_err(|error| tch_error(&error))?)
    }
}
