//! Shape-generic kernels, which layers that differ in sizes only share. Such a kernel is made for a group of nodes
//! whose constant sizes are replaced by symbols, and each layer passes its own sizes. A driver that takes long to
//! compile a kernel compiles it once for all of them. A planned graph, group or value is one of the graph that is
//! planned, with constant sizes; a generic one is its counterpart with symbols.
//!
//! Products with weights, convolutions and pointwise work in vec4 layouts are shape-generic from the start, since their
//! sources would differ in more than numbers (`builder`). All other kernels are made for the sizes of their layer;
//! where the sources of several layers turn out to differ in numbers only, one kernel with sizes in place of these
//! numbers serves all (`deduplicate`).

mod builder;
mod cost_model;
mod deduplicate;
mod kernel_cache;
mod merge;

use std::collections::{BTreeMap, BTreeSet};

use self::builder::{GenericBuilder, SymbolicSize};
pub(super) use self::deduplicate::deduplicate_kernels;
pub(super) use self::kernel_cache::KernelCache;
use crate::dim::{Dim, Symbol};
use crate::error::{Error, Result};
use crate::ir::{Builder, Definition, Graph, Op, Primitive, ValueId};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::choice::{KernelVariant, VariantChoice};
use crate::kernel::layout::{Layout, Panels};
use crate::kernel::names::unique;
use crate::kernel::winograd::OutputTile;
use crate::plan::conv::{AxisGeometry, ConvSizes, grouped, implicit_gemm, winograd};
use crate::plan::element::{KernelBinding, KernelScope};
use crate::plan::group::Group;
use crate::plan::kernel::{GeneratedKernel, LoweredKernel};
use crate::plan::product::Product;
use crate::plan::product::tile::{self, PackedWeight};
use crate::plan::reduce::pooling;
use crate::plan::{Planner, map, variant};

/// How the shape-generic kernel of a group is lowered. Panels of weights always have the constant sizes of the group's
/// layer.
#[derive(Clone, PartialEq)]
enum GenericLowering {
    /// Convolution in a vec4 layout of channels, with symbolic window, stride and padding.
    SymbolicWindowConv(PackedWeight),
    /// Convolution in a vec4 layout of channels whose window is a single position, or whose taps are not neighbours.
    FixedWindowConv(PackedWeight),
    /// Convolution in groups of a single channel or few.
    Grouped(Panels),
    /// Winograd convolution.
    Winograd(OutputTile, PackedWeight),
    /// Product whose right factor is a weight.
    Product(ValueId, PackedWeight),
    /// Reduction of small windows of an image.
    Pooling,
    /// Pointwise work and views, written as vec4s along an axis.
    PointwiseVec4,
    /// Pointwise work and views in row-major order. The kernel serves all offsets of slices, but other sizes are
    /// constants.
    PointwiseSlices,
    /// Copy of a value into vec4s along an axis.
    CopyToVec4(usize),
}

impl GenericLowering {
    /// Returns the panels of the weight that the kernel reads in panels.
    fn panels(&self) -> Option<&Panels> {
        match self {
            GenericLowering::SymbolicWindowConv(packed)
            | GenericLowering::FixedWindowConv(packed)
            | GenericLowering::Winograd(_, packed)
            | GenericLowering::Product(_, packed) => Some(&packed.panels),
            GenericLowering::Grouped(panels) => Some(panels),
            GenericLowering::Pooling
            | GenericLowering::PointwiseVec4
            | GenericLowering::PointwiseSlices
            | GenericLowering::CopyToVec4(_) => None,
        }
    }
}

