//! The graph under construction and the bodies of regions within it.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::ir::{Builder, ValueId};
use crate::shape::TensorType;

use super::Importer;
use super::tensor::{Storage, StorageState, ValueRef};

/// A graph, or the body of a region.
pub struct Scope {
    /// Tells values of one scope from those of another; never used twice.
    pub number: u32,
    /// Its nodes.
    pub builder: Rc<Builder>,
    /// Values of the scope around it that the body uses, and its inputs that stand for them, in order.
    pub captures: Vec<(ValueRef, ValueId)>,
    /// Inputs that stand for no captured value: a loop's round and what it carries.
    pub own_inputs: Vec<ValueId>,
    /// Where each captured value stands in `captures`.
    known: BTreeMap<ValueRef, ValueId>,
    /// Storages of scopes around it that were written in it, with what they held before.
    pub written: Vec<(Rc<Storage>, StorageState)>,
    /// Results of nodes that bear no name of the user's yet.
    pub unnamed: HashSet<ValueId>,
}

impl Scope {
    /// The scope of a whole graph.
    pub fn root(name: &str) -> Scope {
        Scope::new(0, Builder::new(name))
    }

    fn new(number: u32, builder: Builder) -> Scope {
        Scope {
            number,
            builder: Rc::new(builder),
            captures: Vec::new(),
            own_inputs: Vec::new(),
            known: BTreeMap::new(),
            written: Vec::new(),
            unnamed: HashSet::new(),
        }
    }
}

impl Importer<'_> {
    /// The innermost scope.
    pub(super) fn scope(&self) -> &Scope {
        self.regions.last().unwrap_or(&self.root)
    }

    pub(super) fn scope_mut(&mut self) -> &mut Scope {
        self.regions.last_mut().unwrap_or(&mut self.root)
    }

    /// All scopes, outermost first.
    fn scopes(&self) -> impl Iterator<Item = &Scope> {
        std::iter::once(&self.root).chain(&self.regions)
    }

    /// The graph that nodes are added to.
    pub(super) fn builder(&self) -> Rc<Builder> {
        self.scope().builder.clone()
    }

    /// How many regions lie around the statement that is run.
    pub(super) fn depth(&self) -> usize {
        self.regions.len()
    }

    /// Opens the body of a region.
    pub(super) fn open_scope(&mut self) {
        let builder = self.builder().scratch();
        builder.set_place(&self.place);
        self.regions.push(Scope::new(self.next_scope, builder));
        self.next_scope += 1;
    }

    /// Closes the body of a region; storages around it hold again what they held before.
    pub(super) fn close_scope(&mut self) -> Result<Scope> {
        let closed = self.regions.pop();
        let mut scope = closed.ok_or_else(|| Error::internal("no region is open"))?;
        exchange(&mut scope.written);
        Ok(scope)
    }

    /// Goes on with the body of a region that was closed.
    pub(super) fn reopen_scope(&mut self, mut scope: Scope) {
        exchange(&mut scope.written);
        self.regions.push(scope);
    }

    /// True if the value belongs to the graph or to a region around the statement that is run.
    pub(super) fn is_open(&self, value: ValueRef) -> bool {
        self.scopes().any(|scope| scope.number == value.scope)
    }

    /// A value's type, whichever open scope it belongs to.
    pub(super) fn type_of(&self, value: ValueRef) -> Result<TensorType> {
        let scope = self.scopes().find(|scope| scope.number == value.scope);
        let scope =
            scope.ok_or_else(|| Error::internal("a value is used outside of its region"))?;
        Ok(scope.builder.ty(value.id))
    }

    /// The value in the innermost graph: itself, or the input of the region's body that stands for it.
    pub(super) fn captured(&mut self, value: ValueRef) -> Result<ValueId> {
        let mut scopes = std::iter::once(&mut self.root).chain(&mut self.regions);
        let owner = scopes.find(|scope| scope.number == value.scope);
        let owner =
            owner.ok_or_else(|| Error::internal("a value is used outside of its region"))?;
        let mut outer = value;
        let mut ty = owner.builder.ty(value.id);
        for scope in scopes {
            let id = match scope.known.get(&outer) {
                Some(id) => *id,
                None => {
                    let id = scope.builder.input("captured", ty.clone()).id();
                    scope.captures.push((outer, id));
                    scope.known.insert(outer, id);
                    id
                }
            };
            ty = scope.builder.ty(id);
            outer = ValueRef {
                scope: scope.number,
                id,
            };
        }
        Ok(outer.id)
    }
}

/// Exchanges what storages hold with what is kept for them.
fn exchange(written: &mut [(Rc<Storage>, StorageState)]) {
    for (storage, state) in written.iter_mut().rev() {
        let mut held = storage.state.borrow_mut();
        std::mem::swap(&mut *held, state);
        // Values cached for either content must not be taken for the other's.
        held.version = held.version.max(state.version) + 1;
    }
}
