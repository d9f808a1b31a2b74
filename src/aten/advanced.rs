//! Indexing by tensors, one for each indexed axis: `x[:, i, j]` and its assignment.

use super::bounds_checks::{self as check, NegativeIndices};
use super::cumulative::cumulative_true_count;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScatterFunction;
use crate::shape::Shape;

/// A value rearranged so that all indexed axes form one axis, and the linear indices along that axis.
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
    /// Adjacent indexed axes keep their place; otherwise the shape of the indices comes first, as in PyTorch.
    fn new(x: Value<'g>, indices: &[Option<Value<'g>>]) -> Result<IndexPlan<'g>> {
        if indices.len() > x.rank() {
            return Err(too_many(x, indices.len()));
        }
        let given: Vec<(usize, Value<'g>)> = indices
            .iter()
            .enumerate()
            .filter_map(|(axis, index)| Some((axis, (*index)?)))
            .collect();
        for (_, index) in &given {
            if !index.dtype().is_integer() || index.dtype() == DType::U8 {
                return Err(Error::operator(format!(
                    "an index must be an integer or bool tensor, not {}",
                    index.ty()
                )));
            }
        }
        let axes: Vec<usize> = given.iter().map(|(axis, _)| *axis).collect();
        let first = axes
            .first()
            .copied()
            .ok_or_else(|| Error::operator("no indices"))?;
        let adjacent = axes.iter().copied().eq(first..first + axes.len());
        let before = if adjacent { first } else { 0 };
        let others: Vec<usize> = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
        let order = [
            others.get(..before).unwrap_or_default(),
            &axes,
            others.get(before..).unwrap_or_default(),
        ]
        .concat();
        Ok(IndexPlan {
            index: linear_index(x, &given)?,
            order,
            leading: before,
            indexed: axes.len(),
        })
    }

    /// The value with the indexed axes merged into one.
    fn merged(&self, x: Value<'g>) -> Value<'g> {
        let moved = x.permute(self.order.clone());
        let shape = moved.shape();
        let (lead, rest) = shape.split_at(self.leading.min(shape.len()));
        let (indexed, rest) = rest.split_at(self.indexed.min(rest.len()));
        moved.reshape([lead, &[Dim::product(indexed)], rest].concat())
    }

    /// The shape of the elements that the indices select.
    fn result_shape(&self, joined: &Shape) -> Shape {
        let lead = joined.iter().take(self.leading).cloned();
        let rest = joined.iter().skip(self.leading + 1).cloned();
        lead.chain(self.index.shape()).chain(rest).collect()
    }
}

