//! Arithmetic on known numbers and on scalar tensors whose value is known.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::interp;
use crate::ir::{ValueId, Weights};

use crate::trace::torchscript::import::Importer;
use crate::trace::torchscript::import::call::Arguments;
use crate::trace::torchscript::import::datum::{Datum, Kind};
use crate::trace::torchscript::import::number::{self, Number};
use crate::trace::torchscript::import::operator::{named_argument, python_dtype};
use crate::trace::torchscript::import::tensor::{HostNumber, TensorRef};

impl Importer<'_> {
    pub(super) fn numeric(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let first = arguments.positional.first();
        match (name, first) {
            ("NumToTensor", Some(value)) => {
                return Ok(Some(Datum::Tensor(self.as_tensor(value)?)));
            }
            ("Int" | "IntImplicit", Some(value)) => {
                return self.converted(Kind::Int, value).map(Some);
            }
            ("Float" | "FloatImplicit", Some(value)) => {
                return self.converted(Kind::Float, value).map(Some);
            }
            ("Bool", Some(value)) => return self.converted(Kind::Bool, value).map(Some),
            ("ScalarImplicit" | "item" | "Scalar", Some(Datum::Tensor(tensor))) => {
                return self.item(&tensor.clone()).map(Some);
            }
            ("min" | "max" | "sum", Some(Datum::List(list))) if arguments.positional.len() == 1 => {
                let items = list.items.borrow().clone();
                return self.reduced(name, &items);
            }
            ("__range_length", _) => return self.range_length(arguments).map(Some),
            ("__derive_index", _) => return self.derive_index(arguments).map(Some),
            ("gather" | "where", _) => return Ok(None),
            _ => {}
        }
        let Some(operands) = known_operands(arguments) else {
            return Ok(None);
        };
        let numbers: Vec<Number> = operands.iter().map(Operand::number).collect();
        let Some(result) = self.arithmetic(name, &numbers, arguments)? else {
            return Ok(None);
        };
        self.like_operands(name, result, &operands).map(Some)
    }

    fn arithmetic(
        &mut self,
        name: &str,
        operands: &[Number],
        arguments: &Arguments,
    ) -> Result<Option<Number>> {
        let builder = self.builder();
        let symbols = builder.symbols();
        let name = name
            .strip_suffix('_')
            .filter(|short| !short.ends_with('_'))
            .unwrap_or(name);
        let rounding = named_argument(arguments, "rounding_mode");
        let alpha = match (named_argument(arguments, "alpha"), name, operands) {
            (Some(Datum::Number(alpha)), ..) => Some(alpha),
            (None, "add" | "sub" | "rsub", [_, _, alpha]) => Some(alpha.clone()),
            _ => None,
        };
        match operands {
            [a] => number::unary(symbols, name, a),
            [a, b] | [a, b, _] if alpha.is_some() || operands.len() == 2 => {
                let scaled = match (&alpha, name) {
                    (Some(alpha), "rsub") => {
                        let scaled = number::binary(symbols, "mul", a, alpha)?;
                        return match scaled {
                            Some(scaled) => number::binary(symbols, "sub", b, &scaled),
                            None => Ok(None),
                        };
                    }
                    (Some(alpha), _) => number::binary(symbols, "mul", b, alpha)?,
                    (None, _) => Some(b.clone()),
                };
                let Some(b) = scaled else { return Ok(None) };
                match (name, rounding) {
                    ("div", Some(Datum::Str(mode))) => {
                        let floored = number::binary(symbols, "floordiv", a, &b)?;
                        if &*mode == "floor" {
                            return Ok(floored);
                        }
                        let quotient = number::binary(symbols, "div", a, &b)?;
                        match quotient {
                            Some(quotient) => number::unary(symbols, "trunc", &quotient),
                            None => Ok(None),
                        }
                    }
                    _ => number::binary(symbols, name, a, &b),
                }
            }
            _ => Ok(None),
        }
    }

    /// The result as what the operands are: a Python number, or a scalar tensor of the common dtype.
    fn like_operands(&mut self, name: &str, result: Number, operands: &[Operand]) -> Result<Datum> {
        let tensors = operands.iter().filter_map(|operand| match operand {
            Operand::Tensor(host) => Some(host),
            Operand::Number(_) => None,
        });
        let tensors: Vec<&HostNumber> = tensors.collect();
        if tensors.is_empty() {
            return Ok(Datum::Number(self.python_result(name, result)?));
        }
        let dtype = if let Number::Bool(_) = result {
            DType::Bool
        } else {
            common_dtype(&tensors, &result, operands)
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
    fn python_result(&mut self, name: &str, result: Number) -> Result<Number> {
        match name {
            "floor" | "ceil" => Ok(Number::Int(result.to_int(self.builder().symbols())?)),
            _ => Ok(result),
        }
    }

    fn reduced(&mut self, name: &str, items: &[Datum]) -> Result<Option<Datum>> {
        let step = if name == "sum" { "add" } else { name };
        let numbers: Option<Vec<Number>> = items.iter().map(python_number).collect();
        let Some(numbers) = numbers else {
            return Ok(None);
        };
        let builder = self.builder();
        let mut total: Option<Number> = (name == "sum").then(|| Number::int(0));
        for number in numbers {
            total = match total {
                Some(total) => number::binary(builder.symbols(), step, &total, &number)?,
                None => Some(number),
            };
        }
        let empty = || Error::source(format!("{name} of an empty list"));
        Ok(Some(Datum::Number(total.ok_or_else(empty)?)))
    }

    /// The value of a scalar tensor as a Python number.
    fn item(&mut self, tensor: &TensorRef) -> Result<Datum> {
        let kind = match self.ty(tensor)?.dtype {
            DType::Bool => Kind::Bool,
            dtype if dtype.is_float() => Kind::Float,
            _ => Kind::Int,
        };
        self.converted(kind, &Datum::Tensor(tensor.clone()))
    }

    /// A number that only the graph knows.
    pub(super) fn dynamic(&mut self, kind: Kind, tensor: &TensorRef) -> Result<Datum> {
        let id = self.read(tensor)?;
        let builder = self.builder();
        let value = builder.value(id);
        let value = match kind {
            Kind::Bool => value.to(DType::Bool),
            Kind::Int if value.dtype().is_integer() => value,
            Kind::Int => value.to(DType::I64),
            Kind::Float => value.to_float(),
        };
        let id = value.reshape(Vec::new()).id();
        builder.check()?;
        match self.constant_number(kind, id)? {
            Some(number) => Ok(Datum::Number(number)),
            None => Ok(Datum::Dynamic(kind, self.new_tensor(id))),
        }
    }

    /// The number that a scalar is if it depends on weights alone.
    fn constant_number(&mut self, kind: Kind, id: ValueId) -> Result<Option<Number>> {
        let Some(part) = self.builder().constant_part(id) else {
            return Ok(None);
        };
        let mut weights = Weights::new();
        for (name, _) in part.weights() {
            if let Some(record) = self.shared.records.get(name) {
                weights.insert(name.to_string(), self.archive.tensor(record)?);
            }
        }
        // What can't be computed here is left to fail when the graph runs.
        let result = interp::run(&part, &weights, &[]).ok();
        let result = result.and_then(|tensors| tensors.into_iter().next());
        Ok(result.and_then(|tensor| match kind {
            Kind::Bool => Some(Number::Bool(*tensor.to_i64().first()? != 0)),
            Kind::Int => Some(Number::int(*tensor.to_i64().first()?)),
            Kind::Float => Some(Number::Float(*tensor.to_f64().first()?)),
        }))
    }

    /// How many steps `range(start, stop, step)` has.
    fn range_length(&mut self, arguments: &Arguments) -> Result<Datum> {
        let [start, stop, step] = self.three_sizes(arguments)?;
        let step = self.builder().symbols().concrete(&step)?;
        let span = match step {
            0 => return Err(Error::source("a range has no step")),
            step if step < 0 => (&start - &stop).ceil_div(&step.saturating_neg().into()),
            step => (&stop - &start).ceil_div(&step.into()),
        };
        let builder = self.builder();
        let some = builder.symbols().less_equal(&0.into(), &span)?;
        Ok(if some {
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

    fn three_sizes(&mut self, arguments: &Arguments) -> Result<[crate::dim::Dim; 3]> {
        let builder = self.builder();
        let sizes = arguments.positional.iter().map(|value| match value {
            Datum::Number(number) => number.to_int(builder.symbols()),
            other => {
                let message = format!("a range over a {}", other.describe());
                Err(Error::unsupported(message).help("ranges must not depend on tensors"))
            }
        });
        let sizes: Vec<crate::dim::Dim> = sizes.collect::<Result<_>>()?;
        let wrong = |_| Error::source("a range takes three numbers");
        <[crate::dim::Dim; 3]>::try_from(sizes).map_err(wrong)
    }
}

enum Operand {
    Number(Number),
    Tensor(HostNumber),
}

impl Operand {
    fn number(&self) -> Number {
        match self {
            Operand::Number(number) => number.clone(),
            Operand::Tensor(host) => host.number.clone(),
        }
    }
}

fn python_number(value: &Datum) -> Option<Number> {
    match value {
        Datum::Number(number) => Some(number.clone()),
        _ => None,
    }
}

/// The operands, if every one of them is known.
fn known_operands(arguments: &Arguments) -> Option<Vec<Operand>> {
    let ignored = ["alpha", "rounding_mode"];
    let mut named = arguments.named.iter();
    if named.any(|(name, _)| !ignored.contains(&name.as_str())) {
        return None;
    }
    let operands = arguments.positional.iter().map(|value| match value {
        Datum::Number(number) => Some(Operand::Number(number.clone())),
        Datum::Tensor(tensor) => tensor.number().map(Operand::Tensor),
        _ => None,
    });
    let operands: Option<Vec<Operand>> = operands.collect();
    operands.filter(|operands| !operands.is_empty())
}

/// The dtype of arithmetic on scalar tensors and numbers.
fn common_dtype(tensors: &[&HostNumber], result: &Number, operands: &[Operand]) -> DType {
    let own = tensors.iter().filter(|host| !host.wrapped);
    let own = own.map(|host| host.dtype).reduce(DType::promote);
    let Some(own) = own else {
        return python_dtype(result);
    };
    let category = operands
        .iter()
        .map(|operand| match operand {
            Operand::Number(number) => python_dtype(number).category(),
            Operand::Tensor(host) => host.dtype.category(),
        })
        .chain([python_dtype(result).category()])
        .max();
    match category {
        Some(category) if own.category() < category => match python_dtype(result) {
            DType::F64 => DType::F32,
            dtype => dtype,
        },
        _ => own,
    }
}
