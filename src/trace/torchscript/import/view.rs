//! Views: results of operators that share memory with an operand, and the steps from a storage's value to a tensor's.

use crate::aten::{Operator, StrideRule, ViewSteps, apply_view_step};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::geometry::{Assumptions, Geometry};
use crate::ir::{Argument, Builder, ValueId};
use crate::op::{Permute, Primitive, Reshape};
use crate::shape::Shape;
use crate::symbols::Guard;
use crate::trace::scope_stack::ValueRef;

use super::Importer;
use super::tensor::{GuardedGeometry, StorageView, TensorRef};

/// A step from a storage's value to the value of a tensor.
#[derive(Clone)]
pub struct ViewStep {
    /// The call that computes it; none if the primitives do.
    call: Option<ViewCall>,
    /// The primitives that it consists of; none if it is not a sequence of primitives.
    pub primitives: Option<ViewSteps>,
}

/// A call of a view operator.
#[derive(Clone)]
struct ViewCall {
    operator: &'static Operator,
    /// Arguments. The first is replaced by the value that is viewed.
    arguments: Vec<Argument>,
    /// Scope of the other arguments.
    scope: u32,
    /// Index of the operator's result.
    result: usize,
}

/// A call of a view operator with its results.
pub(super) struct ViewResults<'a> {
    pub operator: &'static Operator,
    pub arguments: &'a [Argument],
    pub ids: &'a [ValueId],
}

impl std::fmt::Debug for ViewStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.call {
            Some(call) => write!(f, "{}{:?}", call.operator.name, call.arguments),
            None => write!(f, "{:?}", self.primitives),
        }
    }
}

impl ViewStep {
    /// Makes a step of these primitives.
    fn from_primitives(primitives: ViewSteps) -> ViewStep {
        ViewStep {
            call: None,
            primitives: Some(primitives),
        }
    }
}

impl Importer<'_> {
    /// Makes the results of a view operator: views of its operands, or copies where PyTorch has to copy.
    pub(super) fn view_results(
        &mut self,
        bases: &[TensorRef],
        call: &ViewResults,
    ) -> Result<Vec<TensorRef>> {
        let builder = self.builder();
        let paths = call.operator.view_steps(&builder, call.arguments)?;
        let numbered = call.ids.iter().enumerate();
        numbered
            .map(|(result, id)| {
                let path = paths.get(result).cloned().flatten();
                let base = bases.get(result).or(bases.first());
                let base = base.ok_or_else(|| Error::internal("a view has no operand"))?;
                self.view_result(base, call, result, *id, path)
            })
            .collect()
    }

    fn view_result(
        &mut self,
        base: &TensorRef,
        call: &ViewResults,
        result: usize,
        id: ValueId,
        path: Option<ViewSteps>,
    ) -> Result<TensorRef> {
        let strides = call.operator.row.strides;
        if strides == StrideRule::ItselfOrView && path.as_ref().is_some_and(Vec::is_empty) {
            return Ok(base.clone());
        }
        let builder = self.builder();
        let sizes = builder.ty(id).shape;
        let before = self.geometry_of(base);
        let (geometry, assumed) = before.derive(&builder, |geometry, assumptions| {
            let placement = ViewPlacement {
                builder: &builder,
                call,
                path: path.as_ref(),
            };
            placement.geometry(geometry, assumptions, &sizes)
        })?;
        if strides.may_copy() {
            base.storage().add_conditions(&assumed);
            if geometry.is_none() {
                let copy = self.new_tensor_of_geometry(id, GuardedGeometry::contiguous(sizes));
                copy.storage().add_conditions(&assumed);
                return Ok(copy);
            }
        }
        let geometry = geometry.unwrap_or_else(|| Geometry::contiguous(sizes));
        let step = self.view_step(call, result, path);
        let mut view = base.view();
        view.steps.push(step);
        view.guarded = GuardedGeometry { geometry, assumed };
        Ok(self.view_of(view, Some(id)))
    }

    fn view_step(&self, call: &ViewResults, result: usize, path: Option<ViewSteps>) -> ViewStep {
        let values = call.arguments.iter().flat_map(Argument::values);
        let reads_values = values.count() > 1;
        if reads_values && let Some(path) = path {
            return ViewStep::from_primitives(path);
        }
        ViewStep {
            call: Some(ViewCall {
                operator: call.operator,
                arguments: call.arguments.to_vec(),
                scope: self.scopes.innermost().number,
                result,
            }),
            primitives: path,
        }
    }

    /// Views the whole storage of a tensor as a vector, in the order of its memory.
    pub(super) fn memory_of(&mut self, tensor: &TensorRef) -> Result<TensorRef> {
        let storage = tensor.storage();
        let builder = self.builder();
        let guarded = &storage.guarded;
        let assumptions = Assumptions::new(builder.symbols(), &guarded.assumed);
        let order = guarded.geometry.dense_order(&assumptions)?;
        builder.symbols().assume(&assumptions.into_guards())?;
        let Some(mut axes) = order else {
            let message =
                "an operator on the storage of a tensor whose memory has gaps or overlaps";
            return Err(Error::unsupported(message));
        };
        axes.reverse();
        let laid_out = guarded.geometry.permute(&axes);
        let numel = laid_out.numel();
        let mut path: ViewSteps = Vec::new();
        if !axes.iter().copied().eq(0..axes.len()) {
            path.push((Permute { axes }.into(), laid_out.sizes));
        }
        if guarded.geometry.rank() != 1 {
            let shape = vec![numel.clone()];
            path.push((
                Reshape {
                    shape: shape.clone(),
                }
                .into(),
                shape,
            ));
        }
        let mut geometry = Geometry::contiguous(vec![numel]);
        geometry.offset = guarded.geometry.offset.clone();
        let view = StorageView {
            steps: match path.is_empty() {
                true => Vec::new(),
                false => vec![ViewStep::from_primitives(path)],
            },
            guarded: GuardedGeometry {
                geometry,
                assumed: Vec::new(),
            },
            storage,
        };
        Ok(self.view_of(view, None))
    }

    /// Applies a step to a value of the innermost graph.
    pub(super) fn replay(&mut self, step: &ViewStep, base: ValueId) -> Result<ValueId> {
        let builder = self.builder();
        let Some(call) = &step.call else {
            let steps = step.primitives.as_deref().unwrap_or_default();
            return apply_primitives(&builder, steps, base);
        };
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for (index, argument) in call.arguments.iter().enumerate() {
            arguments.push(match (index, argument) {
                (0, _) => Argument::Value(base),
                (_, Argument::Value(id)) => {
                    let value = ValueRef {
                        scope: call.scope,
                        id: *id,
                    };
                    Argument::Value(self.scopes.capture(value)?)
                }
                (_, other) => other.clone(),
            });
        }
        let results = call.operator.call(&builder, arguments)?;
        let result = results.get(call.result);
        let missing = || Error::internal("a view operator has too few results");
        Ok(result.ok_or_else(missing)?.id())
    }

    /// Makes guards of the conditions under which tensors share this tensor's memory.
    pub(super) fn assume_sharing_conditions(&self, tensor: &TensorRef) -> Result<()> {
        let conditions = tensor.storage().take_conditions();
        self.assume(&conditions)
    }

    /// Makes guards of conditions.
    pub(super) fn assume(&self, conditions: &[Guard]) -> Result<()> {
        self.builder().symbols().assume(conditions)
    }
}

