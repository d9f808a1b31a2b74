//! Lowers a graph of primitives and regions to a plan: decides which values are materialised (`fuse`), builds an
//! expression for each element (`element`), a kernel for each group and blocks of steps for regions (`region`), and
//! assigns slots and lifetimes.
//!
//! In reading order: node costs (`cost`) and kernel groups (`group`); expressions (`element`) and the kernel source
//! around them (`kernel`, `vec4_layout`, `lanes`); kernels by operation (`product`, `conv`, `attention`, `recurrent`,
//! `reduce`, `scan`, `sort`, `map`, `custom`); the choice of a kernel for a device (`variant`), the layout and storage
//! type of values (`storage`), and fusion (`fuse`); shape-generic kernels that layers share (`shape_generic`) and the
//! slots that kernels bind (`slots`); the steps of the plan (`steps`), and kernels that read too many buffers
//! (`binding_overflow`). A module of several files has a folder.

mod attention;
mod binding_overflow;
mod check;
mod conv;
mod cost;
mod custom;
mod element;
mod fuse;
mod group;
mod kernel;
mod lanes;
mod map;
mod plan_builder;
mod product;
mod recurrent;
mod reduce;
mod region;
mod scan;
mod shape_generic;
mod slots;
mod sort;
mod steps;
mod storage;
mod variant;
mod vec4_layout;

pub use self::variant::{AdmittedVariants, admitted};

use std::collections::{BTreeMap, BTreeSet, HashSet};

use self::check::check_types;
use self::element::KernelScope;
use self::fuse::{Fusion, fuse};
use self::group::{Group, Pattern};
use self::kernel::LoweredKernel;
use self::plan_builder::{GroupKernels, PlanBuilder};
use self::shape_generic::KernelCache;
use self::storage::panels::{self, PaneledWeights};
use self::storage::precision::StorageRequest;
use crate::error::{Error, Result, SourcePlace};
use crate::interrupt;
use crate::ir::{Graph, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::VariantOverrides;
use crate::kernel::layout::Layout;
use crate::kernel::materialization::{MaterializedValue, Precision};
use crate::kernel::plan::{Flow, Plan, SlotId};
use crate::pass::explicit_regions;

/// Options of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Requested kernel variants of some nodes. A node that does not admit the requested variant gets one from the
    /// table of `variant`.
    pub variant_overrides: VariantOverrides,
    /// Storage precision of `f32` values.
    pub precision: Precision,
}

impl From<VariantOverrides> for PlanOptions {
    fn from(variant_overrides: VariantOverrides) -> PlanOptions {
        PlanOptions {
            variant_overrides,
            ..PlanOptions::default()
        }
    }
}

/// Plans a graph of primitives and regions for a device. The error lists everything that the device cannot do.
pub fn plan(graph: &Graph, capabilities: &Capabilities) -> Result<Plan> {
    plan_with_options(graph, capabilities, &PlanOptions::default())
}

/// Plans a graph like [`plan`], with options.
pub fn plan_with_options(
    graph: &Graph,
    capabilities: &Capabilities,
    options: &PlanOptions,
) -> Result<Plan> {
    let graph = &fuse::split::split(
        &explicit_regions(graph)?,
        capabilities,
        &options.variant_overrides,
    )?;
    let (mut scalar_writes, mut stored, mut paneled) =
        (BTreeSet::new(), BTreeSet::new(), PaneledWeights::new());
    let mut previous = PreviousAttempt::default();
    // A value that cannot be stored in half-precision pairs, a weight that would be stored twice, or a value that is not
    // stored although a kernel cannot bind all that it reads, gets another storage in the next attempt.
    loop {
        let request = StorageRequest {
            options,
            scalar_writes: &scalar_writes,
            stored: &stored,
            paneled: &paneled,
            prefix: "",
        };
        let (mut builder, fusion) = build_kernels(graph, capabilities, request, previous)?;
        let newly_paneled = panels::choose_paneled(&builder, capabilities);
        // True if only the weights stored as panels change.
        let are_known =
            builder.scalar_writes.is_subset(&scalar_writes) && builder.stored.is_subset(&stored);
        if are_known && newly_paneled.is_empty() {
            builder.plan.shared_weights = panels::shared_weights(&builder, &paneled);
            shape_generic::deduplicate_kernels(
                &mut builder.plan,
                &builder.sources,
                capabilities,
                &graph.hints,
            );
            let plan = builder.finish();
            check::check_workgroups(&plan, capabilities)?;
            return Ok(plan);
        }
        previous = PreviousAttempt {
            kernel_cache: builder.kernel_cache,
            reusable: are_known.then_some((fusion, builder.group_kernels)),
        };
        scalar_writes.extend(builder.scalar_writes);
        stored.extend(builder.stored);
        paneled.extend(newly_paneled);
    }
}

