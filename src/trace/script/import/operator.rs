//! Calls of operators. Import evaluates a call if its result follows from known values; any other call becomes a node
//! of the graph.

use crate::aten::{self, Operator, ResultStructure, StrideRule, WantedFormat};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::{Argument, ValueId};
use crate::op::rules_of;
use crate::shape::Shape;
use crate::trace::views::{GuardedGeometry, ViewCallPlacement, new_geometries};

use super::Importer;
use super::budgeted::walked_arguments;
use super::call::Arguments;
use super::datum::{Datum, NumberKind};
use super::number::ScriptNumber;
use super::tensor::{HostNumber, TensorRef};

/// Namespaces of which import evaluates some operators.
const BUILTIN_NAMESPACES: [&str; 3] = ["aten", "prim", "profiler"];

impl Importer<'_> {
    /// Calls an operator by its qualified name, `aten::add`.
    pub(super) fn operator(&mut self, name: &str, arguments: Arguments) -> Result<Datum> {
        let (namespace, short_name) = name.split_once("::").unwrap_or(("", name));
        self.charge_arguments(short_name, &arguments)?;
        let is_unknown = matches!(arguments.positional.first(), Some(Datum::Unknown));
        if is_unknown || walked_arguments(short_name, &arguments).any(Datum::is_unknown) {
            let is_builtin = BUILTIN_NAMESPACES.contains(&namespace);
            let is_known = || aten::overloads(name).next().is_some() || rules_of(name).is_some();
            if !is_builtin && !is_known() {
                return Ok(self.unsupported(no_overload(name, &arguments)));
            }
            // Lists, tuples and dicts may hold unknown values.
            let result = self.container(short_name, &arguments)?;
            return Ok(result.unwrap_or(Datum::Unknown));
        }
        if let Some(result) = self.packed_operator(name, &arguments)? {
            return Ok(result);
        }
        let arguments = self.upgraded(name, arguments)?;
        let outs = out_arguments(name, &arguments);
        if !outs.is_empty() {
            return self.write_out(name, arguments, &outs);
        }
        if BUILTIN_NAMESPACES.contains(&namespace)
            && let Some(result) = self.builtin(short_name, &arguments)?
        {
            self.charge_value(&result)?;
            return Ok(result);
        }
        if let Some(functional) = functional_name(name) {
            return self.write_in_place(name, &functional, arguments);
        }
        if let Some(result) = self.batch_norm_in_training(name, &arguments)? {
            return Ok(result);
        }
        self.tensor_operator(name, arguments)
    }

    /// Adds a call as a node. Records an error if no overload takes the arguments, even if dynamic numbers are replaced
    /// by known ones.
    pub(super) fn tensor_operator(&mut self, name: &str, arguments: Arguments) -> Result<Datum> {
        let arguments = self.with_storage_operand(name, arguments)?;
        let dynamic = dynamic_kind(name, &arguments);
        let name = dynamic
            .and_then(|_| tensor_operator_name(name))
            .unwrap_or(name);
        let result = match self.try_operator(name, &arguments) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let known = self.with_known_numbers(&arguments)?;
                match known.map(|arguments| self.try_operator(name, &arguments)) {
                    Some(result) => result.unwrap_or_else(|_| self.unsupported(error)),
                    None => self.unsupported(error),
                }
            }
            result => result?,
        };
        Ok(match (dynamic, result) {
            (Some(kind), Datum::Tensor(tensor)) => Datum::Dynamic(kind, tensor),
            (_, result) => result,
        })
    }

    /// Adds a call as a node. Fails if no overload takes the arguments.
    fn try_operator(&mut self, name: &str, arguments: &Arguments) -> Result<Datum> {
        match self.resolve_overload(name, arguments)? {
            Some((operator, converted)) => self.call_operator(operator, converted, arguments),
            None => match self.custom_operator(name, arguments)? {
                Some(result) => Ok(result),
                None => Err(no_overload(name, arguments)),
            },
        }
    }

    /// Replaces dynamic numbers that follow from sizes and weights by known numbers; none if there are no such
    /// arguments.
    fn with_known_numbers(&mut self, arguments: &Arguments) -> Result<Option<Arguments>> {
        let mut changed = false;
        let mut known = arguments.clone();
        let named = known.named.iter_mut().map(|(_, value)| value);
        for value in known.positional.iter_mut().chain(named) {
            *value = match (&*value, value.items()) {
                (Datum::List(_), Some(items)) => {
                    let items = items
                        .iter()
                        .map(|item| self.known_if_dynamic(item, &mut changed));
                    let items = items.collect::<Result<_>>()?;
                    self.list(items)
                }
                _ => self.known_if_dynamic(value, &mut changed)?,
            };
        }
        Ok(changed.then_some(known))
    }

    /// Evaluates a number that the graph computes, if possible. Sets `changed` if the result is known. Returns other
    /// values unchanged.
    fn known_if_dynamic(&mut self, value: &Datum, changed: &mut bool) -> Result<Datum> {
        if !matches!(value, Datum::Dynamic(..)) {
            return Ok(value.clone());
        }
        let known = self.known_number(value)?;
        *changed |= matches!(known, Datum::Number(_));
        Ok(known)
    }

    /// Adds a call of an overload as a node. `converted` are the node's arguments, made from the program's `arguments`.
    fn call_operator(
        &mut self,
        operator: &'static Operator,
        mut converted: Vec<Argument>,
        arguments: &Arguments,
    ) -> Result<Datum> {
        operator.seed_call(&mut converted, &mut self.generator);
        let builder = self.builder();
        let results = operator.call(&builder, converted.clone())?;
        let ids: Vec<ValueId> = results.into_iter().map(|value| value.id()).collect();
        drop(builder);
        self.scope_data().unnamed.extend(ids.iter().copied());
        let tensors = match self.view_bases(operator, arguments) {
            Some(bases) => {
                let builder = self.builder();
                let call = ViewCallPlacement {
                    operator,
                    arguments: &converted,
                    builder: &builder,
                    scope: self.scopes.innermost().number,
                    format: memory_format(operator, arguments),
                };
                self.view_results(&bases, &call, &ids)?
            }
            None => self.new_results(operator, &converted, arguments, &ids)?,
        };
        let mut tensors: Vec<Datum> = tensors.into_iter().map(Datum::Tensor).collect();
        Ok(match operator.schema.returns {
            ResultStructure::One => tensors.into_iter().next().unwrap_or(Datum::None),
            ResultStructure::Tuple => Datum::tuple(tensors),
            ResultStructure::List => self.list(tensors),
            ResultStructure::OneAndList => {
                let rest = tensors.split_off(tensors.len().min(1));
                tensors.push(self.list(rest));
                Datum::tuple(tensors)
            }
        })
    }

    /// Rewrites the arguments of an operator that reads a tensor's whole storage (`as_strided`): the storage becomes
    /// the operand, and the offset counts from its start. Returns the arguments of other operators unchanged.
    fn with_storage_operand(&mut self, name: &str, mut arguments: Arguments) -> Result<Arguments> {
        let mut overloads = aten::overloads(name);
        let reads_storage = overloads.any(|operator| operator.row.strides == StrideRule::AsStrided);
        let Some(Datum::Tensor(tensor)) = arguments.positional.first().filter(|_| reads_storage)
        else {
            return Ok(arguments);
        };
        let tensor = tensor.clone();
        let memory = self.memory_of(&tensor)?;
        let start = self.geometry_of(&memory).geometry.offset;
        let offset = named_argument(&arguments, "storage_offset");
        let offset = offset.or_else(|| arguments.positional.get(3).cloned());
        let offset = match offset {
            Some(Datum::Number(ScriptNumber::Int(offset))) => offset,
            Some(Datum::None) | None => self.geometry_of(&tensor).geometry.offset,
            Some(_) => return Ok(arguments),
        };
        arguments.named.retain(|(name, _)| name != "storage_offset");
        arguments.positional.truncate(3);
        arguments.positional.push(Datum::int(&offset - &start));
        if let Some(first) = arguments.positional.first_mut() {
            *first = Datum::Tensor(memory);
        }
        Ok(arguments)
    }

    /// Returns the operands whose memory the results of a view operator share: one for all results, or one for each. None
    /// for other operators.
    fn view_bases(&self, operator: &Operator, arguments: &Arguments) -> Option<Vec<TensorRef>> {
        let first = arguments
            .positional
            .first()
            .filter(|_| operator.is_view())?;
        let tensor = |item: &Datum| match item {
            Datum::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        };
        match first.items() {
            Some(items) => items.iter().map(tensor).collect(),
            None => tensor(first).map(|base| vec![base]),
        }
    }

    /// Makes new tensors with the strides that PyTorch gives them.
    fn new_results(
        &mut self,
        operator: &'static Operator,
        converted: &[Argument],
        arguments: &Arguments,
        ids: &[ValueId],
    ) -> Result<Vec<TensorRef>> {
        let builder = self.builder();
        let operands = self.operand_geometries(operator, arguments);
        let format = memory_format(operator, arguments);
        let shapes = ids.iter().map(|id| builder.ty(*id).shape);
        let shapes: Vec<Shape> = shapes.collect();
        let geometries = new_geometries(operator, converted, &builder, &operands, format, &shapes)?;
        let pairs = ids.iter().zip(geometries);
        Ok(pairs
            .map(|(id, geometry)| self.new_tensor_of_geometry(*id, geometry))
            .collect())
    }

    /// Geometries of the tensors of a call, by parameter.
    fn operand_geometries(
        &self,
        operator: &Operator,
        arguments: &Arguments,
    ) -> Vec<Vec<GuardedGeometry>> {
        let parameters = operator.schema.parameters.iter().enumerate();
        let mut operands = Vec::with_capacity(operator.schema.parameters.len());
        for (position, parameter) in parameters {
            let argument = match parameter.keyword_only {
                true => None,
                false => arguments.positional.get(position).cloned(),
            };
            let argument = argument.or_else(|| named_argument(arguments, &parameter.name));
            operands.push(match argument {
                Some(Datum::Tensor(tensor)) => vec![self.geometry_of(&tensor)],
                Some(other) => {
                    let items = other.items().unwrap_or_default();
                    let tensors = items.iter().filter_map(|item| match item {
                        Datum::Tensor(tensor) => Some(self.geometry_of(tensor)),
                        _ => None,
                    });
                    tensors.collect()
                }
                None => Vec::new(),
            });
        }
        operands
    }

    /// Converts a value to a tensor. A number becomes a scalar tensor. Fails for other values.
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

    /// Names a result of a node after the variable that it is assigned to first. Variables such as `_12` are ignored,
    /// because the serialiser made up their names.
    pub(super) fn name_value(&mut self, tensor: &TensorRef, name: &str) {
        let is_made_up = name
            .strip_prefix('_')
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
        let value = tensor.storage().state.borrow().value;
        let Some(value) = value.filter(|_| !is_made_up && tensor.is_whole()) else {
            return;
        };
        let scope = self.scopes.innermost_mut();
        if scope.number == value.scope && scope.data.unnamed.remove(&value.id) {
            scope.builder.set_name(value.id, name);
        }
    }
}

