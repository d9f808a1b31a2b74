//! Fractional max pooling (Graham 2014): windows whose distances are drawn at random, so that the output may have any size.

use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::many(
        &[
            "aten::fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples) -> (Tensor, Tensor)",
        ],
        // The draws of a plane are for its width, then for its height.
        |a| fractional_max_pool(a, [1, 0]),
        &[
            "f32[2, 3, 7, 6], [2, 3], [3, 2], f32[2, 3, 2]",
            "f32[3, 7, 6], 2, 4, f32[1, 3, 2]",
        ],
    ),
    Composite::many(
        &[
            "aten::fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, Tensor random_samples) -> (Tensor, Tensor)",
        ],
        |a| fractional_max_pool(a, [0, 1, 2]),
        &["f32[2, 2, 5, 6, 7], [2, 3, 2], [2, 3, 4], f32[2, 2, 3]"],
    ),
];

/// An axis that is pooled.
struct FractionalAxis<'g> {
    /// Number of elements.
    size: Dim,
    /// Number of elements of a window.
    kernel: i64,
    /// Number of windows.
    outputs: i64,
    /// A number from 0 to 1 for each plane, `[planes]`.
    draws: Value<'g>,
}

/// The largest element of each window, and its index among the elements of a plane. `draw_of` is the position of each axis in
/// `random_samples`.
fn fractional_max_pool<'g, const N: usize>(
    a: &Args<'g>,
    draw_of: [i64; N],
) -> Result<Vec<Value<'g>>> {
    let x = a.tensor("self");
    let shape = x.shape();
    let Some((planes, sizes)) = shape.split_at_checked(x.rank().saturating_sub(N)) else {
        return Err(Error::operator(format!("cannot pool {}", x.ty())));
    };
    let axes = axes(a, planes, sizes, draw_of)?;
    let count = Dim::product(planes);
    let elements = axes.iter().map(|axis| axis.kernel).product::<i64>();
    let windows = axes.iter().map(|axis| axis.outputs).product::<i64>();
    let indices =
        window_indices(a, &axes).reshape(vec![count.clone(), (windows * elements).into()]);
    let values = x
        .reshape(vec![count.clone(), Dim::product(sizes)])
        .gather(1, indices);
    let by_window = vec![count, windows.into(), elements.into()];
    let values = values.reshape(by_window.clone());
    let largest = values.argmax(2, true);
    let outputs = axes.iter().map(|axis| Dim::from(axis.outputs));
    let pooled: Shape = planes.iter().cloned().chain(outputs).collect();
    let results = [values, indices.reshape(by_window)];
    let results = results.map(|all| all.gather(2, largest).reshape(pooled.clone()));
    Ok(results.to_vec())
}

/// The pooled axes, from the arguments of the call.
fn axes<'g, const N: usize>(
    a: &Args<'g>,
    planes: &[Dim],
    sizes: &[Dim],
    draw_of: [i64; N],
) -> Result<Vec<FractionalAxis<'g>>> {
    let numbers = |name: &str| {
        let wrong = || Error::operator(format!("{name} has to be {N} numbers of 1 or more"));
        let numbers = a.int_array::<N>(name).ok_or_else(wrong)?;
        let is_positive = numbers.iter().all(|number| *number > 0);
        is_positive.then_some(numbers).ok_or_else(wrong)
    };
    let (kernel, outputs) = (numbers("kernel_size")?, numbers("output_size")?);
    let draws = a
        .tensor("random_samples")
        .reshape(vec![Dim::product(planes), Dim::from(N)]);
    let symbols = a.builder().symbols();
    let arguments = sizes
        .iter()
        .zip(draw_of)
        .zip(kernel.into_iter().zip(outputs));
    let axis = |((size, draw), (kernel, outputs)): ((&Dim, i64), (i64, i64))| {
        if !symbols.less_equal(&Dim::from(outputs + kernel - 1), size)? {
            let message = format!("{outputs} windows of {kernel} do not fit into {size} elements");
            return Err(Error::operator(message));
        }
        let (size, draws) = (size.clone(), draws.select(1, draw));
        Ok(FractionalAxis {
            size,
            kernel,
            outputs,
            draws,
        })
    };
    arguments.map(axis).collect()
}

/// Indices of the elements of each window among those of its plane, `[planes, outputs .., kernel ..]`.
fn window_indices<'g>(a: &Args<'g>, axes: &[FractionalAxis<'g>]) -> Value<'g> {
    let rank = 1 + 2 * axes.len();
    let mut indices = a.builder().full(DType::I64, vec![Dim::ONE; rank], 0);
    for (index, axis) in axes.iter().enumerate() {
        let starts = axis.starts();
        let offsets = a
            .builder()
            .iota(DType::I64, vec![Dim::from(axis.kernel)], 0);
        let starts = starts.reshape(shape_with(
            rank,
            &[(0, starts.size(0)), (1 + index, axis.outputs.into())],
        ));
        let offsets = offsets.reshape(shape_with(
            rank,
            &[(1 + axes.len() + index, axis.kernel.into())],
        ));
        indices = indices * axis.size.clone() + starts + offsets;
    }
    indices
}

/// Sizes of 1, but for those given by their axis.
fn shape_with(rank: usize, sizes: &[(usize, Dim)]) -> Shape {
    let size = |axis: usize| {
        let given = sizes.iter().find(|(own, _)| *own == axis);
        given.map_or(Dim::ONE, |(_, size)| size.clone())
    };
    (0..rank).map(size).collect()
}

impl<'g> FractionalAxis<'g> {
    /// The first element of each window, `[planes, outputs]`. The last window ends with the axis.
    fn starts(&self) -> Value<'g> {
        let builder = self.draws.builder();
        let last = &self.size - self.kernel;
        let last = builder.full(DType::I64, vec![self.draws.size(0), Dim::ONE], last);
        if self.outputs == 1 {
            return last;
        }
        let index = builder.iota(DType::I64, vec![Dim::ONE, self.outputs.into()], 1);
        let dtype = self.draws.dtype();
        let distance = last.to(dtype) / (self.outputs - 1) as f64;
        let draws = self.draws.unsqueeze(1);
        let starts = ((index.to(dtype) + draws) * distance).trunc() - (draws * distance).trunc();
        index
            .eq(self.outputs - 1)
            .where_(last, starts.to(DType::I64))
    }
}
