//! Shape-generic kernels, which layers that differ in sizes only share. Such a kernel is made for a group of nodes whose
//! constant sizes are replaced by symbols, and each layer passes its own sizes. A driver that takes long to compile a
//! kernel compiles it once for all of them.
//!
//! Products with weights, convolutions and pointwise work in vec4 layouts are shape-generic from the start, since their
//! sources would differ in more than numbers (`builder`). All other kernels are made for the sizes of their layer; where
//! the sources of several layers turn out to differ in numbers only, one kernel with sizes in place of these numbers
//! serves all (`alike`).

mod alike;
mod former;
mod pair;
mod price;
mod structure;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::alike::share;
use self::former::{Former, Unknown};
pub(super) use self::structure::Known;
use crate::dim::{Dim, Symbol};
use crate::error::{Error, Result};
use crate::ir::{Builder, Definition, Graph, Op, Primitive, ValueId};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::choice::{KernelVariant, VariantChoice};
use crate::kernel::emit::unique;
use crate::kernel::layout::{Layout, Panels};
use crate::kernel::winograd::OutputTile;
use crate::pass::plan::conv::{Along, Sizes, grouped, image, winograd};
use crate::pass::plan::element::{Binding, Scope};
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::{Lowered, Made};
use crate::pass::plan::product::Product;
use crate::pass::plan::product::tile::{self, Packed};
use crate::pass::plan::reduce::pooling;
use crate::pass::plan::{Planner, map, variant};

/// How the shape-generic kernel of a group is lowered. Panels of weights are always those of the true sizes.
#[derive(Clone, PartialEq)]
enum Way {
    /// Convolution in a vec4 layout of channels, with symbolic window, stride and padding.
    Convolution(Packed),
    /// Convolution in a vec4 layout of channels whose window is a single position, or whose taps are not neighbours.
    Positions(Packed),
    /// Convolution in groups of a single channel or few.
    Grouped(Panels),
    /// Winograd convolution.
    Winograd(OutputTile, Packed),
    /// Product whose right factor is a weight.
    Product(ValueId, Packed),
    /// Reduction of small windows of an image.
    Pooling,
    /// Pointwise work and views, written as vec4s along an axis.
    Quads,
    /// Pointwise work and views in row-major order. The kernel serves all offsets of slices, but other sizes are
    /// constants.
    Pieces,
    /// Copy of a value into vec4s along an axis.
    Copy(usize),
}

impl Way {
    /// Returns the panels of the weight that the kernel reads in panels.
    fn panels(&self) -> Option<&Panels> {
        match self {
            Way::Convolution(packed)
            | Way::Positions(packed)
            | Way::Winograd(_, packed)
            | Way::Product(_, packed) => Some(&packed.panels),
            Way::Grouped(panels) => Some(panels),
            Way::Pooling | Way::Quads | Way::Pieces | Way::Copy(_) => None,
        }
    }
}

