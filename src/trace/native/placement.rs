//! The memory of a call's results: views of operands, operands themselves, or memory of their own.

use crate::aten::{Operator, StrideRule, WantedFormat};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::{Argument, Builder, ValueId};
use crate::shape::Shape;
use crate::symbols::{Guard, Symbols};
use crate::tensor::Tensor;
use crate::trace::views::{
    GuardedGeometry, ResultMemory, ViewCallPlacement, ViewStep, new_geometries,
};

use super::recorder::{RecordedCall, Recorder};
use super::storage::{Geometries, TracedOrigin, TracedStorage};
use super::storage_values::RecordedValue;
use super::tensor::TracedTensor;

/// A call whose results need memory.
struct PlacedCall<'a> {
    operator: &'static Operator,
    /// Builder of the graph that the call is in, and the number of its scope.
    builder: &'a Builder,
    scope: u32,
    /// Arguments of the node in that graph.
    arguments: &'a [Argument],
    /// The tensors among the arguments, one list for each parameter.
    operands: Vec<Vec<TracedTensor>>,
    /// The argument `memory_format=`.
    format: WantedFormat,
    /// Number of the active trace; none outside of traces.
    trace: Option<u64>,
}

/// The memory of a result.
enum PlacedResult {
    View(TracedTensor, ViewStep, GuardedGeometry),
    New(GuardedGeometry, Vec<Guard>),
}

/// A call with its operands.
pub(super) struct ResolvedArguments<'a> {
    /// One argument for each parameter. The values in them are indices of `tensors`.
    pub arguments: &'a [Argument],
    pub tensors: &'a [TracedTensor],
    /// The argument `memory_format=`.
    pub format: WantedFormat,
}

/// Makes the results of a call outside of traces.
pub(super) fn eager_results(
    operator: &'static Operator,
    call: &ResolvedArguments<'_>,
    values: Vec<Tensor>,
) -> Result<Vec<TracedTensor>> {
    let ResolvedArguments {
        arguments,
        tensors,
        format,
    } = *call;
    let is_contiguous = operator.row.strides == StrideRule::Standard && !operator.is_view();
    if is_contiguous && format == WantedFormat::Default {
        return Ok(values.into_iter().map(TracedTensor::from).collect());
    }
    let builder = Builder::new("call");
    let ids = tensors
        .iter()
        .map(|tensor| Ok(builder.input("x", tensor.value()?.tensor_type()).id()));
    let ids: Vec<ValueId> = ids.collect::<Result<_>>()?;
    let mut value = |id: ValueId| ids.get(id.index()).copied().unwrap_or(id);
    let mapped = arguments.iter();
    let mapped = mapped.map(|argument| argument.map(&mut value, &mut Dim::clone));
    let mapped: Vec<Argument> = mapped.collect();
    let call = PlacedCall {
        operator,
        builder: &builder,
        scope: 0,
        arguments: &mapped,
        operands: operands(arguments, tensors),
        format,
        trace: None,
    };
    let shapes = values.iter().map(|value| value.tensor_type().shape);
    let placed = call.place(&shapes.collect::<Vec<_>>())?;
    let pairs = placed.into_iter().zip(values);
    Ok(pairs
        .map(|(placed, value)| placed.eager_tensor(value))
        .collect())
}

/// Makes the results of a call that a trace has recorded.
pub(super) fn recorded_results(
    recorder: &Recorder,
    recorded: &RecordedCall,
    call: &ResolvedArguments<'_>,
    values: Vec<Tensor>,
) -> Result<Vec<TracedTensor>> {
    let (builder, scope) = recorder.innermost();
    let call = PlacedCall {
        operator: recorded.operator,
        builder: &builder,
        scope,
        arguments: &recorded.arguments,
        operands: operands(call.arguments, call.tensors),
        format: call.format,
        trace: Some(recorder.number()),
    };
    let shapes = recorded.ids.iter().map(|id| builder.ty(*id).shape);
    let placed = call.place(&shapes.collect::<Vec<_>>())?;
    let results = placed.into_iter().zip(&recorded.ids).zip(values);
    let tensors = results.map(|((placed, id), example)| {
        let id = recorder.value_ref(*id);
        placed.recorded_tensor(recorder, RecordedValue { id, example })
    });
    tensors.collect()
}

