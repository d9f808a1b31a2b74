//! Dynamic scheduling: workgroups of a dispatch take their indices in the order in which they start.
//!
//! Mesa's rasteriser gives each of its threads an equal range of workgroups before any starts. A thread on a slow processor
//! core, or on one that other programs use as well, then keeps all others waiting. Indices in order of start let the
//! others take more. For that, a dispatch has twice the workgroups: those with surplus indices end at once.

use super::LoweredKernel;
use crate::kernel::emit::BindingDecl;
use crate::kernel::expr::WgslType;
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Access, Workgroups};
use crate::plan::element::KernelBinding;

/// Name of the buffer of the counter, which the shader library uses too.
const STARTED: &str = "started";
/// Placeholder of templates for the declaration of `index`.
const INDEX_HOLE: &str = "index";
/// Declaration of `index` for workgroups that are subgroups.
const INDEX_IN_ORDER_OF_START: &str = "    let index = start_order(workgroups, local);\n";

impl LoweredKernel<'_> {
    /// Makes the kernel's workgroups, which are subgroups, take their indices in the order in which they start.
    pub(super) fn schedule_dynamically(&mut self) {
        let Some(KernelBinding { value, .. }) = self.scope.buffers.last() else {
            return;
        };
        self.scope.buffers.push(KernelBinding {
            value: *value,
            is_copy: false,
            layout: Layout::Linear,
            buffer: BindingDecl {
                name: STARTED.to_string(),
                element: WgslType::U32,
                access: Access::StartedWorkgroups,
                vectors: None,
                alias_of: None,
            },
        });
        let index = String::from(INDEX_IN_ORDER_OF_START);
        self.template_values.push((INDEX_HOLE, index));
        if let Workgroups::Linear(count) = &mut self.workgroups {
            *count = &*count * 2;
        }
    }
}