impl Planner<'_> {
    /// Returns the kernel that a group shares with all groups that differ from it in sizes only. `None` if the group gets
    /// a kernel for its own sizes.
    pub(super) fn shared(&mut self, group: &Group) -> Result<Option<Made>> {
        if group.pattern.is_some() || self.capabilities.simd_lanes().is_none() {
            return Ok(None);
        }
        match self.way(group)? {
            Some((way, choice)) => self.by_form(group, &way, choice),
            None => Ok(None),
        }
    }

    /// Returns the kernel that copies a value into vec4s.
    pub(super) fn copy_in_quads(&mut self, value: ValueId, axis: usize) -> Result<Made> {
        let group = Group::copy_of(value);
        match self.by_form(&group, &Way::Copy(axis), None)? {
            Some(made) => Ok(made),
            None => map::to_quads(self.scope(), value, axis)?.finish(self.label(&group)),
        }
    }

    fn by_form(
        &mut self,
        group: &Group,
        way: &Way,
        choice: Option<VariantChoice>,
    ) -> Result<Option<Made>> {
        let Some(form) = Form::of(&self.scope(), group, way) else {
            return Ok(None);
        };
        let made = self.sheet.forms.made(&form, way, self.label(group))?;
        Ok(made.map(|made| Made {
            choice,
            ..form.in_true_sizes(made, way)
        }))
    }

    /// Returns whether a group slices values. The steps of an unrolled loop do, and so do layers with a cache.
    fn has_pieces(&self, group: &Group) -> bool {
        let nodes = group.computed(self.graph, &self.fusion.stored);
        let is_slice = |node: &usize| {
            matches!(
                self.graph.nodes[*node].op,
                Op::Primitive(Primitive::Slice(_))
            )
        };
        nodes.iter().any(is_slice) && !self.is_of_many(group)
    }

    fn way(&self, group: &Group) -> Result<Option<(Way, Option<VariantChoice>)>> {
        let is_in_quads = !self.scope().layout(group.root).is_row_major();
        let Some(node) = group.anchor.map(|anchor| &self.graph.nodes[anchor]) else {
            let way = match is_in_quads {
                true => Some(Way::Quads),
                false => self.has_pieces(group).then_some(Way::Pieces),
            };
            return Ok(way.map(|way| (way, None)));
        };
        if let Op::Primitive(Primitive::Reduce(_)) = &node.op {
            return Ok(is_in_quads.then_some((Way::Pooling, None)));
        }
        let best = variant::best(&self.scope(), node, &self.wanted.options.choices)?;
        let Some(mut choice) = best else {
            return Ok(None);
        };
        if let Some(extent) = group.anchor.and_then(|node| self.fusion.extents.get(&node)) {
            choice.reason += &format!("; {extent}");
        }
        let extent = self.fusion.extent(group.anchor);
        let way = match (&node.op, choice.variant) {
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::SubgroupTile)
                if conv.groups == 1 =>
            {
                let sizes = Sizes::new(self.graph, node, conv)?;
                let packed = image::panels(self.graph, self.capabilities, node, (conv, extent));
                packed.map(match image::is_by_window(&self.scope(), &sizes) {
                    true => Way::Convolution,
                    false => Way::Positions,
                })
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::Winograd { tile: places })
                if conv.groups == 1 =>
            {
                let of = (conv, places, extent);
                let packed = winograd::panels(self.graph, self.capabilities, node, of);
                packed.map(|packed| Way::Winograd(places, packed))
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::Grouped) => {
                image::panels(self.graph, self.capabilities, node, (conv, extent))
                    .map(|packed| Way::Grouped(packed.panels))
            }
            (Op::Primitive(Primitive::Dot(_)), KernelVariant::SubgroupTile) => {
                let product = Product::of(self.graph, node)?;
                let weight = tile::weight(&mut self.scope(), &product, extent)?;
                weight.map(|(value, packed)| Way::Product(value, packed))
            }
            _ => None,
        };
        Ok(way.map(|way| (way, Some(choice))))
    }
}

/// A group as a graph of its own, in which constant sizes are symbols.
struct Form<'a> {
    capabilities: &'a Capabilities,
    graph: Graph,
    group: Group,
    stored: Vec<bool>,
    layouts: Vec<Layout>,
    storages: Vec<StorageType>,
    written: Vec<bool>,
    texels: Vec<bool>,
    /// Value of the planned graph for each value of this graph.
    values: Vec<ValueId>,
    /// Geometry of a convolution, if it is symbolic too.
    axes: Option<Vec<Along>>,
    /// Size that each symbol stands for.
    sizes: BTreeMap<Symbol, Dim>,
}

impl<'a> Form<'a> {
    /// Makes a group shape-generic. `None` if a node can only be lowered for the group's own sizes.
    fn of(scope: &Scope<'a>, group: &Group, way: &Way) -> Option<Form<'a>> {
        let planned = scope.graph;
        let builder = Builder::with_symbols("form", planned.hints.clone(), Vec::new());
        let mut former = Former::new(scope, group, way, &builder);
        let mut written = former.all()?;
        let Former {
            known,
            values,
            symbols,
            axes,
            ..
        } = former;
        let graph = builder.finish(&written, Vec::new(), None).ok()?;
        let root = written.pop()?;
        let place = |node: &usize| {
            let result = planned.nodes[*node].results.first()?;
            match graph.value(*known.get(result)?).definition {
                Definition::Node(node, _) => Some(node),
                _ => None,
            }
        };
        let of_all = values.iter().copied();
        let storages: Result<Vec<StorageType>> =
            of_all.clone().map(|id| scope.storage(id)).collect();
        let form = Form {
            capabilities: scope.capabilities,
            group: Group {
                anchor: group.anchor.as_ref().and_then(place),
                root,
                also: written,
                nodes: group.nodes.iter().filter_map(place).collect(),
                pattern: None,
            },
            stored: of_all.clone().map(|id| scope.stored[id.index()]).collect(),
            layouts: of_all.clone().map(|id| scope.layout(id).clone()).collect(),
            storages: storages.ok()?,
            written: of_all.clone().map(|id| scope.is_written(id)).collect(),
            texels: of_all.map(|id| scope.has_texels(id)).collect(),
            graph,
            values,
            axes,
            sizes: BTreeMap::new(),
        };
        let form = form.named(&symbols, planned);
        form.stands_for(planned).then_some(form)
    }

    /// Gives the remaining symbols descriptive names.
    fn named(mut self, symbols: &[Unknown], planned: &Graph) -> Form<'a> {
        let mut taken: BTreeSet<String> =
            planned.hints.keys().map(|name| name.to_string()).collect();
        let mut names = BTreeMap::new();
        for symbol in symbols {
            if self.graph.hints.remove(&symbol.symbol).is_none() {
                continue;
            }
            let wanted = match symbol.unit {
                1 => symbol.role.to_string(),
                unit => format!("{}_by_{unit}", symbol.role),
            };
            let name: Symbol = unique(&mut taken, &wanted).into();
            self.graph.hints.insert(name.clone(), symbol.number);
            self.sizes.insert(name.clone(), Dim::from(symbol.number));
            names.insert(symbol.symbol.clone(), Dim::symbol(name));
        }
        self.graph.map_sizes(&mut |dim| dim.substitute(&names));
        for axis in self.axes.iter_mut().flatten() {
            for size in [&mut axis.stride, &mut axis.low, &mut axis.high] {
                *size = size.substitute(&names);
            }
        }
        self
    }

