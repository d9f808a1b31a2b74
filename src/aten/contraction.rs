//! Sums over shared axes: `tensordot` and `einsum`, as matrix products.
//!
//! Each axis of an operand has a label ([`AxisLabel`]). Axes of one label run over the same index; labels that the
//! result lacks are summed over.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

/// Sums over pairs of axes of two values: each of `dims_x` with the one at the same position in `dims_y`. The result
/// has the remaining axes of `x`, then those of `y`.
pub(super) fn contract<'g>(
    x: Value<'g>,
    y: Value<'g>,
    dims_x: &[i64],
    dims_y: &[i64],
) -> Result<Value<'g>> {
    x.builder().check()?;
    if dims_x.len() != dims_y.len() {
        return Err(Error::operator(format!(
            "{} axes of {} against {} of {}",
            dims_x.len(),
            x.ty(),
            dims_y.len(),
            y.ty()
        )));
    }
    // The axes of pair `n` have label `n`; each other axis has a label of its own, from `offset` on.
    let labels = |value: Value<'g>, dims: &[i64], offset: usize| -> Result<Vec<AxisLabel>> {
        let mut labels: Vec<AxisLabel> = (0..value.rank()).map(|axis| offset + axis).collect();
        for (pair, dim) in dims.iter().enumerate() {
            let axis = value.axis(*dim);
            value.builder().check()?;
            if let Some(label) = axis.and_then(|axis| labels.get_mut(axis)) {
                *label = pair;
            }
        }
        Ok(labels)
    };
    let pairs = dims_x.len();
    let left = EinsumTerm {
        labels: labels(x, dims_x, pairs)?,
        value: x,
    };
    let right = EinsumTerm {
        labels: labels(y, dims_y, pairs + x.rank())?,
        value: y,
    };
    let [left, right] = equate_sizes([left, right])?;
    let free_labels = |term: &EinsumTerm| -> Vec<AxisLabel> {
        let labels = term.labels.iter().copied();
        labels.filter(|label| pairs <= *label).collect()
    };
    let result = [free_labels(&left), free_labels(&right)].concat();
    Ok(multiply(left, right, &result)?.permuted(&result))
}

/// Computes `torch.einsum` of an equation with letters, `...` and `->`.
pub(super) fn einsum<'g>(equation: &str, operands: &[Value<'g>]) -> Result<Value<'g>> {
    let Some(first) = operands.first() else {
        return Err(Error::operator("einsum of no tensors"));
    };
    first.builder().check()?;
    let dtype = first.dtype();
    let equation = Equation::parse(equation, operands)?;
    let mut terms = operands
        .iter()
        .zip(equation.inputs)
        .map(|(value, labels)| EinsumTerm {
            value: value.to_compute(),
            labels,
        })
        .map(EinsumTerm::without_repeats)
        .collect::<Result<Vec<EinsumTerm>>>()
        .and_then(equate_sizes)?;
    terms.reverse();
    let mut product = terms
        .pop()
        .ok_or_else(|| Error::operator("einsum of no tensors"))?;
    while let Some(next) = terms.pop() {
        let later_labels = terms.iter().flat_map(|term| &term.labels);
        let wanted: Vec<AxisLabel> = later_labels.chain(&equation.output).copied().collect();
        product = multiply(product, next, &wanted)?;
    }
    let result = product.summed(&equation.output).permuted(&equation.output);
    // PyTorch computes a sum over a single operand by `torch.sum`, which returns integers as `i64`.
    let keeps_dtype = 1 < operands.len() || dtype.is_float();
    Ok(if keeps_dtype {
        result.to(dtype)
    } else {
        result
    })
}

