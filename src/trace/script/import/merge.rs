//! Merging of the values that a variable or cell has after two branches.
//!
//! Each tensor or number that may differ becomes a slot, which is a result of the region. The merged value is a
//! template: a value with the numbers of slots in place of these tensors and numbers. Loops use both for the values
//! that they carry.

use std::rc::Rc;

use crate::dtype::DType;

use super::Importer;
use super::datum::{Datum, NumberKind};
use super::number::ScriptNumber;
use super::operator::python_dtype;
use super::tensor::Storage;

/// A value with placeholders for results of a region.
#[derive(Clone, Debug)]
pub enum Template {
    /// A value that is the same on every path.
    Same(Datum),
    /// The result in the slot of this index.
    Result(usize),
    /// A tuple.
    Tuple(Vec<Template>),
    /// A list.
    List(Vec<Template>),
    /// A named tuple.
    NamedTuple(Rc<str>, Vec<(String, Template)>),
}

impl Template {
    /// True if no part of it is uninitialised.
    pub fn is_usable(&self) -> bool {
        match self {
            Template::Same(value) => !matches!(value, Datum::Uninitialized),
            Template::Result(_) => true,
            Template::Tuple(items) | Template::List(items) => items.iter().all(Template::is_usable),
            Template::NamedTuple(_, fields) => fields.iter().all(|(_, field)| field.is_usable()),
        }
    }
}

/// A result of a region, or a value that a loop carries.
#[derive(Clone, Debug)]
pub enum ResultSlot {
    /// The value of the first branch and that of the second; for a loop, the value before the loop twice. It is a
    /// Python number of the kind, or a tensor if there is none.
    Value(Option<NumberKind>, Datum, Datum),
    /// The contents of a storage after the region.
    Storage(Rc<Storage>),
}

impl ResultSlot {
    /// True if the first branch never sets it, or sets it to a known number where the second branch gives a tensor.
    pub fn takes_type_of_second(&self) -> bool {
        match self {
            ResultSlot::Value(_, Datum::Uninitialized, _) => true,
            ResultSlot::Value(None, Datum::Tensor(tensor), _) => tensor.number().is_some(),
            _ => false,
        }
    }
}

impl Importer<'_> {
    /// Merges the values of a variable or cell after two branches. Adds slots for its tensors and numbers. Values that
    /// cannot be merged become [`Datum::Uninitialized`].
    pub(super) fn merge(&self, a: &Datum, b: &Datum, slots: &mut Vec<ResultSlot>) -> Template {
        if same_value(a, b) {
            return Template::Same(a.clone());
        }
        match (a, b) {
            (Datum::Unknown, _) | (_, Datum::Unknown) => Template::Same(Datum::Unknown),
            (Datum::Tuple(a), Datum::Tuple(b)) if a.len() == b.len() => {
                Template::Tuple(self.merge_all(a, b, slots))
            }
            (Datum::List(x), Datum::List(y)) => {
                let (x, y) = (x.items.borrow(), y.items.borrow());
                match x.len() == y.len() {
                    true => Template::List(self.merge_all(&x, &y, slots)),
                    false => Template::Same(Datum::Uninitialized),
                }
            }
            (Datum::NamedTuple(class, x), Datum::NamedTuple(_, y)) if x.len() == y.len() => {
                let pairs = x.iter().zip(y.iter());
                let fields = pairs
                    .map(|((name, x), (_, y))| (name.clone(), self.merge(x, y, slots)))
                    .collect();
                Template::NamedTuple(class.clone(), fields)
            }
            _ => match (result_kind(a), result_kind(b)) {
                (Some(x), Some(y)) => {
                    slots.push(ResultSlot::Value(common_kind(x, y), a.clone(), b.clone()));
                    Template::Result(slots.len() - 1)
                }
                _ => Template::Same(Datum::Uninitialized),
            },
        }
    }

    /// Merges values pair by pair.
    fn merge_all(&self, a: &[Datum], b: &[Datum], slots: &mut Vec<ResultSlot>) -> Vec<Template> {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| self.merge(a, b, slots)).collect()
    }

    /// Replaces the slots in a template by their values.
    pub(super) fn instantiate(&self, template: &Template, values: &[Datum]) -> Datum {
        let all = |items: &[Template]| -> Vec<Datum> {
            let items = items.iter();
            items.map(|item| self.instantiate(item, values)).collect()
        };
        match template {
            Template::Same(value) => value.clone(),
            Template::Result(index) => values.get(*index).cloned().unwrap_or(Datum::Unknown),
            Template::Tuple(items) => Datum::tuple(all(items)),
            Template::List(items) => self.list(all(items)),
            Template::NamedTuple(class, fields) => {
                let fields: Vec<(String, Datum)> = fields
                    .iter()
                    .map(|(name, field)| (name.clone(), self.instantiate(field, values)))
                    .collect();
                Datum::NamedTuple(class.clone(), fields.into())
            }
        }
    }
}

/// The type of a value as a result of a region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultKind {
    Tensor,
    Number(NumberKind),
    /// The type of the other branch's value.
    Any,
}

/// The type of a value as a result of a region; none if no result of a region can hold it.
fn result_kind(value: &Datum) -> Option<ResultKind> {
    match value {
        Datum::Tensor(_) => Some(ResultKind::Tensor),
        Datum::Dynamic(kind, _) => Some(ResultKind::Number(*kind)),
        Datum::Number(number) => Some(ResultKind::Number(number_kind(number))),
        Datum::Uninitialized => Some(ResultKind::Any),
        _ => None,
    }
}

/// The Python type of a known number.
pub fn number_kind(number: &ScriptNumber) -> NumberKind {
    match python_dtype(number) {
        DType::Bool => NumberKind::Bool,
        DType::F64 => NumberKind::Float,
        _ => NumberKind::Int,
    }
}

/// The Python type of a result that has either of two types; none for a tensor.
fn common_kind(a: ResultKind, b: ResultKind) -> Option<NumberKind> {
    match (a, b) {
        (ResultKind::Number(kind), ResultKind::Any)
        | (ResultKind::Any, ResultKind::Number(kind)) => Some(kind),
        (ResultKind::Number(a), ResultKind::Number(b)) => Some(match a == b {
            true => a,
            false => NumberKind::Float,
        }),
        _ => None,
    }
}

/// True if two values are known to be the same: equal constants, or the same object.
fn same_value(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::None, Datum::None) | (Datum::Uninitialized, Datum::Uninitialized) => true,
        (Datum::Number(a), Datum::Number(b)) => a == b,
        (Datum::Str(a), Datum::Str(b)) | (Datum::Device(a), Datum::Device(b)) => a == b,
        (Datum::Tensor(a), Datum::Tensor(b)) => Rc::ptr_eq(a, b),
        (Datum::Dynamic(_, a), Datum::Dynamic(_, b)) => Rc::ptr_eq(a, b),
        (Datum::Object(a), Datum::Object(b)) => Rc::ptr_eq(a, b),
        (Datum::List(a), Datum::List(b)) => Rc::ptr_eq(a, b),
        (Datum::Dict(a), Datum::Dict(b)) => Rc::ptr_eq(a, b),
        (Datum::Function(a), Datum::Function(b)) => a == b,
        _ => false,
    }
}
