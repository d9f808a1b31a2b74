//! Indexing as in Python: `x.i((.., 0, 1..3))` is `x[:, 0, 1:3]`.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::dtype::DType;
use crate::error::{Error, Result, SourcePlace};
use crate::tensor::Tensor;

use super::argument::Arg;
use super::call::{call_at, failed_at};
use super::call_site;
use super::size::Size;
use super::storage::TracedOrigin;
use super::tensor::TracedTensor;

/// All axes that no other index names: Python's `...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ellipsis;

/// A new axis of size 1: Python's `None` in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewAxis;

/// One index of [`TracedTensor::i`].
///
/// | Python | Rust |
/// |---|---|
/// | `0`, `-1`, `n` | `0`, `-1`, a size |
/// | `:`, `1:`, `:-1`, `1:n` | `..`, `1..`, `..-1`, `1..n` |
/// | `1:9:2`, `::2` | `(1..9).step(2)`, `(..).step(2)` by [`Steps`] |
/// | `...`, `None` | [`Ellipsis`], [`NewAxis`] |
/// | `[2, 0]`, a tensor of integers or a mask | `[2, 0]`, the tensor |
///
/// `1..=3` is `1..4`. Negative positions count from the end.
#[derive(Clone, Debug)]
pub enum AxisIndex {
    /// A position, which removes the axis.
    At(Size),
    /// Positions from `start` to before `end`.
    Slice {
        /// The first position.
        start: Size,
        /// The position behind the last one.
        end: Size,
        /// Distance of the positions.
        step: i64,
    },
    /// All axes that no other index names.
    Ellipsis,
    /// A new axis of size 1.
    NewAxis,
    /// The positions in a tensor of integers, or those where a mask is true.
    Tensor(TracedTensor),
    /// These positions.
    List(Vec<i64>),
}

/// The end of a slice that reaches the end of the axis, as PyTorch records it.
const TO_END: i64 = i64::MAX;

impl AxisIndex {
    fn slice(start: Option<Size>, end: Option<Size>) -> AxisIndex {
        AxisIndex::Slice {
            start: start.unwrap_or(Size::from(0)),
            end: end.unwrap_or(Size::from(TO_END)),
            step: 1,
        }
    }

    /// Number of axes that the index names.
    fn axes(&self) -> usize {
        match self {
            AxisIndex::At(_) | AxisIndex::Slice { .. } | AxisIndex::List(_) => 1,
            AxisIndex::Tensor(tensor) if is_mask(tensor) => tensor.rank(),
            AxisIndex::Tensor(_) => 1,
            AxisIndex::Ellipsis | AxisIndex::NewAxis => 0,
        }
    }
}

/// True for a tensor of truth values, which selects positions. Bytes are truth values in an index.
fn is_mask(tensor: &TracedTensor) -> bool {
    matches!(tensor.dtype(), DType::Bool | DType::U8)
}

/// Implements an [`AxisIndex`] for types of numbers and sizes.
macro_rules! positions {
    ($($position:ty)*) => {$(
        impl From<$position> for AxisIndex {
            fn from(position: $position) -> AxisIndex {
                AxisIndex::At(position.into())
            }
        }
    )*};
}

positions!(i32 i64 usize Size &Size);

/// The position behind an inclusive end.
fn behind(end: Size) -> Size {
    let number = end.expression().ok().and_then(|end| end.as_const());
    match number {
        Some(-1) => Size::from(TO_END),
        _ => end + 1,
    }
}

impl From<RangeFull> for AxisIndex {
    fn from(_: RangeFull) -> AxisIndex {
        AxisIndex::slice(None, None)
    }
}

/// Implements [`AxisIndex`] for types of ranges.
macro_rules! ranges {
    ($($range:ident |$value:ident| $start:expr, $end:expr;)*) => {$(
        impl<P: Into<Size>> From<$range<P>> for AxisIndex {
            fn from($value: $range<P>) -> AxisIndex {
                AxisIndex::slice($start, $end)
            }
        }
    )*};
}

ranges! {
    Range |range| Some(range.start.into()), Some(range.end.into());
    RangeFrom |range| Some(range.start.into()), None;
    RangeTo |range| None, Some(range.end.into());
    RangeToInclusive |range| None, Some(behind(range.end.into()));
}

impl<P: Into<Size>> From<RangeInclusive<P>> for AxisIndex {
    fn from(range: RangeInclusive<P>) -> AxisIndex {
        let (start, end) = range.into_inner();
        AxisIndex::slice(Some(start.into()), Some(behind(end.into())))
    }
}

/// Ranges with a step: `(1..9).step(2)` for `1:9:2`.
pub trait Steps: Into<AxisIndex> {
    /// Every `step`-th position.
    fn step(self, step: i64) -> AxisIndex {
        match self.into() {
            AxisIndex::Slice { start, end, .. } => AxisIndex::Slice { start, end, step },
            other => other,
        }
    }
}