/// Results of the previous planning attempt.
#[derive(Default)]
struct PreviousAttempt {
    kernel_cache: KernelCache,
    /// Fusion and kernels, if the attempts differ only in weights stored as panels.
    reusable: Option<(Fusion, Vec<GroupKernels>)>,
}

/// Builds the kernels and slots of a plan. Returns them with the fusion decisions.
fn build_kernels(
    graph: &Graph,
    capabilities: &Capabilities,
    request: StorageRequest,
    previous: PreviousAttempt,
) -> Result<(PlanBuilder, Fusion)> {
    let (fusion, group_kernels) = match previous.reusable {
        Some((mut fusion, group_kernels)) => {
            panels::assign_layouts(graph, &mut fusion, request.paneled);
            (fusion, group_kernels)
        }
        None => (Fusion::of(graph, capabilities, request)?, Vec::new()),
    };
    let mut builder = PlanBuilder::with_earlier(previous.kernel_cache, group_kernels);
    builder.plan.inputs = vec![None; graph.inputs.len()];
    builder.plan.guards.clone_from(&graph.guards);
    let written = vec![false; graph.values.len()];
    let mut planner = Planner {
        graph,
        capabilities,
        request,
        fusion: &fusion,
        builder: &mut builder,
        slots: BTreeMap::new(),
        converted: BTreeMap::new(),
        written: &written,
        prefix: String::new(),
        order: Vec::new(),
        makes_checks: true,
        host_values: custom::host_values(graph),
        outputs: graph.outputs.iter().copied().collect(),
        flows: Vec::new(),
    };
    planner.run(Planner::outputs)?;
    builder.plan.flows = planner.flows;
    Ok((builder, fusion))
}

/// Plans one graph: the whole graph or the body of a region.
struct Planner<'a> {
    graph: &'a Graph,
    capabilities: &'a Capabilities,
    request: StorageRequest<'a>,
    fusion: &'a Fusion,
    builder: &'a mut PlanBuilder,
    /// Slots of values. The flag is true for a slot that receives a copy of the value.
    slots: BTreeMap<(ValueId, bool), SlotId>,
    /// Copies of values in another layout, and weights in panels or chunks.
    converted: BTreeMap<(ValueId, Layout), SlotId>,
    /// Whether a value is an input of a region's body in a slot that steps of the plan write, by index.
    written: &'a [bool],
    /// Prefix of a body's slot names, such as `y/`, which distinguishes them from those of the enclosing graph.
    prefix: String,
    /// Path to the body: indices of the enclosing regions' nodes, outermost first. Empty for the whole graph.
    order: Vec<usize>,
    /// True if kernels evaluate the checks among their nodes.
    makes_checks: bool,
    /// Operands and results of host functions. Their memory is not reused.
    host_values: HashSet<ValueId>,
    /// Outputs of this graph.
    outputs: HashSet<ValueId>,
    /// Control flow and host calls between the steps of this graph.
    flows: Vec<Flow>,
}

