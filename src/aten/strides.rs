//! Memory layout of an operator's results: new tensors with PyTorch's strides, or views of the operand.

use crate::dim::Dim;
use crate::error::Result;
use crate::geometry::{Assumptions, Geometry, MemoryFormat};
use crate::ir::{Argument, Builder, Op, ValueId};
use crate::op::Primitive;
use crate::shape::{Shape, wrap_dim};

use super::contraction::memory_order;
use super::{Args, Operator};

/// The rule for the strides of a row's results. Rules whose description begins with "New" apply to results in memory of
/// their own, the others to views. If the rule is one of views, schemas of the row that are not views (`view_copy`)
/// return new, contiguous results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrideRule {
    /// New and contiguous; for a view, the strides follow from the primitives of its body ([`Operator::view_steps`]).
    Standard,
    /// New: axes in the order of the operands' strides (`at::TensorIterator`).
    Elementwise,
    /// New: in the memory format of the first operand (`torch.preserve_format`).
    Preserve,
    /// New: in the memory format that the first operand suggests (`at::Tensor::suggest_memory_format`).
    Suggested,
    /// New: in the memory format that the first operand suggests, or contiguous for circular padding.
    Padded,
    /// New: with the strides of the first operand, gaps included, unless elements of the operand may overlap.
    SameStrides,
    /// New: unshared axes of both operands, the first's before the second's (`torch.einsum`).
    Einsum,
    /// New: in the memory format of the first operand, for images with this number of spatial axes.
    Images(usize),
    /// New: in the memory format of the first two operands, image and weight. Images with one or three spatial axes are
    /// contiguous.
    Convolution,
    /// New: in the memory format that all operands share.
    Concat,
    /// New: concatenated along the first axis, which is then split, or contiguous.
    Stack,
    /// New: elementwise, with two axes exchanged for odd rotations.
    Rot90,
    /// New: like the query, unless elements of a head are not adjacent.
    Attention,
    /// New: the operand's remaining axes keep their order (`torch.index`).
    Indexed,
    /// New: each matrix is column-major, as LAPACK leaves it.
    ColumnMajor,
    /// New: with the strides of the argument `stride`.
    StrideArgument,
    /// The operand itself if nothing changes, else a view; for a list, result by result (`torch.broadcast_tensors`).
    ItselfOrView,
    /// The operand itself if neither its elements nor its memory format change, else new (`Tensor.to`, `torch.dropout`).
    ItselfOrNew,
    /// A view if the operand's strides allow it, else a contiguous copy (`torch.reshape`).
    Reshape,
    /// A view as a vector if the operand is contiguous, else a contiguous copy (`torch.ravel`).
    Contiguous,
    /// A view with an additional axis of size 1.
    Unsqueeze,
    /// A view of the diagonal of two axes.
    Diagonal,
    /// A view of the whole storage (`torch.as_strided`).
    AsStrided,
}

impl StrideRule {
    /// True if the result is a copy or a view depending on the operand's strides.
    pub fn may_copy(self) -> bool {
        matches!(self, StrideRule::Reshape | StrideRule::Contiguous)
    }
}

/// The argument `memory_format=` of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedFormat {
    /// Not given.
    Default,
    /// `torch.preserve_format`
    Preserve,
    /// A specific format.
    Format(MemoryFormat),
}

impl WantedFormat {
    /// Converts PyTorch's number of a memory format; `None` means the argument is absent.
    pub fn from_torch_code(code: Option<i64>) -> WantedFormat {
        match code {
            None => WantedFormat::Default,
            Some(0) => WantedFormat::Format(MemoryFormat::Contiguous),
            Some(2 | 3) => WantedFormat::Format(MemoryFormat::ChannelsLast),
            Some(_) => WantedFormat::Preserve,
        }
    }
}

/// A call whose results need a memory layout.
pub struct ResultPlacement<'a> {
    /// The overload that is called.
    pub operator: &'static Operator,
    /// Arguments of the call.
    pub arguments: &'a [Argument],
    /// Geometry of the tensors among the arguments, one list for each parameter; empty if the parameter is no tensor.
    pub operands: &'a [Vec<Geometry>],
    /// The graph that the call is in.
    pub builder: &'a Builder,
    /// The argument `memory_format=` of the call.
    pub format: WantedFormat,
    /// Answers questions about symbolic sizes.
    pub assumptions: &'a Assumptions<'a>,
}

