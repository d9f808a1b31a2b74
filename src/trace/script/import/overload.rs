//! Overload resolution, and conversion of the arguments of a call to arguments of a node.

use crate::aten::{self, ArgumentType, Operator, SchemaParameter};
use crate::error::{Error, Result};
use crate::ir::Argument;
use crate::scalar::Scalar;

use super::Importer;
use super::call::Arguments;
use super::datum::Datum;
use super::number::ScriptNumber;

/// How scalar tensors match parameters in one pass of overload resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchMode {
    /// Known scalar tensors match numbers: `x * tensor(2.)` is `x * 2.`, which saves a tensor.
    Numbers,
    /// Scalar tensors match tensors.
    Tensors,
    /// Scalar tensors match tensors; a tensor of one element also matches a number.
    Elements,
    /// Any match, including a number for a tensor.
    Anything,
}

impl Importer<'_> {
    /// Returns the overload of an operator that takes these arguments, and one argument for each of its parameters; none if
    /// there is no such overload.
    pub(super) fn resolve_overload(
        &mut self,
        base_name: &str,
        arguments: &Arguments,
    ) -> Result<Option<(&'static Operator, Vec<Argument>)>> {
        const ORDER: [MatchMode; 4] = [
            MatchMode::Numbers,
            MatchMode::Tensors,
            MatchMode::Elements,
            MatchMode::Anything,
        ];
        for matching in ORDER {
            for operator in aten::overloads(base_name) {
                if let Some(chosen) = self.assign_parameters(operator, arguments, matching) {
                    return Ok(Some((operator, self.convert_all(operator, chosen)?)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the argument of each parameter, `None` for a default; none at all if the arguments do not fit.
    fn assign_parameters(
        &self,
        operator: &'static Operator,
        arguments: &Arguments,
        matching: MatchMode,
    ) -> Option<Vec<Option<Datum>>> {
        let parameters = &operator.schema.parameters;
        let mut positional = arguments.positional.iter();
        let mut chosen = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let positional_argument = match parameter.keyword_only {
                true => None,
                false => positional.next(),
            };
            let mut named = arguments.named.iter();
            let named = named.find(|(name, _)| *name == parameter.name);
            let argument = positional_argument.or(named.map(|(_, value)| value));
            match argument {
                Some(value) if fits(value, parameter, matching) => chosen.push(Some(value.clone())),
                Some(_) => return None,
                None if parameter.default.is_some() => chosen.push(None),
                None => return None,
            }
        }
        let is_unknown = |name: &String| {
            let ignored = [
                "layout",
                "device",
                "pin_memory",
                "memory_format",
                "generator",
            ];
            operator.schema.position(name).is_none() && !ignored.contains(&name.as_str())
        };
        let has_surplus = positional.next().is_some();
        let is_complete = !has_surplus && !arguments.named.iter().any(|(name, _)| is_unknown(name));
        is_complete.then_some(chosen)
    }

    /// Converts the chosen arguments to the types of the operator's parameters. Defaults stand in for `None`.
    fn convert_all(
        &mut self,
        operator: &'static Operator,
        chosen: Vec<Option<Datum>>,
    ) -> Result<Vec<Argument>> {
        let pairs = chosen.into_iter().zip(&operator.schema.parameters);
        pairs
            .map(|(value, parameter)| match value {
                Some(value) => self.convert(&value, &parameter.ty),
                None => Ok(parameter.default.clone().unwrap_or(Argument::None)),
            })
            .collect()
    }

    /// Converts an argument to the type of a parameter. The argument must fit the type ([`fits_type`]).
    fn convert(&mut self, value: &Datum, ty: &ArgumentType) -> Result<Argument> {
        match (ty, value) {
            (ArgumentType::Optional(_), Datum::None) => Ok(Argument::None),
            (ArgumentType::Optional(inner), value) => self.convert(value, inner),
            (ArgumentType::Ignored, _) => Ok(Argument::None),
            (ArgumentType::List(inner, _), value) => match value.items() {
                Some(items) => self.convert_list(&items, inner),
                None => {
                    let single = self.convert(value, inner)?;
                    Ok(Argument::List(vec![single]))
                }
            },
            (ArgumentType::Tensor, value) => self.tensor_argument(value),
            (_, Datum::Str(text)) => Ok(Argument::Str(text.to_string())),
            (ArgumentType::Bool, Datum::Number(ScriptNumber::Int(dim))) => {
                let is_nonzero = dim.as_const() != Some(0);
                Ok(Argument::Number(Scalar::Bool(is_nonzero)))
            }
            (ty, Datum::Number(number)) => self.number_argument(number, ty),
            (ty, Datum::Tensor(tensor)) => match tensor.number() {
                Some(host) => self.number_argument(&host.number, ty),
                None => {
                    let kind = self.kind_of(tensor)?;
                    let number = self.converted(kind, value)?;
                    self.convert(&number, ty)
                }
            },
            (ArgumentType::Scalar, Datum::Dynamic(_, tensor)) => {
                Ok(Argument::Value(self.read(tensor)?))
            }
            (_, other) => Err(Error::internal(format!(
                "a {} does not convert to {ty:?}",
                other.describe()
            ))),
        }
    }

    /// Converts the elements of a list to a type.
    fn convert_list(&mut self, items: &[Datum], inner: &ArgumentType) -> Result<Argument> {
        let items = items.iter().map(|item| self.convert(item, inner));
        Ok(Argument::List(items.collect::<Result<_>>()?))
    }

    /// Converts a value to a tensor argument. A number becomes a scalar tensor.
    pub(super) fn tensor_argument(&mut self, value: &Datum) -> Result<Argument> {
        let tensor = self.as_tensor(value)?;
        Ok(Argument::Value(self.read(&tensor)?))
    }

    /// Converts a known number to an argument of a type.
    fn number_argument(&mut self, number: &ScriptNumber, ty: &ArgumentType) -> Result<Argument> {
        let builder = self.builder();
        let symbols = builder.symbols();
        Ok(match (number, ty) {
            (ScriptNumber::Int(dim), _) => symbols.resolve(dim).into(),
            (ScriptNumber::Ratio(..), ArgumentType::Int) => number.to_int(symbols)?.into(),
            (number, ArgumentType::Int) if number.is_float() => number.to_int(symbols)?.into(),
            (number, _) => Argument::Number(number.concrete(symbols)?),
        })
    }
}

/// True if a value can be the argument of a parameter.
fn fits(value: &Datum, parameter: &SchemaParameter, matching: MatchMode) -> bool {
    // A device may stand where another overload expects a dtype. Only the parameter's name distinguishes the two.
    if parameter.name == "device" {
        return matches!(value, Datum::Device(_) | Datum::None);
    }
    fits_type(value, &parameter.ty, matching)
}

/// True if a value can be converted to a parameter's type.
fn fits_type(value: &Datum, ty: &ArgumentType, matching: MatchMode) -> bool {
    let lenient = matching == MatchMode::Anything;
    let takes_elements = lenient || matching == MatchMode::Elements;
    match (ty, value) {
        (ArgumentType::Ignored, value) => !matches!(value, Datum::Tensor(_) | Datum::List(_)),
        (ArgumentType::Optional(_), Datum::None) => true,
        (ArgumentType::Optional(inner), value) => fits_type(value, inner, matching),
        (ArgumentType::List(inner, sized), value) => match value.items() {
            Some(items) => items.iter().all(|item| fits_type(item, inner, matching)),
            None => *sized && fits_type(value, inner, matching),
        },
        (ArgumentType::Tensor, Datum::Tensor(tensor)) => {
            matching != MatchMode::Numbers || tensor.number().is_none()
        }
        (ArgumentType::Tensor, Datum::Dynamic(..)) => true,
        (ArgumentType::Tensor, Datum::Number(_)) => lenient,
        (ArgumentType::Str, Datum::Str(_)) => true,
        (ty, Datum::Number(number)) => fits_number(number, ty, lenient),
        (ArgumentType::Scalar, Datum::Dynamic(..)) => takes_elements,
        (ty, Datum::Tensor(tensor)) if matching != MatchMode::Tensors => match tensor.number() {
            Some(host) => fits_number(&host.number, ty, lenient),
            None => takes_elements && *ty == ArgumentType::Scalar,
        },
        _ => false,
    }
}

/// True if a known number can be converted to a parameter's type. If `lenient`, conversions that may lose information,
/// and those between bools and other numbers, are allowed.
fn fits_number(number: &ScriptNumber, ty: &ArgumentType, lenient: bool) -> bool {
    match (ty, number) {
        (ArgumentType::Scalar, _) => true,
        (ArgumentType::Bool, ScriptNumber::Bool(_)) => true,
        (ArgumentType::Bool, ScriptNumber::Int(dim)) => lenient && dim.as_const().is_some(),
        (ArgumentType::Int | ArgumentType::DType, ScriptNumber::Int(_)) => true,
        (ArgumentType::Int, _) => lenient,
        (ArgumentType::Float, number) => lenient || !matches!(number, ScriptNumber::Bool(_)),
        _ => false,
    }
}
