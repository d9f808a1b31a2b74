//! Windows over the last axes of a value, as pooling needs them.

use std::ops::Range;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::{ReduceFunction, ScatterFunction};
use crate::scalar::Scalar;

use super::convolution::dilate;
use super::pooling::scatter_in_planes;

/// Largest number of places in a window, or of its parts, that a gradient adds one by one.
const MAX_ADDED: i64 = 16;

/// Parameters of the windows along one axis.
pub(super) struct PoolAxis {
    /// Number of elements of a window.
    pub size: i64,
    /// Distance between the starts of neighbouring windows.
    pub stride: i64,
    /// Number of padding elements at each end.
    pub padding: i64,
    pub dilation: i64,
    /// True if the last window may extend beyond the end.
    pub ceil_mode: bool,
}

impl PoolAxis {
    /// Number of windows (`aten/src/ATen/native/Pool.h`). A window that `ceil_mode` adds must start inside the input or its
    /// leading padding.
    fn outputs(&self, size: &Dim) -> Dim {
        let stride = Dim::from(self.stride);
        let last_start = size + (2 * self.padding - self.extent());
        if self.ceil_mode {
            let max_count = (size + (self.padding - 1)).floor_div(&stride) + 1;
            let count = last_start.ceil_div(&stride) + 1;
            if self.stride + self.padding <= self.extent() {
                count
            } else {
                count.minimum(&max_count)
            }
        } else {
            last_start.floor_div(&stride) + 1
        }
    }

    /// Number of elements from the first to the last of a window.
    fn extent(&self) -> i64 {
        self.dilation * (self.size - 1) + 1
    }

    /// Number of elements that an average counts in each window along an axis: those of the input, optionally also those of
    /// the padding, but none beyond it, where windows of `ceil_mode` extend.
    pub fn counted_elements<'g>(
        &self,
        x: Value<'g>,
        pooled: Value<'g>,
        axis: i64,
        with_padding: bool,
    ) -> Value<'g> {
        if !self.ceil_mode && (with_padding || self.padding == 0) {
            return x.builder().full(DType::I64, vec![], self.size);
        }
        let start = pooled.positions(axis) * self.stride - self.padding;
        let size = x.size(axis);
        if with_padding {
            (start + self.size).minimum(size + self.padding) - start
        } else {
            (start + self.size).minimum(size) - start.maximum(0)
        }
    }
}

/// Windows of a value: `[.., windows of each axis.., elements of each window..]`.
pub(super) struct Windows<'g> {
    value: Value<'g>,
    axes: Vec<WindowedAxis>,
}

/// The windows along one axis.
struct WindowedAxis {
    placement: WindowPlacement,
    /// Size of the input along the axis.
    size: Dim,
    /// Number of windows.
    windows: Dim,
    /// Number of elements of a window.
    taps: Dim,
}

/// The positions of windows and their elements along an axis.
enum WindowPlacement {
    /// Window `i` begins at `i·stride - padding`; its elements are `dilation` apart.
    Sliding {
        stride: i64,
        padding: i64,
        dilation: i64,
    },
    /// Window `i` of `n` begins at `floor(i·size / n)` and ends before `ceil((i + 1)·size / n)`.
    Adaptive,
}

