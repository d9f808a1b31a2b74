//! What is known about symbolic sizes: an example value for each, replacements, and the guards under which a graph holds.
//!
//! While a graph is built, questions such as "do these sizes broadcast?" are answered by the example values (*hints*), and
//! every answer that is not true for all sizes is written down as a guard or as a replacement of a symbol. A graph then
//! holds for all sizes that satisfy its guards, not only for the example.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim::{Bindings, Dim, Symbol};
use crate::error::{Error, Place, Result};
use crate::shape::Shape;

/// How the two sides of a guard compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Relation {
    /// Equal.
    #[serde(rename = "==")]
    Equal,
    /// Different.
    #[serde(rename = "!=")]
    NotEqual,
    /// Less than or equal.
    #[serde(rename = "<=")]
    LessEqual,
}

/// A condition on symbolic sizes under which a graph holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Left side.
    pub left: Dim,
    /// Comparison.
    pub relation: Relation,
    /// Right side.
    pub right: Dim,
    /// Where in the model the answer was needed.
    #[serde(default, skip_serializing_if = "Place::is_unknown")]
    pub place: Place,
}

impl Guard {
    /// A condition that no place in a model asks for yet.
    pub fn new(left: Dim, relation: Relation, right: Dim) -> Guard {
        Guard {
            left,
            relation,
            right,
            place: Place::default(),
        }
    }

    /// True if the guard is satisfied by the given sizes.
    pub fn holds(&self, bindings: &Bindings) -> Result<bool> {
        let (left, right) = (self.left.eval(bindings)?, self.right.eval(bindings)?);
        Ok(self.relation.holds(left, right))
    }

    /// The symbol that the guard keeps from being less than a number, if it says no more than that.
    fn lower_bound(&self) -> Option<(Symbol, i64)> {
        let difference = &self.right - &self.left;
        let bound = difference.constant_term();
        let symbol = (&difference - bound).as_symbol().cloned()?;
        (self.relation == Relation::LessEqual).then_some((symbol, -bound))
    }

    /// True if every size satisfies the guard because the sides differ by a number.
    fn always_holds(&self) -> bool {
        let difference = (&self.left - &self.right).as_const();
        difference.is_some_and(|difference| self.relation.holds(difference, 0))
    }
}

impl Relation {
    fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Relation::Equal => left == right,
            Relation::NotEqual => left != right,
            Relation::LessEqual => left <= right,
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = match self.relation {
            Relation::Equal => "==",
            Relation::NotEqual => "!=",
            Relation::LessEqual => "<=",
        };
        write!(f, "{} {relation} {}", self.left, self.right)
    }
}

/// The symbols' sizes for which every size has the value beside it.
///
/// A symbol that stands alone somewhere gets its value from there, others are solved for. A symbol that cannot be solved
/// for is 0, so that whoever compares the sizes afterwards finds the one that does not fit.
pub fn solve<'a>(pairs: impl Iterator<Item = (&'a Dim, usize)> + Clone) -> Bindings {
    let mut bindings = Bindings::new();
    for (dim, size) in pairs.clone() {
        if let Some(symbol) = dim.as_symbol() {
            bindings.entry(symbol.clone()).or_insert(size as i64);
        }
    }
    let unknown = |dim: &Dim, bindings: &Bindings| {
        let mut symbols = dim.symbols();
        symbols.retain(|name| !bindings.contains_key(name));
        symbols
    };
    let next = |bindings: &Bindings| {
        pairs
            .clone()
            .find(|(dim, _)| unknown(dim, bindings).len() == 1)
    };
    while let Some((dim, size)) = next(&bindings) {
        let known = bindings
            .iter()
            .map(|(name, value)| (name.clone(), Dim::from(*value)))
            .collect();
        let solved = dim.substitute(&known).solve(&Dim::from(size));
        let value = solved.and_then(|(_, value)| value.as_const()).unwrap_or(0);
        for name in unknown(dim, &bindings) {
            bindings.insert(name, value);
        }
    }
    bindings
}

/// Hints, replacements and guards. Answers are recorded through a shared reference while a graph is built.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    state: RefCell<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    hints: Bindings,
    replaced: BTreeMap<Symbol, Dim>,
    guards: Vec<Guard>,
    /// The least value of symbols for which a guard asks more than 0.
    least: Bindings,
    place: Place,
}

