use serde::{Deserialize, Serialize};

use super::dot::{GemmSize, product};
use super::{HostType, Operand, Rules, operands, values, workspace};
use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

/// Convolution (PyTorch's, a correlation) over one to three spatial axes:
/// `[N, C, X..] ⋆ [O, C/groups, K..] -> [N, O, Y..]`, floats only.
///
/// A transposed convolution has a dilated input (`base_dilation` is its stride) and a flipped filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// One entry for each spatial axis.
    pub axes: Vec<ConvAxis>,
    /// Number of channel groups, which are convolved independently.
    pub groups: i64,
}

/// Geometry along one spatial axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvAxis {
    /// Distance between output positions.
    pub stride: i64,
    /// Zeros before the (dilated) input; negative to crop.
    pub low: i64,
    /// Zeros after the (dilated) input; negative to crop.
    pub high: i64,
    /// Distance between filter taps.
    pub dilation: i64,
    /// Distance between input elements; 1 for an ordinary convolution.
    pub base_dilation: i64,
}

impl Conv {
    /// True if the input is padded or cropped, but not dilated.
    pub fn is_padded(&self) -> bool {
        let is_undilated = self.axes.iter().all(|axis| axis.base_dilation == 1);
        is_undilated && self.axes.iter().any(|axis| axis.low != 0 || axis.high != 0)
    }
}

impl ConvAxis {
    /// A stride with equal padding at both ends, and no dilation.
    pub fn padded(stride: i64, padding: i64) -> ConvAxis {
        ConvAxis {
            stride,
            low: padding,
            high: padding,
            dilation: 1,
            base_dilation: 1,
        }
    }

    /// Number of output positions for an input size and a filter size.
    pub fn output(&self, size: &Dim, taps: &Dim) -> Dim {
        let spread = (size - 1) * self.base_dilation + 1 + self.low + self.high;
        let reach = (taps - 1) * self.dilation + 1;
        (spread - reach).floor_div(&Dim::from(self.stride)) + 1
    }
}

impl Rules for Conv {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x, filter] = values(found)?;
        let complain = || {
            format!(
                "{x} and the filter {filter} do not convolve in {} groups",
                self.groups
            )
        };
        let ([n, channels, space @ ..], [outputs, inputs, taps @ ..]) =
            (x.shape.as_slice(), filter.shape.as_slice())
        else {
            return Err(Error::operator(complain()));
        };
        let fits = space.len() == self.axes.len()
            && taps.len() == self.axes.len()
            && x.dtype == filter.dtype;
        let divides = match self.groups {
            1 => true,
            groups => groups > 0 && symbols.specialize(outputs)? % groups == 0,
        };
        if !fits || !divides || !x.dtype.is_float() || !(1..=3).contains(&space.len()) {
            return Err(Error::operator(complain()));
        }
        symbols.require_equal(channels, &(inputs * self.groups), complain)?;
        let mut shape = vec![n.clone(), outputs.clone()];
        for (axis, (size, taps)) in self.axes.iter().zip(space.iter().zip(taps)) {
            if axis.stride < 1 || axis.dilation < 1 || axis.base_dilation < 1 {
                return Err(Error::operator("strides and dilations are at least 1"));
            }
            let output = axis.output(size, taps);
            if !symbols.less_equal(&Dim::ONE, &output)? {
                return Err(Error::operator(format!(
                    "the filter {filter} is larger than the padded input {x}"
                )));
            }
            shape.push(output);
        }
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape,
        }])
    }

    /// Gathers the patches of each group into a matrix and multiplies it by the filters.
    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x, filter] = operands::<_, 2>(found)?;
        let geometry = ConvGeometry::new(self, x.shape(), filter.shape());
        let shape: Vec<usize> = [geometry.batch, geometry.outputs]
            .into_iter()
            .chain(geometry.space_out)
            .collect();
        let rank = self.axes.len();
        let shape: Vec<usize> = shape[..2]
            .iter()
            .chain(&shape[5 - rank..])
            .copied()
            .collect();
        Ok(vec![if x.dtype() == DType::F64 {
            Tensor::from_vec(shape, geometry.run(&x.to_f64(), &filter.to_f64(), product)?)?
        } else {
            Tensor::from_vec(shape, geometry.run(&x.to_f32(), &filter.to_f32(), product)?)?
                .cast(x.dtype())?
        }])
    }

    fn workspace(&self, operands: &[HostType], results: &[HostType]) -> u64 {
        let [x, filter] = operands else {
            return 0;
        };
        let geometry = ConvGeometry::new(self, &x.shape, &filter.shape);
        let patches = HostType {
            dtype: x.dtype,
            shape: [
                &[geometry.channels],
                &geometry.taps[..],
                &geometry.space_out[..],
            ]
            .concat(),
        };
        let products = workspace::copies(results);
        [workspace::product(&[patches], &[]), products]
            .into_iter()
            .fold(workspace::product(operands, results), u64::saturating_add)
    }
}

/// Sizes of a convolution with three spatial axes; missing axes are added in front with size 1.
struct ConvGeometry {
    axes: [ConvAxis; 3],
    batch: usize,
    groups: usize,
    channels: usize,
    outputs: usize,
    space: [usize; 3],
    taps: [usize; 3],
    space_out: [usize; 3],
}

