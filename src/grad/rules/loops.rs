//! Gradients of loops.
//!
//! A first loop runs the iterations again, counts them, and keeps the carried values before each of them, in a row of a tensor.
//! A second one visits the iterations from the last to the first: it computes the values of an iteration again from what was
//! kept, and the gradients of what the iteration took. Without a bound of the iterations nothing is kept: the second loop
//! runs all iterations before the one that it visits, which takes time that grows with the square of their number.

use super::super::backward::{ArgumentGradients, NodeGradient};
use super::super::input_gradients;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, Graph, Region, Value, ValueId};
use crate::op::ScatterFunction;
use crate::pass;
use crate::scalar::Scalar;
use crate::shape::{Shape, TensorType};

/// Most iterations whose carried values are stored. Loops without a bound have a count beyond it.
const MAX_STORED: i64 = 1 << 20;

/// The number of arguments before the inputs: the number of iterations and the first condition.
const LEADING: usize = 2;

/// A loop whose gradients are computed.
struct LoopGradient<'a, 'n, 'g> {
    node: &'a NodeGradient<'n, 'g>,
    body: &'a Graph,
    /// Values before the first iteration.
    initial: Vec<Value<'g>>,
    /// Values that each iteration reads.
    constants: Vec<Value<'g>>,
    /// Largest number of iterations, if it is known.
    bound: Option<Dim>,
}

/// Results of the first loop.
struct StoredIterations<'g> {
    /// Number of iterations.
    count: Value<'g>,
    /// The carried values before each iteration, a row for each; without a bound those before the first.
    state: Vec<Value<'g>>,
}

pub(super) fn of_loop<'g>(
    body: &Graph,
    carried: usize,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let input = |index: usize| node.input(LEADING + index, body.ty(body.inputs[1 + index]).dtype);
    let count = body.inputs.len().saturating_sub(1);
    let mut inputs: Vec<Value<'g>> = (0..count).map(input).collect::<Result<_>>()?;
    let constants = inputs.split_off(carried.min(inputs.len()));
    let gradient = LoopGradient {
        node,
        body,
        initial: inputs,
        constants,
        bound: bound(node.node.arguments.first()),
    };
    let kept = gradient.run_again()?;
    gradient.run_backwards(&kept)
}

/// The largest number of iterations; `None` if nothing says it, or it is too large to keep values of each.
fn bound(trips: Option<&Argument>) -> Option<Dim> {
    match trips {
        Some(Argument::Size(size)) => Some(size.clone()),
        Some(Argument::Number(trips)) => {
            let trips = trips.to_i64();
            (trips <= MAX_STORED).then(|| Dim::from(trips.max(0)))
        }
        _ => None,
    }
}

