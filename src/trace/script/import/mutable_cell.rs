//! Cells: mutable parts of Python objects, which are the elements of a list or dict, or an attribute of an object. A
//! change within a region is undone when the region's body is closed. The results of the region then replace the
//! contents.

use std::rc::Rc;

use crate::error::{Error, Result};

use super::Importer;
use super::datum::{Datum, Instance, ScriptDict, ScriptList};

/// A mutable location, shared by all references to its object.
#[derive(Clone, Debug)]
pub enum MutableCell {
    /// The elements of a list.
    List(Rc<ScriptList>),
    /// The entries of a dict.
    Dict(Rc<ScriptDict>),
    /// An attribute.
    Attribute(Rc<Instance>, String),
}

/// The variable or cell that a result of a region is assigned to.
#[derive(Clone, Debug)]
pub enum ResultTarget {
    /// A variable.
    Variable(String),
    /// A cell.
    Cell(MutableCell),
}

impl MutableCell {
    /// True if both refer to one location.
    pub fn is_same(&self, other: &MutableCell) -> bool {
        match (self, other) {
            (MutableCell::List(a), MutableCell::List(b)) => Rc::ptr_eq(a, b),
            (MutableCell::Dict(a), MutableCell::Dict(b)) => Rc::ptr_eq(a, b),
            (MutableCell::Attribute(a, x), MutableCell::Attribute(b, y)) => {
                Rc::ptr_eq(a, b) && x == y
            }
            _ => false,
        }
    }

    /// The contents as an immutable value: a tuple for a list, a tuple of pairs for a dict.
    pub fn content(&self) -> Datum {
        match self {
            MutableCell::List(list) => Datum::tuple(list.items.borrow().clone()),
            MutableCell::Dict(dict) => {
                let entries = dict.entries.borrow();
                let pairs = entries.iter().cloned();
                Datum::tuple(pairs.map(|(a, b)| Datum::tuple(vec![a, b])).collect())
            }
            MutableCell::Attribute(instance, name) => {
                let value = instance.attributes.borrow().get(name).cloned();
                value.unwrap_or(Datum::Uninitialized)
            }
        }
    }

    /// Replaces the contents by a value of the form that [`MutableCell::content`] returns.
    pub fn set(&self, content: Datum) {
        let items = || content.items().unwrap_or_default();
        match self {
            MutableCell::List(list) => *list.items.borrow_mut() = items(),
            MutableCell::Dict(dict) => {
                let pairs = items().into_iter().filter_map(|pair| pair.items());
                let entries = pairs.filter_map(|pair| <[Datum; 2]>::try_from(pair).ok());
                *dict.entries.borrow_mut() = entries.map(|[key, value]| (key, value)).collect();
            }
            MutableCell::Attribute(instance, name) => {
                let mut attributes = instance.attributes.borrow_mut();
                attributes.insert(name.clone(), content);
            }
        }
    }

    /// Number of open regions when its object was made.
    fn depth(&self) -> usize {
        match self {
            MutableCell::List(list) => list.depth,
            MutableCell::Dict(dict) => dict.depth,
            MutableCell::Attribute(instance, _) => instance.depth,
        }
    }

    /// True if it belongs to the archive.
    fn is_archived(&self) -> bool {
        match self {
            MutableCell::List(list) => list.is_archived,
            MutableCell::Dict(dict) => dict.is_archived,
            MutableCell::Attribute(..) => false,
        }
    }

    /// A description for messages.
    pub fn describe(&self) -> String {
        match self {
            MutableCell::List(list) => format!("a list of {}", list.items.borrow().len()),
            MutableCell::Dict(dict) => format!("a dict of {}", dict.entries.borrow().len()),
            MutableCell::Attribute(_, name) => format!("the attribute {name}"),
        }
    }
}

impl Importer<'_> {
    /// Records a cell's contents in the innermost region, if the cell is older than the region. Must be called before
    /// the cell changes. Fails for lists and dicts of the archive.
    pub(super) fn record_change(&mut self, cell: MutableCell) -> Result<()> {
        if cell.is_archived() {
            let message = format!(
                "the program modifies in place {} that belongs to the module",
                cell.describe()
            );
            let help = "the change would outlive the call: assign a new list or dict to the attribute instead";
            return Err(Error::unsupported(message).help(help));
        }
        self.changed_containers.add(&cell);
        let is_outer = cell.depth() < self.scopes.depth();
        let changed = &mut self.scope_data().changed;
        if is_outer && !changed.iter().any(|(known, _)| known.is_same(&cell)) {
            let content = cell.content();
            changed.push((cell, content));
        }
        Ok(())
    }
}