impl ConvGeometry {
    fn new(conv: &Conv, x: &[usize], filter: &[usize]) -> ConvGeometry {
        let missing = 3 - conv.axes.len();
        let neutral = ConvAxis {
            stride: 1,
            low: 0,
            high: 0,
            dilation: 1,
            base_dilation: 1,
        };
        let axes = std::array::from_fn(|axis| {
            axis.checked_sub(missing)
                .map_or(neutral.clone(), |axis| conv.axes[axis].clone())
        });
        let spatial = |shape: &[usize], axis: usize| {
            axis.checked_sub(missing).map_or(1, |axis| shape[axis + 2])
        };
        let space = std::array::from_fn(|axis| spatial(x, axis));
        let taps = std::array::from_fn(|axis| spatial(filter, axis));
        let axes: [ConvAxis; 3] = axes;
        let space_out = std::array::from_fn(|axis| {
            let output = axes[axis].output(&Dim::from(space[axis]), &Dim::from(taps[axis]));
            output
                .as_const()
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(0)
        });
        let groups = usize::try_from(conv.groups).unwrap_or(1);
        ConvGeometry {
            axes,
            batch: x[0],
            groups,
            channels: x[1] / groups,
            outputs: filter[0],
            space,
            taps,
            space_out,
        }
    }

    fn run<T: Copy + Default>(
        &self,
        x: &[T],
        filter: &[T],
        product: fn(&[T], &[T], GemmSize) -> Vec<T>,
    ) -> Result<Vec<T>> {
        let positions = numel(&self.space_out)?;
        let k = self.channels * self.taps.iter().product::<usize>();
        let rows = self.outputs / self.groups;
        let plane = self.channels * self.space.iter().product::<usize>();
        numel(&[k, positions])?;
        let mut out = Vec::with_capacity(numel(&[self.batch, self.outputs, positions])?);
        for item in 0..self.batch {
            for group in 0..self.groups {
                let start = (item * self.groups + group) * plane;
                let patches = self.patches(&x[start..start + plane], k, positions);
                let filters = &filter[group * rows * k..(group + 1) * rows * k];
                out.extend(product(
                    filters,
                    &patches,
                    GemmSize {
                        batch: 1,
                        m: rows,
                        k,
                        n: positions,
                    },
                ));
            }
        }
        Ok(out)
    }

    /// The matrix `[channel and tap, position]` of one image of one group.
    fn patches<T: Copy + Default>(&self, image: &[T], k: usize, positions: usize) -> Vec<T> {
        let mut patches = vec![T::default(); k * positions];
        let [depth_out, height_out, width_out] = self.space_out;
        let [_, height, width] = self.space;
        let taps: usize = self.taps.iter().product();
        for (row, out) in patches.chunks_exact_mut(positions.max(1)).enumerate() {
            let (channel, tap) = (row / taps, row % taps);
            let tap = [
                tap / (self.taps[1] * self.taps[2]),
                tap / self.taps[2] % self.taps[1],
                tap % self.taps[2],
            ];
            for z in 0..depth_out {
                let Some(from_z) = self.source(0, z, tap[0]) else {
                    continue;
                };
                for y in 0..height_out {
                    let Some(from_y) = self.source(1, y, tap[1]) else {
                        continue;
                    };
                    let line = ((channel * self.space[0] + from_z) * height + from_y) * width;
                    let to = (z * height_out + y) * width_out;
                    self.copy_line(
                        &image[line..line + width],
                        tap[2],
                        &mut out[to..to + width_out],
                    );
                }
            }
        }
        patches
    }

    /// Copies the elements of one line that a tap reads; the rest stays zero.
    fn copy_line<T: Copy>(&self, line: &[T], tap: usize, out: &mut [T]) {
        let geometry = &self.axes[2];
        let start = tap as i64 * geometry.dilation - geometry.low;
        if geometry.base_dilation != 1 {
            for (x, slot) in out.iter_mut().enumerate() {
                if let Some(from) = self.source(2, x, tap) {
                    *slot = line[from];
                }
            }
            return;
        }
        // The first position inside the line, and the number of positions inside it.
        let stride = geometry.stride;
        let first = if start < 0 {
            (stride - 1 - start) / stride
        } else {
            0
        };
        let from = usize::try_from(first * stride + start).unwrap_or(usize::MAX);
        let seen = line.get(from..).unwrap_or_default();
        let slots = usize::try_from(first)
            .ok()
            .and_then(|first| out.get_mut(first..));
        let slots = slots.unwrap_or_default();
        if stride == 1 {
            let length = seen.len().min(slots.len());
            slots[..length].copy_from_slice(&seen[..length]);
        } else {
            let every = seen.iter().step_by(stride as usize);
            slots
                .iter_mut()
                .zip(every)
                .for_each(|(slot, value)| *slot = *value);
        }
    }

    /// The input index that an output position reads through a tap; `None` for padding.
    fn source(&self, axis: usize, position: usize, tap: usize) -> Option<usize> {
        let geometry = &self.axes[axis];
        let spread =
            position as i64 * geometry.stride + tap as i64 * geometry.dilation - geometry.low;
        let index = usize::try_from(spread).ok()?;
        let step = geometry.base_dilation as usize;
        (index % step == 0 && index / step < self.space[axis]).then_some(index / step)
    }
}
