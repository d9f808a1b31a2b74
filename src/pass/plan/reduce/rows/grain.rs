//! How many elements an invocation takes at once.

use crate::ir::ValueId;
use crate::kernel::layout::Layout;
use crate::pass::plan::cost::example;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::eight::{self, EIGHT};
use crate::pass::plan::element::quad::{QUAD, is_whole};
use crate::pass::plan::group::{Frame, Group, Rows};
use crate::pass::plan::kernel::work;
use crate::pass::plan::reduce::rows::FEWEST;

/// How many elements an invocation takes at once.
pub struct Grain {
    /// Rows that lie next to each other.
    pub across: usize,
    /// Neighbours in each of them.
    pub width: usize,
}

impl Grain {
    /// As many as a device reads and writes at once of what a group has in memory, where an invocation keeps so many elements
    /// at most.
    pub fn of(scope: &Scope, group: &Group, rows: &Rows, kept: i64) -> Grain {
        let frame = &rows.frame;
        let alone = Grain {
            across: 1,
            width: 1,
        };
        if frame.is_contiguous() {
            let width = eight::width(scope.capabilities, &frame.length);
            return Grain { width, ..alone };
        }
        if !scope.capabilities.software {
            return alone;
        }
        let read = work::read(scope, group, None).into_keys();
        let wide = read.chain(rows.written.iter().copied());
        let wide = wide.filter(|value| scope.graph.ty(*value).numel() == frame.numel());
        let (images, others): (Vec<ValueId>, Vec<ValueId>) =
            wide.partition(|value| is_image(scope, frame, *value));
        if images.is_empty() {
            let across = across(scope, frame, kept);
            return Grain { across, ..alone };
        }
        let is_across = !others.is_empty() && is_whole(&frame.stride);
        Grain {
            across: if is_across { QUAD } else { 1 },
            width: QUAD,
        }
    }
}

/// True for a value in which neighbours in a row lie together, though others lie between those of a tensor.
fn is_image(scope: &Scope, frame: &Frame, value: ValueId) -> bool {
    let shape = &scope.graph.ty(value).shape;
    match scope.layout(value) {
        Layout::Quads { axis } => frame.is_along(shape, *axis) && is_whole(&frame.length),
        _ => false,
    }
}

/// How many rows that lie next to each other an invocation goes through: as many as a rasteriser reads at once. They are fewer
/// if lanes would be left without, or if all of their elements can be kept then.
fn across(scope: &Scope, frame: &Frame, kept: i64) -> usize {
    let vectors = example(scope.graph, &frame.rows) / EIGHT;
    let keeps = |width: usize| {
        let length = frame.length.as_const();
        length.is_some_and(|length| length * width as i64 <= kept)
    };
    match eight::width(scope.capabilities, &frame.stride) {
        EIGHT if vectors < FEWEST || keeps(QUAD) && !keeps(EIGHT) => QUAD,
        width => width,
    }
}