impl Symbols {
    /// A table with example values and the guards known so far.
    pub fn new(hints: Bindings, guards: Vec<Guard>) -> Symbols {
        let mut state = State {
            hints,
            ..State::default()
        };
        guards.into_iter().for_each(|guard| state.add(guard));
        Symbols {
            state: RefCell::new(state),
        }
    }

    /// Adds a symbol with its example value.
    pub fn declare(&self, name: &Symbol, hint: i64) {
        self.state.borrow_mut().hints.insert(name.clone(), hint);
    }

    /// Guards recorded from here on are ascribed to this place.
    pub fn set_place(&self, place: Place) {
        self.state.borrow_mut().place = place;
    }

    /// Example values of the symbols that are still free.
    pub fn hints(&self) -> Bindings {
        let state = self.state.borrow();
        state
            .hints
            .iter()
            .filter(|(name, _)| !state.replaced.contains_key(*name))
            .map(|(n, v)| (n.clone(), *v))
            .collect()
    }

    /// The guards, with replacements applied, without those that always hold.
    pub fn guards(&self) -> Vec<Guard> {
        let state = self.state.borrow();
        let mut guards: Vec<Guard> = Vec::new();
        for guard in &state.guards {
            let guard = Guard {
                left: guard.left.substitute(&state.replaced),
                right: guard.right.substitute(&state.replaced),
                ..guard.clone()
            };
            let same = |other: &Guard| {
                (&other.left, other.relation, &other.right)
                    == (&guard.left, guard.relation, &guard.right)
            };
            if !guard.always_holds() && !guards.iter().any(same) {
                guards.push(guard);
            }
        }
        guards
    }

    /// The size with every replaced symbol replaced.
    pub fn resolve(&self, dim: &Dim) -> Dim {
        let state = self.state.borrow();
        // Most sizes hold no replaced symbol, and to find that out is far cheaper than to rebuild them.
        if !dim.mentions(&|symbol| state.replaced.contains_key(symbol)) {
            return dim.clone();
        }
        dim.substitute(&state.replaced)
    }

    /// The value of a size for the example; an error names a symbol without one.
    pub fn hint(&self, dim: &Dim) -> Result<i64> {
        let dim = self.resolve(dim);
        dim.eval(&self.state.borrow().hints)
    }

    /// The size as a number: symbols in it are fixed to their example values.
    pub fn concrete(&self, dim: &Dim) -> Result<i64> {
        let dim = self.resolve(dim);
        if let Some(value) = dim.as_const() {
            return Ok(value);
        }
        let value = self.hint(&dim)?;
        for symbol in dim.symbols() {
            let hint = self.hint(&Dim::symbol(symbol.clone()))?;
            self.assume_equal(&Dim::symbol(symbol), &Dim::from(hint));
        }
        Ok(value)
    }

    /// Whether two sizes are equal; the answer is recorded if it depends on symbols.
    pub fn equal(&self, a: &Dim, b: &Dim) -> Result<bool> {
        let (a, b) = (self.resolve(a), self.resolve(b));
        let difference = &a - &b;
        if let Some(difference) = difference.as_const() {
            return Ok(difference == 0);
        }
        if [difference.clone(), -&difference]
            .iter()
            .any(|apart| self.smallest(apart) > Some(0))
        {
            return Ok(false);
        }
        let equal = self.hint(&a)? == self.hint(&b)?;
        if equal {
            self.assume_equal(&a, &b);
        } else {
            self.guard(&a, Relation::NotEqual, &b);
        }
        Ok(equal)
    }

    /// Whether `a <= b`; the answer is recorded if it depends on symbols.
    pub fn less_equal(&self, a: &Dim, b: &Dim) -> Result<bool> {
        let (a, b) = (self.resolve(a), self.resolve(b));
        if let Some(difference) = (&a - &b).as_const() {
            return Ok(difference <= 0);
        }
        if self.smallest(&(&b - &a)).is_some_and(|least| least >= 0) {
            return Ok(true);
        }
        let holds = self.hint(&a)? <= self.hint(&b)?;
        if holds {
            self.guard(&a, Relation::LessEqual, &b);
        } else {
            self.guard(&(&b + 1), Relation::LessEqual, &a);
        }
        Ok(holds)
    }

    /// Whether a size is at least 1; the answer is recorded if it depends on symbols, of a product for each factor.
    pub fn positive(&self, dim: &Dim) -> Result<bool> {
        let dim = self.resolve(dim);
        match dim.factors() {
            Some(factors) if self.hint(&dim)? > 0 => {
                for factor in factors {
                    self.less_equal(&Dim::ONE, &Dim::symbol(factor))?;
                }
                Ok(true)
            }
            _ => self.less_equal(&Dim::ONE, &dim),
        }
    }

