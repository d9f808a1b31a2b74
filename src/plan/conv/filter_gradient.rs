//! Gradients of convolution filters. The gradient of a filter is a matrix product: the windows of the convolution's input,
//! by the gradient of its output. This module recognises such products with windows of 3×3 neighbours, so that kernels can
//! read the images in place of the windows.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{Argument, Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::winograd::TAPS;
use crate::op::Unfold;
use crate::scalar::Scalar;

/// Axes of `[groups, taps, channels, images, positions]` in `[images, groups, channels, positions, taps]`.
const WINDOW_AXES: [usize; 5] = [1, 4, 2, 0, 3];
/// Axes of `[groups, images, positions, channels]` in `[images, groups, channels, positions]`.
const GRADIENT_AXES: [usize; 4] = [1, 0, 3, 2];
/// Axes of `[groups, parts, rows, K]` in `[groups, rows, parts, K]`.
const PART_AXES: [usize; 4] = [0, 2, 1, 3];

/// A product of the windows of an image with the gradient of a convolution's output. A row is a tap of an input channel,
/// all channels of a tap in succession. A column is an output channel. K runs over images and positions.
#[derive(Clone, Debug)]
pub struct FilterGradient {
    /// Input of the convolution: images, channels, height and width.
    pub input: ValueId,
    /// Gradient of the convolution's output: images, channels, height and width.
    pub output_gradient: ValueId,
    /// Rows and columns of zeros in front of the input.
    pub low: [Dim; 2],
    /// Height and width of the output.
    pub space: [Dim; 2],
    /// Number of channel groups: a batch axis of the product.
    pub groups: Dim,
    /// Number of parts into which the images are divided: a batch axis of the product, if there is more than one.
    pub parts: Dim,
    /// Number of images of all parts.
    pub images: Dim,
    /// Input channels of a group.
    pub channels: Dim,
    /// Output channels of a group.
    pub outputs: Dim,
    /// Views between the images and the product.
    pub views: Vec<ValueId>,
}

impl FilterGradient {
    /// Returns the gradient that a product computes; `None` for other nodes, and for windows that have a stride, a
    /// dilation or other taps.
    pub fn of(graph: &Graph, node: &Node) -> Option<FilterGradient> {
        let (Op::Primitive(Primitive::Dot(_)), [left, right]) = (&node.op, &node.operands()[..])
        else {
            return None;
        };
        let one = Dim::ONE;
        let (batch, rows, outputs) = match graph.ty(*node.results.first()?).shape.as_slice() {
            [groups, rows, outputs] => ([groups, &one], rows, outputs),
            [groups, parts, rows, outputs] => ([groups, parts], rows, outputs),
            _ => return None,
        };
        let [groups, parts] = batch;
        let windows = Windows::of(ViewChain::new(graph, *left), parts)?;
        let gradient = ViewChain::new(graph, *right).behind_reshapes();
        let gradient = gradient.behind_permutation(&GRADIENT_AXES)?;
        let [images, positions] = [windows.images.clone(), Dim::product(&windows.space)];
        let by_group = [images.clone(), groups.clone(), outputs.clone(), positions];
        let whole = [[images, groups * outputs], windows.space.clone()].concat();
        let gradient = gradient.with_shape(&by_group)?.with_shape(&whole)?;
        let is_single = |value| graph.ty(value).dtype == DType::F32;
        let are_single = [windows.input.value, gradient.value]
            .into_iter()
            .all(is_single);
        let are_rows = windows.groups == *groups && windows.rows() == *rows;
        (are_single && are_rows).then(|| FilterGradient {
            input: windows.input.value,
            output_gradient: gradient.value,
            low: windows.low,
            space: windows.space,
            groups: groups.clone(),
            parts: parts.clone(),
            images: windows.images,
            channels: windows.channels,
            outputs: outputs.clone(),
            views: [windows.input.views, gradient.views].concat(),
        })
    }

    /// Returns whether a kernel can read the images in place of the product's factors: none of the views is stored.
    pub fn reads_images(&self, materialized: &[bool]) -> bool {
        let mut views = self.views.iter();
        !views.any(|view| materialized[view.index()])
    }
}

/// The windows of 3×3 neighbours of an image.
struct Windows<'g> {
    input: ViewChain<'g>,
    low: [Dim; 2],
    space: [Dim; 2],
    images: Dim,
    groups: Dim,
    channels: Dim,
}

