use std::collections::HashMap;

use crate::error::Result;
use crate::ir::rewrite::{everywhere, replay};
use crate::ir::{Argument, Graph, Op, Primitive, Value, ValueId};

/// Computes equal nodes once, and what concatenations begin with, if that is one too: dense blocks join all that they have after
/// each layer. Regions are not compared.
pub fn cse(graph: &Graph) -> Result<Graph> {
    everywhere(graph, &mut |graph| {
        let mut known: HashMap<String, Vec<ValueId>> = HashMap::new();
        replay(graph, |replay, node| {
            if let Op::Region(_) = node.op {
                return replay.copy(node);
            }
            let arguments = replay.arguments(node);
            let key = key(&node.op, &arguments);
            if let Some(results) = known.get(&key) {
                let builder = replay.builder;
                return Ok(results.iter().map(|id| builder.value(*id)).collect());
            }
            let results = match begun(&known, &node.op, &arguments) {
                Some((first, primitive, rest)) => {
                    let arguments = [&[Argument::Value(first)], rest].concat();
                    replay.builder.try_apply(primitive.clone(), arguments)?
                }
                None => replay.copy(node)?,
            };
            known.insert(key, results.iter().copied().map(Value::id).collect());
            Ok(results)
        })
    })
}

/// The printed form tells -0.0 from 0.0 and has one form of not-a-number.
fn key(op: &Op, arguments: &[Argument]) -> String {
    format!("{op:?} {arguments:?}")
}

/// The longest known concatenation that another one begins with, and what that one joins to it.
fn begun<'a>(
    known: &HashMap<String, Vec<ValueId>>,
    op: &'a Op,
    arguments: &'a [Argument],
) -> Option<(ValueId, &'a Primitive, &'a [Argument])> {
    let Op::Primitive(primitive @ Primitive::Concat(_)) = op else {
        return None;
    };
    let counts = (2..arguments.len()).rev();
    let mut found = counts.filter_map(|count| {
        let (begin, rest) = arguments.split_at(count);
        let first = known.get(&key(op, begin))?.first()?;
        Some((*first, primitive, rest))
    });
    found.next()
}