impl ResultPlacement<'_> {
    /// Geometry of a new result of this shape.
    pub fn new_result(&self, sizes: &Shape) -> Result<Geometry> {
        let sizes = sizes.clone();
        if let (WantedFormat::Format(format), false) = (self.format, self.operator.schema.is_view) {
            return Ok(Geometry::of_format(sizes, format));
        }
        match self.operator.row.strides {
            StrideRule::Elementwise => {
                let operands: Vec<&Geometry> = self.operands.iter().flatten().collect();
                Geometry::elementwise(self.assumptions, &sizes, &operands)
            }
            StrideRule::Preserve => match self.first_operand() {
                Some(operand) if operand.sizes == sizes => operand.preserved(self.assumptions),
                _ => Ok(Geometry::contiguous(sizes)),
            },
            StrideRule::Padded if self.args().str("mode") == "circular" => {
                Ok(Geometry::contiguous(sizes))
            }
            StrideRule::Suggested | StrideRule::Padded => self.suggested(sizes),
            StrideRule::SameStrides => self.same_strides(sizes),
            StrideRule::Einsum => Ok(match memory_order(&self.args().str("equation")) {
                Some(order) if order.len() == sizes.len() => Geometry::dense(sizes, &order),
                _ => Geometry::contiguous(sizes),
            }),
            StrideRule::Images(spatial) => self.images(sizes, spatial, 1),
            StrideRule::Convolution => {
                let weight = self.operands.iter().flatten().nth(1);
                match weight.map_or(0, Geometry::rank) {
                    4 => self.images(sizes, 2, 2),
                    _ => Ok(Geometry::contiguous(sizes)),
                }
            }
            StrideRule::Concat => self.concat(sizes),
            StrideRule::Stack => self.stack(sizes),
            StrideRule::Rot90 => self.rot90(sizes),
            StrideRule::Attention => self.attention(sizes),
            StrideRule::Indexed => self.indexed(sizes),
            StrideRule::ColumnMajor => Ok(column_major(sizes)),
            StrideRule::StrideArgument => self.by_stride_argument(sizes),
            _ => Ok(Geometry::contiguous(sizes)),
        }
    }

    /// Geometry of the first tensor among the arguments.
    fn first_operand(&self) -> Option<&Geometry> {
        self.operands.iter().flatten().next()
    }

    /// Geometry for [`StrideRule::Suggested`].
    fn suggested(&self, sizes: Shape) -> Result<Geometry> {
        let format = match self.first_operand() {
            Some(operand) => operand.suggested_format(self.assumptions)?,
            None => MemoryFormat::Contiguous,
        };
        Ok(Geometry::of_format(sizes, format))
    }

    /// Geometry for [`StrideRule::SameStrides`].
    fn same_strides(&self, sizes: Shape) -> Result<Geometry> {
        match self.first_operand() {
            Some(operand) if operand.may_overlap(self.assumptions)? => {
                operand.preserved(self.assumptions)
            }
            Some(operand) => Ok(operand.clone()),
            None => Ok(Geometry::contiguous(sizes)),
        }
    }

    /// Geometry for images with `spatial` spatial axes: channels last if one of the first `operand_count` operands is.
    /// 1-D inputs count as images of height 1, and an unbatched image as a batch of one.
    fn images(&self, sizes: Shape, spatial: usize, operand_count: usize) -> Result<Geometry> {
        let mut format = MemoryFormat::Contiguous;
        for operand in self.operands.iter().flatten().take(operand_count) {
            if as_images(operand, spatial).suggested_format(self.assumptions)?
                == MemoryFormat::ChannelsLast
            {
                format = MemoryFormat::ChannelsLast;
            }
        }
        let result = Geometry::contiguous(sizes);
        let batch = as_images(&result, spatial);
        let formatted = Geometry::of_format(batch.sizes.clone(), format);
        Ok(from_images(&formatted, result.sizes, spatial))
    }

    /// Geometry for [`StrideRule::Concat`].
    fn concat(&self, sizes: Shape) -> Result<Geometry> {
        let mut format = None;
        for operand in self.operands.iter().flatten() {
            let operand_format = operand.suggested_format(self.assumptions)?;
            if *format.get_or_insert(operand_format) != operand_format {
                format = Some(MemoryFormat::Contiguous);
                break;
            }
        }
        Ok(Geometry::of_format(
            sizes,
            format.unwrap_or(MemoryFormat::Contiguous),
        ))
    }

    /// Geometry for [`StrideRule::Stack`].
    fn stack(&self, sizes: Shape) -> Result<Geometry> {
        let (Some(operand), 0) = (self.first_operand(), self.args().int("dim")) else {
            return Ok(Geometry::contiguous(sizes));
        };
        let mut concatenated = operand.sizes.clone();
        let (Some(length), Some(count)) = (concatenated.first_mut(), sizes.first()) else {
            return Ok(Geometry::contiguous(sizes));
        };
        let operand_length = length.clone();
        *length = &operand_length * count;
        let mut stacked = self.concat(concatenated)?;
        let item_stride = stacked
            .strides
            .first()
            .map_or(Dim::ONE, |stride| stride * &operand_length);
        stacked.strides.insert(0, item_stride);
        stacked.sizes = sizes;
        Ok(stacked)
    }

    /// Geometry for [`StrideRule::Rot90`].
    fn rot90(&self, mut sizes: Shape) -> Result<Geometry> {
        let args = self.args();
        let (quarter_turns, dims) = (args.int("k"), args.ints("dims"));
        let (1 | 3, &[first, second]) = (quarter_turns.rem_euclid(4), dims.as_slice()) else {
            let operands: Vec<&Geometry> = self.operands.iter().flatten().collect();
            return Geometry::elementwise(self.assumptions, &sizes, &operands);
        };
        let (first, second) = (
            wrap_dim(first, sizes.len())?,
            wrap_dim(second, sizes.len())?,
        );
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.swap(first, second);
        sizes.swap(first, second);
        let operands: Vec<&Geometry> = self.operands.iter().flatten().collect();
        Ok(Geometry::elementwise(self.assumptions, &sizes, &operands)?.permute(&order))
    }

    /// Geometry for [`StrideRule::Attention`]. PyTorch's fused kernels give the result the query's strides; they
    /// require that the elements of a head are adjacent in query, key and value. Other results are contiguous.
    fn attention(&self, sizes: Shape) -> Result<Geometry> {
        let mut query_key_value = self.operands.iter().take(3).flatten();
        let is_fused = sizes.len() == 4
            && query_key_value
                .all(|operand| operand.strides.last().is_some_and(|stride| stride.is(1)));
        match self
            .first_operand()
            .filter(|query| is_fused && query.sizes == sizes)
        {
            Some(query) => query.preserved(self.assumptions),
            None => Ok(Geometry::contiguous(sizes)),
        }
    }

    fn args(&self) -> Args<'_> {
        Args::new(self.builder, self.operator, self.arguments)
    }

    /// Geometry for [`StrideRule::Indexed`]. Follows `at::TensorIterator` for advanced indexing: the operand has stride
    /// 0 along the axes of the indices.
    fn indexed(&self, sizes: Shape) -> Result<Geometry> {
        let (Some(operand), Some(indices)) = (self.first_operand(), self.operands.get(1)) else {
            return Ok(Geometry::contiguous(sizes));
        };
        let Some(Argument::List(index_arguments)) = self.arguments.get(1) else {
            return Ok(Geometry::contiguous(sizes));
        };
        let is_index = |axis: usize| {
            index_arguments
                .get(axis)
                .is_some_and(|index_argument| *index_argument != Argument::None)
        };
        let axes: Vec<usize> = (0..operand.rank()).filter(|axis| is_index(*axis)).collect();
        let first = axes.first().copied().unwrap_or(0);
        let are_neighbours = axes
            .iter()
            .enumerate()
            .all(|(position, axis)| *axis == first + position);
        let insertion = if are_neighbours { first } else { 0 };
        let unindexed_axes: Vec<usize> = (0..operand.rank())
            .filter(|axis| !is_index(*axis))
            .collect();
        let Some(index_rank) = sizes.len().checked_sub(unindexed_axes.len()) else {
            return Ok(Geometry::contiguous(sizes));
        };
        let mut restrided = operand.permute(&unindexed_axes);
        let zeros = std::iter::repeat_n(Dim::ZERO, index_rank);
        restrided.strides.splice(insertion..insertion, zeros);
        restrided.sizes = sizes.clone();
        let trailing_rank = unindexed_axes.len().saturating_sub(insertion);
        let indices = indices.iter().map(|index| {
            let mut index = index.clone();
            index
                .sizes
                .extend(std::iter::repeat_n(Dim::ONE, trailing_rank));
            index
                .strides
                .extend(std::iter::repeat_n(Dim::ZERO, trailing_rank));
            index
        });
        let operands: Vec<Geometry> = std::iter::once(restrided).chain(indices).collect();
        Geometry::elementwise(
            self.assumptions,
            &sizes,
            &operands.iter().collect::<Vec<_>>(),
        )
    }

    /// Geometry for [`StrideRule::StrideArgument`].
    fn by_stride_argument(&self, sizes: Shape) -> Result<Geometry> {
        let args = self.args();
        let mut geometry = Geometry::contiguous(sizes);
        if args.has("stride") {
            geometry.strides = args.sizes("stride");
        }
        if let Some(layout) = args
            .has("physical_layout")
            .then(|| args.sizes("physical_layout"))
        {
            let axes = layout.iter().rev().filter_map(|axis| axis.as_const());
            let axes = axes.filter_map(|axis| usize::try_from(axis).ok());
            geometry = Geometry::dense(geometry.sizes, &axes.collect::<Vec<_>>());
        }
        Ok(geometry)
    }
}

