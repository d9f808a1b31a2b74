//! Slots of a plan's values: lookup for bindings, and conversion of values to other layouts.

use super::Planner;
use crate::error::{Error, Result};
use crate::ir::{Definition, ValueId};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::Layout;
use crate::kernel::plan::{SlotId, SlotKind};
use crate::plan::element::{KernelBinding, storage_in_layout};
use crate::plan::group::Group;
use crate::shape::TensorType;

impl Planner<'_> {
    /// Slot of a binding of a group's kernel. Converts the value first if the kernel needs another layout.
    pub(super) fn bind_slot(&mut self, binding: &KernelBinding, group: &Group) -> Result<SlotId> {
        let (value, layout) = (binding.value, &binding.layout);
        if binding.is_copy || self.fusion.layouts[value.index()] == *layout {
            return self.slot(value, binding.is_copy);
        }
        if layout.is_row_major() {
            let name = &self.graph.value(value).name;
            return Err(Error::internal(format!(
                "a kernel binds {name} in row-major layout, but it is stored in another layout"
            )));
        }
        if let Some(slot) = self.converted.get(&(value, layout.clone())) {
            return Ok(*slot);
        }
        let slot = self.converted_slot(value, layout);
        match layout {
            Layout::Vec4 { axis } => {
                let generated = self.copy_to_vec4(value, *axis)?;
                self.add_step(generated, &Group::copy_of(value), None)?;
            }
            Layout::SortedRuns(length) => self.sort_runs(*length, group)?,
            Layout::Linear
            | Layout::Padded { .. }
            | Layout::Panels(_)
            | Layout::Chunk { .. }
            | Layout::Scratch { .. } => {}
        }
        Ok(slot)
    }

    /// Slot of a value in another layout. Creates the slot if it is new.
    pub(super) fn converted_slot(&mut self, value: ValueId, layout: &Layout) -> SlotId {
        let key = (value, layout.clone());
        if let Some(slot) = self.converted.get(&key) {
            return *slot;
        }
        let info = self.graph.value(value);
        let storage = storage_in_layout(layout, self.fusion.storages[value.index()]);
        let slot = match (layout, &info.definition) {
            (Layout::Panels(_) | Layout::Chunk { .. }, Definition::Weight(name)) => {
                self.builder.weight(name, &info.ty, storage, layout)
            }
            _ => {
                let suffix = match layout {
                    Layout::Scratch { name, .. } => name,
                    Layout::SortedRuns(_) => "in sorted runs",
                    _ => "as vec4",
                };
                let name = format!("{}{} {suffix}", self.prefix, info.name);
                let kind = SlotKind::Temporary { first: 0, last: 0 };
                let ty = match layout {
                    Layout::Scratch { sizes, .. } => &TensorType {
                        shape: sizes.clone(),
                        ..info.ty.clone()
                    },
                    _ => &info.ty,
                };
                self.builder.slot(&name, ty, storage, layout, kind)
            }
        };
        self.converted.insert(key, slot);
        slot
    }

    /// Slot of a value, or of its copy. Creates the slot if it is new.
    pub(super) fn slot(&mut self, value: ValueId, is_copy: bool) -> Result<SlotId> {
        if let Some(slot) = self.slots.get(&(value, is_copy)) {
            return Ok(*slot);
        }
        let info = self.graph.value(value);
        let storage = match is_copy {
            true => StorageType::of(info.ty.dtype, self.capabilities)?,
            false => self.fusion.storages[value.index()],
        };
        let slot = match &info.definition {
            Definition::Weight(name) if !is_copy => {
                let layout = &self.fusion.layouts[value.index()];
                self.builder.weight(name, &info.ty, storage, layout)
            }
            definition => {
                let kind = match definition {
                    Definition::Input(index) if !is_copy => SlotKind::Input(*index),
                    _ if is_copy || self.is_output(value) || self.host_values.contains(&value) => {
                        SlotKind::Output
                    }
                    _ => self.intermediate_kind(value)?,
                };
                let name = self.slot_name(value);
                let layout = if is_copy {
                    &Layout::Linear
                } else {
                    &self.fusion.layouts[value.index()]
                };
                self.builder.slot(&name, &info.ty, storage, layout, kind)
            }
        };
        self.slots.insert((value, is_copy), slot);
        Ok(slot)
    }

    /// Slot kind of an intermediate value.
    fn intermediate_kind(&mut self, value: ValueId) -> Result<SlotKind> {
        Ok(match self.fusion.concat_parts.get(&value) {
            Some((whole, start)) => SlotKind::Subview {
                parent: self.slot(*whole, false)?,
                offset: start.clone(),
            },
            None => SlotKind::Temporary { first: 0, last: 0 },
        })
    }

    /// Name of the slot of a value in its own layout.
    pub(super) fn slot_name(&self, value: ValueId) -> String {
        format!("{}{}", self.prefix, self.graph.value(value).name)
    }

    /// True for an output of the whole graph.
    fn is_output(&self, value: ValueId) -> bool {
        self.prefix.is_empty() && self.outputs.contains(&value)
    }

    /// Slots of the outputs. Inputs and weights are copied.
    pub(super) fn outputs(&mut self) -> Result<()> {
        for output in &self.graph.outputs {
            let is_copy = !matches!(self.graph.value(*output).definition, Definition::Node(..));
            if is_copy && !self.slots.contains_key(&(*output, true)) {
                self.copy_to_slot(*output)?;
            }
            let slot = self.slot(*output, is_copy)?;
            self.builder.plan.outputs.push(slot);
        }
        Ok(())
    }
}
