use std::collections::HashMap;

use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Argument, Builder, Graph, Op, Primitive, Value, ValueId};
use crate::scalar::Scalar;

/// Computes equal nodes once. A concatenation whose leading operands equal those of an earlier one reuses the earlier
/// result: DenseNet's dense blocks concatenate all previous features after each layer. Regions are not compared.
pub fn cse(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        let mut known: HashMap<String, Vec<ValueId>> = HashMap::new();
        let mut concats = KnownConcats::default();
        replay(graph, |replay, node| {
            if let Op::Region(_) = node.op {
                return replay.copy(node);
            }
            let arguments = replay.arguments(node);
            let key = key(replay.builder, &node.op, &arguments);
            if let Some(results) = known.get(&key) {
                let builder = replay.builder;
                return Ok(results.iter().map(|id| builder.value(*id)).collect());
            }
            let results = match (&node.op, concats.with_known_prefix(&node.op, &arguments)) {
                (Op::Primitive(primitive), Some(arguments)) => {
                    replay.builder.try_apply(primitive.clone(), arguments)?
                }
                _ => replay.copy(node)?,
            };
            concats.add(&node.op, arguments, &results);
            known.insert(key, results.iter().copied().map(Value::id).collect());
            Ok(results)
        })
    })
}

/// Text that is equal for nodes with equal results. The printed form of numbers distinguishes -0.0 from 0.0 and has one
/// form of NaN.
fn key(builder: &Builder, op: &Op, arguments: &[Argument]) -> String {
    let mut values = arguments.iter().flat_map(Argument::values);
    let has_floats =
        matches!(op, Op::Primitive(_)) && values.any(|id| builder.ty(id).dtype.is_float());
    match has_floats {
        true => format!(
            "{op:?} {:?}",
            arguments.iter().map(as_float).collect::<Vec<_>>()
        ),
        false => format!("{op:?} {arguments:?}"),
    }
}

/// A known size or integer beside floats as the float that it stands for, if that is exact.
fn as_float(argument: &Argument) -> Argument {
    let number = match argument {
        Argument::Size(size) => size.as_const(),
        Argument::Number(Scalar::Int(number)) => Some(*number),
        _ => None,
    };
    match number.filter(|number| number.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS) {
        Some(number) => Argument::Number(Scalar::Float(number as f64)),
        None => argument.clone(),
    }
}

/// Known concatenations by axis and first operand.
#[derive(Default)]
struct KnownConcats(HashMap<ConcatPrefix, Vec<KnownConcat>>);

/// Axis and first operand.
type ConcatPrefix = (usize, ValueId);

/// All operands of a concatenation and its result.
type KnownConcat = (Vec<Argument>, ValueId);

impl KnownConcats {
    /// Operands of a concatenation in which the result of the longest known concatenation replaces the leading operands;
    /// `None` if no known concatenation matches.
    fn with_known_prefix(&self, op: &Op, arguments: &[Argument]) -> Option<Vec<Argument>> {
        let known = self.0.get(&prefix(op, arguments)?)?;
        let matching = known
            .iter()
            .filter(|(operands, _)| arguments.starts_with(operands));
        let (operands, result) = matching.max_by_key(|(operands, _)| operands.len())?;
        let rest = &arguments[operands.len()..];
        Some([&[Argument::Value(*result)], rest].concat())
    }

    /// Records a node with its results, if it is a concatenation.
    fn add(&mut self, op: &Op, arguments: Vec<Argument>, results: &[Value]) {
        if let (Some(key), [result]) = (prefix(op, &arguments), results) {
            let known = self.0.entry(key).or_default();
            known.push((arguments, result.id()));
        }
    }
}

/// Axis and first operand of a node, if it is a concatenation.
fn prefix(op: &Op, arguments: &[Argument]) -> Option<ConcatPrefix> {
    match (op, arguments.first()?) {
        (Op::Primitive(Primitive::Concat(concat)), Argument::Value(first)) => {
            Some((concat.axis, *first))
        }
        _ => None,
    }
}
