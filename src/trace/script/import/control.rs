//! Conditions. A known condition selects a branch. A condition that depends on tensors becomes a region with both
//! branches, whose results are the merged values ([`super::merge`]) of variables, cells and storages that the branches
//! change.

use std::rc::Rc;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, SourcePlace};
use crate::ir::{Argument, Graph, Region, ValueId};
use crate::shape::TensorType;
use crate::trace::script::ast::Stmt;

use super::Importer;
use super::assigned::{assigned, assigned_in_either};
use super::datum::{Datum, NumberKind};
use super::evaluate::CallFrame;
use super::merge::{ResultSlot, Template};
use super::mutable_cell::{MutableCell, ResultTarget};
use super::scope::ImportScope;
use super::tensor::{Storage, TensorRef};
use crate::trace::region_bodies::RegionBody;

/// An exception that the program raises.
#[derive(Clone)]
pub struct RaisedException {
    /// Its class and message.
    pub message: String,
    /// Where it is raised.
    pub place: SourcePlace,
}

/// A branch after its statements were run.
struct Branch {
    /// Its closed region body.
    scope: ImportScope,
    /// The variables at its end.
    frame: CallFrame,
}

impl Importer<'_> {
    /// Runs the branch that is taken, or both if the condition is known only when the graph runs.
    pub(super) fn if_statement(
        &mut self,
        frame: &mut CallFrame,
        condition: Datum,
        then: &[Stmt],
        otherwise: &[Stmt],
    ) -> Result<Option<Datum>> {
        match &condition {
            Datum::Number(number) => {
                let taken = number.is_truthy(self.builder().symbols())?;
                self.run_block(frame, if taken { then } else { otherwise })
            }
            Datum::Unknown => {
                self.scan_for_unsupported(frame, then);
                self.scan_for_unsupported(frame, otherwise);
                Ok(None)
            }
            Datum::Tensor(tensor) | Datum::Dynamic(_, tensor) => {
                let condition = self.converted(NumberKind::Bool, &Datum::Tensor(tensor.clone()))?;
                match &condition {
                    Datum::Dynamic(_, tensor) => {
                        self.condition_region(frame, &tensor.clone(), then, otherwise)?;
                        Ok(None)
                    }
                    known => self.if_statement(frame, known.clone(), then, otherwise),
                }
            }
            other => {
                let message = format!("a {} cannot be a condition", other.describe());
                Err(Error::source(message))
            }
        }
    }

    /// Runs statements only to list further unsupported operations, because their condition is not known. The variables
    /// that they assign become unknown.
    pub(super) fn scan_for_unsupported(&mut self, frame: &mut CallFrame, body: &[Stmt]) {
        let mut inner = frame.clone();
        // Any other error may follow from the unsupported operation that is listed already.
        if let Err(error) = self.run_block(&mut inner, body)
            && error.kind() == ErrorKind::Unsupported
        {
            self.unsupported(error);
        }
        self.raised = None;
        for name in assigned(body) {
            frame.locals.insert(name, Datum::Unknown);
        }
    }

    /// Makes a region of both branches. A branch that raises an exception is replaced by a check that it is not taken.
    fn condition_region(
        &mut self,
        frame: &mut CallFrame,
        condition: &TensorRef,
        then: &[Stmt],
        otherwise: &[Stmt],
    ) -> Result<()> {
        let generator_before = self.generator;
        let taken = self.branch(frame, then)?;
        let generator_after_then = std::mem::replace(&mut self.generator, generator_before);
        let taken = match taken {
            Ok(taken) => taken,
            Err(raised) => {
                self.assert_not_taken(condition, true, raised)?;
                self.run_block(frame, otherwise)?;
                return Ok(());
            }
        };
        let other = match self.branch(frame, otherwise)? {
            Ok(other) => other,
            Err(raised) => {
                self.generator = generator_before;
                self.assert_not_taken(condition, false, raised)?;
                self.run_block(frame, then)?;
                return Ok(());
            }
        };
        // Both branches start at one counter. Later calls continue at the larger of the counters that they reach.
        self.generator.counter = self.generator.counter.max(generator_after_then.counter);
        self.merge_branches(
            frame,
            condition,
            taken,
            other,
            &assigned_in_either(then, otherwise),
        )
    }

    /// Adds an assertion that a branch that raises an exception is not taken. `is_then` is true for the branch of a
    /// true condition.
    fn assert_not_taken(
        &mut self,
        condition: &TensorRef,
        is_then: bool,
        raised: RaisedException,
    ) -> Result<()> {
        let condition = self.read(condition)?;
        let builder = self.builder();
        builder.set_place(&raised.place);
        let condition = builder.value(condition).to_bool();
        let expected = match is_then {
            true => condition.logical_not(),
            false => condition,
        };
        expected.check_true(raised.message);
        builder.check()
    }

    /// Runs statements in a new region body. Returns the branch, or the exception that they raise.
    fn branch(
        &mut self,
        frame: &CallFrame,
        body: &[Stmt],
    ) -> Result<Result<Branch, RaisedException>> {
        let mut frame = frame.clone();
        self.open_scope();
        let result = self.run_block(&mut frame, body);
        let scope = self.close_scope()?;
        match (result, self.raised.take()) {
            (Err(_), Some(raised)) => Ok(Err(raised)),
            (Err(error), None) => Err(error),
            (Ok(Some(_)), _) => {
                let message = "a `return` within a branch that depends on tensors";
                Err(Error::unsupported(message))
            }
            (Ok(None), _) => Ok(Ok(Branch { scope, frame })),
        }
    }

    /// Makes a region of two branches, and binds the variables that they assign (`names`) and the cells and storages
    /// that they change to its results.
    fn merge_branches(
        &mut self,
        frame: &mut CallFrame,
        condition: &TensorRef,
        then: Branch,
        otherwise: Branch,
        names: &[String],
    ) -> Result<()> {
        let mut slots = Vec::new();
        let mut bindings = Vec::new();
        for name in names {
            let pair = (
                then.frame.locals.get(name),
                otherwise.frame.locals.get(name),
            );
            if let (Some(a), Some(b)) = pair {
                self.charge_walk(a)?;
                self.charge_walk(b)?;
                let template = self.merge(a, b, &mut slots);
                bindings.push((ResultTarget::Variable(name.clone()), template));
            }
        }
        self.merge_cells(&then.scope, &otherwise.scope, &mut bindings, &mut slots)?;
        let written = written_by(&[&then.scope, &otherwise.scope]);
        for storage in &written {
            slots.push(ResultSlot::Storage(storage.clone()));
        }
        let scopes = [&then.scope, &otherwise.scope];
        if slots.is_empty() && scopes.iter().any(|scope| scope.builder.has_side_effect()) {
            // A region has at least one result.
            slots.push(ResultSlot::Value(
                Some(NumberKind::Bool),
                Datum::bool(true),
                Datum::bool(true),
            ));
        }
        if slots.is_empty() {
            return self.bind_templates(frame, bindings, &[]);
        }
        let (then, then_ids) = self.branch_outputs(then.scope, &slots, true, &[])?;
        let then_types: Vec<TensorType> = then_ids.iter().map(|id| then.builder.ty(*id)).collect();
        let (otherwise, otherwise_ids) =
            self.branch_outputs(otherwise.scope, &slots, false, &then_types)?;
        let otherwise_types: Vec<TensorType> = otherwise_ids
            .iter()
            .map(|id| otherwise.builder.ty(*id))
            .collect();
        let (then, then_ids) = match slots.iter().any(ResultSlot::takes_type_of_second) {
            true => self.branch_outputs(then, &slots, true, &otherwise_types)?,
            false => (then, then_ids),
        };
        let types: Vec<TensorType> = then_ids.iter().map(|id| then.builder.ty(*id)).collect();
        for (then_type, otherwise_type) in types.iter().zip(&otherwise_types) {
            self.require_same_type(then_type, otherwise_type)?;
        }
        let condition = self.read(condition)?;
        let (graphs, captured) = self.scopes.close_bodies(vec![
            RegionBody::new(then, "then", then_ids),
            RegionBody::new(otherwise, "otherwise", otherwise_ids),
        ])?;
        let Ok([then, otherwise]) = <[Graph; 2]>::try_from(graphs) else {
            return Err(Error::internal("an if must have two branches"));
        };
        let arguments = std::iter::once(Argument::Value(condition)).chain(captured);
        let arguments = arguments.collect();
        let region = Region::If { then, otherwise };
        let results = self.add_region(region, arguments, types);
        self.bind_results(frame, bindings, &slots, &results)
    }

    /// Merges the cells that either branch changes. Fails if the branches leave contents that cannot be merged.
    fn merge_cells(
        &mut self,
        then: &ImportScope,
        otherwise: &ImportScope,
        bindings: &mut Vec<(ResultTarget, Template)>,
        slots: &mut Vec<ResultSlot>,
    ) -> Result<()> {
        for cell in changed_by(&[then, otherwise]) {
            let [a, b] = [then, otherwise].map(|scope| content_after(scope, &cell));
            self.charge_walk(&a)?;
            self.charge_walk(&b)?;
            let template = self.merge(&a, &b, slots);
            if !template.is_usable() {
                let what = cell.describe();
                let message = format!("{what} has a different length or type after each branch");
                let help = "a condition that depends on tensors must leave lists of one length, and values of one type";
                return Err(Error::unsupported(message).help(help));
            }
            bindings.push((ResultTarget::Cell(cell), template));
        }
        Ok(())
    }

    /// Returns the values of a branch for the slots. `first` is true for the first branch. `wanted` holds the types
    /// that the other branch's values have; it is empty if they are not known yet.
    fn branch_outputs(
        &mut self,
        scope: ImportScope,
        slots: &[ResultSlot],
        first: bool,
        wanted: &[TensorType],
    ) -> Result<(ImportScope, Vec<ValueId>)> {
        self.reopen_scope(scope);
        let ids = self.slot_values(slots, first, wanted);
        let scope = self.close_scope()?;
        Ok((scope, ids?))
    }

    /// Returns the values of the open scope for the slots. Parameters as in [`Importer::branch_outputs`].
    fn slot_values(
        &mut self,
        slots: &[ResultSlot],
        first: bool,
        wanted: &[TensorType],
    ) -> Result<Vec<ValueId>> {
        let mut ids = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            let wanted = wanted.get(index);
            ids.push(match slot {
                ResultSlot::Storage(storage) => {
                    let value = self.storage_value(storage)?;
                    self.scopes.capture(value)?
                }
                ResultSlot::Value(kind, a, b) => {
                    let id = self.slot_value(if first { a } else { b }, wanted)?;
                    self.cast_to_kind(id, *kind)?
                }
            });
        }
        Ok(ids)
    }

    /// Returns the value for a slot. A number is converted to the dtype of the type `wanted`. A value that is never set
    /// becomes zeros of this type, or a scalar zero if there is none.
    pub(super) fn slot_value(
        &mut self,
        value: &Datum,
        wanted: Option<&TensorType>,
    ) -> Result<ValueId> {
        let builder = self.builder();
        let id = match (value, wanted) {
            (Datum::Uninitialized, Some(ty)) => builder.full(ty.dtype, ty.shape.clone(), 0).id(),
            (Datum::Uninitialized, None) => builder.full(DType::F32, [], 0).id(),
            (Datum::Tensor(tensor), _) if tensor.number().is_none() => self.read(tensor)?,
            (value, wanted) => {
                let tensor = self.as_tensor(value)?;
                let id = self.read(&tensor)?;
                wanted.map_or(id, |ty| builder.value(id).to(ty.dtype).id())
            }
        };
        builder.check()?;
        Ok(id)
    }

    /// Casts a number to the dtype that numbers of its Python type have as results of regions. Returns tensors (of no
    /// kind) unchanged.
    pub(super) fn cast_to_kind(&self, id: ValueId, kind: Option<NumberKind>) -> Result<ValueId> {
        let builder = self.builder();
        let value = builder.value(id);
        let value = match kind {
            None => value,
            Some(NumberKind::Bool) => value.to(DType::Bool),
            Some(NumberKind::Int) => value.to(DType::I64),
            Some(NumberKind::Float) => value.to(DType::F32),
        };
        builder.check()?;
        Ok(value.id())
    }

    /// Fails unless two types are equal. Sizes that are equal in the example are assumed to be equal, by guards.
    pub(super) fn require_same_type(&self, a: &TensorType, b: &TensorType) -> Result<()> {
        let builder = self.builder();
        let mut same = a.dtype == b.dtype && a.rank() == b.rank();
        for (a, b) in a.shape.iter().zip(&b.shape) {
            same = same && builder.symbols().hint(a)? == builder.symbols().hint(b)?;
            if same {
                builder.symbols().equal(a, b)?;
            }
        }
        if same {
            return Ok(());
        }
        let message = format!(
            "a condition or loop on tensors whose result is {a} on one path and {b} on another"
        );
        let help = "the result must have the same dtype and shape on every path";
        Err(Error::unsupported(message).help(help))
    }

    /// Adds a region to the innermost graph. Returns its results.
    pub(super) fn add_region(
        &mut self,
        region: Region,
        arguments: Vec<Argument>,
        types: Vec<TensorType>,
    ) -> Vec<ValueId> {
        let builder = self.builder();
        builder.set_place(&self.place);
        let results = builder.region(region, arguments, types);
        let ids: Vec<ValueId> = results.into_iter().map(|value| value.id()).collect();
        drop(builder);
        self.scope_data().unnamed.extend(ids.iter().copied());
        ids
    }

    /// Binds variables and cells to results, and gives storages that were written their new values.
    pub(super) fn bind_results(
        &mut self,
        frame: &mut CallFrame,
        bindings: Vec<(ResultTarget, Template)>,
        slots: &[ResultSlot],
        results: &[ValueId],
    ) -> Result<()> {
        let mut values = Vec::new();
        for (slot, id) in slots.iter().zip(results) {
            match slot {
                ResultSlot::Storage(storage) => {
                    self.set_storage(storage, *id);
                    values.push(Datum::None);
                }
                ResultSlot::Value(Some(kind), ..) => {
                    values.push(Datum::Dynamic(*kind, self.new_tensor(*id)));
                }
                ResultSlot::Value(None, ..) => values.push(Datum::Tensor(self.new_tensor(*id))),
            }
        }
        self.bind_templates(frame, bindings, &values)
    }

    /// Binds variables and cells to the values of their templates, in which `values` replace the results.
    fn bind_templates(
        &mut self,
        frame: &mut CallFrame,
        bindings: Vec<(ResultTarget, Template)>,
        values: &[Datum],
    ) -> Result<()> {
        for (target, template) in bindings {
            let value = self.instantiate(&template, values);
            match target {
                ResultTarget::Variable(name) => self.assign(frame, &name, value),
                ResultTarget::Cell(cell) => {
                    self.record_change(cell.clone())?;
                    cell.set(value);
                }
            }
        }
        Ok(())
    }
}

/// Cells of enclosing scopes that any of the scopes changes.
pub fn changed_by(scopes: &[&ImportScope]) -> Vec<MutableCell> {
    let mut cells: Vec<MutableCell> = Vec::new();
    for (cell, _) in scopes.iter().flat_map(|scope| &scope.data.changed) {
        if !cells.iter().any(|other| other.is_same(cell)) {
            cells.push(cell.clone());
        }
    }
    cells
}

/// Contents of a cell at the end of a closed scope.
fn content_after(scope: &ImportScope, cell: &MutableCell) -> Datum {
    let mut changed = scope.data.changed.iter();
    let recorded = changed.find(|(other, _)| other.is_same(cell));
    recorded.map_or_else(|| cell.content(), |(_, content)| content.clone())
}

/// Storages of enclosing scopes that any of the scopes writes.
fn written_by(scopes: &[&ImportScope]) -> Vec<Rc<Storage>> {
    let mut storages: Vec<Rc<Storage>> = Vec::new();
    for (storage, _) in scopes.iter().flat_map(|scope| &scope.data.written) {
        if !storages.iter().any(|other| Rc::ptr_eq(other, storage)) {
            storages.push(storage.clone());
        }
    }
    storages
}
