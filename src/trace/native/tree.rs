//! Structures of arguments and results: tensors in tuples, lists, options, maps and structs. A [`TreeSpec`] describes
//! such a structure, as in PyTorch's pytrees; its leaves are tensors.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::ir::{TreeConstant, TreeSpec};

use super::size::Size;
use super::tensor::TracedTensor;

/// A structure of tensors that can be flattened and rebuilt: tensors, tuples, arrays, `Vec`, `Option`, `BTreeMap`, and
/// structs with `#[derive(Tree)]`.
///
/// Messages contain paths such as `args[0].d["x"]`.
///
/// ```
/// use onionskin::trace::{TracedTensor, Tree, trace_fn};
///
/// #[derive(Tree)]
/// struct Boxes {
///     corners: TracedTensor,
///     scores: Option<TracedTensor>,
/// }
///
/// # fn main() -> onionskin::Result<()> {
/// let corners = TracedTensor::from_vec([1, 4], vec![0f32, 0.0, 2.0, 1.0]);
/// let boxes = Boxes { corners, scores: None };
/// let traced = trace_fn(boxes, |boxes: Boxes| &boxes.corners * 0.5)?;
/// assert_eq!(traced.graph("forward")?.input_trees[0].name, "corners");
/// # Ok(())
/// # }
/// ```
///
/// Plain numbers can't be inputs, since operations on them are not recorded:
///
/// ```compile_fail,E0277
/// use onionskin::trace::{TracedTensor, trace_fn};
///
/// let x = TracedTensor::scalar(1f32);
/// let traced = trace_fn((x, 3), |(x, n): (TracedTensor, i64)| x * n);
/// ```
///
/// Tensors can't be compared with numbers by Rust's operators, which would fix the outcome:
///
/// ```compile_fail,E0369
/// use onionskin::trace::{TracedTensor, trace_fn};
///
/// let traced = trace_fn(TracedTensor::scalar(1f32), |x| if x > 0.0 { x } else { -x });
/// ```
///
/// An enum is not a structure of tensors, since the trace would fix its variant:
///
/// ```compile_fail
/// #[derive(onionskin::trace::Tree)]
/// enum Shape {
///     Circle(onionskin::trace::TracedTensor),
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a structure of tensors",
    note = "inputs and outputs of a trace are tensors, and tuples, arrays, lists, options, maps and structs of them",
    note = "a number becomes an input by `TracedTensor::scalar`, a struct by `#[derive(Tree)]`"
)]
pub trait Tree: Sized {
    /// Returns the structure of this value. Appends its tensors to `leaves`; the structure refers to them by index.
    /// `path` is the place of this value within the arguments or results, for messages.
    ///
    /// # Errors
    /// The structure has no order, or an operation that computed one of its tensors failed.
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec>;

    /// Rebuilds a value from a structure and its tensors. `path` is the place of the value, for messages.
    ///
    /// # Errors
    /// The structure does not fit the type.
    fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<Self>;
}

/// The error for a structure at `path` that is not the `wanted` one.
pub fn mismatch(spec: &TreeSpec, wanted: &str, path: &str) -> Error {
    Error::input(format!("{path} is {}, not {wanted}", describe(spec)))
}

/// Describes a structure in a few words.
pub fn describe(spec: &TreeSpec) -> String {
    match spec {
        TreeSpec::Tensor(_) => "a tensor".to_string(),
        TreeSpec::Number(_) => "a number".to_string(),
        TreeSpec::Size(_) => "a size".to_string(),
        TreeSpec::Constant(constant) => constant.to_string(),
        TreeSpec::Tuple(items) => format!("a tuple of {}", items.len()),
        TreeSpec::List(items) => format!("a list of {}", items.len()),
        TreeSpec::Dict(items) => {
            let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
            format!("a map of {keys:?}")
        }
        TreeSpec::NamedTuple(name, _) => name.clone(),
    }
}

impl Tree for TracedTensor {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        if let Some(error) = self.error() {
            return Err(error.at(path));
        }
        leaves.push(self.clone());
        Ok(TreeSpec::Tensor(leaves.len() - 1))
    }

    fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<TracedTensor> {
        match spec {
            TreeSpec::Tensor(index) | TreeSpec::Number(index) => {
                let found = leaves.get(*index).cloned();
                found.ok_or_else(|| Error::internal(format!("{path} has no tensor")))
            }
            other => Err(mismatch(other, "a tensor", path)),
        }
    }
}

impl Tree for Size {
    fn flatten(&self, _path: &str, _leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        Ok(TreeSpec::Size(self.expression()?))
    }

    fn rebuild(spec: &TreeSpec, _leaves: &[TracedTensor], path: &str) -> Result<Size> {
        match spec {
            TreeSpec::Size(size) => Size::of_shape(size),
            TreeSpec::Constant(TreeConstant::Number(number)) => Ok(Size::from(number.to_i64())),
            other => Err(mismatch(other, "a size", path)),
        }
    }
}

