use super::instances::Instances;
use super::report::{PrepareReport, RewriteKind};
use crate::error::{Error, Result, SourcePlace, without_call_numbers};
use crate::ir::{Definition, Graph, Node, ValueId, Weights};

/// Copies the weights for every instance of a module, under the instance's name.
pub(super) fn copy_parameters(
    graph: &mut Graph,
    instances: &Instances,
    weights: &mut Weights,
    report: &mut PrepareReport,
) -> Result<()> {
    for index in 0..graph.nodes.len() {
        let place = graph.nodes[index].place.clone();
        for id in graph.nodes[index].operands() {
            let Definition::Weight(name) = graph.value(id).definition.clone() else {
                continue;
            };
            let instance_name = instance_weight_name(&place, instances, &name);
            if instance_name != name {
                let known = copy_weight(weights, &name, &instance_name)?;
                let ty = graph.ty(id).clone();
                let new = graph.weight_value(&instance_name, &ty);
                replace_operand(&mut graph.nodes[index], id, new);
                if !known {
                    report.add(RewriteKind::Copied, &name, &instance_name, &place);
                }
            }
        }
        for body in graph.nodes[index].bodies_mut() {
            copy_parameters(body, instances, weights, report)?;
        }
    }
    Ok(())
}

/// Name of a weight in the instance of a place: `block_1.conv.weight` for `block.conv.weight`. A weight of another module
/// keeps its name.
fn instance_weight_name(place: &SourcePlace, instances: &Instances, weight: &str) -> String {
    let plain = without_call_numbers(&place.module);
    let instance = instances.name(&place.module);
    let parts = plain.split('.').zip(instance.split('.'));
    let mut own: Vec<&str> = weight.split('.').collect();
    let common = parts.zip(&mut own);
    for ((_, instance), part) in common.take_while(|((plain, _), part)| plain == *part) {
        *part = instance;
    }
    own.join(".")
}

/// Copies a weight. True if the copy existed already.
fn copy_weight(weights: &mut Weights, name: &str, own: &str) -> Result<bool> {
    let missing = || Error::input(format!("there is no weight {name}"));
    let tensor = weights.get(name).cloned().ok_or_else(missing)?;
    Ok(weights.insert(own.to_string(), tensor).is_some())
}

fn replace_operand(node: &mut Node, old: ValueId, new: ValueId) {
    let mut value = |id| if id == old { new } else { id };
    for argument in &mut node.arguments {
        *argument = argument.map(&mut value, &mut |size| size.clone());
    }
}
