//! Operator calls: computed eagerly, and recorded if a trace is active.

use crate::aten::{self, ArgumentType, Operator, SchemaParameter, StrideRule, WantedFormat};
use crate::dim::Dim;
use crate::error::{Error, Result, SourcePlace};
use crate::interp::loop_limit;
use crate::ir::Argument;

use super::argument::{Arg, GivenArgument};
use super::argument_errors::mismatch_error;
use super::call_site;
use super::in_place::call_in_place;
use super::placement::{ResolvedArguments, eager_results, recorded_results};
use super::random;
use super::recorded_form::recorded_convolution;
use super::recorder;
use super::tensor::TracedTensor;

/// Calls an operator of the dictionary by PyTorch's name (`softmax`, `add_`), with positional and named arguments. The overload
/// is chosen as in PyTorch. The methods of [`TracedTensor`] use this function.
///
/// There is always at least one result. If the call fails, the result holds the error.
#[track_caller]
pub fn call(name: &str, positional: Vec<Arg>, named: Vec<(&str, Arg)>) -> Vec<TracedTensor> {
    call_at(&call_site::caller(), name, positional, named)
}

/// [`call`] with an explicit source place. Nodes that the tracer itself adds get the line of the user's call that needs
/// them.
pub(super) fn call_at(
    place: &SourcePlace,
    name: &str,
    positional: Vec<Arg>,
    named: Vec<(&str, Arg)>,
) -> Vec<TracedTensor> {
    let functional = name.strip_suffix('_').filter(|name| !name.ends_with('_'));
    if let Some(functional) = functional {
        return vec![call_in_place(place, functional, positional, named)];
    }
    let operators = aten::overloads(&format!("aten::{name}")).collect();
    dispatch(place, name, operators, &positional, &named)
}

/// Calls the first operator of a list (`aten.softmax.int`) that accepts the arguments.
#[track_caller]
pub(super) fn call_operators(
    names: &[&str],
    positional: Vec<Arg>,
    named: Vec<(&str, Arg)>,
) -> Vec<TracedTensor> {
    let operators = names.iter().filter_map(|name| aten::operator(name).ok());
    let operators: Vec<&Operator> = operators.collect();
    let name = operators
        .first()
        .map(|operator| operator.schema.name.as_str());
    let name = name.unwrap_or_default();
    let place = call_site::caller();
    dispatch(&place, name, operators, &positional, &named)
}

/// Calls the first of the operators that accepts the arguments. `name` is the operators' name in errors.
fn dispatch(
    place: &SourcePlace,
    name: &str,
    operators: Vec<&'static Operator>,
    positional: &[Arg],
    named: &[(&str, Arg)],
) -> Vec<TracedTensor> {
    let call = ResolvedCall::resolve(name, &operators, positional, named);
    let results = call.and_then(|call| call.run(place));
    results.unwrap_or_else(|error| vec![failed_at(error, place)])
}

/// Returns a failed tensor with the caller's line as the error's place.
#[track_caller]
pub(in crate::trace) fn failed(error: Error) -> TracedTensor {
    failed_at(error, &call_site::caller())
}

/// Returns a failed tensor and records the error in the active trace.
pub(super) fn failed_at(error: Error, place: &SourcePlace) -> TracedTensor {
    let error = error.at_place(place);
    recorder::fail(error.clone());
    TracedTensor::failed(error)
}

/// A call with a chosen operator.
struct ResolvedCall {
    operator: &'static Operator,
    /// One argument for each parameter. The values in them are indices of `tensors`.
    arguments: Vec<Argument>,
    tensors: Vec<TracedTensor>,
    /// The argument `memory_format=`.
    format: WantedFormat,
}