/// The axes of the result of `torch.einsum` of two operands, from the smallest stride to the largest. PyTorch
/// multiplies batches of matrices and permutes the axes by a view. `None` for equations that PyTorch computes
/// otherwise.
pub(super) fn memory_order(equation: &str) -> Option<Vec<usize>> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = equation.split_once("->")?;
    let (left, right) = inputs.split_once(',')?;
    let is_sum = left
        .chars()
        .any(|label| !output.contains(label) && right.contains(label));
    if right.contains(',') || equation.contains('.') || !is_sum {
        return None;
    }
    // The operand that has the last unshared axis becomes the right factor.
    let is_shared = |label: &char| left.contains(*label) && right.contains(*label);
    let last = output.chars().rev().find(|label| !is_shared(label));
    let ends_left = last.is_some_and(|label| left.contains(label));
    let (first, second) = if ends_left {
        (right, left)
    } else {
        (left, right)
    };
    let group = |label: &char| match (first.contains(*label), second.contains(*label)) {
        (true, true) => 0,
        (true, false) => 1,
        _ => 2,
    };
    let mut axes: Vec<(usize, char)> = output.chars().enumerate().collect();
    axes.sort_by_key(|(_, label)| group(label));
    Some(axes.into_iter().rev().map(|(axis, _)| axis).collect())
}

/// The label of an axis: the number of its index in the equation.
type AxisLabel = usize;

/// An operand: a value and the label of each of its axes.
struct EinsumTerm<'g> {
    value: Value<'g>,
    labels: Vec<AxisLabel>,
}

/// A list without the item at `index`.
fn without<T>(list: Vec<T>, index: usize) -> Vec<T> {
    let items = list.into_iter().enumerate();
    items
        .filter(|(position, _)| *position != index)
        .map(|(_, item)| item)
        .collect()
}

impl<'g> EinsumTerm<'g> {
    /// Takes diagonals until each label occurs once.
    fn without_repeats(mut self) -> Result<EinsumTerm<'g>> {
        while let Some((first, second)) = self.repeated() {
            let size = self.value.size(first as i64);
            let complain = || format!("an index stands for different sizes of {}", self.value.ty());
            let symbols = self.value.builder().symbols();
            symbols.require_equal(&size, &self.value.size(second as i64), complain)?;
            let mut shape = self.value.shape();
            if let Some(size) = shape.get_mut(second) {
                *size = Dim::ONE;
            }
            let positions = self.value.builder().iota(DType::I64, shape.clone(), first);
            self.value = self
                .value
                .gather(second as i64, positions)
                .reshape(without(shape, second));
            self.labels = without(self.labels, second);
        }
        Ok(self)
    }

    /// Two axes that have the same label, if there are any.
    fn repeated(&self) -> Option<(usize, usize)> {
        self.labels.iter().enumerate().find_map(|(second, label)| {
            let first = self.labels.iter().position(|other| other == label)?;
            (first < second).then_some((first, second))
        })
    }

    /// Sums over the axes whose labels are not in `wanted`.
    fn summed(self, wanted: &[AxisLabel]) -> EinsumTerm<'g> {
        let (kept, dropped): (Vec<usize>, Vec<usize>) = (0..self.labels.len()).partition(|axis| {
            let label = self.labels.get(*axis);
            label.is_some_and(|label| wanted.contains(label))
        });
        if dropped.is_empty() {
            return self;
        }
        let dims: Vec<i64> = dropped.into_iter().map(|axis| axis as i64).collect();
        EinsumTerm {
            value: self.value.sum(&dims, false),
            labels: kept
                .iter()
                .filter_map(|axis| self.labels.get(*axis).copied())
                .collect(),
        }
    }

    /// Permutes the axes into the order of the labels; a missing label becomes an axis of size 1.
    fn permuted(&self, labels: &[AxisLabel]) -> Value<'g> {
        let axis_of = |label: &AxisLabel| self.labels.iter().position(|other| other == label);
        let axes: Vec<usize> = labels.iter().filter_map(axis_of).collect();
        let shape = self.value.shape();
        let size = |label: &AxisLabel| {
            axis_of(label)
                .and_then(|axis| shape.get(axis).cloned())
                .unwrap_or(Dim::ONE)
        };
        let sizes: Vec<Dim> = labels.iter().map(size).collect();
        self.value.permute(axes).reshape(sizes)
    }

    /// Sizes of the axes of these labels; labels that the term lacks are skipped.
    fn sizes(&self, labels: &[AxisLabel]) -> Vec<Dim> {
        labels
            .iter()
            .filter_map(|label| self.labels.iter().position(|other| other == label))
            .map(|axis| self.value.size(axis as i64))
            .collect()
    }
}