impl<'g> Windows<'g> {
    /// The windows behind the left factor of a product with this number of parts.
    fn of(factor: ViewChain<'g>, parts: &Dim) -> Option<Windows<'g>> {
        let factor = match parts.is(1) {
            true => factor,
            false => factor.behind_reshapes().behind_permutation(&PART_AXES)?,
        };
        let columns = factor.behind_reshapes().behind_permutation(&WINDOW_AXES)?;
        let [images, groups, channels, positions, taps] = columns.shape() else {
            return None;
        };
        let windows = columns.behind_reshapes();
        let [images_of_input, all_channels, space @ .., _, _] = windows.shape() else {
            return None;
        };
        let is_split = images == images_of_input
            && groups * channels == *all_channels
            && Dim::product(space) == *positions
            && taps.is((TAPS * TAPS) as i64);
        let space = <&[Dim; 2]>::try_from(space).ok()?.clone();
        let (windows, low_x) = windows.behind_unfold(3)?;
        let (input, low_y) = windows.behind_unfold(2)?;
        is_split.then(|| Windows {
            input,
            low: [low_y, low_x],
            space,
            images: images.clone(),
            groups: groups.clone(),
            channels: channels.clone(),
        })
    }

    /// Rows of the product: the taps of each channel of a group.
    fn rows(&self) -> Dim {
        &self.channels * (TAPS * TAPS) as i64
    }
}

/// A value behind views, with these views.
struct ViewChain<'g> {
    graph: &'g Graph,
    value: ValueId,
    views: Vec<ValueId>,
}

impl<'g> ViewChain<'g> {
    fn new(graph: &'g Graph, value: ValueId) -> ViewChain<'g> {
        ViewChain {
            graph,
            value,
            views: Vec::new(),
        }
    }

    fn shape(&self) -> &'g [Dim] {
        &self.graph.ty(self.value).shape
    }

    /// The node that computes the value, if it is a primitive.
    fn node(&self) -> Option<(&'g Node, &'g Primitive)> {
        let Definition::Node(index, _) = self.graph.value(self.value).definition else {
            return None;
        };
        let node = &self.graph.nodes[index];
        match &node.op {
            Op::Primitive(primitive) => Some((node, primitive)),
            _ => None,
        }
    }

    /// The operand of a view.
    fn behind(mut self, view: &Node) -> Option<ViewChain<'g>> {
        self.views.push(self.value);
        self.value = *view.operands().first()?;
        Some(self)
    }

    /// The first value behind reshapes that is no reshape.
    fn behind_reshapes(mut self) -> ViewChain<'g> {
        while let Some((node, Primitive::Reshape(_))) = self.node()
            && let Some(operand) = node.operands().first()
        {
            self.views.push(self.value);
            self.value = *operand;
        }
        self
    }

    /// The first value behind reshapes that has a shape.
    fn with_shape(self, shape: &[Dim]) -> Option<ViewChain<'g>> {
        match self.node() {
            _ if self.shape() == shape => Some(self),
            Some((node, Primitive::Reshape(_))) => self.behind(node)?.with_shape(shape),
            _ => None,
        }
    }

    /// The operand of a permutation to these axes.
    fn behind_permutation(self, axes: &[usize]) -> Option<ViewChain<'g>> {
        match self.node()? {
            (node, Primitive::Permute(permute)) if permute.axes == axes => self.behind(node),
            _ => None,
        }
    }

    /// The operand of windows of neighbours along an axis, and the number of zeros in front of it.
    fn behind_unfold(self, axis: usize) -> Option<(ViewChain<'g>, Dim)> {
        let neighbours = Unfold {
            axis,
            size: TAPS as i64,
            stride: 1,
            dilation: 1,
        };
        let windows = match self.node()? {
            (node, Primitive::Unfold(unfold)) if *unfold == neighbours => self.behind(node)?,
            _ => return None,
        };
        let Some((node, Primitive::Pad(pad))) = windows.node() else {
            return Some((windows, Dim::ZERO));
        };
        let is_padded = |(other, size): (usize, &Dim)| other == axis || size.is(0);
        let mut sizes = [&pad.low, &pad.high].into_iter();
        let is_along_axis = sizes.all(|sizes| sizes.iter().enumerate().all(is_padded));
        let is_zero = matches!(
            node.arguments.get(1),
            Some(Argument::Number(Scalar::Float(0.0)))
        );
        let low = pad.low.get(axis)?.clone();
        Some((windows.behind(node)?, low)).filter(|_| is_along_axis && is_zero)
    }
}
