//! Cache of shape-generic kernels. Layers that differ in sizes only have equal keys; the first of them is lowered.

use super::{Form, Way};
use crate::error::Result;
use crate::ir::{Argument, Definition, Op, ValueId};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::{Layout, Panels, StridedRange};
use crate::pass::plan::conv::Along;
use crate::pass::plan::element::decision::Decision;
use crate::pass::plan::element::role;
use crate::pass::plan::kernel::GeneratedKernel;
use crate::pass::plan::product::tile::Packed;
use crate::shape::TensorType;

/// Kernels by their keys.
#[derive(Default)]
pub(in crate::pass::plan) struct Known(Vec<Entry>);

struct Entry {
    key: Structure,
    decisions: Vec<Decision>,
    /// `None` if a device cannot bind all that the kernel needs.
    made: Option<GeneratedKernel>,
}

/// Everything on which the kernel of a shape-generic group depends.
#[derive(PartialEq)]
struct Structure {
    /// Label of the kernel.
    label: String,
    lowering: Way,
    group: (Option<usize>, Vec<ValueId>, Vec<usize>),
    axes: Option<Vec<Along>>,
    values: Vec<Seen>,
    nodes: Vec<(Op, Vec<Argument>, Vec<ValueId>)>,
}

/// Properties of a value on which its kernel depends.
#[derive(PartialEq)]
struct Seen {
    role: String,
    ty: TensorType,
    definition: Definition,
    layout: Layout,
    storage: StorageType,
    is_stored: bool,
    is_written: bool,
    is_texture_aliased: bool,
}

impl Known {
    /// Returns the kernel of a shape-generic group, in the group's symbolic sizes.
    pub(super) fn kernel(&mut self, form: &Form, lowering: &Way, label: String) -> Result<Option<GeneratedKernel>> {
        let key = Structure::of(form, lowering, label);
        let matches = |known: &&Entry| {
            let mut decisions = known.decisions.iter();
            known.key == key && decisions.all(|decision| decision.holds_in(&form.graph))
        };
        if let Some(known) = self.0.iter().find(matches) {
            return Ok(known.made.clone());
        }
        let lowered = form.lower(lowering)?;
        let decisions = lowered.scope.decisions.clone();
        let made = match lowered.fits() {
            true => Some(lowered.finish(key.label.clone())?),
            false => None,
        };
        self.0.push(Entry {
            key,
            decisions,
            made: made.clone(),
        });
        Ok(made)
    }
}

impl Structure {
    fn of(form: &Form, way: &Way, label: String) -> Structure {
        let group = &form.group;
        let nodes = form.graph.nodes.iter();
        let nodes = nodes.map(|node| {
            let (arguments, results) = (node.arguments.clone(), node.results.clone());
            (node.op.clone(), arguments, results)
        });
        Structure {
            label,
            lowering: without_sizes(form, way),
            group: (group.anchor, group.values(), group.nodes.clone()),
            axes: form.symbolic_axes.clone(),
            values: (0..form.planned_values.len())
                .map(|at| Seen::of(form, at))
                .collect(),
            nodes: nodes.collect(),
        }
    }
}

impl Seen {
    fn of(form: &Form, at: usize) -> Seen {
        let info = &form.graph.values[at];
        Seen {
            role: role(&info.name).to_string(),
            ty: info.ty.clone(),
            definition: match &info.definition {
                // The name of the weight makes no difference.
                Definition::Weight(_) => Definition::Weight(String::new()),
                other => other.clone(),
            },
            layout: form.layouts[at].clone(),
            storage: form.storages[at],
            is_stored: form.stored[at],
            is_written: form.written[at],
            is_texture_aliased: form.texture_aliased[at],
        }
    }
}

/// Returns a lowering without the sizes of its panels.
fn without_sizes(form: &Form, lowering: &Way) -> Way {
    match lowering {
        Way::SymbolicWindowConv(packed) => Way::SymbolicWindowConv(packed_without_sizes(packed)),
        Way::FixedWindowConv(packed) => Way::FixedWindowConv(packed_without_sizes(packed)),
        Way::Grouped(panels) => Way::Grouped(panels_without_sizes(panels)),
        Way::Product(weight, packed) => {
            let index = form.planned_values.iter().position(|value| value == weight);
            Way::Product(index.map_or(*weight, ValueId::from), packed_without_sizes(packed))
        }
        Way::Winograd(places, packed) => Way::Winograd(*places, packed_without_sizes(packed)),
        Way::Pooling | Way::PointwiseVec4 | Way::PointwiseSlices | Way::CopyToVec4(_) => lowering.clone(),
    }
}

/// Returns a packed weight without sizes on which no kernel depends.
fn packed_without_sizes(packed: &Packed) -> Packed {
    Packed {
        panels: panels_without_sizes(&packed.panels),
        ..*packed
    }
}

/// Returns panels without sizes on which no kernel depends. The kernel depends on whether there are several matrices, and
/// on K up to one round.
fn panels_without_sizes(panels: &Panels) -> Panels {
    let at_most = |run: &StridedRange, most: usize| StridedRange {
        count: run.count.min(most),
        stride: 0,
    };
    Panels {
        batch: at_most(&panels.batch, 2),
        k_ranges: panels
            .k_ranges
            .iter()
            .map(|run| at_most(run, panels.k_block))
            .collect(),
        columns: at_most(&panels.columns, 0),
        ..panels.clone()
    }
}
