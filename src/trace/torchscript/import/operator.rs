//! Calls of operators: worked out on the host where everything is known, else nodes of the graph.

use crate::aten::{self, Operator, Returns};
use crate::dtype::DType;
use crate::error::{Error, Kind as Fault, Result};
use crate::ir::{Argument, ValueId};

use super::Importer;
use super::call::Arguments;
use super::datum::{Datum, Kind};
use super::number::Number;
use super::tensor::{HostNumber, TensorRef, View, ViewOperator};

impl Importer<'_> {
    /// A call of an operator by its qualified name, `aten::add`.
    pub(super) fn operator(&mut self, name: &str, arguments: Arguments) -> Result<Datum> {
        let named = arguments.named.iter().map(|(_, value)| value);
        let mut all = arguments.positional.iter().chain(named);
        let (namespace, short) = name.split_once("::").unwrap_or(("", name));
        if all.any(Datum::is_unknown) {
            // Containers hold unknown values like any others.
            let result = self.container(short, &arguments)?;
            return Ok(result.unwrap_or(Datum::Unknown));
        }
        let arguments = self.upgraded(name, arguments)?;
        let builtin = namespace == "aten" || namespace == "prim";
        if builtin && let Some(result) = self.builtin(short, &arguments)? {
            return Ok(result);
        }
        if let Some(out) = named_argument(&arguments, "out") {
            return self.write_out(name, arguments, &out);
        }
        if let Some(functional) = in_place_of(name) {
            return self.write_in_place(name, &functional, arguments);
        }
        if let Some(result) = self.batch_norm_in_training(name, &arguments)? {
            return Ok(result);
        }
        self.tensor_operator(name, arguments)
    }

    /// A call that becomes a node, or a fault if there is no such operator.
    pub(super) fn tensor_operator(&mut self, name: &str, arguments: Arguments) -> Result<Datum> {
        let dynamic = dynamic_kind(name, &arguments);
        let name = dynamic.and_then(|_| tensor_name(name)).unwrap_or(name);
        let Some((operator, converted)) = self.resolve(name, &arguments)? else {
            return Ok(self.unsupported(no_overload(name, &arguments)));
        };
        let result = self.call_operator(operator, converted, &arguments);
        let result = match result {
            Err(error) if error.kind() == Fault::Unsupported => return Ok(self.unsupported(error)),
            result => result?,
        };
        Ok(match (dynamic, result) {
            (Some(kind), Datum::Tensor(tensor)) => Datum::Dynamic(kind, tensor),
            (_, result) => result,
        })
    }

    fn call_operator(
        &mut self,
        operator: &'static Operator,
        mut converted: Vec<Argument>,
        arguments: &Arguments,
    ) -> Result<Datum> {
        operator.seed(&mut converted, &mut self.generator);
        let builder = self.builder();
        let results = operator.call(&builder, converted.clone())?;
        let ids: Vec<ValueId> = results.into_iter().map(|value| value.id()).collect();
        drop(builder);
        self.local().unnamed.extend(ids.iter().copied());
        let base = match arguments.positional.first() {
            Some(Datum::Tensor(base)) if operator.schema.is_view => Some(base.clone()),
            _ => None,
        };
        let mut tensors = Vec::with_capacity(ids.len());
        for (index, id) in ids.into_iter().enumerate() {
            tensors.push(Datum::Tensor(match &base {
                Some(base) => self.result_view(base, operator, &converted, index, id)?,
                None => self.new_tensor(id),
            }));
        }
        Ok(match operator.schema.returns {
            Returns::One => tensors.into_iter().next().unwrap_or(Datum::None),
            Returns::Tuple => Datum::tuple(tensors),
            Returns::List => self.list(tensors),
            Returns::OneAndList => {
                let rest = tensors.split_off(tensors.len().min(1));
                tensors.push(self.list(rest));
                Datum::tuple(tensors)
            }
        })
    }

    /// A result of a view operator, which is a view if PyTorch would not have to copy.
    fn result_view(
        &mut self,
        base: &TensorRef,
        operator: &'static Operator,
        converted: &[Argument],
        result: usize,
        id: ValueId,
    ) -> Result<TensorRef> {
        let name = operator.schema.name.as_str();
        let same_dtype = self.ty(base)?.dtype == self.builder().ty(id).dtype;
        let copies = [
            "reshape",
            "flatten",
            "contiguous",
            "to",
            "ravel",
            "reshape_as",
        ];
        if !same_dtype || copies.contains(&name) && !base.contiguous {
            return Ok(self.new_tensor(id));
        }
        let has_values = converted
            .iter()
            .skip(1)
            .any(|argument| !argument.values().is_empty());
        let view = View {
            operator: match is_reshape(name) || has_values {
                true => ViewOperator::Reshape(self.builder().ty(id).shape),
                false => ViewOperator::Call(operator, converted.to_vec()),
            },
            result,
        };
        let contiguous = base.contiguous && keeps_contiguity(name, converted);
        Ok(self.view_of(base, view, id, contiguous))
    }

    /// A tensor, or a number that is made one.
    pub(super) fn as_tensor(&mut self, value: &Datum) -> Result<TensorRef> {
        match value {
            Datum::Tensor(tensor) | Datum::Dynamic(_, tensor) => Ok(tensor.clone()),
            Datum::Number(number) => Ok(self.host_tensor(HostNumber {
                number: number.clone(),
                dtype: python_dtype(number),
                wrapped: true,
            })),
            other => Err(Error::source(format!(
                "a {} is used as a tensor",
                other.describe()
            ))),
        }
    }

    /// Gives a fresh result the name of the variable that it is bound to; names made up by the serialiser say nothing.
    pub(super) fn name_value(&mut self, tensor: &TensorRef, name: &str) {
        let is_made_up = name
            .strip_prefix('_')
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
        let value = tensor.storage.state.borrow().value;
        let Some(value) = value.filter(|_| !is_made_up && tensor.views.is_empty()) else {
            return;
        };
        let scope = self.scopes.innermost_mut();
        if scope.number == value.scope && scope.local.unnamed.remove(&value.id) {
            scope.builder.set_name(value.id, name);
        }
    }
}