impl Planner<'_> {
    /// Returns the kernel that a group shares with all groups that differ from it in sizes only. `None` if the group
    /// gets a kernel for its own sizes.
    pub(super) fn shape_generic_kernel(
        &mut self,
        group: &Group,
    ) -> Result<Option<GeneratedKernel>> {
        if group.pattern.is_some() || self.capabilities.simd_lanes().is_none() {
            return Ok(None);
        }
        match self.lowering(group)? {
            Some((lowering, choice)) => self.cached_kernel(group, &lowering, choice),
            None => Ok(None),
        }
    }

    /// Returns the kernel that copies a value into vec4s.
    pub(super) fn copy_to_vec4(&mut self, value: ValueId, axis: usize) -> Result<GeneratedKernel> {
        let group = Group::copy_of(value);
        match self.cached_kernel(&group, &GenericLowering::CopyToVec4(axis), None)? {
            Some(generated) => Ok(generated),
            None => map::copy_to_vec4(self.scope(), value, axis)?.finish(self.label(&group)),
        }
    }

    /// Returns the shape-generic kernel of a group with the group's values and sizes. Generates it if the cache does
    /// not have it. `None` if the group can only be lowered for its own sizes.
    fn cached_kernel(
        &mut self,
        group: &Group,
        lowering: &GenericLowering,
        choice: Option<VariantChoice>,
    ) -> Result<Option<GeneratedKernel>> {
        let Some(generic) = GenericGroup::of(&self.scope(), group, lowering) else {
            return Ok(None);
        };
        let kernel = self
            .builder
            .kernel_cache
            .kernel(&generic, lowering, self.label(group))?;
        Ok(kernel.map(|kernel| GeneratedKernel {
            choice,
            ..generic.instantiate(kernel, lowering)
        }))
    }

    /// Returns whether a group slices values. The steps of an unrolled loop do, and so do layers with a cache.
    fn has_slices(&self, group: &Group) -> bool {
        let nodes = group.computed(self.graph, &self.fusion.materialized);
        let is_slice = |node: &usize| {
            matches!(
                self.graph.nodes[*node].op,
                Op::Primitive(Primitive::Slice(_))
            )
        };
        nodes.iter().any(is_slice) && !self.has_many_operands(group)
    }

    /// Returns the method of lowering a group to a shape-generic kernel, and the choice of its variant, if there was
    /// one. `None` if the group gets a kernel for its own sizes.
    fn lowering(&self, group: &Group) -> Result<Option<(GenericLowering, Option<VariantChoice>)>> {
        let is_vec4_layout = !self.scope().layout(group.root).is_row_major();
        let Some(node) = group.anchor.map(|anchor| &self.graph.nodes[anchor]) else {
            let lowering = match is_vec4_layout {
                true => Some(GenericLowering::PointwiseVec4),
                false => self
                    .has_slices(group)
                    .then_some(GenericLowering::PointwiseSlices),
            };
            return Ok(lowering.map(|lowering| (lowering, None)));
        };
        if let Op::Primitive(Primitive::Reduce(_)) = &node.op {
            return Ok(is_vec4_layout.then_some((GenericLowering::Pooling, None)));
        }
        let best =
            variant::best_choice(&self.scope(), node, &self.request.options.variant_overrides)?;
        let Some(mut choice) = best else {
            return Ok(None);
        };
        if let Some(tile_shape) = group
            .anchor
            .and_then(|node| self.fusion.tile_shapes.get(&node))
        {
            choice.reason += &format!("; {tile_shape}");
        }
        let tile_shape = self.fusion.tile_shape(group.anchor);
        let lowering = match (&node.op, choice.variant) {
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::SubgroupTile)
                if conv.groups == 1 =>
            {
                let sizes = ConvSizes::new(self.graph, node, conv)?;
                let packed = implicit_gemm::filter_panels(
                    self.graph,
                    self.capabilities,
                    node,
                    conv,
                    tile_shape,
                );
                packed.map(
                    match implicit_gemm::uses_window_kernel(&self.scope(), &sizes) {
                        true => GenericLowering::SymbolicWindowConv,
                        false => GenericLowering::FixedWindowConv,
                    },
                )
            }
            (
                Op::Primitive(Primitive::Conv(conv)),
                KernelVariant::Winograd { tile: output_tile },
            ) if conv.groups == 1 => {
                let packed = winograd::filter_panels(
                    self.graph,
                    self.capabilities,
                    node,
                    conv,
                    output_tile,
                    tile_shape,
                );
                packed.map(|packed| GenericLowering::Winograd(output_tile, packed))
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::Grouped) => {
                implicit_gemm::filter_panels(self.graph, self.capabilities, node, conv, tile_shape)
                    .map(|packed| GenericLowering::Grouped(packed.panels))
            }
            (Op::Primitive(Primitive::Dot(_)), KernelVariant::SubgroupTile) => {
                let product = Product::of(self.graph, node)?;
                let weight = tile::packed_weight(&mut self.scope(), &product, tile_shape)?;
                weight.map(|(value, packed)| GenericLowering::Product(value, packed))
            }
            _ => None,
        };
        Ok(lowering.map(|lowering| (lowering, Some(choice))))
    }
}

