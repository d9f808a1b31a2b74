//! The difference of two graphs: the first diverging operator with both its lines, and the steps around it.

use std::fmt;

use super::canonical::{CanonicalStep, ShapeMode, steps};
use crate::error::SourcePlace;
use crate::ir::Graph;

/// Number of unchanged steps shown before and after a difference.
const CONTEXT_STEPS: usize = 2;
/// Largest number of lines shown. Further lines are counted.
const MAX_SHOWN_LINES: usize = 40;
/// Largest size of the table for aligning steps (the product of both lengths). Longer differences are shown as one block.
const MAX_TABLE_SIZE: usize = 4_000_000;

/// Difference of two graphs.
#[derive(Clone, Debug)]
pub struct GraphDiff {
    /// The first step of the first graph that differs; none if that graph ends there.
    pub left: Option<CanonicalStep>,
    /// The first step of the second graph that differs; none if that graph ends there.
    pub right: Option<CanonicalStep>,
    /// Node counts of both graphs, nested graphs included.
    pub nodes: (usize, usize),
    /// All steps of both graphs, aligned, in order.
    pub lines: Vec<DiffLine>,
}

/// A step of one of the graphs or of both.
#[derive(Clone, Debug, PartialEq)]
pub enum DiffLine {
    /// A step of both graphs.
    Both(String),
    /// A step of the first graph only.
    Left(String),
    /// A step of the second graph only.
    Right(String),
}

/// Compares two graphs, ignoring shapes. None if their steps are equal.
pub fn diff(left: &Graph, right: &Graph) -> Option<GraphDiff> {
    let (a, b) = (
        steps(left, ShapeMode::Ignored),
        steps(right, ShapeMode::Ignored),
    );
    let common = a.iter().zip(&b).take_while(|(a, b)| a.key == b.key).count();
    if common == a.len() && common == b.len() {
        return None;
    }
    let nodes = |steps: &[CanonicalStep]| steps.iter().filter(|step| !step.op.is_empty()).count();
    Some(GraphDiff {
        left: a.get(common).cloned(),
        right: b.get(common).cloned(),
        nodes: (nodes(&a), nodes(&b)),
        lines: align_steps(&a, &b),
    })
}

impl GraphDiff {
    /// The first operator or result that differs.
    pub fn title(&self) -> String {
        let name = |step: &Option<CanonicalStep>| match step {
            Some(step) if step.op.is_empty() => step.text.clone(),
            Some(step) => step.op.clone(),
            None => "nothing".into(),
        };
        let (left, right) = (name(&self.left), name(&self.right));
        if left == right {
            left
        } else {
            format!("{left} became {right}")
        }
    }

    /// The place of the first differing step; that of the first graph if it is known.
    pub fn place(&self) -> SourcePlace {
        let steps = [&self.left, &self.right];
        let mut places = steps.into_iter().flatten().map(|step| &step.place);
        places
            .find(|place| !place.is_unknown())
            .cloned()
            .unwrap_or_default()
    }
}

/// Writes the first diverging operator with both source locations, then the differing lines with some context.
impl fmt::Display for GraphDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "first diverging operator: {}", self.title())?;
        for (what, step) in [("first trace ", &self.left), ("second trace", &self.right)] {
            match step {
                Some(step) if step.place.is_unknown() => writeln!(f, "{what}: {}", step.text)?,
                Some(step) => writeln!(f, "{what}: {}  @ {}", step.text, step.place)?,
                None => writeln!(f, "{what}: ends here")?,
            }
        }
        if self.nodes.0 != self.nodes.1 {
            writeln!(f, "{} nodes became {}", self.nodes.0, self.nodes.1)?;
        }
        let excerpt_lines = excerpt(&self.lines);
        for line in excerpt_lines.iter().take(MAX_SHOWN_LINES) {
            writeln!(f, "{line}")?;
        }
        match excerpt_lines.len().saturating_sub(MAX_SHOWN_LINES) {
            0 => Ok(()),
            more => writeln!(f, "… {more} more lines"),
        }
    }
}

