//! Packed sequences: sequences of different lengths without padding, in the layout of
//! `torch.nn.utils.rnn.pack_padded_sequence`.
//!
//! Packed data hold step 0 of every sequence, then step 1 of those that have one, and so on. `batch_sizes` has the
//! number of sequences for each step; sequences are sorted by length. The number of rows and steps depends on the
//! lengths, which are known only when the graph runs. Packed data are therefore allocated for every sequence at full
//! length: nothing reads rows after the last used one, and `batch_sizes` is 0 for steps that no sequence has.

use super::index::rows_of;
use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{ScanFunction, ScatterFunction};
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[
    Composite::many(
        &[
            "aten::_pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first) -> (Tensor, Tensor)",
        ],
        pack,
        &["i64[5, 1, T], i64[1], False", "i64[1, 5], i64[1], True"],
    ),
    Composite::many(
        &[
            "aten::_pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, SymInt total_length) -> (Tensor, Tensor)",
        ],
        pad,
        &[
            "f32[12, 3], i64[4], False, 0.5, 6",
            "i64[12, 2], i64[4], True, -1, -1",
        ],
    ),
];

/// The layout of packed data.
pub(super) struct PackedLayout<'g> {
    /// Number of sequences for each step.
    batch_sizes: Value<'g>,
    /// Maximum number of steps.
    steps: Dim,
    /// Number of sequences.
    batch: Dim,
}

impl<'g> PackedLayout<'g> {
    /// The layout for `batch_sizes`, a number for each step, and `batch` sequences.
    pub(super) fn new(batch_sizes: Value<'g>, batch: Dim) -> PackedLayout<'g> {
        PackedLayout {
            batch_sizes: batch_sizes.to(DType::I64),
            steps: batch_sizes.size(0),
            batch,
        }
    }

    /// The indices `0..length`.
    fn indices(&self, length: &Dim) -> Value<'g> {
        let builder = self.batch_sizes.builder();
        builder.iota(DType::I64, vec![length.clone()], 0)
    }

    /// `[steps, batch]`: true where a sequence has the step.
    pub(super) fn has_step(&self) -> Value<'g> {
        self.batch_sizes.unsqueeze(1).gt(self.indices(&self.batch))
    }

    /// `[batch]`: number of steps of each sequence.
    fn lengths(&self) -> Value<'g> {
        self.has_step().to(DType::I64).sum(&[0], false)
    }

    /// The row after the last row of each step.
    fn ends(&self) -> Value<'g> {
        self.batch_sizes.scan(ScanFunction::Sum, 0)
    }

    /// The first row of each step.
    fn starts(&self) -> Value<'g> {
        self.ends() - self.batch_sizes
    }

    /// Checks that no sequence has more than `total` steps.
    fn check_length(&self, total: &Dim) -> Result<()> {
        let symbols = self.batch_sizes.builder().symbols();
        if symbols.less_equal(&self.steps, total)? {
            return Ok(());
        }
        let later_batch_sizes = self
            .batch_sizes
            .narrow(0, total.clone(), &self.steps - total);
        let are_unused = later_batch_sizes.eq(0).all(&[0], false);
        are_unused.check_true("total_length is less than the length of the longest sequence");
        Ok(())
    }

    /// Unpacks data to `[steps, batch, …]`; steps that a sequence does not have hold arbitrary rows.
    pub(super) fn padded(&self, data: Value<'g>) -> Value<'g> {
        let row = self.starts().unsqueeze(1) + self.indices(&self.batch);
        rows_of(data, clamp_index(row, &data.size(0)))
    }

    /// Packs `[steps, batch, …]` into the given number of rows.
    pub(super) fn packed(&self, padded: Value<'g>, rows: &Dim) -> Value<'g> {
        let row = self.indices(rows);
        let step = clamp_index(self.steps_of(rows), &self.steps);
        let sequence = clamp_index(row - self.starts().index_select(0, step), &self.batch);
        self.pick(padded, step, sequence)
    }

    /// `[rows]`: the step of each row, which is the number of steps that end before it.
    fn steps_of(&self, rows: &Dim) -> Value<'g> {
        let builder = self.batch_sizes.builder();
        let full = |length: Dim, number: i64| builder.full(DType::I64, vec![length], number);
        let ends = clamp_index(self.ends(), &(rows + 1));
        let ended =
            full(rows + 1, 0).scatter(0, ends, full(self.steps.clone(), 1), ScatterFunction::Add);
        let ended = ended.scan(ScanFunction::Sum, 0);
        ended.narrow(0, 0, rows.clone())
    }

    /// Reverses every sequence; rows after the end of a sequence are arbitrary.
    pub(super) fn reversed(&self, padded: Value<'g>) -> Value<'g> {
        let step = self.indices(&self.steps).unsqueeze(1);
        let step = clamp_index(self.lengths() - step - 1, &self.steps);
        self.pick(padded, step, self.indices(&self.batch))
    }

    /// `[batch, …]`: the last step of every sequence.
    pub(super) fn last(&self, padded: Value<'g>) -> Value<'g> {
        let step = clamp_index(self.lengths() - 1, &self.steps);
        self.pick(padded, step, self.indices(&self.batch))
    }

    /// Rows of `[steps, batch, …]` at pairs of step and sequence, whose indices broadcast against each other.
    fn pick(&self, padded: Value<'g>, step: Value<'g>, sequence: Value<'g>) -> Value<'g> {
        rows_of(padded.flatten(0, 1), step * self.batch.clone() + sequence)
    }
}

/// Clamps indices to `0..size`.
fn clamp_index<'g>(index: Value<'g>, size: &Dim) -> Value<'g> {
    index.clamp(Some(0.into()), Some((size - 1).into()))
}

/// Computes `aten::_pack_padded_sequence`.
fn pack<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let (input, lengths) = (a.tensor("input"), a.tensor("lengths").to(DType::I64));
    let padded = match a.bool("batch_first") {
        true => input.transpose(0, 1),
        false => input,
    };
    let (steps, batch) = (padded.size(0), padded.size(1));
    let message = || "takes as many lengths as the input has sequences".to_string();
    let symbols = a.builder().symbols();
    symbols.require_equal(&lengths.size(0), &batch, message)?;
    check_lengths(lengths, &steps);
    let step = a.builder().iota(DType::I64, vec![steps.clone()], 0);
    let has_step = lengths.gt(step.unsqueeze(1)).to(DType::I64);
    let packing = PackedLayout::new(has_step.sum(&[1], false), batch.clone());
    let data = packing.packed(padded, &(&steps * &batch));
    Ok(vec![data, packing.batch_sizes])
}