impl PlacedCall<'_> {
    /// Places results of these shapes.
    fn place(&self, shapes: &[Shape]) -> Result<Vec<PlacedResult>> {
        let geometries = self.operands.iter().map(|tensors| {
            let geometries = tensors.iter().map(|tensor| self.geometry(tensor));
            geometries.collect::<Result<Vec<_>>>()
        });
        let geometries: Vec<Vec<GuardedGeometry>> = geometries.collect::<Result<_>>()?;
        match self.operator.is_view() {
            true => self.place_views(geometries.first().map_or(&[], Vec::as_slice), shapes),
            false => self.place_new(&geometries, shapes),
        }
    }

    /// Places results in memory of their own.
    fn place_new(
        &self,
        geometries: &[Vec<GuardedGeometry>],
        shapes: &[Shape],
    ) -> Result<Vec<PlacedResult>> {
        let (operator, arguments) = (self.operator, self.arguments);
        let format = self.format;
        let new = new_geometries(
            operator,
            arguments,
            self.builder,
            geometries,
            format,
            shapes,
        )?;
        let new = new.into_iter();
        Ok(new
            .map(|guarded| PlacedResult::New(guarded, Vec::new()))
            .collect())
    }

    /// Places the results of a view operator, whose operands have these geometries.
    fn place_views(
        &self,
        geometries: &[GuardedGeometry],
        shapes: &[Shape],
    ) -> Result<Vec<PlacedResult>> {
        let call = ViewCallPlacement {
            operator: self.operator,
            arguments: self.arguments,
            builder: self.builder,
            scope: self.scope,
            format: self.format,
        };
        let bases = self.operands.first().map_or(&[][..], Vec::as_slice);
        let placed = call.place(geometries, shapes)?.into_iter().enumerate();
        let results = placed.filter_map(|(index, placed)| {
            let base = bases.get(index).or(bases.first())?.clone();
            if let Some(trace) = self.trace {
                base.storage_view()
                    .storage
                    .add_conditions(trace, &placed.conditions);
            }
            Some(match placed.memory {
                // The node's result names the operand's value in the graph.
                ResultMemory::Operand => {
                    let step = ViewStep::from_primitives(Vec::new());
                    let guarded = geometries.get(index).or(geometries.first())?;
                    PlacedResult::View(base, step, guarded.clone())
                }
                ResultMemory::View(step, guarded) => PlacedResult::View(base, *step, guarded),
                ResultMemory::Copy(guarded) => PlacedResult::New(guarded, placed.conditions),
            })
        });
        Ok(results.collect())
    }

    /// Geometry of an operand.
    fn geometry(&self, tensor: &TracedTensor) -> Result<GuardedGeometry> {
        let view = tensor.storage_view();
        let guarded = match self.trace {
            None => view.concrete.guarded,
            Some(trace) => view.in_trace(trace)?.guarded.clone(),
        };
        Ok(guarded.resolve(self.builder))
    }
}

impl PlacedResult {
    /// The result of a call outside of traces.
    fn eager_tensor(self, value: Tensor) -> TracedTensor {
        match self {
            PlacedResult::View(base, step, guarded) => {
                let mut view = base.storage_view();
                view.concrete.steps.push(step);
                view.concrete.guarded = guarded;
                view.symbolic = None;
                TracedTensor::of_view(view, value, None)
            }
            PlacedResult::New(concrete, _) => {
                let geometry = Geometries {
                    concrete,
                    symbolic: None,
                };
                TracedTensor::of_storage(TracedStorage::new(
                    Ok(value),
                    TracedOrigin::Host,
                    geometry,
                ))
            }
        }
    }

    /// The result of a call in a trace.
    fn recorded_tensor(self, recorder: &Recorder, value: RecordedValue) -> Result<TracedTensor> {
        let (builder, _) = recorder.innermost();
        let trace = recorder.number();
        Ok(match self {
            PlacedResult::View(base, step, guarded) => {
                let mut view = base.storage_view();
                let mut symbolic = view.in_trace(trace)?.clone();
                view.concrete
                    .steps
                    .push(concrete_step(builder.symbols(), &step)?);
                view.concrete.guarded = concrete_geometry(builder.symbols(), &guarded)?;
                symbolic.steps.push(step);
                symbolic.guarded = guarded;
                view.symbolic = Some((trace, symbolic));
                TracedTensor::of_view(view, value.example, Some((trace, value.id)))
            }
            PlacedResult::New(guarded, conditions) => {
                let geometry = Geometries {
                    concrete: concrete_geometry(builder.symbols(), &guarded)?,
                    symbolic: Some((trace, guarded)),
                };
                let origin = TracedOrigin::Recorded(trace, value.id);
                let storage = TracedStorage::new(Ok(value.example), origin, geometry);
                storage.add_conditions(trace, &conditions);
                TracedTensor::of_storage(storage)
            }
        })
    }
}

/// The step with the sizes of the example.
fn concrete_step(symbols: &Symbols, step: &ViewStep) -> Result<ViewStep> {
    let mut error = None;
    let step = step.map_sizes(&mut |size| concrete_size(symbols, size, &mut error));
    error.map_or(Ok(step), Err)
}

/// The geometry with the sizes of the example.
pub(super) fn concrete_geometry(
    symbols: &Symbols,
    guarded: &GuardedGeometry,
) -> Result<GuardedGeometry> {
    let mut error = None;
    let mut geometry = guarded.geometry.clone();
    geometry.map_sizes(&mut |size| concrete_size(symbols, size, &mut error));
    let assumed = Vec::new();
    error.map_or(Ok(GuardedGeometry { geometry, assumed }), Err)
}

/// The example's value of a size. Sets `error` if it has none.
fn concrete_size(symbols: &Symbols, size: &Dim, error: &mut Option<crate::error::Error>) -> Dim {
    match symbols.hint(size) {
        Ok(value) => Dim::from(value),
        Err(unknown) => {
            error.get_or_insert(unknown);
            Dim::ZERO
        }
    }
}

/// The tensors among the arguments, one list for each parameter. The values among the arguments are indices of `tensors`.
fn operands(arguments: &[Argument], tensors: &[TracedTensor]) -> Vec<Vec<TracedTensor>> {
    let tensor = |id: ValueId| tensors.get(id.index()).cloned();
    let operands = arguments
        .iter()
        .map(|argument| argument.values().into_iter().filter_map(tensor).collect());
    operands.collect()
}