/// A tensor viewed as a batch of images of at least two spatial axes.
fn as_images(tensor: &Geometry, spatial: usize) -> Geometry {
    let images = match spatial {
        1 => tensor.unsqueeze(tensor.rank().saturating_sub(1)),
        _ => tensor.clone(),
    };
    match images.rank() == spatial.max(2) + 1 {
        true => images.unsqueeze(0),
        false => images,
    }
}

/// Inverse of [`as_images`]: the geometry for these sizes.
fn from_images(images: &Geometry, sizes: Shape, spatial: usize) -> Geometry {
    let mut strides = images.strides.clone();
    if spatial == 1 && strides.len() >= 2 {
        strides.remove(strides.len() - 2);
    }
    if strides.len() > sizes.len() {
        strides.remove(0);
    }
    let offset = Dim::ZERO;
    Geometry {
        sizes,
        strides,
        offset,
    }
}

/// Geometry for [`StrideRule::ColumnMajor`].
fn column_major(sizes: Shape) -> Geometry {
    let mut fastest_first: Vec<usize> = (0..sizes.len()).rev().collect();
    if let [last, next, ..] = fastest_first.as_mut_slice() {
        std::mem::swap(last, next);
    }
    Geometry::dense(sizes, &fastest_first)
}

/// The primitives that compute a result of a view from its operand, in order, each with the shape of its result.
pub type ViewSteps = Vec<(Primitive, Shape)>;