impl Fusion {
    /// Decides which nodes are fused, and the layout and storage type of each value.
    fn of(graph: &Graph, capabilities: &Capabilities, request: StorageRequest) -> Result<Fusion> {
        check_types(graph, capabilities)?;
        let mut fusion = fuse(graph, capabilities, request)?;
        fusion.layouts = storage::layout::assign(graph, capabilities, &fusion);
        let decisions = storage::precision::assign(graph, capabilities, &fusion, request)?;
        (fusion.storages, fusion.f32_reasons) = decisions.into_iter().unzip();
        let is_body = !request.prefix.is_empty();
        storage::concat::assign_parts(graph, capabilities, &mut fusion, is_body);
        fusion.layouts = storage::padding::assign(graph, capabilities, request, &fusion);
        fusion.texture_aliased =
            storage::texture_aliases::assign(graph, capabilities, &fusion, is_body);
        panels::assign_layouts(graph, &mut fusion, request.paneled);
        fusion.tile_shapes = storage::tile_shapes::assign(graph, capabilities, &fusion, request);
        Ok(fusion)
    }
}

impl<'a> Planner<'a> {
    /// Plans every group, then calls `last`. The error lists all failures.
    fn run(&mut self, last: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let mut errors = Vec::new();
        for group in &self.fusion.groups {
            interrupt::check()
                .map_err(|error| error.at("planning").at_place(&self.source_place(group)))?;
            if let Err(error) = self.plan_group(group) {
                errors.push(error.at_place(&self.source_place(group)));
            }
        }
        errors.extend(last(self).err());
        self.record_materialized();
        Error::all(errors).map_or(Ok(()), Err)
    }

    /// Records why each value with a slot is materialised.
    fn record_materialized(&mut self) {
        for ((value, is_copy), slot) in &self.slots {
            let reason = self.fusion.reasons[value.index()].filter(|_| !is_copy);
            let plan = &mut self.builder.plan;
            plan.materialized
                .extend(reason.map(|reason| MaterializedValue {
                    value: plan.slots[slot.0].name.clone(),
                    reason,
                    f32_reason: self.fusion.f32_reasons[value.index()],
                }));
        }
    }

