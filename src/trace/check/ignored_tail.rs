//! Elements beyond the example's size that do not change the result: a loop over the axis was unrolled, or a slice has the
//! example's size.

use super::checker::Checker;
use super::evaluate::{argument_inputs, evaluate, signature};
use super::perturb::{Perturbation, SizeChange, arguments, resize_arguments};
use super::unrolled_axes::may_be_channel_axis;
use super::value_changes::{extreme_values, replace_elements};
use super::{Finding, Id};
use crate::dim::{Dim, Symbol};
use crate::error::Result;
use crate::ir::{Graph, ValueId};
use crate::item::{Item, flatten_arguments};
use crate::tensor::Tensor;

/// A last axis of fewer elements is taken for columns. A network may read only some of them.
const MIN_SEQUENCE_COLUMNS: i64 = 8;

impl Checker<'_> {
    /// Changes the elements beyond the example's size of an axis that `perturbation` lengthened. If the result `got`
    /// stays equal, and changing the example's last element does change it, the trace is fixed to the example's size.
    /// An axis of twice the size must confirm this, since windowed operators may skip a few last elements.
    pub(super) fn check_ignored_tail(&mut self, perturbation: &Perturbation, got: &Item) {
        let Some(change) = &perturbation.size else {
            return;
        };
        let Some(symbol) = &change.symbol else { return };
        if !self.may_be_truncated(symbol, change) {
            return;
        }
        self.reported_axes.insert(symbol.clone());
        let is_truncated = self.ignores_elements(&perturbation.arguments, symbol, change.from, got)
            && !self.ignores_elements(&perturbation.arguments, symbol, change.from - 1, got);
        if is_truncated && self.ignores_longer_tail(perturbation, symbol, change.from) {
            let message = format!(
                "only the first {} elements along {symbol} change the result",
                change.from
            );
            let axes = axis_descriptions(self.graph, symbol);
            let finding = Finding::new(Id::IgnoredTail, message).details(axes);
            self.report.add(finding, &perturbation.label);
        }
    }

    /// True if the axis was lengthened, and the result should depend on all of its elements.
    fn may_be_truncated(&self, symbol: &Symbol, change: &SizeChange) -> bool {
        change.to > change.from
            && !self.reported_axes.contains(symbol)
            && !output_has_size(self.graph, symbol)
            && is_sequence(self.graph, symbol, change.from)
    }

    /// True if the result ignores the additional elements of an axis of twice the size, too.
    fn ignores_longer_tail(&self, perturbation: &Perturbation, symbol: &Symbol, from: i64) -> bool {
        let longer = resize_arguments(self.graph, &perturbation.arguments, symbol, 2 * from);
        longer.is_some_and(|longer| {
            let got = evaluate(self.graph, &self.traced.module, &longer);
            got.is_ok_and(|got| self.ignores_elements(&longer, symbol, from, &got))
        })
    }

    /// True if replacing the elements from index `from` on by extreme values does not change the result `got` for the
    /// arguments `given`.
    fn ignores_elements(&self, given: &[Item], symbol: &Symbol, from: i64, got: &Item) -> bool {
        [true, false].into_iter().all(|is_high| {
            let changed = with_extremes_from(self.graph, given, symbol, from, is_high);
            let changed = changed.ok().filter(|changed| changed != given);
            let again = changed
                .and_then(|changed| evaluate(self.graph, &self.traced.module, &changed).ok());
            again.is_some_and(|again| again == *got)
        })
    }
}

/// True if the size occurs in an output.
fn output_has_size(graph: &Graph, symbol: &Symbol) -> bool {
    let outputs = graph.outputs.iter();
    let mut sizes = outputs.flat_map(|id| &graph.ty(*id).shape);
    sizes.any(|dim: &Dim| dim.symbols().contains(symbol))
}

/// The input axes of this symbolic size, each as an input and its axis.
fn axes_of_symbol<'a>(
    graph: &'a Graph,
    symbol: &'a Symbol,
) -> impl Iterator<Item = (ValueId, usize)> + 'a {
    argument_inputs(graph).iter().flat_map(move |id| {
        let shape = graph.ty(*id).shape.iter().enumerate();
        let own_axes = shape.filter(move |(_, dim)| dim.as_symbol() == Some(symbol));
        own_axes.map(|(axis, _)| (*id, axis))
    })
}

/// Lines that name the input axes of a symbolic size.
fn axis_descriptions(graph: &Graph, symbol: &Symbol) -> Vec<String> {
    let name = |(id, axis): (ValueId, usize)| {
        let info = graph.value(id);
        format!("{symbol} is size {axis} of {}: {}", info.name, info.ty)
    };
    axes_of_symbol(graph, symbol).map(name).collect()
}

/// True if every element along the axis should affect the result: the axis has no columns, and no integer input can contain
/// the lengths of sequences.
fn is_sequence(graph: &Graph, symbol: &Symbol, size: i64) -> bool {
    let is_column = |(id, axis): (ValueId, usize)| {
        let ty = graph.ty(id);
        // Two rows of integers may be the edge list of a graph.
        let are_edges = size == 2 && ty.dtype.is_integer();
        are_edges || may_be_channel_axis(ty.shape.len(), axis) && size < MIN_SEQUENCE_COLUMNS
    };
    let may_be_lengths = |id: &ValueId| {
        let ty = graph.ty(*id);
        ty.dtype.is_integer() && !ty.shape.iter().any(|dim| dim.symbols().contains(symbol))
    };
    !axes_of_symbol(graph, symbol).any(is_column)
        && !argument_inputs(graph).iter().any(may_be_lengths)
}

/// Returns the arguments with extreme elements from index `from` on, along every axis of the symbolic size.
fn with_extremes_from(
    graph: &Graph,
    given: &[Item],
    symbol: &Symbol,
    from: i64,
    is_high: bool,
) -> Result<Vec<Item>> {
    let from = usize::try_from(from).unwrap_or(0);
    let tensors = flatten_arguments(&signature(graph), given)?;
    let ids = argument_inputs(graph);
    let change = |(id, tensor): (&ValueId, &Tensor)| {
        let axes = axes_of_symbol(graph, symbol).filter(|(input, _)| input == id);
        let axes: Vec<usize> = axes.map(|(_, axis)| axis).collect();
        let other = extreme_values(tensor, is_high)?;
        replace_elements(tensor, &other, |index| {
            axes.iter()
                .any(|axis| index.get(*axis).is_some_and(|position| *position >= from))
        })
    };
    let changed: Vec<Tensor> = ids
        .iter()
        .zip(&tensors)
        .map(change)
        .collect::<Result<_>>()?;
    arguments(graph, &changed)
}