/// Row-major linear indices over the indexed axes; a single index stays as it is.
fn linear_index<'g>(x: Value<'g>, given: &[(usize, Value<'g>)]) -> Result<Value<'g>> {
    if let [(_, single)] = given {
        return Ok(*single);
    }
    let shapes: Vec<Shape> = given.iter().map(|(_, index)| index.shape()).collect();
    let shape = x.builder().symbols().broadcast_shapes(&shapes)?;
    let mut total = x.builder().full(DType::I64, shape.clone(), 0);
    for (axis, index) in given {
        let size = x.size(i64::try_from(*axis).unwrap_or(i64::MAX));
        let index = index.to(DType::I64).expand(shape.clone());
        let wrapped = index.lt(0).where_(index + &size, index);
        total = total * &size + wrapped;
    }
    Ok(total)
}

/// Adds bounds checks to integer indices; masks stay as they are.
pub(super) fn with_checked_indices<'g>(
    x: Value<'g>,
    indices: &[Option<Value<'g>>],
) -> Result<Vec<Option<Value<'g>>>> {
    let mut axis = 0;
    let mut checked = Vec::new();
    for index in indices {
        let covered = match index {
            Some(mask) if is_mask(*mask) => mask.rank(),
            _ => 1,
        };
        checked.push(match index {
            Some(index) if index.dtype().is_integer() && !is_mask(*index) => {
                if axis >= x.rank() {
                    return Err(too_many(x, indices.len()));
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
        axis += covered;
    }
    Ok(checked)
}

fn too_many(x: Value, indices: usize) -> Error {
    Error::operator(format!("{indices} indices for {}", x.ty()))
}

/// `x[indices]`; an absent index takes a whole axis.
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
    let joined = plan.merged(x);
    let shape = plan.result_shape(&joined.shape());
    let dim = i64::try_from(plan.leading).unwrap_or(i64::MAX);
    Ok(joined
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
    let given: Vec<Value<'g>> = indices.iter().flatten().copied().collect();
    if given.is_empty() {
        let values = values.to(x.dtype()).expand(x.shape());
        return Ok(if accumulate { x + values } else { values });
    }
    if given.iter().any(|index| is_mask(*index)) {
        let [mask] = given.as_slice() else {
            return Err(Error::unsupported("a bool mask beside other indices"));
        };
        let lead = indices.iter().take_while(|index| index.is_none()).count();
        return masked_put(x, *mask, lead, values, accumulate);
    }
    let plan = IndexPlan::new(x, indices)?;
    let joined = plan.merged(x);
    let values = values
        .to(x.dtype())
        .expand(plan.result_shape(&joined.shape()));
    // One axis of indices in place of the common shape.
    let mut flat = joined.shape();
    flat.splice(plan.leading..plan.leading + 1, [plan.index.numel()]);
    let values = values.reshape(flat.clone());
    let mut lined_up = vec![Dim::ONE; joined.rank()];
    if let Some(place) = lined_up.get_mut(plan.leading) {
        *place = plan.index.numel();
    }
    let index = plan.index.reshape(lined_up).expand(flat);
    let function = if accumulate {
        ScatterFunction::Add
    } else {
        ScatterFunction::Set
    };
    let dim = i64::try_from(plan.leading).unwrap_or(i64::MAX);
    let written = joined.scatter(dim, index, values, function);
    let ordered: Shape = plan
        .order
        .iter()
        .filter_map(|axis| x.shape().get(*axis).cloned())
        .collect();
    let back = (0..x.rank()).filter_map(|axis| plan.order.iter().position(|place| *place == axis));
    Ok(written.reshape(ordered).permute(back.collect::<Vec<_>>()))
}

fn is_mask(index: Value) -> bool {
    matches!(index.dtype(), DType::Bool | DType::U8)
}

/// Sets the elements under a mask, which covers axes from `lead` on, to `values`.
fn masked_put<'g>(
    x: Value<'g>,
    mask: Value<'g>,
    lead: usize,
    values: Value<'g>,
    accumulate: bool,
) -> Result<Value<'g>> {
    let covered = mask.rank();
    let rest = x.rank().checked_sub(lead + covered).ok_or_else(|| {
        Error::operator(format!("the mask {} does not cover {}", mask.ty(), x.ty()))
    })?;
    let mut shape = mask.shape();
    shape.extend(std::iter::repeat_n(Dim::ONE, rest));
    let wide_mask = mask.to_bool().reshape(shape);
    let values = values.to(x.dtype());
    let has_count = values.rank() > rest && !values.size(-1 - rest as i64).is(1);
    let values = if has_count {
        if lead != 0 || values.rank() != rest + 1 {
            return Err(Error::unsupported(
                "values by number under a mask that does not cover the first axes",
            ));
        }
        // The n-th true element takes row n of the values.
        let order = cumulative_true_count(mask.to_bool().flatten(0, -1)) - 1;
        let last = &values.size(0) - 1;
        let rows = values.index_select(0, order.clamp(Some(0.into()), Some(last.into())));
        let shape = [
            &mask.shape()[..],
            values.shape().get(1..).unwrap_or_default(),
        ]
        .concat();
        rows.reshape(shape)
    } else {
        // If the values have a count axis of size 1, the axes of the mask replace it.
        let mut shape = values.shape();
        if values.rank() > rest {
            let at = values.rank() - rest - 1;
            shape.splice(at..at + 1, std::iter::repeat_n(Dim::ONE, covered));
        }
        values.reshape(shape)
    };
    let written = if accumulate {
        (x + values).to(x.dtype())
    } else {
        values
    };
    Ok(wide_mask.where_(written.expand(x.shape()), x))
}
