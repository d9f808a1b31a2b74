//! Number of elements that an invocation processes at once.

use crate::ir::ValueId;
use crate::kernel::layout::Layout;
use crate::plan::cost::example_size;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4};
use crate::plan::element::vec8::{self, VEC8_LEN};
use crate::plan::group::{Group, RowFrame, RowsPattern};
use crate::plan::kernel::work;
use crate::plan::reduce::rows::MIN_COLUMN_VECTORS;

/// Number of elements that an invocation processes at once.
pub struct Granularity {
    /// Adjacent rows.
    pub rows: usize,
    /// Contiguous elements of each row.
    pub width: usize,
}

impl Granularity {
    /// As many elements as the device loads and stores at once, given the layouts of the group's values and `kept`, the
    /// most elements that an invocation keeps in registers.
    pub fn of(scope: &KernelScope, group: &Group, rows: &RowsPattern, kept: i64) -> Granularity {
        let frame = &rows.frame;
        let alone = Granularity { rows: 1, width: 1 };
        if frame.is_contiguous() {
            let width = vec8::vector_width(scope.capabilities, &frame.length);
            return Granularity { width, ..alone };
        }
        if !scope.capabilities.software {
            return alone;
        }
        let read = work::elements_read(scope, group, None).into_keys();
        let wide = read.chain(rows.written.iter().copied());
        let wide = wide.filter(|value| scope.graph.ty(*value).numel() == frame.numel());
        let (images, others): (Vec<ValueId>, Vec<ValueId>) =
            wide.partition(|value| has_contiguous_rows(scope, frame, *value));
        if images.is_empty() {
            let across = adjacent_rows(scope, frame, kept);
            return Granularity {
                rows: across,
                ..alone
            };
        }
        let is_across = !others.is_empty() && is_multiple_of_4(&frame.stride);
        Granularity {
            rows: if is_across { VEC4_LEN } else { 1 },
            width: VEC4_LEN,
        }
    }
}

/// True for a value whose vec4 layout makes neighbours in a row contiguous, though the row is strided in the tensor.
fn has_contiguous_rows(scope: &KernelScope, frame: &RowFrame, value: ValueId) -> bool {
    let shape = &scope.graph.ty(value).shape;
    match scope.layout(value) {
        Layout::Vec4 { axis } => {
            frame.has_rows_along(shape, *axis) && is_multiple_of_4(&frame.length)
        }
        _ => false,
    }
}

/// Number of adjacent rows of an invocation: as many as a rasteriser loads at once. It is smaller if lanes would stay
/// idle, or if all elements then fit in registers.
fn adjacent_rows(scope: &KernelScope, frame: &RowFrame, kept: i64) -> usize {
    let vectors = example_size(scope.graph, &frame.rows) / VEC8_LEN;
    let keeps = |width: usize| {
        let length = frame.length.as_const();
        length.is_some_and(|length| length * width as i64 <= kept)
    };
    match vec8::vector_width(scope.capabilities, &frame.stride) {
        VEC8_LEN if vectors < MIN_COLUMN_VECTORS || keeps(VEC4_LEN) && !keeps(VEC8_LEN) => VEC4_LEN,
        width => width,
    }
}
