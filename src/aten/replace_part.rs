//! Operators that replace a part of a value, and `im2col` and `col2im`.

use super::concatenate::concat_nonempty;
use super::slice::resolve_start;
use super::split::{check_axis, strided_index};
use super::{Args, CallGradient, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};
use crate::op::ScatterFunction;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
        ],
        |a| {
            set_slice(
                a.tensor("self"),
                a.tensor("src"),
                a.int("dim"),
                a.optional_size("start"),
                a.optional_size("end"),
                a.int("step"),
            )
        },
        &[
            "f32[B, 6], f32[B, 2], 1, 1, 3",
            "f32[6], f32[2], 0, 1, None, 3",
            "f32[6], i64[6]",
        ],
    )
    .with_strides(StrideRule::SameStrides),
    Composite::one(
        &["aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            let start = resolve_start(x, dim, a.size("index"))?;
            let source = a.tensor("src").unsqueeze(dim);
            let end = &start + 1;
            set_slice(x, source, dim, Some(start), Some(end), 1)
        },
        &["f32[B, 3], f32[B], 1, -1", "f32[4, 3], f32[3], 0, 2"],
    )
    .with_strides(StrideRule::SameStrides),
    Composite::one(
        &[
            "aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
        ],
        |a| {
            let (x, index) = (a.tensor("self"), replaced_index(a)?);
            let source = a.tensor("src").expand(a.sizes("size"));
            let source = source.reshape(vec![index.numel()]);
            let flat = x.reshape(vec![x.numel()]);
            Ok(flat
                .scatter(0, index, source, ScatterFunction::Set)
                .reshape(x.shape()))
        },
        &["f32[3, 4], f32[2, 2], [2, 2], [4, 1], 1"],
    )
    .with_gradient(as_strided_scatter_gradient)
    .with_strides(StrideRule::SameStrides),
    Composite::one(
        &[
            "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
        ],
        |a| im2col(a.tensor("self"), &FoldWindows::of(a)?),
        &[
            "f32[B, 2, 5, 6], [2, 3], [1, 1], [0, 1], [1, 2]",
            "f32[2, 4, 4], [2], [2], [1], [1]",
        ],
    ),
    Composite::one(
        &[
            "aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
        ],
        |a| {
            let size = match a.sizes("output_size").as_slice() {
                [single] => [single.clone(), single.clone()],
                [height, width] => [height.clone(), width.clone()],
                _ => return Err(Error::operator("output_size has two numbers")),
            };
            col2im(a.tensor("self"), size, &FoldWindows::of(a)?)
        },
        &["f32[B, 12, 24], [5, 6], [2, 3], [1, 1], [0, 1], [1, 1]"],
    ),
];

/// The elements that `as_strided_scatter` replaces, as indices of the flattened operand.
fn replaced_index<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let offset = a.optional_size("storage_offset").unwrap_or(Dim::ZERO);
    let index = strided_index(a.builder(), &a.sizes("size"), &a.sizes("stride"), &offset)?;
    Ok(index.reshape(vec![index.numel()]))
}

/// Gradients by PyTorch's `as_strided_scatter_backward`: that of `self` has the elements that were replaced, not the
/// others.
fn as_strided_scatter_gradient<'g>(
    call: &CallGradient<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, gradient, index) = (call.args(), call.gradient(0)?, replaced_index(call.args())?);
    let replaced = gradient.reshape(vec![gradient.numel()]).gather(0, index);
    let zeros = a
        .builder()
        .full(gradient.dtype(), vec![gradient.numel()], 0.0);
    let of_x = zeros.scatter(0, index, replaced, ScatterFunction::Set);
    let of_source = replaced
        .reshape(a.sizes("size"))
        .sum_to(&a.tensor("src").shape());
    Ok(vec![
        ("self", of_x.reshape(gradient.shape())),
        ("src", of_source),
    ])
}

/// Replaces a slice along an axis.
pub(super) fn set_slice<'g>(
    x: Value<'g>,
    source: Value<'g>,
    dim: i64,
    start: Option<Dim>,
    end: Option<Dim>,
    step: i64,
) -> Result<Value<'g>> {
    let axis = check_axis(x, dim)?;
    let size = x.size(dim);
    let first = start.clone().unwrap_or(Dim::ZERO);
    let replaced = x.slice(dim, start, end, step);
    let length = replaced.size(dim);
    x.builder().check()?;
    let source = source.to(x.dtype()).expand(replaced.shape());
    if length.is(0) {
        return Ok(x);
    }
    if length == size {
        return Ok(source);
    }
    let start = clamped(x, dim, first)?;
    if step == 1 {
        let rest_start = &start + &length;
        let rest = x.narrow(dim, rest_start.clone(), &size - &rest_start);
        return concat_nonempty(x.builder(), &[x.narrow(dim, 0, start), source, rest], dim);
    }
    let index = x.builder().iota(DType::I64, replaced.shape(), axis) * step + &start;
    Ok(x.scatter(dim, index, source, ScatterFunction::Set))
}