impl<T: Tree> Tree for Result<T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        match self {
            Ok(tree) => tree.flatten(path, leaves),
            Err(error) => Err(error.clone()),
        }
    }

    fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<Result<T>> {
        T::rebuild(spec, leaves, path).map(Ok)
    }
}

impl<T: Tree> Tree for Option<T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        match self {
            Some(tree) => tree.flatten(path, leaves),
            None => Ok(TreeSpec::Constant(TreeConstant::None)),
        }
    }

    fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<Option<T>> {
        match spec {
            TreeSpec::Constant(TreeConstant::None) => Ok(None),
            other => T::rebuild(other, leaves, path).map(Some),
        }
    }
}

/// Flattens the items of a list or tuple.
fn flatten_items<'a, T: Tree + 'a>(
    items: impl Iterator<Item = &'a T>,
    path: &str,
    leaves: &mut Vec<TracedTensor>,
) -> Result<Vec<TreeSpec>> {
    let numbered = items.enumerate();
    let items = numbered.map(|(index, item)| item.flatten(&format!("{path}[{index}]"), leaves));
    items.collect()
}

/// Rebuilds the items of a list or tuple.
fn rebuild_items<T: Tree>(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<Vec<T>> {
    match spec {
        TreeSpec::List(items) | TreeSpec::Tuple(items) => {
            let numbered = items.iter().enumerate();
            let item = |(index, item)| T::rebuild(item, leaves, &format!("{path}[{index}]"));
            numbered.map(item).collect()
        }
        other => Err(mismatch(other, "a list", path)),
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        Ok(TreeSpec::List(flatten_items(self.iter(), path, leaves)?))
    }

    fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<Vec<T>> {
        rebuild_items(spec, leaves, path)
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        Ok(TreeSpec::Tuple(flatten_items(self.iter(), path, leaves)?))
    }

    fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<[T; N]> {
        let items: Vec<T> = rebuild_items(spec, leaves, path)?;
        let items: Result<[T; N], Vec<T>> = items.try_into();
        items.map_err(|_| mismatch(spec, &format!("an array of {N}"), path))
    }
}

impl<T: Tree> Tree for BTreeMap<String, T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        let entry = |(key, item): (&String, &T)| {
            let item = item.flatten(&format!("{path}[{key:?}]"), leaves)?;
            Ok((key.clone(), item))
        };
        Ok(TreeSpec::Dict(
            self.iter().map(entry).collect::<Result<_>>()?,
        ))
    }

    fn rebuild(
        spec: &TreeSpec,
        leaves: &[TracedTensor],
        path: &str,
    ) -> Result<BTreeMap<String, T>> {
        let TreeSpec::Dict(items) = spec else {
            return Err(mismatch(spec, "a map", path));
        };
        let entry = |(key, item): &(String, TreeSpec)| {
            let item = T::rebuild(item, leaves, &format!("{path}[{key:?}]"))?;
            Ok((key.clone(), item))
        };
        items.iter().map(entry).collect()
    }
}

/// Always an error: a graph's inputs and outputs are ordered, the keys of a `HashMap` are not.
impl<T: Tree> Tree for HashMap<String, T> {
    fn flatten(&self, path: &str, _leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        Err(unordered_map(path))
    }

    fn rebuild(
        _spec: &TreeSpec,
        _leaves: &[TracedTensor],
        path: &str,
    ) -> Result<HashMap<String, T>> {
        Err(unordered_map(path))
    }
}

/// The error for a `HashMap`.
fn unordered_map(path: &str) -> Error {
    let error = Error::input(format!("{path} is a HashMap, whose keys have no order"));
    error.help("use a BTreeMap, or a struct with #[derive(Tree)]")
}

/// Implements [`Tree`] for tuples.
macro_rules! tuples {
    ($($count:literal: $($name:ident $index:tt),*;)*) => {$(
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
                let items = vec![$(self.$index.flatten(&format!("{path}[{}]", $index), leaves)?),*];
                let _ = (path, leaves);
                Ok(TreeSpec::Tuple(items))
            }

            fn rebuild(spec: &TreeSpec, leaves: &[TracedTensor], path: &str) -> Result<($($name,)*)> {
                let items = match spec {
                    TreeSpec::Tuple(items) | TreeSpec::List(items) if items.len() == $count => items,
                    other => return Err(mismatch(other, concat!("a tuple of ", $count), path)),
                };
                let _ = (items, leaves);
                Ok(($($name::rebuild(&items[$index], leaves, &format!("{path}[{}]", $index))?,)*))
            }
        }
    )*};
}

tuples! {
    0: ;
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}
