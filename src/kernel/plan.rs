//! A [`Plan`]: kernels, the memory they work on, and the order in which they run. Made on any machine, executed by `gpu/`.

use std::ops::Range;

use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Kind, Place, Result};
use crate::shape::Shape;
use crate::symbols::Guard;

use super::capabilities::{SizesIn, Storage};
use super::choice::Choice;
use super::host::HostFunction;
use super::layout::{Layout, Texel};
use super::stored::{Stored, Tied};
use super::work::Work;

/// A compute shader: everything about it that does not change from dispatch to dispatch.
///
/// Bindings of group 0, in this order: one storage buffer or texture for each entry of `bindings`, then, if `sizes` is not 0, a
/// buffer `array<vec4<u32>, …>` of `sizes` numbers rounded up to whole vectors. The entry point is `main`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// For people: `reduce_sum`, `dot_gelu`.
    pub label: String,
    /// The source.
    pub wgsl: String,
    /// How each storage buffer or texture is accessed.
    pub bindings: Vec<Access>,
    /// Number of `u32` sizes.
    pub sizes: usize,
    /// What they lie in, if there are any.
    pub sizes_in: SizesIn,
}

/// How a kernel accesses a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`: weights and inputs that no kernel writes.
    Read,
    /// `var<storage, read_write>`: everything in the arena, read or written, since a dispatch is one usage scope.
    ReadWrite,
    /// `var<storage, read_write>` of atomic words: those of [`Plan::faults`].
    Faults,
    /// `texture_storage_2d_array<…, read>`: weights in textures of this format.
    Load(Texel),
    /// `texture_storage_2d<…, read>`: the vectors of a value of single or half precision, in rows of
    /// [`TEXEL_ROW`](super::layout::TEXEL_ROW), on devices that read buffers so.
    Texels(Texel),
}

impl Access {
    /// True for textures.
    pub fn is_texture(self) -> bool {
        matches!(self, Access::Load(_) | Access::Texels(_))
    }
}

/// Index of a slot in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub usize);

/// A piece of device memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The graph value's name, for people.
    pub name: String,
    /// Element type of the model.
    pub dtype: DType,
    /// Element type on the device.
    pub storage: Storage,
    /// Shape of the value.
    pub shape: Shape,
    /// How the elements lie in it: outputs in row-major order, inputs too but for room behind each row.
    pub layout: Layout,
    /// What the memory is for.
    pub kind: SlotKind,
}

impl Slot {
    /// The texels as which its memory can be read; none if textures do not hold its elements.
    pub fn texel(&self) -> Option<Texel> {
        match &self.layout {
            Layout::Panels(panels) => panels.texel(self.storage),
            _ => self.storage.texel(),
        }
    }
}

/// What a slot's memory is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// The input of this index, uploaded before a run.
    Input(usize),
    /// The weight of this name, uploaded once.
    Weight(String),
    /// A value between two kernels. Its memory is free outside of `first..=last`, which are indices of steps.
    Temporary {
        /// The step that writes it.
        first: usize,
        /// The last step that reads it.
        last: usize,
    },
    /// A part of a value between two kernels or of an output, which lives as long as that.
    Part {
        /// The slot of the whole, which stands in front of this one.
        whole: SlotId,
        /// Elements of the whole in front of the part.
        start: Dim,
    },
    /// A value that is read back. The same value may be several outputs.
    Output,
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index into [`Plan::kernels`].
    pub kernel: usize,
    /// The slot of each storage binding.
    pub bindings: Vec<SlotId>,
    /// The numbers in the kernel's buffer of sizes.
    pub sizes: Vec<Dim>,
    /// Workgroups along x, y and z. Kernels are written so that a one-dimensional count may be folded: see
    /// [`fold_workgroups`].
    pub workgroups: Workgroups,
    /// Where in the user's model the work comes from.
    pub place: Place,
    /// The graph nodes that it computes, for messages and profiles.
    pub nodes: Vec<String>,
    /// The variant of the kernel and why it was taken; none where there is only one way.
    pub choice: Option<Choice>,
    /// What it does at least, for people.
    pub work: Work,
}

/// How many workgroups a step needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Workgroups {
    /// So many in all, numbered `x + y·(count of x)`; surplus ones do nothing.
    Linear(Dim),
    /// Exactly these.
    Grid([Dim; 3]),
}

/// Where a plan does not simply go on: steps that are run on a condition, or repeatedly. All steps of a plan, those of
/// nested blocks included, stand in one row, so that memory and bindings are laid out once.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What is run when.
    pub kind: FlowKind,
    /// The graph values that it computes, for messages and profiles.
    pub nodes: Vec<String>,
    /// Where in the user's model it stands.
    pub place: Place,
}

/// The kinds of control flow. Numbers in slots are read back to the host, which decides.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// One of two blocks.
    If {
        /// The slot of a `bool` scalar.
        condition: SlotId,
        /// Run if it is true.
        then: Block,
        /// Run otherwise; begins where `then` ends.
        otherwise: Block,
    },
    /// A block, again and again.
    Loop {
        /// How often at most.
        trips: Trips,
        /// The slot of the first condition, a `bool` scalar; none if it is true.
        first: Option<SlotId>,
        /// The slot of the condition that each round computes; none if it is always true.
        again: Option<SlotId>,
        /// One round.
        body: Block,
    },
    /// A function of the application: its operands are read back, its results written. None of these slots shares memory.
    Host {
        /// What is called.
        function: HostFunction,
        /// The slots of its operands.
        operands: Vec<SlotId>,
        /// The slots of its results.
        results: Vec<SlotId>,
        /// The step in front of which it is called.
        step: usize,
    },
}

