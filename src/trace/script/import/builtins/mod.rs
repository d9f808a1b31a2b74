//! Operators that the importer evaluates on the host: arithmetic on numbers, lists, dicts, strings, and queries of types.

mod container;
mod creation;
mod identity;
mod numeric;
mod query;
mod string;

use crate::error::{Error, Result};

use super::Importer;
use super::call::Arguments;
use super::control::RaisedException;
use super::datum::{Datum, NumberKind};
use super::evaluate::CallFrame;
use super::number::ScriptNumber;

impl Importer<'_> {
    /// Evaluates an operator on the host; none if the operator belongs in the graph.
    pub(super) fn builtin(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        if let Some(result) = self.effect(name, arguments)? {
            return Ok(Some(result));
        }
        if let Some(result) = self.query(name, arguments)? {
            return Ok(Some(result));
        }
        if let Some(result) = self.container(name, arguments)? {
            return Ok(Some(result));
        }
        if let Some(result) = self.string(name, arguments)? {
            return Ok(Some(result));
        }
        if let Some(result) = self.numeric(name, arguments)? {
            return Ok(Some(result));
        }
        if let Some(result) = self.identity(name, arguments)? {
            return Ok(Some(result));
        }
        self.creation(name, arguments)
    }

    /// Calls a builtin function of Python by its name: conversions, `print`, `fork`.
    pub(super) fn named_builtin(
        &mut self,
        frame: &CallFrame,
        name: &str,
        arguments: Arguments,
    ) -> Result<Datum> {
        self.charge_arguments(name, &arguments)?;
        let first = arguments.positional.first().cloned();
        match (name, first) {
            (_, Some(Datum::Unknown)) => Ok(Datum::Unknown),
            ("int", Some(value)) => self.converted(NumberKind::Int, &value),
            ("float", Some(value)) => self.converted(NumberKind::Float, &value),
            ("bool", Some(value)) => self.converted(NumberKind::Bool, &value),
            ("str", Some(value)) => Ok(Datum::str(&self.display(&value))),
            ("print", _) => Ok(Datum::None),
            ("sorted", Some(Datum::List(list))) => self.sorted(&list),
            // The function runs when the program waits for its result.
            ("awaitable", Some(function)) => Ok(function),
            ("fork", Some(function)) => {
                let mut rest = arguments;
                rest.positional.remove(0);
                self.call_datum(&function, rest)
            }
            _ if name.starts_with('^') => Err(python_function_error(name)),
            _ => {
                let module = &frame.module;
                Err(Error::source(format!(
                    "{name} is not defined in {module:?}"
                )))
            }
        }
    }

    /// Evaluates operators that raise exceptions, print, set modes, wait for results, or ask for modes or
    /// devices; none for others.
    fn effect(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let first = arguments.positional.first();
        Ok(Some(match name {
            "RaiseException" => {
                let message = raised_message(arguments);
                let help = "the model refuses these inputs, or sizes that follow from them";
                let error = Error::input(format!("the model raises {message:?}")).help(help);
                return Err(self.raise(message, error));
            }
            // Not of PyTorch: front ends state with it which inputs a program takes.
            "RefuseInput" => return Err(self.refusal(arguments)),
            "print" | "warn" | "manual_seed" | "set_grad_enabled" | "_set_deterministic" => {
                Datum::None
            }
            "is_grad_enabled" | "is_scripting" | "is_tracing" | "is_autocast_enabled" => {
                Datum::bool(false)
            }
            "device" => match first {
                Some(Datum::Str(name)) => Datum::Device(name.clone()),
                _ => Datum::Device("cpu".into()),
            },
            "awaitable_wait" if matches!(first, Some(Datum::Closure(_))) => match first {
                Some(closure) => self.call_datum(closure, Arguments::default())?,
                None => Datum::None,
            },
            // These return a handle that only other operators of the profiler read.
            "_record_function_enter_new" | "_record_function_enter" => Datum::str(name),
            "_record_function_exit" => Datum::None,
            "wait" | "awaitable_wait" | "awaitable_nowait" => first.cloned().unwrap_or(Datum::None),
            _ => return Ok(None),
        }))
    }

    /// The error of inputs that a program does not take. The arguments are a message, help, and numbers for each `{}` in the
    /// message; sizes have their values in the example.
    fn refusal(&mut self, arguments: &Arguments) -> Error {
        let text = |index: usize| match arguments.positional.get(index) {
            Some(Datum::Str(text)) => text.to_string(),
            _ => String::new(),
        };
        let mut message = text(0);
        for value in arguments.positional.iter().skip(2) {
            let size = match value {
                Datum::Number(ScriptNumber::Int(size)) => self.builder().symbols().hint(size).ok(),
                _ => None,
            };
            let value = size.map_or_else(|| self.display(value), |size| size.to_string());
            message = message.replacen("{}", &value, 1);
        }
        let error = Error::input(message.clone()).help(text(1));
        self.raise(message, error)
    }

    /// Notes that the program raises an exception. Returns the error of an import that ends here.
    fn raise(&mut self, message: String, error: Error) -> Error {
        self.raised = Some(RaisedException {
            message,
            place: self.place.clone(),
        });
        error
    }

    /// `int(x)`, `float(x)`, `bool(x)`. Known numbers are converted here, others when the graph runs.
    pub(super) fn converted(&mut self, kind: NumberKind, value: &Datum) -> Result<Datum> {
        let number = match value {
            Datum::Number(number) => number.clone(),
            Datum::Tensor(tensor) if tensor.number().is_some() => match tensor.number() {
                Some(host) => host.number,
                None => return Ok(Datum::Unknown),
            },
            Datum::Tensor(tensor) | Datum::Dynamic(_, tensor) => {
                return self.dynamic_number(kind, &tensor.clone());
            }
            Datum::Str(text) => return parse_number(kind, text),
            Datum::Unknown => return Ok(Datum::Unknown),
            other => {
                let message = format!("a {} is converted to a number", other.describe());
                return Err(Error::source(message));
            }
        };
        let builder = self.builder();
        let symbols = builder.symbols();
        Ok(Datum::Number(match kind {
            NumberKind::Int => ScriptNumber::Int(number.to_int(symbols)?),
            NumberKind::Float => number.to_float(),
            NumberKind::Bool => ScriptNumber::Bool(number.is_truthy(symbols)?),
        }))
    }
}

