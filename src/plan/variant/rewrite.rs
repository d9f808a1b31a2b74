//! Rewrites of matrix products and convolutions before planning: split sums and padded inputs.

use super::{BUSY_TILES, MatmulProblem, is_single};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::{Graph, Node};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::{KernelVariant, VariantOverrides};
use crate::op::Conv;

/// Numbers of parts into which sums are split.
const SPLIT_COUNTS: [u32; 4] = [16, 8, 4, 2];
/// Smallest K of a part.
const MIN_SPLIT_K: usize = 128;

/// Rewrite of a matrix product or convolution before planning.
pub enum PlanRewrite {
    /// As the sum of this many products.
    Parts(i64),
    /// With an explicitly padded input.
    Padding,
}

/// The rewrite of a node before planning; `None` if the node stays.
pub fn plan_rewrite(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    overrides: &VariantOverrides,
) -> Result<Option<PlanRewrite>> {
    let Some(problem) = MatmulProblem::of(graph, capabilities, node)? else {
        return Ok(None);
    };
    let parts = match overrides.get(&problem.key) {
        Some(KernelVariant::SplitK { parts }) => Some(*parts),
        Some(_) => None,
        None => problem
            .filter_gradient_parts()
            .or_else(|| problem.split_count()),
    };
    let parts = parts
        .map(i64::from)
        .filter(|parts| problem.splits_evenly(*parts));
    let uses_patches = match problem.requested_variant(overrides) {
        Some(variant) => variant == KernelVariant::ImagePatches,
        None => problem.admits(KernelVariant::ImagePatches),
    };
    let is_padded = uses_patches && problem.conv.is_some_and(Conv::is_padded);
    let padding = is_padded.then_some(PlanRewrite::Padding);
    Ok(parts.map(PlanRewrite::Parts).or(padding))
}

impl MatmulProblem<'_> {
    /// Number of parts, each a separate product, that gives a GPU enough tiles without short sums; `None` if the node
    /// is not split.
    fn split_count(&self) -> Option<u32> {
        let stays_whole =
            self.capabilities.software || self.few_rows.is_some() || self.is_depthwise();
        let tiles = self.batch * self.rows.div_ceil(32) * self.columns.div_ceil(32);
        if stays_whole || self.table().is_empty() || 2 * tiles > BUSY_TILES {
            return None;
        }
        SPLIT_COUNTS.into_iter().find(|parts| {
            let count = *parts as usize;
            tiles * count <= 2 * BUSY_TILES
                && self.k_size / count >= MIN_SPLIT_K
                && self.splits_evenly(count as i64)
        })
    }

    /// True if all parts are equal. Each part of a matrix product has a K that is a multiple of four; a convolution is
    /// split between channels.
    pub(super) fn splits_evenly(&self, parts: i64) -> bool {
        let unit = if self.conv.is_some() {
            parts
        } else {
            4 * parts
        };
        let size = self.summed.first().and_then(Dim::as_const);
        parts > 1 && is_single(self.dtype) && size.is_some_and(|size| size % unit == 0)
    }
}
