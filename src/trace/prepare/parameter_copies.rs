//! Copies of parameters for the instances of a module.

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
                let existed = copy_weight(weights, &name, &instance_name)?;
                let ty = graph.ty(id).clone();
                let new = graph.weight_value(&instance_name, &ty);
                replace_operand(&mut graph.nodes[index], id, new);
                if !existed {
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
    let module_path = without_call_numbers(&place.module);
    let instance = instances.name(&place.module);
    let name_pairs = module_path.split('.').zip(instance.split('.'));
    let mut names: Vec<&str> = weight.split('.').collect();
    let common = name_pairs.zip(&mut names);
    for ((_, instance), name) in common.take_while(|((component, _), name)| component == *name) {
        *name = instance;
    }
    names.join(".")
}

/// Copies the weight `name` under the name `copy_name`. True if the copy existed already.
fn copy_weight(weights: &mut Weights, name: &str, copy_name: &str) -> Result<bool> {
    let missing = || Error::input(format!("there is no weight {name}"));
    let tensor = weights.get(name).cloned().ok_or_else(missing)?;
    Ok(weights.insert(copy_name.to_string(), tensor).is_some())
}

/// Replaces an operand of a node.
fn replace_operand(node: &mut Node, old: ValueId, new: ValueId) {
    let mut value = |id| if id == old { new } else { id };
    for argument in &mut node.arguments {
        *argument = argument.map(&mut value, &mut |size| size.clone());
    }
}
