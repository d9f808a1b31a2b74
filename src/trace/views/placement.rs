//! The memory of an operator's results: a view of an operand, the operand itself, or memory of its own.

use crate::aten::apply_view_step;
use crate::aten::{Args, Operator, ResultPlacement, StrideRule, ViewSteps, WantedFormat};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::geometry::{Assumptions, Geometry, MemoryFormat};
use crate::ir::{Argument, Builder};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::symbols::Guard;

use super::GuardedGeometry;
use super::step::{ViewCall, ViewStep};

/// A call of a view operator whose results need memory.
pub struct ViewCallPlacement<'a> {
    /// The operator.
    pub operator: &'static Operator,
    /// Arguments of the node.
    pub arguments: &'a [Argument],
    /// Builder of the graph that the call is in.
    pub builder: &'a Builder,
    /// Number of the scope of that graph.
    pub scope: u32,
    /// The argument `memory_format=`.
    pub format: WantedFormat,
}

/// The memory of a result of a view operator.
pub enum ResultMemory {
    /// The operand itself.
    Operand,
    /// A view of the operand: one more step, and the geometry of the result in the operand's storage.
    View(Box<ViewStep>, GuardedGeometry),
    /// New memory, where PyTorch has to copy.
    Copy(GuardedGeometry),
}

/// The memory of a result of a view operator, with the conditions that decide whether it is shared.
pub struct PlacedView {
    /// The memory.
    pub memory: ResultMemory,
    /// Conditions under which the result shares memory with the operand, or does not. They become guards when the
    /// operand's storage or the result's is written.
    pub conditions: Vec<Guard>,
}

