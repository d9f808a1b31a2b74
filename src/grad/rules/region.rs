//! Gradients of structured control flow.

use super::super::backward::{ArgumentGradients, NodeGradient};
use super::super::input_gradients;
use super::loops::of_loop;
use crate::error::{Error, Result};
use crate::ir::{Argument, Graph, Region};

pub(in crate::grad) fn of_region<'g>(
    region: &Region,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    match region {
        Region::If { then, otherwise } => of_if([then, otherwise], node),
        Region::Loop { body, carried } => of_loop(body, *carried, node),
        Region::Call { .. } => Err(Error::internal("a call of a graph was not inlined")),
    }
}

/// An `if` whose branches compute the values of the forward branch again, and the gradients.
fn of_if<'g>(
    [then, otherwise]: [&Graph; 2],
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let wanted: Vec<usize> = (1..node.node.arguments.len())
        .filter(|argument| node.wants(*argument))
        .collect();
    let inputs: Vec<usize> = wanted.iter().map(|argument| argument - 1).collect();
    let region = Region::If {
        then: input_gradients(then, &inputs)?,
        otherwise: input_gradients(otherwise, &inputs)?,
    };
    let mut arguments = node.node.arguments.clone();
    for index in 0..node.node.results.len() {
        if node.result(index)?.dtype().is_float() {
            arguments.push(Argument::from(node.gradient(index)?));
        }
    }
    let gradients = node.builder.try_region(region, arguments)?;
    let mut all = vec![None; node.node.arguments.len()];
    for (argument, gradient) in wanted.into_iter().zip(gradients) {
        if let Some(slot) = all.get_mut(argument) {
            *slot = Some(gradient);
        }
    }
    Ok(all)
}
