//! A [`Plan`]: kernels, the memory they work on, and the order in which they run. Planning needs no device; `gpu/` executes
//! the plan.

use std::ops::Range;

use crate::dim::{Bindings, Dim};
use crate::error::{Error, ErrorKind, Result, SourcePlace};
use crate::symbols::Guard;

use super::capabilities::SizesSpace;
use super::choice::VariantChoice;
use super::host::HostFunction;
use super::layout::Texel;
use super::materialization::{MaterializedValue, SharedWeight};
pub use super::slot::{Slot, SlotId, SlotKind};
use super::work::Work;

/// A compute shader: all properties that do not change between dispatches.
///
/// Bindings of group 0, in this order: one storage buffer or texture for each entry of `bindings`; then, if `sizes` is not
/// 0, a buffer `array<vec4<u32>, …>` of `sizes` numbers, rounded up to whole vectors. The entry point is `main`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Readable name: `reduce_sum`, `dot_gelu`.
    pub label: String,
    /// Source in WGSL.
    pub wgsl: String,
    /// How each storage buffer or texture is accessed.
    pub bindings: Vec<Access>,
    /// Number of `u32` sizes.
    pub sizes: usize,
    /// Address space of the sizes, if there are any.
    pub sizes_space: SizesSpace,
    /// Workgroup memory is zero when the kernel starts, as WGSL says. The kernels of templates write before they read, and
    /// drivers take long to compile the zeroing.
    pub zeroes_workgroup_memory: bool,
}

impl Kernel {
    /// Invocations of a workgroup; `None` if the source does not state them as numbers.
    pub fn workgroup_invocations(&self) -> Option<u64> {
        let (_, rest) = self.wgsl.split_once("@workgroup_size(")?;
        let (size, _) = rest.split_once(')')?;
        let sizes = size
            .split(',')
            .map(str::trim)
            .filter(|size| !size.is_empty());
        let sizes: Option<Vec<u64>> = sizes.map(|size| size.parse().ok()).collect();
        sizes?.into_iter().try_fold(1, u64::checked_mul)
    }
}

/// How a kernel accesses a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`: weights and inputs that no kernel writes.
    Read,
    /// `var<storage, read_write>`: memory of the arena, whether read or written, because a dispatch is one usage scope.
    ReadWrite,
    /// `var<storage, read_write>` with atomic words: those of [`Plan::runtime_checks`].
    CheckFlags,
    /// `var<storage, read_write>` with an atomic word: [`Plan::started_workgroups`].
    StartedWorkgroups,
    /// `texture_storage_2d_array<…, read>`: weights in textures of this format.
    TextureArray(Texel),
    /// `texture_storage_2d<…, read>`: the vectors of a buffer of single or half precision, as a texture with rows of
    /// [`TEXELS_PER_ROW`](super::layout::TEXELS_PER_ROW) texels, on devices where buffers can alias textures.
    AliasedTexture(Texel),
}

impl Access {
    /// True for textures.
    pub fn is_texture(self) -> bool {
        matches!(self, Access::TextureArray(_) | Access::AliasedTexture(_))
    }
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index into [`Plan::kernels`].
    pub kernel: usize,
    /// The slot of each storage binding.
    pub bindings: Vec<SlotId>,
    /// Values of the kernel's sizes.
    pub sizes: Vec<Dim>,
    /// Workgroup counts along x, y and z. Kernels allow a one-dimensional count to be folded: see [`fold_workgroups`].
    pub workgroups: Workgroups,
    /// Source position in the user's model.
    pub place: SourcePlace,
    /// Graph nodes that the step computes, for messages and profiles.
    pub nodes: Vec<String>,
    /// Kernel variant and the reason for it; none if there is only one variant.
    pub choice: Option<VariantChoice>,
    /// Lower bound of the step's work, for reports.
    pub work: Work,
}

/// Workgroup counts of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Workgroups {
    /// A total count, numbered `x + y·(count of x)`; surplus workgroups do nothing.
    Linear(Dim),
    /// Exact counts along x, y and z.
    Grid([Dim; 3]),
}

/// Control flow: steps that run on a condition or repeatedly. All steps of a plan, including those of nested blocks, are in
/// one list, so that memory and bindings are assigned once.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Kind of control flow.
    pub kind: FlowKind,
    /// Graph values that it computes, for messages and profiles.
    pub nodes: Vec<String>,
    /// Source position in the user's model.
    pub place: SourcePlace,
}

