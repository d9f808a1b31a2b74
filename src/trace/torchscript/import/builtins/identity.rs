//! Operators that give their tensor back, or another dtype of it.

use crate::dtype::DType;
use crate::error::{Error, Result};

use crate::trace::torchscript::import::Importer;
use crate::trace::torchscript::import::call::Arguments;
use crate::trace::torchscript::import::datum::{Datum, Kind};
use crate::trace::torchscript::import::number::Number;
use crate::trace::torchscript::import::operator::named_argument;
use crate::trace::torchscript::import::tensor::{HostNumber, TensorRef};

impl Importer<'_> {
    pub(super) fn identity(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let [Datum::Tensor(tensor), rest @ ..] = arguments.positional.as_slice() else {
            return Ok(None);
        };
        let same = || Ok(Some(Datum::Tensor(tensor.clone())));
        match (name, rest) {
            ("to" | "_to_copy", _) => self.to(tensor, name == "_to_copy", arguments).map(Some),
            ("type_as", [Datum::Tensor(other)]) => {
                let dtype = self.ty(&other.clone())?.dtype;
                self.cast(tensor, dtype).map(Some)
            }
            ("float", []) => self.cast(tensor, DType::F32).map(Some),
            ("clone", _) => self.copy(tensor).map(Some),
            ("contiguous", _) if tensor.contiguous => same(),
            ("contiguous", _) => self.copy(tensor).map(Some),
            ("dropout" | "feature_dropout" | "alpha_dropout" | "feature_alpha_dropout", _)
            | ("dropout_" | "feature_dropout_" | "alpha_dropout_", _) => match rest {
                [_, Datum::Number(Number::Bool(true)), ..] => Ok(None),
                _ => same(),
            },
            ("expand_as", [Datum::Tensor(other)]) => self
                .with_sizes_of("aten::expand", tensor, &other.clone())
                .map(Some),
            ("view_as" | "reshape_as", [Datum::Tensor(other)]) => self
                .with_sizes_of("aten::reshape", tensor, &other.clone())
                .map(Some),
            ("select", [dim, Datum::Dynamic(Kind::Int, index)]) => {
                self.select_dynamic(tensor, dim, &index.clone()).map(Some)
            }
            _ if ALIASES.contains(&name) => same(),
            _ => Ok(None),
        }
    }

    /// An operator that wants the sizes of another tensor.
    fn with_sizes_of(
        &mut self,
        name: &str,
        tensor: &TensorRef,
        other: &TensorRef,
    ) -> Result<Datum> {
        let sizes = self.ty(other)?.shape.into_iter().map(Datum::int);
        let sizes = self.list(sizes.collect());
        self.operator(name, vec![Datum::Tensor(tensor.clone()), sizes].into())
    }

    /// `tensor[index]` where only the graph knows the index.
    fn select_dynamic(
        &mut self,
        tensor: &TensorRef,
        dim: &Datum,
        index: &TensorRef,
    ) -> Result<Datum> {
        let dim = match self.converted(Kind::Int, dim)? {
            Datum::Number(dim) => dim.concrete(self.builder().symbols())?.to_i64(),
            _ => return Err(Error::unsupported("an axis that depends on tensors")),
        };
        let (value, index) = (self.read(tensor)?, self.read(index)?);
        let builder = self.builder();
        let (value, index) = (builder.value(value), builder.value(index));
        let size = value.size(dim);
        let index = index.lt(0).where_(index + size, index);
        let row = value.index_select(dim, index.reshape(vec![1.into()]));
        let id = row.select(dim, 0).id();
        builder.check()?;
        Ok(Datum::Tensor(self.new_tensor(id)))
    }

    /// A new tensor with the same value.
    fn copy(&mut self, tensor: &TensorRef) -> Result<Datum> {
        if let Some(host) = tensor.number() {
            return Ok(Datum::Tensor(self.host_tensor(host)));
        }
        let id = self.read(tensor)?;
        Ok(Datum::Tensor(self.new_tensor(id)))
    }

    /// `Tensor.to` in all its forms: devices make no difference, a tensor of the wanted dtype is given back.
    fn to(&mut self, tensor: &TensorRef, copy: bool, arguments: &Arguments) -> Result<Datum> {
        let mut dtype = None;
        let named = named_argument(arguments, "dtype");
        let given = arguments.positional.iter().skip(1).chain(&named);
        for argument in given {
            match argument {
                Datum::Number(Number::Int(code)) if dtype.is_none() => {
                    dtype = Some(DType::from_torch_code(code.as_const().unwrap_or(-1))?);
                }
                Datum::Tensor(other) => dtype = Some(self.ty(&other.clone())?.dtype),
                _ => {}
            }
        }
        let own = self.ty(tensor)?.dtype;
        match (dtype.unwrap_or(own), copy) {
            (dtype, true) if dtype == own => self.copy(tensor),
            (dtype, _) => self.cast(tensor, dtype),
        }
    }

    fn cast(&mut self, tensor: &TensorRef, dtype: DType) -> Result<Datum> {
        if let Some(host) = tensor.number() {
            let number = host.number.cast(dtype, self.builder().symbols())?;
            return Ok(Datum::Tensor(self.host_tensor(HostNumber {
                number,
                dtype,
                wrapped: false,
            })));
        }
        if self.ty(tensor)?.dtype == dtype {
            return Ok(Datum::Tensor(tensor.clone()));
        }
        let id = self.read(tensor)?;
        let builder = self.builder();
        let id = builder.value(id).to(dtype).id();
        builder.check()?;
        self.local().unnamed.insert(id);
        Ok(Datum::Tensor(self.new_tensor(id)))
    }
}

const ALIASES: [&str; 12] = [
    "detach",
    "detach_",
    "alias",
    "lift_fresh",
    "lift",
    "cpu",
    "cuda",
    "requires_grad_",
    "resolve_conj",
    "resolve_neg",
    "pin_memory",
    "positive",
];
