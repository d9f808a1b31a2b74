//! Values of the program during import.

mod cycles;
mod release;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::archive::PickledObject;
use crate::trace::script::ast::FunctionDef;

use super::number::ScriptNumber;
use super::tensor::TensorRef;
pub use cycles::ChangedContainers;
pub use release::Elements;

/// A value of the program.
#[derive(Clone, Debug)]
pub enum Datum {
    /// `None`
    None,
    /// A number that is known during import.
    Number(ScriptNumber),
    /// A number that is known only when the graph runs, as a scalar tensor.
    Dynamic(NumberKind, TensorRef),
    /// A string.
    Str(Rc<str>),
    /// A device by its name. The graph does not depend on devices.
    Device(Rc<str>),
    /// A tensor.
    Tensor(TensorRef),
    /// A tuple.
    Tuple(Elements<Datum>),
    /// A named tuple: class and fields.
    NamedTuple(Rc<str>, Elements<(String, Datum)>),
    /// A list.
    List(Rc<ScriptList>),
    /// A dict.
    Dict(Rc<ScriptDict>),
    /// A module, an instance of a script class, or a member of an enumeration.
    Object(Rc<Instance>),
    /// A function by its qualified name.
    Function(Rc<str>),
    /// A function that is defined within a function, with the variables of the enclosing function.
    Closure(Rc<Closure>),
    /// `uninitialized(T)`, or the merged value of two branches whose values cannot be merged. It is never read.
    Uninitialized,
    /// The result of something that is not supported. The error is listed already.
    Unknown,
}

/// Python type of a number that is known only when the graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// A `bool`.
    Bool,
    /// An `int`.
    Int,
    /// A `float`.
    Float,
}

/// A mutable list, shared by all references to it.
#[derive(Debug)]
pub struct ScriptList {
    /// The elements.
    pub items: RefCell<Vec<Datum>>,
    /// Number of open regions when it was made.
    pub depth: usize,
    /// True if it belongs to the archive. A change of it would outlive the call.
    pub is_archived: bool,
}

/// A mutable dict, shared by all references to it.
#[derive(Debug)]
pub struct ScriptDict {
    /// Keys and values in order of insertion.
    pub entries: RefCell<Vec<(Datum, Datum)>>,
    /// Number of open regions when it was made.
    pub depth: usize,
    /// True if it belongs to the archive. A change of it would outlive the call.
    pub is_archived: bool,
}

/// An object with attributes.
#[derive(Debug)]
pub struct Instance {
    /// Qualified name of the class.
    pub class: Rc<str>,
    /// Path below the root module, `layer1.0.conv1`.
    pub path: String,
    /// The pickled object, for modules and other objects of the archive.
    pub pickled: Option<Arc<PickledObject>>,
    /// Attributes that have been read or set.
    pub attributes: RefCell<BTreeMap<String, Datum>>,
    /// Number of open regions when it was made.
    pub depth: usize,
}

/// A function that is defined within another function.
pub struct Closure {
    /// The function; its body belongs to the archive.
    pub function: FunctionDef,
    /// Variables of the enclosing function when this one was defined.
    pub locals: BTreeMap<String, Datum>,
}

impl std::fmt::Debug for Closure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Closure({})", self.function.name)
    }
}

impl Datum {
    /// A Python `bool`.
    pub fn bool(value: bool) -> Datum {
        Datum::Number(ScriptNumber::Bool(value))
    }

    /// A Python `int`.
    pub fn int(value: impl Into<crate::dim::Dim>) -> Datum {
        Datum::Number(ScriptNumber::int(value))
    }

    /// A Python `str`.
    pub fn str(text: &str) -> Datum {
        Datum::Str(text.into())
    }

    /// A tuple.
    pub fn tuple(items: Vec<Datum>) -> Datum {
        Datum::Tuple(items.into())
    }

    /// The elements of a list, tuple or named tuple.
    pub fn items(&self) -> Option<Vec<Datum>> {
        match self {
            Datum::Tuple(items) => Some(items.to_vec()),
            Datum::List(list) => Some(list.items.borrow().clone()),
            Datum::NamedTuple(_, fields) => {
                Some(fields.iter().map(|(_, field)| field.clone()).collect())
            }
            _ => None,
        }
    }

    /// Number of elements of a list, tuple or named tuple.
    pub fn item_count(&self) -> Option<usize> {
        match self {
            Datum::Tuple(items) => Some(items.len()),
            Datum::List(list) => Some(list.items.borrow().len()),
            Datum::NamedTuple(_, fields) => Some(fields.len()),
            _ => None,
        }
    }

    /// The element of a list, tuple or named tuple at a position.
    pub fn item(&self, position: usize) -> Option<Datum> {
        match self {
            Datum::Tuple(items) => items.get(position).cloned(),
            Datum::List(list) => list.items.borrow().get(position).cloned(),
            Datum::NamedTuple(_, fields) => fields.get(position).map(|(_, field)| field.clone()),
            _ => None,
        }
    }

    /// True for the result of something unsupported, and for containers that hold such a result.
    pub fn is_unknown(&self) -> bool {
        match self {
            Datum::Unknown => true,
            Datum::Tuple(items) => items.iter().any(Datum::is_unknown),
            Datum::List(list) => list.items.borrow().iter().any(Datum::is_unknown),
            Datum::NamedTuple(_, fields) => fields.iter().any(|(_, field)| field.is_unknown()),
            Datum::Dict(dict) => {
                let entries = dict.entries.borrow();
                entries.iter().any(|(_, value)| value.is_unknown())
            }
            _ => false,
        }
    }

    /// A description of its type for messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Datum::None => "None",
            Datum::Number(ScriptNumber::Bool(_)) | Datum::Dynamic(NumberKind::Bool, _) => "bool",
            Datum::Number(ScriptNumber::Int(_)) | Datum::Dynamic(NumberKind::Int, _) => "int",
            Datum::Number(_) | Datum::Dynamic(NumberKind::Float, _) => "float",
            Datum::Str(_) => "str",
            Datum::Device(_) => "Device",
            Datum::Tensor(_) => "Tensor",
            Datum::Tuple(_) => "tuple",
            Datum::NamedTuple(..) => "named tuple",
            Datum::List(_) => "list",
            Datum::Dict(_) => "dict",
            Datum::Object(_) => "object",
            Datum::Function(_) | Datum::Closure(_) => "function",
            Datum::Uninitialized => "uninitialized value",
            Datum::Unknown => "unknown value",
        }
    }
}
