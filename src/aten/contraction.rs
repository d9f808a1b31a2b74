//! Sums over shared axes: `tensordot` and `einsum`, as matrix products.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

/// Sums over pairs of axes of two values. The remaining axes stay, those of the first value in front.
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
    let kept = |term: &EinsumTerm| -> Vec<AxisLabel> {
        let labels = term.labels.iter().copied();
        labels.filter(|label| pairs <= *label).collect()
    };
    let result = [kept(&left), kept(&right)].concat();
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
        let later = terms.iter().flat_map(|term| &term.labels);
        let wanted: Vec<AxisLabel> = later.chain(&equation.output).copied().collect();
        product = multiply(product, next, &wanted)?;
    }
    let result = product.summed(&equation.output).permuted(&equation.output);
    // PyTorch computes a sum over a single operand by `torch.sum`, which returns integers as `i64`.
    let keeps = 1 < operands.len() || dtype.is_float();
    Ok(if keeps { result.to(dtype) } else { result })
}

/// The axes of the result of `torch.einsum` of two operands, from the smallest stride to the largest. PyTorch multiplies
/// batches of matrices and permutes the axes by a view. `None` for equations that PyTorch computes otherwise.
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

/// An index of the equation.
type AxisLabel = usize;

/// An operand: a value and the label of each of its axes.
struct EinsumTerm<'g> {
    value: Value<'g>,
    labels: Vec<AxisLabel>,
}

/// A list without the item at an index.
fn without<T>(list: Vec<T>, place: usize) -> Vec<T> {
    let items = list.into_iter().enumerate();
    items
        .filter(|(index, _)| *index != place)
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
            let place = self.value.builder().iota(DType::I64, shape.clone(), first);
            self.value = self
                .value
                .gather(second as i64, place)
                .reshape(without(shape, second));
            self.labels = without(self.labels, second);
        }
        Ok(self)
    }

    fn repeated(&self) -> Option<(usize, usize)> {
        self.labels.iter().enumerate().find_map(|(second, label)| {
            let first = self.labels.iter().position(|other| other == label)?;
            (first < second).then_some((first, second))
        })
    }

    /// Sums over the axes whose labels are not wanted.
    fn summed(self, wanted: &[AxisLabel]) -> EinsumTerm<'g> {
        let (kept, gone): (Vec<usize>, Vec<usize>) = (0..self.labels.len()).partition(|axis| {
            let label = self.labels.get(*axis);
            label.is_some_and(|label| wanted.contains(label))
        });
        if gone.is_empty() {
            return self;
        }
        let dims: Vec<i64> = gone.into_iter().map(|axis| axis as i64).collect();
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

    fn sizes(&self, labels: &[AxisLabel]) -> Vec<Dim> {
        labels
            .iter()
            .filter_map(|label| self.labels.iter().position(|other| other == label))
            .map(|axis| self.value.size(axis as i64))
            .collect()
    }
}

/// Product of two terms, summed over the labels that are not wanted, as one matrix product. Shared labels that are wanted
/// are the batch; shared labels that are not are the K axis.
fn multiply<'g>(
    x: EinsumTerm<'g>,
    y: EinsumTerm<'g>,
    wanted: &[AxisLabel],
) -> Result<EinsumTerm<'g>> {
    let in_one = |one: &EinsumTerm, other: &EinsumTerm| -> Vec<AxisLabel> {
        let is_kept = |label: &AxisLabel| wanted.contains(label) || other.labels.contains(label);
        one.labels.iter().copied().filter(is_kept).collect()
    };
    let (kept_x, kept_y) = (in_one(&x, &y), in_one(&y, &x));
    let dtype = x.value.dtype();
    let (mut x, mut y) = (x.summed(&kept_x), y.summed(&kept_y));
    (x.value, y.value) = (x.value.to(dtype), y.value.to(dtype));
    let shared: Vec<AxisLabel> = x
        .labels
        .iter()
        .copied()
        .filter(|l| y.labels.contains(l))
        .collect();
    let (batch, inner): (Vec<AxisLabel>, Vec<AxisLabel>) =
        shared.iter().partition(|label| wanted.contains(label));
    let own = |term: &EinsumTerm| -> Vec<AxisLabel> {
        let labels = term.labels.iter().copied();
        labels.filter(|label| !shared.contains(label)).collect()
    };
    let (rows, columns) = (own(&x), own(&y));
    let (batch_sizes, inner_sizes) = (x.sizes(&batch), x.sizes(&inner));
    require_same(&x, &y, &shared)?;
    let (row_sizes, column_sizes) = (x.sizes(&rows), y.sizes(&columns));
    let merged = |sizes: [&[Dim]; 2]| {
        let [first, second] = sizes.map(Dim::product);
        vec![Dim::product(&batch_sizes), first, second]
    };
    let left = x
        .permuted(&[batch.as_slice(), &rows, &inner].concat())
        .reshape(merged([&row_sizes, &inner_sizes]));
    let right = y
        .permuted(&[batch.as_slice(), &inner, &columns].concat())
        .reshape(merged([&inner_sizes, &column_sizes]));
    let product = match left.dtype() {
        DType::Bool if inner.is_empty() => left * right,
        _ => left.dot(right),
    };
    Ok(EinsumTerm {
        value: product.reshape([batch_sizes, row_sizes, column_sizes].concat()),
        labels: [batch, rows, columns].concat(),
    })
}

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

