//! Rebuilds the nodes of a group on values whose constant sizes are symbols. Constraints of the nodes, such as the
//! equality of two sizes, unify two symbols, or make a symbol a number.

use std::collections::HashMap;

use super::GenericLowering;
use crate::dim::{Dim, Symbol};
use crate::ir::{Argument, Builder, Definition, Node, Op, Primitive, ValueId};
use crate::kernel::index::matching_ends;
use crate::kernel::layout::Layout;
use crate::op::{Conv, Expand, Full, Iota, Reshape, Slice};
use crate::plan::conv::AxisGeometry;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4};
use crate::plan::group::Group;
use crate::plan::vec4_layout::CHANNEL_AXIS;
use crate::shape::{Shape, TensorType};

/// Names of the axes of images before the spatial axes.
const IMAGE_AXES: [&str; 2] = ["batch", "channels"];
/// Names of the axes of filters before the taps.
const FILTER_AXES: [&str; 2] = ["outputs", "channels"];

/// Names for the three spatial axes of volumes. Images use the last two, signals the last one.
type SpatialNames = [&'static str; 3];
/// Names of the spatial axes.
const SPATIAL_AXES: SpatialNames = ["depth", "height", "width"];
/// Names of the tap counts.
const TAPS: SpatialNames = ["taps_deep", "taps_down", "taps_across"];
/// Names of a convolution's strides, of its zero padding, and of the axes of its result.
const STRIDES: SpatialNames = ["stride_deep", "stride_down", "stride_across"];
const PADDING: SpatialNames = ["zeros_in_front", "zeros_above", "zeros_before"];
const RESULT: SpatialNames = ["result_depth", "result_height", "result_width"];

/// Returns the name for one of `axes` spatial axes. `None` if they are more than those of a volume.
fn spatial_name(names: SpatialNames, axis: usize, axes: usize) -> Option<&'static str> {
    names.get((names.len() + axis).checked_sub(axes)?).copied()
}

/// A size that is known only when the kernel runs.
pub(super) struct SymbolicSize {
    pub(super) symbol: Symbol,
    /// Description of the size, which becomes its name.
    pub(super) role: &'static str,
    /// Factor by which the symbol is multiplied.
    pub(super) unit: usize,
    /// Value of the symbol in the group.
    pub(super) value: i64,
}

/// Builder of a shape-generic group.
pub(super) struct GenericBuilder<'s, 'a> {
    scope: &'s KernelScope<'a>,
    group: &'s Group,
    lowering: &'s GenericLowering,
    anchor: Option<&'a Node>,
    builder: &'s Builder,
    /// Generic value for each planned value.
    pub(super) generic_values: HashMap<ValueId, ValueId>,
    /// Planned value for each generic value.
    pub(super) planned_values: Vec<ValueId>,
    pub(super) symbols: Vec<SymbolicSize>,
    /// Geometry of a convolution, if it is symbolic too.
    pub(super) symbolic_axes: Option<Vec<AxisGeometry>>,
}

impl<'s, 'a> GenericBuilder<'s, 'a> {
    pub(super) fn new(
        scope: &'s KernelScope<'a>,
        group: &'s Group,
        lowering: &'s GenericLowering,
        builder: &'s Builder,
    ) -> GenericBuilder<'s, 'a> {
        GenericBuilder {
            scope,
            group,
            lowering,
            anchor: group
                .anchor
                .and_then(|anchor| scope.graph.nodes.get(anchor)),
            builder,
            generic_values: HashMap::new(),
            planned_values: Vec::new(),
            symbols: Vec::new(),
            symbolic_axes: None,
        }
    }

    /// Rebuilds the group and returns the values that it writes. Operands of the anchor come first, so that sizes are
    /// named after them.
    pub(super) fn build(&mut self) -> Option<Vec<ValueId>> {
        for operand in self.anchor.map(Node::operands).unwrap_or_default() {
            self.generic_value(operand)?;
        }
        let values = self.group.outputs().into_iter();
        values.map(|value| self.generic_value(value)).collect()
    }

    /// Returns the generic value of a planned one. Rebuilds the nodes that compute it if it is new.
    fn generic_value(&mut self, value: ValueId) -> Option<ValueId> {
        if !self.generic_values.contains_key(&value) {
            match self.computing_node(value) {
                Some(node) => self.rebuild_node(node)?,
                None => self.define_leaf(value)?,
            }
        }
        self.generic_values.get(&value).copied()
    }