/// The dtype of a scalar tensor that stands for a Python number.
pub fn python_dtype(number: &ScriptNumber) -> DType {
    match number {
        ScriptNumber::Bool(_) => DType::Bool,
        ScriptNumber::Int(_) => DType::I64,
        ScriptNumber::Float(_) | ScriptNumber::Ratio(..) => DType::F64,
    }
}

/// Returns the keyword argument of a name.
pub fn named_argument(arguments: &Arguments, name: &str) -> Option<Datum> {
    let mut named = arguments.named.iter();
    let entry = named.find(|(argument, _)| argument == name);
    entry.map(|(_, value)| value.clone())
}

/// Returns the operator without the write: `aten::add` for `aten::add_`, `aten::__and__` for `aten::__iand__`; none for
/// operators that do not write.
fn functional_name(name: &str) -> Option<String> {
    const AUGMENTED_ASSIGNMENTS: [&str; 5] = ["and", "or", "xor", "lshift", "rshift"];
    let augmented = name
        .strip_prefix("aten::__i")
        .and_then(|name| name.strip_suffix("__"));
    if let Some(name) = augmented.filter(|name| AUGMENTED_ASSIGNMENTS.contains(name)) {
        return Some(format!("aten::__{name}__"));
    }
    let functional = name.strip_suffix('_')?;
    (!functional.ends_with('_')).then(|| functional.to_string())
}

