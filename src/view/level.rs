//! Levels: the boxes directly within a box, the values between them, and their places.

use std::collections::{HashMap, HashSet};

use super::box_size::{BoxSize, label_width};
use super::hierarchy::{BoxKind, Hierarchy, ValueRead};
use super::layout::{LayoutItem, LevelLayout, Net, Pin, Spacing, layout};
use crate::ir::ValueId;

/// Distances in a picture, in CSS pixels.
const SPACING: Spacing = Spacing {
    item: 26.0,
    rank: 44.0,
    line: 14.0,
};
/// Width of a port, which is a point on the border of an open box.
const PORT_WIDTH: f32 = 10.0;

/// A value as a pair of its graph and its id there.
pub(super) type GraphValue = (usize, ValueId);

/// The inside of a box.
pub(super) struct Level {
    pub(super) items: Vec<LevelItem>,
    pub(super) nets: Vec<LevelNet>,
    pub(super) layout: LevelLayout,
}

/// An item of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LevelItem {
    /// A box.
    Box(usize),
    /// The place where a value enters the open box.
    InputPort(GraphValue),
    /// The place where a value leaves the open box.
    OutputPort(GraphValue),
}

/// A value within a level: from the item that has it to the items that read it.
pub(super) struct LevelNet {
    pub(super) value: GraphValue,
    pub(super) source: usize,
    pub(super) targets: Vec<usize>,
}

/// Computes the levels of all boxes that contain others, by the index of the box.
pub(super) fn levels(hierarchy: &Hierarchy, sizes: &[BoxSize]) -> HashMap<usize, Level> {
    let mut drafts: HashMap<usize, LevelDraft> = HashMap::new();
    for (index, own) in hierarchy.boxes.iter().enumerate() {
        if own.is_container() {
            drafts.insert(index, LevelDraft::of(&own.children));
        }
    }
    for read in &hierarchy.reads {
        connect(hierarchy, read, &mut drafts);
    }
    let levels = drafts.into_iter();
    let levels = levels.map(|(index, draft)| (index, draft.placed(hierarchy, sizes)));
    levels.collect()
}

/// Adds a read of a value to every level that its line crosses.
fn connect(hierarchy: &Hierarchy, read: &ValueRead, drafts: &mut HashMap<usize, LevelDraft>) {
    let Some(common) = hierarchy.common_parent(read.source, read.target) else {
        return;
    };
    let value = (read.graph, read.value);
    let (mut inner, mut target) = (read.source, None);
    for outer in hierarchy.ancestors(read.source) {
        if outer == common {
            break;
        }
        if let Some(draft) = drafts.get_mut(&outer) {
            let (from, to) = (LevelItem::Box(inner), LevelItem::OutputPort(value));
            draft.connect(value, from, to);
        }
        inner = outer;
    }
    let source = inner;
    inner = read.target;
    for outer in hierarchy.ancestors(read.target) {
        if outer == common {
            target = Some(inner);
            break;
        }
        if let Some(draft) = drafts.get_mut(&outer) {
            let (from, to) = (LevelItem::InputPort(value), LevelItem::Box(inner));
            draft.connect(value, from, to);
        }
        inner = outer;
    }
    if let (Some(target), Some(draft)) = (target, drafts.get_mut(&common)) {
        draft.connect(value, LevelItem::Box(source), LevelItem::Box(target));
    }
}

/// A level whose items have no places yet.
#[derive(Default)]
struct LevelDraft {
    items: Vec<LevelItem>,
    places: HashMap<LevelItem, usize>,
    nets: Vec<LevelNet>,
    /// Net of each value.
    net_of: HashMap<GraphValue, usize>,
    /// Nets and their targets.
    connected: HashSet<(usize, usize)>,
}

impl LevelDraft {
    fn of(children: &[usize]) -> LevelDraft {
        let mut draft = LevelDraft::default();
        for child in children {
            draft.item(LevelItem::Box(*child));
        }
        draft
    }

    fn item(&mut self, item: LevelItem) -> usize {
        let next = self.items.len();
        let place = *self.places.entry(item).or_insert(next);
        if place == next {
            self.items.push(item);
        }
        place
    }

    fn connect(&mut self, value: GraphValue, from: LevelItem, to: LevelItem) {
        let (source, target) = (self.item(from), self.item(to));
        let next = self.nets.len();
        let net = *self.net_of.entry(value).or_insert(next);
        if net == next {
            let targets = Vec::new();
            self.nets.push(LevelNet {
                value,
                source,
                targets,
            });
        }
        if self.connected.insert((net, target)) {
            self.nets[net].targets.push(target);
        }
    }

    fn placed(self, hierarchy: &Hierarchy, sizes: &[BoxSize]) -> Level {
        let mut items: Vec<LayoutItem> = self
            .items
            .iter()
            .map(|item| layout_item(hierarchy, *item, sizes))
            .collect();
        // The type of a value stands below the box that makes it.
        for net in &self.nets {
            let width = label_width(hierarchy, net.value);
            items[net.source].width = items[net.source].width.max(width);
        }
        let nets = self.nets.iter().map(|net| Net {
            source: net.source,
            targets: net.targets.clone(),
        });
        let nets: Vec<Net> = nets.collect();
        Level {
            layout: layout(&items, &nets, SPACING),
            items: self.items,
            nets: self.nets,
        }
    }
}

fn layout_item(hierarchy: &Hierarchy, item: LevelItem, sizes: &[BoxSize]) -> LayoutItem {
    let port = |pin| LayoutItem {
        width: PORT_WIDTH,
        height: 0.0,
        pin: Some(pin),
    };
    match item {
        LevelItem::InputPort(_) => port(Pin::First),
        LevelItem::OutputPort(_) => port(Pin::Last),
        LevelItem::Box(index) => LayoutItem {
            width: sizes[index].width,
            height: sizes[index].height,
            pin: match hierarchy.boxes[index].kind {
                BoxKind::Input(_) => Some(Pin::First),
                BoxKind::Output(_) => Some(Pin::Last),
                _ => None,
            },
        },
    }
}
