//! Kernel deduplication. Kernels that were made for the sizes of different layers and differ in numbers only become one
//! kernel, which takes the numbers as sizes. This happens where compiling both costs a driver more time than the sizes
//! cost at run time.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::pair::{Number, Pair};
use super::price::{Price, vectors};
use crate::dim::{Bindings, Dim};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::plan::{Plan, Step, Workgroups};
use crate::pass::plan::kernel::Source;
use crate::pass::plan::product::tile::RUNS;

/// A kernel that serves for one or several kernels.
struct Class {
    source: Rc<Source>,
    members: Vec<Member>,
}

/// One of the kernels for which another one serves.
#[derive(Clone)]
struct Member {
    /// Index of the kernel.
    kernel: usize,
    /// Value in this kernel of each size of the shared kernel.
    numbers: Vec<(Dim, Number)>,
    /// SIMD vectors of lanes that the kernel's dispatches run on.
    vectors: u64,
}

/// Deduplicates the kernels of a plan. `sources` has the source of each kernel.
pub(in crate::pass::plan) fn share(
    plan: &mut Plan,
    sources: &[Option<Rc<Source>>],
    (capabilities, hints): (&Capabilities, &Bindings),
) {
    let Some(lanes) = capabilities.simd_lanes() else {
        return;
    };
    let mut classes: Vec<Class> = Vec::new();
    for (kernel, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        let alone = Class::new(plan, (kernel, source), (lanes, hints));
        let known = classes.iter_mut();
        let mut known = known.filter_map(|class| Some((class.with(&alone)?, class)));
        match known.next() {
            Some((both, class)) => *class = both,
            None => classes.push(alone),
        }
    }
    for class in classes.iter().filter(|class| class.members.len() > 1) {
        class.replace(plan, sources);
    }
    remove_unused(plan);
}

impl Class {
    /// Makes the class of a single kernel.
    fn new(
        plan: &Plan,
        (kernel, source): (usize, &Rc<Source>),
        (lanes, hints): (usize, &Bindings),
    ) -> Class {
        let steps = plan.steps.iter().filter(|step| step.kernel == kernel);
        let workgroups: u64 = steps.map(|step| workgroups(step, hints)).sum();
        let sizes = source.sizes.iter();
        let member = Member {
            kernel,
            numbers: sizes
                .map(|dim| (dim.clone(), Number::Size(dim.clone())))
                .collect(),
            vectors: workgroups * vectors(source, lanes),
        };
        Class {
            source: source.clone(),
            members: vec![member],
        }
    }

    /// Merges two classes. `None` if their kernels differ in more than numbers, or merging does not pay off.
    fn with(&self, other: &Class) -> Option<Class> {
        let pair = Pair::of([&self.source, &other.source])?;
        let side = |class: &Class, side: usize| -> Vec<Member> {
            let members = class.members.iter();
            members.map(|member| member.seen_by(&pair, side)).collect()
        };
        let members = [side(self, 0), side(other, 1)].concat();
        let both = Class {
            source: Rc::new(pair.source),
            members,
        };
        (both.worth() > self.worth() + other.worth()).then_some(both)
    }

    /// Returns the cycles that the class saves at start, less those that it costs in the runs that a start is worth
    /// ([`RUNS`]).
    fn worth(&self) -> i128 {
        let saved = self.members.len() - 1;
        let compiled = i128::from(Price::new(&self.source, HashMap::new()).compiled());
        let members = self.members.iter();
        let run: i128 = members
            .map(|member| i128::from(member.slower(&self.source)))
            .sum();
        compiled * saved as i128 - i128::from(RUNS) * run
    }

    /// Replaces the members' kernels in the plan by the shared one.
    fn replace(&self, plan: &mut Plan, sources: &[Option<Rc<Source>>]) {
        let (kernel, sizes) = self.source.kernel();
        let Some(first) = self.members.first() else {
            return;
        };
        plan.kernels[first.kernel] = kernel;
        for member in &self.members {
            let own = sources[member.kernel].as_ref();
            let own = own.map_or(&[][..], |source| &source.sizes);
            let steps = plan.steps.iter_mut();
            for step in steps.filter(|step| step.kernel == member.kernel) {
                step.sizes = member.sizes(&sizes, own, step);
                step.kernel = first.kernel;
            }
        }
    }
}

impl Member {
    /// Expresses the member in the sizes of a merged kernel, of which it is on side 0 or 1.
    fn seen_by(&self, pair: &Pair, side: usize) -> Member {
        let own = |number: &Number| match number {
            Number::Fixed(number) => Number::Fixed(*number),
            Number::Size(dim) => self.number(dim),
        };
        let numbers = pair.numbers.iter();
        Member {
            numbers: numbers
                .map(|(dim, numbers)| (dim.clone(), own(&numbers[side])))
                .collect(),
            ..self.clone()
        }
    }

    /// Returns the value of a size in this kernel.
    fn number(&self, size: &Dim) -> Number {
        let known = self.numbers.iter().find(|(dim, _)| dim == size);
        known.map_or(Number::Size(size.clone()), |(_, number)| number.clone())
    }

    /// Returns the sizes that a step passes to the shared kernel. The step had those of the member's own kernel.
    fn sizes(&self, sizes: &[Dim], own: &[Dim], step: &Step) -> Vec<Dim> {
        let of_step = |dim: &Dim| {
            let place = own.iter().position(|own| own == dim);
            place.and_then(|place| step.sizes.get(place)).cloned()
        };
        let size = |dim: &Dim| match self.number(dim) {
            Number::Fixed(number) => Dim::from(number),
            Number::Size(dim) => of_step(&dim).unwrap_or(dim),
        };
        sizes.iter().map(size).collect()
    }

    /// Returns the cycles that a run takes longer with sizes in place of numbers.
    fn slower(&self, source: &Source) -> u64 {
        let fixed = self
            .numbers
            .iter()
            .filter_map(|(dim, number)| match number {
                Number::Fixed(number) => Some((source.pool.known_size(dim)?, *number)),
                Number::Size(_) => None,
            });
        Price::new(source, fixed.collect()).run * self.vectors
    }
}

/// Returns the workgroups of a step in the example's sizes.
fn workgroups(step: &Step, hints: &Bindings) -> u64 {
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
    let mut places = Vec::new();
    let mut next = 0;
    for kernel in 0..plan.kernels.len() {
        places.push(next);
        next += usize::from(used.contains(&kernel));
    }
    let mut index = 0..;
    plan.kernels
        .retain(|_| index.next().is_some_and(|kernel| used.contains(&kernel)));
    for step in &mut plan.steps {
        step.kernel = places[step.kernel];
    }
}
