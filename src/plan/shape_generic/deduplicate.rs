//! Kernel deduplication. Kernels that were made for the sizes of different layers and differ in numbers only become one
//! kernel, which takes the numbers as sizes. This happens where compiling both costs a driver more time than the sizes
//! cost at run time.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::cost_model::{KernelCost, vectors_per_workgroup};
use super::merge::{MergedKernel, SizeValue};
use crate::dim::{Bindings, Dim};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::ExprNode;
use crate::kernel::plan::{Plan, Step, Workgroups};
use crate::plan::kernel::KernelSource;
use crate::plan::product::tile::RUNS_PER_START;

/// A kernel that serves for one or several kernels.
struct KernelClass {
    source: Rc<KernelSource>,
    members: Vec<ClassMember>,
    /// One member for each cost that a run has. Its vectors are those of all members with this cost.
    cost_profiles: Vec<ClassMember>,
    /// Cycles that a run of all members takes longer with sizes in place of numbers.
    run_cycles: i128,
    /// Cycles that the class saves at start, less those that it costs in the runs that a start is worth
    /// ([`RUNS_PER_START`]).
    net_saving: i128,
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
    let steps = steps_by_kernel(plan);
    let mut classes: Vec<KernelClass> = Vec::new();
    for (kernel, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        let workgroups = steps[kernel].iter().map(|step| &plan.steps[*step]);
        let workgroups: u64 = workgroups.map(|step| workgroup_count(step, hints)).sum();
        let member = ClassMember::new(
            kernel,
            source,
            workgroups * vectors_per_workgroup(source, lanes),
        );
        if !classes
            .iter_mut()
            .any(|class| class.try_add(source, &member))
        {
            classes.push(KernelClass::new(source, member));
        }
    }
    for class in classes.iter().filter(|class| class.members.len() > 1) {
        class.apply(plan, &steps, sources);
    }
    remove_unused(plan);
}

/// Returns the indices of the steps that run each kernel.
fn steps_by_kernel(plan: &Plan) -> Vec<Vec<usize>> {
    let mut steps = vec![Vec::new(); plan.kernels.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        steps[step.kernel].push(index);
    }
    steps
}

impl KernelClass {
    /// Makes the class of a single kernel.
    fn new(source: &Rc<KernelSource>, member: ClassMember) -> KernelClass {
        KernelClass {
            source: source.clone(),
            members: vec![member.clone()],
            cost_profiles: vec![member],
            run_cycles: 0,
            net_saving: 0,
        }
    }

    /// Adds a kernel to the class. Returns false if it differs from the class in more than numbers, or adding it does not
    /// pay off.
    fn try_add(&mut self, source: &KernelSource, member: &ClassMember) -> bool {
        let Some(merged) = MergedKernel::of([&self.source, source]) else {
            return false;
        };
        let added = member.in_merged(&merged, 1);
        let keeps_sizes = self
            .members
            .iter()
            .take(1)
            .all(|any| any.is_unchanged_in(&merged));
        let profiles = self.cost_profiles.iter();
        let run_cycles = added.slowdown(&merged.source)
            + match keeps_sizes {
                true => self.run_cycles,
                false => profiles
                    .map(|profile| profile.in_merged(&merged, 0).slowdown(&merged.source))
                    .sum(),
            };
        let compile_cycles = KernelCost::new(&merged.source, HashMap::new()).compile_cycles();
        let net_saving = i128::from(compile_cycles) * self.members.len() as i128
            - i128::from(RUNS_PER_START) * run_cycles;
        if net_saving <= self.net_saving {
            return false;
        }
        if !keeps_sizes {
            for member in self.members.iter_mut().chain(&mut self.cost_profiles) {
                *member = member.in_merged(&merged, 0);
            }
        }
        (self.run_cycles, self.net_saving) = (run_cycles, net_saving);
        self.source = Rc::new(merged.source);
        self.add_profile(&added);
        self.members.push(added);
        true
    }

