//! A kernel that finds out the subgroups that it runs in.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Result, SourcePlace};
use crate::kernel::capabilities::{SizesSpace, StorageType};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Access, Kernel, Plan, Slot, SlotId, SlotKind, Step, Workgroups};
use crate::kernel::work::Work;

use super::device::GpuDevice;
use super::program::{Program, ProgramOptions};

/// Subgroup sizes in kernels of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubgroupSizes {
    /// Smallest size that the driver reports.
    pub smallest: u32,
    /// Largest size that the driver reports.
    pub largest: u32,
    /// Sizes that a kernel read.
    pub read: BTreeSet<u32>,
    /// Sums of one of each invocation of a subgroup: the invocations that take part in a sum.
    pub summed: BTreeSet<u32>,
}

/// Source of the kernel.
const WGSL: &str = "
@group(0) @binding(0) var<storage, read_write> y: array<i32>;

@compute @workgroup_size(64)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(subgroup_size) size: u32,
) {
    y[2u * id.x] = i32(size);
    y[2u * id.x + 1u] = subgroupAdd(1i);
}
";

/// Invocations of a workgroup of the kernel.
const INVOCATIONS: usize = 64;
/// Number of workgroups.
const WORKGROUPS: usize = 16;

impl SubgroupSizes {
    /// The contradiction between the driver's report and the kernel, if there is one.
    pub fn contradiction(&self) -> Option<String> {
        let is_reported = |size: &u32| (self.smallest..=self.largest).contains(size);
        let (smallest, largest) = (self.smallest, self.largest);
        if let Some(size) = self.read.iter().find(|size| !is_reported(size)) {
            return Some(format!(
                "a kernel runs in subgroups of {size}, but the driver reports {smallest} to {largest}"
            ));
        }
        // A workgroup of 64 invocations fills its subgroups, unless they are larger than it.
        let whole: BTreeSet<u32> = self.read.iter().map(|size| *size.min(&64)).collect();
        let is_partial = self.summed != whole;
        is_partial.then(|| {
            format!(
                "{:?} invocations of a subgroup take part in a sum, but a kernel reads {:?} as its size",
                self.summed, self.read
            )
        })
    }
}

impl GpuDevice {
    /// Runs a kernel that reads the size of its subgroup and sums over it; `None` if the device has no subgroup operations.
    ///
    /// # Errors
    /// The device fails.
    pub fn subgroup_sizes(&self) -> Result<Option<SubgroupSizes>> {
        if !self.capabilities().subgroups {
            return Ok(None);
        }
        let program = Program::new(self, plan(), &Default::default(), ProgramOptions::default())?;
        let outputs = program.run(&[])?;
        let numbers = outputs.first().map(|output| output.to_i64());
        let numbers = numbers.unwrap_or_default();
        let column = |column: usize| {
            let numbers = numbers.iter().skip(column).step_by(2);
            numbers.map(|x| u32::try_from(*x).unwrap_or(0)).collect()
        };
        Ok(Some(SubgroupSizes {
            smallest: self.info().subgroup_min_size,
            largest: self.info().subgroup_max_size,
            read: column(0),
            summed: column(1),
        }))
    }
}

/// A plan of one step that runs the kernel.
fn plan() -> Plan {
    Plan {
        kernels: vec![Kernel {
            label: "subgroup_probe".into(),
            wgsl: WGSL.into(),
            bindings: vec![Access::ReadWrite],
            sizes: 0,
            sizes_space: SizesSpace::Uniform,
            zeroes_workgroup_memory: false,
        }],
        slots: vec![Slot {
            name: "y".into(),
            dtype: DType::I32,
            storage: StorageType::I32,
            shape: vec![Dim::from(2 * INVOCATIONS * WORKGROUPS)],
            layout: Layout::Linear,
            kind: SlotKind::Output,
        }],
        steps: vec![Step {
            kernel: 0,
            bindings: vec![SlotId(0)],
            sizes: Vec::new(),
            workgroups: Workgroups::Linear(Dim::from(WORKGROUPS)),
            place: SourcePlace::default(),
            nodes: vec!["subgroup_probe".into()],
            choice: None,
            work: Work::default(),
        }],
        outputs: vec![SlotId(0)],
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(read: u32, summed: u32) -> SubgroupSizes {
        SubgroupSizes {
            smallest: 8,
            largest: 32,
            read: [read].into(),
            summed: [summed].into(),
        }
    }

    #[test]
    fn contradictions_are_found() {
        assert_eq!(sizes(16, 16).contradiction(), None);
        let outside = sizes(64, 64).contradiction().unwrap();
        assert!(outside.contains("subgroups of 64, but the driver reports 8 to 32"));
        assert!(sizes(32, 16).contradiction().is_some());
        let large = SubgroupSizes {
            largest: 128,
            ..sizes(128, 64)
        };
        assert_eq!(large.contradiction(), None);
    }
}
