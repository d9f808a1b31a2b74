use std::collections::HashMap;

use crate::error::Result;
use crate::ir::rewrite::{everywhere, replay};
use crate::ir::{Graph, Op, Value, ValueId};

/// Computes equal nodes once. Regions are not compared.
pub fn cse(graph: &Graph) -> Result<Graph> {
    everywhere(graph, &mut |graph| {
        let mut known: HashMap<String, Vec<ValueId>> = HashMap::new();
        replay(graph, |replay, node| {
            if let Op::Region(_) = node.op {
                return replay.copy(node);
            }
            // The printed form tells -0.0 from 0.0 and has one form of not-a-number.
            let key = format!("{:?} {:?}", node.op, replay.arguments(node));
            if let Some(results) = known.get(&key) {
                let builder = replay.builder;
                return Ok(results.iter().map(|id| builder.value(*id)).collect());
            }
            let results = replay.copy(node)?;
            known.insert(key, results.iter().copied().map(Value::id).collect());
            Ok(results)
        })
    })
}
