//! Indexing by tensors, one for each indexed axis: `x[:, i, j]` and its assignment.

use super::bounds_checks::{self as check, NegativeIndices};
use super::cumulative::cumulative_true_count;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScatterFunction;
use crate::shape::Shape;

/// How to index a value: an order of its axes in which all indexed axes are adjacent, so that they can be merged into
/// one axis; and the linear indices along the merged axis.
struct IndexPlan<'g> {
    /// Axes of the value: leading axes, then indexed axes, then the rest.
    order: Vec<usize>,
    /// Number of axes in front of the indexed ones.
    leading: usize,
    /// Number of indexed axes.
    indexed: usize,
    /// Linear indices over the indexed axes, in the common shape of the indices.
    index: Value<'g>,
}

impl<'g> IndexPlan<'g> {
    /// Plans indexing by tensors that are not masks; `None` leaves an axis unindexed. In the result, adjacent indexed
    /// axes keep their position; otherwise the axes of the indices come first, as in PyTorch.
    fn new(x: Value<'g>, indices: &[Option<Value<'g>>]) -> Result<IndexPlan<'g>> {
        if indices.len() > x.rank() {
            return Err(too_many_indices(x, indices.len()));
        }
        let indices_by_axis: Vec<(usize, Value<'g>)> = indices
            .iter()
            .enumerate()
            .filter_map(|(axis, index)| Some((axis, (*index)?)))
            .collect();
        for (_, index) in &indices_by_axis {
            if !index.dtype().is_integer() || index.dtype() == DType::U8 {
                return Err(Error::operator(format!(
                    "an index must be an integer or bool tensor, not {}",
                    index.ty()
                )));
            }
        }
        let axes: Vec<usize> = indices_by_axis.iter().map(|(axis, _)| *axis).collect();
        let first = axes
            .first()
            .copied()
            .ok_or_else(|| Error::operator("no indices"))?;
        let adjacent = axes.iter().copied().eq(first..first + axes.len());
        let leading = if adjacent { first } else { 0 };
        let others: Vec<usize> = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
        let order = [
            others.get(..leading).unwrap_or_default(),
            &axes,
            others.get(leading..).unwrap_or_default(),
        ]
        .concat();
        Ok(IndexPlan {
            index: linear_index(x, &indices_by_axis)?,
            order,
            leading,
            indexed: axes.len(),
        })
    }

    /// The value with the indexed axes merged into one.
    fn merged(&self, x: Value<'g>) -> Value<'g> {
        let permuted = x.permute(self.order.clone());
        let shape = permuted.shape();
        let (leading_sizes, trailing_sizes) = shape.split_at(self.leading.min(shape.len()));
        let (indexed_sizes, trailing_sizes) =
            trailing_sizes.split_at(self.indexed.min(trailing_sizes.len()));
        permuted.reshape(
            [
                leading_sizes,
                &[Dim::product(indexed_sizes)],
                trailing_sizes,
            ]
            .concat(),
        )
    }

    /// The shape of the elements that the indices select from a value with the merged shape.
    fn result_shape(&self, merged_shape: &Shape) -> Shape {
        let leading_sizes = merged_shape.iter().take(self.leading).cloned();
        let trailing_sizes = merged_shape.iter().skip(self.leading + 1).cloned();
        leading_sizes
            .chain(self.index.shape())
            .chain(trailing_sizes)
            .collect()
    }
}

