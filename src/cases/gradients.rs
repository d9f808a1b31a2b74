//! PyTorch's gradients of recorded cases. `examples/record_gradients.py` writes them, and `examples/record.py --gradients`
//! writes `gradients.safetensors` beside a case.
//!
//! One safetensors file for each operator, program and model: `ops/add.safetensors`. Names of its tensors begin with the
//! number of the call of an operator, or of the set of a program or model: `3/in0`.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Call, Case, CaseKind, CaseLocation, CaseRef};
use crate::compare::Tolerance;
use crate::error::{Error, ErrorContext, Result};
use crate::files;
use crate::tensor::Tensor;
use crate::tensor_file::safetensors;

/// Gradients of the sum of products of all float outputs of a call with fixed numbers.
#[derive(Debug, Default)]
pub struct CallGradients {
    /// These numbers: a tensor for each float output.
    pub grad_outputs: Vec<Tensor>,
    /// The gradients.
    pub gradients: Vec<RecordedGradient>,
}

/// The gradient of one argument or parameter.
#[derive(Debug)]
pub struct RecordedGradient {
    /// `in0`, the first tensor among the arguments, or `param/fc.weight`.
    pub name: String,
    /// PyTorch's gradient.
    pub gradient: Tensor,
    /// Tolerance of the gradient.
    pub tolerance: Tolerance,
}

impl RecordedGradient {
    /// The name of the parameter, if it is the gradient of one.
    pub fn parameter(&self) -> Option<&str> {
        self.name.strip_prefix("param/")
    }

    /// The index among the tensors of the arguments, if it is the gradient of one.
    pub fn argument(&self) -> Option<usize> {
        self.name.strip_prefix("in")?.parse().ok()
    }

    /// The name of the parameter or argument.
    pub fn value_name(&self) -> &str {
        self.parameter().unwrap_or(&self.name)
    }
}

/// A call of a case, and the gradients that PyTorch computed for it.
#[derive(Debug)]
pub struct GradientCall {
    /// A short description of the set, or empty.
    pub label: String,
    /// The call.
    pub call: Call,
    /// Tolerance of the outputs.
    pub tolerance: Tolerance,
    /// The gradients.
    pub gradients: CallGradients,
}

impl Case {
    /// The calls that have gradients, by index of the set. Of several calls on one instance none has some.
    ///
    /// # Errors
    /// There are gradients of a set that the case does not have, or of one with several calls.
    pub fn gradient_calls(
        self,
        mut gradients: BTreeMap<usize, CallGradients>,
    ) -> Result<Vec<GradientCall>> {
        let mut calls = Vec::new();
        for (index, set) in self.sets.into_iter().enumerate() {
            let Some(gradients) = gradients.remove(&index) else {
                continue;
            };
            let several = |_| Error::format(format!("set {index} has gradients and several calls"));
            let [call] = <[Call; 1]>::try_from(set.calls).map_err(several)?;
            calls.push(GradientCall {
                label: set.label,
                call,
                tolerance: set.tolerance,
                gradients,
            });
        }
        match gradients.first_key_value() {
            Some((index, _)) => Err(Error::format(format!("there is no set {index}"))),
            None => Ok(calls),
        }
    }
}

impl CaseRef {
    /// Reads the gradients of a case below a folder, or beside the case, by index of the set. There are none of calls that
    /// PyTorch cannot differentiate.
    pub fn gradients(&self, folder: &Path) -> Result<BTreeMap<usize, CallGradients>> {
        let (file, call) = self.gradient_file();
        let below = folder.join(file);
        let path = match (&self.location, below.exists()) {
            // An export may have other sets than the archive beside it.
            (CaseLocation::Folder(own), false) if self.kind == CaseKind::Model => {
                own.join("gradients.safetensors")
            }
            _ => below,
        };
        let bytes = match files::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(BTreeMap::new());
            }
            bytes => bytes.map_err(|error| Error::io(&path, error))?,
        };
        let tensors = safetensors::parse(&bytes).at(|| path.display().to_string())?;
        let mut sets = BTreeMap::<&str, BTreeMap<&str, &Tensor>>::new();
        for (name, tensor) in &tensors {
            if let Some((set, name)) = name.split_once('/') {
                sets.entry(set).or_default().insert(name, tensor);
            }
        }
        if let Some(call) = call {
            sets.retain(|set, _| *set == call);
        }
        let number = |set: &str| set.parse().ok().filter(|_| call.is_none()).unwrap_or(0);
        let gradients = sets
            .into_iter()
            .map(|(set, tensors)| Ok((number(set), CallGradients::of(&tensors)?)));
        gradients
            .collect::<Result<_>>()
            .at(|| path.display().to_string())
    }

    /// The file, and the number of the call in it if the case is a call of an operator.
    fn gradient_file(&self) -> (String, Option<&str>) {
        match (self.kind, self.name.rsplit_once('/')) {
            (CaseKind::Operator, Some((operator, call))) => {
                (format!("{operator}.safetensors"), Some(call))
            }
            _ => (format!("{}.safetensors", self.name), None),
        }
    }
}

impl CallGradients {
    fn of(tensors: &BTreeMap<&str, &Tensor>) -> Result<CallGradients> {
        let mut call = CallGradients::default();
        for index in 0.. {
            match tensors.get(format!("grad_output{index}").as_str()) {
                Some(tensor) => call.grad_outputs.push((*tensor).clone()),
                None => break,
            }
        }
        for (name, tensor) in tensors {
            if name.starts_with("grad_output") || name.ends_with("/tolerance") {
                continue;
            }
            let tolerance = tensors.get(format!("{name}/tolerance").as_str());
            let tolerance = tolerance.map(|tensor| tensor.to_f64()).unwrap_or_default();
            let [rtol, atol] = tolerance[..] else {
                return Err(Error::format(format!("{name} has no tolerance")));
            };
            call.gradients.push(RecordedGradient {
                name: name.to_string(),
                gradient: (*tensor).clone(),
                tolerance: Tolerance { rtol, atol },
            });
        }
        Ok(call)
    }
}
