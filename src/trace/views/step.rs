//! Steps from a storage's value to the value of a view.

use std::fmt;

use crate::aten::{Operator, ViewSteps};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, ValueId};
use crate::op::Primitive;
use crate::shape::Shape;
use crate::trace::scope_stack::{ScopeStack, ValueRef};

/// A step from a storage's value to the value of a tensor.
#[derive(Clone)]
pub struct ViewStep {
    /// The operator call that computes the step; none if the primitives compute it.
    call: Option<ViewCall>,
    /// The primitives that the step consists of; none if it is not a sequence of primitives.
    primitives: Option<ViewSteps>,
}

/// A call of a view operator.
#[derive(Clone)]
pub(super) struct ViewCall {
    pub operator: &'static Operator,
    /// Arguments. On replay, the first one is replaced by the value that is viewed.
    pub arguments: Vec<Argument>,
    /// Number of the scope that the values among the other arguments belong to.
    pub scope: u32,
    /// Index of the view among the operator's results.
    pub result_index: usize,
}

impl fmt::Debug for ViewStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => write!(f, "{}{:?}", call.operator.name, call.arguments),
            None => write!(f, "{:?}", self.primitives),
        }
    }
}

impl ViewStep {
    /// Makes a step of these primitives.
    pub fn from_primitives(primitives: ViewSteps) -> ViewStep {
        ViewStep {
            call: None,
            primitives: Some(primitives),
        }
    }

    /// Makes the step of a call. A step of primitives alone does not refer to values of a scope, so it is preferred if the
    /// call has other tensors among its arguments.
    pub(super) fn from_call(call: ViewCall, primitives: Option<ViewSteps>) -> ViewStep {
        let values = call.arguments.iter().flat_map(Argument::values);
        if values.count() > 1
            && let Some(primitives) = primitives
        {
            return ViewStep::from_primitives(primitives);
        }
        ViewStep {
            call: Some(call),
            primitives,
        }
    }

    /// The primitives that the step consists of, each with the shape of its result; none if it is not a sequence of
    /// primitives.
    pub fn primitives(&self) -> Option<&ViewSteps> {
        self.primitives.as_ref()
    }

    /// Replaces the sizes in the step.
    pub fn map_sizes(&self, map: &mut impl FnMut(&Dim) -> Dim) -> ViewStep {
        let primitives = self.primitives.as_ref().map(|steps| {
            let steps = steps.iter().map(|(primitive, shape)| {
                let mut primitive = primitive.clone();
                primitive.map_sizes(map);
                (primitive, shape.iter().map(&mut *map).collect())
            });
            steps.collect()
        });
        let call = self.call.as_ref().map(|call| {
            let arguments = call.arguments.iter();
            let arguments = arguments.map(|argument| argument.map(&mut |id| id, map));
            ViewCall {
                arguments: arguments.collect(),
                ..call.clone()
            }
        });
        ViewStep { call, primitives }
    }

    /// Applies the step to `base`, a value of the innermost graph, by new nodes there. Returns the step's value.
    pub fn replay<L: Default>(&self, scopes: &mut ScopeStack<L>, base: ValueId) -> Result<ValueId> {
        let builder = scopes.innermost().builder.clone();
        let Some(call) = &self.call else {
            let steps = self.primitives.as_deref().unwrap_or_default();
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
                    Argument::Value(scopes.capture(value)?)
                }
                (_, other) => other.clone(),
            });
        }
        let results = call.operator.call(&builder, arguments)?;
        let result = results.get(call.result_index);
        let missing = || Error::internal("a view operator has too few results");
        Ok(result.ok_or_else(missing)?.id())
    }
}

/// Applies primitives, each with the shape of its result, one after the other to `base`. Returns the last result.
pub(super) fn apply_primitives(
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