/// The first index of Python's slice: counted from the end if negative, and at least 0.
fn clamped(x: Value, dim: i64, start: Dim) -> Result<Dim> {
    let start = resolve_start(x, dim, start)?;
    let inside = x.builder().symbols().less_equal(&Dim::ZERO, &start)?;
    Ok(if inside { start } else { Dim::ZERO })
}

/// Two-dimensional windows, as in `torch.nn.Unfold`; each pair is for height and width.
struct FoldWindows {
    kernel: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
}

impl FoldWindows {
    /// The windows that the arguments of a call describe.
    fn of(a: &super::Args) -> Result<FoldWindows> {
        let pair = |name: &str| -> Result<[i64; 2]> {
            a.int_array(name)
                .ok_or_else(|| Error::operator(format!("{name} has two numbers")))
        };
        Ok(FoldWindows {
            kernel: pair("kernel_size")?,
            dilation: pair("dilation")?,
            padding: pair("padding")?,
            stride: pair("stride")?,
        })
    }

    /// Number of windows along one of the two axes.
    fn count(&self, axis: usize, size: &Dim) -> Dim {
        let [kernel, dilation, padding, stride] =
            [self.kernel, self.dilation, self.padding, self.stride]
                .map(|pair| if axis == 0 { pair[0] } else { pair[1] });
        let extent = dilation.saturating_mul(kernel - 1).saturating_add(1);
        (size + (padding.saturating_mul(2) - extent)).floor_div(&Dim::from(stride)) + 1
    }
}

/// A value of the given rank; a batch axis of size 1 is added if it lacks one axis. Also returns whether it had all
/// axes.
fn batched(x: Value<'_>, rank: usize) -> Result<(Value<'_>, bool)> {
    match x {
        x if x.rank() == rank => Ok((x, true)),
        x if x.rank() + 1 == rank => Ok((x.unsqueeze(0), false)),
        x => Err(Error::operator(format!(
            "expected {rank} dimensions, or one fewer, found {}",
            x.ty()
        ))),
    }
}

/// Inverse of [`batched`]: removes the batch axis unless the value had one.
fn unbatched(x: Value<'_>, has_batch: bool) -> Value<'_> {
    if has_batch {
        x
    } else {
        x.reshape(x.shape().into_iter().skip(1).collect::<Vec<Dim>>())
    }
}

/// Computes `aten::im2col`: `[batch, channels, height, width]` becomes `[batch, channels · window elements, windows]`.
fn im2col<'g>(x: Value<'g>, windows: &FoldWindows) -> Result<Value<'g>> {
    let (x, has_batch) = batched(x, 4)?;
    let border = [0, 0, windows.padding[0], windows.padding[1]].map(Dim::from);
    let (kernel, stride, dilation) = (windows.kernel, windows.stride, windows.dilation);
    let windows_of_rows = x
        .pad(&border, &border, 0)
        .unfold(2, kernel[0], stride[0], dilation[0]);
    let windows_of_axes = windows_of_rows.unfold(3, kernel[1], stride[1], dilation[1]);
    let columns = windows_of_axes
        .permute(vec![0, 1, 4, 5, 2, 3])
        .flatten(1, 3)
        .flatten(2, 3);
    Ok(unbatched(columns, has_batch))
}

/// Computes `aten::col2im`, the transpose of [`im2col`]: sums the elements of overlapping windows. `size` is height and
/// width of the result.
fn col2im<'g>(x: Value<'g>, size: [Dim; 2], windows: &FoldWindows) -> Result<Value<'g>> {
    let (x, has_batch) = batched(x, 3)?;
    let [batch, rows, columns] = x.sizes()?;
    let builder: &Builder = x.builder();
    let [height, width] = &size;
    let counts = [windows.count(0, height), windows.count(1, width)];
    let kernel = windows.kernel.map(Dim::from);
    let area = &kernel[0] * &kernel[1];
    let found = &counts[0] * &counts[1];
    builder.symbols().require_equal(&columns, &found, || {
        format!("{found} windows, {columns} columns")
    })?;
    let channels = rows.floor_div(&area);
    let shape = [&kernel[..], &counts[..]].concat();
    let index_along = |axis: usize| builder.iota(DType::I64, shape.clone(), axis);
    let (dilation, stride) = (windows.dilation, windows.stride);
    let row = index_along(0) * dilation[0] + index_along(2) * stride[0];
    let column = index_along(1) * dilation[1] + index_along(3) * stride[1];
    let padded = [
        height + 2 * windows.padding[0],
        width + 2 * windows.padding[1],
    ];
    let index = (row * &padded[1] + column).flatten(0, -1);
    let elements = x.reshape(vec![batch.clone(), channels.clone(), index.numel()]);
    let zeros = builder.full(
        x.dtype(),
        vec![batch.clone(), channels.clone(), &padded[0] * &padded[1]],
        0,
    );
    let summed = zeros.scatter(
        2,
        index.expand(elements.shape()),
        elements,
        ScatterFunction::Add,
    );
    let image = summed.reshape([&[batch, channels][..], &padded[..]].concat());
    let border = [0, 0, -windows.padding[0], -windows.padding[1]].map(Dim::from);
    Ok(unbatched(image.pad(&border, &border, 0), has_batch))
}