/// Product of two terms, summed over the labels that are not in `wanted`, as one batched matrix product. Shared labels
/// that are wanted become the batch axis; shared labels that are not become the K axis; the other labels of `x` become
/// the rows, those of `y` the columns.
fn multiply<'g>(
    x: EinsumTerm<'g>,
    y: EinsumTerm<'g>,
    wanted: &[AxisLabel],
) -> Result<EinsumTerm<'g>> {
    let needed_labels = |term: &EinsumTerm, other: &EinsumTerm| -> Vec<AxisLabel> {
        let is_needed = |label: &AxisLabel| wanted.contains(label) || other.labels.contains(label);
        term.labels.iter().copied().filter(is_needed).collect()
    };
    let (needed_x, needed_y) = (needed_labels(&x, &y), needed_labels(&y, &x));
    let dtype = x.value.dtype();
    let (mut x, mut y) = (x.summed(&needed_x), y.summed(&needed_y));
    (x.value, y.value) = (x.value.to(dtype), y.value.to(dtype));
    let shared: Vec<AxisLabel> = x
        .labels
        .iter()
        .copied()
        .filter(|l| y.labels.contains(l))
        .collect();
    let (batch, k_labels): (Vec<AxisLabel>, Vec<AxisLabel>) =
        shared.iter().partition(|label| wanted.contains(label));
    let unshared = |term: &EinsumTerm| -> Vec<AxisLabel> {
        let labels = term.labels.iter().copied();
        labels.filter(|label| !shared.contains(label)).collect()
    };
    let (rows, columns) = (unshared(&x), unshared(&y));
    let (batch_sizes, k_sizes) = (x.sizes(&batch), x.sizes(&k_labels));
    require_same(&x, &y, &shared)?;
    let (row_sizes, column_sizes) = (x.sizes(&rows), y.sizes(&columns));
    let matrix_shape = |sizes: [&[Dim]; 2]| {
        let [first, second] = sizes.map(Dim::product);
        vec![Dim::product(&batch_sizes), first, second]
    };
    let left = x
        .permuted(&[batch.as_slice(), &rows, &k_labels].concat())
        .reshape(matrix_shape([&row_sizes, &k_sizes]));
    let right = y
        .permuted(&[batch.as_slice(), &k_labels, &columns].concat())
        .reshape(matrix_shape([&k_sizes, &column_sizes]));
    let product = match left.dtype() {
        DType::Bool if k_labels.is_empty() => left * right,
        _ => left.dot(right),
    };
    Ok(EinsumTerm {
        value: product.reshape([batch_sizes, row_sizes, column_sizes].concat()),
        labels: [batch, rows, columns].concat(),
    })
}

/// Requires both terms to have equal sizes for each of the labels.
fn require_same(x: &EinsumTerm, y: &EinsumTerm, labels: &[AxisLabel]) -> Result<()> {
    for (left, right) in x.sizes(labels).iter().zip(&y.sizes(labels)) {
        let complain = || {
            format!(
                "{} and {} differ in a shared axis",
                x.value.ty(),
                y.value.ty()
            )
        };
        x.value
            .builder()
            .symbols()
            .require_equal(left, right, complain)?;
    }
    Ok(())
}

/// Drops axes of size 1 whose label has another size in some term, since they broadcast.
fn equate_sizes<'g, T: AsMut<[EinsumTerm<'g>]>>(mut operands: T) -> Result<T> {
    let terms = operands.as_mut();
    let Some(first) = terms.first() else {
        return Ok(operands);
    };
    let symbols = first.value.builder().symbols();
    let mut non_unit_labels: BTreeSet<AxisLabel> = BTreeSet::new();
    for term in terms.iter() {
        for (label, size) in term.labels.iter().zip(term.value.shape()) {
            if symbols.hint(&size)? != 1 {
                non_unit_labels.insert(*label);
            }
        }
    }
    for term in terms {
        let (mut labels, mut shape) = (Vec::new(), Vec::new());
        for (label, size) in term.labels.iter().zip(term.value.shape()) {
            if symbols.hint(&size)? == 1 && non_unit_labels.contains(label) {
                symbols.require_equal(&size, &Dim::ONE, String::new)?;
            } else {
                labels.push(*label);
                shape.push(size);
            }
        }
        term.value = term.value.reshape(shape);
        term.labels = labels;
    }
    Ok(operands)
}