/// Names of the tensors among the arguments that a call writes its results to: `out`, or a name that is no parameter of
/// the known overloads, none of which writes.
fn out_arguments(name: &str, arguments: &Arguments) -> Vec<String> {
    let is_parameter = |argument: &str| {
        aten::overloads(name).any(|operator| operator.schema.position(argument).is_some())
    };
    let named = arguments.named.iter();
    let outs = named.filter(|(argument, value)| {
        let is_out =
            argument == "out" || aten::overloads(name).next().is_some() && !is_parameter(argument);
        matches!(value, Datum::Tensor(_)) && is_out
    });
    outs.map(|(argument, _)| argument.clone()).collect()
}

/// The Python type of arithmetic on numbers that are known only when the graph runs; none if a tensor takes part.
fn dynamic_kind(name: &str, arguments: &Arguments) -> Option<NumberKind> {
    // An operator with a `dtype` argument makes a tensor of numbers.
    if arguments.named.iter().any(|(name, _)| name == "dtype") {
        return None;
    }
    let mut kind = None;
    let mut has_float = false;
    for value in &arguments.positional {
        match value {
            Datum::Dynamic(operand_kind, _) => {
                has_float |= *operand_kind == NumberKind::Float;
                kind = kind.or(Some(*operand_kind));
            }
            Datum::Number(number) => has_float |= number.is_float(),
            _ => return None,
        }
    }
    let kind = kind.map(|kind| if has_float { NumberKind::Float } else { kind });
    let short_name = name
        .split_once("::")
        .map_or(name, |(_, short_name)| short_name);
    match short_name {
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "__not__" | "__and__" | "__or__" => {
            kind.map(|_| NumberKind::Bool)
        }
        "div" => kind.map(|_| NumberKind::Float),
        _ => kind,
    }
}

