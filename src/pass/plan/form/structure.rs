//! Cache of shape-generic kernels. Layers that differ in sizes only have equal keys; the first of them is lowered.

use super::{Form, Way};
use crate::error::Result;
use crate::ir::{Argument, Definition, Op, ValueId};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::{Layout, Panels, StridedRange};
use crate::pass::plan::conv::Along;
use crate::pass::plan::element::decision::Decision;
use crate::pass::plan::element::role;
use crate::pass::plan::kernel::Made;
use crate::pass::plan::product::tile::Packed;
use crate::shape::TensorType;

/// Kernels by their keys.
#[derive(Default)]
pub(in crate::pass::plan) struct Known(Vec<Entry>);

struct Entry {
    structure: Structure,
    decisions: Vec<Decision>,
    /// `None` if a device cannot bind all that the kernel needs.
    made: Option<Made>,
}

/// Everything on which the kernel of a shape-generic group depends.
#[derive(PartialEq)]
struct Structure {
    /// Label of the kernel.
    label: String,
    way: Way,
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
    has_texels: bool,
}

impl Known {
    /// Returns the kernel of a shape-generic group, in the group's symbolic sizes.
    pub(super) fn made(&mut self, form: &Form, way: &Way, label: String) -> Result<Option<Made>> {
        let structure = Structure::of(form, way, label);
        let serves = |known: &&Entry| {
            let mut decisions = known.decisions.iter();
            known.structure == structure && decisions.all(|decision| decision.holds_in(&form.graph))
        };
        if let Some(known) = self.0.iter().find(serves) {
            return Ok(known.made.clone());
        }
        let lowered = form.lower(way)?;
        let decisions = lowered.scope.decisions.clone();
        let made = match lowered.fits() {
            true => Some(lowered.finish(structure.label.clone())?),
            false => None,
        };
        self.0.push(Entry {
            structure,
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
            way: of_any_size(form, way),
            group: (group.anchor, group.values(), group.nodes.clone()),
            axes: form.axes.clone(),
            values: (0..form.values.len())
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
            has_texels: form.texels[at],
        }
    }
}

/// Returns a lowering without the sizes of its panels.
fn of_any_size(form: &Form, way: &Way) -> Way {
    match way {
        Way::Convolution(packed) => Way::Convolution(read(packed)),
        Way::Positions(packed) => Way::Positions(read(packed)),
        Way::Grouped(panels) => Way::Grouped(seen(panels)),
        Way::Product(weight, packed) => {
            let of_form = form.values.iter().position(|value| value == weight);
            Way::Product(of_form.map_or(*weight, ValueId::from), read(packed))
        }
        Way::Winograd(places, packed) => Way::Winograd(*places, read(packed)),
        Way::Pooling | Way::Quads | Way::Pieces | Way::Copy(_) => way.clone(),
    }
}

/// Returns a packed weight without sizes on which no kernel depends.
fn read(packed: &Packed) -> Packed {
    Packed {
        panels: seen(&packed.panels),
        ..*packed
    }
}

/// Returns panels without sizes on which no kernel depends. The kernel depends on whether there are several matrices, and
/// on K up to one round.
fn seen(panels: &Panels) -> Panels {
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