/// Kinds of control flow. The host reads the deciding numbers back from slots.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// Runs one of two blocks.
    If {
        /// Slot of a `bool` scalar.
        condition: SlotId,
        /// Block to run if the condition is true.
        then: StepBlock,
        /// Block to run otherwise; begins where `then` ends.
        otherwise: StepBlock,
    },
    /// Runs a block repeatedly.
    Loop {
        /// Maximum number of iterations.
        trips: TripCount,
        /// Slot of the condition before the first iteration, a `bool` scalar; none if it is true.
        initial_condition: Option<SlotId>,
        /// Slot of the condition that each iteration computes; none if it is always true.
        next_condition: Option<SlotId>,
        /// Block of one iteration.
        body: StepBlock,
    },
    /// Calls a host function: reads its operands and writes its results. These slots share memory with no other.
    Host {
        /// Function to call.
        function: HostFunction,
        /// Slots of its operands.
        operands: Vec<SlotId>,
        /// Slots of its results.
        results: Vec<SlotId>,
        /// Index of the step before which it is called.
        step: usize,
    },
}

/// Checks of a plan, and the memory that records their failures.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeChecks {
    /// Slot with one word for each check, zero before a run: see [`RuntimeCheck::error`].
    pub slot: SlotId,
    /// The checks, in the order of their words.
    pub checks: Vec<RuntimeCheck>,
}

/// A check in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeCheck {
    /// Message of its error.
    pub message: String,
    /// True if the message contains the value that failed: see [`Error::raised`].
    pub mentions_value: bool,
    /// End of the range that values must lie in, if there is one.
    pub end: Option<Dim>,
    /// Position of the check's node: its index in the graph, preceded by those of the enclosing regions. The first failure
    /// by this order is reported.
    pub order: Vec<usize>,
    /// Graph node, for messages.
    pub node: String,
    /// Source position in the user's model.
    pub place: SourcePlace,
}

impl RuntimeCheck {
    /// The error for a check flag; none if the check passed. The word is 0, or the largest value that failed with its sign bit
    /// inverted, so that words are ordered like values. `check.wgsl` writes it.
    pub fn error(&self, word: u32, bindings: &Bindings) -> Option<Error> {
        if word == 0 {
            return None;
        }
        let number = i64::from((word ^ 0x8000_0000).cast_signed());
        let end = self.end.as_ref().and_then(|end| end.eval(bindings).ok());
        let error = match self.mentions_value {
            true => Error::raised(&self.message, number, end),
            false => Error::new(ErrorKind::Raised, &self.message),
        };
        Some(error.at(&self.node).at_place(&self.place))
    }
}

impl RuntimeChecks {
    /// The error of the first check that failed, in the order of nodes.
    pub fn first_error(&self, words: &[u32], bindings: &Bindings) -> Option<Error> {
        let checks = self.checks.iter().zip(words);
        let (check, word) = checks
            .filter(|(_, word)| **word != 0)
            .min_by(|(a, _), (b, _)| a.order.cmp(&b.order))?;
        check.error(*word, bindings)
    }
}

/// Trip count of a loop.
#[derive(Clone, Debug, PartialEq)]
pub enum TripCount {
    /// A size, known before the run begins.
    Size(Dim),
    /// The `i64` scalar in a slot.
    Slot(SlotId),
}

/// A range of steps and the control flow within it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepBlock {
    /// Indices of steps, including those of nested blocks.
    pub steps: Range<usize>,
    /// Control flow, in the order of its steps.
    pub flows: Vec<Flow>,
}

impl Flow {
    /// Steps of all blocks.
    pub fn steps(&self) -> Range<usize> {
        match &self.kind {
            FlowKind::If {
                then, otherwise, ..
            } => then.steps.start..otherwise.steps.end,
            FlowKind::Loop { body, .. } => body.steps.clone(),
            FlowKind::Host { step, .. } => *step..*step,
        }
    }

    /// The blocks.
    pub fn blocks(&self) -> Vec<&StepBlock> {
        match &self.kind {
            FlowKind::If {
                then, otherwise, ..
            } => vec![then, otherwise],
            FlowKind::Loop { body, .. } => vec![body],
            FlowKind::Host { .. } => Vec::new(),
        }
    }

    /// Slots that are operands or results of a host function.
    pub fn host_call_slots(&self) -> impl Iterator<Item = SlotId> {
        let (operands, results) = match &self.kind {
            FlowKind::Host {
                operands, results, ..
            } => (operands.as_slice(), results.as_slice()),
            _ => Default::default(),
        };
        operands.iter().chain(results).copied()
    }