/// Context for the geometry of a view.
struct ViewPlacement<'a> {
    builder: &'a Builder,
    call: &'a ViewResults<'a>,
    path: Option<&'a ViewSteps>,
}

impl ViewPlacement<'_> {
    /// Returns the geometry of the view of an operand; none if PyTorch has to copy it, or if strides cannot express the
    /// view.
    fn geometry(
        &self,
        operand: &Geometry,
        assumptions: &Assumptions,
        sizes: &Shape,
    ) -> Result<Option<Geometry>> {
        match self.call.operator.row.strides {
            StrideRule::Reshape => operand.reshape(assumptions, sizes),
            StrideRule::Contiguous if !operand.is_contiguous(assumptions)? => Ok(None),
            StrideRule::Contiguous => operand.reshape(assumptions, sizes),
            StrideRule::Unsqueeze => {
                let (operator, arguments) = (self.call.operator, self.call.arguments);
                let axis = operator.unsqueezed_axis(self.builder, arguments, operand.rank())?;
                Ok(Some(operand.unsqueeze(axis)))
            }
            StrideRule::Diagonal => {
                let (operator, arguments) = (self.call.operator, self.call.arguments);
                let (axes, offset) =
                    operator.diagonal_axes(self.builder, arguments, operand.rank())?;
                let length = sizes.last().cloned().unwrap_or(Dim::ZERO);
                Ok(Some(operand.diagonal(axes, offset, &length)))
            }
            StrideRule::AsStrided => self.as_strided_geometry(operand, sizes).map(Some),
            _ => match self.path {
                Some(path) => geometry_along(operand, assumptions, path),
                None => Ok(None),
            },
        }
    }

    /// Returns the geometry that the arguments of `as_strided` give. The operand is the storage's memory.
    fn as_strided_geometry(&self, memory: &Geometry, sizes: &Shape) -> Result<Geometry> {
        let args = crate::aten::Args::new(self.builder, self.call.operator, self.call.arguments);
        let strides = args.sizes("stride");
        let offset = args.optional_size("storage_offset").unwrap_or(Dim::ZERO);
        self.builder.check()?;
        Ok(Geometry {
            sizes: sizes.clone(),
            strides,
            offset: &memory.offset + &offset,
        })
    }
}

fn geometry_along(
    operand: &Geometry,
    asked: &Assumptions,
    path: &ViewSteps,
) -> Result<Option<Geometry>> {
    let mut geometry = operand.clone();
    for step in path {
        match apply_view_step(&geometry, asked, step)? {
            Some(next) => geometry = next,
            None => return Ok(None),
        }
    }
    Ok(Some(geometry))
}

/// Applies primitives one after the other.
pub fn apply_primitives(
    builder: &Builder,
    steps: &[(Primitive, Shape)],
    base: ValueId,
) -> Result<ValueId> {
    let mut value = builder.value(base);
    for (primitive, shape) in steps {
        value = match primitive {
            Primitive::Reshape(_) => value.reshape(shape.clone()),
            other => builder.apply(other.clone(), vec![value.into()]),
        };
    }
    builder.check()?;
    Ok(value.id())
}