impl<'g> Windows<'g> {
    /// Windows of equal size over the last axes, with `fill` around the value.
    pub fn sliding(
        x: Value<'g>,
        axes: &[PoolAxis],
        fill: impl Into<Scalar>,
    ) -> Result<Windows<'g>> {
        let first = first_axis(x, axes.len())?;
        let (mut low, mut high) = (vec![Dim::ZERO; first], vec![Dim::ZERO; first]);
        for axis in axes {
            let overhang = if axis.ceil_mode { axis.stride - 1 } else { 0 };
            low.push(Dim::from(axis.padding));
            high.push(Dim::from(axis.padding + overhang));
        }
        let mut value = x.pad(&low, &high, fill);
        let mut windowed_axes = Vec::new();
        for (dim, axis) in (first as i64..).zip(axes) {
            let windows = axis.outputs(&x.size(dim));
            value = value
                .unfold(dim, axis.size, axis.stride, axis.dilation)
                .narrow(dim, 0, windows.clone());
            let placement = WindowPlacement::Sliding {
                stride: axis.stride,
                padding: axis.padding,
                dilation: axis.dilation,
            };
            windowed_axes.push(WindowedAxis {
                placement,
                size: x.size(dim),
                windows,
                taps: Dim::from(axis.size),
            });
        }
        Ok(Windows {
            value,
            axes: windowed_axes,
        })
    }

    /// The given number of windows over the last axes, which share the elements as evenly as possible. Shorter windows are
    /// completed with `fill`.
    pub fn adaptive(x: Value<'g>, outputs: &[Dim], fill: impl Into<Scalar>) -> Result<Windows<'g>> {
        let first = first_axis(x, outputs.len())?;
        let (mut value, fill) = (x, fill.into());
        let mut windowed_axes = Vec::new();
        for (index, windows) in outputs.iter().enumerate() {
            let windowed_axis =
                WindowedAxis::adaptive(x.size((first + index) as i64), windows.clone());
            value = windowed_axis.split(value, first + 2 * index, fill);
            windowed_axes.push(windowed_axis);
        }
        let count = outputs.len();
        let axes = (0..first)
            .chain((0..count).map(|index| first + 2 * index))
            .chain((0..count).map(|index| first + 2 * index + 1));
        let value = value.permute(axes.collect::<Vec<_>>());
        Ok(Windows {
            value,
            axes: windowed_axes,
        })
    }

    /// Reduces every window.
    pub fn reduce(&self, function: ReduceFunction) -> Value<'g> {
        let dims: Vec<i64> = (1..=self.axes.len() as i64).map(|dim| -dim).collect();
        self.value.reduce(function, &dims, false)
    }

    /// Number of input elements in each window; for windows inside the input.
    pub fn counts(&self) -> Value<'g> {
        let builder = self.value.builder();
        let mut counts = builder.full(DType::I64, vec![], 1);
        for (index, axis) in self.axes.iter().enumerate() {
            if axis.is_even() {
                counts = counts * &axis.taps;
            } else {
                let count = axis.ends(self.value) - axis.starts(self.value);
                counts = counts * along(count, self.axes.len() - index);
            }
        }
        counts
    }

    /// Index of each window's largest element (the first of equals) in the flattened pooled axes of the input.
    pub fn argmax(&self) -> Value<'g> {
        let count = self.axes.len() as i64;
        let mut remaining = self.value.flatten(-count, -1).argmax(-1, false);
        let mut positions = Vec::new();
        for (index, axis) in self.axes.iter().enumerate().rev() {
            let tap = remaining.remainder(&axis.taps);
            remaining = remaining.floor_divide(&axis.taps);
            let start = along(axis.starts(self.value), self.axes.len() - index);
            positions.push((axis, axis.placement.element(start, tap)));
        }
        let mut flat = self.value.builder().full(DType::I64, vec![], 0);
        for (axis, position) in positions.into_iter().rev() {
            flat = flat * &axis.size + position;
        }
        flat
    }
}

impl<'g> Windows<'g> {
    /// The gradient of the input for the gradient of each window's largest element: that of the first of equals, as in
    /// PyTorch.
    pub fn gradient_of_maximum(&self, gradient: Value<'g>) -> Result<Value<'g>> {
        let taps: Option<Vec<i64>> = self.axes.iter().map(WindowedAxis::sliding_taps).collect();
        let parts: Option<Vec<_>> = self.axes.iter().map(WindowedAxis::parts).collect();
        match (taps, parts) {
            (Some(taps), Some(parts)) if is_few(parts.iter().map(|parts| parts.len() as i64)) => {
                Ok(self.sum_of_parts(gradient, &taps, &parts))
            }
            (Some(taps), _) if is_few(taps.iter().copied()) => {
                Ok(self.sum_of_taps(gradient, &taps))
            }
            _ => {
                let sizes: Vec<Dim> = self.axes.iter().map(|axis| axis.size.clone()).collect();
                scatter_in_planes(gradient, self.argmax(), &sizes, ScatterFunction::Add)
            }
        }
    }

    /// The place of each window's largest element in the window. Devices read floats faster than 64-bit integers.
    fn largest_taps(&self, dtype: DType) -> Value<'g> {
        let flat = self.value.flatten(-(self.axes.len() as i64), -1);
        flat.argmax(-1, false).to(dtype)
    }

