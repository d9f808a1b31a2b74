//! Parameters and buffers of modules by path: reading and loading them.

use crate::error::{Error, Result};
use crate::ir::Weights;
use crate::tensor::Tensor;

use super::module::{Module, Visited, walk};
use super::tensor::TracedTensor;

/// Returns the parameters and buffers of a module with their paths, in the order of the fields. Shared ones appear under
/// each path.
pub fn state<M: Module + ?Sized>(module: &M) -> Vec<(String, TracedTensor)> {
    collect(module, |visited| match visited {
        Visited::Parameter(tensor) | Visited::Buffer(tensor) => Some(tensor.clone()),
        _ => None,
    })
}

/// Returns the parameters of a module with their paths, in the order of the fields.
pub fn named_parameters<M: Module + ?Sized>(module: &M) -> Vec<(String, TracedTensor)> {
    collect(module, |visited| match visited {
        Visited::Parameter(tensor) => Some(tensor.clone()),
        _ => None,
    })
}

/// Returns the buffers of a module with their paths, in the order of the fields: fields that are
/// [`Buffer`](super::Buffer)s, such as running statistics and weights of losses.
pub fn named_buffers<M: Module + ?Sized>(module: &M) -> Vec<(String, TracedTensor)> {
    collect(module, |visited| match visited {
        Visited::Buffer(tensor) => Some(tensor.clone()),
        _ => None,
    })
}

/// Collects the tensors that `select` takes, with their paths.
fn collect<M: Module + ?Sized>(
    module: &M,
    select: impl Fn(Visited<'_>) -> Option<TracedTensor>,
) -> Vec<(String, TracedTensor)> {
    let mut tensors = Vec::new();
    walk(module, "", &mut |path, visited| {
        tensors.extend(select(visited).map(|tensor| (path.to_string(), tensor)));
    });
    tensors
}

/// Returns the values of the parameters and buffers by path, as PyTorch's `state_dict` does. A shared one appears under
/// each path.
///
/// # Errors
/// A parameter could not be made.
pub fn state_dict<M: Module + ?Sized>(module: &M) -> Result<Weights> {
    let entries = state(module).into_iter();
    entries
        .map(|(path, tensor)| Ok((path, tensor.value()?)))
        .collect()
}

/// Loads values into the parameters and buffers of equal paths, as PyTorch's `load_state_dict` does. The module keeps its
/// element types. A shared parameter needs a value under one of its paths only.
///
/// # Errors
/// All mismatches at once: paths without a value, values without a path, other shapes, different values for the paths of a
/// shared parameter. Nothing is loaded then.
pub fn load_state_dict<M: Module + ?Sized>(module: &M, values: &Weights) -> Result<()> {
    load(module, values, |unmatched| {
        let missing = unmatched.missing.iter();
        let missing = missing.map(|path| Error::input(format!("there is no value for {path}")));
        let unexpected = unmatched.unexpected.iter();
        let unexpected = unexpected.map(|path| Error::input(format!("the module has no {path}")));
        missing.chain(unexpected).collect()
    })
    .map(drop)
}

/// [`load_state_dict`] for the paths that both the module and the values have: `strict=False` of PyTorch.
///
/// # Errors
/// A value's shape differs from that of its parameter, or values for the paths of a shared parameter differ. Nothing is
/// loaded then.
pub fn load_matching<M: Module + ?Sized>(module: &M, values: &Weights) -> Result<Unmatched> {
    load(module, values, |_| Vec::new())
}

/// Paths that [`load_matching`] did not load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Paths of the module without a value, in the order of the fields. A shared parameter with a value under another path
    /// is not missing.
    pub missing: Vec<String>,
    /// Paths of values without a parameter or buffer in the module, in alphabetical order.
    pub unexpected: Vec<String>,
}

/// Loads the values of equal paths, unless a shape differs or `unmatched_errors` returns errors.
fn load<M: Module + ?Sized>(
    module: &M,
    values: &Weights,
    unmatched_errors: impl Fn(&Unmatched) -> Vec<Error>,
) -> Result<Unmatched> {
    let state = state(module);
    let is_given = |tensor: &TracedTensor| {
        let mut same = state.iter().filter(|(_, other)| other.is(tensor));
        same.any(|(path, _)| values.contains_key(path))
    };
    let missing = state.iter().filter(|(_, tensor)| !is_given(tensor));
    let missing = missing.map(|(path, _)| path);
    let has_path = |name: &String| state.iter().any(|(path, _)| path == name);
    let unmatched = Unmatched {
        missing: missing.cloned().collect(),
        unexpected: values
            .keys()
            .filter(|name| !has_path(name))
            .cloned()
            .collect(),
    };
    let mismatches = state
        .iter()
        .filter_map(|(path, tensor)| shape_mismatch(path, tensor, values.get(path)?));
    let errors = mismatches
        .chain(contradictions(&state, values))
        .chain(unmatched_errors(&unmatched));
    if let Some(error) = Error::all(errors.collect()) {
        return Err(error);
    }
    for (path, tensor) in &state {
        if let Some(value) = values.get(path) {
            tensor.set_value(value)?;
        }
    }
    Ok(unmatched)
}

/// The errors for paths of one shared parameter whose values differ.
fn contradictions(state: &[(String, TracedTensor)], values: &Weights) -> Vec<Error> {
    let pairs = state
        .iter()
        .enumerate()
        .filter_map(|(index, (path, tensor))| {
            let (first, _) = state
                .get(..index)?
                .iter()
                .find(|(first, known)| known.is(tensor) && values.contains_key(first))?;
            Some((first, path)).filter(|(first, path)| {
                values
                    .get(*path)
                    .is_some_and(|value| values.get(*first) != Some(value))
            })
        });
    let message =
        |(first, path)| format!("{first} and {path} are one parameter, but their values differ");
    pairs.map(|pair| Error::input(message(pair))).collect()
}

/// The error if a parameter and its new value have different shapes.
fn shape_mismatch(path: &str, tensor: &TracedTensor, value: &Tensor) -> Option<Error> {
    let wanted = tensor.value().ok()?;
    let message = format!(
        "{path} has shape {:?}, its value has shape {:?}",
        wanted.shape(),
        value.shape()
    );
    (wanted.shape() != value.shape()).then(|| Error::input(message))
}
