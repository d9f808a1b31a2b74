//! Views that reorder, merge or split whole axes.

use super::{Args, Composite, StrideRule};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::shape::{Shape, wrap_dim};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
            "aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor",
            "aten::view_copy(Tensor self, SymInt[] size) -> Tensor",
            "aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)",
            "aten::_reshape_alias_copy(Tensor self, SymInt[] size, SymInt[] stride) -> Tensor",
            "aten::_reshape_copy(Tensor self, SymInt[] size) -> Tensor",
        ],
        |a| Ok(a.tensor("self").view(&a.sizes("size"))),
        &[
            "f32[4, 6], [2, 12]",
            "f32[B, 6], [-1, 3]",
            "f32[0, 3], [3, 0]",
            "f32[], [1, 1]",
        ],
    )
    .with_strides(StrideRule::Reshape),
    Composite::one(
        &["aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)"],
        |a| Ok(a.tensor("self").view(&a.sizes("shape"))),
        &["f32[4, 6], [2, 12]", "i64[B, 6], [-1, 3]"],
    )
    .with_strides(StrideRule::Reshape),
    Composite::one(
        &[
            "aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)",
            "aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)",
        ],
        |a| Ok(a.tensor("self").reshape(a.tensor("other").shape())),
        &["f32[4, 6], f32[2, 12]"],
    )
    .with_strides(StrideRule::Reshape),
    Composite::one(
        &[
            "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
            "aten::view_copy.dtype(Tensor self, ScalarType dtype) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            match a.dtype("dtype") {
                Some(dtype) if dtype == x.dtype() => Ok(x),
                _ => a.reject("elements cannot be read as another dtype"),
            }
        },
        &["f32[3], dtype=f32"],
    ),
    Composite::one(
        &[
            "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)",
            "aten::permute_copy(Tensor self, int[] dims) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            Ok(x.permute(axes(x, &a.ints("dims"))?))
        },
        &[
            "f32[B, 3, 4], [0, 2, 1]",
            "f32[2, 3, 4], [-1, 0, 1]",
            "f32[], []",
        ],
    ),
    Composite::one(
        &[
            "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
            "aten::transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor",
            "aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
        ],
        |a| Ok(a.tensor("self").transpose(a.int("dim0"), a.int("dim1"))),
        &["f32[B, 3, 4], 1, -1", "f32[], 0, -1"],
    ),
    Composite::one(
        &["aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)"],
        |a| Ok(a.tensor("self").transpose(a.int("axis0"), a.int("axis1"))),
        &["f32[B, 3, 4], 1, -1"],
    ),
    Composite::one(
        &[
            "aten::t(Tensor(a) self) -> Tensor(a)",
            "aten::t_copy(Tensor self) -> Tensor",
            "aten::matrix_H(Tensor(a) self) -> Tensor(a)",
        ],
        |a| match a.tensor("self") {
            x if x.rank() <= 1 => Ok(x),
            x if x.rank() == 2 => Ok(x.transpose(0, 1)),
            x => Err(Error::operator(format!(
                "expected at most 2 dimensions, found {}",
                x.ty()
            ))),
        },
        &["f32[B, 3]", "f32[3]", "f32[]"],
    ),
    Composite::one(
        &["aten::numpy_T(Tensor(a) self) -> Tensor(a)"],
        |a| {
            let x = a.tensor("self");
            Ok(x.permute((0..x.rank()).rev().collect::<Vec<_>>()))
        },
        &["f32[B, 3, 4]", "f32[]"],
    ),
    Composite::one(
        &[
            "aten::mT(Tensor(a) self) -> Tensor(a)",
            "aten::mH(Tensor(a) self) -> Tensor(a)",
            "aten::adjoint(Tensor(a) self) -> Tensor(a)",
        ],
        |a| match a.tensor("self") {
            x if x.rank() == 1 => Err(Error::operator("a vector has no matrix transpose")),
            x if x.rank() == 0 => Ok(x),
            x => Ok(x.transpose(-2, -1)),
        },
        &["f32[B, 3, 4]"],
    ),
    Composite::one(
        &[
            "aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
            "aten::movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
            "aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
            "aten::moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
        ],
        |a| move_axes(a.tensor("self"), &a.ints("source"), &a.ints("destination")),
        &[
            "f32[B, 3, 4], 1, -1",
            "intlist: f32[2, 3, 4, 5], [0, 1], [-1, 0]",
        ],
    ),
    Composite::one(
        &[
            "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
            "aten::expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
            "aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)",
        ],
        |a| Ok(a.tensor("self").expand_sizes(&a.sizes("size"))),
        &["f32[1, 3], [4, 2, -1]", "f32[B, 1], [-1, 4]", "f32[1], [0]"],
    ),
    Composite::one(
        &["aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)"],
        |a| Ok(a.tensor("self").expand(a.tensor("other").shape())),
        &["f32[1, 3], f32[B, 4, 3]"],
    ),
    Composite::one(
        &[
            "aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
            "aten::unsqueeze_copy(Tensor self, int dim) -> Tensor",
        ],
        |a| Ok(a.tensor("self").unsqueeze(a.int("dim"))),
        &["f32[B, 3], 1", "f32[B, 3], -1", "f32[], 0"],
    )
    .with_strides(StrideRule::Unsqueeze),
    Composite::one(
        &[
            "aten::squeeze(Tensor(a) self) -> Tensor(a)",
            "aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)",
            "aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)",
            "aten::squeeze_copy(Tensor self) -> Tensor",
            "aten::squeeze_copy.dim(Tensor self, int dim) -> Tensor",
            "aten::squeeze_copy.dims(Tensor self, int[] dim) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let every = || (0i64..).take(x.rank()).collect();
            Ok(x.squeeze(&a.optional_ints("dim").unwrap_or_else(every)))
        },
        &[
            "f32[B, 1, 3, 1]",
            "dim: f32[2, 1], 0",
            "dim: f32[1, 2], -2",
            "dims: f32[1, 1, 2], [0, 1]",
        ],
    ),
    Composite::one(
        &["aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)"],
        |a| {
            Ok(a.tensor("self")
                .flatten(a.int("start_dim"), a.int("end_dim")))
        },
        &["f32[B, 3, 4], 1", "f32[2, 3, 4]", "f32[]"],
    )
    .with_strides(StrideRule::Reshape),
    Composite::one(
        &["aten::ravel(Tensor(a) self) -> Tensor(a)"],
        |a| Ok(a.tensor("self").flatten(0, -1)),
        &["f32[B, 3]", "f32[]"],
    )
    .with_strides(StrideRule::Contiguous),
    Composite::one(
        &["aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)"],
        |a| unflatten(a.tensor("self"), a.int("dim"), &a.sizes("sizes")),
        &["f32[B, 6], 1, [2, 3]", "f32[4, 6], -2, [2, -1]"],
    )
    .with_strides(StrideRule::Reshape),
    Composite::one(
        &[
            "aten::alias(Tensor(a) self) -> Tensor(a)",
            "aten::alias_copy(Tensor self) -> Tensor",
            "aten::_lazy_clone(Tensor self) -> Tensor",
            "aten::lift(Tensor self) -> Tensor",
            "aten::lift_fresh(Tensor(a) self) -> Tensor(a)",
            "aten::lift_fresh_copy(Tensor self) -> Tensor",
            "aten::resolve_conj(Tensor(a) self) -> Tensor(a)",
            "aten::resolve_neg(Tensor(a) self) -> Tensor(a)",
            "aten::conj(Tensor(a) self) -> Tensor(a)",
            "aten::_conj(Tensor(a) self) -> Tensor(a)",
            "aten::_conj_copy(Tensor self) -> Tensor",
            "aten::real(Tensor(a) self) -> Tensor(a)",
        ],
        |a| Ok(a.tensor("self")),
        &["f32[B, 3]", "i64[]"],
    ),
    Composite::one(
        &[
            "aten::detach(Tensor(a) self) -> Tensor(a)",
            "aten::detach_copy(Tensor self) -> Tensor",
            "aten::data(Tensor(a) self) -> Tensor(a)",
        ],
        |a| Ok(a.tensor("self")),
        &["f32[B, 3]", "i64[]"],
    )
    .with_gradient(|_| Ok(Vec::new())),
    Composite::one(
        &["aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)"],
        |a| Ok(a.tensor("self")),
        &["f32[B, 3]", "i64[]"],
    )
    .with_strides(StrideRule::ItselfOrNew),
    Composite::one(
        &[
            "aten::view_as_real(Tensor(a) self) -> Tensor(a)",
            "aten::view_as_real_copy(Tensor self) -> Tensor",
            "aten::view_as_complex(Tensor(a) self) -> Tensor(a)",
            "aten::view_as_complex_copy(Tensor self) -> Tensor",
            "aten::imag(Tensor(a) self) -> Tensor(a)",
        ],
        |a| a.reject("complex dtypes are not supported"),
        &[],
    ),
    Composite::one(
        &["aten::atleast_1d(Tensor(a) self) -> Tensor(a)"],
        |a| Ok(at_least(a.tensor("self"), 1)),
        &["f32[]", "f32[B, 3]"],
    )
    .with_strides(StrideRule::ItselfOrView),
    Composite::one(
        &["aten::atleast_2d(Tensor(a) self) -> Tensor(a)"],
        |a| Ok(at_least(a.tensor("self"), 2)),
        &["f32[]", "f32[B]", "f32[2, 3]"],
    )
    .with_strides(StrideRule::ItselfOrView),
    Composite::one(
        &["aten::atleast_3d(Tensor(a) self) -> Tensor(a)"],
        |a| Ok(at_least(a.tensor("self"), 3)),
        &["f32[]", "f32[B]", "f32[2, 3]", "f32[1, 2, 3, 4]"],
    )
    .with_strides(StrideRule::ItselfOrView),
    Composite::many(
        &["aten::atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]"],
        |a| Ok(at_least_all(a, 1)),
        &["[f32[], f32[B, 3]]"],
    )
    .with_strides(StrideRule::ItselfOrView),
    Composite::many(
        &["aten::atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]"],
        |a| Ok(at_least_all(a, 2)),
        &["[f32[], f32[B]]"],
    )
    .with_strides(StrideRule::ItselfOrView),
    Composite::many(
        &["aten::atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]"],
        |a| Ok(at_least_all(a, 3)),
        &["[f32[], f32[B], f32[2, 3]]"],
    )
    .with_strides(StrideRule::ItselfOrView),
];

