//! Storages in a trace: reads and writes of their current values, and the weights that tensors from outside of the trace
//! become.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::{Error, Result, SourcePlace};
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::trace::check::Id;
use crate::trace::scope_stack::ValueRef;
use crate::trace::views::write_through;

use crate::trace::native::host_views::write_view;
use crate::trace::native::storage::{Contents, TracedOrigin, TracedStorage, other_trace};
use crate::trace::native::storage_values::{RecordedValue, StorageValue, StorageValues};
use crate::trace::native::tensor::TracedTensor;

use super::Recorder;

impl Recorder {
    /// Stores a value to a buffer; it outlives the call.
    pub fn store(&self, buffer: &TracedTensor, value: &TracedTensor) -> Result<()> {
        if matches!(
            buffer.storage_view().storage.origin,
            TracedOrigin::Recorded(..)
        ) {
            let error = Error::usage("only a parameter or buffer can be stored to");
            return Err(error.help("make it a field of the module"));
        }
        let (wanted, found) = (buffer.value()?.tensor_type(), value.ty()?);
        if wanted != found {
            let message = format!("expected a value of type {wanted} for a buffer, got {found}");
            return Err(Error::input(message));
        }
        let place = self.innermost().0.place();
        self.write(buffer, value, &place)
    }

    /// Replaces the elements of a tensor by those of `value`, which has the tensor's type.
    pub fn write(
        &self,
        target: &TracedTensor,
        value: &TracedTensor,
        place: &SourcePlace,
    ) -> Result<()> {
        let (builder, _) = self.innermost();
        builder.set_place(place);
        let value = self.read(value)?;
        let view = target.storage_view();
        let (base, _) = self.storage_value(&view.storage)?;
        let symbolic = view.in_trace(self.number)?;
        let contents = match symbolic.is_whole() {
            true => value,
            false => {
                let example = write_view(&view.concrete, &base.example, &value.example)?;
                let mut scopes = self.scopes.borrow_mut();
                let (base, value) = (scopes.capture(base.id)?, scopes.capture(value.id)?);
                let id = write_through(&mut scopes, symbolic, base, value)?;
                drop(scopes);
                let id = self.value_ref(id);
                RecordedValue { id, example }
            }
        };
        let conditions = view.storage.take_conditions(self.number);
        builder.symbols().assume(&conditions)?;
        self.storage_values
            .borrow_mut()
            .insert(view.storage, contents);
        Ok(())
    }

    /// Current values of the storages that were written.
    pub fn storage_values(&self) -> &RefCell<StorageValues> {
        &self.storage_values
    }

    /// The value of a storage that was written in this trace.
    pub fn written(&self, storage: &TracedStorage) -> Option<StorageValue> {
        self.storage_values.borrow().get(storage).cloned()
    }

    /// True if the tensor's value may differ between calls of the graph: it is a value of the trace, a parameter or buffer,
    /// or was written.
    pub fn may_change(&self, tensor: &TracedTensor) -> bool {
        let storage = tensor.storage_view().storage;
        self.written(&storage).is_some() || !matches!(storage.origin, TracedOrigin::Data(_))
    }

    /// Name of the weight that a tensor is, if it has one.
    pub fn weight_name(&self, tensor: &TracedTensor) -> Option<String> {
        let names = self.names.borrow();
        let name = names.weights.get(&tensor.storage_view().storage.address());
        name.map(|(name, _)| name.clone())
    }

    /// Name of the state that a written storage is; none for memory that each call makes anew.
    pub(super) fn state_name(&self, storage: &TracedStorage) -> Option<String> {
        let names = self.names.borrow();
        let name = names.weights.get(&storage.address());
        match storage.origin {
            TracedOrigin::Data(_) | TracedOrigin::Recorded(..) => None,
            TracedOrigin::Host | TracedOrigin::Parameter => name.map(|(name, _)| name.clone()),
        }
    }

