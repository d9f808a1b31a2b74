//! Limits below those of an adapter, by which one machine runs the kernels that other machines get.

use wgpu::Limits;

use crate::error::{Error, Result};

/// Limits of a device below those of its adapter. `None` keeps the adapter's limit; a limit above it has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LowerLimits {
    /// Storage buffers of a kernel: WebGPU's `maxStorageBuffersPerShaderStage`.
    pub max_storage_buffers: Option<u32>,
    /// Bytes of workgroup memory: WebGPU's `maxComputeWorkgroupStorageSize`.
    pub max_workgroup_memory: Option<u32>,
    /// Invocations of a workgroup: WebGPU's `maxComputeInvocationsPerWorkgroup`.
    pub max_invocations: Option<u32>,
}

impl LowerLimits {
    /// Sets the limit of a name in WebGPU's specification.
    ///
    /// # Errors
    /// There is no limit of this name; the message lists the names.
    pub fn set(&mut self, name: &str, limit: u32) -> Result<()> {
        let mut limits = [
            (
                "maxStorageBuffersPerShaderStage",
                &mut self.max_storage_buffers,
            ),
            (
                "maxComputeWorkgroupStorageSize",
                &mut self.max_workgroup_memory,
            ),
            (
                "maxComputeInvocationsPerWorkgroup",
                &mut self.max_invocations,
            ),
        ];
        match limits.iter_mut().find(|(known, _)| *known == name) {
            Some((_, field)) => {
                **field = Some(limit);
                Ok(())
            }
            None => Err(Error::usage(format!(
                "{name} is none of {}",
                limits.map(|(known, _)| known).join(", ")
            ))),
        }
    }

    /// The limits of an adapter, lowered to these.
    pub(super) fn lower(self, limits: Limits) -> Limits {
        let lower = |limit: u32, to: Option<u32>| to.map_or(limit, |to| limit.min(to));
        let invocations = |limit| lower(limit, self.max_invocations);
        Limits {
            max_storage_buffers_per_shader_stage: lower(
                limits.max_storage_buffers_per_shader_stage,
                self.max_storage_buffers,
            ),
            max_compute_workgroup_storage_size: lower(
                limits.max_compute_workgroup_storage_size,
                self.max_workgroup_memory,
            ),
            max_compute_invocations_per_workgroup: invocations(
                limits.max_compute_invocations_per_workgroup,
            ),
            max_compute_workgroup_size_x: invocations(limits.max_compute_workgroup_size_x),
            max_compute_workgroup_size_y: invocations(limits.max_compute_workgroup_size_y),
            max_compute_workgroup_size_z: invocations(limits.max_compute_workgroup_size_z),
            ..limits
        }
    }
}