impl ResolvedCall {
    /// Chooses the first operator that accepts the arguments. `name` is the operators' name in errors.
    fn resolve(
        name: &str,
        operators: &[&'static Operator],
        positional: &[Arg],
        named: &[(&str, Arg)],
    ) -> Result<ResolvedCall> {
        let mut tensors = Vec::new();
        let mut given = |argument: &Arg| GivenArgument::new(argument, &mut tensors);
        let positional = positional.iter().map(&mut given);
        let positional: Vec<GivenArgument> = positional.collect::<Result<_>>()?;
        let named = named.iter();
        let named = named.map(|(name, argument)| Ok((*name, given(argument)?)));
        let named: Vec<(&str, GivenArgument)> = named.collect::<Result<_>>()?;
        let resolved = |positional: &[GivenArgument]| {
            operators.iter().find_map(|operator| {
                Some(ResolvedCall {
                    operator,
                    arguments: assign_arguments(operator, positional, &named)?,
                    tensors: tensors.clone(),
                    format: wanted_format(operator, positional, &named),
                })
            })
        };
        let with_lists = || {
            let lists = positional.iter().map(GivenArgument::as_list);
            resolved(&lists.collect::<Vec<_>>())
        };
        let call = resolved(&positional).or_else(with_lists);
        call.ok_or_else(|| mismatch_error(name, operators, &positional, &named))
    }

    /// Computes the results. Adds a node if a trace is active.
    fn run(mut self, place: &SourcePlace) -> Result<Vec<TracedTensor>> {
        loop_limit::check_program_time(place)?;
        if let Some(error) = self.tensors.iter().find_map(TracedTensor::error) {
            // The error was reported when it occurred.
            return Ok(vec![TracedTensor::failed(error)]);
        }
        random::seed_call(self.operator, &mut self.arguments);
        self.replace_convolution()?;
        self.read_storage()?;
        let values = self.tensors.iter().map(TracedTensor::value);
        let values: Vec<crate::tensor::Tensor> = values.collect::<Result<_>>()?;
        let (operator, arguments) = (self.operator, &self.arguments);
        let call = ResolvedArguments {
            arguments,
            tensors: &self.tensors,
            format: self.format,
        };
        let Some(recorder) = recorder::active() else {
            let results = crate::interp::call(operator, arguments, &values, &Default::default())?;
            return eager_results(operator, &call, results);
        };
        let recorded = recorder.call(operator, arguments, &self.tensors, place)?;
        let resolved = recorder.resolve_arguments(arguments);
        let results = crate::interp::call(operator, &resolved, &values, &recorder.hints())?;
        recorded_results(&recorder, &recorded, &call, results)
    }

    /// Replaces a functional convolution by the operator that PyTorch records for it.
    fn replace_convolution(&mut self) -> Result<()> {
        let rank = self.tensors.first().map_or(0, TracedTensor::rank);
        let recorded = recorded_convolution(self.operator, &self.arguments, rank)?;
        if let Some((operator, arguments)) = recorded {
            (self.operator, self.arguments) = (operator, arguments);
        }
        Ok(())
    }

    /// Rewrites the arguments of an operator that reads a tensor's whole storage (`as_strided`): the storage becomes the
    /// operand, and the offset counts from its start.
    fn read_storage(&mut self) -> Result<()> {
        let offset = self.operator.schema.position("storage_offset");
        let reads_storage = self.operator.row.strides == StrideRule::AsStrided;
        let first = self.tensors.first_mut().filter(|_| reads_storage);
        let offset = offset.and_then(|position| self.arguments.get_mut(position));
        if let (Some(first), Some(offset)) = (first, offset) {
            let memory = first.memory()?;
            let given = match &*offset {
                Argument::Size(size) => size.clone(),
                Argument::Number(number) => Dim::from(number.to_i64()),
                _ => first.offset()?,
            };
            *offset = (given - memory.offset()?).into();
            *first = memory;
        }
        Ok(())
    }
}

/// The argument `memory_format=`, which nodes do not have.
fn wanted_format(
    operator: &Operator,
    positional: &[GivenArgument],
    named: &[(&str, GivenArgument)],
) -> WantedFormat {
    let position = operator.schema.position("memory_format");
    let by_name = named.iter().find(|(name, _)| *name == "memory_format");
    let given = position.and_then(|position| positional.get(position));
    let given = given.or(by_name.map(|(_, argument)| argument));
    WantedFormat::from_torch_code(match given.map(|given| &given.value) {
        Some(Argument::Number(code)) => Some(code.to_i64()),
        _ => None,
    })
}

/// Assigns an argument to each parameter of an operator. None if the operator does not accept the arguments.
fn assign_arguments(
    operator: &'static Operator,
    positional: &[GivenArgument],
    named: &[(&str, GivenArgument)],
) -> Option<Vec<Argument>> {
    let mut positional = positional.iter();
    let mut assigned = Vec::new();
    for parameter in &operator.schema.parameters {
        let next = match parameter.keyword_only {
            true => None,
            false => positional.next(),
        };
        let by_name = named.iter().find(|(name, _)| *name == parameter.name);
        let given = next.or(by_name.map(|(_, argument)| argument));
        assigned.push(match given {
            Some(argument) => convert_argument(parameter, argument)?,
            None => parameter.default.clone()?,
        });
    }
    let unknown = |(name, _): &(&str, GivenArgument)| operator.schema.position(name).is_none();
    let all_used = positional.next().is_none() && !named.iter().any(unknown);
    all_used.then_some(assigned)
}

/// Converts an argument to the parameter's type. A single element becomes a list for a list parameter. None if the
/// parameter does not accept the argument.
fn convert_argument(parameter: &SchemaParameter, given: &GivenArgument) -> Option<Argument> {
    if !given.fits(&parameter.ty) {
        return None;
    }
    let argument = &given.value;
    let inner = match &parameter.ty {
        ArgumentType::Optional(inner) => inner,
        ty => ty,
    };
    Some(match (inner, argument) {
        (ArgumentType::Ignored, _) => Argument::None,
        (_, Argument::None | Argument::List(_)) => argument.clone(),
        (ArgumentType::List(..), single) => Argument::List(vec![single.clone()]),
        _ => argument.clone(),
    })
}