    /// Returns the node by which the kernel computes a value. `None` if the kernel reads it from memory.
    fn computing_node(&self, value: ValueId) -> Option<&'a Node> {
        let Definition::Node(index, _) = self.scope.graph.value(value).definition else {
            return None;
        };
        let is_computed =
            self.group.nodes.contains(&index) || !self.scope.materialized[value.index()];
        is_computed.then(|| &self.scope.graph.nodes[index])
    }

    /// Records that `generic` stands for a planned value. `None` if the builder did not number it next.
    fn define(&mut self, planned: ValueId, generic: ValueId) -> Option<()> {
        self.generic_values.insert(planned, generic);
        let is_next = generic.index() == self.planned_values.len();
        self.planned_values.push(planned);
        is_next.then_some(())
    }

    /// Defines a value that the kernel reads from memory. `None` for a weight that is bound in chunks.
    fn define_leaf(&mut self, value: ValueId) -> Option<()> {
        let info = self.scope.graph.value(value);
        let is_in_panels = self.panel_weight() == Some(value);
        if !is_in_panels && self.scope.chunks(value).ok()?.is_some() {
            return None;
        }
        let axes = info.ty.shape.iter().enumerate();
        let shape = axes.map(|(axis, size)| self.size_of(value, axis, size));
        let ty = TensorType {
            dtype: info.ty.dtype,
            shape: shape.collect(),
        };
        let generic = match &info.definition {
            Definition::Weight(_) if is_in_panels => self.builder.weight("weight", ty),
            Definition::Weight(name) => self.builder.weight(&format!("of.{name}"), ty),
            _ => self.builder.input("x", ty),
        };
        self.define(value, generic.id())
    }

    /// Returns the weight that the kernel reads in panels.
    fn panel_weight(&self) -> Option<ValueId> {
        match self.lowering {
            GenericLowering::Product(weight, _) => Some(*weight),
            GenericLowering::Pooling
            | GenericLowering::PointwiseVec4
            | GenericLowering::PointwiseSlices
            | GenericLowering::CopyToVec4(_) => None,
            _ => self.anchor?.operands().get(1).copied(),
        }
    }

    /// Returns the size of an axis of a value in memory, as a symbol where it may vary.
    fn size_of(&mut self, value: ValueId, axis: usize, size: &Dim) -> Dim {
        // Elements of a weight that is stored only in panels are located by its constant sizes.
        if matches!(self.scope.layout(value), Layout::Panels(_)) {
            return size.clone();
        }
        let rank = self.scope.graph.ty(value).rank();
        let is_in_panels = self.panel_weight() == Some(value);
        match self.lowering {
            GenericLowering::Product(..) if is_in_panels => self.symbol(size, "columns", VEC4_LEN),
            GenericLowering::Product(_, packed) if axis + 1 == rank => {
                self.symbol(size, "depth", packed.panels.k_block)
            }
            GenericLowering::Product(..) => self.symbol(size, "rows", 1),
            // The channels of a group are unrolled.
            GenericLowering::Grouped(_) if is_in_panels && axis == CHANNEL_AXIS => size.clone(),
            _ if is_in_panels => match FILTER_AXES.get(axis) {
                Some(role) => self.symbol(size, role, VEC4_LEN),
                None => self.tap_count(
                    size,
                    spatial_name(TAPS, axis - FILTER_AXES.len(), rank - FILTER_AXES.len()),
                ),
            },
            GenericLowering::SymbolicWindowConv(packed)
            | GenericLowering::FixedWindowConv(packed)
            | GenericLowering::Winograd(_, packed)
                if axis == CHANNEL_AXIS =>
            {
                self.symbol(size, IMAGE_AXES[CHANNEL_AXIS], packed.panels.k_block)
            }
            _ => self.image_size(size, axis, rank),
        }
    }

    /// Returns a symbol for the size of an axis of a value that may be an image.
    fn image_size(&mut self, size: &Dim, axis: usize, rank: usize) -> Dim {
        let role = match axis.checked_sub(IMAGE_AXES.len()) {
            None => IMAGE_AXES.get(axis).copied(),
            Some(spatial_axis) => spatial_name(
                SPATIAL_AXES,
                spatial_axis,
                rank.saturating_sub(IMAGE_AXES.len()),
            ),
        };
        let role = role.filter(|_| rank > IMAGE_AXES.len()).unwrap_or("size");
        let is_read_by_four =
            matches!(self.lowering, GenericLowering::CopyToVec4(_)) && axis + 1 == rank;
        let unit = match rank > 2 && axis == CHANNEL_AXIS || is_read_by_four {
            true => VEC4_LEN,
            false => 1,
        };
        self.symbol(size, role, unit)
    }

    /// Replaces a constant size by a symbol times `unit`. Sizes of 1 stay, since they change the kernel's structure.
    fn symbol(&mut self, size: &Dim, role: &'static str, unit: usize) -> Dim {
        let is_number =
            |number: &i64| *number > 1 && *self.lowering != GenericLowering::PointwiseSlices;
        match size.as_const().filter(is_number) {
            Some(number) => self.new_symbol(number, role, unit),
            None => size.clone(),
        }
    }

    /// Replaces the tap count along an axis by a symbol, if the kernel accepts any number.
    fn tap_count(&mut self, size: &Dim, role: Option<&'static str>) -> Dim {
        match (self.lowering, size.as_const(), role) {
            (GenericLowering::SymbolicWindowConv(_), Some(number), Some(role)) => {
                self.new_symbol(number, role, 1)
            }
            _ => size.clone(),
        }
    }

    /// Creates a symbol for a number, multiplied by the largest possible unit.
    fn new_symbol(&mut self, number: i64, role: &'static str, unit: usize) -> Dim {
        let units = [unit, VEC4_LEN]
            .into_iter()
            .filter(|unit| number % *unit as i64 == 0);
        let unit = if unit == 1 {
            1
        } else {
            units.max().unwrap_or(1)
        };
        let number = number / unit as i64;
        // When two symbols are unified, the earlier one is kept, by the order of the names.
        let symbol: Symbol = format!("{:04}", self.symbols.len()).into();
        self.builder.symbols().declare(&symbol, number);
        self.symbols.push(SymbolicSize {
            symbol: symbol.clone(),
            role,
            unit,
            value: number,
        });
        &Dim::symbol(symbol) * &Dim::from(unit)
    }

    /// Rebuilds a node on the generic values of its operands. `None` if its kernel cannot have symbolic sizes.
    fn rebuild_node(&mut self, node: &'a Node) -> Option<()> {
        for operand in node.operands() {
            self.generic_value(operand)?;
        }
        let generic = |id: ValueId| self.generic_values.get(&id).copied().unwrap_or(id);
        let arguments = node.arguments.iter();
        let arguments: Vec<Argument> = arguments
            .map(|argument| argument.map(&mut |id| generic(id), &mut Dim::clone))
            .collect();
        let Op::Primitive(primitive) = &node.op else {
            return None;
        };
        let results = match (self.lowering, primitive) {
            (GenericLowering::SymbolicWindowConv(_), Primitive::Conv(conv)) => {
                let ty = self.conv_type(conv, node, &arguments)?;
                self.builder.apply_as(conv.clone(), arguments, vec![ty])
            }
            (GenericLowering::Grouped(_), Primitive::Conv(conv)) => {
                let ty = self.grouped_conv_type(conv, &arguments)?;
                self.builder.apply_as(conv.clone(), arguments, vec![ty])
            }
            _ => {
                let primitive = self.rebuild_primitive(primitive, node, &arguments)?;
                self.builder.try_apply(primitive, arguments).ok()?
            }
        };
        let mut pairs = node.results.iter().zip(results);
        pairs.try_for_each(|(planned, result)| self.define(*planned, result.id()))
    }

    /// Returns the result type of a grouped convolution, whose groups have as many output channels as input channels.
    fn grouped_conv_type(&self, conv: &Conv, arguments: &[Argument]) -> Option<TensorType> {
        let [Argument::Value(x), Argument::Value(filter)] = arguments else {
            return None;
        };
        let (x, filter) = (self.builder.ty(*x), self.builder.ty(*filter));
        let ([batch, channels, space @ ..], [outputs, _, taps @ ..]) =
            (x.shape.as_slice(), filter.shape.as_slice())
        else {
            return None;
        };
        self.equate(channels, outputs)?;
        let mut shape = vec![batch.clone(), channels.clone()];
        let axes = conv.axes.iter().zip(space).zip(taps);
        shape.extend(axes.map(|((axis, size), taps)| axis.output(size, taps)));
        Some(TensorType {
            dtype: x.dtype,
            shape,
        })
    }

    /// Returns the result type of a convolution with a symbolic window. The spatial sizes of the result are symbols of
    /// their own.
    fn conv_type(
        &mut self,
        conv: &Conv,
        node: &Node,
        arguments: &[Argument],
    ) -> Option<TensorType> {
        let [Argument::Value(x), Argument::Value(filter)] = arguments else {
            return None;
        };
        let (x, filter) = (self.builder.ty(*x), self.builder.ty(*filter));
        self.equate(x.shape.get(CHANNEL_AXIS)?, filter.shape.get(CHANNEL_AXIS)?)?;
        let (mut axes, count) = (Vec::new(), conv.axes.len());
        for (index, axis) in conv.axes.iter().enumerate() {
            let mut geometry = AxisGeometry::from(axis);
            geometry.stride = self.new_symbol(axis.stride, spatial_name(STRIDES, index, count)?, 1);
            geometry.low = self.new_symbol(axis.low, spatial_name(PADDING, index, count)?, 1);
            geometry.high = geometry.low.clone();
            axes.push(geometry);
        }
        self.symbolic_axes = Some(axes);
        let planned = &self.scope.graph.ty(*node.results.first()?).shape;
        let mut shape = vec![x.shape.first()?.clone(), filter.shape.first()?.clone()];
        for (index, size) in planned.iter().skip(shape.len()).enumerate() {
            shape.push(self.symbol(size, spatial_name(RESULT, index, count)?, 1));
        }
        Some(TensorType {
            dtype: x.dtype,
            shape,
        })
    }

    /// Requires two sizes to be equal, which unifies symbols. `None` if they cannot be equal.
    fn equate(&self, a: &Dim, b: &Dim) -> Option<()> {
        let symbols = self.builder.symbols();
        symbols.require_equal(a, b, String::new).ok()
    }

    /// Rebuilds a primitive, with new symbols for the sizes that it names itself.
    fn rebuild_primitive(
        &mut self,
        primitive: &Primitive,
        node: &Node,
        arguments: &[Argument],
    ) -> Option<Primitive> {
        let operand = match arguments.first() {
            Some(Argument::Value(id)) => self.builder.ty(*id).shape,
            _ => Shape::new(),
        };
        Some(match primitive {
            Primitive::Expand(Expand { shape }) => Expand {
                shape: self.expanded(&operand, shape),
            }
            .into(),
            Primitive::Full(full) => Full {
                shape: self.expanded(&[], &full.shape),
                ..full.clone()
            }
            .into(),
            Primitive::Iota(iota) => Iota {
                shape: self.expanded(&[], &iota.shape),
                ..iota.clone()
            }
            .into(),
            Primitive::Reshape(Reshape { shape }) => {
                let from = &self.scope.graph.ty(*node.operands().first()?).shape;
                let shape = self.reshaped(from, &operand, shape)?;
                Reshape { shape }.into()
            }
            Primitive::Slice(slice) => Slice {
                start: self.slice_start(slice, &operand),
                ..slice.clone()
            }
            .into(),
            other => other.clone(),
        })
    }

    /// Returns a symbol for the start of a slice. If the start is a multiple of 4 and that decides whether vec4s can be
    /// read, it is four times a symbol.
    fn slice_start(&mut self, slice: &Slice, operand: &[Dim]) -> Dim {
        let inner_sizes = operand.iter().skip(slice.axis + 1);
        let is_inner_multiple_of_4 =
            is_multiple_of_4(&inner_sizes.fold(Dim::ONE, |size, next| &size * next));
        let unit = if is_inner_multiple_of_4 { 1 } else { VEC4_LEN };
        match slice.start.as_const() {
            Some(number) => self.new_symbol(number, "start", unit),
            None => slice.start.clone(),
        }
    }

    /// Returns the target shape of an expand. Sizes of the operand other than 1 stay, others get new symbols.
    fn expanded(&mut self, from: &[Dim], to: &[Dim]) -> Shape {
        let new = to.len() - from.len().min(to.len());
        let axes = to.iter().enumerate();
        let sizes = axes.map(|(axis, size)| {
            let kept = axis.checked_sub(new).and_then(|axis| from.get(axis));
            match kept.filter(|kept| !kept.is(1)) {
                Some(kept) => kept.clone(),
                None => self.image_size(size, axis, to.len()),
            }
        });
        sizes.collect()
    }

    /// Returns the target shape of a reshape of a planned shape `from`, for which `generic` stands, to the planned
    /// shape `to`. Axes that merge or split keep their constant sizes, since division by a size that is known only at
    /// run time is slow.
    fn reshaped(&self, from: &[Dim], generic: &[Dim], to: &[Dim]) -> Option<Shape> {
        let mut shape = Shape::new();
        let (mut start, mut target) = (0, 0);
        while target < to.len() {
            let (end, next) = matching_ends(from, to, start, target);
            let non_unit_axes = |sizes: &[Dim]| sizes.iter().filter(|size| !size.is(1)).count();
            if non_unit_axes(&from[start..end]) == 1 && non_unit_axes(&to[target..next]) == 1 {
                let kept = generic[start..end].iter().find(|size| !size.is(1))?;
                let sizes = to[target..next].iter();
                shape.extend(sizes.map(|size| {
                    if size.is(1) {
                        size.clone()
                    } else {
                        kept.clone()
                    }
                }));
            } else {
                for (size, number) in generic[start..end].iter().zip(&from[start..end]) {
                    self.equate(size, number)?;
                }
                shape.extend_from_slice(&to[target..next]);
            }
            (start, target) = (end, next);
        }
        Some(shape)
    }
}
