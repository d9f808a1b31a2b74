//! Number of elements that an invocation processes at once.

use crate::dim::Dim;
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
    /// As many elements as the device loads and stores at once, given the layouts of the group's values and
    /// `max_registers`, the most elements that an invocation keeps in registers.
    pub fn of(
        scope: &KernelScope,
        group: &Group,
        rows: &RowsPattern,
        max_registers: i64,
    ) -> Granularity {
        let frame = &rows.frame;
        let single = Granularity { rows: 1, width: 1 };
        let read = work::elements_read(scope, group, None).into_keys();
        let wide = read.chain(rows.written.iter().copied());
        let wide = wide.filter(|value| scope.graph.ty(*value).numel() == frame.numel());
        if frame.is_contiguous() {
            let wide: Vec<ValueId> = wide.collect();
            let are_adjacent = |value: &ValueId| has_adjacent_rows(scope, frame, *value);
            if !wide.is_empty() && wide.iter().all(are_adjacent) {
                return Granularity {
                    rows: VEC4_LEN,
                    ..single
                };
            }
            let width = vec8::vector_width(scope.capabilities, &frame.length);
            return Granularity { width, ..single };
        }
        if !scope.capabilities.software {
            return single;
        }
        let (images, others): (Vec<ValueId>, Vec<ValueId>) =
            wide.partition(|value| has_contiguous_rows(scope, frame, *value));
        if images.is_empty() {
            let rows = adjacent_rows(scope, frame, max_registers);
            return Granularity { rows, ..single };
        }
        let spans_rows = !others.is_empty() && is_multiple_of_4(&frame.stride);
        Granularity {
            rows: if spans_rows { VEC4_LEN } else { 1 },
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

/// True for a value whose vec4 layout makes the elements of four adjacent rows neighbours: rows are the positions of a
/// channel.
fn has_adjacent_rows(scope: &KernelScope, frame: &RowFrame, value: ValueId) -> bool {
    let shape = &scope.graph.ty(value).shape;
    match scope.layout(value) {
        Layout::Vec4 { axis } => {
            let is_of_positions = Dim::product(&shape[axis + 1..]) == frame.length;
            is_of_positions && is_multiple_of_4(&shape[*axis])
        }
        _ => false,
    }
}

/// Number of adjacent rows of an invocation: as many as a rasteriser loads at once. It is smaller if lanes would stay
/// idle, or if all elements then fit in registers.
fn adjacent_rows(scope: &KernelScope, frame: &RowFrame, max_registers: i64) -> usize {
    let vectors = example_size(scope.graph, &frame.rows) / VEC8_LEN;
    let fits_registers = |width: usize| {
        let length = frame.length.as_const();
        length.is_some_and(|length| length * width as i64 <= max_registers)
    };
    match vec8::vector_width(scope.capabilities, &frame.stride) {
        VEC8_LEN
            if vectors < MIN_COLUMN_VECTORS
                || fits_registers(VEC4_LEN) && !fits_registers(VEC8_LEN) =>
        {
            VEC4_LEN
        }
        width => width,
    }
}
