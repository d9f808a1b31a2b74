//! Writes to tensors: `add_`, `copy_`, and operators such as `t_` that change a tensor's view of its storage.

use crate::aten;
use crate::error::{Error, Result, SourcePlace};
use crate::tensor::Tensor;
use crate::trace::views::View;

use super::argument::Arg;
use super::call::{call_at, failed_at};
use super::call_site;
use super::host_views::write_view;
use super::recorder;
use super::storage::{Contents, TracedView};
use super::tensor::TracedTensor;
use super::undo_log;

/// Calls an operator that writes to its first argument, by the name of the operator without the write: `add` for `add_`.
pub(super) fn call_in_place(
    place: &SourcePlace,
    functional: &str,
    positional: Vec<Arg>,
    named: Vec<(&str, Arg)>,
) -> TracedTensor {
    let Some(Arg::Tensor(target)) = positional.first().cloned() else {
        let message = format!("the first argument of {functional}_ is no tensor");
        return failed_at(Error::operator(message), place);
    };
    let result = call_at(place, functional, positional, named).swap_remove(0);
    let name = format!("aten::{functional}");
    match aten::overloads(&name).any(|operator| operator.schema.is_view) {
        true => target.change_view_at(&result, place),
        false => target.write_at(&result, place),
    }
}

impl TracedTensor {
    /// Writes the result of an operator to this tensor, converted to its element type. All tensors that share its memory
    /// change. Returns the tensor, or the error if the result cannot be written; reads of the tensor fail then too.
    #[track_caller]
    pub(super) fn write(&self, result: &TracedTensor) -> TracedTensor {
        self.write_at(result, &call_site::caller())
    }

    /// [`write`](TracedTensor::write) with an explicit source place.
    pub(super) fn write_at(&self, result: &TracedTensor, place: &SourcePlace) -> TracedTensor {
        let converted = self.converted(result, place);
        match converted.and_then(|value| self.assign(&value, place)) {
            Ok(()) => self.clone(),
            Err(error) => self.fail(error, place),
        }
    }

    /// Changes this tensor's view of its storage to that of `result`.
    #[track_caller]
    pub(super) fn change_view(&self, result: &TracedTensor) -> TracedTensor {
        self.change_view_at(result, &call_site::caller())
    }

    fn change_view_at(&self, result: &TracedTensor, place: &SourcePlace) -> TracedTensor {
        if let Some(error) = result.error() {
            return self.fail(error, place);
        }
        if !self.is_of_innermost_scope() {
            let message = "an in-place change of the sizes of a tensor from outside of the trace, branch or loop";
            let error = Error::unsupported(message)
                .help("use the operator without `_`, whose result is a view");
            return self.fail(error, place);
        }
        self.set_view(result.storage_view());
        self.clone()
    }

    /// Records an error and makes it the value of this tensor's storage. Returns the failed tensor.
    fn fail(&self, error: Error, place: &SourcePlace) -> TracedTensor {
        let failed = failed_at(error, place);
        if let (false, Some(error)) = (recorder::is_tracing(), failed.error()) {
            undo_log::set_contents(&self.storage_view().storage, Contents::new(Err(error)));
        }
        failed
    }

    /// Returns a value with the element type and shape of this tensor.
    ///
    /// # Errors
    /// The value's element type is of a higher category, or its shape differs.
    fn converted(&self, value: &TracedTensor, place: &SourcePlace) -> Result<TracedTensor> {
        let (target, new) = (self.ty()?, value.ty()?);
        if new.dtype.category() > target.dtype.category() {
            let message = format!("{new} can't be written to {target}");
            return Err(Error::operator(message));
        }
        if self.value()?.shape() != value.value()?.shape() {
            let message = format!("{new} is written to {target} of another shape");
            return Err(Error::operator(message));
        }
        let mut value = value.clone();
        if new.dtype != target.dtype {
            let arguments = vec![Arg::from(&value), Arg::DType(target.dtype)];
            value = call_at(place, "to", arguments, Vec::new()).swap_remove(0);
        }
        if new.shape != target.shape {
            let arguments = vec![Arg::from(&value), Arg::of_shape(&target.shape)?];
            value = call_at(place, "expand", arguments, Vec::new()).swap_remove(0);
        }
        Ok(value)
    }

    /// Replaces the elements of this tensor by those of `value`, which has the tensor's type.
    pub(super) fn assign(&self, value: &TracedTensor, place: &SourcePlace) -> Result<()> {
        match recorder::active() {
            Some(recorder) => recorder.write(self, value, place),
            None => self.assign_on_host(&value.value()?),
        }
    }

    /// Replaces the elements of this tensor by those of `value`, which has the tensor's type, without recording it.
    pub(super) fn assign_on_host(&self, value: &Tensor) -> Result<()> {
        let view = self.storage_view();
        let contents = match view.is_whole() {
            true => value.clone(),
            false => write_view(&view.concrete, &view.storage.contents().value?, value)?,
        };
        undo_log::set_contents(&view.storage, Contents::new(Ok(contents)));
        Ok(())
    }

    /// Replaces the value of a whole storage by one of another element type.
    pub(super) fn replace_contents(&self, value: Tensor) {
        undo_log::set_contents(&self.storage_view().storage, Contents::new(Ok(value)));
    }

    /// A view of the whole storage as a vector, in the order of its memory.
    ///
    /// # Errors
    /// The memory has gaps or overlaps.
    pub(super) fn memory(&self) -> Result<TracedTensor> {
        let storage = self.storage_view().storage;
        let scratch = crate::ir::Builder::new("memory");
        let mut view = TracedView::whole(storage.clone());
        view.concrete = View::of_memory(&scratch, &storage.geometry.concrete)?;
        if let (Some(recorder), Some((trace, guarded))) =
            (recorder::active(), &storage.geometry.symbolic)
        {
            let (builder, _) = recorder.innermost();
            view.symbolic = Some((*trace, View::of_memory(&builder, guarded)?));
        }
        Ok(TracedTensor::of_uncached_view(view))
    }
}
