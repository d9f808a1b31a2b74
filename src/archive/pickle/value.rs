//! Values of a pickle: a tree that preserves sharing.

use std::sync::Arc;

use crate::archive::TensorRecord;

/// A value of a pickle. Clones are cheap. Each container, object or tensor that the pickle shares is one `Arc`, so
/// `Arc::ptr_eq` tells whether two values are the same object.
#[derive(Clone, Debug)]
pub enum Pickled {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(Arc<str>),
    /// `torch.device`, as text: `cpu`, `cuda:0`.
    Device(Arc<str>),
    /// A tuple, also `torch.Size`.
    Tuple(Arc<[Pickled]>),
    /// A list.
    List(Arc<PickledList>),
    /// A dict or ordered dict.
    Dict(Arc<PickledDict>),
    /// A tensor, by reference to its storage.
    Tensor(Arc<TensorRecord>),
    /// An instance of a class of the archive.
    Object(Arc<PickledObject>),
    /// A description of a value that graphs cannot represent: `a sparse tensor`. Only programs that read the value are
    /// refused.
    Unsupported(Arc<str>),
}

/// A list with its static type.
#[derive(Debug)]
pub struct PickledList {
    /// The elements.
    pub items: Vec<Pickled>,
    /// The static type as the archive writes it, `List[str]`, if it does.
    pub type_tag: Option<Arc<str>>,
}

/// A dict with its static type.
#[derive(Debug)]
pub struct PickledDict {
    /// Keys and values in order of insertion. A key that was set twice occurs twice.
    pub entries: Vec<(Pickled, Pickled)>,
    /// The static type as the archive writes it, `Dict[str, int]`, if it does.
    pub type_tag: Option<Arc<str>>,
}

/// An instance of a class of the archive: a module, a script object, or a member of an enumeration.
#[derive(Debug)]
pub struct PickledObject {
    /// Qualified name, `__torch__.torch.nn.modules.linear.Linear`.
    pub class: Arc<str>,
    /// Attributes in order. A member of an enumeration has one, `value`.
    pub attributes: Vec<(Arc<str>, Pickled)>,
}

impl PickledObject {
    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&Pickled> {
        let mut attributes = self.attributes.iter();
        let entry = attributes.find(|(attribute, _)| &**attribute == name);
        entry.map(|(_, value)| value)
    }
}

impl PickledDict {
    /// The value of a string key.
    pub fn get(&self, key: &str) -> Option<&Pickled> {
        let mut entries = self.entries.iter().rev();
        let entry = entries.find(|(entry_key, _)| entry_key.as_str() == Some(key));
        entry.map(|(_, value)| value)
    }
}

impl Pickled {
    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Pickled::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Pickled::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&Arc<TensorRecord>> {
        match self {
            Pickled::Tensor(record) => Some(record),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Arc<PickledObject>> {
        match self {
            Pickled::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The dict, if it is one.
    pub fn as_dict(&self) -> Option<&Arc<PickledDict>> {
        match self {
            Pickled::Dict(dict) => Some(dict),
            _ => None,
        }
    }

    /// The elements of a tuple or list.
    pub fn as_items(&self) -> Option<&[Pickled]> {
        match self {
            Pickled::Tuple(items) => Some(items),
            Pickled::List(list) => Some(&list.items),
            _ => None,
        }
    }

    /// A description for messages: `a tensor`.
    pub fn describe(&self) -> &'static str {
        match self {
            Pickled::None => "None",
            Pickled::Bool(_) => "a bool",
            Pickled::Int(_) => "an int",
            Pickled::Float(_) => "a float",
            Pickled::Str(_) => "a string",
            Pickled::Device(_) => "a device",
            Pickled::Tuple(_) => "a tuple",
            Pickled::List(_) => "a list",
            Pickled::Dict(_) => "a dict",
            Pickled::Tensor(_) => "a tensor",
            Pickled::Object(_) => "an object",
            Pickled::Unsupported(_) => "an unsupported value",
        }
    }
}