    /// Slots of the scalars that the host reads, each with a step during which its memory is valid.
    pub fn readbacks(&self) -> Vec<(SlotId, usize)> {
        let Range { start, end } = self.steps();
        match &self.kind {
            FlowKind::If { condition, .. } => vec![(*condition, start)],
            FlowKind::Loop {
                trips,
                initial_condition: first,
                next_condition: again,
                ..
            } => {
                let trips = match trips {
                    TripCount::Slot(slot) => Some((*slot, start)),
                    TripCount::Size(_) => None,
                };
                let first = first.map(|slot| (slot, start));
                let again = again.map(|slot| (slot, end.saturating_sub(1)));
                trips.into_iter().chain(first).chain(again).collect()
            }
            FlowKind::Host { .. } => Vec::new(),
        }
    }
}

/// All control flow in the list, including nested ones, each before its nested ones.
pub fn all_flows(flows: &[Flow]) -> Vec<&Flow> {
    let mut found = Vec::new();
    for flow in flows {
        found.push(flow);
        for block in flow.blocks() {
            found.extend(all_flows(&block.flows));
        }
    }
    found
}

/// A program for a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Distinct kernels.
    pub kernels: Vec<Kernel>,
    /// Slots of device memory.
    pub slots: Vec<Slot>,
    /// Dispatches in order. Each runs once, unless `flows` says otherwise.
    pub steps: Vec<Step>,
    /// Control flow, in the order of its steps.
    pub flows: Vec<Flow>,
    /// Slot of each input; none for an unused input.
    pub inputs: Vec<Option<SlotId>>,
    /// Slot of each output.
    pub outputs: Vec<SlotId>,
    /// Conditions on symbolic sizes.
    pub guards: Vec<Guard>,
    /// Checks that may fail; none if nothing can fail.
    pub runtime_checks: Option<RuntimeChecks>,
    /// Slot of the number of workgroups that the running dispatch has started; none if no kernel counts them.
    pub started_workgroups: Option<SlotId>,
    /// Reasons why values are materialised, for reports.
    pub materialized: Vec<MaterializedValue>,
    /// Layouts of weights that kernels of several kinds read, for reports.
    pub shared_weights: Vec<SharedWeight>,
}

impl Plan {
    /// The slots that are zero when a run starts: check flags and the number of started workgroups.
    pub fn word_slots(&self) -> impl Iterator<Item = SlotId> {
        let flags = self.runtime_checks.iter().map(|checks| checks.slot);
        flags.chain(self.started_workgroups)
    }

    /// The root of a chain of parts: the slot that is not part of another.
    pub fn root_slot(&self, slot: SlotId) -> SlotId {
        match self.slots[slot.0].kind {
            SlotKind::Subview { parent, .. } if parent < slot => self.root_slot(parent),
            _ => slot,
        }
    }
}

/// Folds a workgroup count into x and y within a device's limit, with as few surplus workgroups as possible.
pub fn fold_workgroups(count: u64, limit: u32) -> Result<[u32; 3]> {
    let limit = u64::from(limit.max(1));
    let rows = count.div_ceil(limit).max(1);
    if rows > limit {
        return Err(Error::plan(format!(
            "{count} workgroups are more than the device can start at once"
        )));
    }
    let columns = count.div_ceil(rows);
    let narrow =
        |number: u64| u32::try_from(number).map_err(|_| Error::plan("too many workgroups"));
    Ok([narrow(columns)?, narrow(rows)?, 1])
}

impl Workgroups {
    /// Workgroup counts for given sizes. If one is zero, nothing is dispatched.
    pub fn eval(&self, bindings: &Bindings, limit: u32) -> Result<[u32; 3]> {
        let count = |dim: &Dim| Ok::<u64, Error>(u64::try_from(dim.eval(bindings)?).unwrap_or(0));
        match self {
            Workgroups::Linear(dim) => match count(dim)? {
                0 => Ok([0, 0, 0]),
                many => fold_workgroups(many, limit),
            },
            Workgroups::Grid(grid) => {
                let mut counts = [0; 3];
                for (slot, dim) in counts.iter_mut().zip(grid) {
                    let many = count(dim)?;
                    *slot = u32::try_from(many)
                        .ok()
                        .filter(|many| *many <= limit)
                        .ok_or_else(|| {
                            Error::plan(format!(
                                "{many} workgroups are more than the device can start at once"
                            ))
                        })?;
                }
                Ok(counts)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workgroups_fold_at_the_limit() {
        assert_eq!(fold_workgroups(65_535, 65_535).ok(), Some([65_535, 1, 1]));
        assert_eq!(fold_workgroups(65_536, 65_535).ok(), Some([32_768, 2, 1]));
        assert!(fold_workgroups(u64::MAX, 65_535).is_err());
    }
}