    /// Returns whether every value has the type that it has in the planned graph, once sizes are substituted.
    fn stands_for(&self, planned: &Graph) -> bool {
        let mut pairs = self.graph.values.iter().zip(&self.values);
        pairs.all(|(info, value)| {
            let ty = planned.ty(*value);
            let sizes = info.ty.shape.iter().map(|dim| dim.substitute(&self.sizes));
            info.ty.dtype == ty.dtype && sizes.eq(ty.shape.iter().cloned())
        })
    }

    fn scope(&self) -> Scope<'_> {
        let scope = Scope::new(&self.graph, self.capabilities, &self.stored, &self.written);
        scope
            .in_memory(&self.layouts, &self.storages)
            .with_texels(&self.texels)
    }

    fn lower(&self, way: &Way) -> Result<Lowered<'_>> {
        let (scope, group) = (self.scope(), &self.group);
        let missing = || Error::internal("a form has no node for what it computes");
        let node = group.anchor.and_then(|anchor| self.graph.nodes.get(anchor));
        let Some(node) = node else {
            return match way {
                Way::Copy(axis) => map::to_quads(scope, group.root, *axis),
                Way::Pieces => map::lower_any(|| self.scope(), group),
                _ => map::lower_quads(scope, group)?.ok_or_else(missing),
            };
        };
        match (way, &node.op) {
            (
                Way::Convolution(packed) | Way::Positions(packed),
                Op::Primitive(Primitive::Conv(conv)),
            ) => {
                let mut sizes = Sizes::new(&self.graph, node, conv)?;
                if let Some(axes) = &self.axes {
                    sizes.axes.clone_from(axes);
                }
                image::by_panels(scope, group, &sizes, packed.clone())
            }
            (Way::Grouped(panels), Op::Primitive(Primitive::Conv(conv))) => {
                let sizes = Sizes::new(&self.graph, node, conv)?;
                grouped::by_panels(scope, group, &sizes, panels)
            }
            (Way::Winograd(places, packed), Op::Primitive(Primitive::Conv(conv))) => {
                winograd::by_panels(scope, group, node, (conv, *places, packed.clone()))
            }
            (Way::Product(weight, packed), _) => {
                let weight = self.values.iter().position(|value| value == weight);
                let weight = weight.ok_or_else(missing)?.into();
                let product = Product::of(&self.graph, node)?;
                tile::by_panels(scope, group, &product, (weight, packed.clone()))
            }
            (_, Op::Primitive(Primitive::Reduce(reduce))) => {
                pooling::lower(scope, group, node, reduce)
            }
            _ => Err(missing()),
        }
    }

    /// Returns a dispatch of the kernel with this group's values and sizes. The kernel may have been made for another
    /// group.
    fn in_true_sizes(&self, made: Made, way: &Way) -> Made {
        let value = |of_form: ValueId| self.values[of_form.index()];
        let layout = |binding: &Binding| match (&binding.layout, way.panels()) {
            // A weight that lies in panels only keeps its true sizes in the shape-generic graph.
            (lies, _) if *lies == self.layouts[binding.value.index()] => lies.clone(),
            (Layout::Panels(_), Some(panels)) => Layout::Panels(panels.clone()),
            (Layout::Scratch { name, sizes }, _) => Layout::Scratch {
                name,
                sizes: sizes
                    .iter()
                    .map(|size| size.substitute(&self.sizes))
                    .collect(),
            },
            (lies, _) => lies.clone(),
        };
        let made = made.in_sizes(&self.sizes);
        Made {
            bindings: made
                .bindings
                .into_iter()
                .map(|binding| Binding {
                    value: value(binding.value),
                    layout: layout(&binding),
                    ..binding
                })
                .collect(),
            singles: made.singles.into_iter().map(value).collect(),
            checks: made.checks.into_iter().map(value).collect(),
            ..made
        }
    }
}
