use crate::compare::{Tolerance, compare_tensors};
use crate::error::{Error, Result};
use crate::gpu::{Input, Keep, Run};
use crate::interp;
use crate::ir::Node;
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, scaled};

use super::{CompileOptions, Device, Model, Variant};
use crate::item::Item;

/// Runs a call of an entry graph on a device with all values kept, and the oracle beside it, and finds the first value that differs.
/// `None` if all that both have agree; values that were fused into kernels exist on the oracle only.
///
/// # Errors
/// The call fails on either side.
pub fn first_divergence(
    model: &Model,
    device: &Device,
    entry: &str,
    arguments: &[Item],
    tolerance: Tolerance,
) -> Result<Option<Divergence>> {
    let options = CompileOptions {
        entry: entry.to_string(),
        keep: Keep::Everything,
        ..CompileOptions::default()
    };
    let (variant, inputs) = model.compile(device, &options)?.prepare(arguments)?;
    let Some(program) = &variant.program else {
        return Ok(None);
    };
    let hosted: Vec<Input> = inputs.iter().map(Input::Host).collect();
    let run = program.launch_with(&variant.bind(&inputs)?, &hosted)?;
    find(&variant, &run, &inputs, tolerance)
}

fn find(
    variant: &Variant,
    run: &Run,
    inputs: &[Tensor],
    tolerance: Tolerance,
) -> Result<Option<Divergence>> {
    let graph = &variant.lowered;
    let mut found = None;
    interp::run_watched(
        graph,
        &variant.weights,
        inputs,
        &mut |node: &Node, results: &[Tensor]| {
            for (id, expected) in node.results.iter().zip(results) {
                let name = &graph.value(*id).name;
                if found.is_some() || !is_kept(variant, name) {
                    continue;
                }
                let difference = compare_tensors(
                    name,
                    &run.slot(name)?,
                    expected,
                    scaled(tolerance, expected),
                );
                if !difference.passed() {
                    found = Some(Divergence::new(name, node, difference));
                }
            }
            Ok::<(), Error>(())
        },
    )?;
    Ok(found)
}

fn is_kept(variant: &Variant, name: &str) -> bool {
    let slots = variant
        .program
        .as_ref()
        .map(|program| &program.plan().slots);
    slots.is_some_and(|slots| slots.iter().any(|slot| slot.name == name))
}