/// Checks PyTorch's conditions on lengths, with its messages.
fn check_lengths(lengths: Value, steps: &Dim) {
    let previous_index = lengths.positions(0) - 1;
    let previous_length = lengths.index_select(0, clamp_index(previous_index, &lengths.size(0)));
    for (holds, message) in [
        (
            lengths.gt(0),
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
        ),
        (
            lengths.le(steps.clone()),
            "an element in 'lengths' is longer than the input",
        ),
        (
            previous_length.ge(lengths),
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True",
        ),
    ] {
        holds.all(&[0], false).check_true(message);
    }
}

/// Computes `aten::_pad_packed_sequence`.
fn pad<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let (data, batch_sizes) = (a.tensor("data"), a.tensor("batch_sizes"));
    let batch = data.size(0).floor_div(&batch_sizes.size(0));
    let has_room = batch_sizes.select(0, 0).le(batch.clone());
    has_room.check_true("packed data lack room for every sequence at full length");
    let packing = PackedLayout::new(batch_sizes, batch);
    let mut padded = packing.padded(data);
    let mut has_step = packing.has_step();
    while has_step.rank() < padded.rank() {
        has_step = has_step.unsqueeze(-1);
    }
    padded = has_step
        .where_(padded, a.number("padding_value"))
        .to(data.dtype());
    let total = a.size("total_length");
    let is_given = a.builder().symbols().less_equal(&Dim::ONE, &total)?;
    if is_given {
        packing.check_length(&total)?;
        padded = with_length(padded, &total, a.scalar("padding_value"))?;
    } else {
        let uses_all_steps = packing.batch_sizes.gt(0).all(&[0], false);
        uses_all_steps
            .check_true("the longest sequence is shorter than the padded input: pass total_length");
    }
    Ok(vec![
        match a.bool("batch_first") {
            true => padded.transpose(0, 1),
            false => padded,
        },
        packing.lengths(),
    ])
}

/// Changes the length of the first axis; additional elements are padding.
fn with_length<'g>(padded: Value<'g>, length: &Dim, padding: Scalar) -> Result<Value<'g>> {
    let steps = padded.size(0);
    if padded.builder().symbols().less_equal(&steps, length)? {
        let mut high = vec![Dim::ZERO; padded.rank()];
        let low = high.clone();
        if let Some(first) = high.first_mut() {
            *first = length - &steps;
        }
        return Ok(padded.pad(&low, &high, padding));
    }
    Ok(padded.narrow(0, 0, length.clone()))
}