    fn scope(&self) -> KernelScope<'a> {
        let Fusion {
            materialized,
            layouts,
            storages,
            texture_aliased,
            ..
        } = self.fusion;
        let scope = KernelScope::new(self.graph, self.capabilities, materialized, self.written);
        let scope = scope
            .with_layouts(layouts, storages)
            .with_texture_aliases(texture_aliased);
        match self.makes_checks {
            true => scope,
            false => scope.without_checks(),
        }
    }

    fn source_place(&self, group: &Group) -> SourcePlace {
        let node = group
            .nodes
            .first()
            .and_then(|node| self.graph.nodes.get(*node));
        node.map(|node| node.place.clone()).unwrap_or_default()
    }

    fn plan_group(&mut self, group: &Group) -> Result<()> {
        let anchor = group.anchor.and_then(|node| self.graph.nodes.get(node));
        if let Some(node) = anchor
            && let Op::Region(region) = &node.op
        {
            return self.plan_region(node, region);
        }
        if let Some(node) = anchor
            && let Op::Primitive(Primitive::Custom(custom)) = &node.op
        {
            return self.custom(node, custom, group);
        }
        let kernels = match self.builder.reuse_kernels() {
            Some(kernels) if self.are_still_valid(&kernels) => kernels,
            _ => self.generate_kernels(group)?,
        };
        self.builder.group_kernels.push(kernels.clone());
        let mut kernels = kernels.into_iter();
        kernels.try_for_each(|(kernel, operand)| self.add_step(kernel, group, operand))
    }

    /// True if the kernels read no weight in rows that is now stored only in panels.
    fn are_still_valid(&self, kernels: &GroupKernels) -> bool {
        let mut bindings = kernels.iter().flat_map(|(kernel, _)| &kernel.bindings);
        let is_in_panels = |layout: &Layout| matches!(layout, Layout::Panels(_));
        bindings.all(|binding| {
            let stored_layout = &self.fusion.layouts[binding.value.index()];
            is_in_panels(&binding.layout) || !is_in_panels(stored_layout)
        })
    }

    /// Generates the kernels of a group: one, or one for each operand of a concatenation. None if the next attempt stores
    /// another value.
    fn generate_kernels(&mut self, group: &Group) -> Result<GroupKernels> {
        let single = match self.sort_kernel(group)? {
            None => self.shape_generic_kernel(group)?,
            sorted => sorted,
        };
        if let Some(kernel) = single {
            return Ok(vec![(kernel, None)]);
        }
        let label = self.label(group);
        let lowered = self.lower(group)?;
        if (!lowered.fits() || self.has_many_operands(group))
            && let Some(operand_kernels) = self.kernels_by_operand(group, &label)?
        {
            return Ok(operand_kernels);
        }
        if !lowered.fits()
            && let Some(value) = self.value_to_store(group)
        {
            self.builder.stored.insert(self.slot_name(value));
            return Ok(Vec::new());
        }
        let lowered = match lowered.fits() || !lowered.scope.makes_checks() {
            true => lowered,
            false => self.lower_without_checks(group)?,
        };
        Ok(vec![(lowered.finish(label)?, None)])
    }

    /// Lowers a group without its checks, for a device that cannot bind the check flags in addition.
    fn lower_without_checks(&mut self, group: &Group) -> Result<LoweredKernel<'a>> {
        self.makes_checks = false;
        let unchecked = self.lower(group);
        self.makes_checks = true;
        unchecked
    }

    fn lower(&self, group: &Group) -> Result<LoweredKernel<'a>> {
        match &group.pattern {
            Some(Pattern::Rows(rows)) => return reduce::rows::lower(self.scope(), group, rows),
            Some(Pattern::Attention(attention)) => {
                return attention::lower(self.scope(), group, attention);
            }
            None => {}
        }
        if let Some(chosen) = self.lower_best_variant(group)? {
            return Ok(chosen);
        }
        let scope = self.scope();
        let Some(anchor) = group.anchor else {
            return map::lower_any(|| self.scope(), group);
        };
        let node = &self.graph.nodes[anchor];
        match &node.op {
            Op::Primitive(Primitive::Reduce(reduce)) => reduce::lower(scope, group, node, reduce),
            Op::Primitive(Primitive::ArgReduce(reduce)) => {
                reduce::lower_argument(scope, group, node, reduce)
            }
            Op::Primitive(Primitive::Scan(scan)) => scan::lower(scope, group, node, scan),
            Op::Primitive(Primitive::Scatter(scatter)) => {
                scan::lower_scatter(scope, group, node, scatter)
            }
            Op::Primitive(Primitive::Recurrent(layer)) => recurrent::lower(scope, node, layer),
            _ => Err(element::not_planned(node)),
        }
    }

    /// Label of a group: the names of its first and last primitive, or `copy` for a group without nodes.
    fn label(&self, group: &Group) -> String {
        let names: Vec<&str> = group
            .nodes
            .iter()
            .filter_map(|node| self.graph.nodes.get(*node))
            .map(|node| node.op.name())
            .collect();
        match names.as_slice() {
            [] => String::from("copy"),
            [only] => only.to_string(),
            [first, last] => format!("{first}_{last}"),
            [first, .., last] => format!("{first}_to_{last}"),
        }
    }

    /// Adds a step that copies a value to the slot of its copy.
    fn copy_to_slot(&mut self, value: ValueId) -> Result<()> {
        let group = Group::copy_of(value);
        let generated = map::copy_value(self.scope(), value)?.finish(self.label(&group))?;
        self.add_step(generated, &group, None)
    }
}
