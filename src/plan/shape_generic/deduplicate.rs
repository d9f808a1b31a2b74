//! Kernel deduplication. Kernels that were made for the sizes of different layers and differ in numbers only become one
//! kernel, which takes the numbers as sizes. This happens where compiling both costs a driver more time than the sizes
//! cost at run time.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::cost_model::{KernelCost, vectors_per_workgroup};
use super::merge::{MergedKernel, SizeValue};
use crate::dim::{Bindings, Dim};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::plan::{Plan, Step, Workgroups};
use crate::plan::kernel::KernelSource;
use crate::plan::product::tile::RUNS_PER_START;

/// A kernel that serves for one or several kernels.
struct KernelClass {
    source: Rc<KernelSource>,
    members: Vec<ClassMember>,
}

/// One of the kernels for which another one serves.
#[derive(Clone)]
struct ClassMember {
    /// Index of the kernel.
    kernel: usize,
    /// Value in this kernel of each size of the shared kernel.
    size_values: Vec<(Dim, SizeValue)>,
    /// SIMD vectors of lanes that the kernel's dispatches run on.
    vectors: u64,
}

/// Deduplicates the kernels of a plan. `sources` has the source of each kernel.
pub(in crate::plan) fn deduplicate_kernels(
    plan: &mut Plan,
    sources: &[Option<Rc<KernelSource>>],
    capabilities: &Capabilities,
    hints: &Bindings,
) {
    let Some(lanes) = capabilities.simd_lanes() else {
        return;
    };
    let mut classes: Vec<KernelClass> = Vec::new();
    for (kernel, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        let single = KernelClass::new(plan, kernel, source, lanes, hints);
        let merged = classes.iter_mut();
        let mut merged = merged.filter_map(|class| Some((class.merged_with(&single)?, class)));
        match merged.next() {
            Some((merged_class, class)) => *class = merged_class,
            None => classes.push(single),
        }
    }
    for class in classes.iter().filter(|class| class.members.len() > 1) {
        class.apply(plan, sources);
    }
    remove_unused(plan);
}

impl KernelClass {
    /// Makes the class of a single kernel.
    fn new(
        plan: &Plan,
        kernel: usize,
        source: &Rc<KernelSource>,
        lanes: usize,
        hints: &Bindings,
    ) -> KernelClass {
        let steps = plan.steps.iter().filter(|step| step.kernel == kernel);
        let workgroups: u64 = steps.map(|step| workgroup_count(step, hints)).sum();
        let sizes = source.sizes.iter();
        let member = ClassMember {
            kernel,
            size_values: sizes
                .map(|dim| (dim.clone(), SizeValue::Size(dim.clone())))
                .collect(),
            vectors: workgroups * vectors_per_workgroup(source, lanes),
        };
        KernelClass {
            source: source.clone(),
            members: vec![member],
        }
    }

    /// Merges two classes. `None` if their kernels differ in more than numbers, or merging does not pay off.
    fn merged_with(&self, other: &KernelClass) -> Option<KernelClass> {
        let merged = MergedKernel::of([&self.source, &other.source])?;
        let side = |class: &KernelClass, side: usize| -> Vec<ClassMember> {
            let members = class.members.iter();
            members
                .map(|member| member.in_merged(&merged, side))
                .collect()
        };
        let members = [side(self, 0), side(other, 1)].concat();
        let merged_class = KernelClass {
            source: Rc::new(merged.source),
            members,
        };
        (merged_class.net_saving() > self.net_saving() + other.net_saving()).then_some(merged_class)
    }

    /// Returns the cycles that the class saves at start, less those that it costs in the runs that a start is worth
    /// ([`RUNS_PER_START`]).
    fn net_saving(&self) -> i128 {
        let saved_kernels = self.members.len() - 1;
        let compile_cycles =
            i128::from(KernelCost::new(&self.source, HashMap::new()).compile_cycles());
        let members = self.members.iter();
        let run_cycles: i128 = members
            .map(|member| i128::from(member.slowdown(&self.source)))
            .sum();
        compile_cycles * saved_kernels as i128 - i128::from(RUNS_PER_START) * run_cycles
    }