/// The labels of an einsum equation. Labels of letters are code points; those of `...` start at [`ELLIPSIS`], counted
/// from the last axis.
struct Equation {
    /// Labels of each operand's axes.
    inputs: Vec<Vec<AxisLabel>>,
    /// Labels of the result's axes.
    output: Vec<AxisLabel>,
}

/// Label of the last `...` axis; axes before it count up. It exceeds every code point.
const ELLIPSIS: AxisLabel = 0x11_0000;

impl Equation {
    /// Parses an equation; the ranks of the operands tell how many axes each `...` stands for.
    fn parse(text: &str, operands: &[Value]) -> Result<Equation> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let subscripts: Vec<&str> = left.split(',').collect();
        if subscripts.len() != operands.len() {
            return Err(Error::operator(format!(
                "{text:?} has {} operands, not {}",
                subscripts.len(),
                operands.len()
            )));
        }
        let mut inputs = Vec::new();
        let mut ellipsis_rank = 0;
        for (subscript, operand) in subscripts.iter().zip(operands) {
            let letter_count = subscript.replacen("...", "", 1).chars().count();
            let ellipsis_axes = operand.rank().checked_sub(letter_count);
            let ellipsis_axes = match ellipsis_axes {
                Some(0) => 0,
                Some(ellipsis_axes) if subscript.contains("...") => ellipsis_axes,
                _ => {
                    return Err(Error::operator(format!(
                        "{subscript:?} for {}",
                        operand.ty()
                    )));
                }
            };
            ellipsis_rank = ellipsis_rank.max(ellipsis_axes);
            inputs.push(subscript_labels(subscript, ellipsis_axes)?);
        }
        let output = match right {
            Some(right) => subscript_labels(right, ellipsis_rank)?,
            None => implicit_output(&inputs, ellipsis_rank),
        };
        let is_input_label =
            |label: &AxisLabel| inputs.iter().flatten().any(|other| other == label);
        let unique: BTreeSet<AxisLabel> = output.iter().copied().collect();
        if unique.len() != output.len() || !output.iter().all(is_input_label) {
            return Err(Error::operator(format!(
                "the output of {text:?} is not one of its inputs'"
            )));
        }
        Ok(Equation { inputs, output })
    }
}

/// The labels of one operand or of the result, where `...` stands for `ellipsis_axes` axes.
fn subscript_labels(subscript: &str, ellipsis_axes: usize) -> Result<Vec<AxisLabel>> {
    let letters = |text: &str| -> Result<Vec<AxisLabel>> {
        let letter = |c: char| {
            if c.is_ascii_alphabetic() {
                Ok(c as AxisLabel)
            } else {
                Err(Error::operator(format!(
                    "{c:?} is not a valid einsum index; use letters"
                )))
            }
        };
        text.chars().map(letter).collect()
    };
    match subscript.split_once("...") {
        None => letters(subscript),
        Some((before, after)) => {
            let ellipsis_labels = (0..ellipsis_axes).rev().map(|axis| ELLIPSIS + axis);
            let mut all_labels = letters(before)?;
            all_labels.extend(ellipsis_labels);
            all_labels.extend(letters(after)?);
            Ok(all_labels)
        }
    }
}

/// The labels of the result of an equation without `->`: the axes of `...`, then the letters that occur once, in the
/// order of their code points (upper case first).
fn implicit_output(inputs: &[Vec<AxisLabel>], ellipsis_rank: usize) -> Vec<AxisLabel> {
    let all: Vec<AxisLabel> = inputs.iter().flatten().copied().collect();
    let once = |label: &AxisLabel| all.iter().filter(|other| *other == label).count() == 1;
    let letters: BTreeSet<AxisLabel> = all
        .iter()
        .copied()
        .filter(|label| *label < ELLIPSIS && once(label))
        .collect();
    (0..ellipsis_rank)
        .rev()
        .map(|axis| ELLIPSIS + axis)
        .chain(letters)
        .collect()
}
