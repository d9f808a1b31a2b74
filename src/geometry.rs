//! The location of a tensor's elements in its storage: PyTorch's sizes, strides and offset, and its rules about them.
//!
//! Graphs are functional and row-major. Geometry exists only during import, where it decides which tensors share memory. The
//! example answers questions about symbolic sizes. The answers are collected as [`Assumptions`] and become guards only if a
//! result depends on them: whether two tensors share memory of which one is written.

mod assumptions;

use std::cmp::Ordering;

use crate::dim::Dim;
use crate::error::Result;
use crate::shape::Shape;

pub use assumptions::Assumptions;

/// Sizes, strides and offset of a tensor, in elements of its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Sizes, outermost first.
    pub sizes: Shape,
    /// Distance in the storage between adjacent elements along each axis.
    pub strides: Vec<Dim>,
    /// Position of the first element in the storage.
    pub offset: Dim,
}

/// `torch.memory_format` of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFormat {
    /// Row-major.
    Contiguous,
    /// Row-major, except that the axis of channels (the second of four or five) varies fastest.
    ChannelsLast,
}

impl Geometry {
    /// A contiguous row-major tensor at the start of its storage.
    pub fn contiguous(sizes: Shape) -> Geometry {
        let strides = contiguous_strides(&sizes);
        Geometry {
            sizes,
            strides,
            offset: Dim::ZERO,
        }
    }

    /// A dense tensor of a memory format.
    pub fn of_format(sizes: Shape, format: MemoryFormat) -> Geometry {
        match (format, sizes.len()) {
            (MemoryFormat::ChannelsLast, rank @ (4 | 5)) => {
                let fastest_first = std::iter::once(1).chain((2..rank).rev()).chain([0]);
                Geometry::dense(sizes, &fastest_first.collect::<Vec<_>>())
            }
            _ => Geometry::contiguous(sizes),
        }
    }

