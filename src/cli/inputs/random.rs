//! `--random`: draws the inputs that are not given.

use super::assignment::{AssignedTensor, TensorOrigin};
use crate::budget::{Budget, Limits};
use crate::dim::Bindings;
use crate::error::{Error, ErrorContext, Result};
use crate::ir::GraphModule;
use crate::model::{InputDistribution, Model, Signature, input_distributions, seed_of};
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// Draws the required inputs that are not given, and those for which only a type is given.
///
/// # Errors
/// The type of an input is unknown, or the model cannot be imported.
pub(super) fn draw_inputs(
    assigned: &mut Vec<AssignedTensor>,
    model: &Model,
    signature: &Signature,
    seed: u64,
) -> Result<()> {
    add_missing(assigned, signature, model.limits())?;
    let is_open = |one: &&AssignedTensor| matches!(one.origin, TensorOrigin::Zeros);
    let usual = |one: &AssignedTensor| InputDistribution::of(&one.name, &one.tensor.tensor_type());
    let mut open = assigned.iter().filter(is_open);
    // Only ranges of indices need the graph: it holds the sizes of embeddings.
    let ranges = match open.any(|one| matches!(usual(one), InputDistribution::Below(_))) {
        true => {
            let module = import(assigned, model, signature)?;
            input_distributions(module.graph(signature.entry())?)?
        }
        false => Default::default(),
    };
    for one in assigned.iter_mut().filter(|one| is_open(&&**one)) {
        let found = ranges.get(&one.name).copied();
        let found = found.unwrap_or_else(|| usual(one));
        one.tensor = found.tensor(&one.tensor.tensor_type(), seed_of(seed, &one.name))?;
        one.origin = TensorOrigin::Random(found);
    }
    Ok(())
}

/// Adds zeros for required inputs that are missing. The model says how many, so they are charged.
fn add_missing(
    assigned: &mut Vec<AssignedTensor>,
    signature: &Signature,
    limits: &Limits,
) -> Result<()> {
    let budget = Budget::new(limits.clone());
    let mut missing = signature.inputs();
    missing.retain(|input| {
        let within = format!("{}.", input.name);
        let is_it = |one: &AssignedTensor| one.name == input.name || one.name.starts_with(&within);
        input.is_required && !assigned.iter().any(is_it)
    });
    let mut unknown = Vec::new();
    for input in missing {
        match input.example {
            Some(ty) => assigned.push(AssignedTensor {
                tensor: zeros(&ty, &budget).at(|| format!("input {}", input.name))?,
                name: input.name,
                origin: TensorOrigin::Zeros,
            }),
            None => unknown.push(input.name),
        }
    }
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(without_types(&unknown)),
    }
}

fn zeros(ty: &TensorType, budget: &Budget) -> Result<Tensor> {
    let sizes = ty.sizes(&Bindings::new())?;
    let count = |count: u64, size: &usize| count.saturating_mul(*size as u64);
    budget.charge_bytes(sizes.iter().fold(size_of::<f64>() as u64, count))?;
    Tensor::full(ty.dtype, sizes, 0.0)
}

/// Imports the model for inputs of these types.
fn import(
    assigned: &[AssignedTensor],
    model: &Model,
    signature: &Signature,
) -> Result<GraphModule> {
    let named = assigned
        .iter()
        .map(|one| (one.name.clone(), one.tensor.clone()));
    let arguments = signature.arguments(&named.collect::<Vec<_>>())?;
    model.import_method_in_place(signature.entry(), Some(&arguments))
}

/// Describes a distribution: ` of normal(0, 1)`, ` of 0 to 999`, ` of ones`.
pub(super) fn describe(draw: InputDistribution) -> String {
    match draw {
        InputDistribution::Normal => " of normal(0, 1)".to_string(),
        InputDistribution::Below(end) => format!(" of 0 to {}", end - 1),
        InputDistribution::Ones => " of ones".to_string(),
    }
}

/// Returns the error for inputs that cannot be drawn because their types are unknown.
fn without_types(names: &[String]) -> Error {
    let list = names.join(", ");
    let message = format!("the model does not say which type each input has: {list}");
    let types = names
        .iter()
        .map(|name| format!("--shape '{name}=f32[SIZES]'"));
    let types: Vec<String> = types.collect();
    Error::input(message).help(format!("give the types: {}", types.join(" ")))
}