    /// Replaces the members' kernels in the plan by the shared one.
    fn apply(&self, plan: &mut Plan, sources: &[Option<Rc<KernelSource>>]) {
        let (kernel, sizes) = self.source.kernel();
        let Some(first) = self.members.first() else {
            return;
        };
        plan.kernels[first.kernel] = kernel;
        for member in &self.members {
            let own_sizes = sources[member.kernel].as_ref();
            let own_sizes = own_sizes.map_or(&[][..], |source| &source.sizes);
            let steps = plan.steps.iter_mut();
            for step in steps.filter(|step| step.kernel == member.kernel) {
                step.sizes = member.step_sizes(&sizes, own_sizes, step);
                step.kernel = first.kernel;
            }
        }
    }
}

impl ClassMember {
    /// Expresses the member in the sizes of a merged kernel, of which it is on side 0 or 1.
    fn in_merged(&self, merged: &MergedKernel, side: usize) -> ClassMember {
        let resolve = |number: &SizeValue| match number {
            SizeValue::Constant(number) => SizeValue::Constant(*number),
            SizeValue::Size(dim) => self.size_value(dim),
        };
        let numbers = merged.size_values.iter();
        ClassMember {
            size_values: numbers
                .map(|(dim, numbers)| (dim.clone(), resolve(&numbers[side])))
                .collect(),
            ..self.clone()
        }
    }

    /// Returns the value of a size in this kernel.
    fn size_value(&self, size: &Dim) -> SizeValue {
        let known = self.size_values.iter().find(|(dim, _)| dim == size);
        known.map_or(SizeValue::Size(size.clone()), |(_, number)| number.clone())
    }

    /// Returns the values that a step passes for the `sizes` of the shared kernel. So far it passes values for
    /// `own_sizes`, the sizes of the member's own kernel.
    fn step_sizes(&self, sizes: &[Dim], own_sizes: &[Dim], step: &Step) -> Vec<Dim> {
        let step_size = |dim: &Dim| {
            let index = own_sizes.iter().position(|own| own == dim);
            index.and_then(|index| step.sizes.get(index)).cloned()
        };
        let size = |dim: &Dim| match self.size_value(dim) {
            SizeValue::Constant(number) => Dim::from(number),
            SizeValue::Size(dim) => step_size(&dim).unwrap_or(dim),
        };
        sizes.iter().map(size).collect()
    }

    /// Returns the cycles that a run takes longer with sizes in place of numbers.
    fn slowdown(&self, source: &KernelSource) -> u64 {
        let constants = self
            .size_values
            .iter()
            .filter_map(|(dim, number)| match number {
                SizeValue::Constant(number) => Some((source.pool.known_size(dim)?, *number)),
                SizeValue::Size(_) => None,
            });
        KernelCost::new(source, constants.collect()).run_cycles * self.vectors
    }
}

/// Returns the workgroups of a step in the example's sizes.
fn workgroup_count(step: &Step, hints: &Bindings) -> u64 {
    let count = match &step.workgroups {
        Workgroups::Linear(count) => count.clone(),
        Workgroups::Grid(counts) => Dim::product(counts),
    };
    let count = count.eval(hints).unwrap_or_default();
    u64::try_from(count).unwrap_or_default()
}

/// Removes kernels that no step runs.
fn remove_unused(plan: &mut Plan) {
    let used: HashSet<usize> = plan.steps.iter().map(|step| step.kernel).collect();
    let mut new_indices = Vec::new();
    let mut next = 0;
    for kernel in 0..plan.kernels.len() {
        new_indices.push(next);
        next += usize::from(used.contains(&kernel));
    }
    let mut index = 0..;
    plan.kernels
        .retain(|_| index.next().is_some_and(|kernel| used.contains(&kernel)));
    for step in &mut plan.steps {
        step.kernel = new_indices[step.kernel];
    }
}