    /// The smallest value of a size: symbols are at least 0, or more where a guard says so.
    fn smallest(&self, dim: &Dim) -> Option<i64> {
        let state = self.state.borrow();
        dim.smallest(|name| state.least.get(name).copied().unwrap_or(0))
    }

    /// Requires two sizes to be equal; the message says what they are.
    pub fn require_equal(&self, a: &Dim, b: &Dim, what: impl FnOnce() -> String) -> Result<()> {
        let (left, right) = (self.resolve(a), self.resolve(b));
        if let Some(difference) = (&left - &right).as_const() {
            return if difference == 0 {
                Ok(())
            } else {
                Err(Error::operator(what()))
            };
        }
        if self.hint(&left)? != self.hint(&right)? {
            return Err(Error::operator(what()));
        }
        self.assume_equal(&left, &right);
        Ok(())
    }

    /// Takes conditions that hold for the example as given.
    pub fn assume(&self, conditions: &[Guard]) -> Result<()> {
        for Guard {
            left,
            relation,
            right,
            ..
        } in conditions
        {
            match relation {
                Relation::LessEqual => self.less_equal(left, right)?,
                Relation::Equal | Relation::NotEqual => self.equal(left, right)?,
            };
        }
        Ok(())
    }

    /// The common size of two broadcast dimensions.
    pub fn broadcast(&self, a: &Dim, b: &Dim) -> Result<Dim> {
        let (a, b) = (self.resolve(a), self.resolve(b));
        if a.is(1) || a == b {
            return Ok(b);
        }
        if b.is(1) {
            return Ok(a);
        }
        let (left, right) = (self.hint(&a)?, self.hint(&b)?);
        if left == right {
            self.assume_equal(&a, &b);
            return Ok(self.resolve(&a));
        }
        match (left, right) {
            (1, _) => {
                self.assume_equal(&a, &Dim::ONE);
                Ok(b)
            }
            (_, 1) => {
                self.assume_equal(&b, &Dim::ONE);
                Ok(a)
            }
            _ => Err(Error::operator(format!(
                "sizes {a} and {b} do not broadcast"
            ))),
        }
    }

    /// The common shape of several operands, aligned at the last dimension.
    pub fn broadcast_shapes<'a>(
        &self,
        shapes: impl IntoIterator<Item = &'a Shape>,
    ) -> Result<Shape> {
        shapes.into_iter().try_fold(Shape::new(), |common, shape| {
            let rank = common.len().max(shape.len());
            let aligned = |shape: &Shape, axis: usize| {
                (axis + shape.len())
                    .checked_sub(rank)
                    .and_then(|axis| shape.get(axis))
                    .cloned()
                    .unwrap_or(Dim::ONE)
            };
            (0..rank)
                .map(|axis| self.broadcast(&aligned(&common, axis), &aligned(shape, axis)))
                .collect()
        })
    }

    /// Takes an equation as given: a symbol is replaced where one can be solved for, else a guard is recorded.
    fn assume_equal(&self, a: &Dim, b: &Dim) {
        match a.solve(b) {
            Some((symbol, value)) if self.hint(&value).is_ok_and(|hint| hint >= 0) => {
                self.guard(a, Relation::Equal, b);
                self.replace(symbol, value);
            }
            _ => self.guard(a, Relation::Equal, b),
        }
    }

    fn replace(&self, symbol: Symbol, value: Dim) {
        let mut state = self.state.borrow_mut();
        let one = BTreeMap::from([(symbol.clone(), value.clone())]);
        for replacement in state.replaced.values_mut() {
            *replacement = replacement.substitute(&one);
        }
        state.replaced.insert(symbol, value);
    }

    fn guard(&self, left: &Dim, relation: Relation, right: &Dim) {
        let mut state = self.state.borrow_mut();
        let place = state.place.clone();
        state.add(Guard {
            left: left.clone(),
            relation,
            right: right.clone(),
            place,
        });
    }
}

impl State {
    fn add(&mut self, guard: Guard) {
        if let Some((name, bound)) = guard.lower_bound() {
            let least = self.least.entry(name).or_insert(0);
            *least = bound.max(*least);
        }
        self.guards.push(guard);
    }
}
