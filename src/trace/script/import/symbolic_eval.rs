//! Evaluation of numbers that follow from sizes and weights alone.
//!
//! A trace computes sizes by tensors: `_shape_as_tensor`, `stack`, `min`, `ceil`. The importer evaluates the subgraph of
//! such a number in two ways. First, it tries arithmetic on symbolic sizes, element by element. If that fails where a size
//! is wanted, it runs the interpreter, which fixes the sizes to their examples.

use std::collections::{BTreeSet, HashMap};

use crate::dim::{Bindings, Dim, Symbol};
use crate::dtype::{Category, DType};
use crate::error::Result;
use crate::interp;
use crate::ir::{Argument, Graph, Node, Op, ValueId, Weights};
use crate::op::{BinaryFunction, Full, Permute, Primitive, Reduce, ReduceFunction};
use crate::pass::decompose;
use crate::shape::sizes;
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

use super::Importer;
use super::datum::{Datum, NumberKind};
use super::number::{self, ScriptNumber};
use super::tensor::TensorRef;

/// Maximum number of elements of a tensor that is evaluated symbolically.
const MAX_ELEMENTS: usize = 256;

impl Importer<'_> {
    /// Evaluates a value of one element, if it follows from sizes and weights and fixes no size.
    pub(super) fn eval_symbolic(
        &mut self,
        kind: NumberKind,
        id: ValueId,
    ) -> Result<Option<ScriptNumber>> {
        let Some(subgraph) = self.builder().constant_subgraph(id) else {
            return Ok(None);
        };
        if symbols_in(&subgraph).is_empty() {
            return self.interpret(kind, &subgraph);
        }
        // A value that can't be evaluated is left to be computed when the graph runs.
        let Some(body) = decompose(&subgraph)
            .ok()
            .filter(|body| body.hints.len() == subgraph.hints.len())
        else {
            return Ok(None);
        };
        // A trial on a copy of the symbols shows whether the evaluation succeeds and fixes no size.
        let trial = Symbols::new(subgraph.hints.clone(), subgraph.guards.clone());
        let number = eval_graph(&trial, &body);
        if number.is_none() || trial.hints().len() != subgraph.hints.len() {
            return Ok(None);
        }
        Ok(eval_graph(self.builder().symbols(), &body))
    }

    /// Evaluates a value of one element, if it follows from sizes and weights. Fixes these sizes to their examples.
    pub(super) fn eval_fixing_sizes(
        &mut self,
        kind: NumberKind,
        id: ValueId,
    ) -> Result<Option<ScriptNumber>> {
        if let Some(number) = self.eval_symbolic(kind, id)? {
            return Ok(Some(number));
        }
        let Some(subgraph) = self.builder().constant_subgraph(id) else {
            return Ok(None);
        };
        let interpreted = self.interpret(kind, &subgraph.with_sizes(&subgraph.hints))?;
        if interpreted.is_some() {
            let builder = self.builder();
            for symbol in symbols_in(&subgraph) {
                builder.symbols().specialize(&Dim::symbol(symbol))?;
            }
        }
        Ok(interpreted)
    }

    /// Evaluates a number where a known one is wanted. A tensor that the graph computes from sizes and weights is evaluated,
    /// which fixes the sizes to their examples. Any other value is returned as it is.
    pub(super) fn known_number(&mut self, value: &Datum) -> Result<Datum> {
        let (kind, tensor) = match value {
            Datum::Dynamic(kind, tensor) => (*kind, tensor),
            Datum::Tensor(tensor) => match tensor.number() {
                Some(host) => return Ok(Datum::Number(host.number)),
                None if self.ty(tensor)?.numel().is(1) => (self.kind_of(tensor)?, tensor),
                None => return Ok(value.clone()),
            },
            other => return Ok(other.clone()),
        };
        let id = self.read(tensor)?;
        let number = self.eval_fixing_sizes(kind, id)?;
        Ok(number.map_or_else(|| value.clone(), Datum::Number))
    }

    /// The Python type of a tensor's elements.
    pub(super) fn kind_of(&mut self, tensor: &TensorRef) -> Result<NumberKind> {
        Ok(match self.ty(tensor)?.dtype.category() {
            Category::Bool => NumberKind::Bool,
            Category::Integer => NumberKind::Int,
            Category::Float => NumberKind::Float,
        })
    }

    /// Runs the interpreter on a subgraph without symbols. Returns the only element.
    fn interpret(&self, kind: NumberKind, subgraph: &Graph) -> Result<Option<ScriptNumber>> {
        let mut weights = Weights::new();
        for (name, _) in subgraph.weights() {
            if let Some(record) = self.shared.records.get(name) {
                weights.insert(
                    name.to_string(),
                    self.script.read_tensor(record, &self.budget)?,
                );
            }
        }
        // A subgraph that can't be computed here is left to fail when the graph runs.
        let result = interp::run(subgraph, &weights, &[]).ok();
        let result = result.and_then(|tensors| tensors.into_iter().next());
        Ok(result.and_then(|tensor| match kind {
            NumberKind::Bool => Some(ScriptNumber::Bool(*tensor.to_i64().first()? != 0)),
            NumberKind::Int => Some(ScriptNumber::int(*tensor.to_i64().first()?)),
            NumberKind::Float => Some(ScriptNumber::Float(*tensor.to_f64().first()?)),
        }))
    }
}

