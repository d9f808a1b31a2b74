//! Random programs of views, strided results and in-place writes, run as Rust programs: their results are PyTorch's without a
//! trace and in a trace, for both sets of sizes.
//!
//! The programs are those of `tests/fixtures/programs` that PyTorch traced. Each statement of an archive becomes a call of the
//! tracer.

use std::collections::HashMap;
use std::path::Path;

use onionskin::archive::Pickled;
use onionskin::cases::{self, Call, Case, CaseArchive};
use onionskin::compare::{Tolerance, compare};
use onionskin::dtype::DType;
use onionskin::error::{Error, ErrorKind, Result};
use onionskin::item::Item;
use onionskin::tensor::Tensor;
use onionskin::trace::script::Script;
use onionskin::trace::script::ast::{
    AstExpr, AstExprKind, CallExpr, Callee, FunctionDef, Stmt, StmtKind,
};
use onionskin::trace::torchscript::Archive;
use onionskin::trace::{Arg, Size, TracedTensor, call, trace_fn};

/// A program that cannot run here: it reads memory of a constant beyond the constant's elements, which the loaded tensor does
/// not have.
const NO_RUST_PROGRAM: (&str, &str) = ("programs/08", "p99");

/// A value of a program.
#[derive(Clone)]
enum Value {
    /// A tensor, string, number or `None`.
    Arg(Arg),
    /// A size.
    Size(Size),
    /// A list or tuple.
    List(Vec<Value>),
}

/// A run of a program.
struct Evaluator<'a> {
    archive: &'a Archive,
    variables: HashMap<&'a str, Value>,
}

impl<'a> Evaluator<'a> {
    /// Runs a method and returns the tensors of its result.
    fn run(
        archive: &'a Archive,
        method: &'a FunctionDef,
        inputs: &[TracedTensor],
    ) -> Result<Vec<TracedTensor>> {
        let parameters = method.parameters.iter().skip(1);
        let parameters = parameters.map(|parameter| parameter.name.as_str());
        let inputs = inputs.iter().map(|input| Value::Arg(input.into()));
        let variables = parameters.zip(inputs).collect();
        let mut run = Evaluator { archive, variables };
        for statement in &method.body {
            if let Some(result) = run.statement(statement)? {
                return result.tensors();
            }
        }
        Err(unexpected("a program without a result"))
    }

    /// Runs a statement; the value is that of a `return`.
    fn statement(&mut self, statement: &'a Stmt) -> Result<Option<Value>> {
        match &statement.kind {
            StmtKind::Assign { name, value, .. } => {
                let value = self.value(value)?;
                self.variables.insert(name, value);
            }
            StmtKind::Unpack { names, value } => {
                let items = match self.value(value)? {
                    Value::List(items) => items,
                    single => vec![single],
                };
                assert_eq!(names.len(), items.len());
                let names = names.iter().map(String::as_str);
                self.variables.extend(names.zip(items));
            }
            StmtKind::Evaluate(value) => drop(self.value(value)?),
            StmtKind::Return(value) => return self.value(value).map(Some),
            _ => return Err(unexpected("a statement")),
        }
        Ok(None)
    }

    fn value(&self, expr: &'a AstExpr) -> Result<Value> {
        Ok(match &expr.kind {
            AstExprKind::Name(name) => self.variables[name.as_str()].clone(),
            AstExprKind::Constant(index) => Value::Arg(self.constant(*index)?.into()),
            AstExprKind::None => Value::Arg(Arg::None),
            AstExprKind::Bool(value) => Value::Arg((*value).into()),
            AstExprKind::Int(value) => Value::Arg((*value).into()),
            AstExprKind::Float(value) => Value::Arg((*value).into()),
            AstExprKind::Str(value) => Value::Arg(value.as_str().into()),
            AstExprKind::List(items) | AstExprKind::Tuple(items) => {
                let items = items.iter().map(|item| self.value(item));
                Value::List(items.collect::<Result<_>>()?)
            }
            AstExprKind::Annotate(_, value) => self.value(value)?,
            AstExprKind::Call(call) => self.call(call)?,
            _ => return Err(unexpected("an expression")),
        })
    }

    fn constant(&self, index: usize) -> Result<TracedTensor> {
        match &self.archive.constants()[index] {
            Pickled::Tensor(record) => Ok(self.archive.tensor(record)?.into()),
            _ => Err(unexpected("a constant")),
        }
    }

    fn call(&self, expr: &'a CallExpr) -> Result<Value> {
        let arguments = expr.arguments.iter().map(|argument| self.value(argument));
        let arguments: Vec<Value> = arguments.collect::<Result<_>>()?;
        let name = match &expr.callee {
            Callee::Operator(name) => name.as_str(),
            Callee::Name(name) => name.as_str(),
            _ => return Err(unexpected("a callee")),
        };
        match (name, arguments.as_slice()) {
            ("int" | "prim::NumToTensor", [size]) => return Ok(size.clone()),
            ("aten::device", [_]) => return Ok(Value::Arg(Arg::None)),
            (
                "aten::size",
                [
                    Value::Arg(Arg::Tensor(tensor)),
                    Value::Arg(Arg::Number(dim)),
                ],
            ) => {
                return Ok(Value::Size(tensor.dim(dim.to_i64())));
            }
            (_, [Value::Size(left), right]) => return size_arithmetic(name, left, right),
            _ => {}
        }
        let named = expr.keywords.iter();
        let named = named.map(|(name, value)| {
            let value = self.value(value)?.into_arg();
            let is_dtype = name == "dtype";
            Ok((name.as_str(), if is_dtype { dtype(value) } else { value }))
        });
        let named: Vec<(&str, Arg)> = named.collect::<Result<_>>()?;
        let positional = arguments.into_iter().map(Value::into_arg).collect();
        let name = name.strip_prefix("aten::").unwrap_or(name);
        let mut results = call(name, positional, named);
        if let Some(error) = results.iter().find_map(TracedTensor::error) {
            return Err(error);
        }
        Ok(match results.len() {
            1 => Value::Arg(results.swap_remove(0).into()),
            _ => Value::List(
                results
                    .into_iter()
                    .map(|one| Value::Arg(one.into()))
                    .collect(),
            ),
        })
    }
}

