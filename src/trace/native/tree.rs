//! Structures of arguments and results: tensors in tuples, lists, options, maps and structs.

use std::collections::{BTreeMap, HashMap};

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{TreeConstant, TreeSpec as Shape};

use super::tensor::TracedTensor;

/// A structure of tensors that can be flattened and rebuilt: tensors, tuples, arrays, `Vec`, `Option`, `BTreeMap`, and
/// structs with `#[derive(Tree)]`.
///
/// Messages contain paths such as `args[0].d["x"]`.
///
/// ```
/// use onionskin::trace::{TracedTensor, Tree, trace};
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
/// let traced = trace(boxes, |boxes: Boxes| &boxes.corners * 0.5)?;
/// assert_eq!(traced.graph("forward")?.input_trees[0].name, "corners");
/// # Ok(())
/// # }
/// ```
///
/// Plain numbers can't be inputs, since operations on them are not recorded:
///
/// ```compile_fail,E0277
/// use onionskin::trace::{TracedTensor, trace};
///
/// let x = TracedTensor::scalar(1f32);
/// let traced = trace((x, 3), |(x, n): (TracedTensor, i64)| x * n);
/// ```
///
/// Tensors can't be compared with numbers by Rust's operators, which would fix the outcome:
///
/// ```compile_fail,E0369
/// use onionskin::trace::{TracedTensor, trace};
///
/// let traced = trace(TracedTensor::scalar(1f32), |x| if x > 0.0 { x } else { -x });
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
    /// Returns the structure. Appends its tensors to `leaves`; the structure refers to them by index.
    ///
    /// # Errors
    /// The structure has no order, or a step that made it failed.
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape>;

    /// Rebuilds a value from a structure and its tensors.
    ///
    /// # Errors
    /// The structure does not fit the type.
    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<Self>;
}

/// The error for a structure of another kind.
pub fn mismatch(shape: &Shape, wanted: &str, path: &str) -> Error {
    Error::input(format!("{path} is {}, not {wanted}", describe(shape)))
}

/// Describes a structure in a few words.
pub fn describe(shape: &Shape) -> String {
    match shape {
        Shape::Tensor(_) => "a tensor".to_string(),
        Shape::Number(_) => "a number".to_string(),
        Shape::Size(_) => "a size".to_string(),
        Shape::Constant(constant) => constant.to_string(),
        Shape::Tuple(items) => format!("a tuple of {}", items.len()),
        Shape::List(items) => format!("a list of {}", items.len()),
        Shape::Dict(items) => {
            let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
            format!("a map of {keys:?}")
        }
        Shape::NamedTuple(name, _) => name.clone(),
    }
}

impl Tree for TracedTensor {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        if let Some(error) = self.error() {
            return Err(error.at(path));
        }
        leaves.push(self.clone());
        Ok(Shape::Tensor(leaves.len() - 1))
    }

    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<TracedTensor> {
        match shape {
            Shape::Tensor(index) | Shape::Number(index) => {
                let found = leaves.get(*index).cloned();
                found.ok_or_else(|| Error::internal(format!("{path} has no tensor")))
            }
            other => Err(mismatch(other, "a tensor", path)),
        }
    }
}

impl Tree for Dim {
    fn flatten(&self, _path: &str, _leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        Ok(Shape::Size(self.clone()))
    }

    fn rebuild(shape: &Shape, _leaves: &[TracedTensor], path: &str) -> Result<Dim> {
        match shape {
            Shape::Size(size) => Ok(size.clone()),
            Shape::Constant(TreeConstant::Number(number)) => Ok(Dim::from(number.to_i64())),
            other => Err(mismatch(other, "a size", path)),
        }
    }
}

impl<T: Tree> Tree for Result<T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        match self {
            Ok(tree) => tree.flatten(path, leaves),
            Err(error) => Err(error.clone()),
        }
    }

    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<Result<T>> {
        T::rebuild(shape, leaves, path).map(Ok)
    }
}

impl<T: Tree> Tree for Option<T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        match self {
            Some(tree) => tree.flatten(path, leaves),
            None => Ok(Shape::Constant(TreeConstant::None)),
        }
    }

    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<Option<T>> {
        match shape {
            Shape::Constant(TreeConstant::None) => Ok(None),
            other => T::rebuild(other, leaves, path).map(Some),
        }
    }
}

fn flatten_items<'a, T: Tree + 'a>(
    items: impl Iterator<Item = &'a T>,
    path: &str,
    leaves: &mut Vec<TracedTensor>,
) -> Result<Vec<Shape>> {
    let numbered = items.enumerate();
    let items = numbered.map(|(index, item)| item.flatten(&format!("{path}[{index}]"), leaves));
    items.collect()
}

fn rebuild_items<T: Tree>(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<Vec<T>> {
    match shape {
        Shape::List(items) | Shape::Tuple(items) => {
            let numbered = items.iter().enumerate();
            let item = |(index, item)| T::rebuild(item, leaves, &format!("{path}[{index}]"));
            numbered.map(item).collect()
        }
        other => Err(mismatch(other, "a list", path)),
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        Ok(Shape::List(flatten_items(self.iter(), path, leaves)?))
    }

    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<Vec<T>> {
        rebuild_items(shape, leaves, path)
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        Ok(Shape::Tuple(flatten_items(self.iter(), path, leaves)?))
    }

    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<[T; N]> {
        let items: Vec<T> = rebuild_items(shape, leaves, path)?;
        let items: Result<[T; N], Vec<T>> = items.try_into();
        items.map_err(|_| mismatch(shape, &format!("an array of {N}"), path))
    }
}

impl<T: Tree> Tree for BTreeMap<String, T> {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        let entry = |(key, item): (&String, &T)| {
            let item = item.flatten(&format!("{path}[{key:?}]"), leaves)?;
            Ok((key.clone(), item))
        };
        Ok(Shape::Dict(self.iter().map(entry).collect::<Result<_>>()?))
    }

    fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<BTreeMap<String, T>> {
        let Shape::Dict(items) = shape else {
            return Err(mismatch(shape, "a map", path));
        };
        let entry = |(key, item): &(String, Shape)| {
            let item = T::rebuild(item, leaves, &format!("{path}[{key:?}]"))?;
            Ok((key.clone(), item))
        };
        items.iter().map(entry).collect()
    }
}

/// Always an error: a graph's inputs and outputs are ordered, the keys of a `HashMap` are not.
impl<T: Tree> Tree for HashMap<String, T> {
    fn flatten(&self, path: &str, _leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
        Err(unordered_map(path))
    }

    fn rebuild(_shape: &Shape, _leaves: &[TracedTensor], path: &str) -> Result<HashMap<String, T>> {
        Err(unordered_map(path))
    }
}

fn unordered_map(path: &str) -> Error {
    let error = Error::input(format!("{path} is a HashMap, whose keys have no order"));
    error.help("use a BTreeMap, or a struct with #[derive(Tree)]")
}

macro_rules! tuples {
    ($($count:literal: $($name:ident $index:tt),*;)*) => {$(
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<Shape> {
                let items = vec![$(self.$index.flatten(&format!("{path}[{}]", $index), leaves)?),*];
                let _ = (path, leaves);
                Ok(Shape::Tuple(items))
            }

            fn rebuild(shape: &Shape, leaves: &[TracedTensor], path: &str) -> Result<($($name,)*)> {
                let items = match shape {
                    Shape::Tuple(items) | Shape::List(items) if items.len() == $count => items,
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
