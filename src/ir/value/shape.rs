use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::op::{Concat, Expand, Pad, Permute, Reshape, Slice, Unfold};
use crate::scalar::Scalar;
use crate::shape::{Shape, wrap_dim};

use super::Value;
use crate::ir::builder::Builder;

impl<'g> Value<'g> {
    /// Reshapes to a shape with an equal number of elements. `-1` is not allowed; see [`Value::view`].
    pub fn reshape(self, shape: impl Into<Shape>) -> Value<'g> {
        let shape = shape.into();
        if shape == self.shape() {
            self
        } else {
            self.unary(Reshape { shape })
        }
    }

    /// `Tensor.view`: one size may be `-1` and is inferred.
    pub fn view(self, sizes: &[Dim]) -> Value<'g> {
        match self.infer_sizes(&self.numel(), sizes) {
            Ok(shape) => self.reshape(shape),
            Err(error) => self.failed(error),
        }
    }

    /// Sizes whose product is `whole`. One may be `-1` and is inferred; the product of the others must not be zero.
    pub fn infer_sizes(self, whole: &Dim, sizes: &[Dim]) -> Result<Shape> {
        let (open, known): (Vec<&Dim>, Vec<&Dim>) = sizes.iter().partition(|size| size.is(-1));
        if open.is_empty() {
            return Ok(sizes.to_vec());
        }
        let known = Dim::product(known);
        if open.len() > 1 || !self.builder.symbols().positive(&known)? {
            let shape = sizes.iter().map(Dim::to_string).collect::<Vec<_>>();
            let message = format!(
                "cannot infer -1 in [{}] for {whole} elements",
                shape.join(", ")
            );
            return Err(Error::operator(message));
        }
        let rest = whole.floor_div(&known);
        let size = |size: &Dim| {
            if size.is(-1) {
                rest.clone()
            } else {
                size.clone()
            }
        };
        Ok(sizes.iter().map(size).collect())
    }

    /// Permutes the axes.
    pub fn permute(self, axes: impl Into<Vec<usize>>) -> Value<'g> {
        let axes = axes.into();
        if axes.iter().copied().eq(0..self.rank()) {
            self
        } else {
            self.unary(Permute { axes })
        }
    }

    /// Exchanges two axes.
    pub fn transpose(self, a: i64, b: i64) -> Value<'g> {
        let (Some(a), Some(b)) = (self.axis(a), self.axis(b)) else {
            return self;
        };
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        if a < axes.len() && b < axes.len() {
            axes.swap(a, b);
        }
        self.permute(axes)
    }

    /// Moves an axis to another position; the others keep their order.
    pub fn move_axis(self, from: i64, to: i64) -> Value<'g> {
        let (Some(from), Some(to)) = (self.axis(from), self.axis(to)) else {
            return self;
        };
        let mut axes: Vec<usize> = (0..self.rank()).filter(|axis| *axis != from).collect();
        if from < self.rank() {
            axes.insert(to.min(axes.len()), from);
        }
        self.permute(axes)
    }

    /// Broadcasts to a shape without `-1`; returns the value itself if it has that shape.
    pub fn expand(self, shape: impl Into<Shape>) -> Value<'g> {
        let shape = shape.into();
        if shape == self.shape() {
            self
        } else {
            self.with_proven_ones(&shape).unary(Expand { shape })
        }
    }

    /// Replaces sizes that are to be repeated by the number 1, if they are symbols that are 1 by a guard. Kernels recognise
    /// repeated axes by that number.
    fn with_proven_ones(self, wide: &[Dim]) -> Value<'g> {
        let own = self.shape();
        let symbols = self.builder().symbols();
        let is_one = |size: &Dim| symbols.hint(size).is_ok_and(|hint| hint == 1);
        let new = wide.len().saturating_sub(own.len());
        let axes = own.iter().zip(wide.iter().skip(new)).enumerate();
        let mut value = self;
        for (axis, (size, _)) in axes.filter(|(_, (size, to))| is_one(size) && !is_one(to)) {
            let what = || format!("size {size} of a repeated axis is not 1");
            if let Err(error) = symbols.require_equal(size, &Dim::ONE, what) {
                return self.failed(error);
            }
            if !symbols.resolve(size).is(1) {
                value = value.unary(Slice {
                    axis,
                    start: Dim::ZERO,
                    length: Dim::ONE,
                    step: 1,
                });
            }
        }
        value
    }

    /// `Tensor.expand`: `-1` keeps a size.
    pub fn expand_sizes(self, sizes: &[Dim]) -> Value<'g> {
        let own = self.shape();
        let new = sizes.len().saturating_sub(own.len());
        let keep = |axis: usize| {
            axis.checked_sub(new)
                .and_then(|axis| own.get(axis))
                .cloned()
                .unwrap_or(Dim::ONE)
        };
        let shape = sizes.iter().enumerate().map(|(axis, size)| {
            if size.is(-1) {
                keep(axis)
            } else {
                size.clone()
            }
        });
        self.expand(shape.collect::<Shape>())
    }

    /// Adds a new axis of size 1; `dim` is an axis of the result.
    pub fn unsqueeze(self, dim: i64) -> Value<'g> {
        let mut shape = self.shape();
        match wrap_dim(dim, shape.len() + 1) {
            Ok(axis) => shape.insert(axis, Dim::ONE),
            Err(error) => return self.failed(error),
        }
        self.reshape(shape)
    }

    /// Removes those of the given axes that have size 1. The example answers for a symbolic size.
    pub fn squeeze(self, dims: &[i64]) -> Value<'g> {
        let axes: Vec<usize> = dims.iter().filter_map(|dim| self.axis(*dim)).collect();
        let is_one = |size: &Dim| {
            self.builder
                .symbols()
                .equal(size, &Dim::ONE)
                .unwrap_or(false)
        };
        let kept = self
            .shape()
            .into_iter()
            .enumerate()
            .filter(|(axis, size)| !(axes.contains(axis) && is_one(size)));
        self.reshape(kept.map(|(_, size)| size).collect::<Shape>())
    }

    /// Merges the axes `from..=to`; a scalar becomes a vector.
    pub fn flatten(self, from: i64, to: i64) -> Value<'g> {
        let shape = self.shape();
        let (Some(from), Some(to)) = (self.axis(from), self.axis(to)) else {
            return self;
        };
        if shape.is_empty() {
            return self.reshape(vec![Dim::ONE]);
        }
        if from > to {
            return self.failed(Error::operator(format!("flatten from axis {from} to {to}")));
        }
        let joined = Dim::product(shape.iter().take(to + 1).skip(from));
        let (before, after) = (shape.iter().take(from), shape.iter().skip(to + 1));
        let sizes = before.chain([&joined]).chain(after);
        self.reshape(sizes.cloned().collect::<Shape>())
    }

    /// `length` indices along an axis, starting at `start`.
    pub fn narrow(self, dim: i64, start: impl Into<Dim>, length: impl Into<Dim>) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        let (start, length) = (start.into(), length.into());
        if start.is(0) && self.shape().get(axis) == Some(&length) {
            return self;
        }
        self.unary(Slice {
            axis,
            start,
            length,
            step: 1,
        })
    }

    /// Python's slice: absent bounds are the ends, negative ones count from the end, and all are clamped.
    pub fn slice(self, dim: i64, start: Option<Dim>, end: Option<Dim>, step: i64) -> Value<'g> {
        self.try_slice(dim, start, end, step)
            .unwrap_or_else(|error| self.failed(error))
    }

    fn try_slice(
        self,
        dim: i64,
        start: Option<Dim>,
        end: Option<Dim>,
        step: i64,
    ) -> Result<Value<'g>> {
        if step < 1 {
            return Err(Error::operator(format!("slice with step {step}")));
        }
        let axis = wrap_dim(dim, self.rank())?;
        let size = self.size(dim);
        let start = start.map_or(Ok(Dim::ZERO), |bound| self.clamp_bound(bound, &size))?;
        let end = end.map_or(Ok(size.clone()), |bound| self.clamp_bound(bound, &size))?;
        let symbols = self.builder.symbols();
        let end = if symbols.less_equal(&start, &end)? {
            end
        } else {
            start.clone()
        };
        let length = (&end - &start).ceil_div(&Dim::from(step));
        if start.is(0) && step == 1 && length == size {
            return Ok(self);
        }
        Ok(self.unary(Slice {
            axis,
            start,
            length,
            step,
        }))
    }

    /// Clamps a slice bound to `0..=size`.
    fn clamp_bound(self, bound: Dim, size: &Dim) -> Result<Dim> {
        let symbols = self.builder.symbols();
        if bound
            .as_const()
            .is_some_and(|bound| bound >= i64::from(i32::MAX))
        {
            return Ok(size.clone());
        }
        let bound = if symbols.less_equal(&Dim::ZERO, &bound)? {
            bound
        } else {
            &bound + size
        };
        if !symbols.less_equal(&Dim::ZERO, &bound)? {
            return Ok(Dim::ZERO);
        }
        Ok(if symbols.less_equal(&bound, size)? {
            bound
        } else {
            size.clone()
        })
    }

    /// Selects one index along an axis, which disappears; a negative index counts from the end.
    pub fn select(self, dim: i64, index: impl Into<Dim>) -> Value<'g> {
        let index = index.into();
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        let symbols = self.builder.symbols();
        let index = match symbols.less_equal(&Dim::ZERO, &index) {
            Ok(true) => index,
            Ok(false) => &index + &self.size(dim),
            Err(error) => return self.failed(error),
        };
        let mut shape = self.shape();
        if axis >= shape.len() {
            return self.failed(Error::operator("cannot select from a scalar"));
        }
        shape.remove(axis);
        self.unary(Slice {
            axis,
            start: index,
            length: Dim::ONE,
            step: 1,
        })
        .reshape(shape)
    }

    /// Reverses axes.
    pub fn flip(self, dims: &[i64]) -> Value<'g> {
        dims.iter()
            .filter_map(|dim| self.axis(*dim))
            .fold(self, |value, axis| match value.shape().get(axis) {
                Some(size) => value.unary(Slice {
                    axis,
                    start: size - 1,
                    length: size.clone(),
                    step: -1,
                }),
                None => value,
            })
    }

    /// Adds zeros at both ends of one axis.
    pub(crate) fn pad_axis(self, dim: i64, low: impl Into<Dim>, high: impl Into<Dim>) -> Value<'g> {
        let axis = self.axis(dim);
        let on_axis = |size: Dim| -> Shape {
            let mut sizes = vec![Dim::ZERO; self.rank()];
            if let Some(of_axis) = axis.and_then(|axis| sizes.get_mut(axis)) {
                *of_axis = size;
            }
            sizes
        };
        self.pad(&on_axis(low.into()), &on_axis(high.into()), 0.0)
    }

    /// Pads each axis with a number at both ends; negative padding crops.
    pub fn pad(self, low: &[Dim], high: &[Dim], number: impl Into<Scalar>) -> Value<'g> {
        let zero_or = |dim: &Dim| {
            if dim.as_const().is_some_and(|number| number < 0) {
                Dim::ZERO
            } else {
                dim.clone()
            }
        };
        let mut value = self;
        for (axis, (low, high)) in low.iter().zip(high).enumerate() {
            let (cut_low, cut_high) = (&zero_or(low) - low, &zero_or(high) - high);
            if !cut_low.is(0) || !cut_high.is(0) {
                let length = value
                    .shape()
                    .get(axis)
                    .map_or(Dim::ZERO, |size| size - &cut_low - &cut_high);
                value = value.narrow(axis as i64, cut_low, length);
            }
        }
        let (low, high): (Shape, Shape) = (
            low.iter().map(zero_or).collect(),
            high.iter().map(zero_or).collect(),
        );
        if low.iter().chain(&high).all(|dim| dim.is(0)) {
            return value;
        }
        let number = number.into().cast(value.dtype());
        value
            .builder
            .apply(Pad { low, high }, vec![value.into(), number.into()])
    }

    /// Windows along an axis; a new last axis holds their elements.
    pub fn unfold(self, dim: i64, size: i64, stride: i64, dilation: i64) -> Value<'g> {
        let Some(axis) = self.axis(dim) else {
            return self;
        };
        self.unary(Unfold {
            axis,
            size,
            stride,
            dilation,
        })
    }

    /// Repeats along each axis like `Tensor.repeat`; missing axes are added in front.
    pub fn repeat(self, repeats: &[Dim]) -> Value<'g> {
        let rank = repeats.len().max(self.rank());
        let own: Shape = std::iter::repeat_n(Dim::ONE, rank - self.rank())
            .chain(self.shape())
            .collect();
        let times: Shape = std::iter::repeat_n(Dim::ONE, rank - repeats.len())
            .chain(repeats.iter().cloned())
            .collect();
        let pairs = |first: &Shape| -> Shape {
            first
                .iter()
                .zip(&own)
                .flat_map(|(a, b)| [a.clone(), b.clone()])
                .collect()
        };
        let ones = vec![Dim::ONE; rank];
        let result: Shape = own
            .iter()
            .zip(&times)
            .map(|(size, times)| size * times)
            .collect();
        self.reshape(pairs(&ones))
            .expand(pairs(&times))
            .reshape(result)
    }
}

impl Builder {
    /// Concatenates values of one dtype along an axis.
    pub fn concat<'g>(&'g self, values: &[Value<'g>], dim: i64) -> Value<'g> {
        match values {
            [] => {
                self.fail(Error::operator("cannot join an empty list"));
                self.poison()
            }
            [single] => *single,
            [first, ..] => match first.axis(dim) {
                Some(axis) => self.apply(
                    Concat { axis },
                    values.iter().map(|value| (*value).into()).collect(),
                ),
                None => self.poison(),
            },
        }
    }

    /// Stacks values of one shape along a new axis; `dim` is an axis of the result.
    pub fn stack<'g>(&'g self, values: &[Value<'g>], dim: i64) -> Value<'g> {
        let rows: Vec<Value<'g>> = values.iter().map(|value| value.unsqueeze(dim)).collect();
        self.concat(&rows, dim)
    }
}