/// The error for a call of an `autograd.Function`, of which a trace holds only the name.
fn python_function_error(name: &str) -> Error {
    let message =
        format!("{name} is a Python autograd.Function; an archive does not contain its code");
    Error::unsupported(message).help(
        "call the operators of its forward, or a function with @torch.jit.script, in place of `apply`, and trace again",
    )
}

/// Converts a string to a number. `NumberKind::Bool` is true for a string that is not empty.
fn parse_number(kind: NumberKind, text: &str) -> Result<Datum> {
    let malformed = || Error::source(format!("{text:?} is not a number"));
    Ok(Datum::Number(match kind {
        NumberKind::Int => ScriptNumber::int(text.trim().parse::<i64>().map_err(|_| malformed())?),
        NumberKind::Float => ScriptNumber::Float(text.trim().parse().map_err(|_| malformed())?),
        NumberKind::Bool => ScriptNumber::Bool(!text.is_empty()),
    }))
}

/// The message of an exception, after the name of its class if the call gives one.
fn raised_message(arguments: &Arguments) -> String {
    match arguments.positional.as_slice() {
        [Datum::Str(message)] => message.to_string(),
        [Datum::Str(message), Datum::Str(class), ..] => {
            let name = class.rsplit('.').next().unwrap_or(class);
            format!("{name}: {message}")
        }
        _ => "an exception".to_string(),
    }
}
