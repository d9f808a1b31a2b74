//! Calls of operators: computed at once, and recorded if a trace is active.

use crate::aten::{self, ArgumentType, Operator, Parameter};
use crate::error::{Error, Place, Result};
use crate::ir::Argument;

use super::argument::Arg;
use super::recorder;
use super::tensor::Tensor;

/// Calls an operator of the dictionary by PyTorch's name (`softmax`), with positional and named arguments; the overload is
/// chosen as PyTorch chooses it. The methods of [`Tensor`] are made of this.
///
/// What fails is remembered in the results; there is always at least one.
#[track_caller]
pub fn call(name: &str, positional: Vec<Arg>, named: Vec<(&str, Arg)>) -> Vec<Tensor> {
    let place = recorder::caller();
    let results = Call::resolve(name, &positional, &named);
    let results = results.and_then(|call| call.run(&place));
    results.unwrap_or_else(|error| {
        let error = error.at_place(&place);
        recorder::fail(error.clone());
        vec![Tensor::failed(error)]
    })
}

/// A call whose operator is known; tensors among the arguments are values by index.
struct Call {
    operator: &'static Operator,
    arguments: Vec<Argument>,
    tensors: Vec<Tensor>,
}

impl Call {
    fn resolve(name: &str, positional: &[Arg], named: &[(&str, Arg)]) -> Result<Call> {
        let mut tensors = Vec::new();
        let positional = positional.iter();
        let positional = positional.map(|argument| argument.number_tensors(&mut tensors));
        let positional: Vec<Argument> = positional.collect();
        let named = named.iter();
        let named = named.map(|(name, argument)| (*name, argument.number_tensors(&mut tensors)));
        let named: Vec<(&str, Argument)> = named.collect();
        for operator in aten::overloads(&format!("aten::{name}")) {
            if let Some(arguments) = assign(operator, &positional, &named) {
                return Ok(Call {
                    operator,
                    arguments,
                    tensors,
                });
            }
        }
        Err(no_overload(name))
    }

    fn run(self, place: &Place) -> Result<Vec<Tensor>> {
        if let Some(error) = self.tensors.iter().find_map(Tensor::error) {
            // It was told when it happened.
            return Ok(vec![Tensor::failed(error)]);
        }
        let values = self.tensors.iter().map(Tensor::value);
        let values: Vec<crate::tensor::Tensor> = values.collect::<Result<_>>()?;
        let Some(recorder) = recorder::active() else {
            let results =
                crate::interp::call(self.operator, &self.arguments, &values, &Default::default())?;
            return Ok(results.into_iter().map(Tensor::from).collect());
        };
        let ids = recorder.call(self.operator, &self.arguments, &self.tensors, place)?;
        let results =
            crate::interp::call(self.operator, &self.arguments, &values, &recorder.hints())?;
        let pairs = ids.into_iter().zip(results);
        Ok(pairs
            .map(|(id, value)| recorder.tensor(id, value))
            .collect())
    }
}

/// One argument for each parameter of an operator; none if they do not fit it.
fn assign(
    operator: &'static Operator,
    positional: &[Argument],
    named: &[(&str, Argument)],
) -> Option<Vec<Argument>> {
    let mut positional = positional.iter();
    let mut chosen = Vec::new();
    for parameter in &operator.schema.parameters {
        let next = match parameter.keyword_only {
            true => None,
            false => positional.next(),
        };
        let by_name = named.iter().find(|(name, _)| *name == parameter.name);
        let given = next.or(by_name.map(|(_, argument)| argument));
        chosen.push(match given {
            Some(argument) => convert(parameter, argument)?,
            None => parameter.default.clone()?,
        });
    }
    let unknown = |(name, _): &(&str, Argument)| operator.schema.position(name).is_none();
    let complete = positional.next().is_none() && !named.iter().any(unknown);
    complete.then_some(chosen)
}

/// An argument as the parameter wants it; a single element stands for a list of fixed length.
fn convert(parameter: &Parameter, argument: &Argument) -> Option<Argument> {
    if !parameter.ty.accepts(argument) {
        return None;
    }
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

fn no_overload(name: &str) -> Error {
    let base = format!("aten::{name}");
    let overloads = aten::overloads(&base);
    let schemas: Vec<String> = overloads
        .map(|operator| operator.schema.to_string())
        .collect();
    if schemas.is_empty() {
        return Error::unsupported(format!("there is no operator {name}"));
    }
    let error = Error::operator(format!("{name} does not take these arguments"));
    error.help(format!("it takes {}", schemas.join(" or ")))
}