/// The symbols that occur in a graph.
fn symbols_in(graph: &Graph) -> BTreeSet<Symbol> {
    let mut result = BTreeSet::new();
    graph.clone().map_sizes(&mut |dim| {
        result.extend(dim.symbols());
        dim.clone()
    });
    result
}

/// Evaluates a graph of primitives on numbers and symbolic sizes. Returns the first element of its first output; none
/// if a node cannot be evaluated or has more than [`MAX_ELEMENTS`] elements.
fn eval_graph(symbols: &Symbols, graph: &Graph) -> Option<ScriptNumber> {
    let mut values: HashMap<ValueId, SymbolicTensor> = HashMap::new();
    for node in &graph.nodes {
        let operands = node.arguments.iter().map(|argument| match argument {
            Argument::Value(id) => values.get(id).cloned(),
            Argument::Number(scalar) => Some(SymbolicTensor::number((*scalar).into())),
            Argument::Size(dim) => Some(SymbolicTensor::number(ScriptNumber::Int(dim.clone()))),
            _ => None,
        });
        let operands: Vec<SymbolicTensor> = operands.collect::<Option<_>>()?;
        let result = eval_node(symbols, node, &operands)?;
        let fits = result.items.len() <= MAX_ELEMENTS;
        values.insert(*node.results.first().filter(|_| fits)?, result);
    }
    values.get(graph.outputs.first()?)?.items.first().cloned()
}

/// Evaluates a primitive on numbers and symbolic sizes; none if it is not supported here.
fn eval_node(
    symbols: &Symbols,
    node: &Node,
    operands: &[SymbolicTensor],
) -> Option<SymbolicTensor> {
    let Op::Primitive(primitive) = &node.op else {
        return None;
    };
    let result = match (primitive, operands) {
        (Primitive::Full(full), [number]) => eval_full(full, number)?,
        (Primitive::Cast(cast), [x]) => SymbolicTensor {
            dtype: cast.dtype,
            ..x.clone()
        },
        (Primitive::Unary(unary), [x]) => {
            let name = unary.function.name();
            let items = x.items.iter();
            x.with_items(items.map(|item| number::unary(symbols, name, item).ok()?))?
        }
        (Primitive::Binary(binary), [x, y]) => eval_binary(symbols, binary.function, x, y)?,
        (Primitive::Select(_), [condition, x, y]) => eval_select(symbols, condition, x, y)?,
        (Primitive::Reduce(reduce), [x]) => eval_reduce(symbols, reduce, x)?,
        (Primitive::Gather(_), [x, index]) => eval_movement(
            primitive,
            std::slice::from_ref(x),
            &[index.to_known_integers()?],
        )?,
        (
            Primitive::Reshape(_)
            | Primitive::Permute(_)
            | Primitive::Expand(_)
            | Primitive::Slice(_)
            | Primitive::Concat(_)
            | Primitive::Unfold(_)
            | Primitive::Pad(_),
            operands,
        ) => eval_movement(primitive, operands, &[])?,
        _ => return None,
    };
    result.cast_items(symbols)
}

fn eval_full(full: &Full, number: &SymbolicTensor) -> Option<SymbolicTensor> {
    let shape = sizes(&full.shape, &Bindings::new()).ok()?;
    let numel = numel(&shape).ok().filter(|numel| *numel <= MAX_ELEMENTS)?;
    Some(SymbolicTensor {
        dtype: full.dtype,
        shape,
        items: vec![number.items.first()?.clone(); numel],
        is_literal: false,
    })
}

fn eval_binary(
    symbols: &Symbols,
    function: BinaryFunction,
    x: &SymbolicTensor,
    y: &SymbolicTensor,
) -> Option<SymbolicTensor> {
    let (x, y) = unify_types(symbols, x, y)?;
    let pairs = x.items.iter().zip(&y.items);
    let items = pairs.map(|(x, y)| number::binary(symbols, function.name(), x, y).ok()?);
    let mut result = x.with_items(items)?;
    if function.is_comparison() {
        result.dtype = DType::Bool;
    }
    Some(result)
}

fn eval_select(
    symbols: &Symbols,
    condition: &SymbolicTensor,
    x: &SymbolicTensor,
    y: &SymbolicTensor,
) -> Option<SymbolicTensor> {
    let (x, y) = unify_types(symbols, x, y)?;
    let cases = condition.items.iter().zip(x.items.iter().zip(&y.items));
    let items = cases.map(|(condition, (x, y))| {
        let chosen = if condition.is_truthy(symbols).ok()? {
            x
        } else {
            y
        };
        Some(chosen.clone())
    });
    x.with_items(items)
}

