//! The importer's data of each scope: storages that a region writes, results without a name.

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
    /// Storages of enclosing scopes that were written in it, with their contents before.
    pub written: Vec<(Rc<Storage>, StorageState)>,
    /// Cells of enclosing scopes that were changed in it, with their contents before.
    pub changed: Vec<(MutableCell, Datum)>,
    /// Results of nodes that have no name of the user's yet.
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

    /// Closes the body of a region. Restores the contents of storages and cells of enclosing scopes.
    pub(super) fn close_scope(&mut self) -> Result<ImportScope> {
        let mut scope = self.scopes.close()?;
        swap_contents(&mut scope.data);
        Ok(scope)
    }

    /// Reopens the body of a region that was closed.
    pub(super) fn reopen_scope(&mut self, mut scope: ImportScope) {
        swap_contents(&mut scope.data);
        self.scopes.reopen(scope);
    }
}

/// Exchanges the contents of storages and cells with the contents recorded for them.
fn swap_contents(local: &mut ScopeData) {
    for (cell, content) in local.changed.iter_mut().rev() {
        let contents = cell.content();
        cell.set(std::mem::replace(content, contents));
    }
    for (storage, state) in local.written.iter_mut().rev() {
        let mut held = storage.state.borrow_mut();
        std::mem::swap(&mut *held, state);
        // A new version keeps values that are cached for one content from being used for the other.
        held.version = held.version.max(state.version) + 1;
    }
}
