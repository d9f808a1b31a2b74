//! Memory of a plan: totals, and the placement of each slot.

use std::fmt::Write;

use super::{SizedPlan, WIDTH};
use crate::cli::output::wrapped;
use crate::dim::Dim;
use crate::gpu::Footprint;
use crate::kernel::plan::{Slot, SlotId, SlotKind};
use crate::units::amount;

/// Formats the memory of a run, by use.
pub(super) fn totals(found: &Footprint) -> [String; 2] {
    let bytes = |bytes: u64| amount(bytes as f64, "B");
    [
        format!(
            "memory       {}: weights {}, inputs {}, outputs {}, temporaries {}",
            bytes(found.total()),
            bytes(found.weights),
            bytes(found.inputs),
            bytes(found.outputs),
            bytes(found.temporaries)
        ),
        format!(
            "             of the temporaries {} live at once; without sharing they would be {}",
            bytes(found.temporaries_live),
            bytes(found.temporaries_unshared)
        ),
    ]
}

impl SizedPlan<'_> {
    pub(super) fn memory(&self, text: &mut String) {
        type SlotFilter = fn(&SlotKind) -> bool;
        let kinds: [(&str, SlotFilter); 5] = [
            ("inputs, a buffer each", |kind| {
                matches!(kind, SlotKind::Input(_))
            }),
            ("weights, a buffer or texture each", |kind| {
                matches!(kind, SlotKind::Weight(_))
            }),
            (
                "temporaries: bytes, buffer:offset, steps that they live in",
                |kind| matches!(kind, SlotKind::Temporary { .. } | SlotKind::Subview { .. }),
            ),
            ("outputs, a buffer each", |kind| {
                matches!(kind, SlotKind::Output)
            }),
            ("flags of checks and counters, a buffer each", |kind| {
                matches!(kind, SlotKind::Words)
            }),
        ];
        for (title, belongs) in kinds {
            let slots = (0..self.plan.slots.len()).map(SlotId);
            let slots: Vec<SlotId> = slots
                .filter(|slot| belongs(&self.plan.slots[slot.0].kind))
                .collect();
            if !slots.is_empty() {
                let _ = writeln!(text, "  {title}");
            }
            for line in slots.into_iter().flat_map(|slot| self.slot_lines(slot)) {
                let _ = writeln!(text, "{line}");
            }
        }
        if !self.plan.shared_weights.is_empty() {
            let _ = writeln!(text, "  weights that kernels read in several layouts");
        }
        for tied in &self.plan.shared_weights {
            for line in wrapped(&tied.to_string(), "    ", WIDTH) {
                let _ = writeln!(text, "{line}");
            }
        }
    }

    /// Formats bytes, placement, lifetime, name and type of a slot, in lines.
    fn slot_lines(&self, slot: SlotId) -> Vec<String> {
        let Slot {
            shape,
            storage,
            layout,
            kind,
            ..
        } = &self.plan.slots[slot.0];
        let placed = self.map.as_ref().map(|map| &map.slots[slot.0]);
        let (first, last) = match kind {
            SlotKind::Temporary { first, last } => (first + 1, last + 1),
            _ => (0, 0),
        };
        let head = match (kind, placed) {
            (SlotKind::Temporary { .. }, Some(placed)) => {
                format!(
                    "{}:{:<10} {first:>4} – {last:<4}  ",
                    placed.buffer, placed.offset
                )
            }
            (SlotKind::Temporary { .. }, None) => format!("steps {first} – {last}  "),
            (SlotKind::Subview { parent, .. }, _) => {
                format!("within {}  ", self.plan.slots[parent.0].name)
            }
            _ => String::new(),
        };
        let bytes = match placed {
            Some(placed) => amount(placed.bytes as f64, "B"),
            None => {
                let room = layout
                    .allocated_shape(shape)
                    .unwrap_or_else(|| shape.clone());
                let bytes = &Dim::product(&room) * (storage.size() as i64);
                return wrapped(
                    &format!("{head}{}: {bytes} bytes", self.value(slot)),
                    "    ",
                    WIDTH,
                );
            }
        };
        wrapped(&self.value(slot), &format!("  {bytes:>9}  {head}"), WIDTH)
    }
}