/// The dtype of a scalar tensor that stands for a Python number.
pub fn python_dtype(number: &Number) -> DType {
    match number {
        Number::Bool(_) => DType::Bool,
        Number::Int(_) => DType::I64,
        Number::Float(_) | Number::Ratio(..) => DType::F64,
    }
}

pub fn named_argument(arguments: &Arguments, name: &str) -> Option<Datum> {
    let mut named = arguments.named.iter();
    let found = named.find(|(argument, _)| argument == name);
    found.map(|(_, value)| value.clone())
}

/// `aten::add` for `aten::add_`; none for operators that do not write.
fn in_place_of(name: &str) -> Option<String> {
    let functional = name.strip_suffix('_')?;
    (!functional.ends_with('_')).then(|| functional.to_string())
}

/// What arithmetic on numbers that are known only when the graph runs gives: a number again, unless a tensor takes part.
fn dynamic_kind(name: &str, arguments: &Arguments) -> Option<Kind> {
    let mut kind = None;
    let mut has_float = false;
    for value in &arguments.positional {
        match value {
            Datum::Dynamic(found, _) => {
                has_float |= *found == Kind::Float;
                kind = kind.or(Some(*found));
            }
            Datum::Number(number) => has_float |= number.is_float(),
            _ => return None,
        }
    }
    let kind = kind.map(|kind| if has_float { Kind::Float } else { kind });
    let short = name.split_once("::").map_or(name, |(_, short)| short);
    match short {
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "__not__" | "__and__" | "__or__" => {
            kind.map(|_| Kind::Bool)
        }
        "div" => kind.map(|_| Kind::Float),
        _ => kind,
    }
}

/// The tensor operator for one of Python's operators on numbers, where their names differ.
fn tensor_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "aten::__not__" => "aten::logical_not",
        "aten::__and__" => "aten::logical_and",
        "aten::__or__" => "aten::logical_or",
        "aten::__xor__" => "aten::logical_xor",
        "aten::floordiv" => "aten::floor_divide",
        "prim::min" | "aten::min" => "aten::minimum",
        "prim::max" | "aten::max" => "aten::maximum",
        "prim::abs" => "aten::abs",
        _ => return None,
    })
}

const LEFT_OUT: &str = "torch.jit.optimize_for_inference leaves such weights out of the file, and PyTorch can't load it either: \
    save the module as it was before, or as torch.jit.freeze makes it";

fn no_overload(name: &str, arguments: &Arguments) -> Error {
    let candidates: Vec<&str> = aten::overloads(name)
        .flat_map(|operator| operator.row.schemas.iter().copied())
        .filter(|schema| schema.starts_with(name))
        .collect();
    if candidates.is_empty() {
        let error = Error::unsupported(format!("the operator {name}"));
        return match name {
            "prim::ConstantMKLDNNTensor" => error.help(LEFT_OUT),
            _ => error,
        };
    }
    let given = arguments.positional.iter().map(described);
    let named = arguments.named.iter();
    let named = named.map(|(name, value)| format!("{name}={}", described(value)));
    let given: Vec<String> = given.chain(named).collect();
    let message = format!("{name} of ({})", given.join(", "));
    let help = match message.contains(DEPENDS) {
        true => KNOWN_BEFORE.to_string(),
        false => format!("known overloads: {}", candidates.join("; ")),
    };
    Error::unsupported(message).help(help)
}

const DEPENDS: &str = "that depends on tensors";
const KNOWN_BEFORE: &str = "sizes and settings have to be known before the graph runs: follow from sizes of tensors, or be numbers \
    when the model is traced";

fn described(value: &Datum) -> String {
    match value {
        Datum::Dynamic(..) => format!("{} {DEPENDS}", value.describe()),
        Datum::List(list) => {
            let items = list.items.borrow();
            let items: Vec<String> = items.iter().map(described).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.describe().to_string(),
    }
}

/// View operators whose result holds all elements in the same order.
fn is_reshape(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "view",
        "reshape",
        "reshape_as",
        "view_as",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "flatten",
        "unflatten",
        "ravel",
        "contiguous",
        "detach",
        "alias",
        "to",
        "_reshape_alias",
        "lift_fresh",
        "atleast_1d",
    ];
    NAMES.contains(&name)
}

/// Whether the view of a contiguous tensor is contiguous: it is if its elements keep their order without gaps.
fn keeps_contiguity(name: &str, arguments: &[Argument]) -> bool {
    let is = |index: usize, number: i64| match arguments.get(index) {
        Some(Argument::Number(scalar)) => scalar.to_i64() == number,
        _ => false,
    };
    match name {
        "select" | "narrow" | "unbind" => is(1, 0),
        "slice" => is(1, 0) && is(4, 1),
        "split" | "chunk" | "split_with_sizes" | "tensor_split" => is(2, 0),
        name => is_reshape(name),
    }
}
