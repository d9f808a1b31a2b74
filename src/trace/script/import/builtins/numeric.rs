//! Arithmetic on known numbers and on scalar tensors whose value is known.

use crate::aten;
use crate::dtype::{Category, DType};
use crate::error::{Error, Result};

use crate::symbols::Symbols;
use crate::trace::script::import::Importer;
use crate::trace::script::import::call::Arguments;
use crate::trace::script::import::datum::{Datum, NumberKind};
use crate::trace::script::import::number::{self, ScriptNumber};
use crate::trace::script::import::operator::{named_argument, python_dtype};
use crate::trace::script::import::tensor::{HostNumber, TensorRef};

impl Importer<'_> {
    /// Evaluates operators on known numbers and known scalar tensors, and conversions to numbers; none for others.
    pub(super) fn numeric(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let first = arguments.positional.first();
        match (name, first) {
            ("NumToTensor", Some(value)) => {
                return Ok(Some(Datum::Tensor(self.as_tensor(value)?)));
            }
            ("Int" | "IntImplicit", Some(value)) => {
                return self.converted(NumberKind::Int, value).map(Some);
            }
            ("Float" | "FloatImplicit", Some(value)) => {
                return self.converted(NumberKind::Float, value).map(Some);
            }
            ("Bool", Some(value)) => return self.converted(NumberKind::Bool, value).map(Some),
            ("ScalarImplicit" | "item" | "Scalar", Some(Datum::Tensor(tensor))) => {
                return self.item(&tensor.clone()).map(Some);
            }
            ("min" | "max" | "sum", Some(Datum::List(list))) if arguments.positional.len() == 1 => {
                let items = list.items.borrow().clone();
                return self.list_reduction(name, &items);
            }
            ("__range_length", _) => return self.range_length(arguments).map(Some),
            ("__derive_index", _) => return self.derive_index(arguments).map(Some),
            ("gather" | "where", _) => return Ok(None),
            _ => {}
        }
        self.known_arithmetic(name, arguments)
    }

    /// Evaluates a function of numbers and scalar tensors if all of them are known. A function whose name ends in `_` writes
    /// to its first operand.
    fn known_arithmetic(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let in_place = name.strip_suffix('_').filter(|name| !name.ends_with('_'));
        let name = in_place.unwrap_or(name);
        let (operands, result) = match name {
            "clamp" | "clip" | "clamp_min" | "clamp_max" => match bounds(name, arguments) {
                Some(operands) => self.clamped(operands)?,
                None => return Ok(None),
            },
            _ => {
                let Some(operands) = known_operands(arguments) else {
                    return Ok(None);
                };
                let numbers = self.rounded_numbers(&operands)?;
                let Some(result) = self.arithmetic(name, &numbers, arguments)? else {
                    return Ok(None);
                };
                (operands, result)
            }
        };
        let target = arguments.positional.first().zip(operands.first());
        if let (Some(_), Some((Datum::Tensor(tensor), Operand::Tensor(host)))) = (in_place, target)
        {
            let number = result.cast(host.dtype, self.builder().symbols())?;
            let host = HostNumber {
                number,
                ..host.clone()
            };
            self.write_number(&tensor.clone(), host);
            return Ok(arguments.positional.first().cloned());
        }
        self.like_operands(name, result, &operands).map(Some)
    }

    /// The numbers of operands. Floats beside a tensor that computes in single precision are rounded to single precision.
    fn rounded_numbers(&mut self, operands: &[Operand]) -> Result<Vec<ScriptNumber>> {
        let builder = self.builder();
        let dtype = operands_dtype(operands).map(DType::to_compute);
        let numbers = operands.iter().map(Operand::number);
        match dtype.filter(|dtype| dtype.is_float()) {
            Some(dtype) => numbers
                .map(|number| match number.is_float() {
                    true => number.cast(dtype, builder.symbols()),
                    false => Ok(number),
                })
                .collect(),
            None => Ok(numbers.collect()),
        }
    }

    /// Clamps a number to bounds, either of which may be absent. Returns the operands that are present, and the result.
    fn clamped(
        &mut self,
        [x, low, high]: [Option<Operand>; 3],
    ) -> Result<(Vec<Operand>, ScriptNumber)> {
        let limits = [("maximum", low.is_some()), ("minimum", high.is_some())];
        let operands: Vec<Operand> = [x, low, high].into_iter().flatten().collect();
        let numbers = self.rounded_numbers(&operands)?;
        let mut numbers = numbers.into_iter();
        let mut result = numbers.next().unwrap_or(ScriptNumber::int(0));
        let builder = self.builder();
        let present = limits.into_iter().filter(|(_, is_present)| *is_present);
        for ((function, _), bound) in present.zip(numbers) {
            let bounded = number::binary(builder.symbols(), function, &result, &bound)?;
            result = bounded.unwrap_or(result);
        }
        Ok((operands, result))
    }

    /// Applies a function to one to three numbers, with regard to `alpha` and `rounding_mode`; none if there is no such
    /// function.
    fn arithmetic(
        &mut self,
        name: &str,
        operands: &[ScriptNumber],
        arguments: &Arguments,
    ) -> Result<Option<ScriptNumber>> {
        let builder = self.builder();
        let symbols = builder.symbols();
        let has_tensor = |value: &Datum| matches!(value, Datum::Tensor(_));
        let name = match arguments.positional.iter().any(has_tensor) {
            true => name,
            false => script_name(name),
        };
        let alpha = match (named_argument(arguments, "alpha"), name, operands) {
            (Some(Datum::Number(alpha)), ..) => Some(alpha),
            (None, "add" | "sub" | "rsub", [_, _, alpha]) => Some(alpha.clone()),
            _ => None,
        };
        match (operands, alpha) {
            ([a], _) => number::unary(symbols, name, a),
            ([a, b], None) => {
                let rounding = named_argument(arguments, "rounding_mode");
                match (name, rounding) {
                    ("div", Some(Datum::Str(mode))) => rounded_quotient(symbols, &mode, a, b),
                    _ => number::binary(symbols, name, a, b),
                }
            }
            ([a, b] | [a, b, _], Some(alpha)) => {
                let (base, other) = if name == "rsub" { (b, a) } else { (a, b) };
                let Some(scaled) = number::binary(symbols, "mul", other, &alpha)? else {
                    return Ok(None);
                };
                let name = if name == "rsub" { "sub" } else { name };
                number::binary(symbols, name, base, &scaled)
            }
            _ => Ok(None),
        }
    }

    /// Returns a result in the form of the operands: a Python number, or a scalar tensor of the common dtype.
    fn like_operands(
        &mut self,
        name: &str,
        result: ScriptNumber,
        operands: &[Operand],
    ) -> Result<Datum> {
        let tensors = operands.iter().filter_map(|operand| match operand {
            Operand::Tensor(host) => Some(host),
            Operand::Number(_) => None,
        });
        let tensors: Vec<&HostNumber> = tensors.collect();
        if tensors.is_empty() {
            return Ok(Datum::Number(self.python_result(name, result)?));
        }
        let dtype = if let ScriptNumber::Bool(_) = result {
            DType::Bool
        } else {
            common_dtype(&result, operands)
        };
        let wrapped = tensors.iter().all(|host| host.wrapped);
        let builder = self.builder();
        let number = match wrapped {
            true if dtype == DType::F64 => result.to_float(),
            _ => result.cast(dtype, builder.symbols())?,
        };
        Ok(Datum::Tensor(self.host_tensor(HostNumber {
            number,
            dtype,
            wrapped,
        })))
    }

    /// `floor` and `ceil` of Python's floats are ints.
    fn python_result(&mut self, name: &str, result: ScriptNumber) -> Result<ScriptNumber> {
        match name {
            "floor" | "ceil" => Ok(ScriptNumber::Int(result.to_int(self.builder().symbols())?)),
            _ => Ok(result),
        }
    }

    /// `min`, `max` or `sum` of a list; none if it holds other values than known numbers.
    fn list_reduction(&mut self, name: &str, items: &[Datum]) -> Result<Option<Datum>> {
        let function = if name == "sum" { "add" } else { name };
        let numbers: Option<Vec<ScriptNumber>> = items.iter().map(python_number).collect();
        let Some(numbers) = numbers else {
            return Ok(None);
        };
        let builder = self.builder();
        let mut total: Option<ScriptNumber> = (name == "sum").then(|| ScriptNumber::int(0));
        for number in numbers {
            total = match total {
                Some(total) => number::binary(builder.symbols(), function, &total, &number)?,
                None => Some(number),
            };
        }
        let empty = || Error::source(format!("{name} of an empty list"));
        Ok(Some(Datum::Number(total.ok_or_else(empty)?)))
    }

    /// `Tensor.item`: the value of a tensor of one element as a Python number.
    fn item(&mut self, tensor: &TensorRef) -> Result<Datum> {
        let kind = self.kind_of(tensor)?;
        self.converted(kind, &Datum::Tensor(tensor.clone()))
    }

    /// Converts a tensor of one element to a number. The number is dynamic, unless it follows from sizes and weights.
    pub(super) fn dynamic_number(&mut self, kind: NumberKind, tensor: &TensorRef) -> Result<Datum> {
        let id = self.read(tensor)?;
        let builder = self.builder();
        let value = builder.value(id);
        let value = match kind {
            NumberKind::Bool => value.to(DType::Bool),
            NumberKind::Int if value.dtype().is_integer() => value,
            NumberKind::Int => value.to(DType::I64),
            NumberKind::Float => value.to_float(),
        };
        let id = value.reshape(Vec::new()).id();
        builder.check()?;
        match self.eval_symbolic(kind, id)? {
            Some(number) => Ok(Datum::Number(number)),
            // Python's numbers have no gradient.
            None if kind == NumberKind::Float => {
                let id = aten::detach(self.builder().value(id))?.id();
                Ok(Datum::Dynamic(kind, self.new_tensor(id)))
            }
            None => Ok(Datum::Dynamic(kind, self.new_tensor(id))),
        }
    }

    /// Number of steps of `range(start, stop, step)`.
    fn range_length(&mut self, arguments: &Arguments) -> Result<Datum> {
        let [start, stop, step] = self.three_sizes(arguments)?;
        let step = self.builder().symbols().specialize(&step)?;
        let span = match step {
            0 => return Err(Error::source("the step of a range is 0")),
            step if step < 0 => (&start - &stop).ceil_div(&step.saturating_neg().into()),
            step => (&stop - &start).ceil_div(&step.into()),
        };
        let builder = self.builder();
        let is_nonnegative = builder.symbols().less_equal(&0.into(), &span)?;
        Ok(if is_nonnegative {
            Datum::int(span)
        } else {
            Datum::int(0)
        })
    }

    /// The value of the `i`-th step of a range.
    fn derive_index(&mut self, arguments: &Arguments) -> Result<Datum> {
        let [index, start, step] = self.three_sizes(arguments)?;
        Ok(Datum::int(start + index * step))
    }

    /// Returns the three arguments of an operator on ranges as integers.
    fn three_sizes(&mut self, arguments: &Arguments) -> Result<[crate::dim::Dim; 3]> {
        let sizes = arguments
            .positional
            .iter()
            .map(|value| match self.known_number(value)? {
                Datum::Number(number) => number.to_int(self.builder().symbols()),
                other => {
                    let message = format!("a range over a {}", other.describe());
                    Err(Error::unsupported(message).help("ranges must not depend on tensors"))
                }
            });
        let sizes: Vec<crate::dim::Dim> = sizes.collect::<Result<_>>()?;
        let wrong_count = |_| Error::source("a range takes three numbers");
        <[crate::dim::Dim; 3]>::try_from(sizes).map_err(wrong_count)
    }
}

