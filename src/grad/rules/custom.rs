//! Gradients of operators that the user defined, by an operator that the user defined for them.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::error::{Error, Result};
use crate::ir::{Argument, Value};
use crate::op::{Custom, rules_of};
use crate::shape::{TensorType, type_list};

pub(super) fn custom<'g>(
    custom: &Custom,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let name = &custom.function;
    let gradient = rules_of(name).and_then(|rules| rules.gradient);
    let rules = gradient.as_deref().and_then(rules_of);
    let (Some(gradient), Some(rules)) = (gradient, rules) else {
        let message = format!("the operator {name} has no rule for its gradient");
        return Err(Error::unsupported(message).help("give it one: CustomOperator::with_gradient"));
    };
    let operands = (0..node.node.arguments.len()).map(|index| node.operand(index));
    let operands: Vec<Value> = operands.collect::<Result<_>>()?;
    let mut all = operands.clone();
    for index in 0..node.node.results.len() {
        if node.result(index)?.dtype().is_float() {
            all.push(node.gradient(index)?);
        }
    }
    let types: Vec<TensorType> = all.iter().map(|value| value.ty()).collect();
    let arguments = all.into_iter().map(Argument::from).collect();
    let results = node
        .builder
        .try_apply(rules.operator(&gradient, &types)?, arguments)?;
    let floats = operands.iter().filter(|x| x.dtype().is_float());
    let expected: Vec<TensorType> = floats.map(|value| value.ty()).collect();
    let found: Vec<TensorType> = results.iter().map(|value| value.ty()).collect();
    if found != expected {
        return Err(Error::operator(format!(
            "{gradient} returns {}; the gradients of {name} are {}",
            type_list(&found),
            type_list(&expected)
        )));
    }
    let mut results = results.into_iter();
    let gradients = operands
        .iter()
        .map(|operand| operand.dtype().is_float().then(|| results.next()).flatten());
    Ok(gradients.collect())
}