/// A group as a separate graph, in which constant sizes are symbols.
struct GenericGroup<'a> {
    capabilities: &'a Capabilities,
    graph: Graph,
    group: Group,
    materialized: Vec<bool>,
    layouts: Vec<Layout>,
    storages: Vec<StorageType>,
    written: Vec<bool>,
    texture_aliased: Vec<bool>,
    /// Value of the planned graph for each value of this graph.
    planned_values: Vec<ValueId>,
    /// Geometry of a convolution, if it is symbolic too.
    symbolic_axes: Option<Vec<AxisGeometry>>,
    /// Size that each symbol stands for.
    sizes: BTreeMap<Symbol, Dim>,
}

impl<'a> GenericGroup<'a> {
    /// Makes a group shape-generic. `None` if a node can only be lowered for the group's own sizes.
    fn of(
        scope: &KernelScope<'a>,
        group: &Group,
        lowering: &GenericLowering,
    ) -> Option<GenericGroup<'a>> {
        let planned = scope.graph;
        let builder = Builder::with_symbols("form", planned.hints.clone(), Vec::new());
        let mut generic_builder = GenericBuilder::new(scope, group, lowering, &builder);
        let mut written = generic_builder.build()?;
        let GenericBuilder {
            generic_values,
            planned_values,
            symbols,
            symbolic_axes,
            ..
        } = generic_builder;
        let graph = builder.finish(&written, Vec::new(), None).ok()?;
        let root = written.pop()?;
        let generic_node = |node: &usize| {
            let result = planned.nodes[*node].results.first()?;
            match graph.value(*generic_values.get(result)?).definition {
                Definition::Node(node, _) => Some(node),
                _ => None,
            }
        };
        let all_values = planned_values.iter().copied();
        let storages: Result<Vec<StorageType>> =
            all_values.clone().map(|id| scope.storage(id)).collect();
        let generic = GenericGroup {
            capabilities: scope.capabilities,
            group: Group {
                anchor: group.anchor.as_ref().and_then(generic_node),
                root,
                other_outputs: written,
                nodes: group.nodes.iter().filter_map(generic_node).collect(),
                pattern: None,
            },
            materialized: all_values
                .clone()
                .map(|id| scope.materialized[id.index()])
                .collect(),
            layouts: all_values
                .clone()
                .map(|id| scope.layout(id).clone())
                .collect(),
            storages: storages.ok()?,
            written: all_values.clone().map(|id| scope.is_written(id)).collect(),
            texture_aliased: all_values.map(|id| scope.is_texture_aliased(id)).collect(),
            graph,
            planned_values,
            symbolic_axes,
            sizes: BTreeMap::new(),
        };
        let generic = generic.with_named_symbols(&symbols, planned);
        generic.matches_types(planned).then_some(generic)
    }

    /// Gives the remaining symbols descriptive names.
    fn with_named_symbols(mut self, symbols: &[SymbolicSize], planned: &Graph) -> GenericGroup<'a> {
        let mut used_names: BTreeSet<String> =
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
            let name: Symbol = unique(&mut used_names, &wanted).into();
            self.graph.hints.insert(name.clone(), symbol.value);
            self.sizes.insert(name.clone(), Dim::from(symbol.value));
            names.insert(symbol.symbol.clone(), Dim::symbol(name));
        }
        self.graph.map_sizes(&mut |dim| dim.substitute(&names));
        for axis in self.symbolic_axes.iter_mut().flatten() {
            for size in [&mut axis.stride, &mut axis.low, &mut axis.high] {
                *size = size.substitute(&names);
            }
        }
        self
    }

    /// Returns whether every value has the type that it has in the planned graph, once sizes are substituted.
    fn matches_types(&self, planned: &Graph) -> bool {
        let mut pairs = self.graph.values.iter().zip(&self.planned_values);
        pairs.all(|(info, value)| {
            let ty = planned.ty(*value);
            let sizes = info.ty.shape.iter().map(|dim| dim.substitute(&self.sizes));
            info.ty.dtype == ty.dtype && sizes.eq(ty.shape.iter().cloned())
        })
    }

    fn scope(&self) -> KernelScope<'_> {
        let scope = KernelScope::new(
            &self.graph,
            self.capabilities,
            &self.materialized,
            &self.written,
        );
        scope
            .with_layouts(&self.layouts, &self.storages)
            .with_texture_aliases(&self.texture_aliased)
    }

    /// Lowers the generic group.
    fn lower(&self, lowering: &GenericLowering) -> Result<LoweredKernel<'_>> {
        let (scope, group) = (self.scope(), &self.group);
        let missing =
            || Error::internal("a shape-generic group has no node or no weight for its kernel");
        let node = group.anchor.and_then(|anchor| self.graph.nodes.get(anchor));
        let Some(node) = node else {
            return match lowering {
                GenericLowering::CopyToVec4(axis) => map::copy_to_vec4(scope, group.root, *axis),
                GenericLowering::PointwiseSlices => map::lower_any(|| self.scope(), group),
                _ => map::lower_vec4(scope, group)?.ok_or_else(missing),
            };
        };
        match (lowering, &node.op) {
            (
                GenericLowering::SymbolicWindowConv(packed)
                | GenericLowering::FixedWindowConv(packed),
                Op::Primitive(Primitive::Conv(conv)),
            ) => {
                let mut sizes = ConvSizes::new(&self.graph, node, conv)?;
                if let Some(axes) = &self.symbolic_axes {
                    sizes.axes.clone_from(axes);
                }
                implicit_gemm::lower_panels(scope, group, &sizes, packed.clone())
            }
            (GenericLowering::Grouped(panels), Op::Primitive(Primitive::Conv(conv))) => {
                let sizes = ConvSizes::new(&self.graph, node, conv)?;
                grouped::lower_panels(scope, group, &sizes, panels)
            }
            (
                GenericLowering::Winograd(output_tile, packed),
                Op::Primitive(Primitive::Conv(conv)),
            ) => winograd::lower_panels(scope, group, node, conv, *output_tile, packed.clone()),
            (GenericLowering::Product(weight, packed), _) => {
                let weight = self.planned_values.iter().position(|value| value == weight);
                let weight = weight.ok_or_else(missing)?.into();
                let product = Product::of(&self.graph, node)?;
                tile::lower_panels(scope, group, &product, weight, packed.clone())
            }
            (_, Op::Primitive(Primitive::Reduce(reduce))) => {
                pooling::lower(scope, group, node, reduce)
            }
            _ => Err(missing()),
        }
    }

    /// Returns a dispatch of the kernel with this group's values and sizes. The kernel may have been made for another
    /// group.
    fn instantiate(
        &self,
        generated: GeneratedKernel,
        lowering: &GenericLowering,
    ) -> GeneratedKernel {
        let value = |generic: ValueId| self.planned_values[generic.index()];
        let layout = |binding: &KernelBinding| match (&binding.layout, lowering.panels()) {
            // A weight that is stored only in panels keeps its constant sizes in the generic graph.
            (expected, _) if *expected == self.layouts[binding.value.index()] => expected.clone(),
            (Layout::Panels(_), Some(panels)) => Layout::Panels(panels.clone()),
            (Layout::Scratch { name, sizes }, _) => Layout::Scratch {
                name,
                sizes: sizes
                    .iter()
                    .map(|size| size.substitute(&self.sizes))
                    .collect(),
            },
            (expected, _) => expected.clone(),
        };
        let generated = generated.substitute_sizes(&self.sizes);
        GeneratedKernel {
            bindings: generated
                .bindings
                .into_iter()
                .map(|binding| KernelBinding {
                    value: value(binding.value),
                    layout: layout(&binding),
                    ..binding
                })
                .collect(),
            scalar_writes: generated.scalar_writes.into_iter().map(value).collect(),
            checks: generated.checks.into_iter().map(value).collect(),
            ..generated
        }
    }
}
