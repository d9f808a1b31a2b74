//! What the code of `#[derive(Tree)]` calls.

use crate::error::{Error, Result};
use crate::ir::Tree as Shape;

use super::tree::mismatch;

/// The fields of a struct: those of a named tuple or map by their names, those of a tuple by their places.
pub fn named_items<'s, const N: usize>(
    shape: &'s Shape,
    name: &str,
    fields: [&str; N],
    path: &str,
) -> Result<[&'s Shape; N]> {
    let (Shape::NamedTuple(_, entries) | Shape::Dict(entries)) = shape else {
        return items(shape, name, path);
    };
    let find = |field: &&str| {
        let found = entries.iter().find(|(key, _)| key == field);
        found.map(|(_, item)| item).ok_or_else(|| {
            let known: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
            Error::input(format!("missing field {field:?} in {path}, got {known:?}"))
        })
    };
    let found: Vec<&Shape> = fields.iter().map(find).collect::<Result<_>>()?;
    let found: Result<[&Shape; N], _> = found.try_into();
    found.map_err(|_| mismatch(shape, name, path))
}

/// The fields of a tuple struct.
pub fn items<'s, const N: usize>(
    shape: &'s Shape,
    name: &str,
    path: &str,
) -> Result<[&'s Shape; N]> {
    let (Shape::Tuple(items) | Shape::List(items)) = shape else {
        return Err(mismatch(shape, name, path));
    };
    let items: Vec<&Shape> = items.iter().collect();
    let items: Result<[&Shape; N], _> = items.try_into();
    items.map_err(|_| mismatch(shape, &format!("{name} of {N}"), path))
}