/// Selects the differing lines with context; `…` stands for lines left out.
fn excerpt(lines: &[DiffLine]) -> Vec<String> {
    let differs = |line: &DiffLine| !matches!(line, DiffLine::Both(_));
    if !lines.iter().any(differs) {
        return Vec::new();
    }
    let mut shown = Vec::new();
    let mut skipping = false;
    for (index, line) in lines.iter().enumerate() {
        let around =
            index.saturating_sub(CONTEXT_STEPS)..lines.len().min(index + CONTEXT_STEPS + 1);
        let near = lines
            .get(around)
            .is_some_and(|near| near.iter().any(differs));
        match (near, line) {
            (true, DiffLine::Both(text)) => shown.push(format!("  {text}")),
            (true, DiffLine::Left(text)) => shown.push(format!("- {text}")),
            (true, DiffLine::Right(text)) => shown.push(format!("+ {text}")),
            (false, _) if skipping => {}
            (false, _) => shown.push("  …".into()),
        }
        skipping = !near;
    }
    shown
}

/// Aligns the steps of both graphs by their keys without names, since one additional step renumbers all steps after it.
fn align_steps(a: &[CanonicalStep], b: &[CanonicalStep]) -> Vec<DiffLine> {
    let equal_steps = |(a, b): &(&CanonicalStep, &CanonicalStep)| a.nameless_key == b.nameless_key;
    let head = a.iter().zip(b).take_while(equal_steps).count();
    let (a_rest, b_rest) = (&a[head..], &b[head..]);
    let tail = a_rest.iter().rev().zip(b_rest.iter().rev());
    let tail = tail.take_while(equal_steps).count();
    let (a_middle, a_tail) = a_rest.split_at(a_rest.len() - tail);
    let (b_middle, b_tail) = b_rest.split_at(b_rest.len() - tail);
    let mut lines: Vec<DiffLine> = equal_lines(&a[..head], &b[..head]);
    lines.extend(differing_lines(a_middle, b_middle));
    lines.extend(equal_lines(a_tail, b_tail));
    lines
}

/// One line for each pair of equal steps.
fn equal_lines(a: &[CanonicalStep], b: &[CanonicalStep]) -> Vec<DiffLine> {
    let line = |(a, _): (&CanonicalStep, &CanonicalStep)| DiffLine::Both(indented(a));
    a.iter().zip(b).map(line).collect()
}

/// Lines of steps that are not all equal, aligned by a longest common subsequence.
fn differing_lines(a: &[CanonicalStep], b: &[CanonicalStep]) -> Vec<DiffLine> {
    let left = |step: &CanonicalStep| DiffLine::Left(indented(step));
    let right = |step: &CanonicalStep| DiffLine::Right(indented(step));
    if a.len().saturating_mul(b.len()) > MAX_TABLE_SIZE {
        return a.iter().map(left).chain(b.iter().map(right)).collect();
    }
    let common = common_lengths(a, b);
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.nameless_key == y.nameless_key {
            lines.push(DiffLine::Both(indented(x)));
            (i, j) = (i + 1, j + 1);
        } else if common[i + 1][j] >= common[i][j + 1] {
            lines.push(left(x));
            i += 1;
        } else {
            lines.push(right(y));
            j += 1;
        }
    }
    lines.extend(a[i..].iter().map(left));
    lines.extend(b[j..].iter().map(right));
    lines
}

/// Lengths of the longest common subsequence for each pair of suffixes.
fn common_lengths(a: &[CanonicalStep], b: &[CanonicalStep]) -> Vec<Vec<u32>> {
    let mut table = vec![vec![0u32; b.len() + 1]; a.len() + 1];
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            table[i][j] = if x.nameless_key == y.nameless_key {
                table[i + 1][j + 1] + 1
            } else {
                table[i + 1][j].max(table[i][j + 1])
            };
        }
    }
    table
}

/// A step's line, indented by its depth.
fn indented(step: &CanonicalStep) -> String {
    format!("{}{}", "  ".repeat(step.depth), step.text)
}
