//! Charges to the budget of the file: statements, iterations, nesting, and walks over values.

use crate::budget::Limits;
use crate::error::Result;

use super::Importer;
use super::call::Arguments;
use super::datum::Datum;

impl Importer<'_> {
    /// Charges a statement. Those of unrolled loops and inlined functions count each time: functions that call each other
    /// several times grow exponentially when they are inlined.
    pub(super) fn charge_statement(&self) -> Result<()> {
        self.budget.charge_steps(Limits::STEPS_OF_STATEMENT)
    }

    /// Charges an unrolled iteration.
    pub(super) fn charge_iteration(&self) -> Result<()> {
        self.budget.charge_steps(Limits::STEPS_OF_ITERATION)
    }

    /// Runs a part of the program one level deeper: a call, a block, an expression.
    pub(super) fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.budget.check_depth(self.depth + 1)?;
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    /// Charges a walk over the arguments of an operator: operators compare, print and convert them recursively.
    pub(super) fn charge_arguments(&self, name: &str, arguments: &Arguments) -> Result<()> {
        let mut walked = walked_arguments(name, arguments);
        walked.try_for_each(|value| self.charge_walk(value))
    }

    /// Charges a walk over a value: a shared part counts at each occurrence, as for the functions that walk recursively.
    /// Fails for a value that is nested too deeply, or contains itself.
    pub(super) fn charge_walk(&self, value: &Datum) -> Result<()> {
        self.charge_walk_at(value, self.depth)
    }

    fn charge_walk_at(&self, value: &Datum, depth: usize) -> Result<()> {
        let walk = |item: &Datum| self.charge_walk_at(item, depth + 1);
        let enter = |length: usize| {
            self.budget.check_depth(depth + 1)?;
            self.budget.charge_steps(length as u64)
        };
        match value {
            Datum::Tuple(items) => {
                enter(items.len())?;
                items.iter().try_for_each(walk)
            }
            Datum::NamedTuple(_, fields) => {
                enter(fields.len())?;
                fields.iter().try_for_each(|(_, field)| walk(field))
            }
            Datum::List(list) => {
                let items = list.items.borrow();
                enter(items.len())?;
                items.iter().try_for_each(walk)
            }
            Datum::Dict(dict) => {
                let entries = dict.entries.borrow();
                enter(entries.len())?;
                let mut entries = entries.iter();
                entries.try_for_each(|(key, value)| walk(key).and_then(|()| walk(value)))
            }
            _ => Ok(()),
        }
    }

    /// Charges a value that an operator made.
    pub(super) fn charge_value(&self, value: &Datum) -> Result<()> {
        let count = match value {
            Datum::Tuple(items) => items.len(),
            Datum::List(list) => list.items.borrow().len(),
            Datum::Dict(dict) => dict.entries.borrow().len(),
            // A value takes about as much memory as this many characters.
            Datum::Str(text) => text.len() / 32,
            _ => 0,
        };
        self.budget.charge_values(count)
    }
}

/// Returns the arguments that an operator reads as a whole.
pub fn walked_arguments<'a>(
    name: &str,
    arguments: &'a Arguments,
) -> impl Iterator<Item = &'a Datum> + use<'a> {
    let named = arguments.named.iter().map(|(_, value)| value);
    let skipped = usize::from(ELEMENT_OPERATORS.contains(&name));
    arguments.positional.iter().skip(skipped).chain(named)
}

/// Operators that read or change only some elements of their first argument.
const ELEMENT_OPERATORS: [&str; 11] = [
    "append",
    "len",
    "pop",
    "Delete",
    "insert",
    "_set_item",
    "setdefault",
    "clear",
    "__getitem__",
    "TupleIndex",
    "get",
];