impl<'g> LoopGradient<'_, '_, 'g> {
    /// Adds the loop that counts iterations and keeps the carried values of each.
    fn run_again(&self) -> Result<StoredIterations<'g>> {
        let builder = self.node.builder;
        let row_types = self.row_types();
        let body = builder.scratch();
        let index = body.input("i", scalar(DType::I64));
        body.input("count", scalar(DType::I64));
        let state = inputs(&body, self.initial.iter().map(|value| value.ty()));
        let rows = inputs(&body, row_types.iter().cloned());
        let constants = inputs(&body, self.constants.iter().map(|value| value.ty()));
        let arguments = [&[index], state.as_slice(), &constants].concat();
        let results = call(&body, self.body.clone(), &arguments)?;
        let rows = rows.iter().zip(&state).map(|(rows, value)| {
            let row = value.unsqueeze(0);
            rows.scatter(0, along_rows(index, &row), row, ScatterFunction::Set)
        });
        let (again, next) = results.split_at(1);
        let rows: Vec<Value> = rows.collect();
        let outputs = ids(&[again, &[index + 1], next, &rows].concat());
        let region = Region::Loop {
            body: finish(body, "again", &outputs)?,
            carried: outputs.len() - 1,
        };
        let zeros = row_types.iter();
        let zeros = zeros.map(|ty| builder.full(ty.dtype, ty.shape.clone(), 0));
        let count = builder.full(DType::I64, [], 0);
        let values = [
            &[count],
            &*self.initial,
            &zeros.collect::<Vec<_>>(),
            &self.constants,
        ]
        .concat();
        let mut arguments = self.node.node.arguments.clone();
        arguments.truncate(LEADING);
        arguments.extend(values.into_iter().map(Argument::from));
        let results = builder.try_region(region, arguments)?;
        let kept = results
            .split_first()
            .map(|(count, results)| StoredIterations {
                count: *count,
                state: match self.bound {
                    Some(_) => results.iter().skip(self.initial.len()).copied().collect(),
                    None => self.initial.clone(),
                },
            });
        kept.ok_or_else(|| Error::internal("a loop has no results"))
    }

    /// The types of the rows that keep carried values; none without a bound.
    fn row_types(&self) -> Vec<TensorType> {
        let Some(bound) = &self.bound else {
            return Vec::new();
        };
        let row_type = |value: &Value<'g>| {
            let ty = value.ty();
            let shape = std::iter::once(bound).chain(&ty.shape);
            let shape = shape.cloned().collect::<Shape>();
            TensorType { shape, ..ty }
        };
        self.initial.iter().map(row_type).collect()
    }

    /// Adds the loop from the last iteration to the first. Returns the gradients of the loop's arguments.
    fn run_backwards(&self, kept: &StoredIterations<'g>) -> Result<ArgumentGradients<'g>> {
        let builder = self.node.builder;
        let wanted = self.wanted_inputs();
        let inner: Vec<Value> = self
            .initial
            .iter()
            .chain(&self.constants)
            .copied()
            .collect();
        let value_of = |index: &usize| inner.get(*index).copied();
        let targets: Vec<Value> = wanted.iter().filter_map(value_of).collect();
        let is_carried = |index: &&usize| **index < self.initial.len();
        let floats = wanted.iter().filter(is_carried).count();

        let body = builder.scratch();
        let index = body.input("i", scalar(DType::I64));
        let sums = inputs(&body, targets.iter().map(|value| value.ty()));
        let count = body.input("count", scalar(DType::I64));
        let kept_state = inputs(&body, kept.state.iter().map(|value| value.ty()));
        let constants = inputs(&body, self.constants.iter().map(|value| value.ty()));
        let step = count - 1 - index;
        let state = self.state_before(&body, step, &kept_state, &constants)?;
        let (gradients, sums) = sums.split_at(floats);
        let arguments = [&[step], state.as_slice(), &constants, gradients].concat();
        let places: Vec<usize> = wanted.iter().map(|index| index + 1).collect();
        let found = call(&body, input_gradients(self.body, &places)?, &arguments)?;
        let (next, added) = found.split_at(floats);
        let added = sums.iter().zip(added).map(|(sum, added)| *sum + *added);
        let again = body.full(DType::Bool, [], true);
        let outputs = ids(&[&[again], next, &added.collect::<Vec<_>>()].concat());
        let region = Region::Loop {
            body: finish(body, "backwards", &outputs)?,
            carried: wanted.len(),
        };

        let mut values = Vec::new();
        for (index, target) in wanted.iter().zip(&targets) {
            values.push(match is_carried(&index) {
                true => self.node.gradient(*index)?,
                false => builder.full(target.dtype(), target.shape(), 0.0),
            });
        }
        let values = [
            values.as_slice(),
            &[kept.count],
            &kept.state,
            &self.constants,
        ]
        .concat();
        let mut arguments = vec![
            Argument::from(kept.count),
            Argument::Number(Scalar::Bool(true)),
        ];
        arguments.extend(values.into_iter().map(Argument::from));
        let results = builder.try_region(region, arguments)?;
        let mut all = vec![None; self.node.node.arguments.len()];
        for (index, gradient) in wanted.into_iter().zip(results) {
            if let Some(slot) = all.get_mut(LEADING + index) {
                *slot = Some(gradient);
            }
        }
        Ok(all)
    }

    /// The inputs of an iteration, without its number, that have gradients: carried floats, and constants that depend on
    /// wanted values.
    fn wanted_inputs(&self) -> Vec<usize> {
        let carried = self.initial.iter().enumerate();
        let floats = carried.filter(|(_, value)| value.dtype().is_float());
        let first = self.initial.len();
        let constants = (first..).take(self.constants.len());
        let constants = constants.filter(|index| self.node.wants(LEADING + index));
        floats.map(|(index, _)| index).chain(constants).collect()
    }

    /// The carried values before an iteration.
    fn state_before<'b>(
        &self,
        builder: &'b Builder,
        step: Value<'b>,
        kept: &[Value<'b>],
        constants: &[Value<'b>],
    ) -> Result<Vec<Value<'b>>> {
        if self.bound.is_some() {
            let row = |rows: &Value<'b>| {
                let index = along_rows(step, &rows.narrow(0, 0, 1));
                rows.gather(0, index).squeeze(&[0])
            };
            return Ok(kept.iter().map(row).collect());
        }
        let region = Region::Loop {
            body: self.body.clone(),
            carried: kept.len(),
        };
        let mut arguments = vec![Argument::from(step), Argument::Number(Scalar::Bool(true))];
        arguments.extend(
            kept.iter()
                .chain(constants)
                .map(|value| Argument::from(*value)),
        );
        builder.try_region(region, arguments)
    }
}

pub(super) fn scalar(dtype: DType) -> TensorType {
    TensorType {
        dtype,
        shape: Shape::new(),
    }
}

/// Adds inputs of these types.
pub(super) fn inputs(
    builder: &Builder,
    types: impl IntoIterator<Item = TensorType>,
) -> Vec<Value<'_>> {
    let types = types.into_iter();
    types.map(|ty| builder.input("x", ty)).collect()
}

/// Calls a graph.
fn call<'b>(builder: &'b Builder, body: Graph, arguments: &[Value<'b>]) -> Result<Vec<Value<'b>>> {
    let arguments = arguments.iter().map(|value| Argument::from(*value));
    builder.try_region(Region::Call { body }, arguments.collect())
}

/// The index of a row for each element of the row.
pub(super) fn along_rows<'b>(index: Value<'b>, row: &Value<'b>) -> Value<'b> {
    let ones = vec![Dim::ONE; row.rank()];
    index.reshape(ones).expand(row.shape())
}

/// The body of a loop from its builder, with the graphs that it calls inlined.
pub(super) fn finish(builder: Builder, name: &str, outputs: &[ValueId]) -> Result<Graph> {
    let mut body = builder.finish(outputs, Vec::new(), None)?;
    body.name = name.to_string();
    pass::inline(&body)
}

pub(super) fn ids(values: &[Value<'_>]) -> Vec<ValueId> {
    values.iter().map(|value| value.id()).collect()
}
