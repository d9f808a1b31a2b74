//! The states of a session, as an application sees them.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{Session, lock};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor_file;

impl Session {
    /// Current value of a state. Tensors on a device are read back.
    ///
    /// # Errors
    /// There is no such state: the message lists the names. The device that held the state is lost.
    pub fn state(&self, name: &str) -> Result<Item> {
        let states = lock(&self.states);
        let value = states.get(name)?;
        states.check_alive()?;
        drop(states);
        value.try_map(&Tensor::load)
    }

    /// Replaces the value of a state, for the next call and those after it.
    ///
    /// # Errors
    /// There is no such state, or it holds a tensor of another element type.
    pub fn set_state(&self, name: &str, value: impl Into<Item>) -> Result<()> {
        let value = value.into();
        let mut states = lock(&self.states);
        if let (Item::Tensor(current), Item::Tensor(given)) = (states.get(name)?, &value)
            && current.dtype() != given.dtype()
        {
            let (given, current) = (given.tensor_type(), current.tensor_type());
            let message = format!("{given} is no value for the state {name}: {current}");
            return Err(Error::input(message));
        }
        states.set(vec![(name.to_string(), value)]);
        Ok(())
    }

    /// Names of the states, in order.
    pub fn state_names(&self) -> Vec<String> {
        let states = lock(&self.states);
        states.values().map(|(name, _)| name.clone()).collect()
    }

    /// Resets every state to its initial value.
    pub fn reset(&self) {
        lock(&self.states).reset();
    }

    /// A session with states of its own, which begin with the values of this one's. Both share compiled graphs and weights,
    /// and each copies a state when it changes it.
    pub fn fork(&self) -> Session {
        Session {
            states: Arc::new(Mutex::new(lock(&self.states).clone())),
            ..self.clone()
        }
    }

    /// Writes the states to a file: `.safetensors`, `.npz` or, for one tensor, `.npy`. A tensor has the name of its state,
    /// followed by the path within tuples, lists and dictionaries. Python numbers are tensors without axes.
    ///
    /// # Errors
    /// The file cannot be written, or the device that held the states is lost.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let values = lock(&self.states).clone();
        values.check_alive()?;
        let mut tensors = Vec::new();
        for (name, value) in values.values() {
            for (path, leaf) in value.leaves() {
                let tensor = match leaf {
                    Item::Tensor(tensor) => tensor.load()?,
                    Item::Number(number) => number_tensor(*number)?,
                    _ => continue,
                };
                tensors.push((format!("{name}{path}"), tensor));
            }
        }
        tensor_file::write(path.as_ref(), &tensors)
    }
}

/// A number as a tensor without axes.
fn number_tensor(number: Scalar) -> Result<Tensor> {
    match number {
        Scalar::Bool(value) => Tensor::from_bools([], [value]),
        Scalar::Int(value) => Tensor::from_vec([], vec![value]),
        Scalar::Float(value) => Tensor::from_vec([], vec![value]),
    }
}