    /// True if the storage was made outside of traces or in a scope that is open.
    pub fn outlives_scope(&self, storage: &TracedStorage) -> bool {
        let scopes = self.scopes.borrow();
        let is_open = |number| scopes.iter().any(|scope| scope.number == number);
        storage
            .scope
            .is_none_or(|(trace, scope)| trace != self.number || is_open(scope))
    }

    /// The current value of a tensor. A tensor from outside of the trace becomes a weight, and a view whose storage was
    /// written since it was read is read again.
    pub fn read(&self, tensor: &TracedTensor) -> Result<RecordedValue> {
        let view = tensor.storage_view();
        let (base, version) = self.storage_value(&view.storage)?;
        let symbolic = view.in_trace(self.number)?;
        if symbolic.is_whole() {
            return Ok(base);
        }
        let recorded = tensor.recorded_at(version, self.number);
        if let Some(id) = recorded.filter(|id| self.scopes.borrow().is_open(*id)) {
            let example = tensor.value()?;
            return Ok(RecordedValue { id, example });
        }
        let mut scopes = self.scopes.borrow_mut();
        let mut id = scopes.capture(base.id)?;
        for step in &symbolic.steps {
            id = step.replay(&mut scopes, id)?;
        }
        drop(scopes);
        let value = RecordedValue {
            id: self.value_ref(id),
            example: tensor.value()?,
        };
        tensor.set_recorded(version, self.number, &value);
        Ok(value)
    }

    /// The current value of a storage, with its version.
    pub fn storage_value(&self, storage: &Arc<TracedStorage>) -> Result<(RecordedValue, u64)> {
        if let Some(written) = self.written(storage) {
            self.require_open(written.value.id)?;
            return Ok((written.value, written.version));
        }
        let Contents { value, version } = storage.contents();
        let example = value?;
        let id = match storage.origin {
            TracedOrigin::Recorded(number, id) if number == self.number => self.require_open(id)?,
            TracedOrigin::Recorded(..) => return Err(other_trace()),
            _ => self.weight(storage, &example)?,
        };
        Ok((RecordedValue { id, example }, version))
    }

    /// Returns the value unless its branch or loop has ended.
    pub(super) fn require_open(&self, value: ValueRef) -> Result<ValueRef> {
        if self.scopes.borrow().is_open(value) {
            return Ok(value);
        }
        let error = Error::usage("a tensor made inside of a branch or loop is used outside of it");
        Err(error.help("return it from the branch or loop"))
    }

    /// Adds a storage from outside of the trace as a weight: under a parameter's name, or as a constant with a warning.
    fn weight(&self, storage: &Arc<TracedStorage>, value: &Tensor) -> Result<ValueRef> {
        let known = self.names.borrow().weights.get(&storage.address()).cloned();
        let ty = value.tensor_type();
        let name = match known {
            Some((name, _)) => name,
            None => self.new_constant(storage, &ty),
        };
        self.weights
            .borrow_mut()
            .insert(name.clone(), value.clone());
        Ok(self.scopes.borrow().weight(&name, ty))
    }

    /// Names a storage without a name as a new constant. Warns unless it is a parameter.
    fn new_constant(&self, storage: &Arc<TracedStorage>, ty: &TensorType) -> String {
        let mut names = self.names.borrow_mut();
        let name = names.unique("constant");
        names.insert(name.clone(), storage);
        match &storage.origin {
            TracedOrigin::Data(place) => {
                self.warn(
                    Id::DataConstructor,
                    format!("{ty}, made from host data, became the constant {name}"),
                    place,
                );
            }
            TracedOrigin::Parameter => {}
            _ => {
                let place = self.scopes.borrow().innermost().builder.place();
                self.warn(
                    Id::CapturedConstant,
                    format!("{ty}, made outside of the trace, became the constant {name}"),
                    &place,
                );
            }
        }
        name
    }
}
