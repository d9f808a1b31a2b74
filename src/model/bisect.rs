use crate::compare::{Difference, Tolerance, compare_tensors};
use crate::error::{Error, Place, Result};
use crate::gpu::{Input, Keep, Run};
use crate::interp;
use crate::ir::Node;
use crate::tensor::Tensor;

use super::{CompileOptions, Device, Model, Variant};
use crate::item::Item;

/// The first value on which a device and the oracle disagree.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Name of the value in the graph that ran.
    pub value: String,
    /// The operation that made it.
    pub op: String,
    /// Where it stands in the user's model.
    pub place: Place,
    /// How far off it is.
    pub difference: Difference,
}

/// Runs a call on a device with all values kept, and the oracle beside it, and finds the first value that differs.
/// `None` if all that both have agree; values that were fused into kernels exist on the oracle only.
///
/// # Errors
/// The call fails on either side.
pub fn first_divergence(
    model: &Model,
    device: &Device,
    arguments: &[Item],
    tolerance: Tolerance,
) -> Result<Option<Divergence>> {
    let options = CompileOptions {
        keep: Keep::Everything,
        ..CompileOptions::default()
    };
    let variant = model.compile(device, &options)?.variant(arguments)?;
    let inputs = variant.flatten(arguments)?;
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
                    let (value, op, place) =
                        (name.clone(), node.op.name().to_string(), node.place.clone());
                    found = Some(Divergence {
                        value,
                        op,
                        place,
                        difference,
                    });
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

/// Inner values are held to the relative tolerance of their largest element, since small ones are differences of large.
fn scaled(tolerance: Tolerance, expected: &Tensor) -> Tolerance {
    let finite = expected
        .to_f64()
        .into_iter()
        .map(f64::abs)
        .filter(|value| value.is_finite());
    let largest = finite.fold(0.0, f64::max);
    Tolerance {
        atol: tolerance.atol.max(tolerance.rtol * largest),
        ..tolerance
    }
}
