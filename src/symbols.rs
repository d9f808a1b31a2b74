//! Symbolic sizes of a graph: an example value for each, replacements, and the guards under which the graph holds.
//!
//! While a graph is built, the example values (*hints*) answer questions such as "do these sizes broadcast?". An answer that
//! does not hold for all sizes is recorded as a guard or as a replacement of a symbol. The graph then holds for all sizes
//! that satisfy its guards, not only for the example.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim::{Bindings, Dim, Symbol};
use crate::error::{Error, Result, SourcePlace};
use crate::shape::Shape;

/// The comparison of a guard.
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

/// Adds the example's values of the sizes that a message names: `x_0 and y_0 differ (x_0 = 2, y_0 = 3 in the example)`.
pub fn with_example_sizes(message: &str, hints: &Bindings) -> String {
    with_values_of_sizes(message, hints, " in the example")
}

/// Adds the values of the sizes that a message names: `x_0 and y_0 differ (x_0 = 2, y_0 = 3)`.
pub fn with_sizes(message: &str, sizes: &Bindings) -> String {
    with_values_of_sizes(message, sizes, "")
}

fn with_values_of_sizes(message: &str, values: &Bindings, remark: &str) -> String {
    let words = message.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut sizes: Vec<String> = Vec::new();
    for word in words {
        let is_told = message.contains(&format!("{word} = "));
        let size = values.get(word).filter(|_| !is_told);
        let size = size.map(|value| format!("{word} = {value}"));
        sizes.extend(size.filter(|size| !sizes.contains(size)));
    }
    match sizes.as_slice() {
        [] => message.to_string(),
        sizes => format!("{message} ({}{remark})", sizes.join(", ")),
    }
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
    /// The place in the model that needed the answer.
    #[serde(default, skip_serializing_if = "SourcePlace::is_unknown")]
    pub place: SourcePlace,
}

impl Guard {
    /// A condition without a place in the model.
    pub fn new(left: Dim, relation: Relation, right: Dim) -> Guard {
        Guard {
            left,
            relation,
            right,
            place: SourcePlace::default(),
        }
    }

    /// True if the guard is satisfied by the given sizes.
    pub fn holds(&self, bindings: &Bindings) -> Result<bool> {
        let (left, right) = (self.left.eval(bindings)?, self.right.eval(bindings)?);
        Ok(self.relation.holds(left, right))
    }

    /// The symbol and its lower bound, if the guard states just that.
    fn lower_bound(&self) -> Option<(Symbol, i64)> {
        let difference = &self.right - &self.left;
        let bound = difference.constant_term();
        let symbol = (&difference - bound).as_symbol().cloned()?;
        (self.relation == Relation::LessEqual).then_some((symbol, -bound))
    }

    /// True if every size satisfies the guard, because its sides differ by a constant.
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

/// Solves for the symbols such that every size has the value paired with it.
///
/// A symbol that occurs alone gets its value directly; others are solved for. A symbol that cannot be solved for is 0, so
/// that a later comparison of the sizes finds the mismatch.
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

/// Hints, replacements and guards. Queries record their answers through a shared reference while a graph is built.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    state: RefCell<SymbolState>,
}

#[derive(Clone, Debug, Default)]
struct SymbolState {
    hints: Bindings,
    replacements: BTreeMap<Symbol, Dim>,
    guards: Vec<Guard>,
    /// Lower bounds of symbols for which a guard requires more than 0.
    lower_bounds: Bindings,
    place: SourcePlace,
}

impl Symbols {
    /// A table with example values and the guards known so far.
    pub fn new(hints: Bindings, guards: Vec<Guard>) -> Symbols {
        let mut state = SymbolState {
            hints,
            ..SymbolState::default()
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

    /// True if a symbol of this name was declared.
    pub fn is_declared(&self, name: &str) -> bool {
        self.state.borrow().hints.contains_key(name)
    }

    /// Sets the place in the model for guards that are recorded from now on.
    pub fn set_place(&self, place: SourcePlace) {
        self.state.borrow_mut().place = place;
    }

    /// Example values of the symbols that are not replaced.
    pub fn hints(&self) -> Bindings {
        let state = self.state.borrow();
        state
            .hints
            .iter()
            .filter(|(name, _)| !state.replacements.contains_key(*name))
            .map(|(n, v)| (n.clone(), *v))
            .collect()
    }

    /// The guards, with replacements applied, without those that always hold.
    pub fn guards(&self) -> Vec<Guard> {
        let state = self.state.borrow();
        let mut guards: Vec<Guard> = Vec::new();
        for guard in &state.guards {
            let guard = Guard {
                left: guard.left.substitute(&state.replacements),
                right: guard.right.substitute(&state.replacements),
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

    /// Applies the replacements to a size.
    pub fn resolve(&self, dim: &Dim) -> Dim {
        let state = self.state.borrow();
        // Most sizes contain no replaced symbol, and checking that is far cheaper than rebuilding them.
        if !dim.mentions(&|symbol| state.replacements.contains_key(symbol)) {
            return dim.clone();
        }
        dim.substitute(&state.replacements)
    }

    /// The value of a size for the example; an error names a symbol without a hint.
    pub fn hint(&self, dim: &Dim) -> Result<i64> {
        let dim = self.resolve(dim);
        dim.eval(&self.state.borrow().hints)
    }

    /// Specialises a size to a number: its symbols are fixed to their example values.
    pub fn specialize(&self, dim: &Dim) -> Result<i64> {
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

    /// Whether two sizes are equal; an answer that depends on symbols is recorded.
    pub fn equal(&self, a: &Dim, b: &Dim) -> Result<bool> {
        let (a, b) = (self.resolve(a), self.resolve(b));
        let difference = &a - &b;
        if let Some(difference) = difference.as_const() {
            return Ok(difference == 0);
        }
        if [difference.clone(), -&difference]
            .iter()
            .any(|apart| self.lower_bound(apart) > Some(0))
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

    /// Whether `a <= b`; an answer that depends on symbols is recorded.
    pub fn less_equal(&self, a: &Dim, b: &Dim) -> Result<bool> {
        let (a, b) = (self.resolve(a), self.resolve(b));
        if let Some(difference) = (&a - &b).as_const() {
            return Ok(difference <= 0);
        }
        if self.lower_bound(&(&b - &a)).is_some_and(|least| least >= 0) {
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

    /// Whether a size is at least 1. An answer that depends on symbols is recorded; for a product, for each factor.
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

    /// A lower bound of a size: symbols are at least 0, or more if a guard says so.
    fn lower_bound(&self, dim: &Dim) -> Option<i64> {
        let state = self.state.borrow();
        dim.lower_bound(|name| state.lower_bounds.get(name).copied().unwrap_or(0))
    }

    /// Requires two sizes to be equal; `what` describes them in the error.
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

    /// Records conditions that hold for the example.
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

    /// The broadcast size of two dimensions.
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

    /// The broadcast shape of several operands, aligned at the last dimension.
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

    /// Records an equation: replaces a symbol if one can be solved for, else adds a guard.
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
        for replacement in state.replacements.values_mut() {
            *replacement = replacement.substitute(&one);
        }
        state.replacements.insert(symbol, value);
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

impl SymbolState {
    fn add(&mut self, guard: Guard) {
        if let Some((name, bound)) = guard.lower_bound() {
            let least = self.lower_bounds.entry(name).or_insert(0);
            *least = bound.max(*least);
        }
        self.guards.push(guard);
    }
}