/// An element type, which an archive has as a number.
fn dtype(argument: Arg) -> Arg {
    match argument {
        Arg::Number(code) => Arg::DType(DType::from_torch_code(code.to_i64()).unwrap()),
        other => other,
    }
}

impl Value {
    fn into_arg(self) -> Arg {
        match self {
            Value::Arg(argument) => argument,
            Value::Size(size) => size.into(),
            Value::List(items) => Arg::List(items.into_iter().map(Value::into_arg).collect()),
        }
    }

    fn tensors(self) -> Result<Vec<TracedTensor>> {
        match self {
            Value::Arg(Arg::Tensor(tensor)) => Ok(vec![tensor]),
            Value::List(items) => {
                let items = items.into_iter().map(Value::tensors);
                Ok(items.collect::<Result<Vec<_>>>()?.concat())
            }
            _ => Err(unexpected("a result")),
        }
    }
}

/// Arithmetic of a size and a number, which an archive has as a tensor.
fn size_arithmetic(name: &str, left: &Size, right: &Value) -> Result<Value> {
    let right = match right {
        Value::Size(size) => size.clone(),
        Value::Arg(Arg::Tensor(number)) => Size::from(number.to_scalar()?.to_i64()),
        _ => return Err(unexpected("an operand of a size")),
    };
    Ok(Value::Size(match name {
        "aten::add" => left + right,
        "aten::sub" => left - right,
        "aten::mul" => left * right,
        "aten::floor_divide" => left / right,
        _ => return Err(unexpected(name)),
    }))
}

fn unexpected(what: &str) -> Error {
    Error::internal(format!("{what} that this test does not know"))
}

/// Inputs of a call as new tensors.
fn inputs(call: &Call) -> Vec<TracedTensor> {
    let tensors = call.inputs.iter().flat_map(Item::tensors);
    tensors.cloned().map(TracedTensor::from).collect()
}

/// The first difference between results and those of PyTorch.
fn difference(
    results: &[TracedTensor],
    call: &Call,
    tolerance: Tolerance,
) -> Result<Option<String>> {
    let values = results.iter().map(TracedTensor::to_host);
    let values: Vec<Tensor> = values.collect::<Result<_>>()?;
    let got = Item::Tuple(values.into_iter().map(Item::Tensor).collect());
    let differences = compare(&got, &call.output, tolerance);
    let wrong = differences.iter().find(|found| !found.passed());
    Ok(wrong.map(ToString::to_string))
}

/// Returns the reason why a program fails, if it does.
fn failure(archive: &Archive, case: &Case, index: usize) -> Result<Option<String>> {
    let first = &case.sets[0].calls[index];
    let class = archive.class("__torch__.programs.Programs")?;
    let method = class
        .methods
        .iter()
        .find(|method| method.name == first.method);
    let method = method.ok_or_else(|| unexpected("a method"))?;
    for set in &case.sets {
        let call = &set.calls[index];
        let results = Evaluator::run(archive, method, &inputs(call))?;
        if let Some(wrong) = difference(&results, call, set.tolerance)? {
            return Ok(Some(format!("without a trace, {}: {wrong}", set.label)));
        }
    }
    let program = |inputs: Vec<TracedTensor>| Evaluator::run(archive, method, &inputs);
    let traced = trace_fn(inputs(first), program)?;
    for set in &case.sets {
        let call = &set.calls[index];
        let results: Vec<TracedTensor> = match traced.call(inputs(call)) {
            // A graph refuses sizes for which the program would do something else.
            Err(error) if error.kind() == ErrorKind::Input => continue,
            results => results?,
        };
        if let Some(wrong) = difference(&results, call, set.tolerance)? {
            return Ok(Some(format!("in a trace, {}: {wrong}", set.label)));
        }
    }
    Ok(None)
}

/// The seed of a file, which is its name.
fn seed(name: &str) -> usize {
    let digits = name.trim_start_matches(|character: char| !character.is_ascii_digit());
    digits.trim_end_matches(".zip").parse().unwrap()
}

#[test]
fn random_programs_agree_with_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs");
    let (mut count, mut failures) = (0, Vec::new());
    for found in cases::find(&folder).unwrap() {
        // `make_programs.py` scripts every fourth file.
        if seed(&found.name) % 4 == 3 {
            continue;
        }
        let case = found.load().unwrap();
        let archive = match &case.archive {
            CaseArchive::Path(path) => Archive::open(path).unwrap(),
            CaseArchive::Bytes(bytes) => Archive::from_bytes(bytes.to_vec()).unwrap(),
        };
        for index in 0..case.sets[0].calls.len() {
            let name = &case.sets[0].calls[index].method;
            if NO_RUST_PROGRAM == (&found.name, name) {
                continue;
            }
            count += 1;
            let failed = failure(&archive, &case, index);
            let reason = failed.unwrap_or_else(|error| Some(error.to_string()));
            failures.extend(reason.map(|reason| format!("{} {name}: {reason}", found.name)));
        }
    }
    assert_eq!(count, 1799, "programs that PyTorch traced");
    let shown = failures.iter().take(60).cloned().collect::<Vec<_>>();
    assert!(
        failures.is_empty(),
        "{} of {count}:\n{}",
        failures.len(),
        shown.join("\n")
    );
}