/// Drops axes of size 1 whose label has another size elsewhere, since they broadcast.
fn equate_sizes<'g, T: AsMut<[EinsumTerm<'g>]>>(mut given: T) -> Result<T> {
    let terms = given.as_mut();
    let Some(first) = terms.first() else {
        return Ok(given);
    };
    let symbols = first.value.builder().symbols();
    let mut larger: BTreeSet<AxisLabel> = BTreeSet::new();
    for term in terms.iter() {
        for (label, size) in term.labels.iter().zip(term.value.shape()) {
            if symbols.hint(&size)? != 1 {
                larger.insert(*label);
            }
        }
    }
    for term in terms {
        let (mut labels, mut shape) = (Vec::new(), Vec::new());
        for (label, size) in term.labels.iter().zip(term.value.shape()) {
            if symbols.hint(&size)? == 1 && larger.contains(label) {
                symbols.require_equal(&size, &Dim::ONE, String::new)?;
            } else {
                labels.push(*label);
                shape.push(size);
            }
        }
        term.value = term.value.reshape(shape);
        term.labels = labels;
    }
    Ok(given)
}

/// The labels of an equation. The axes of `...` get labels from [`ELLIPSIS`] on, counted from the last axis.
struct Equation {
    inputs: Vec<Vec<AxisLabel>>,
    output: Vec<AxisLabel>,
}

/// First label of `...` axes. Labels of letters are their code points, which are smaller.
const ELLIPSIS: AxisLabel = 0x11_0000;

impl Equation {
    fn parse(text: &str, operands: &[Value]) -> Result<Equation> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        if parts.len() != operands.len() {
            return Err(Error::operator(format!(
                "{text:?} has {} operands, not {}",
                parts.len(),
                operands.len()
            )));
        }
        let mut inputs = Vec::new();
        let mut hidden = 0;
        for (part, operand) in parts.iter().zip(operands) {
            let letters = part.replacen("...", "", 1).chars().count();
            let free = operand.rank().checked_sub(letters);
            let free = match free {
                Some(0) => 0,
                Some(free) if part.contains("...") => free,
                _ => return Err(Error::operator(format!("{part:?} for {}", operand.ty()))),
            };
            hidden = hidden.max(free);
            inputs.push(labels(part, free)?);
        }
        let output = match right {
            Some(right) => labels(right, hidden)?,
            None => implicit_output(&inputs, hidden),
        };
        let known = |label: &AxisLabel| inputs.iter().flatten().any(|other| other == label);
        let unique: BTreeSet<AxisLabel> = output.iter().copied().collect();
        if unique.len() != output.len() || !output.iter().all(known) {
            return Err(Error::operator(format!(
                "the output of {text:?} is not one of its inputs'"
            )));
        }
        Ok(Equation { inputs, output })
    }
}

/// The labels of one operand, where `...` stands for `free` axes.
fn labels(part: &str, free: usize) -> Result<Vec<AxisLabel>> {
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
    match part.split_once("...") {
        None => letters(part),
        Some((before, after)) => {
            let hidden = (0..free).rev().map(|place| ELLIPSIS + place);
            let mut found = letters(before)?;
            found.extend(hidden);
            found.extend(letters(after)?);
            Ok(found)
        }
    }
}

/// Without `->`, the result has the axes of `...`, then the labels that occur once, upper case first.
fn implicit_output(inputs: &[Vec<AxisLabel>], hidden: usize) -> Vec<AxisLabel> {
    let all: Vec<AxisLabel> = inputs.iter().flatten().copied().collect();
    let once = |label: &AxisLabel| all.iter().filter(|other| *other == label).count() == 1;
    let letters: BTreeSet<AxisLabel> = all
        .iter()
        .copied()
        .filter(|label| *label < ELLIPSIS && once(label))
        .collect();
    (0..hidden)
        .rev()
        .map(|place| ELLIPSIS + place)
        .chain(letters)
        .collect()
}