impl ViewCallPlacement<'_> {
    /// Places the results of a view operator. `bases` holds the geometry of the operand of each result, or one operand for
    /// all results; `shapes` are the shapes of the results.
    pub fn place(&self, bases: &[GuardedGeometry], shapes: &[Shape]) -> Result<Vec<PlacedView>> {
        let primitives_of_results = self.operator.view_steps(self.builder, self.arguments)?;
        let numbered = shapes.iter().enumerate();
        let placed = numbered.map(|(index, sizes)| {
            let primitives = primitives_of_results.get(index).cloned().flatten();
            let base = bases.get(index).or(bases.first());
            let base = base.ok_or_else(|| Error::internal("a view has no operand"))?;
            self.place_result(base, index, sizes, primitives)
        });
        placed.collect()
    }

    /// Places one result of these sizes, which `primitives` make from `base`.
    fn place_result(
        &self,
        base: &GuardedGeometry,
        result_index: usize,
        sizes: &Shape,
        primitives: Option<ViewSteps>,
    ) -> Result<PlacedView> {
        let stride_rule = self.operator.row.strides;
        let is_unchanged = primitives.as_ref().is_some_and(Vec::is_empty);
        if stride_rule == StrideRule::ItselfOrView && is_unchanged {
            return Ok(PlacedView {
                memory: ResultMemory::Operand,
                conditions: Vec::new(),
            });
        }
        if stride_rule == StrideRule::ItselfOrNew {
            return self.place_conversion(base, sizes, is_unchanged);
        }
        let (geometry, assumed) = base.derive(self.builder, |geometry, assumptions| {
            self.geometry(geometry, assumptions, sizes, primitives.as_ref())
        })?;
        let conditions = match stride_rule.may_copy() {
            true => assumed.clone(),
            false => Vec::new(),
        };
        let memory = match geometry {
            None if stride_rule.may_copy() => {
                ResultMemory::Copy(GuardedGeometry::contiguous(sizes.clone()))
            }
            geometry => {
                let geometry = geometry.unwrap_or_else(|| Geometry::contiguous(sizes.clone()));
                let step = Box::new(self.step(result_index, primitives));
                ResultMemory::View(step, GuardedGeometry { geometry, assumed })
            }
        };
        Ok(PlacedView { memory, conditions })
    }

    /// Places the result of an operator that returns its operand if nothing changes, else new memory. `is_unchanged` is
    /// true if the elements do not change.
    fn place_conversion(
        &self,
        base: &GuardedGeometry,
        sizes: &Shape,
        is_unchanged: bool,
    ) -> Result<PlacedView> {
        let position = self.operator.schema.position("copy");
        let copy = position.and_then(|position| self.arguments.get(position));
        let may_return_operand =
            is_unchanged && copy != Some(&Argument::Number(Scalar::Bool(true)));
        let (geometry, conditions) = base.derive(self.builder, |operand, assumptions| {
            if may_return_operand && self.keeps_format(operand, assumptions)? {
                return Ok(None);
            }
            Ok(Some(match self.wanted_format() {
                WantedFormat::Format(format) => Geometry::of_format(sizes.clone(), format),
                _ => operand.preserved(assumptions)?,
            }))
        })?;
        let assumed = conditions.clone();
        let copy = |geometry| ResultMemory::Copy(GuardedGeometry { geometry, assumed });
        Ok(PlacedView {
            memory: geometry.map_or(ResultMemory::Operand, copy),
            conditions,
        })
    }

    /// The memory format that the result has to have.
    fn wanted_format(&self) -> WantedFormat {
        match (self.format, self.operator.schema.name.as_str()) {
            (WantedFormat::Default, "contiguous") => WantedFormat::Format(MemoryFormat::Contiguous),
            (format, _) => format,
        }
    }

    /// True if the operand has the wanted memory format already. `Tensor.to` decides by the format that strides suggest.
    fn keeps_format(&self, operand: &Geometry, assumptions: &Assumptions) -> Result<bool> {
        match (self.wanted_format(), self.operator.schema.name.as_str()) {
            (WantedFormat::Format(format), "contiguous") => operand.has_format(assumptions, format),
            (WantedFormat::Format(format), _) => {
                Ok(operand.suggested_format(assumptions)? == format)
            }
            _ => Ok(true),
        }
    }

    /// Makes the step from the operand to one of the results.
    fn step(&self, result_index: usize, primitives: Option<ViewSteps>) -> ViewStep {
        let call = ViewCall {
            operator: self.operator,
            arguments: self.arguments.to_vec(),
            scope: self.scope,
            result_index,
        };
        ViewStep::from_call(call, primitives)
    }

    /// Returns the geometry of a view of an operand; none if PyTorch has to copy it, or if strides cannot express the view.
    /// `sizes` are the view's.
    fn geometry(
        &self,
        operand: &Geometry,
        assumptions: &Assumptions,
        sizes: &Shape,
        primitives: Option<&ViewSteps>,
    ) -> Result<Option<Geometry>> {
        let (operator, arguments) = (self.operator, self.arguments);
        match operator.row.strides {
            StrideRule::Reshape => operand.reshape(assumptions, sizes),
            StrideRule::Contiguous if !operand.is_contiguous(assumptions)? => Ok(None),
            StrideRule::Contiguous => operand.reshape(assumptions, sizes),
            StrideRule::Unsqueeze => {
                let axis = operator.unsqueezed_axis(self.builder, arguments, operand.rank())?;
                Ok(Some(operand.unsqueeze(axis)))
            }
            StrideRule::Diagonal => {
                let (axes, offset) =
                    operator.diagonal_axes(self.builder, arguments, operand.rank())?;
                let length = sizes.last().cloned().unwrap_or(Dim::ZERO);
                Ok(Some(operand.diagonal(axes, offset, &length)))
            }
            StrideRule::AsStrided => self.as_strided_geometry(operand, sizes).map(Some),
            _ => match primitives {
                Some(primitives) => geometry_after_primitives(operand, assumptions, primitives),
                None => Ok(None),
            },
        }
    }

    /// Returns the geometry that the arguments of `as_strided` give. `memory` is the geometry of the operand, which is
    /// a view of the whole storage.
    fn as_strided_geometry(&self, memory: &Geometry, sizes: &Shape) -> Result<Geometry> {
        let args = Args::new(self.builder, self.operator, self.arguments);
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

/// Returns geometries with PyTorch's strides for new results of these shapes. `operands` holds the geometries of the tensors
/// among the arguments, one list for each parameter; `format` is the argument `memory_format=`.
pub fn new_geometries(
    operator: &'static Operator,
    arguments: &[Argument],
    builder: &Builder,
    operands: &[Vec<GuardedGeometry>],
    format: WantedFormat,
    shapes: &[Shape],
) -> Result<Vec<GuardedGeometry>> {
    let assumptions = Assumptions::new(builder.symbols(), &[]);
    let geometries_of_parameter = |operands: &Vec<GuardedGeometry>| {
        let geometries = operands.iter().map(|guarded| {
            let assumed = guarded.assumed.iter().cloned();
            assumed.for_each(|guard| assumptions.assume(guard));
            guarded.geometry.clone()
        });
        geometries.collect()
    };
    // Contiguous results do not depend on the assumptions about the operands.
    let operands: Vec<Vec<Geometry>> = match operator.row.strides {
        StrideRule::Standard => Vec::new(),
        _ => operands.iter().map(geometries_of_parameter).collect(),
    };
    let placement = ResultPlacement {
        operator,
        arguments,
        operands: &operands,
        builder,
        format,
        assumptions: &assumptions,
    };
    let geometries = shapes.iter().map(|shape| placement.new_result(shape));
    let geometries = geometries.collect::<Result<Vec<_>>>()?;
    let assumed = assumptions.into_guards();
    let guarded = geometries.into_iter().map(|geometry| GuardedGeometry {
        geometry,
        assumed: assumed.clone(),
    });
    Ok(guarded.collect())
}
