//! Cache of shape-generic kernels. Layers that differ in sizes only have equal keys; the first of them is lowered.

use super::{GenericGroup, GenericLowering};
use crate::error::Result;
use crate::ir::{Argument, Definition, Op, ValueId};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::{Layout, Panels, StridedRange};
use crate::plan::conv::AxisGeometry;
use crate::plan::element::example_decision::ExampleDecision;
use crate::plan::element::role;
use crate::plan::kernel::GeneratedKernel;
use crate::plan::product::tile::PackedWeight;
use crate::shape::TensorType;

/// Kernels by their keys.
#[derive(Default)]
pub(in crate::plan) struct KernelCache(Vec<CachedKernel>);

struct CachedKernel {
    key: KernelKey,
    /// Decisions by the example's sizes that the kernel depends on.
    decisions: Vec<ExampleDecision>,
    /// `None` if the device cannot bind all that the kernel needs.
    generated: Option<GeneratedKernel>,
}

/// Everything on which the kernel of a shape-generic group depends.
#[derive(PartialEq)]
struct KernelKey {
    /// Label of the kernel.
    label: String,
    lowering: GenericLowering,
    /// Anchor, outputs and nodes of the group.
    group: (Option<usize>, Vec<ValueId>, Vec<usize>),
    axes: Option<Vec<AxisGeometry>>,
    values: Vec<ValueKey>,
    nodes: Vec<(Op, Vec<Argument>, Vec<ValueId>)>,
}

/// Properties of a value on which its kernel depends.
#[derive(PartialEq)]
struct ValueKey {
    role: String,
    ty: TensorType,
    definition: Definition,
    layout: Layout,
    storage: StorageType,
    is_materialized: bool,
    is_written: bool,
    is_texture_aliased: bool,
}

impl KernelCache {
    /// Returns the kernel of a shape-generic group, in the group's symbolic sizes.
    pub(super) fn kernel(
        &mut self,
        generic: &GenericGroup,
        lowering: &GenericLowering,
        label: String,
    ) -> Result<Option<GeneratedKernel>> {
        let key = KernelKey::of(generic, lowering, label);
        let matches = |known: &&CachedKernel| {
            let mut decisions = known.decisions.iter();
            known.key == key && decisions.all(|decision| decision.holds_in(&generic.graph))
        };
        if let Some(known) = self.0.iter().find(matches) {
            return Ok(known.generated.clone());
        }
        let lowered = generic.lower(lowering)?;
        let decisions = lowered.scope.decisions.clone();
        let generated = match lowered.fits() {
            true => Some(lowered.finish(key.label.clone())?),
            false => None,
        };
        self.0.push(CachedKernel {
            key,
            decisions,
            generated: generated.clone(),
        });
        Ok(generated)
    }
}

impl KernelKey {
    fn of(generic: &GenericGroup, lowering: &GenericLowering, label: String) -> KernelKey {
        let group = &generic.group;
        let nodes = generic.graph.nodes.iter();
        let nodes = nodes.map(|node| {
            let (arguments, results) = (node.arguments.clone(), node.results.clone());
            (node.op.clone(), arguments, results)
        });
        KernelKey {
            label,
            lowering: without_sizes(generic, lowering),
            group: (group.anchor, group.outputs(), group.nodes.clone()),
            axes: generic.symbolic_axes.clone(),
            values: (0..generic.planned_values.len())
                .map(|index| ValueKey::of(generic, index))
                .collect(),
            nodes: nodes.collect(),
        }
    }
}

impl ValueKey {
    fn of(generic: &GenericGroup, index: usize) -> ValueKey {
        let info = &generic.graph.values[index];
        ValueKey {
            role: role(&info.name).to_string(),
            ty: info.ty.clone(),
            definition: match &info.definition {
                // The name of the weight makes no difference.
                Definition::Weight(_) => Definition::Weight(String::new()),
                other => other.clone(),
            },
            layout: generic.layouts[index].clone(),
            storage: generic.storages[index],
            is_materialized: generic.materialized[index],
            is_written: generic.written[index],
            is_texture_aliased: generic.texture_aliased[index],
        }
    }
}

/// Returns a lowering without the sizes of its panels.
fn without_sizes(generic: &GenericGroup, lowering: &GenericLowering) -> GenericLowering {
    match lowering {
        GenericLowering::SymbolicWindowConv(packed) => {
            GenericLowering::SymbolicWindowConv(packed_without_sizes(packed))
        }
        GenericLowering::FixedWindowConv(packed) => {
            GenericLowering::FixedWindowConv(packed_without_sizes(packed))
        }
        GenericLowering::Grouped(panels) => GenericLowering::Grouped(panels_without_sizes(panels)),
        GenericLowering::Product(weight, packed) => {
            let index = generic
                .planned_values
                .iter()
                .position(|value| value == weight);
            GenericLowering::Product(
                index.map_or(*weight, ValueId::from),
                packed_without_sizes(packed),
            )
        }
        GenericLowering::Winograd(output_tile, packed) => {
            GenericLowering::Winograd(*output_tile, packed_without_sizes(packed))
        }
        GenericLowering::Pooling
        | GenericLowering::PointwiseVec4
        | GenericLowering::PointwiseSlices
        | GenericLowering::CopyToVec4(_) => lowering.clone(),
    }
}

/// Returns a packed weight without sizes on which no kernel depends.
fn packed_without_sizes(packed: &PackedWeight) -> PackedWeight {
    PackedWeight {
        panels: panels_without_sizes(&packed.panels),
        ..*packed
    }
}

/// Returns panels without sizes on which no kernel depends. The kernel depends on whether there are several matrices,
/// and on K up to one iteration of its loop.
fn panels_without_sizes(panels: &Panels) -> Panels {
    let at_most = |range: &StridedRange, most: usize| StridedRange {
        count: range.count.min(most),
        stride: 0,
    };
    Panels {
        batch: at_most(&panels.batch, 2),
        k_ranges: panels
            .k_ranges
            .iter()
            .map(|range| at_most(range, panels.k_block))
            .collect(),
        columns: at_most(&panels.columns, 0),
        ..panels.clone()
    }
}