/// Dimensions as axes; one out of range is an error.
pub(super) fn axes(x: Value, dims: &[i64]) -> Result<Vec<usize>> {
    dims.iter().map(|dim| wrap_dim(*dim, x.rank())).collect()
}

/// Moves axes to the given positions; the others keep their order.
fn move_axes<'g>(x: Value<'g>, from: &[i64], to: &[i64]) -> Result<Value<'g>> {
    let (from, to) = (axes(x, from)?, axes(x, to)?);
    if from.len() != to.len() {
        return Err(Error::operator(format!(
            "{} axes cannot move to {} positions",
            from.len(),
            to.len()
        )));
    }
    let mut rest = (0..x.rank()).filter(|axis| !from.contains(axis));
    let order: Vec<usize> = (0..x.rank())
        .filter_map(
            |position| match to.iter().position(|target| *target == position) {
                Some(index) => from.get(index).copied(),
                None => rest.next(),
            },
        )
        .collect();
    Ok(x.permute(order))
}

/// Splits an axis into several axes of the given sizes, one of which may be `-1`.
pub(super) fn unflatten<'g>(x: Value<'g>, dim: i64, sizes: &[Dim]) -> Result<Value<'g>> {
    let axis = wrap_dim(dim, x.rank())?;
    let split = x.infer_sizes(&x.size(dim), sizes)?;
    let mut shape = x.shape();
    let range = axis..shape.len().min(axis + 1);
    shape.splice(range, split);
    Ok(x.reshape(shape))
}

/// Adds axes of size 1 until there are `rank`. A vector becomes the last axis of a matrix, a matrix the first two of three
/// axes.
pub(super) fn at_least(x: Value, rank: usize) -> Value {
    let mut shape: Shape = x.shape();
    while shape.len() < rank {
        let new_axis = if shape.len() == 2 { 2 } else { 0 };
        shape.insert(new_axis, Dim::ONE);
    }
    x.reshape(shape)
}

/// [`at_least`] for each item of the argument `tensors`.
fn at_least_all<'g>(a: &Args<'g>, rank: usize) -> Vec<Value<'g>> {
    a.tensors("tensors")
        .into_iter()
        .map(|x| at_least(x, rank))
        .collect()
}
