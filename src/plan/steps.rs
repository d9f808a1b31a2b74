//! Steps of a plan: dispatches of generated kernels, and the runtime checks that they make.

use super::Planner;
use super::element::KernelBinding;
use super::element::check::first_check;
use super::group::Group;
use super::kernel::{self, GeneratedKernel};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::{Argument, Definition, Op, Primitive, ValueId};
use crate::kernel::plan::{Access, RuntimeCheck, Step, Workgroups};
use crate::kernel::work::Work;

impl Planner<'_> {
    /// Adds the dispatch of a kernel for a group, or for `operand` of a concatenation. The plan may contain the kernel
    /// already.
    pub(super) fn add_step(
        &mut self,
        mut generated: GeneratedKernel,
        group: &Group,
        operand: Option<ValueId>,
    ) -> Result<()> {
        if matches!(&generated.workgroups, Workgroups::Linear(count) if count.is(0)) {
            return Ok(());
        }
        let scalar_writes = generated.scalar_writes.iter();
        let scalar_writes = scalar_writes.map(|value| self.slot_name(*value));
        let scalar_writes: Vec<String> = scalar_writes.collect();
        self.builder.scalar_writes.extend(scalar_writes);
        self.count_kernel_row_reads(&generated, group, operand);
        let work = match generated.work.take() {
            Some(work) => work,
            None => kernel::work::group_work(&self.scope(), group, operand)?,
        };
        self.add_dispatch(generated, group, work)
    }

    /// Adds the dispatch of a kernel.
    pub(super) fn add_dispatch(
        &mut self,
        mut generated: GeneratedKernel,
        group: &Group,
        mut work: Work,
    ) -> Result<()> {
        let is_counter =
            |binding: &mut KernelBinding| binding.buffer.access == Access::StartedWorkgroups;
        let counter = generated.bindings.pop_if(is_counter);
        let kernel = self.builder.kernel(generated.kernel, generated.source);
        let sizes = self.with_check_numbers(&generated.checks, generated.sizes);
        let mut bindings = Vec::new();
        let written = group.written(self.graph, &self.fusion.materialized);
        for binding in &generated.bindings {
            if binding.buffer.access == Access::CheckFlags {
                bindings.push(self.builder.runtime_checks().slot);
                continue;
            }
            let slot = self.bind_slot(binding, group)?;
            bindings.push(slot);
            let layout = &self.fusion.layouts[binding.value.index()];
            if written.contains(&binding.value) && binding.layout == *layout {
                work.writes.push(slot);
            }
        }
        if work.writes.is_empty() {
            let first = first_of_last_target(&generated.bindings);
            work.writes.extend(bindings.iter().skip(first));
        }
        bindings.extend(counter.map(|_| self.builder.started_workgroups()));
        let names = group.nodes.iter().filter_map(|node| {
            let result = self.graph.nodes.get(*node)?.results.first()?;
            Some(self.slot_name(*result))
        });
        for name in &mut work.fused_producers {
            name.insert_str(0, &self.prefix);
        }
        let step = Step {
            kernel,
            bindings,
            sizes,
            workgroups: generated.workgroups,
            place: self.source_place(group),
            nodes: names.collect(),
            choice: generated.choice,
            work,
        };
        self.builder.plan.steps.push(step);
        Ok(())
    }

    /// Replaces the placeholder for the number of the step's first check by that number.
    fn with_check_numbers(&mut self, checks: &[ValueId], sizes: Vec<Dim>) -> Vec<Dim> {
        if checks.is_empty() {
            return sizes;
        }
        let checks = checks.iter().filter_map(|value| self.runtime_check(*value));
        let checks: Vec<RuntimeCheck> = checks.collect();
        let first = Dim::from(self.builder.add_runtime_checks(checks));
        let number = |size: Dim| match size == first_check() {
            true => first.clone(),
            false => size,
        };
        sizes.into_iter().map(number).collect()
    }

    /// Describes a check of the graph as a runtime check.
    fn runtime_check(&self, value: ValueId) -> Option<RuntimeCheck> {
        let info = self.graph.value(value);
        let Definition::Node(index, _) = info.definition else {
            return None;
        };
        let node = &self.graph.nodes[index];
        let Op::Primitive(Primitive::Check(check)) = &node.op else {
            return None;
        };
        Some(RuntimeCheck {
            message: match check.is_assertion() {
                true => check.fault(0, None).message().to_string(),
                false => check.message.clone(),
            },
            mentions_value: !check.is_assertion(),
            end: match node.arguments.get(2) {
                Some(Argument::Number(end)) => Some(Dim::from(end.to_i64())),
                Some(Argument::Size(end)) => Some(end.clone()),
                _ => None,
            },
            order: [self.order.as_slice(), &[index]].concat(),
            node: self.slot_name(value),
            place: node.place.clone(),
        })
    }
}

/// Returns the index of the first binding that a kernel writes, if it writes none in its value's own memory and layout.
/// Copies, and results in another layout, are bound last: they are the bindings at the end that agree in both with the
/// last one.
fn first_of_last_target(bindings: &[KernelBinding]) -> usize {
    let target = |binding: &KernelBinding| (binding.is_copy, binding.layout.clone());
    let last_target = bindings.last().map(target);
    let is_other = |binding: &KernelBinding| Some(target(binding)) != last_target;
    let last_other = bindings.iter().rposition(is_other);
    last_other.map_or(0, |other| other + 1)
}