    /// For each part of a window, the gradients of the windows whose largest element is in that part; their sum.
    fn sum_of_parts(
        &self,
        gradient: Value<'g>,
        taps: &[i64],
        parts: &[Vec<Range<i64>>],
    ) -> Value<'g> {
        let first = gradient.rank() - self.axes.len();
        let largest = self.largest_taps(gradient.dtype());
        // Each pooled axis becomes two: windows and taps.
        let tap_axes = (first..gradient.rank()).rev().map(|axis| axis as i64 + 1);
        let of_window = |x: Value<'g>| tap_axes.clone().fold(x, |x, axis| x.unsqueeze(axis));
        let (largest, of_taps) = (of_window(largest), of_window(gradient));
        let of_part = |part: &Vec<&Range<i64>>| {
            let is_largest = largest.eq(tap_numbers(gradient, taps, part));
            let axes = (first as i64..).zip(self.axes.iter().zip(part));
            axes.fold(is_largest.where_(of_taps, 0.0), |x, (dim, (axis, taps))| {
                axis.join(x, dim, taps)
            })
        };
        let of_parts = combinations(parts).iter().map(of_part).collect::<Vec<_>>();
        let sum = of_parts.into_iter().reduce(|sum, part| sum + part);
        sum.unwrap_or(gradient)
    }

    /// For each place in a window, the gradients of the windows whose largest element is there; their sum.
    fn sum_of_taps(&self, gradient: Value<'g>, taps: &[i64]) -> Value<'g> {
        let (rank, count) = (gradient.rank(), self.axes.len());
        let largest = self.largest_taps(gradient.dtype());
        let part = |tap: i64| {
            let mut part = largest.eq(tap as f64).where_(gradient, 0.0);
            let mut remaining = tap;
            let axes = (rank - count..rank).zip(&self.axes).zip(taps).rev();
            for ((dim, axis), taps) in axes {
                part = axis.spread(part, dim as i64, remaining % taps);
                remaining /= taps;
            }
            part
        };
        (1..taps.iter().product()).fold(part(0), |sum, tap| sum + part(tap))
    }
}

impl WindowedAxis {
    /// Number of elements of a sliding window.
    fn sliding_taps(&self) -> Option<i64> {
        match self.placement {
            WindowPlacement::Sliding { .. } => self.taps.as_const(),
            WindowPlacement::Adaptive => None,
        }
    }

    /// Cuts sliding windows of neighbouring elements into parts as long as the stride: the same part of two windows has no
    /// element in common. `None` for other windows. More than [`MAX_ADDED`] parts are not all returned.
    fn parts(&self) -> Option<Vec<Range<i64>>> {
        let WindowPlacement::Sliding {
            stride,
            dilation: 1,
            ..
        } = self.placement
        else {
            return None;
        };
        let taps = self.taps.as_const()?;
        let starts = (0..taps).step_by(usize::try_from(stride).ok()?.max(1));
        let parts = starts.map(|start| start..taps.min(start.saturating_add(stride)));
        Some(parts.take(MAX_ADDED as usize + 1).collect())
    }

    /// Cuts the padding off, and adds zeros for elements in no window.
    fn cut<'g>(&self, padded: Value<'g>, dim: i64) -> Value<'g> {
        let WindowPlacement::Sliding { padding, .. } = self.placement else {
            return padded;
        };
        let rest = &self.size + padding - padded.size(dim);
        let zeros = rest.maximum(&Dim::ZERO);
        let padded = padded.pad_axis(dim, 0, zeros);
        padded.narrow(dim, padding, self.size.clone())
    }

    /// Moves one element of each sliding window to its position in the input, among zeros.
    fn spread<'g>(&self, x: Value<'g>, dim: i64, tap: i64) -> Value<'g> {
        let WindowPlacement::Sliding {
            stride, dilation, ..
        } = self.placement
        else {
            return x;
        };
        let spread = dilate(x, dim, stride);
        self.cut(spread.pad_axis(dim, tap * dilation, 0), dim)
    }

    /// Joins the axis of sliding windows with the axis behind it, that of a part of their elements: the axis of the input.
    fn join<'g>(&self, x: Value<'g>, dim: i64, part: &Range<i64>) -> Value<'g> {
        let WindowPlacement::Sliding { stride, .. } = self.placement else {
            return x;
        };
        let rest = stride - (part.end - part.start);
        let joined = x.pad_axis(dim + 1, 0, rest).flatten(dim, dim + 1);
        self.cut(joined.pad_axis(dim, part.start, 0), dim)
    }

    /// An axis of this size with the given number of adaptive windows.
    fn adaptive(size: Dim, windows: Dim) -> WindowedAxis {
        let taps = if size == windows {
            Dim::ONE
        } else if size.modulo(&windows).is(0) {
            size.floor_div(&windows)
        } else {
            // A window may include one element more at either end than its share.
            size.ceil_div(&windows) + 1
        };
        WindowedAxis {
            placement: WindowPlacement::Adaptive,
            size,
            windows,
            taps,
        }
    }

    /// True if the windows cover the axis without gaps and overlaps.
    fn is_even(&self) -> bool {
        &self.windows * &self.taps == self.size
    }

    /// Splits the axis in two: windows, and elements of a window.
    fn split<'g>(&self, x: Value<'g>, axis: usize, fill: Scalar) -> Value<'g> {
        let mut shape = x.shape();
        shape.splice(axis..=axis, [self.windows.clone(), self.taps.clone()]);
        if self.is_even() {
            return x.reshape(shape);
        }
        let element =
            self.starts(x).unsqueeze(1) + x.builder().iota(DType::I64, vec![self.taps.clone()], 0);
        let inside = element.lt(self.ends(x).unsqueeze(1));
        let element = element.minimum(&self.size - 1);
        // The axis of the elements follows that of the windows, in front of the remaining axes.
        let inside = along(inside, shape.len().saturating_sub(axis + 1));
        let picked = x
            .index_select(axis as i64, element.flatten(0, 1))
            .reshape(shape);
        inside.where_(picked, fill)
    }

    /// The index of each window's first element.
    fn starts<'g>(&self, x: Value<'g>) -> Value<'g> {
        let index = x.builder().iota(DType::I64, vec![self.windows.clone()], 0);
        match self.placement {
            WindowPlacement::Sliding {
                stride, padding, ..
            } => index * stride - padding,
            WindowPlacement::Adaptive => (index * &self.size).floor_divide(&self.windows),
        }
    }

    /// The index after each adaptive window's last element.
    fn ends<'g>(&self, x: Value<'g>) -> Value<'g> {
        let next = x.builder().iota(DType::I64, vec![self.windows.clone()], 0) + 1;
        (next * &self.size + (&self.windows - 1)).floor_divide(&self.windows)
    }
}

