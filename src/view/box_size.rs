//! Sizes of boxes and labels, from their text.

use super::hierarchy::{BoxKind, GraphBox, Hierarchy};
use super::level::GraphValue;
use crate::ir::{Graph, ValueId};
use crate::shape::TensorType;

/// Width and height of a closed box, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BoxSize {
    pub(super) width: f32,
    pub(super) height: f32,
}

/// Mean width of a character of a title: 12 pixels high, in the system's sans-serif font.
const TITLE_WIDTH: f32 = 7.0;
/// Mean width of a character of a bold title, which boxes with others in them have.
const BOLD_WIDTH: f32 = 7.6;
/// Characters before the title of such a box: a triangle and a space.
const TRIANGLE: f32 = 2.0;
/// Mean width of a character of a second line or of a type: 10 pixels high.
const SMALL_WIDTH: f32 = 5.7;
/// Space to the left and right of the text, together.
const MARGIN: f32 = 22.0;
const MIN_WIDTH: f32 = 64.0;
/// Longest text of a box, in characters. The page shows the rest in the details.
pub(super) const MAX_CHARACTERS: usize = 34;

/// Returns the size of a closed box with a second line of text, which may be empty.
pub(super) fn box_size(own: &GraphBox, subtitle: &str) -> BoxSize {
    let characters = |text: &str| text.chars().count().min(MAX_CHARACTERS) as f32;
    let title = match own.is_container() {
        true => BOLD_WIDTH * (characters(&own.label) + TRIANGLE),
        false => TITLE_WIDTH * characters(&own.label),
    };
    let width = title.max(SMALL_WIDTH * characters(subtitle)) + MARGIN;
    let lines = if subtitle.is_empty() { 28.0 } else { 40.0 };
    let height = match own.kind {
        BoxKind::Input(_) | BoxKind::Output(_) | BoxKind::Operator(_) => lines,
        _ => 46.0,
    };
    BoxSize {
        width: width.max(MIN_WIDTH),
        height,
    }
}

/// Width of the label of a line.
pub(super) fn label_width(hierarchy: &Hierarchy, (graph, value): GraphValue) -> f32 {
    let label = type_label(hierarchy.graphs[graph], value);
    SMALL_WIDTH * label.chars().count().min(MAX_CHARACTERS) as f32
}

/// The type of a value as the label of its line: with the example's sizes if the symbolic ones are too long.
pub(super) fn type_label(graph: &Graph, value: ValueId) -> String {
    let ty = graph.ty(value);
    let symbolic = ty.to_string();
    match ty.sizes(&graph.hints) {
        Ok(sizes) if symbolic.chars().count() > MAX_CHARACTERS => {
            TensorType::new(ty.dtype, sizes).to_string()
        }
        _ => symbolic,
    }
}

/// Shortens a text to the length that a box has room for.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARACTERS) {
        None => text.to_string(),
        Some(_) => text.chars().take(MAX_CHARACTERS - 1).chain(['…']).collect(),
    }
}