/// Where a run notes the checks that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// The slot of a word for each site, zero before a run: see [`Site::fault`].
    pub slot: SlotId,
    /// The checks, in the order of their words.
    pub sites: Vec<Site>,
}

/// A check that a step makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The message of its error.
    pub message: String,
    /// True if the message speaks of the number that failed: see [`Error::raised`].
    pub is_of_number: bool,
    /// The end of the range that numbers must lie in, if it has one.
    pub end: Option<Dim>,
    /// Where its node stands: its index in the graph, behind those of the regions around it. What comes first fails first.
    pub order: Vec<usize>,
    /// The graph node, for messages.
    pub node: String,
    /// Where in the user's model it stands.
    pub place: Place,
}

impl Site {
    /// The error that a word tells; none if the check held. A word is 0, or the largest number that failed with its sign
    /// turned, so that numbers are in order; `check.wgsl` writes it.
    pub fn fault(&self, word: u32, bindings: &Bindings) -> Option<Error> {
        if word == 0 {
            return None;
        }
        let number = i64::from((word ^ 0x8000_0000).cast_signed());
        let end = self.end.as_ref().and_then(|end| end.eval(bindings).ok());
        let fault = match self.is_of_number {
            true => Error::raised(&self.message, number, end),
            false => Error::new(Kind::Raised, &self.message),
        };
        Some(fault.at(&self.node).at_place(&self.place))
    }
}

impl Faults {
    /// The error of the first check that failed, by the order of nodes.
    pub fn first(&self, words: &[u32], bindings: &Bindings) -> Option<Error> {
        let sites = self.sites.iter().zip(words);
        let (site, word) = sites
            .filter(|(_, word)| **word != 0)
            .min_by(|(a, _), (b, _)| a.order.cmp(&b.order))?;
        site.fault(*word, bindings)
    }
}

/// How often a loop runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Trips {
    /// So often; known before the run begins.
    Size(Dim),
    /// As the `i64` scalar in the slot says.
    Slot(SlotId),
}

/// Steps in a row and the control flow among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Indices of steps, those of nested blocks included.
    pub steps: Range<usize>,
    /// In the order of their steps.
    pub flows: Vec<Flow>,
}

impl Flow {
    /// The steps of its blocks.
    pub fn steps(&self) -> Range<usize> {
        match &self.kind {
            FlowKind::If {
                then, otherwise, ..
            } => then.steps.start..otherwise.steps.end,
            FlowKind::Loop { body, .. } => body.steps.clone(),
            FlowKind::Host { step, .. } => *step..*step,
        }
    }

    /// Its blocks.
    pub fn blocks(&self) -> Vec<&Block> {
        match &self.kind {
            FlowKind::If {
                then, otherwise, ..
            } => vec![then, otherwise],
            FlowKind::Loop { body, .. } => vec![body],
            FlowKind::Host { .. } => Vec::new(),
        }
    }

    /// The slots that it hands over to a function of the application, or gets from it.
    pub fn exchanged(&self) -> impl Iterator<Item = SlotId> {
        let (operands, results) = match &self.kind {
            FlowKind::Host {
                operands, results, ..
            } => (operands.as_slice(), results.as_slice()),
            _ => Default::default(),
        };
        operands.iter().chain(results).copied()
    }

    /// The numbers that are read back, each with a step during which its memory is still its own.
    pub fn readbacks(&self) -> Vec<(SlotId, usize)> {
        let Range { start, end } = self.steps();
        match &self.kind {
            FlowKind::If { condition, .. } => vec![(*condition, start)],
            FlowKind::Loop {
                trips,
                first,
                again,
                ..
            } => {
                let trips = match trips {
                    Trips::Slot(slot) => Some((*slot, start)),
                    Trips::Size(_) => None,
                };
                let first = first.map(|slot| (slot, start));
                let again = again.map(|slot| (slot, end.saturating_sub(1)));
                trips.into_iter().chain(first).chain(again).collect()
            }
            FlowKind::Host { .. } => Vec::new(),
        }
    }
}

/// All control flow among these, nested one included, each in front of what is nested in it.
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

/// What to run on a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Distinct kernels.
    pub kernels: Vec<Kernel>,
    /// Device memory.
    pub slots: Vec<Slot>,
    /// Dispatches in order; each runs once, except where `flows` says otherwise.
    pub steps: Vec<Step>,
    /// Control flow, in the order of its steps.
    pub flows: Vec<Flow>,
    /// The slot of each input that is used.
    pub inputs: Vec<Option<SlotId>>,
    /// The slot of each output.
    pub outputs: Vec<SlotId>,
    /// Conditions on symbolic sizes.
    pub guards: Vec<Guard>,
    /// Where checks that fail are noted; none if nothing can fail.
    pub faults: Option<Faults>,
    /// Why values lie in memory, for people.
    pub stored: Vec<Stored>,
    /// How weights lie that several kinds of kernels read, for people.
    pub tied: Vec<Tied>,
}

impl Plan {
    /// The slot that a part lies in, which is no part itself; any other slot itself.
    pub fn whole(&self, slot: SlotId) -> SlotId {
        match self.slots[slot.0].kind {
            SlotKind::Part { whole, .. } if whole < slot => self.whole(whole),
            _ => slot,
        }
    }
}

/// Folds a count of workgroups into x and y within a device's limit: as few surplus ones as possible.
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
    /// The dispatch for given sizes. Any zero means that nothing is dispatched.
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