    /// A dense tensor whose axes are given from the smallest stride to the largest.
    pub fn dense(sizes: Shape, fastest_first: &[usize]) -> Geometry {
        let mut geometry = Geometry::contiguous(sizes);
        let mut stride = Dim::ONE;
        for axis in fastest_first {
            if let (Some(place), Some(size)) =
                (geometry.strides.get_mut(*axis), geometry.sizes.get(*axis))
            {
                *place = stride.clone();
                stride = &stride * size;
            }
        }
        geometry
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> Dim {
        Dim::product(&self.sizes)
    }

    /// Replaces all sizes, strides and the offset.
    pub fn map_sizes(&mut self, map: &mut impl FnMut(&Dim) -> Dim) {
        let sizes = self.sizes.iter_mut().chain(&mut self.strides);
        sizes
            .chain([&mut self.offset])
            .for_each(|size| *size = map(size));
    }

    /// Axes in another order.
    pub fn permute(&self, axes: &[usize]) -> Geometry {
        let pick = |from: &[Dim]| {
            let picked = axes.iter().filter_map(|axis| from.get(*axis).cloned());
            picked.collect::<Vec<Dim>>()
        };
        Geometry {
            sizes: pick(&self.sizes),
            strides: pick(&self.strides),
            offset: self.offset.clone(),
        }
    }

    /// `length` indices of an axis from `start` on, `step` apart.
    pub fn slice(&self, axis: usize, start: &Dim, length: &Dim, step: i64) -> Geometry {
        let mut part = self.clone();
        if let (Some(size), Some(stride)) = (part.sizes.get_mut(axis), part.strides.get_mut(axis)) {
            part.offset = &part.offset + &(start * &*stride);
            *size = length.clone();
            *stride = &*stride * step;
        }
        part
    }

    /// Broadcasts along axes of size 1 and along new leading axes.
    pub fn expand(&self, sizes: &[Dim]) -> Geometry {
        let added = sizes.len().saturating_sub(self.rank());
        let stride = |(axis, size): (usize, &Dim)| match axis.checked_sub(added) {
            Some(own) if self.sizes.get(own) == Some(size) => {
                self.strides.get(own).cloned().unwrap_or(Dim::ZERO)
            }
            _ => Dim::ZERO,
        };
        Geometry {
            sizes: sizes.to_vec(),
            strides: sizes.iter().enumerate().map(stride).collect(),
            offset: self.offset.clone(),
        }
    }

    /// Windows along an axis; a new last axis holds their elements.
    pub fn unfold(&self, axis: usize, sizes: &[Dim], stride: i64, dilation: i64) -> Geometry {
        let mut windows = self.clone();
        windows.sizes = sizes.to_vec();
        if let Some(place) = windows.strides.get_mut(axis) {
            let element = &*place * dilation;
            *place = &*place * stride;
            windows.strides.push(element);
        }
        windows
    }

    /// Adds a new axis of size 1 (`at::native::inferUnsqueezeGeometry`).
    pub fn unsqueeze(&self, axis: usize) -> Geometry {
        let mut geometry = self.clone();
        let behind = self.sizes.get(axis).zip(self.strides.get(axis));
        let stride = behind.map_or(Dim::ONE, |(size, stride)| size * stride);
        geometry.sizes.insert(axis.min(self.rank()), Dim::ONE);
        geometry.strides.insert(axis.min(self.rank()), stride);
        geometry
    }

    /// The diagonal of two axes, which becomes the last axis (`torch.diagonal`).
    pub fn diagonal(&self, [first, second]: [usize; 2], offset: i64, length: &Dim) -> Geometry {
        let others = (0..self.rank()).filter(|axis| ![first, second].contains(axis));
        let mut geometry = self.permute(&others.collect::<Vec<_>>());
        let stride = |axis: usize| self.strides.get(axis).cloned().unwrap_or(Dim::ZERO);
        let skipped = if offset < 0 { first } else { second };
        if !length.is(0) {
            let start = stride(skipped) * offset.saturating_abs();
            geometry.offset = &geometry.offset + &start;
        }
        geometry.sizes.push(length.clone());
        geometry.strides.push(stride(first) + stride(second));
        geometry
    }

    /// Geometry of this memory under another shape; `None` if that needs a copy (`at::detail::computeStride`).
    pub fn reshape(&self, assumptions: &Assumptions, sizes: &[Dim]) -> Result<Option<Geometry>> {
        let strides = match self.is_provably_contiguous() {
            true => Some(contiguous_strides(sizes)),
            false => match self.strides_up_to_unit_axes(sizes, Some(assumptions))? {
                Some(strides) => Some(strides),
                None => self.compute_strides(assumptions, sizes)?,
            },
        };
        Ok(strides.map(|strides| self.with_strides(sizes, strides)))
    }

    /// Adds or removes axes of size 1; the other axes keep their strides, as in `select` and `squeeze`.
    pub fn with_unit_axes(
        &self,
        assumptions: &Assumptions,
        sizes: &[Dim],
    ) -> Result<Option<Geometry>> {
        match self.strides_up_to_unit_axes(sizes, None)? {
            Some(strides) => Ok(Some(self.with_strides(sizes, strides))),
            None => self.reshape(assumptions, sizes),
        }
    }

    fn with_strides(&self, sizes: &[Dim], strides: Vec<Dim>) -> Geometry {
        Geometry {
            sizes: sizes.to_vec(),
            strides,
            offset: self.offset.clone(),
        }
    }

    /// Strides for sizes that differ only in axes of size 1. `computeStride` changes the strides of axes whose size happens
    /// to be 1; without `assumptions` they keep theirs.
    fn strides_up_to_unit_axes(
        &self,
        sizes: &[Dim],
        assumptions: Option<&Assumptions>,
    ) -> Result<Option<Vec<Dim>>> {
        let axes = self.sizes.iter().zip(&self.strides);
        let mut wide = axes.rev().filter(|(size, _)| !size.is(1));
        let mut above = self.strides.last().cloned().unwrap_or(Dim::ONE);
        let mut strides = Vec::with_capacity(sizes.len());
        for size in sizes.iter().rev() {
            if size.is(1) {
                strides.push(above.clone());
                continue;
            }
            let Some((own, stride)) = wide.next().filter(|(own, _)| *own == size) else {
                return Ok(None);
            };
            let is_one = match assumptions {
                Some(asked) if *stride != above => asked.equal(own, &Dim::ONE)?,
                _ => false,
            };
            let stride = if is_one { &above } else { stride };
            strides.push(stride.clone());
            above = stride * own;
        }
        strides.reverse();
        Ok(wide.next().is_none().then_some(strides))
    }

    fn compute_strides(
        &self,
        assumptions: &Assumptions,
        sizes: &[Dim],
    ) -> Result<Option<Vec<Dim>>> {
        if self.sizes.iter().any(|size| size.is(0)) {
            return Ok(Some(contiguous_strides(sizes)));
        }
        let mut strides = vec![Dim::ONE; sizes.len()];
        let mut rest = sizes.len();
        let mut base = self.strides.last().cloned().unwrap_or(Dim::ONE);
        let mut chunk = Dim::ONE;
        for axis in (0..self.rank()).rev() {
            chunk = &chunk * self.sizes.get(axis).unwrap_or(&Dim::ONE);
            let outer = axis.checked_sub(1);
            let outer = outer.and_then(|axis| self.sizes.get(axis).zip(self.strides.get(axis)));
            if let Some((size, stride)) = outer
                && (assumptions.equal(stride, &(&chunk * &base))?
                    || assumptions.equal(size, &Dim::ONE)?)
            {
                continue;
            }
            let mut done = Dim::ONE;
            while let Some(next) = rest.checked_sub(1).and_then(|axis| sizes.get(axis)) {
                if assumptions.compare(&done, &chunk)?.is_ge()
                    && !assumptions.equal(next, &Dim::ONE)?
                {
                    break;
                }
                rest -= 1;
                if let Some(place) = strides.get_mut(rest) {
                    *place = &done * &base;
                }
                done = &done * next;
            }
            if !assumptions.equal(&done, &chunk)? {
                return Ok(None);
            }
            if let Some((_, stride)) = outer {
                base = stride.clone();
            }
            chunk = Dim::ONE;
        }
        Ok((rest == 0).then_some(strides))
    }

    /// True if the tensor is provably contiguous for all values of the symbols.
    pub fn is_provably_contiguous(&self) -> bool {
        let mut expected = Dim::ONE;
        self.sizes
            .iter()
            .zip(&self.strides)
            .rev()
            .all(|(size, stride)| {
                let fits = size.is(1) || *stride == expected;
                expected = &expected * size;
                fits
            })
    }

    /// `Tensor.is_contiguous()`.
    pub fn is_contiguous(&self, assumptions: &Assumptions) -> Result<bool> {
        let axes = (0..self.rank()).rev().collect::<Vec<_>>();
        Ok(self.is_provably_contiguous() || self.is_packed(assumptions, &axes)?)
    }

    /// True if the tensor is contiguous in a memory format.
    pub fn has_format(&self, assumptions: &Assumptions, format: MemoryFormat) -> Result<bool> {
        match (format, self.rank()) {
            (MemoryFormat::Contiguous, _) => self.is_contiguous(assumptions),
            (MemoryFormat::ChannelsLast, rank @ (4 | 5)) => {
                let axes = std::iter::once(1).chain((2..rank).rev()).chain([0]);
                self.is_packed(assumptions, &axes.collect::<Vec<_>>())
            }
            _ => Ok(false),
        }
    }

    /// True if the tensor has no gaps and overlaps when its axes are given from the smallest stride to the largest. Strides
    /// of axes of size 1 do not matter.
    fn is_packed(&self, assumptions: &Assumptions, fastest_first: &[usize]) -> Result<bool> {
        if self.sizes.iter().any(|size| size.is(0)) {
            return Ok(true);
        }
        let mut expected = Dim::ONE;
        for axis in fastest_first {
            let Some((size, stride)) = self.sizes.get(*axis).zip(self.strides.get(*axis)) else {
                return Ok(false);
            };
            if *stride != expected
                && !assumptions.equal(size, &Dim::ONE)?
                && !assumptions.equal(stride, &expected)?
            {
                return Ok(false);
            }
            expected = &expected * size;
        }
        Ok(true)
    }

    /// The axes from the smallest stride to the largest; `None` if the tensor has gaps or overlaps
    /// (`is_non_overlapping_and_dense`).
    pub fn dense_order(&self, assumptions: &Assumptions) -> Result<Option<Vec<usize>>> {
        if self.is_provably_contiguous() {
            return Ok(Some((0..self.rank()).rev().collect()));
        }
        let order = self.axes_by_stride(assumptions)?;
        Ok(self.is_packed(assumptions, &order)?.then_some(order))
    }

    /// Whether two elements may share memory (`at::has_internal_overlap` is less exact).
    pub fn may_overlap(&self, assumptions: &Assumptions) -> Result<bool> {
        if self.is_provably_contiguous() {
            return Ok(false);
        }
        let mut extent = Dim::ONE;
        for axis in self.axes_by_stride(assumptions)? {
            let Some((size, stride)) = self.sizes.get(axis).zip(self.strides.get(axis)) else {
                continue;
            };
            if assumptions.compare(size, &Dim::ONE)?.is_le() {
                continue;
            }
            if assumptions.compare(stride, &extent)?.is_lt() {
                return Ok(true);
            }
            extent = &extent + &((size - 1) * stride);
        }
        Ok(false)
    }

    /// The axes from the smallest stride to the largest.
    fn axes_by_stride(&self, assumptions: &Assumptions) -> Result<Vec<usize>> {
        let row_major: Vec<usize> = (0..self.rank()).rev().collect();
        insertion_sorted(row_major, |a, b| {
            match (self.strides.get(a), self.strides.get(b)) {
                (Some(a), Some(b)) => assumptions.compare(a, b),
                _ => Ok(Ordering::Equal),
            }
        })
    }

    /// The memory format that PyTorch derives for a tensor of images (`Tensor.suggest_memory_format`).
    pub fn suggested_format(&self, assumptions: &Assumptions) -> Result<MemoryFormat> {
        if !matches!(self.rank(), 4 | 5)
            || self.is_provably_contiguous() && self.has_unambiguous_format()
        {
            return Ok(MemoryFormat::Contiguous);
        }
        Ok(match self.is_channels_last(assumptions)? {
            true => MemoryFormat::ChannelsLast,
            false => MemoryFormat::Contiguous,
        })
    }

    /// True if strides distinguish the memory formats: there are several channels and more than one position.
    fn has_unambiguous_format(&self) -> bool {
        let known = |size: &Dim| size.as_const().is_none_or(|size| size > 1);
        self.sizes.get(1).is_some_and(known) && self.sizes.iter().skip(2).any(known)
    }

    /// `is_channels_last_strides_2d` and `_3d`; false for ambiguous tensors.
    fn is_channels_last(&self, assumptions: &Assumptions) -> Result<bool> {
        let stride = |axis: usize| self.strides.get(axis).cloned().unwrap_or(Dim::ZERO);
        if assumptions.equal(&stride(1), &Dim::ZERO)? {
            return Ok(false);
        }
        let axes = std::iter::once(1).chain((2..self.rank()).rev()).chain([0]);
        let mut least = Dim::ZERO;
        for axis in axes {
            let size = self.sizes.get(axis).cloned().unwrap_or(Dim::ONE);
            if size.is(0) || assumptions.compare(&stride(axis), &least)?.is_lt() {
                return Ok(false);
            }
            if axis == 0 && assumptions.equal(&least, &stride(1))? {
                return Ok(false);
            }
            least = stride(axis) * size;
        }
        Ok(true)
    }

    /// The geometry of a result that keeps the order of axes (`torch.preserve_format`).
    pub fn preserved(&self, assumptions: &Assumptions) -> Result<Geometry> {
        match self.dense_order(assumptions)? {
            Some(_) => Ok(Geometry {
                offset: Dim::ZERO,
                ..self.clone()
            }),
            None => Geometry::elementwise(assumptions, &self.sizes, &[self]),
        }
    }

    /// The geometry of an elementwise result, as `at::TensorIterator` allocates it. Axes are in the order of the operands'
    /// strides; the first operand that distinguishes two axes decides.
    pub fn elementwise(
        assumptions: &Assumptions,
        sizes: &[Dim],
        operands: &[&Geometry],
    ) -> Result<Geometry> {
        let row_major: Vec<usize> = (0..sizes.len()).rev().collect();
        let plain = |operand: &&Geometry| {
            operand.rank() == 0 || operand.sizes == sizes && operand.is_provably_contiguous()
        };
        if sizes.len() < 2 || operands.iter().all(plain) {
            return Ok(Geometry::contiguous(sizes.to_vec()));
        }
        let strides: Vec<Vec<Dim>> = operands
            .iter()
            .map(|o| o.broadcast_strides(sizes))
            .collect();
        let order = insertion_sorted(row_major, |a, b| {
            compare_axes(assumptions, sizes, &strides, a, b)
        })?;
        Ok(Geometry::dense(sizes.to_vec(), &order))
    }

    /// Strides for a broadcast shape: 0 along repeated axes.
    fn broadcast_strides(&self, sizes: &[Dim]) -> Vec<Dim> {
        let added = sizes.len().saturating_sub(self.rank());
        let stride = |(axis, size): (usize, &Dim)| {
            let own = axis.checked_sub(added);
            let own = own.and_then(|axis| self.sizes.get(axis).zip(self.strides.get(axis)));
            match own {
                Some((own, stride)) if !own.is(1) || size.is(1) => stride.clone(),
                _ => Dim::ZERO,
            }
        };
        sizes.iter().enumerate().map(stride).collect()
    }
}

/// The order of two axes in `at::TensorIterator`; equal if no operand distinguishes them.
fn compare_axes(
    assumptions: &Assumptions,
    sizes: &[Dim],
    strides: &[Vec<Dim>],
    a: usize,
    b: usize,
) -> Result<Ordering> {
    for operand in strides {
        let (Some(first), Some(second)) = (operand.get(a), operand.get(b)) else {
            continue;
        };
        if first.is(0) || second.is(0) {
            continue;
        }
        let order = assumptions.compare(first, second)?;
        if order.is_ne() {
            return Ok(order);
        }
        if let (Some(first), Some(second)) = (sizes.get(a), sizes.get(b))
            && assumptions.compare(first, second)?.is_gt()
        {
            return Ok(Ordering::Greater);
        }
    }
    Ok(Ordering::Equal)
}

/// PyTorch's insertion sort, which skips equal pairs: the comparison need not be transitive.
fn insertion_sorted(
    mut order: Vec<usize>,
    compare: impl Fn(usize, usize) -> Result<Ordering>,
) -> Result<Vec<usize>> {
    for start in 1..order.len() {
        let mut moved = start;
        for place in (0..start).rev() {
            match compare(order[place], order[moved])? {
                Ordering::Greater => {
                    order.swap(place, moved);
                    moved = place;
                }
                Ordering::Less => break,
                Ordering::Equal => {}
            }
        }
    }
    Ok(order)
}

fn contiguous_strides(sizes: &[Dim]) -> Vec<Dim> {
    let mut strides: Vec<Dim> = Vec::with_capacity(sizes.len());
    let mut stride = Dim::ONE;
    for size in sizes.iter().rev() {
        strides.push(stride.clone());
        stride = &stride * size;
    }
    strides.reverse();
    strides
}
