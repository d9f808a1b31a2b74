//! Operators that write: `relu_`, `copy_`, `index_put_`, `out=`. Each is replaced by its functional form, which has no
//! side effect, and a new value of the target's storage.

use std::rc::Rc;

use crate::aten;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::trace::scope_stack::ValueRef;
use crate::trace::views::write_through;

use super::Importer;
use super::call::Arguments;
use super::datum::Datum;
use super::number::ScriptNumber;
use super::tensor::{HostNumber, Storage, TensorRef};

/// Batch normalisations whose arguments begin with input, weight, bias, running mean, running variance, a flag for
/// training, momentum and epsilon.
const BATCH_NORMS: [&str; 3] = [
    "aten::batch_norm",
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
];

impl Importer<'_> {
    /// Calls an operator whose name ends in `_`. Writes the result of its functional form to the first argument, and returns
    /// that argument.
    pub(super) fn write_in_place(
        &mut self,
        name: &str,
        functional: &str,
        arguments: Arguments,
    ) -> Result<Datum> {
        let Some(Datum::Tensor(target)) = arguments.positional.first().cloned() else {
            return self.tensor_operator(name, arguments);
        };
        if let Some(result) = self.view_in_place(&target, functional, &arguments)? {
            return Ok(result);
        }
        let value = match (functional, arguments.positional.get(1)) {
            ("aten::copy", Some(source)) => source.clone(),
            ("aten::fill", Some(number)) => number.clone(),
            ("aten::zero", _) => Datum::Number(ScriptNumber::int(0)),
            _ => self.operator(functional, arguments)?,
        };
        if value.is_unknown() {
            return Ok(Datum::Unknown);
        }
        let source = self.as_tensor(&value)?;
        self.write(&target, &source)?;
        Ok(Datum::Tensor(target))
    }

    /// Calls an operator that changes a tensor's view of its memory and writes nothing: `t_`, `squeeze_`, `as_strided_`,
    /// `set_`. None for other operators.
    fn view_in_place(
        &mut self,
        target: &TensorRef,
        functional: &str,
        arguments: &Arguments,
    ) -> Result<Option<Datum>> {
        let source = match (functional, arguments.positional.get(1)) {
            ("aten::set", Some(Datum::Tensor(source))) => source.clone(),
            ("aten::resize", Some(sizes)) => self.resized_view(target, &sizes.clone())?,
            ("aten::resize_as", Some(Datum::Tensor(other))) => {
                let sizes = self.ty(&other.clone())?.shape;
                let sizes = self.list(sizes.into_iter().map(Datum::int).collect());
                self.resized_view(target, &sizes)?
            }
            _ if aten::overloads(functional).any(|operator| operator.schema.is_view) => {
                match self.operator(functional, arguments.clone())? {
                    Datum::Tensor(view) => view,
                    other => return Ok(Some(other)),
                }
            }
            _ => return Ok(None),
        };
        if target.depth < self.scopes.depth() {
            let message =
                format!("{functional}_ within a branch or loop, on a tensor from outside of it");
            let help = "use the operator without `_`, whose result is a view";
            let error = Error::unsupported(message).help(help);
            return Ok(Some(self.unsupported(error)));
        }
        target.set_view(source.view());
        Ok(Some(Datum::Tensor(target.clone())))
    }

    /// Returns a contiguous view of the start of a tensor's memory with other sizes (`Tensor.resize_`). If the memory
    /// has too few elements, the view is of a copy padded with zeros.
    fn resized_view(&mut self, target: &TensorRef, sizes: &Datum) -> Result<TensorRef> {
        let memory = self.memory_of(target)?;
        let items = sizes.items().unwrap_or_else(|| vec![sizes.clone()]);
        let mut numel = ScriptNumber::int(1);
        for item in &items {
            let Datum::Number(ScriptNumber::Int(size)) = item else {
                return Err(Error::unsupported("a size that depends on tensors"));
            };
            let dim = numel.to_int(self.builder().symbols())?;
            numel = ScriptNumber::Int(&dim * size);
        }
        let wanted_numel = numel.to_int(self.builder().symbols())?;
        let memory_numel = self.ty(&memory)?.numel();
        let fits = self
            .builder()
            .symbols()
            .less_equal(&wanted_numel, &memory_numel)?;
        let memory = match fits {
            true => memory,
            false => self.zero_padded(&memory, &(&wanted_numel - &memory_numel))?,
        };
        let narrow_arguments = vec![
            Datum::Tensor(memory),
            Datum::int(0),
            Datum::int(0),
            Datum::int(wanted_numel),
        ];
        let elements = self.operator("aten::narrow", narrow_arguments.into())?;
        let resized = self.operator("aten::view", vec![elements, self.list(items)].into())?;
        self.as_tensor(&resized)
    }

    /// Returns a new vector: `vector` with this number of zeros appended.
    fn zero_padded(&mut self, vector: &TensorRef, zeros: &Dim) -> Result<TensorRef> {
        let id = self.read(vector)?;
        let builder = self.builder();
        let longer = builder
            .value(id)
            .pad(&[Dim::ZERO], std::slice::from_ref(zeros), 0);
        let id = longer.id();
        builder.check()?;
        Ok(self.new_tensor(id))
    }

    /// Calls an operator with `out=`, or with one such argument for each of its results. `outs` are the names of these
    /// arguments. Returns the tensors that were written.
    pub(super) fn write_out(
        &mut self,
        name: &str,
        mut arguments: Arguments,
        outs: &[String],
    ) -> Result<Datum> {
        let (targets, named) = arguments
            .named
            .into_iter()
            .partition(|(name, _)| outs.contains(name));
        arguments.named = named;
        let value = self.operator(name, arguments)?;
        let targets: Vec<(String, Datum)> = targets;
        let sources = value.items().unwrap_or_else(|| vec![value.clone()]);
        for ((_, target), source) in targets.iter().zip(&sources) {
            if let (Datum::Tensor(target), Datum::Tensor(source)) = (target, source) {
                self.write_result(target, source)?;
            }
        }
        let mut targets = targets.into_iter().map(|(_, target)| target);
        Ok(match value {
            Datum::Unknown => value,
            Datum::Tensor(_) => targets.next().unwrap_or(value),
            _ => Datum::tuple(targets.collect()),
        })
    }

    /// Writes a result to a tensor. A tensor of other sizes takes the sizes of the result, as in PyTorch.
    fn write_result(&mut self, target: &TensorRef, source: &TensorRef) -> Result<()> {
        let (old, new) = (self.ty(target)?, self.ty(source)?);
        let mut fits = old.rank() == new.rank();
        for (old, new) in old.shape.iter().zip(&new.shape) {
            fits = fits && self.builder().symbols().equal(old, new)?;
        }
        if fits {
            return self.write(target, source);
        }
        if target.depth < self.scopes.depth() {
            let message = "`out=` that resizes a tensor from outside of the branch or loop";
            return Err(
                Error::unsupported(message).help("give `out=` a tensor of the result's sizes")
            );
        }
        let source = self.read(source)?;
        let builder = self.builder();
        let value = builder.value(source).to(old.dtype).id();
        builder.check()?;
        let resized = self.new_tensor(value);
        target.set_view(resized.view());
        Ok(())
    }

    /// Calls a batch normalisation that uses the statistics of the batch, and writes them to its running mean and variance.
    /// None for other calls.
    pub(super) fn batch_norm_in_training(
        &mut self,
        name: &str,
        arguments: &Arguments,
    ) -> Result<Option<Datum>> {
        let (
            true,
            [
                _,
                _,
                _,
                Datum::Tensor(mean),
                Datum::Tensor(variance),
                training,
                _,
                _,
                ..,
            ],
        ) = (BATCH_NORMS.contains(&name), arguments.positional.as_slice())
        else {
            return Ok(None);
        };
        if !matches!(training, Datum::Number(ScriptNumber::Bool(true))) {
            return Ok(None);
        }
        let functional = Arguments {
            positional: arguments.positional.iter().take(8).cloned().collect(),
            named: Vec::new(),
        };
        let results =
            self.tensor_operator("aten::_native_batch_norm_legit_functional", functional)?;
        let Some(
            [
                y,
                batch_mean,
                batch_scale,
                Datum::Tensor(new_mean),
                Datum::Tensor(new_variance),
            ],
        ) = results
            .items()
            .and_then(|items| <[Datum; 5]>::try_from(items).ok())
        else {
            return Ok(Some(Datum::Unknown));
        };
        self.write(mean, &new_mean)?;
        self.write(variance, &new_variance)?;
        Ok(Some(match name {
            "aten::batch_norm" => y,
            _ => Datum::tuple(vec![y, batch_mean, batch_scale]),
        }))
    }

    /// Assigns the elements of another tensor, converted and broadcast as needed. All views of the storage change.
    pub(super) fn write(&mut self, target: &TensorRef, source: &TensorRef) -> Result<()> {
        let ty = self.ty(target)?;
        let source = self.read(source)?;
        let builder = self.builder();
        let value = builder.value(source).to(ty.dtype).expand(ty.shape);
        builder.check()?;
        let view = target.view();
        let base = self.storage_value(&view.storage)?;
        let base = self.scopes.capture(base)?;
        let value = write_through(&mut self.scopes, &view.view, base, value.id())?;
        self.assume_sharing_conditions(target)?;
        self.set_storage(&target.storage(), value);
        Ok(())
    }

    /// Writes a known number to a tensor whose value is a known number.
    pub(super) fn write_number(&mut self, target: &TensorRef, number: HostNumber) {
        self.set_contents(&target.storage(), None, Some(number));
    }

    /// Sets the value of a storage.
    pub(super) fn set_storage(&mut self, storage: &Rc<Storage>, id: ValueId) {
        let scope = self.scopes.innermost().number;
        self.set_contents(storage, Some(ValueRef { scope, id }), None);
    }

    /// Replaces the contents of a storage. Records the contents before in the innermost region, if the storage is
    /// older.
    fn set_contents(
        &mut self,
        storage: &Rc<Storage>,
        value: Option<ValueRef>,
        number: Option<HostNumber>,
    ) {
        let depth = self.scopes.depth();
        let scope = self.scopes.innermost_mut();
        let before = storage.state.borrow().clone();
        let is_unrecorded = !scope
            .data
            .written
            .iter()
            .any(|(known, _)| Rc::ptr_eq(known, storage));
        if storage.depth < depth && is_unrecorded {
            scope.data.written.push((storage.clone(), before));
        }
        let mut state = storage.state.borrow_mut();
        state.value = value;
        state.number = number;
        state.version += 1;
    }
}
