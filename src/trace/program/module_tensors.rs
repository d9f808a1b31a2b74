//! The modules of a program with their tensors.

use crate::shape::TensorType;

/// A module with the types of its own tensors, and its submodules. A tensor that several modules share is in the first.
#[derive(Clone, Debug, Default)]
pub struct ModuleTensors {
    /// Name in the enclosing module; empty for the root.
    pub name: String,
    /// Class without its package; empty if the program does not name it.
    pub class: String,
    /// Types of the parameters, without those of the submodules.
    pub parameters: Vec<TensorType>,
    /// Types of the buffers, without those of the submodules.
    pub buffers: Vec<TensorType>,
    /// The submodules in order.
    pub modules: Vec<ModuleTensors>,
}

impl ModuleTensors {
    /// Returns the submodule of a name, and adds it if it is new.
    pub(super) fn submodule(&mut self, name: &str) -> &mut ModuleTensors {
        let place = self.modules.iter().position(|module| module.name == name);
        let place = place.unwrap_or_else(|| {
            self.modules.push(ModuleTensors {
                name: name.to_string(),
                ..ModuleTensors::default()
            });
            self.modules.len() - 1
        });
        &mut self.modules[place]
    }
}