impl Steps for RangeFull {}
impl<P: Into<Size>> Steps for Range<P> {}
impl<P: Into<Size>> Steps for RangeFrom<P> {}
impl<P: Into<Size>> Steps for RangeTo<P> {}
impl<P: Into<Size>> Steps for RangeInclusive<P> {}
impl<P: Into<Size>> Steps for RangeToInclusive<P> {}

impl From<Ellipsis> for AxisIndex {
    fn from(_: Ellipsis) -> AxisIndex {
        AxisIndex::Ellipsis
    }
}

impl From<NewAxis> for AxisIndex {
    fn from(_: NewAxis) -> AxisIndex {
        AxisIndex::NewAxis
    }
}

impl From<TracedTensor> for AxisIndex {
    fn from(tensor: TracedTensor) -> AxisIndex {
        AxisIndex::Tensor(tensor)
    }
}

impl From<&TracedTensor> for AxisIndex {
    fn from(tensor: &TracedTensor) -> AxisIndex {
        AxisIndex::Tensor(tensor.clone())
    }
}

impl From<Vec<i64>> for AxisIndex {
    fn from(positions: Vec<i64>) -> AxisIndex {
        AxisIndex::List(positions)
    }
}

impl From<&[i64]> for AxisIndex {
    fn from(positions: &[i64]) -> AxisIndex {
        AxisIndex::List(positions.to_vec())
    }
}

impl<const N: usize> From<[i64; N]> for AxisIndex {
    fn from(positions: [i64; N]) -> AxisIndex {
        AxisIndex::List(positions.into())
    }
}

/// One index, or a tuple of indices.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index",
    note = "indices are integers, sizes, ranges, `Ellipsis`, `NewAxis`, lists of `i64`, tensors, and tuples of these"
)]
pub trait Indices {
    /// The indices in order.
    fn indices(self) -> Vec<AxisIndex>;
}

impl<I: Into<AxisIndex>> Indices for I {
    fn indices(self) -> Vec<AxisIndex> {
        vec![self.into()]
    }
}

impl Indices for () {
    fn indices(self) -> Vec<AxisIndex> {
        Vec::new()
    }
}

