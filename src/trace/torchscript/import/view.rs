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
    /// The operator call that computes the step; none if the primitives compute it.
    call: Option<ViewCall>,
    /// The primitives that the step consists of; none if it is not a sequence of primitives.
    pub primitives: Option<ViewSteps>,
}

/// A call of a view operator.
#[derive(Clone)]
struct ViewCall {
    operator: &'static Operator,
    /// Arguments. On replay, the first one is replaced by the value that is viewed.
    arguments: Vec<Argument>,
    /// Number of the scope that the values among the other arguments belong to.
    scope: u32,
    /// Index of the view among the operator's results.
    result_index: usize,
}

/// A call of a view operator with its results.
pub(super) struct ViewResults<'a> {
    /// The operator.
    pub operator: &'static Operator,
    /// Arguments of the node.
    pub arguments: &'a [Argument],
    /// Results of the node, values of the innermost graph.
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
    /// Makes the results of a view operator: views of its operands, or copies where PyTorch has to copy. `bases` holds
    /// the operand of each result, or one operand for all results.
    pub(super) fn view_results(
        &mut self,
        bases: &[TensorRef],
        call: &ViewResults,
    ) -> Result<Vec<TensorRef>> {
        let builder = self.builder();
        let primitives_of_results = call.operator.view_steps(&builder, call.arguments)?;
        let numbered = call.ids.iter().enumerate();
        numbered
            .map(|(index, id)| {
                let primitives = primitives_of_results.get(index).cloned().flatten();
                let base = bases.get(index).or(bases.first());
                let base = base.ok_or_else(|| Error::internal("a view has no operand"))?;
                self.view_result(base, call, index, *id, primitives)
            })
            .collect()
    }

    /// Makes one result of a view operator. `id` is its value, `primitives` make it from `base`.
    fn view_result(
        &mut self,
        base: &TensorRef,
        call: &ViewResults,
        result_index: usize,
        id: ValueId,
        primitives: Option<ViewSteps>,
    ) -> Result<TensorRef> {
        let stride_rule = call.operator.row.strides;
        if stride_rule == StrideRule::ItselfOrView && primitives.as_ref().is_some_and(Vec::is_empty)
        {
            return Ok(base.clone());
        }
        let builder = self.builder();
        let sizes = builder.ty(id).shape;
        let base_geometry = self.geometry_of(base);
        let (geometry, assumed) = base_geometry.derive(&builder, |geometry, assumptions| {
            let placement = ViewPlacement {
                builder: &builder,
                call,
                primitives: primitives.as_ref(),
            };
            placement.geometry(geometry, assumptions, &sizes)
        })?;
        if stride_rule.may_copy() {
            base.storage().add_conditions(&assumed);
            if geometry.is_none() {
                let copy = self.new_tensor_of_geometry(id, GuardedGeometry::contiguous(sizes));
                copy.storage().add_conditions(&assumed);
                return Ok(copy);
            }
        }
        let geometry = geometry.unwrap_or_else(|| Geometry::contiguous(sizes));
        let step = self.view_step(call, result_index, primitives);
        let mut view = base.view();
        view.steps.push(step);
        view.guarded = GuardedGeometry { geometry, assumed };
        Ok(self.view_of(view, Some(id)))
    }

    /// Makes the step from the operand of a view operator to one of its results.
    fn view_step(
        &self,
        call: &ViewResults,
        result_index: usize,
        primitives: Option<ViewSteps>,
    ) -> ViewStep {
        let values = call.arguments.iter().flat_map(Argument::values);
        let reads_other_values = values.count() > 1;
        // A step of primitives alone does not refer to values of this scope.
        if reads_other_values && let Some(primitives) = primitives {
            return ViewStep::from_primitives(primitives);
        }
        ViewStep {
            call: Some(ViewCall {
                operator: call.operator,
                arguments: call.arguments.to_vec(),
                scope: self.scopes.innermost().number,
                result_index,
            }),
            primitives,
        }
    }

    /// Returns a view of a tensor's whole storage as a vector, in the order of its memory. Fails if the memory has gaps
    /// or overlaps.
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
        let in_memory_order = guarded.geometry.permute(&axes);
        let numel = in_memory_order.numel();
        let mut primitives: ViewSteps = Vec::new();
        if !axes.iter().copied().eq(0..axes.len()) {
            primitives.push((Permute { axes }.into(), in_memory_order.sizes));
        }
        if guarded.geometry.rank() != 1 {
            let shape = vec![numel.clone()];
            primitives.push((
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
            steps: match primitives.is_empty() {
                true => Vec::new(),
                false => vec![ViewStep::from_primitives(primitives)],
            },
            guarded: GuardedGeometry {
                geometry,
                assumed: Vec::new(),
            },
            storage,
        };
        Ok(self.view_of(view, None))
    }

    /// Applies a step to `base`, a value of the innermost graph, by new nodes there. Returns the step's value.
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
        let result = results.get(call.result_index);
        let missing = || Error::internal("a view operator has too few results");
        Ok(result.ok_or_else(missing)?.id())
    }

    /// Turns the conditions under which other tensors share this tensor's memory into guards.
    pub(super) fn assume_sharing_conditions(&self, tensor: &TensorRef) -> Result<()> {
        let conditions = tensor.storage().take_conditions();
        self.assume(&conditions)
    }

    /// Turns conditions into guards.
    pub(super) fn assume(&self, conditions: &[Guard]) -> Result<()> {
        self.builder().symbols().assume(conditions)
    }
}

/// The inputs of the computation of a view's geometry, except the operand's geometry.
struct ViewPlacement<'a> {
    builder: &'a Builder,
    /// The call that makes the view.
    call: &'a ViewResults<'a>,
    /// The primitives that make the view from the operand; none if it is not a sequence of primitives.
    primitives: Option<&'a ViewSteps>,
}

impl ViewPlacement<'_> {
    /// Returns the geometry of the view of an operand; none if PyTorch has to copy it, or if strides cannot express the
    /// view. `sizes` are the view's.
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
            _ => match self.primitives {
                Some(primitives) => geometry_after_primitives(operand, assumptions, primitives),
                None => Ok(None),
            },
        }
    }

    /// Returns the geometry that the arguments of `as_strided` give. `memory` is the geometry of the operand, which is
    /// a view of the whole storage.
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

/// Returns the geometry of a view that primitives make from an operand; none if strides cannot express the view.
fn geometry_after_primitives(
    operand: &Geometry,
    assumptions: &Assumptions,
    primitives: &ViewSteps,
) -> Result<Option<Geometry>> {
    let mut geometry = operand.clone();
    for step in primitives {
        match apply_view_step(&geometry, assumptions, step)? {
            Some(next) => geometry = next,
            None => return Ok(None),
        }
    }
    Ok(Some(geometry))
}

/// Applies primitives, each with the shape of its result, one after the other to `base`. Returns the last result.
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
