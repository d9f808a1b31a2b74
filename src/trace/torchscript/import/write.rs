//! Operators that write: `relu_`, `copy_`, `index_put_`, `out=`.

use std::rc::Rc;

use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::trace::scopes::ValueRef;

use super::Importer;
use super::call::Arguments;
use super::datum::Datum;
use super::number::Number;
use super::tensor::{Storage, TensorRef, View, replay_view};
use super::view::put_back;

/// Batch normalisations whose arguments begin with input, weight, bias, running mean, running variance, whether statistics are
/// those of the batch, momentum and epsilon.
const BATCH_NORMS: [&str; 3] = [
    "aten::batch_norm",
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
];

impl Importer<'_> {
    /// An operator whose name ends in `_`: what it would give is written into its first argument, which it gives back.
    pub(super) fn write_in_place(
        &mut self,
        name: &str,
        functional: &str,
        arguments: Arguments,
    ) -> Result<Datum> {
        let Some(Datum::Tensor(target)) = arguments.positional.first().cloned() else {
            return self.tensor_operator(name, arguments);
        };
        let value = match (functional, arguments.positional.get(1)) {
            ("aten::copy", Some(source)) => source.clone(),
            ("aten::fill", Some(number)) => number.clone(),
            ("aten::zero", _) => Datum::Number(Number::int(0)),
            ("aten::set", _) | ("aten::resize", _) | ("aten::resize_as", _) => {
                let message = format!("the operator {name}");
                return Ok(self.unsupported(Error::unsupported(message)));
            }
            _ => self.operator(functional, arguments)?,
        };
        if value.is_unknown() {
            return Ok(Datum::Unknown);
        }
        let source = self.as_tensor(&value)?;
        self.write(&target, &source)?;
        Ok(Datum::Tensor(target))
    }

    /// An operator with `out=`.
    pub(super) fn write_out(
        &mut self,
        name: &str,
        mut arguments: Arguments,
        out: &Datum,
    ) -> Result<Datum> {
        arguments.named.retain(|(argument, _)| argument != "out");
        let value = self.operator(name, arguments)?;
        if let (Datum::Tensor(target), Datum::Tensor(source)) = (out, &value) {
            self.write(&target.clone(), &source.clone())?;
            return Ok(out.clone());
        }
        Ok(value)
    }

    /// A batch normalisation that uses the statistics of the batch leaves them in its running mean and variance.
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
        if !matches!(training, Datum::Number(Number::Bool(true))) {
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

    /// Makes a tensor's elements those of another, converted and repeated as needed. All views of its storage see it.
    pub(super) fn write(&mut self, target: &TensorRef, source: &TensorRef) -> Result<()> {
        let ty = self.ty(target)?;
        let source = self.read(source)?;
        let builder = self.builder();
        let value = builder.value(source).to(ty.dtype).expand(ty.shape);
        builder.check()?;
        let value = self.put_through(target, value.id())?;
        self.set_storage(&target.storage, value);
        Ok(())
    }

    /// The storage's value after a write to a view of it.
    fn put_through(&mut self, target: &TensorRef, value: ValueId) -> Result<ValueId> {
        let base = self.storage_value(&target.storage)?;
        let base = self.scopes.captured(base)?;
        let builder = self.builder();
        let mut seen = vec![base];
        let inner: &[View] = target.views.split_last().map_or(&[], |(_, inner)| inner);
        for view in inner {
            let last = seen.last().copied().unwrap_or(base);
            seen.push(replay_view(&builder, view, last)?);
        }
        let mut value = value;
        for (view, below) in target.views.iter().zip(seen).rev() {
            value = put_back(&builder, view, below, value)?;
        }
        Ok(value)
    }

    /// Gives a storage a new value.
    pub(super) fn set_storage(&mut self, storage: &Rc<Storage>, id: ValueId) {
        let depth = self.scopes.depth();
        let scope = self.scopes.innermost_mut();
        let before = storage.state.borrow().clone();
        let is_new = !scope
            .local
            .written
            .iter()
            .any(|(known, _)| Rc::ptr_eq(known, storage));
        if storage.depth < depth && is_new {
            scope.local.written.push((storage.clone(), before));
        }
        let value = ValueRef {
            scope: scope.number,
            id,
        };
        let mut state = storage.state.borrow_mut();
        state.value = Some(value);
        state.number = None;
        state.version += 1;
    }
}