/// Implements [`Indices`] for tuples.
macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: Into<AxisIndex>),+> Indices for ($($name,)+) {
            fn indices(self) -> Vec<AxisIndex> {
                vec![$(self.$index.into()),+]
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

impl TracedTensor {
    /// The elements at an index, as Python's `x[…]`: `x.i((.., 0, 1..3))` is `x[:, 0, 1:3]`. [`AxisIndex`] lists the kinds of
    /// indices.
    ///
    /// Without tensors and lists in the index, the result is a view: a write to it changes this tensor. The trace records
    /// the operators that PyTorch records: `select`, `slice`, `unsqueeze` and `index`. A tensor of one integer without
    /// dimensions is an index like other tensors, while PyTorch makes a view.
    ///
    /// ```
    /// use onionskin::trace::{Ellipsis, NewAxis, Steps, TracedTensor};
    ///
    /// # fn main() -> onionskin::Result<()> {
    /// let x = TracedTensor::from_vec([2, 3], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.i((.., 0)).to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.i((1, (..).step(2))).to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.i((Ellipsis, NewAxis, [2, 0])).rank(), 3);
    /// x.i((.., -1)).fill_(0.0);
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 0.0, 4.0, 5.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The result holds an error if there are more indices than axes, or an index is out of range.
    #[must_use = "the operand does not change"]
    #[track_caller]
    pub fn i(&self, index: impl Indices) -> TracedTensor {
        let place = call_site::caller();
        match self.sliced(index.indices(), &place) {
            Ok((sliced, indices)) if indices.is_empty() && sliced.is(self) => {
                TracedTensor::of_uncached_view(self.storage_view())
            }
            Ok((sliced, indices)) if indices.is_empty() => sliced,
            Ok((sliced, indices)) => one(&place, "index", vec![sliced.into(), Arg::List(indices)]),
            Err(error) => failed_at(error, &place),
        }
    }

    /// Replaces the elements at an index, as Python's `x[…] = value`. The value is a number or a tensor, whose sizes
    /// broadcast. All tensors that share the memory change. Returns the tensor.
    ///
    /// The trace records the operators that PyTorch records: `fill_`, `copy_` or `index_put_`.
    ///
    /// ```
    /// use onionskin::trace::TracedTensor;
    ///
    /// # fn main() -> onionskin::Result<()> {
    /// let x = TracedTensor::from_vec([2, 2], vec![1f32, 2.0, 3.0, 4.0]);
    /// x.i_put_((.., 0), 0.0).i_put_([1], x.i(0));
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 2.0, 0.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The result holds an error if the index or the value does not fit.
    #[track_caller]
    pub fn i_put_(&self, index: impl Indices, value: impl Into<Arg>) -> TracedTensor {
        let place = call_site::caller();
        let written = match self.sliced(index.indices(), &place) {
            Ok((sliced, indices)) if indices.is_empty() => put(sliced, value.into(), &place),
            Ok((sliced, indices)) => put_at(sliced, indices, value.into(), &place),
            Err(error) => failed_at(error, &place),
        };
        match written.error() {
            Some(_) => written,
            None => self.clone(),
        }
    }

    /// The view of this tensor by the indices that make views, and the tensors among the indices by axis, as arguments of
    /// `index`.
    fn sliced(
        &self,
        items: Vec<AxisIndex>,
        place: &SourcePlace,
    ) -> Result<(TracedTensor, Vec<Arg>)> {
        let rank = self.ty()?.rank();
        let named: usize = items.iter().map(AxisIndex::axes).sum();
        if named > rank {
            let message = format!("too many indices for a tensor of {rank} dimensions: {named}");
            return Err(Error::operator(message));
        }
        let (mut sliced, mut axis, mut indices) = (self.clone(), 0, Vec::new());
        for item in items {
            let at = Arg::from(axis);
            let x = Arg::from(&sliced);
            match item {
                AxisIndex::At(position) => {
                    sliced = one(place, "select", vec![x, at, position.into()])
                }
                AxisIndex::Slice { start, end, step } => {
                    sliced = one(
                        place,
                        "slice",
                        vec![x, at, start.into(), end.into(), step.into()],
                    );
                    axis += 1;
                }
                AxisIndex::Ellipsis => axis += rank - named,
                AxisIndex::NewAxis => {
                    sliced = one(place, "unsqueeze", vec![x, at]);
                    axis += 1;
                }
                AxisIndex::Tensor(tensor) => note_tensor(&mut indices, &mut axis, tensor.into()),
                AxisIndex::List(positions) => {
                    let tensor = Tensor::from_vec([positions.len()], positions);
                    let tensor = TracedTensor::new(tensor, TracedOrigin::Data(place.clone()));
                    note_tensor(&mut indices, &mut axis, tensor.into());
                }
            }
        }
        Ok((sliced, indices))
    }
}

/// Notes a tensor of positions for an axis, and moves on to the next axis.
fn note_tensor(indices: &mut Vec<Arg>, axis: &mut usize, tensor: Arg) {
    indices.resize(*axis, Arg::None);
    indices.push(tensor);
    *axis += 1;
}

/// Calls an operator with one result.
fn one(place: &SourcePlace, name: &str, arguments: Vec<Arg>) -> TracedTensor {
    call_at(place, name, arguments, Vec::new()).swap_remove(0)
}

/// Writes a value to a view.
fn put(view: TracedTensor, value: Arg, place: &SourcePlace) -> TracedTensor {
    let value = match value {
        Arg::Tensor(value) if value.rank() > 0 || view.rank() == 0 => value,
        number => return one(place, "fill_", vec![view.into(), number]),
    };
    let value = match example_shape(&value) == example_shape(&view) {
        true => value,
        false => {
            let shortened = without_leading_ones(&value, place);
            one(place, "expand", vec![shortened.into(), view.shape().into()])
        }
    };
    let value = match value.dtype() == view.dtype() {
        true => value,
        false => one(place, "to", vec![value.into(), view.dtype().into()]),
    };
    view.write_at(&value, place)
}

/// Writes a value to the positions of a view that tensors name.
fn put_at(view: TracedTensor, indices: Vec<Arg>, value: Arg, place: &SourcePlace) -> TracedTensor {
    let value = match value {
        Arg::Tensor(value) if example_shape(&value).first() == Some(&1) => {
            without_leading_ones(&value, place).into()
        }
        number @ (Arg::Number(_) | Arg::Size(_)) => {
            let arguments = vec![Arg::List(Vec::new()), number];
            let named = vec![("dtype", view.dtype().into())];
            let number = call_at(place, "full", arguments, named).swap_remove(0);
            number.into()
        }
        other => other,
    };
    one(
        place,
        "index_put_",
        vec![view.into(), Arg::List(indices), value],
    )
}

/// The tensor without leading axes of size 1.
fn without_leading_ones(tensor: &TracedTensor, place: &SourcePlace) -> TracedTensor {
    let ones = example_shape(tensor)
        .into_iter()
        .take_while(|size| *size == 1);
    let sizes: Vec<Size> = tensor.shape().into_iter().skip(ones.count()).collect();
    one(place, "view", vec![tensor.into(), sizes.into()])
}

/// The sizes of the example.
fn example_shape(tensor: &TracedTensor) -> Vec<usize> {
    let value = tensor.value();
    value
        .map(|value| value.shape().to_vec())
        .unwrap_or_default()
}