impl WindowPlacement {
    /// The input index of an element of a window. Padding wins only if no element of the window is larger; then PyTorch
    /// returns the first element inside the input.
    fn element<'g>(&self, start: Value<'g>, tap: Value<'g>) -> Value<'g> {
        match self {
            WindowPlacement::Adaptive => start + tap,
            WindowPlacement::Sliding {
                padding, dilation, ..
            } => {
                let index = start + tap * *dilation;
                if *padding == 0 {
                    index
                } else {
                    index.lt(0).where_(index.remainder(*dilation), index)
                }
            }
        }
    }
}

/// The first of the last `count` axes. There must be another axis in front of it.
fn first_axis(x: Value, count: usize) -> Result<usize> {
    x.builder().check()?;
    match x.rank().checked_sub(count) {
        Some(first) if first > 0 => Ok(first),
        _ => Err(Error::operator(format!(
            "pools {count} spatial axes, not {}",
            x.ty()
        ))),
    }
}

/// True if the product of these numbers is at most [`MAX_ADDED`].
fn is_few(counts: impl Iterator<Item = i64>) -> bool {
    counts.fold(1, i64::saturating_mul) <= MAX_ADDED
}

/// All combinations of one element of each list. The element of the last list changes fastest.
fn combinations<T>(lists: &[Vec<T>]) -> Vec<Vec<&T>> {
    lists.iter().fold(vec![Vec::new()], |shorter, list| {
        let extended = shorter.iter().flat_map(|combination| {
            let elements = list.iter();
            elements.map(|element| combination.iter().copied().chain([element]).collect())
        });
        extended.collect()
    })
}

/// The number of each place of a part of a window, in an array that aligns with the taps of every pooled axis.
fn tap_numbers<'g>(gradient: Value<'g>, taps: &[i64], part: &[&Range<i64>]) -> Value<'g> {
    let builder = gradient.builder();
    let places = |part: &Range<i64>| {
        let places = vec![Dim::from(part.end - part.start)];
        let from_zero = builder.iota(gradient.dtype(), places, 0);
        match part.start {
            0 => from_zero,
            start => from_zero + start as f64,
        }
    };
    let mut axes = taps.iter().zip(part);
    let first = axes.next().map(|(_, part)| places(part));
    let first = first.unwrap_or_else(|| builder.full(gradient.dtype(), vec![], 0.0));
    axes.fold(first, |numbers, (taps, part)| {
        (numbers * *taps as f64).unsqueeze(-1).unsqueeze(-1) + places(part)
    })
}

/// Adds `position - 1` axes of size 1 at the end, so that the last axis becomes the axis at `position` from the end,
/// where the last axis has position 1.
fn along(value: Value, position: usize) -> Value {
    let mut shape = value.shape();
    shape.resize(shape.len() + position.saturating_sub(1), Dim::ONE);
    value.reshape(shape)
}