/// The tensor operator for one of Python's operators on numbers, if their names differ.
fn tensor_operator_name(name: &str) -> Option<&'static str> {
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

/// Help for weights in the layout of MKL-DNN (oneDNN).
const MKLDNN_HELP: &str = "torch.jit.optimize_for_inference does not save these weights, and PyTorch cannot load the file either: \
    save the module before this call, for example the result of torch.jit.freeze";

/// The error for a call that no overload takes.
fn no_overload(name: &str, arguments: &Arguments) -> Error {
    let candidates: Vec<&str> = aten::overloads(name)
        .flat_map(|operator| operator.row.schemas.iter().copied())
        .filter(|schema| schema.starts_with(name))
        .collect();
    if candidates.is_empty() {
        let error = Error::unsupported(format!("the operator {name}"));
        return match name.split_once("::") {
            Some(("prim", "ConstantMKLDNNTensor")) => error.help(MKLDNN_HELP),
            Some((namespace, _)) if !BUILTIN_NAMESPACES.contains(&namespace) => error.help(
                format!("define it in Rust: trace::CustomOperator::new({name:?}, ..).register()"),
            ),
            _ => error,
        };
    }
    let descriptions = arguments.positional.iter().map(describe_argument);
    let named = arguments.named.iter();
    let named = named.map(|(name, value)| format!("{name}={}", describe_argument(value)));
    let descriptions: Vec<String> = descriptions.chain(named).collect();
    let message = format!("{name} of ({})", descriptions.join(", "));
    let help = match message.contains(DEPENDS_ON_TENSORS) {
        true => STATIC_ARGUMENT_HELP.to_string(),
        false => format!("known overloads: {}", candidates.join("; ")),
    };
    Error::unsupported(message).help(help)
}

/// Part of the description of a dynamic number.
const DEPENDS_ON_TENSORS: &str = "that depends on tensors";
/// Help for an argument that is a dynamic number where a known one is needed.
const STATIC_ARGUMENT_HELP: &str = "sizes and settings must be known before the graph runs: derive them from tensor shapes, \
    or make them constants when the model is traced";

/// Describes the type of an argument for messages.
fn describe_argument(value: &Datum) -> String {
    match value {
        Datum::Dynamic(..) => format!("{} {DEPENDS_ON_TENSORS}", value.describe()),
        Datum::List(list) => {
            let items = list.items.borrow();
            let items: Vec<String> = items.iter().map(describe_argument).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.describe().to_string(),
    }
}

/// Reads `memory_format=` of a call, by name or by position.
pub fn memory_format(operator: &Operator, arguments: &Arguments) -> WantedFormat {
    let position = operator.schema.position("memory_format");
    let argument = position.and_then(|position| arguments.positional.get(position).cloned());
    let argument = named_argument(arguments, "memory_format").or(argument);
    WantedFormat::from_torch_code(match argument {
        Some(Datum::Number(ScriptNumber::Int(code))) => code.as_const(),
        _ => None,
    })
}