/// Reduces all elements along some axes, from the first to the last.
fn eval_reduce(symbols: &Symbols, reduce: &Reduce, x: &SymbolicTensor) -> Option<SymbolicTensor> {
    let name = match reduce.function {
        ReduceFunction::Sum => "add",
        ReduceFunction::Prod => "mul",
        ReduceFunction::Max => "maximum",
        ReduceFunction::Min => "minimum",
    };
    let kept_axes = (0..x.shape.len()).filter(|axis| !reduce.axes.contains(axis));
    let kept_axes: Vec<usize> = kept_axes.collect();
    let shape: Vec<usize> = kept_axes
        .iter()
        .filter_map(|axis| x.shape.get(*axis).copied())
        .collect();
    let axes = [kept_axes.as_slice(), &reduce.axes].concat();
    let transposed = eval_movement(&Permute { axes }.into(), std::slice::from_ref(x), &[])?;
    let result_count = shape.iter().product::<usize>().max(1);
    let reduced_length = transposed
        .items
        .len()
        .checked_div(result_count)
        .filter(|reduced_length| *reduced_length > 0)?;
    let groups = transposed.items.chunks(reduced_length).map(|group| {
        let (first, rest) = group.split_first()?;
        rest.iter().try_fold(first.clone(), |total, item| {
            let total = number::binary(symbols, name, &total, item).ok()??;
            total.cast(x.dtype, symbols).ok()
        })
    });
    Some(SymbolicTensor {
        dtype: x.dtype,
        shape,
        items: groups.collect::<Option<_>>()?,
        is_literal: false,
    })
}

/// Evaluates a primitive that only moves elements, by running it on the positions of the elements, counted through all
/// operands. `index_tensors` follow the operands unchanged.
fn eval_movement(
    primitive: &Primitive,
    operands: &[SymbolicTensor],
    index_tensors: &[Tensor],
) -> Option<SymbolicTensor> {
    let mut first_position = 0;
    let mut positions = Vec::new();
    for operand in operands {
        let count = i64::try_from(operand.items.len()).ok()?;
        let range = (first_position..first_position + count).collect();
        positions.push(Tensor::from_i64(DType::I64, operand.shape.clone(), range).ok()?);
        first_position += count;
    }
    positions.extend_from_slice(index_tensors);
    let result = primitive.eval(&positions, &Bindings::new()).ok()?;
    let result = result.first()?;
    let items: Vec<&ScriptNumber> = operands.iter().flat_map(|operand| &operand.items).collect();
    let sources = result.to_i64().into_iter();
    let items = sources.map(|source| Some((*items.get(usize::try_from(source).ok()?)?).clone()));
    Some(SymbolicTensor {
        dtype: operands.first()?.dtype,
        shape: result.shape().to_vec(),
        items: items.collect::<Option<_>>()?,
        is_literal: false,
    })
}

/// Converts a literal number to the dtype and shape of the other operand, if that is a tensor. Returns both operands.
fn unify_types(
    symbols: &Symbols,
    x: &SymbolicTensor,
    y: &SymbolicTensor,
) -> Option<(SymbolicTensor, SymbolicTensor)> {
    let broadcast = |number: &SymbolicTensor, tensor: &SymbolicTensor| {
        let items = vec![number.items.first()?.clone(); tensor.items.len()];
        SymbolicTensor {
            items,
            ..tensor.clone()
        }
        .cast_items(symbols)
    };
    match (x.is_literal, y.is_literal) {
        (true, false) => Some((broadcast(x, y)?, y.clone())),
        (false, true) => Some((x.clone(), broadcast(y, x)?)),
        _ => Some((x.clone(), y.clone())),
    }
}

/// A tensor of numbers, which may be symbolic sizes.
#[derive(Clone)]
struct SymbolicTensor {
    dtype: DType,
    shape: Vec<usize>,
    items: Vec<ScriptNumber>,
    /// True for a number that is written as an argument of the node.
    is_literal: bool,
}

impl SymbolicTensor {
    /// A number that is written as an argument of the node.
    fn number(number: ScriptNumber) -> SymbolicTensor {
        SymbolicTensor {
            dtype: DType::F64,
            shape: Vec::new(),
            items: vec![number],
            is_literal: true,
        }
    }

    /// Replaces the elements. Keeps the dtype and shape.
    fn with_items(
        &self,
        items: impl Iterator<Item = Option<ScriptNumber>>,
    ) -> Option<SymbolicTensor> {
        Some(SymbolicTensor {
            items: items.collect::<Option<_>>()?,
            ..self.clone()
        })
    }

    /// Rounds the elements to the dtype.
    fn cast_items(&self, symbols: &Symbols) -> Option<SymbolicTensor> {
        self.with_items(
            self.items
                .iter()
                .map(|item| item.cast(self.dtype, symbols).ok()),
        )
    }

    /// Converts elements to a tensor if they are known integers.
    fn to_known_integers(&self) -> Option<Tensor> {
        let items = self.items.iter().map(|item| match item {
            ScriptNumber::Int(dim) => dim.as_const(),
            _ => None,
        });
        Tensor::from_i64(
            DType::I64,
            self.shape.clone(),
            items.collect::<Option<_>>()?,
        )
        .ok()
    }
}
