//! Builtin operators on lists, tuples and dicts.

use std::cell::RefCell;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::symbols::Symbols;

use crate::trace::script::import::Importer;
use crate::trace::script::import::call::Arguments;
use crate::trace::script::import::datum::{Datum, Instance, ScriptDict, ScriptList};
use crate::trace::script::import::mutable_cell::MutableCell;
use crate::trace::script::import::number::{self, ScriptNumber};

impl Importer<'_> {
    /// Evaluates an operator whose first operand is a list, dict, tuple or enumeration member; none for other
    /// operators.
    pub(in crate::trace::script::import) fn container(
        &mut self,
        name: &str,
        arguments: &Arguments,
    ) -> Result<Option<Datum>> {
        match arguments.positional.as_slice() {
            [Datum::List(list), rest @ ..] => self.on_list(name, &list.clone(), rest),
            [Datum::Dict(dict), rest @ ..] => self.on_dict(name, &dict.clone(), rest),
            [tuple @ (Datum::Tuple(_) | Datum::NamedTuple(..)), rest @ ..] => {
                self.on_tuple(name, tuple, rest)
            }
            [a @ Datum::Object(_), b @ Datum::Object(_)] if name == "eq" || name == "ne" => {
                // Members of enumerations are equal if their values are, so both values are read first.
                for member in [a, b] {
                    self.attribute(member, "value")?;
                }
                let equal = python_equal(self.builder().symbols(), a, b)?;
                Ok(Some(Datum::bool(equal == (name == "eq"))))
            }
            [] if name == "dict" => Ok(Some(self.dict(Vec::new()))),
            _ => Ok(None),
        }
    }

    /// Makes a new dict.
    fn dict(&self, entries: Vec<(Datum, Datum)>) -> Datum {
        Datum::Dict(Rc::new(ScriptDict {
            entries: RefCell::new(entries),
            depth: self.scopes.depth(),
            is_archived: false,
        }))
    }

    /// Makes a new dict of pairs of key and value. If a key occurs twice, its last value is stored.
    fn dict_of(&mut self, pairs: Vec<Datum>) -> Result<Datum> {
        let result = self.dict(Vec::new());
        let Datum::Dict(dict) = &result else {
            return Err(Error::internal("a new dict is not a dict"));
        };
        for pair in pairs {
            match pair.items().as_deref() {
                Some([key, value]) => self.set_entry(dict, key, value)?,
                _ => {
                    let message = "a dict is made from elements that are not pairs";
                    return Err(Error::source(message));
                }
            }
        }
        Ok(result)
    }

    /// `value[index]`
    pub(in crate::trace::script::import) fn subscript(
        &mut self,
        value: &Datum,
        index: &Datum,
    ) -> Result<Datum> {
        let has_unknown_entry = |dict: &ScriptDict| {
            let entries = dict.entries.borrow();
            entries
                .iter()
                .any(|(_, value)| matches!(value, Datum::Unknown))
        };
        match (value, index) {
            (Datum::Unknown, _) | (_, Datum::Unknown) => return Ok(Datum::Unknown),
            (Datum::Dict(dict), _) if has_unknown_entry(dict) => return Ok(Datum::Unknown),
            _ => {}
        }
        if let Datum::Dict(dict) = value {
            let value = self.lookup(dict, index)?;
            return value.ok_or_else(|| self.missing_key(dict, index));
        }
        if let Datum::Object(container) = value {
            return self.module_at(&container.clone(), index);
        }
        let index = self.known_index(index)?;
        if let Datum::Str(text) = value {
            return self.character(text, index);
        }
        let Some(length) = value.item_count() else {
            let message = format!("a {} is indexed", value.describe());
            return Err(Error::source(message));
        };
        let item = python_index(index, length).and_then(|position| value.item(position));
        item.ok_or_else(|| Error::source(format!("index {index} of {length} elements")))
    }

    /// Returns a module of a `ModuleList` by its index, or of a `ModuleDict` by its name.
    fn module_at(&mut self, container: &Rc<Instance>, index: &Datum) -> Result<Datum> {
        if let Datum::Str(name) = index {
            return self.instance_attribute(container, name);
        }
        let index = self.known_index(index)?;
        let attributes = container
            .pickled
            .iter()
            .flat_map(|object| &object.attributes);
        let count = attributes.filter(|(name, _)| name.parse::<usize>().is_ok());
        let count = count.count();
        let missing = || Error::source(format!("index {index} of {count} modules"));
        let position = python_index(index, count).ok_or_else(missing)?;
        self.instance_attribute(container, &position.to_string())
    }

    /// `value[start:end]` of a tuple.
    pub(in crate::trace::script::import) fn tuple_slice(
        &mut self,
        value: &Datum,
        bounds: &[Datum],
    ) -> Result<Datum> {
        let Some(items) = value.items() else {
            return match value {
                Datum::Unknown => Ok(Datum::Unknown),
                other => Err(Error::source(format!("a {} is sliced", other.describe()))),
            };
        };
        Ok(Datum::tuple(self.slice_items(&items, bounds)?))
    }

    /// The error for a key that a dict does not have.
    fn missing_key(&self, dict: &ScriptDict, key: &Datum) -> Error {
        let entries = dict.entries.borrow();
        let keys: Vec<String> = entries.iter().map(|(key, _)| self.display(key)).collect();
        let message = format!("a dict has no key {}", self.display(key));
        Error::source(message).help(format!("it has {}", keys.join(", ")))
    }

    /// Returns an integer that must be known during import.
    pub(super) fn known_index(&mut self, index: &Datum) -> Result<i64> {
        match self.known_number(index)? {
            Datum::Number(number) => Ok(number.concrete(self.builder().symbols())?.to_i64()),
            _ => Err(Error::unsupported("a list index that depends on tensors")),
        }
    }

    /// Evaluates an operator on a list. `rest` are the arguments after the list.
    fn on_list(
        &mut self,
        name: &str,
        list: &Rc<ScriptList>,
        rest: &[Datum],
    ) -> Result<Option<Datum>> {
        if LIST_MUTATIONS.contains(&name) {
            self.record_change(MutableCell::List(list.clone()))?;
            return self.mutate_list(name, list, rest);
        }
        match (name, rest) {
            ("len", _) => return Ok(Some(Datum::int(list.items.borrow().len()))),
            ("__getitem__", [index]) => {
                return self.subscript(&Datum::List(list.clone()), index).map(Some);
            }
            _ => {}
        }
        let items = list.items.borrow().clone();
        Ok(Some(match (name, rest) {
            ("copy" | "list", _) => self.list(items),
            ("dict", _) => self.dict_of(items)?,
            ("add", [Datum::List(other)]) => {
                let more = other.items.borrow().clone();
                self.budget.check_length(items.len() + more.len())?;
                self.list([items, more].concat())
            }
            ("mul", [Datum::Number(ScriptNumber::Int(times))]) => {
                let times = self.builder().symbols().specialize(times)?;
                let times = usize::try_from(times).unwrap_or(0);
                self.budget
                    .check_length(items.len().saturating_mul(times))?;
                let copies = std::iter::repeat_n(items, times);
                self.list(copies.flatten().collect())
            }
            ("eq" | "ne", [other]) => {
                let equal =
                    python_equal(self.builder().symbols(), &Datum::List(list.clone()), other)?;
                Datum::bool(equal == (name == "eq"))
            }
            ("__contains__", [wanted]) => Datum::bool(self.find(&items, wanted)?.is_some()),
            ("index", [wanted]) => {
                let position = self.find(&items, wanted)?;
                Datum::int(position.ok_or_else(|| Error::source("the value is not in the list"))?)
            }
            ("slice", bounds) => {
                let slice = self.slice_items(&items, bounds)?;
                self.list(slice)
            }
            ("all" | "any", []) => return self.all_or_any(name, &items),
            _ => return Ok(None),
        }))
    }

    /// Evaluates one of [`LIST_MUTATIONS`].
    fn mutate_list(
        &mut self,
        name: &str,
        list: &Rc<ScriptList>,
        rest: &[Datum],
    ) -> Result<Option<Datum>> {
        match (name, rest) {
            ("append", [item]) => list.items.borrow_mut().push(item.clone()),
            ("extend" | "add_", [Datum::List(other)]) => {
                let more = other.items.borrow().clone();
                self.budget
                    .check_length(list.items.borrow().len() + more.len())?;
                list.items.borrow_mut().extend(more);
            }
            ("reverse", _) => list.items.borrow_mut().reverse(),
            ("clear", _) => list.items.borrow_mut().clear(),
            ("insert", [index, item]) => {
                let length = list.items.borrow().len();
                let index = self.known_index(index)?;
                let position =
                    python_index(index, length).unwrap_or(if index < 0 { 0 } else { length });
                list.items.borrow_mut().insert(position, item.clone());
            }
            ("_set_item", [index, item]) => {
                let index = self.known_index(index)?;
                let mut items = list.items.borrow_mut();
                let position = python_index(index, items.len());
                match position.and_then(|position| items.get_mut(position)) {
                    Some(slot) => *slot = item.clone(),
                    None => return Err(Error::source(format!("a list has no element {index}"))),
                }
            }
            ("pop" | "Delete", _) => {
                let index = rest
                    .first()
                    .map_or(Ok(-1), |index| self.known_index(index))?;
                let mut items = list.items.borrow_mut();
                let missing = || Error::source(format!("a list has no element {index}"));
                let position = python_index(index, items.len()).ok_or_else(missing)?;
                return Ok(Some(items.remove(position)));
            }
            ("remove", [wanted]) => {
                let items = list.items.borrow().clone();
                let missing = || Error::source("list.remove(x): x not in list");
                let position = self.find(&items, wanted)?.ok_or_else(missing)?;
                list.items.borrow_mut().remove(position);
            }
            ("sort", _) => {
                let descending = matches!(rest, [Datum::Number(ScriptNumber::Bool(true))]);
                self.sort(list, descending)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Datum::List(list.clone())))
    }

    /// Python's `all` or `any` of known numbers.
    fn all_or_any(&mut self, name: &str, items: &[Datum]) -> Result<Option<Datum>> {
        let mut truth_values = Vec::with_capacity(items.len());
        for item in items {
            let Datum::Number(number) = item else {
                return Ok(None);
            };
            truth_values.push(number.is_truthy(self.builder().symbols())?);
        }
        Ok(Some(Datum::bool(match name {
            "all" => truth_values.iter().all(|is_true| *is_true),
            _ => truth_values.iter().any(|is_true| *is_true),
        })))
    }

    /// A sorted copy of a list.
    pub(super) fn sorted(&mut self, list: &ScriptList) -> Result<Datum> {
        let copy = Rc::new(ScriptList {
            items: list.items.clone(),
            depth: self.scopes.depth(),
            is_archived: false,
        });
        self.sort(&copy, false)?;
        Ok(Datum::List(copy))
    }

    /// Sorts a list of known numbers in place.
    fn sort(&mut self, list: &Rc<ScriptList>, descending: bool) -> Result<()> {
        let mut items_with_keys = Vec::new();
        for item in list.items.borrow().iter() {
            let Datum::Number(number) = item else {
                return Err(Error::unsupported(
                    "sorting a list of values other than numbers",
                ));
            };
            items_with_keys.push((
                number.concrete(self.builder().symbols())?.to_f64(),
                item.clone(),
            ));
        }
        items_with_keys.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        if descending {
            items_with_keys.reverse();
        }
        *list.items.borrow_mut() = items_with_keys.into_iter().map(|(_, item)| item).collect();
        Ok(())
    }

    /// Returns the index of the first element that equals a value.
    fn find(&mut self, items: &[Datum], wanted: &Datum) -> Result<Option<usize>> {
        let builder = self.builder();
        for (index, item) in items.iter().enumerate() {
            if python_equal(builder.symbols(), item, wanted)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Returns the elements of a slice. `bounds` are start, end and step, each of which may be absent or `None`.
    fn slice_items(&mut self, items: &[Datum], bounds: &[Datum]) -> Result<Vec<Datum>> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let mut bound = |index: usize| match bounds.get(index) {
            None | Some(Datum::None) => Ok(None),
            Some(value) => self.known_index(value).map(Some),
        };
        let step = bound(2)?.unwrap_or(1);
        if step == 0 {
            return Err(Error::source("List slice should have non-zero step"));
        }
        // With a negative step, a slice starts at the last element by default, and may end before the first one.
        let (default_start, min_bound, max_bound) = match step > 0 {
            true => (0, 0, length),
            false => (length - 1, -1, length - 1),
        };
        let clamp = |value: i64| {
            let from_end = if value < 0 { length } else { 0 };
            value.saturating_add(from_end).clamp(min_bound, max_bound)
        };
        let start = bound(0)?.map_or(default_start, clamp);
        let end = bound(1)?.map_or(if step > 0 { length } else { -1 }, clamp);
        let positions = std::iter::successors(Some(start), |position| position.checked_add(step));
        let positions = positions.take_while(|position| {
            if step > 0 {
                *position < end
            } else {
                *position > end
            }
        });
        let items =
            positions.filter_map(|position| items.get(usize::try_from(position).ok()?).cloned());
        Ok(items.collect())
    }

    /// Evaluates an operator on a tuple. `rest` are the arguments after the tuple.
    fn on_tuple(&mut self, name: &str, tuple: &Datum, rest: &[Datum]) -> Result<Option<Datum>> {
        let items = tuple.items().unwrap_or_default();
        Ok(Some(match (name, rest) {
            ("len", _) => Datum::int(items.len()),
            ("__getitem__" | "TupleIndex", [index]) => self.subscript(tuple, index)?,
            ("add", [other]) => {
                let more = other.items().unwrap_or_default();
                self.budget.check_length(items.len() + more.len())?;
                Datum::tuple([items, more].concat())
            }
            ("slice", bounds) => Datum::tuple(self.slice_items(&items, bounds)?),
            ("list", _) => self.list(items),
            ("eq" | "ne", [other]) => {
                let equal = python_equal(self.builder().symbols(), tuple, other)?;
                Datum::bool(equal == (name == "eq"))
            }
            ("__contains__", [wanted]) => Datum::bool(self.find(&items, wanted)?.is_some()),
            _ => return Ok(None),
        }))
    }

    /// Returns the value of a key.
    fn lookup(&mut self, dict: &Rc<ScriptDict>, key: &Datum) -> Result<Option<Datum>> {
        let builder = self.builder();
        for (entry_key, value) in dict.entries.borrow().iter() {
            if python_equal(builder.symbols(), entry_key, key)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }

    /// Evaluates an operator on a dict. `rest` are the arguments after the dict.
    fn on_dict(
        &mut self,
        name: &str,
        dict: &Rc<ScriptDict>,
        rest: &[Datum],
    ) -> Result<Option<Datum>> {
        if DICT_MUTATIONS.contains(&name) {
            self.record_change(MutableCell::Dict(dict.clone()))?;
            return self.mutate_dict(name, dict, rest);
        }
        let entries = dict.entries.borrow().clone();
        Ok(Some(match (name, rest) {
            ("len", _) => Datum::int(entries.len()),
            ("keys" | "list", _) => self.list(entries.into_iter().map(|(key, _)| key).collect()),
            ("values", _) => self.list(entries.into_iter().map(|(_, value)| value).collect()),
            ("items", _) => {
                let pairs = entries.into_iter();
                let pairs = pairs.map(|(key, value)| Datum::tuple(vec![key, value]));
                self.list(pairs.collect())
            }
            ("copy" | "dict", _) => self.dict(entries),
            ("__contains__", [key]) => Datum::bool(self.lookup(dict, key)?.is_some()),
            ("__getitem__", [key]) => self.subscript(&Datum::Dict(dict.clone()), key)?,
            ("get", [key, rest @ ..]) => {
                let default = rest.first().cloned().unwrap_or(Datum::None);
                self.lookup(dict, key)?.unwrap_or(default)
            }
            _ => return Ok(None),
        }))
    }

    /// Evaluates one of [`DICT_MUTATIONS`].
    fn mutate_dict(
        &mut self,
        name: &str,
        dict: &Rc<ScriptDict>,
        rest: &[Datum],
    ) -> Result<Option<Datum>> {
        let mut result = Datum::None;
        match (name, rest) {
            ("_set_item", [key, value]) => self.set_entry(dict, key, value)?,
            ("setdefault", [key, value]) => match self.lookup(dict, key)? {
                Some(existing) => result = existing,
                None => {
                    self.set_entry(dict, key, value)?;
                    result = value.clone();
                }
            },
            ("update", [Datum::Dict(other)]) => {
                let entries = other.entries.borrow().clone();
                for (key, value) in entries {
                    self.set_entry(dict, &key, &value)?;
                }
            }
            ("clear", _) => dict.entries.borrow_mut().clear(),
            ("Delete" | "pop", [key, rest @ ..]) => {
                let existing = self.lookup(dict, key)?.or_else(|| rest.first().cloned());
                let missing = || Error::source(format!("KeyError: {}", self.display(key)));
                result = existing.ok_or_else(missing)?;
                let builder = self.builder();
                let mut remaining = Vec::new();
                for (entry_key, value) in dict.entries.borrow().iter() {
                    if !python_equal(builder.symbols(), entry_key, key)? {
                        remaining.push((entry_key.clone(), value.clone()));
                    }
                }
                *dict.entries.borrow_mut() = remaining;
            }
            _ => return Ok(None),
        }
        Ok(Some(result))
    }

    /// Sets the value of a key.
    fn set_entry(&mut self, dict: &Rc<ScriptDict>, key: &Datum, value: &Datum) -> Result<()> {
        let builder = self.builder();
        let mut entries = dict.entries.borrow_mut();
        for (entry_key, slot) in entries.iter_mut() {
            if python_equal(builder.symbols(), entry_key, key)? {
                *slot = value.clone();
                return Ok(());
            }
        }
        entries.push((key.clone(), value.clone()));
        Ok(())
    }
}

/// Operators that change a list.
const LIST_MUTATIONS: [&str; 11] = [
    "append",
    "extend",
    "add_",
    "reverse",
    "clear",
    "insert",
    "_set_item",
    "pop",
    "Delete",
    "remove",
    "sort",
];

/// Operators that change a dict.
const DICT_MUTATIONS: [&str; 6] = [
    "_set_item",
    "setdefault",
    "update",
    "clear",
    "Delete",
    "pop",
];

/// Converts a Python index to a position; none if it is out of range.
fn python_index(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok().filter(|_| index < length)
}

/// Tests equality by Python's `==`. Tensors are equal only to themselves.
pub fn python_equal(symbols: &Symbols, a: &Datum, b: &Datum) -> Result<bool> {
    if let (Datum::Number(a), Datum::Number(b)) = (a, b) {
        let equal = number::binary(symbols, "eq", a, b)?;
        return Ok(equal == Some(ScriptNumber::Bool(true)));
    }
    if let (Some(a), Some(b)) = (a.items(), b.items()) {
        if a.len() != b.len() {
            return Ok(false);
        }
        for (a, b) in a.iter().zip(&b) {
            if !python_equal(symbols, a, b)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    Ok(match (a, b) {
        (Datum::None, Datum::None) => true,
        (Datum::Str(a), Datum::Str(b)) | (Datum::Device(a), Datum::Device(b)) => a == b,
        (Datum::Tensor(a), Datum::Tensor(b)) => Rc::ptr_eq(a, b),
        (Datum::Object(a), Datum::Object(b)) => {
            let value = |object: &Rc<crate::trace::script::import::datum::Instance>| {
                object.attributes.borrow().get("value").cloned()
            };
            Rc::ptr_eq(a, b)
                || a.class == b.class
                    && match (value(a), value(b)) {
                        (Some(a), Some(b)) => python_equal(symbols, &a, &b)?,
                        _ => false,
                    }
        }
        _ => false,
    })
}
