use std::cell::RefCell;
use std::cmp::Ordering;

use crate::dim::Dim;
use crate::error::Result;
use crate::symbols::{Guard, Relation, Symbols};

/// Answers that the example gave about symbolic sizes, before they become guards.
pub struct Assumptions<'s> {
    symbols: &'s Symbols,
    guards: RefCell<Vec<Guard>>,
}

impl<'s> Assumptions<'s> {
    /// Assumptions about these symbols, starting with earlier ones.
    pub fn new(symbols: &'s Symbols, before: &[Guard]) -> Assumptions<'s> {
        let guards = RefCell::new(before.to_vec());
        Assumptions { symbols, guards }
    }

    /// The assumptions as guards.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards.into_inner()
    }

    /// Whether two sizes are equal.
    pub fn equal(&self, a: &Dim, b: &Dim) -> Result<bool> {
        Ok(self.compare(a, b)? == Ordering::Equal)
    }

    /// How two sizes compare.
    pub fn compare(&self, a: &Dim, b: &Dim) -> Result<Ordering> {
        let (a, b) = (self.symbols.resolve(a), self.symbols.resolve(b));
        if let Some(difference) = (&a - &b).as_const() {
            return Ok(difference.cmp(&0));
        }
        let order = self.symbols.hint(&a)?.cmp(&self.symbols.hint(&b)?);
        let (left, relation, right) = match order {
            Ordering::Less => (a + 1, Relation::LessEqual, b),
            Ordering::Equal => (a, Relation::Equal, b),
            Ordering::Greater => (b + 1, Relation::LessEqual, a),
        };
        self.assume(Guard::new(left, relation, right));
        Ok(order)
    }

    /// Adds an assumption, unless it is already there.
    pub fn assume(&self, guard: Guard) {
        let mut made = self.guards.borrow_mut();
        if !made.contains(&guard) {
            made.push(guard);
        }
    }
}
