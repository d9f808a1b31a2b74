//! Queries of values: sizes, types, identity.

use crate::aten::WantedFormat;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::geometry::Assumptions;
use crate::shape::wrap_dim;

use crate::trace::script::import::Importer;
use crate::trace::script::import::call::Arguments;
use crate::trace::script::import::datum::{Datum, NumberKind};
use crate::trace::script::import::number::ScriptNumber;
use crate::trace::script::import::tensor::TensorRef;

use super::identity::wanted_format;

impl Importer<'_> {
    /// Answers queries of values; none for other operators.
    pub(super) fn query(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let answer = match (name, arguments.positional.as_slice()) {
            ("__is__", [a, b]) => is_same(a, b),
            ("__isnot__", [a, b]) => !is_same(a, b),
            ("eq", [Datum::Device(a), Datum::Device(b)]) => a == b,
            ("ne", [Datum::Device(a), Datum::Device(b)]) => a != b,
            ("type", [Datum::Device(device)]) => {
                let kind = device.split(':').next().unwrap_or_default();
                return Ok(Some(Datum::str(kind)));
            }
            ("equal", [Datum::Tensor(a), Datum::Tensor(b)]) => {
                return self.equal(&a.clone(), &b.clone()).map(Some);
            }
            (_, [Datum::Tensor(tensor), rest @ ..]) => {
                if MEMORY_QUERIES.contains(&name) {
                    let axis = rest.first().cloned();
                    let format = wanted_format(arguments, axis.as_ref());
                    return self
                        .memory_query(name, &tensor.clone(), axis, format)
                        .map(Some);
                }
                return self.tensor_query(name, &tensor.clone(), rest);
            }
            _ => return Ok(None),
        };
        Ok(Some(Datum::bool(answer)))
    }

    /// Answers a query of a tensor's type, or one whose answer is the same for all tensors; none for other operators.
    fn tensor_query(
        &mut self,
        name: &str,
        tensor: &TensorRef,
        rest: &[Datum],
    ) -> Result<Option<Datum>> {
        if !TENSOR_QUERIES.contains(&name) {
            return Ok(None);
        }
        let ty = self.ty(tensor)?;
        Ok(Some(match (name, rest) {
            ("size" | "sym_size" | "shape", []) => {
                self.list(ty.shape.into_iter().map(Datum::int).collect())
            }
            ("size" | "sym_size", [axis]) => self.at_axis(&ty.shape, axis)?,
            ("len", _) => {
                let first = ty.shape.first().cloned();
                Datum::int(first.ok_or_else(|| Error::operator("the length of a scalar tensor"))?)
            }
            ("dim" | "ndimension", _) => Datum::int(ty.shape.len()),
            ("numel", _) => Datum::int(ty.numel()),
            ("dtype", _) => Datum::int(ty.dtype.torch_code()),
            ("device", _) => Datum::Device("cpu".into()),
            ("layout" | "get_device", _) => Datum::int(0),
            ("is_floating_point", _) => Datum::bool(ty.dtype.is_float()),
            ("is_signed", _) => Datum::bool(!matches!(ty.dtype, DType::Bool | DType::U8)),
            ("is_cpu" | "is_leaf", _) => Datum::bool(true),
            ("element_size", _) => Datum::int(ty.dtype.size()),
            _ => Datum::bool(false),
        }))
    }

    /// Answers a query of the location of a tensor's elements in memory: strides, offset, contiguity.
    fn memory_query(
        &mut self,
        name: &str,
        tensor: &TensorRef,
        axis: Option<Datum>,
        format: WantedFormat,
    ) -> Result<Datum> {
        let builder = self.builder();
        let guarded = self.geometry_of(tensor);
        let assumptions = Assumptions::new(builder.symbols(), &guarded.assumed);
        let geometry = &guarded.geometry;
        let answer = match (name, axis, format) {
            ("stride", Some(axis), _) => self.at_axis(&geometry.strides, &axis)?,
            ("stride", ..) => self.list(geometry.strides.iter().map(Datum::int).collect()),
            ("storage_offset", ..) => Datum::int(&geometry.offset),
            ("is_contiguous", _, WantedFormat::Format(format)) => {
                Datum::bool(geometry.has_format(&assumptions, format)?)
            }
            ("is_contiguous", ..) => Datum::bool(geometry.is_contiguous(&assumptions)?),
            _ => Datum::bool(geometry.dense_order(&assumptions)?.is_some()),
        };
        self.assume(&assumptions.into_guards())?;
        Ok(answer)
    }

    /// Tests whether two tensors have one shape and equal elements.
    fn equal(&mut self, a: &TensorRef, b: &TensorRef) -> Result<Datum> {
        let (a_shape, b_shape) = (self.ty(a)?.shape, self.ty(b)?.shape);
        let mut same_shape = a_shape.len() == b_shape.len();
        for (a_size, b_size) in a_shape.iter().zip(&b_shape) {
            same_shape = same_shape && self.builder().symbols().equal(a_size, b_size)?;
        }
        if !same_shape {
            return Ok(Datum::bool(false));
        }
        let pair = vec![Datum::Tensor(a.clone()), Datum::Tensor(b.clone())];
        let equal = self.tensor_operator("aten::eq", pair.into())?;
        let all = self.tensor_operator("aten::all", vec![equal].into())?;
        self.converted(NumberKind::Bool, &all)
    }

    /// Returns the size or stride at an axis, which may be negative.
    fn at_axis(&mut self, sizes: &[Dim], axis: &Datum) -> Result<Datum> {
        let Datum::Number(axis) = self.known_number(axis)? else {
            return Err(Error::unsupported("an axis that depends on tensors"));
        };
        let axis = axis.concrete(self.builder().symbols())?.to_i64();
        let axis = wrap_dim(axis, sizes.len())?;
        let size = sizes.get(axis).cloned();
        let size = size.ok_or_else(|| Error::operator("a scalar tensor has no sizes"))?;
        Ok(Datum::int(size))
    }
}

/// Queries of the location of a tensor's elements in memory.
const MEMORY_QUERIES: [&str; 4] = [
    "stride",
    "storage_offset",
    "is_contiguous",
    "is_non_overlapping_and_dense",
];

/// Queries that follow from a tensor's type, or have one answer for all tensors. The default answer is false.
const TENSOR_QUERIES: [&str; 24] = [
    "size",
    "sym_size",
    "shape",
    "len",
    "dim",
    "ndimension",
    "numel",
    "dtype",
    "device",
    "layout",
    "get_device",
    "is_floating_point",
    "is_signed",
    "is_cpu",
    "is_leaf",
    "element_size",
    "is_cuda",
    "is_mps",
    "is_complex",
    "is_quantized",
    "is_sparse",
    "is_mkldnn",
    "is_nested",
    "requires_grad",
];

/// Python's `is`.
fn is_same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::None, Datum::None) => true,
        (Datum::Tensor(a), Datum::Tensor(b)) => std::rc::Rc::ptr_eq(a, b),
        (Datum::Number(ScriptNumber::Bool(a)), Datum::Number(ScriptNumber::Bool(b))) => a == b,
        (Datum::Number(ScriptNumber::Int(a)), Datum::Number(ScriptNumber::Int(b))) => a == b,
        (Datum::Object(a), Datum::Object(b)) => std::rc::Rc::ptr_eq(a, b),
        _ => false,
    }
}
