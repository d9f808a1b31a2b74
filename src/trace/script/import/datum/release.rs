//! Release of nested values without recursion: a program can nest them deeper than the stack allows.

use std::fmt;
use std::mem::{replace, take};
use std::ops::Deref;
use std::rc::Rc;

use super::{Closure, Datum, Instance, ScriptDict, ScriptList};

/// Immutable elements, which clones share.
#[derive(Clone)]
pub struct Elements<T: HasDatum>(Rc<[T]>);

/// An element with a value.
pub trait HasDatum {
    /// Takes the value, and leaves `None` in its place.
    fn take(&mut self) -> Datum;
}

impl HasDatum for Datum {
    fn take(&mut self) -> Datum {
        replace(self, Datum::None)
    }
}

impl HasDatum for (String, Datum) {
    fn take(&mut self) -> Datum {
        self.1.take()
    }
}

impl<T: HasDatum> From<Vec<T>> for Elements<T> {
    fn from(elements: Vec<T>) -> Elements<T> {
        Elements(elements.into())
    }
}

impl<T: HasDatum> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: HasDatum + fmt::Debug> fmt::Debug for Elements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: HasDatum> Elements<T> {
    /// Takes the values, unless another clone shares them.
    fn take_into(&mut self, values: &mut Vec<Datum>) {
        let elements = Rc::get_mut(&mut self.0).into_iter().flatten();
        values.extend(elements.map(HasDatum::take));
    }
}

/// Drops values. Those that only they hold go to the list in place of the stack.
fn release(mut values: Vec<Datum>) {
    while let Some(mut value) = values.pop() {
        match &mut value {
            Datum::Tuple(items) => items.take_into(&mut values),
            Datum::NamedTuple(_, fields) => fields.take_into(&mut values),
            Datum::List(list) => take_unique(list, &mut values, ScriptList::take_items),
            Datum::Dict(dict) => take_unique(dict, &mut values, ScriptDict::take_items),
            Datum::Object(object) => take_unique(object, &mut values, Instance::take_items),
            Datum::Closure(closure) => take_unique(closure, &mut values, Closure::take_items),
            _ => {}
        }
    }
}

fn take_unique<T>(shared: &mut Rc<T>, values: &mut Vec<Datum>, items: fn(&mut T) -> Vec<Datum>) {
    values.extend(Rc::get_mut(shared).into_iter().flat_map(items));
}

impl ScriptList {
    fn take_items(&mut self) -> Vec<Datum> {
        take(self.items.get_mut())
    }
}

impl ScriptDict {
    fn take_items(&mut self) -> Vec<Datum> {
        let entries = take(self.entries.get_mut());
        entries
            .into_iter()
            .flat_map(|(key, value)| [key, value])
            .collect()
    }
}

impl Instance {
    fn take_items(&mut self) -> Vec<Datum> {
        take(self.attributes.get_mut()).into_values().collect()
    }
}

impl Closure {
    fn take_items(&mut self) -> Vec<Datum> {
        take(&mut self.locals).into_values().collect()
    }
}

impl<T: HasDatum> Drop for Elements<T> {
    fn drop(&mut self) {
        let mut values = Vec::new();
        self.take_into(&mut values);
        release(values);
    }
}

impl Drop for ScriptList {
    fn drop(&mut self) {
        release(self.take_items());
    }
}

impl Drop for ScriptDict {
    fn drop(&mut self) {
        release(self.take_items());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        release(self.take_items());
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        release(self.take_items());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn values_nested_a_million_times_are_dropped() {
        let mut value = Datum::None;
        for index in 0..1_000_000 {
            value = match index % 2 {
                0 => Datum::tuple(vec![value, Datum::None]),
                _ => Datum::List(Rc::new(ScriptList {
                    items: RefCell::new(vec![value]),
                    depth: 0,
                    is_archived: false,
                })),
            };
        }
        drop(value);
    }

    #[test]
    fn shared_elements_outlive_a_clone() {
        let value = Datum::tuple(vec![Datum::int(7)]);
        drop(value.clone());
        assert!(matches!(value.item(0), Some(Datum::Number(_))));
    }
}