impl Operator {
    /// True if results share memory with an operand, or may share it.
    pub fn is_view(&self) -> bool {
        let may_be_operand = matches!(
            self.row.strides,
            StrideRule::ItselfOrView | StrideRule::ItselfOrNew
        );
        self.schema.is_view || may_be_operand
    }

    /// For each result of a view, the primitives that compute it from its operand. The operand is the first argument
    /// or, if that is a list, its item for the result. `None` for results that other primitives compute.
    pub fn view_steps(
        &'static self,
        builder: &Builder,
        arguments: &[Argument],
    ) -> Result<Vec<Option<ViewSteps>>> {
        let scratch = builder.scratch();
        let arguments = scratch.import(builder, arguments);
        let operands = arguments.first().map(Argument::values).unwrap_or_default();
        let results = self.expand(&scratch, &arguments)?;
        let steps = results.iter().enumerate().map(|(index, result)| {
            let operand = operands.get(index).or(operands.first())?;
            steps_between(&scratch, *operand, result.id())
        });
        Ok(steps.collect())
    }

    /// The new axis of a view with [`StrideRule::Unsqueeze`].
    pub fn unsqueezed_axis(
        &'static self,
        builder: &Builder,
        arguments: &[Argument],
        rank: usize,
    ) -> Result<usize> {
        wrap_dim(Args::new(builder, self, arguments).int("dim"), rank + 1)
    }

    /// The axes and the offset of a view with [`StrideRule::Diagonal`].
    pub fn diagonal_axes(
        &'static self,
        builder: &Builder,
        arguments: &[Argument],
        rank: usize,
    ) -> Result<([usize; 2], i64)> {
        let args = Args::new(builder, self, arguments);
        let axes = [
            wrap_dim(args.int("dim1"), rank)?,
            wrap_dim(args.int("dim2"), rank)?,
        ];
        Ok((axes, args.int("offset")))
    }
}

/// The view primitives that lead from an operand to a result; `None` if other primitives are among them.
fn steps_between(builder: &Builder, operand: ValueId, result: ValueId) -> Option<ViewSteps> {
    let mut steps = Vec::new();
    let mut value = result;
    while value != operand {
        let node = builder.node_of(value)?;
        let (Op::Primitive(primitive), [Argument::Value(inner)]) =
            (&node.op, node.arguments.as_slice())
        else {
            return None;
        };
        let is_view = matches!(
            primitive,
            Primitive::Reshape(_)
                | Primitive::Permute(_)
                | Primitive::Expand(_)
                | Primitive::Slice(_)
                | Primitive::Unfold(_)
        );
        if !is_view {
            return None;
        }
        steps.push((primitive.clone(), builder.ty(value).shape));
        value = *inner;
    }
    steps.reverse();
    Some(steps)
}

/// Geometry after a step of a view; `None` if strides cannot describe the result.
pub fn apply_view_step(
    geometry: &Geometry,
    assumptions: &Assumptions,
    (primitive, sizes): &(Primitive, Shape),
) -> Result<Option<Geometry>> {
    Ok(Some(match primitive {
        Primitive::Permute(permute) => geometry.permute(&permute.axes),
        Primitive::Slice(slice) => {
            geometry.slice(slice.axis, &slice.start, &slice.length, slice.step)
        }
        Primitive::Expand(_) => geometry.expand(sizes),
        Primitive::Unfold(unfold) => {
            geometry.unfold(unfold.axis, sizes, unfold.stride, unfold.dilation)
        }
        Primitive::Reshape(_) => return geometry.with_unit_axes(assumptions, sizes),
        _ => return Ok(None),
    }))
}