/// A known operand of arithmetic.
enum Operand {
    /// A Python number.
    Number(ScriptNumber),
    /// A scalar tensor.
    Tensor(HostNumber),
}

impl Operand {
    fn number(&self) -> ScriptNumber {
        match self {
            Operand::Number(number) => number.clone(),
            Operand::Tensor(host) => host.number.clone(),
        }
    }
}

/// The Python number, if a value is a known one.
fn python_number(value: &Datum) -> Option<ScriptNumber> {
    match value {
        Datum::Number(number) => Some(number.clone()),
        _ => None,
    }
}

/// The operands of a call, if all of them are known and no keyword argument makes a difference here.
fn known_operands(arguments: &Arguments) -> Option<Vec<Operand>> {
    let ignored = ["alpha", "rounding_mode"];
    let mut named = arguments.named.iter();
    if named.any(|(name, _)| !ignored.contains(&name.as_str())) {
        return None;
    }
    let operands = arguments.positional.iter().map(known_operand);
    let operands: Option<Vec<Operand>> = operands.collect();
    operands.filter(|operands| !operands.is_empty())
}

/// A value as an operand, if it is known.
fn known_operand(value: &Datum) -> Option<Operand> {
    match value {
        Datum::Number(number) => Some(Operand::Number(number.clone())),
        Datum::Tensor(tensor) => tensor.number().map(Operand::Tensor),
        _ => None,
    }
}

