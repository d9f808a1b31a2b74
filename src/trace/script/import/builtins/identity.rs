//! Operators that return their tensor, a copy of it, or a cast of it.

use crate::aten::WantedFormat;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::geometry::{Assumptions, Geometry, MemoryFormat};
use crate::ir::ValueId;

use crate::trace::script::import::Importer;
use crate::trace::script::import::call::Arguments;
use crate::trace::script::import::datum::{Datum, NumberKind};
use crate::trace::script::import::number::ScriptNumber;
use crate::trace::script::import::operator::named_argument;
use crate::trace::script::import::tensor::{HostNumber, TensorRef};
use crate::trace::views::GuardedGeometry;

impl Importer<'_> {
    /// Evaluates operators that return their tensor, a copy, a cast or a view of it; none for others.
    pub(super) fn identity(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let [Datum::Tensor(tensor), rest @ ..] = arguments.positional.as_slice() else {
            return Ok(None);
        };
        let unchanged = || Ok(Some(Datum::Tensor(tensor.clone())));
        match (name, rest) {
            ("to" | "_to_copy", _) => self.to(tensor, name == "_to_copy", arguments).map(Some),
            ("type_as", [Datum::Tensor(other)]) => {
                let dtype = self.ty(&other.clone())?.dtype;
                self.cast(tensor, dtype).map(Some)
            }
            ("float", []) => self.cast(tensor, DType::F32).map(Some),
            ("clone", _) => {
                let format = wanted_format(arguments, rest.first());
                self.copy(tensor, format).map(Some)
            }
            ("contiguous", _) => {
                let format = wanted_format(arguments, rest.first());
                self.contiguous(tensor, format).map(Some)
            }
            ("dropout" | "feature_dropout" | "alpha_dropout" | "feature_alpha_dropout", _)
            | ("dropout_" | "feature_dropout_" | "alpha_dropout_", _) => match rest {
                [_, Datum::Number(ScriptNumber::Bool(true)), ..] => Ok(None),
                _ => unchanged(),
            },
            ("expand_as", [Datum::Tensor(other)]) => self
                .with_sizes_of("aten::expand", tensor, &other.clone())
                .map(Some),
            ("view_as" | "reshape_as", [Datum::Tensor(other)]) => self
                .with_sizes_of("aten::reshape", tensor, &other.clone())
                .map(Some),
            ("select", [dim, Datum::Dynamic(NumberKind::Int, index)]) => {
                self.select_dynamic(tensor, dim, &index.clone()).map(Some)
            }
            // A node of the graph, through which no gradient passes.
            ("detach", []) if self.has_gradient(tensor)? => Ok(None),
            ("data", []) if self.has_gradient(tensor)? => {
                let own = vec![Datum::Tensor(tensor.clone())];
                self.operator("aten::detach", own.into()).map(Some)
            }
            ("detach_", []) if self.has_gradient(tensor)? => self.detach_in_place(tensor).map(Some),
            _ if RETURN_SELF.contains(&name) => unchanged(),
            _ if RETURN_ALIAS.contains(&name) => Ok(Some(Datum::Tensor(self.alias(tensor)))),
            _ => Ok(None),
        }
    }

    /// True for a tensor of floats that is no known number.
    fn has_gradient(&mut self, tensor: &TensorRef) -> Result<bool> {
        Ok(tensor.number().is_none() && self.ty(tensor)?.dtype.is_float())
    }

    /// Makes a tensor one through which no gradient passes.
    fn detach_in_place(&mut self, tensor: &TensorRef) -> Result<Datum> {
        let own = Datum::Tensor(tensor.clone());
        if let Datum::Tensor(detached) = self.operator("aten::detach", vec![own.clone()].into())? {
            tensor.set_view(detached.view());
        }
        Ok(own)
    }

    /// Calls an operator with the sizes of another tensor.
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

    /// `tensor[index]`, for an index that is known only when the graph runs.
    fn select_dynamic(
        &mut self,
        tensor: &TensorRef,
        dim: &Datum,
        index: &TensorRef,
    ) -> Result<Datum> {
        let dim = match self.converted(NumberKind::Int, dim)? {
            Datum::Number(dim) => dim.concrete(self.builder().symbols())?.to_i64(),
            _ => return Err(Error::unsupported("an axis that depends on tensors")),
        };
        let (value, index) = (self.read(tensor)?, self.read(index)?);
        let builder = self.builder();
        let (value, index) = (builder.value(value), builder.value(index));
        let size = value.size(dim);
        let message =
            format!("index {{value}} is out of bounds for dimension {dim} with size {{size}}");
        let index = index.to(DType::I64).check_in_range(-&size, &size, message);
        let slice = value.index_select(dim, index.reshape(vec![1.into()]));
        let id = slice.select(dim, 0).id();
        builder.check()?;
        Ok(Datum::Tensor(self.new_tensor(id)))
    }

    /// Makes a new tensor with the same elements.
    fn copy(&mut self, tensor: &TensorRef, format: WantedFormat) -> Result<Datum> {
        if let Some(host) = tensor.number() {
            return Ok(Datum::Tensor(self.host_tensor(host)));
        }
        let id = self.read(tensor)?;
        self.copy_of_value(tensor, id, format)
    }

    /// Makes a copy of a tensor from its value. The copy has the tensor's strides if no other format is wanted.
    fn copy_of_value(
        &mut self,
        tensor: &TensorRef,
        id: ValueId,
        format: WantedFormat,
    ) -> Result<Datum> {
        let builder = self.builder();
        let source = self.geometry_of(tensor);
        let assumptions = Assumptions::new(builder.symbols(), &source.assumed);
        let geometry = match format {
            WantedFormat::Format(format) => Geometry::of_format(source.geometry.sizes, format),
            _ => source.geometry.preserved(&assumptions)?,
        };
        let assumed = assumptions.into_guards();
        let copy = self.new_tensor_of_geometry(id, GuardedGeometry { geometry, assumed });
        copy.storage().add_conditions_of(&tensor.storage());
        Ok(Datum::Tensor(copy))
    }

    /// `Tensor.contiguous`: the tensor itself if it has the format already.
    fn contiguous(&mut self, tensor: &TensorRef, format: WantedFormat) -> Result<Datum> {
        let format = match format {
            WantedFormat::Format(format) => format,
            _ => MemoryFormat::Contiguous,
        };
        let has_format = self.has_format(tensor, format)?;
        if has_format {
            return Ok(Datum::Tensor(tensor.clone()));
        }
        self.copy(tensor, WantedFormat::Format(format))
    }

    /// Tests whether a tensor has a memory format. Later writes to the tensor depend on the answer.
    fn has_format(&mut self, tensor: &TensorRef, format: MemoryFormat) -> Result<bool> {
        self.layout_query(tensor, |geometry, assumptions| {
            geometry.has_format(assumptions, format)
        })
    }

    /// Tests whether a format is the one that a tensor's strides suggest, by which `Tensor.to` decides.
    fn has_suggested_format(&mut self, tensor: &TensorRef, format: MemoryFormat) -> Result<bool> {
        self.layout_query(tensor, |geometry, assumptions| {
            Ok(geometry.suggested_format(assumptions)? == format)
        })
    }

    /// Answers a query that decides whether a tensor is copied. Later writes to the tensor depend on the answer.
    fn layout_query(
        &mut self,
        tensor: &TensorRef,
        query: impl FnOnce(&Geometry, &Assumptions) -> Result<bool>,
    ) -> Result<bool> {
        let builder = self.builder();
        let guarded = self.geometry_of(tensor);
        let assumptions = Assumptions::new(builder.symbols(), &guarded.assumed);
        let answer = query(&guarded.geometry, &assumptions)?;
        tensor.storage().add_conditions(&assumptions.into_guards());
        Ok(answer)
    }

    /// `Tensor.to` in all its forms. Devices are ignored. Returns the tensor itself if neither its dtype nor its format
    /// changes and no copy is wanted. `copies` is true if the operator always copies.
    fn to(&mut self, tensor: &TensorRef, copies: bool, arguments: &Arguments) -> Result<Datum> {
        let wanted = self.wanted_conversion(arguments)?;
        let current_dtype = self.ty(tensor)?.dtype;
        let dtype = wanted.dtype.unwrap_or(current_dtype);
        let has_format = match wanted.format {
            WantedFormat::Format(format) => self.has_suggested_format(tensor, format)?,
            _ => true,
        };
        let returns_self = has_format && !copies && !wanted.copies;
        match dtype == current_dtype {
            true if returns_self => Ok(Datum::Tensor(tensor.clone())),
            true => self.copy(tensor, wanted.format),
            false => self.cast_to(tensor, dtype, wanted.format),
        }
    }

    /// Returns the conversion that a call of `Tensor.to` asks for. Positional arguments are a device, a dtype or a tensor
    /// that has it, `non_blocking`, `copy` and `memory_format`.
    fn wanted_conversion(&mut self, arguments: &Arguments) -> Result<Conversion> {
        let mut wanted = Conversion {
            dtype: None,
            copies: matches!(
                named_argument(arguments, "copy"),
                Some(Datum::Number(ScriptNumber::Bool(true)))
            ),
            format: wanted_format(arguments, None),
        };
        let mut flags = 0;
        let dtype = named_argument(arguments, "dtype");
        for argument in dtype.iter().chain(arguments.positional.iter().skip(1)) {
            match argument {
                Datum::Number(ScriptNumber::Bool(flag)) => {
                    flags += 1;
                    wanted.copies |= *flag && flags == 2;
                }
                Datum::Number(ScriptNumber::Int(_)) if flags > 0 => {
                    wanted.format = wanted_format(arguments, Some(argument));
                }
                Datum::Number(ScriptNumber::Int(code)) if wanted.dtype.is_none() => {
                    wanted.dtype = Some(DType::from_torch_code(code.as_const().unwrap_or(-1))?);
                }
                Datum::Tensor(other) => wanted.dtype = Some(self.ty(&other.clone())?.dtype),
                _ => {}
            }
        }
        Ok(wanted)
    }

    /// Converts a tensor to a dtype. Returns a tensor of this dtype itself.
    fn cast(&mut self, tensor: &TensorRef, dtype: DType) -> Result<Datum> {
        self.cast_to(tensor, dtype, WantedFormat::Default)
    }

    /// Converts a tensor to a dtype, with a memory format for the copy. Returns a tensor of this dtype itself.
    fn cast_to(&mut self, tensor: &TensorRef, dtype: DType, format: WantedFormat) -> Result<Datum> {
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
        self.scope_data().unnamed.insert(id);
        self.copy_of_value(tensor, id, format)
    }
}

/// The conversion that a call of `Tensor.to` asks for.
struct Conversion {
    /// The dtype; none to keep it.
    dtype: Option<DType>,
    /// True if the result must be a copy.
    copies: bool,
    /// The memory format.
    format: WantedFormat,
}

/// Reads `memory_format=` of a call, by name or from a positional argument.
pub(super) fn wanted_format(arguments: &Arguments, positional: Option<&Datum>) -> WantedFormat {
    let named = named_argument(arguments, "memory_format");
    WantedFormat::from_torch_code(match named.as_ref().or(positional) {
        Some(Datum::Number(ScriptNumber::Int(code))) => code.as_const(),
        _ => None,
    })
}

/// Operators that return their operand itself.
const RETURN_SELF: [&str; 4] = ["cpu", "cuda", "requires_grad_", "pin_memory"];

/// Operators that return another tensor of the same memory.
const RETURN_ALIAS: [&str; 9] = [
    "detach",
    "detach_",
    "data",
    "alias",
    "lift_fresh",
    "lift",
    "resolve_conj",
    "resolve_neg",
    "positive",
];
