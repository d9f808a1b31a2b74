//! The importer's data of each scope (a graph or the body of a region): storages that it writes, cells that it changes,
//! results without a name.

use std::collections::HashSet;
use std::rc::Rc;

use crate::error::Result;
use crate::ir::{Builder, ValueId};
use crate::trace::scope_stack;

use super::Importer;
use super::datum::Datum;
use super::mutable_cell::MutableCell;
use super::tensor::{Storage, StorageState};

/// A graph, or the body of a region.
pub type ImportScope = scope_stack::GraphScope<ScopeData>;

/// Data that the importer keeps for a scope.
#[derive(Default)]
pub struct ScopeData {
    /// Storages of enclosing scopes that this scope wrote, with their contents before. In a closed scope, with their
    /// contents after.
    pub written: Vec<(Rc<Storage>, StorageState)>,
    /// Cells of enclosing scopes that this scope changed, with their contents before. In a closed scope, with their
    /// contents after.
    pub changed: Vec<(MutableCell, Datum)>,
    /// Results of nodes that no variable of the program has given its name yet.
    pub unnamed: HashSet<ValueId>,
}

impl Importer<'_> {
    /// Builder of the innermost graph.
    pub(super) fn builder(&self) -> Rc<Builder> {
        self.scopes.innermost().builder.clone()
    }

    /// Data of the innermost scope.
    pub(super) fn scope_data(&mut self) -> &mut ScopeData {
        &mut self.scopes.innermost_mut().data
    }

    /// Opens the body of a region.
    pub(super) fn open_scope(&mut self) {
        self.scopes.open();
        self.scopes.innermost().builder.set_place(&self.place);
    }

    /// Closes the body of a region and returns it. Storages and cells of enclosing scopes get the contents back that
    /// they had before.
    pub(super) fn close_scope(&mut self) -> Result<ImportScope> {
        let mut scope = self.scopes.close()?;
        swap_contents(&mut scope.data);
        Ok(scope)
    }

    /// Reopens the body of a region that was closed. Storages and cells get the contents that they had in it.
    pub(super) fn reopen_scope(&mut self, mut scope: ImportScope) {
        swap_contents(&mut scope.data);
        self.scopes.reopen(scope);
    }
}

/// Exchanges the current contents of storages and cells with the contents recorded for them.
fn swap_contents(data: &mut ScopeData) {
    for (cell, recorded) in data.changed.iter_mut().rev() {
        let current = cell.content();
        cell.set(std::mem::replace(recorded, current));
    }
    for (storage, recorded) in data.written.iter_mut().rev() {
        let mut current = storage.state.borrow_mut();
        std::mem::swap(&mut *current, recorded);
        // With a new version, values that are cached for the previous contents are not used for the new ones.
        current.version = current.version.max(recorded.version) + 1;
    }
}