/// The number that a call clamps, its lower bound and its upper bound; none if one of them is not known.
fn bounds(name: &str, arguments: &Arguments) -> Option<[Option<Operand>; 3]> {
    let (first, rest) = arguments.positional.split_first()?;
    let bound = |name: &str, index: usize| {
        let given = rest
            .get(index)
            .cloned()
            .or_else(|| named_argument(arguments, name));
        match given {
            None | Some(Datum::None) => Some(None),
            Some(value) => known_operand(&value).map(Some),
        }
    };
    let [low, high] = match name {
        "clamp_min" => [bound("min", 0)?, None],
        "clamp_max" => [None, bound("max", 0)?],
        _ => [bound("min", 0)?, bound("max", 1)?],
    };
    Some([Some(known_operand(first)?), low, high])
}

/// Divides and rounds the quotient down (`mode` is `floor`) or towards zero.
fn rounded_quotient(
    symbols: &Symbols,
    mode: &str,
    a: &ScriptNumber,
    b: &ScriptNumber,
) -> Result<Option<ScriptNumber>> {
    if mode == "floor" {
        return number::binary(symbols, "floor_divide", a, b);
    }
    match (
        a.is_float() || b.is_float(),
        number::binary(symbols, "div", a, b)?,
    ) {
        (false, _) => number::binary(symbols, "trunc_divide", a, b),
        (true, Some(quotient)) => number::unary(symbols, "trunc", &quotient),
        (true, None) => Ok(None),
    }
}

