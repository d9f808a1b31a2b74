//! Loops over the rows of tensors, from the first to the last or back, that keep a row of each step.

use super::loops::{along_rows, finish, ids, inputs, scalar};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, Region, Value};
use crate::op::ScatterFunction;
use crate::scalar::Scalar;
use crate::shape::{Shape, TensorType};

/// A loop whose steps compute a state from the previous one.
pub(super) struct RowLoop<'a, 'g> {
    /// Number of steps.
    pub(super) count: Dim,
    /// True for a loop from the last row to the first.
    pub(super) is_reversed: bool,
    /// The state before the first step.
    pub(super) initial: Vec<Value<'g>>,
    /// Tensors of which each step reads its row.
    pub(super) rows: Vec<Value<'g>>,
    /// Tensors that each step reads as a whole.
    pub(super) constants: Vec<Value<'g>>,
    /// Types of the values that each step keeps.
    pub(super) kept: Vec<TensorType>,
    /// Computes the next state and the kept values.
    pub(super) step: &'a dyn for<'b> Fn(&StepValues<'b>) -> Result<StepResults<'b>>,
}

/// The values that a step reads.
pub(super) struct StepValues<'b> {
    pub(super) state: Vec<Value<'b>>,
    pub(super) rows: Vec<Value<'b>>,
    pub(super) constants: Vec<Value<'b>>,
}

/// The values that a step computes: the next state, and the values to keep.
pub(super) type StepResults<'b> = (Vec<Value<'b>>, Vec<Value<'b>>);

impl<'g> RowLoop<'_, 'g> {
    /// Adds the loop. Returns the last state, and the kept values of all steps in the order of the rows.
    pub(super) fn run(&self, builder: &'g Builder) -> Result<StepResults<'g>> {
        let kept_types = self.kept.iter().map(|ty| {
            let shape = std::iter::once(&self.count).chain(&ty.shape);
            let shape = shape.cloned().collect::<Shape>();
            TensorType {
                shape,
                ..ty.clone()
            }
        });
        let zeros = kept_types.map(|ty| builder.full(ty.dtype, ty.shape, 0.0));
        let zeros: Vec<Value> = zeros.collect();
        let region = self.region(builder, &zeros)?;
        let values = [&self.initial, &zeros, &self.rows, &self.constants];
        let values = values.into_iter().flatten();
        let mut arguments = vec![
            Argument::Size(self.count.clone()),
            Argument::Number(Scalar::Bool(true)),
        ];
        arguments.extend(values.map(|value| Argument::from(*value)));
        let mut state = builder.try_region(region, arguments)?;
        let kept = state.split_off(self.initial.len().min(state.len()));
        Ok((state, kept))
    }

    fn region(&self, outer: &Builder, kept: &[Value<'g>]) -> Result<Region> {
        let body = outer.scratch();
        let types =
            |values: &[Value<'g>]| values.iter().map(|value| value.ty()).collect::<Vec<_>>();
        let index = body.input("i", scalar(DType::I64));
        let state = inputs(&body, types(&self.initial));
        let kept = inputs(&body, types(kept));
        let rows = inputs(&body, types(&self.rows));
        let constants = inputs(&body, types(&self.constants));
        let position = match self.is_reversed {
            true => body.full(DType::I64, [], &(&self.count - 1)) - index,
            false => index,
        };
        let row = |rows: &Value<'_>| {
            let at = along_rows(
                body.value(position.id()),
                &body.value(rows.id()).narrow(0, 0, 1),
            );
            body.value(rows.id()).gather(0, at).squeeze(&[0])
        };
        let rows = rows.iter().map(row).collect();
        let (next, to_keep) = (self.step)(&StepValues {
            state,
            rows,
            constants,
        })?;
        if next.len() != self.initial.len() || to_keep.len() != kept.len() {
            return Err(Error::internal("a step has the wrong number of results"));
        }
        let kept = kept.iter().zip(to_keep).map(|(kept, value)| {
            let row = value.unsqueeze(0);
            kept.scatter(0, along_rows(position, &row), row, ScatterFunction::Set)
        });
        let again = body.full(DType::Bool, [], true);
        let outputs = ids(&[&[again], &*next, &kept.collect::<Vec<_>>()].concat());
        let carried = outputs.len() - 1;
        Ok(Region::Loop {
            body: finish(body, "steps", &outputs)?,
            carried,
        })
    }
}
