//! The end of values that contain themselves: reference counts keep them, so the import clears them.

use std::collections::HashMap;
use std::rc::{Rc, Weak};

use super::{Instance, ScriptDict, ScriptList};
use crate::trace::script::import::mutable_cell::MutableCell;

/// Containers that the program changed. Only a change makes a container hold a newer value, such as itself. All are cleared
/// when this is dropped.
#[derive(Default)]
pub struct ChangedContainers {
    /// Containers by address.
    containers: HashMap<usize, WeakContainer>,
    /// Number of containers at which those that are gone are removed.
    full: usize,
}

enum WeakContainer {
    List(Weak<ScriptList>),
    Dict(Weak<ScriptDict>),
    Object(Weak<Instance>),
}

impl ChangedContainers {
    /// Adds the container of a cell.
    pub fn add(&mut self, cell: &MutableCell) {
        let (address, container) = match cell {
            MutableCell::List(list) => (
                Rc::as_ptr(list) as usize,
                WeakContainer::List(Rc::downgrade(list)),
            ),
            MutableCell::Dict(dict) => (
                Rc::as_ptr(dict) as usize,
                WeakContainer::Dict(Rc::downgrade(dict)),
            ),
            MutableCell::Attribute(object, _) => (
                Rc::as_ptr(object) as usize,
                WeakContainer::Object(Rc::downgrade(object)),
            ),
        };
        self.containers.insert(address, container);
        if self.full < self.containers.len() {
            self.containers.retain(|_, container| container.is_alive());
            self.full = 2 * self.containers.len() + 64;
        }
    }
}

impl WeakContainer {
    fn is_alive(&self) -> bool {
        let count = match self {
            WeakContainer::List(list) => list.strong_count(),
            WeakContainer::Dict(dict) => dict.strong_count(),
            WeakContainer::Object(object) => object.strong_count(),
        };
        0 < count
    }

    fn clear(&self) {
        match self {
            WeakContainer::List(list) => drop(list.upgrade().map(|list| list.items.take())),
            WeakContainer::Dict(dict) => drop(dict.upgrade().map(|dict| dict.entries.take())),
            WeakContainer::Object(object) => {
                drop(object.upgrade().map(|object| object.attributes.take()));
            }
        }
    }
}

impl Drop for ChangedContainers {
    fn drop(&mut self) {
        self.containers.values().for_each(WeakContainer::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::script::import::datum::Datum;
    use std::cell::RefCell;

    fn list() -> Rc<ScriptList> {
        Rc::new(ScriptList {
            items: RefCell::default(),
            depth: 0,
            is_archived: false,
        })
    }

    #[test]
    fn lists_that_contain_themselves_are_dropped() {
        let mut changed = ChangedContainers::default();
        let (first, second) = (list(), list());
        for (list, item) in [(&first, &second), (&second, &first)] {
            changed.add(&MutableCell::List(list.clone()));
            list.items.borrow_mut().push(Datum::List(item.clone()));
        }
        let watched = [Rc::downgrade(&first), Rc::downgrade(&second)];
        drop((first, second));
        assert!(watched.iter().all(|list| list.strong_count() == 1));
        drop(changed);
        assert!(watched.iter().all(|list| list.strong_count() == 0));
    }

    #[test]
    fn containers_that_are_gone_take_no_memory() {
        let mut changed = ChangedContainers::default();
        let kept = list();
        for _ in 0..1000 {
            changed.add(&MutableCell::List(list()));
            changed.add(&MutableCell::List(kept.clone()));
        }
        assert!(changed.containers.len() < 200);
    }
}