/// The name of Python's function of numbers: that of the tensor function, or another one where the two differ.
fn script_name(name: &str) -> &str {
    match name {
        "remainder" => "script_remainder",
        "pow" => "script_pow",
        "__lshift__" => "script_lshift",
        "__rshift__" => "script_rshift",
        name => name,
    }
}

/// The dtype of arithmetic on scalar tensors and numbers; none if each tensor stands for a number.
fn operands_dtype(operands: &[Operand]) -> Option<DType> {
    let tensor_dtype = operands.iter().filter_map(|operand| match operand {
        Operand::Tensor(host) if !host.wrapped => Some(host.dtype),
        _ => None,
    });
    let tensor_dtype = tensor_dtype.reduce(DType::promote)?;
    let dtypes = operands.iter().map(|operand| match operand {
        Operand::Number(number) => python_dtype(number),
        Operand::Tensor(host) => host.dtype,
    });
    let category = dtypes.map(DType::category).max()?;
    Some(match tensor_dtype.category() < category {
        true if category == Category::Float => DType::F32,
        true => DType::I64,
        false => tensor_dtype,
    })
}

/// The dtype of a result of arithmetic.
fn common_dtype(result: &ScriptNumber, operands: &[Operand]) -> DType {
    let is_float = |operand: &Operand| match operand {
        Operand::Number(number) => number.is_float(),
        Operand::Tensor(host) => host.dtype.is_float(),
    };
    match (operands_dtype(operands), python_dtype(result)) {
        (Some(dtype), DType::F64) if !dtype.is_float() => DType::F32,
        (Some(dtype), _) => dtype,
        (None, _) if operands.iter().any(is_float) => DType::F64,
        (None, dtype) => dtype,
    }
}