    /// Counts the vectors of a member in the profile of its cost. The cost depends on which sizes are constants and on the
    /// constants that end loops.
    fn add_profile(&mut self, member: &ClassMember) {
        let loop_ends = loop_ends(&self.source);
        let mut profiles = self.cost_profiles.iter_mut();
        match profiles.find(|profile| profile.has_cost_of(member, &loop_ends)) {
            Some(profile) => profile.vectors += member.vectors,
            None => self.cost_profiles.push(member.clone()),
        }
    }

    /// Replaces the members' kernels in the plan by the shared one. `steps` are the steps of each kernel.
    fn apply(&self, plan: &mut Plan, steps: &[Vec<usize>], sources: &[Option<Rc<KernelSource>>]) {
        let (kernel, sizes) = self.source.kernel();
        let Some(first) = self.members.first() else {
            return;
        };
        plan.kernels[first.kernel] = kernel;
        for member in &self.members {
            let own_sizes = sources[member.kernel].as_ref();
            let own_sizes = own_sizes.map_or(&[][..], |source| &source.sizes);
            for index in &steps[member.kernel] {
                let step = &mut plan.steps[*index];
                step.sizes = member.step_sizes(&sizes, own_sizes, step);
                step.kernel = first.kernel;
            }
        }
    }
}

impl ClassMember {
    /// Makes the member of a class of its own.
    fn new(kernel: usize, source: &KernelSource, vectors: u64) -> ClassMember {
        let sizes = source.sizes.iter();
        let size_values = sizes.map(|dim| (dim.clone(), SizeValue::Size(dim.clone())));
        ClassMember {
            kernel,
            size_values: size_values.collect(),
            vectors,
        }
    }

    /// Returns whether the member has the same values in a merged kernel, of which it is on side 0.
    fn is_unchanged_in(&self, merged: &MergedKernel) -> bool {
        let own = self.size_values.iter().map(|(dim, _)| dim);
        let sizes = merged.size_values.iter();
        let is_own =
            |(dim, [first, _]): &(Dim, [SizeValue; 2])| *first == SizeValue::Size(dim.clone());
        own.eq(sizes.clone().map(|(dim, _)| dim)) && sizes.clone().all(is_own)
    }

    /// Returns whether a vector of the member costs as much as one of another member of the class. `loop_ends` are the
    /// sizes that end loops.
    fn has_cost_of(&self, other: &ClassMember, loop_ends: &HashSet<Dim>) -> bool {
        let pairs = self.size_values.iter().zip(&other.size_values);
        let mut pairs = pairs.map(|((dim, a), (_, b))| (dim, a, b));
        pairs.all(|(dim, a, b)| match (a, b) {
            (SizeValue::Constant(a), SizeValue::Constant(b)) => a == b || !loop_ends.contains(dim),
            (SizeValue::Size(_), SizeValue::Size(_)) => true,
            _ => false,
        })
    }

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
    fn slowdown(&self, source: &KernelSource) -> i128 {
        let constants = self
            .size_values
            .iter()
            .filter_map(|(dim, number)| match number {
                SizeValue::Constant(number) => Some((source.pool.known_size(dim)?, *number)),
                SizeValue::Size(_) => None,
            });
        let cycles = KernelCost::new(source, constants.collect()).run_cycles;
        i128::from(cycles) * i128::from(self.vectors)
    }
}

/// Returns the sizes that end loops of a kernel.
fn loop_ends(source: &KernelSource) -> HashSet<Dim> {
    let (mut ends, mut open) = (HashSet::new(), vec![source.statements.as_slice()]);
    while let Some(statements) = open.pop() {
        for statement in statements {
            if let Statement::Loop { to, .. } = statement
                && let ExprNode::Size(dim) = source.pool.node(*to)
            {
                ends.insert(dim.clone());
            }
            open.extend(statement.blocks());
        }
    }
    ends
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