/// Row-major linear indices over the indexed axes, with negative indices wrapped; a single index is returned as it is.
/// `indices_by_axis` has the indexed axes and their indices.
fn linear_index<'g>(x: Value<'g>, indices_by_axis: &[(usize, Value<'g>)]) -> Result<Value<'g>> {
    if let [(_, single)] = indices_by_axis {
        return Ok(*single);
    }
    let shapes: Vec<Shape> = indices_by_axis
        .iter()
        .map(|(_, index)| index.shape())
        .collect();
    let shape = x.builder().symbols().broadcast_shapes(&shapes)?;
    let mut linear = x.builder().full(DType::I64, shape.clone(), 0);
    for (axis, index) in indices_by_axis {
        let size = x.size(i64::try_from(*axis).unwrap_or(i64::MAX));
        let index = index.to(DType::I64).expand(shape.clone());
        let wrapped = index.lt(0).where_(index + &size, index);
        linear = linear * &size + wrapped;
    }
    Ok(linear)
}

/// Adds bounds checks to integer indices. Masks stay as they are; each covers as many axes as it has.
pub(super) fn with_checked_indices<'g>(
    x: Value<'g>,
    indices: &[Option<Value<'g>>],
) -> Result<Vec<Option<Value<'g>>>> {
    let mut axis = 0;
    let mut checked = Vec::new();
    for index in indices {
        let covered_axes = match index {
            Some(mask) if is_mask(*mask) => mask.rank(),
            _ => 1,
        };
        checked.push(match index {
            Some(index) if index.dtype().is_integer() && !is_mask(*index) => {
                if axis >= x.rank() {
                    return Err(too_many_indices(x, indices.len()));
                }
                let dim = i64::try_from(axis).unwrap_or(i64::MAX);
                Some(check::checked_index(
                    x,
                    dim,
                    *index,
                    NegativeIndices::FromEnd,
                ))
            }
            other => *other,
        });
        axis += covered_axes;
    }
    Ok(checked)
}

fn too_many_indices(x: Value, indices: usize) -> Error {
    Error::operator(format!("{indices} indices for {}", x.ty()))
}

/// `x[indices]`; an absent index takes a whole axis. Fails for masks.
pub(super) fn indexed<'g>(x: Value<'g>, indices: &[Option<Value<'g>>]) -> Result<Value<'g>> {
    if indices.iter().all(Option::is_none) {
        return Ok(x);
    }
    if indices.iter().flatten().any(|index| is_mask(*index)) {
        return Err(Error::unsupported(
            "the number of elements that a bool mask selects depends on data",
        )
        .help("use torch.where on whole tensors, or multiply by the mask"));
    }
    let plan = IndexPlan::new(x, indices)?;
    let merged_x = plan.merged(x);
    let shape = plan.result_shape(&merged_x.shape());
    let dim = i64::try_from(plan.leading).unwrap_or(i64::MAX);
    Ok(merged_x
        .index_select(dim, plan.index.flatten(0, -1))
        .reshape(shape))
}

/// Sets `x[indices]` to `values`, or adds them.
pub(super) fn index_put<'g>(
    x: Value<'g>,
    indices: &[Option<Value<'g>>],
    values: Value<'g>,
    accumulate: bool,
) -> Result<Value<'g>> {
    let present_indices: Vec<Value<'g>> = indices.iter().flatten().copied().collect();
    if present_indices.is_empty() {
        let values = values.to(x.dtype()).expand(x.shape());
        return Ok(if accumulate { x + values } else { values });
    }
    if present_indices.iter().any(|index| is_mask(*index)) {
        let [mask] = present_indices.as_slice() else {
            return Err(Error::unsupported("a bool mask beside other indices"));
        };
        let leading = indices.iter().take_while(|index| index.is_none()).count();
        return masked_put(x, *mask, leading, values, accumulate);
    }
    let plan = IndexPlan::new(x, indices)?;
    let merged_x = plan.merged(x);
    let values = values
        .to(x.dtype())
        .expand(plan.result_shape(&merged_x.shape()));
    // In the values, one axis replaces the axes of the indices.
    let mut values_shape = merged_x.shape();
    values_shape.splice(plan.leading..plan.leading + 1, [plan.index.numel()]);
    let values = values.reshape(values_shape.clone());
    let mut index_shape = vec![Dim::ONE; merged_x.rank()];
    if let Some(size) = index_shape.get_mut(plan.leading) {
        *size = plan.index.numel();
    }
    let index = plan.index.reshape(index_shape).expand(values_shape);
    let function = if accumulate {
        ScatterFunction::Add
    } else {
        ScatterFunction::Set
    };
    let dim = i64::try_from(plan.leading).unwrap_or(i64::MAX);
    let updated = merged_x.scatter(dim, index, values, function);
    let ordered: Shape = plan
        .order
        .iter()
        .filter_map(|axis| x.shape().get(*axis).cloned())
        .collect();
    let inverse_order = (0..x.rank())
        .filter_map(|axis| plan.order.iter().position(|moved_axis| *moved_axis == axis));
    Ok(updated
        .reshape(ordered)
        .permute(inverse_order.collect::<Vec<_>>()))
}

/// Whether an index is a mask: a `bool` tensor, or one of `u8`, which PyTorch treats as a mask.
fn is_mask(index: Value) -> bool {
    matches!(index.dtype(), DType::Bool | DType::U8)
}

/// Sets the elements under a mask, which covers axes from `leading` on, to `values`, or adds them.
fn masked_put<'g>(
    x: Value<'g>,
    mask: Value<'g>,
    leading: usize,
    values: Value<'g>,
    accumulate: bool,
) -> Result<Value<'g>> {
    let mask_rank = mask.rank();
    let trailing_rank = x.rank().checked_sub(leading + mask_rank).ok_or_else(|| {
        Error::operator(format!("the mask {} does not cover {}", mask.ty(), x.ty()))
    })?;
    let mut shape = mask.shape();
    shape.extend(std::iter::repeat_n(Dim::ONE, trailing_rank));
    let expanded_mask = mask.to_bool().reshape(shape);
    let values = values.to(x.dtype());
    let is_per_element =
        values.rank() > trailing_rank && !values.size(-1 - trailing_rank as i64).is(1);
    let values = if is_per_element {
        if leading != 0 || values.rank() != trailing_rank + 1 {
            return Err(Error::unsupported(
                "values by number under a mask that does not cover the first axes",
            ));
        }
        // The n-th true element takes row n of the values.
        let row_index = cumulative_true_count(mask.to_bool().flatten(0, -1)) - 1;
        let last_row = &values.size(0) - 1;
        let rows = values.index_select(0, row_index.clamp(Some(0.into()), Some(last_row.into())));
        let shape = [
            &mask.shape()[..],
            values.shape().get(1..).unwrap_or_default(),
        ]
        .concat();
        rows.reshape(shape)
    } else {
        // If the values have a count axis of size 1, the axes of the mask replace it.
        let mut shape = values.shape();
        if values.rank() > trailing_rank {
            let count_axis = values.rank() - trailing_rank - 1;
            shape.splice(
                count_axis..count_axis + 1,
                std::iter::repeat_n(Dim::ONE, mask_rank),
            );
        }
        values.reshape(shape)
    };
    let updated = if accumulate {
        (x + values).to(x.dtype())
    } else {
        values
    };
    Ok(expanded_mask.where_(updated.expand(x.shape()), x))
}
