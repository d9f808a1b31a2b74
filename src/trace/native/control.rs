//! Control flow that stays in the graph: conditions, loops and scans over tensors. Without an active trace they simply run.

use std::rc::Rc;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result, SourcePlace};
use crate::interp::loop_limit;
use crate::ir::{Argument, Region, TreeSpec};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::argument::Arg;
use super::call::call_at;
use super::call_site;
use super::random;
use super::recorded_bodies::{
    LoopCarried, RecordedBody, add_region, flatten, missing_body, set_storages, tensors,
    written_storages,
};
use super::recorder::{self, Recorder};
use super::tensor::TracedTensor;
use super::tree::{Tree, describe};

/// Computes one of two branches. In a trace both are recorded, and the graph decides at run time.
///
/// `predicate` is a `bool` tensor without dimensions. Both branches must return equal structures, element types and shapes.
///
/// # Errors
/// The predicate has another type, a branch fails, or the branches return different types.
#[track_caller]
pub fn cond<T: Tree>(
    predicate: &TracedTensor,
    then: impl FnOnce() -> T,
    otherwise: impl FnOnce() -> T,
) -> Result<T> {
    let place = call_site::caller();
    let taken = condition_value(predicate).map_err(|error| error.at_place(&place))?;
    match recorder::active() {
        None => detach(&if taken { then() } else { otherwise() }),
        Some(recorder) => record_cond(&recorder, predicate, taken, then, otherwise, &place)
            .map_err(|error| error.at_place(&place)),
    }
}

/// Records both branches and adds the region. `taken` is the predicate's value in the example.
fn record_cond<T: Tree>(
    recorder: &Rc<Recorder>,
    predicate: &TracedTensor,
    taken: bool,
    then: impl FnOnce() -> T,
    otherwise: impl FnOnce() -> T,
    place: &SourcePlace,
) -> Result<T> {
    let condition = Argument::Value(recorder.value_of(predicate)?);
    let rng_before = random::rng_state();
    let (then, then_spec) =
        RecordedBody::record(recorder, || flatten(&then(), "the first branch"))?;
    let rng_after_then = random::rng_state();
    random::set_rng_state(rng_before);
    let (otherwise, otherwise_spec) =
        RecordedBody::record(recorder, || flatten(&otherwise(), "the second branch"))?;
    if taken {
        random::set_rng_state(rng_after_then);
    }
    require_same_structure("the branches return", &then_spec, &otherwise_spec)?;
    let written = written_storages(&[&then, &otherwise]);
    let result_count = then.results.len();
    let then = then.with_storage_results(recorder, &written)?;
    let otherwise = otherwise.with_storage_results(recorder, &written)?;
    let chosen = if taken { &then } else { &otherwise };
    let examples = chosen.results.iter().map(|result| result.example.clone());
    let examples: Vec<Tensor> = examples.collect();
    let bodies = vec![
        then.into_region_body("then"),
        otherwise.into_region_body("otherwise"),
    ];
    let (graphs, captured) = recorder.scopes().borrow_mut().close_bodies(bodies)?;
    let [then, otherwise] = graphs.try_into().map_err(missing_body)?;
    let arguments = std::iter::once(condition).chain(captured).collect();
    let region = Region::If { then, otherwise };
    let mut results = add_region(recorder, region, arguments, || Ok(examples), place)?;
    let contents = results.split_off(result_count.min(results.len()));
    set_storages(recorder, &written, contents);
    T::rebuild(&then_spec, &tensors(recorder, results), "the result")
}

/// Repeats a step while a condition on the state holds. In a trace one iteration is recorded as the body of a loop.
///
/// An iteration gets copies of the state: in-place operators on it do not change the tensors passed in.
///
/// The state must keep its structure, element types and shapes in every iteration. The condition is a `bool` tensor without
/// dimensions.
///
/// # Errors
/// The condition has another type, a step fails, or the state changes its type.
#[track_caller]
pub fn while_loop<S: Tree>(
    state: S,
    condition: impl Fn(&S) -> TracedTensor,
    step: impl Fn(S) -> S,
) -> Result<S> {
    let place = call_site::caller();
    let result = match recorder::active() {
        None => run_while(state, &condition, &step, &place),
        Some(recorder) => record_while(&recorder, state, &condition, &step, &place),
    };
    result.map_err(|error| error.at_place(&place))
}

/// Runs a loop without recording it.
fn run_while<S: Tree>(
    mut state: S,
    condition: &impl Fn(&S) -> TracedTensor,
    step: &impl Fn(S) -> S,
    place: &SourcePlace,
) -> Result<S> {
    state = detach(&state)?;
    let mut round = 0;
    while condition_value(&condition(&state))? {
        loop_limit::begin_program_round(round, place)?;
        state = detach(&step(state))?;
        round += 1;
    }
    Ok(state)
}

/// A structure of equal values with memory of their own, as the results of a region have.
pub(super) fn detach<T: Tree>(tree: &T) -> Result<T> {
    let (leaves, spec) = flatten(tree, "the state")?;
    let leaves: Vec<TracedTensor> = leaves.iter().map(TracedTensor::detached).collect();
    T::rebuild(&spec, &leaves, "the state")
}

/// Records one iteration of a loop and adds the region.
fn record_while<S: Tree>(
    recorder: &Rc<Recorder>,
    state: S,
    condition: &impl Fn(&S) -> TracedTensor,
    step: &impl Fn(S) -> S,
    place: &SourcePlace,
) -> Result<S> {
    let rng_before = random::rng_state();
    let mut carried = LoopCarried::new(recorder, &state)?;
    let first_condition = condition(&state);
    condition_value(&first_condition)?;
    let (iteration, spec) = carried.record(recorder, |carried| {
        iteration_number(recorder)?;
        let next = step(carried.add_body_inputs(recorder)?);
        let next_condition = condition(&next);
        condition_value(&next_condition)?;
        let (leaves, spec) = flatten(&next, "the state")?;
        let contents = carried.storage_tensors(recorder)?;
        Ok(([vec![next_condition], leaves, contents].concat(), spec))
    })?;
    require_same_structure(
        "the state changes its structure in an iteration: before and after, it is",
        &carried.spec,
        &spec,
    )?;
    let trips = Argument::Number(Scalar::Int(i64::MAX));
    let first_condition = Argument::Value(recorder.value_of(&first_condition)?);
    let run = || {
        random::set_rng_state(rng_before);
        let final_state = run_while(carried.detached_state()?, condition, step, place)?;
        values(&flatten(&final_state, "the state")?.0)
    };
    let (results, _) =
        carried.add_loop(recorder, iteration, [trips, first_condition], run, place)?;
    S::rebuild(&spec, &results, "the state")
}

/// Iterates over the first axis of the inputs with a state. The outputs of the steps are stacked along a new first axis. In
/// a trace one step is recorded, for inputs of any length.
///
/// # Errors
/// The inputs have no axis, different lengths, or length 0 in the example; a step fails; the state changes its type.
#[track_caller]
pub fn scan<S: Tree, X: Tree, Y: Tree>(
    state: S,
    inputs: X,
    step: impl Fn(S, X) -> (S, Y),
) -> Result<(S, Y)> {
    let place = call_site::caller();
    let result = ScanInputs::new(&inputs, &place).and_then(|scan| match recorder::active() {
        None => scan.run(state, &step),
        Some(recorder) => scan.record(&recorder, state, &step),
    });
    result.map_err(|error| error.at_place(&place))
}

/// The inputs of a scan.
struct ScanInputs {
    /// Structure of the inputs.
    spec: TreeSpec,
    /// Tensors of the inputs.
    leaves: Vec<TracedTensor>,
    /// Size of the first axis.
    length: Dim,
    /// The place of the call of [`scan`].
    place: SourcePlace,
}

impl ScanInputs {
    fn new<X: Tree>(inputs: &X, place: &SourcePlace) -> Result<ScanInputs> {
        let mut leaves = Vec::new();
        let spec = inputs.flatten("the inputs", &mut leaves)?;
        let first = leaves.first().map(TracedTensor::ty).transpose()?;
        let length = first.and_then(|ty| ty.shape.first().cloned());
        let length = length.ok_or_else(|| Error::operator("scan needs an input with an axis"))?;
        Ok(ScanInputs {
            spec,
            leaves,
            length,
            place: place.clone(),
        })
    }

    /// The inputs of step number `round`: the elements of `leaves` at that index of the first axis.
    fn slice<X: Tree>(&self, leaves: &[TracedTensor], round: &TracedTensor) -> Result<X> {
        let slices = leaves.iter().map(|leaf| {
            let indices = Arg::List(vec![round.into()]);
            call_at(&self.place, "index", vec![leaf.into(), indices], Vec::new()).swap_remove(0)
        });
        X::rebuild(&self.spec, &slices.collect::<Vec<_>>(), "the inputs")
    }

    /// Runs all steps one by one, without recording a loop.
    fn run<S: Tree, X: Tree, Y: Tree>(
        &self,
        mut state: S,
        step: &impl Fn(S, X) -> (S, Y),
    ) -> Result<(S, Y)> {
        let trips = self.leaves.first().map(TracedTensor::value).transpose()?;
        let trips = trips
            .and_then(|value| value.shape().first().copied())
            .unwrap_or(0);
        state = detach(&state)?;
        let mut output_spec = None;
        let mut iterations: Vec<Vec<TracedTensor>> = Vec::new();
        for round in 0..trips {
            let round = TracedTensor::scalar(i64::try_from(round).unwrap_or(i64::MAX));
            let (next, output) = step(state, self.slice(&self.leaves, &round)?);
            state = detach(&next)?;
            let mut leaves = Vec::new();
            output_spec = Some(output.flatten("the outputs", &mut leaves)?);
            iterations.push(leaves.iter().map(TracedTensor::detached).collect());
        }
        let output_spec =
            output_spec.ok_or_else(|| Error::operator("scan needs at least one element"))?;
        let output_count = iterations.first().map_or(0, Vec::len);
        let stacked = (0..output_count).map(|leaf| {
            let items: Vec<Arg> = iterations
                .iter()
                .filter_map(|round| round.get(leaf).map(Arg::from))
                .collect();
            call_at(&self.place, "stack", vec![Arg::List(items)], Vec::new()).swap_remove(0)
        });
        let outputs = Y::rebuild(&output_spec, &stacked.collect::<Vec<_>>(), "the outputs")?;
        Ok((state, outputs))
    }

    /// Records a loop that carries the state and the stacked outputs. Each iteration writes its outputs to the stacks.
    fn record<S: Tree, X: Tree, Y: Tree>(
        &self,
        recorder: &Rc<Recorder>,
        state: S,
        step: &impl Fn(S, X) -> (S, Y),
    ) -> Result<(S, Y)> {
        let mut carried = LoopCarried::new(recorder, &state)?;
        let (iteration, (state_spec, output_spec, stacks)) =
            carried.record(recorder, |carried| {
                let round = iteration_number(recorder)?;
                let inputs = self.slice(&self.leaves, &round)?;
                let (next, output) = step(carried.add_body_inputs(recorder)?, inputs);
                let (next, state_spec) = flatten(&next, "the state")?;
                let (outputs, output_spec) = flatten(&output, "the outputs")?;
                let stacks = outputs.iter().map(|output| self.stack_type(output));
                let stacks: Vec<TensorType> = stacks.collect::<Result<_>>()?;
                let written = outputs.iter().zip(&stacks);
                let written = written
                    .map(|(output, ty)| write_to_stack(recorder, &self.place, output, ty, &round));
                let written = written.collect::<Result<Vec<_>>>()?;
                let contents = carried.storage_tensors(recorder)?;
                Ok((
                    [vec![true_condition(&self.place)], next, contents, written].concat(),
                    (state_spec, output_spec, stacks),
                ))
            })?;
        require_same_structure(
            "the state changes its structure in a step: before and after, it is",
            &carried.spec,
            &state_spec,
        )?;
        let initial_state = carried.detached_state()?;
        let run = || {
            let results = self.detached().run::<S, X, Y>(initial_state, step)?;
            values(&flatten(&results, "the results")?.0)
        };
        let stacks = stacks.iter().map(|stack| initial_stack(stack, &self.place));
        carried.stacks = stacks.collect::<Result<_>>()?;
        let trips = Argument::from(recorder.resolve(&self.length));
        let first_condition = Argument::Value(recorder.value_of(&true_condition(&self.place))?);
        let (state, outputs) = carried.add_loop(
            recorder,
            iteration,
            [trips, first_condition],
            run,
            &self.place,
        )?;
        let state = S::rebuild(&state_spec, &state, "the state")?;
        Ok((state, Y::rebuild(&output_spec, &outputs, "the outputs")?))
    }

    /// Type of the stack of an output over all iterations.
    fn stack_type(&self, output: &TracedTensor) -> Result<TensorType> {
        let ty = output.ty()?;
        let shape = std::iter::once(self.length.clone()).chain(ty.shape);
        Ok(TensorType::new(ty.dtype, shape))
    }

    /// The inputs without their connection to a trace.
    fn detached(&self) -> ScanInputs {
        ScanInputs {
            spec: self.spec.clone(),
            leaves: self.leaves.iter().map(TracedTensor::detached).collect(),
            length: self.length.clone(),
            place: self.place.clone(),
        }
    }
}

/// Adds a node that writes the output of iteration `round` to its stack. Adds the stack, of type `stack`, as an input
/// of the loop's body.
fn write_to_stack(
    recorder: &Recorder,
    place: &SourcePlace,
    output: &TracedTensor,
    stack: &TensorType,
    round: &TracedTensor,
) -> Result<TracedTensor> {
    let sizes = stack.sizes(&recorder.hints())?;
    let value = Tensor::full(stack.dtype, sizes, 0.0)?;
    let id = recorder
        .scopes()
        .borrow_mut()
        .add_body_input("stack", stack.clone());
    let stack = recorder.tensor(id, value);
    let indices = Arg::List(vec![round.into()]);
    Ok(call_at(
        place,
        "index_put",
        vec![(&stack).into(), indices, output.into()],
        Vec::new(),
    )
    .swap_remove(0))
}

/// A stack of this type before the first iteration: zeros.
fn initial_stack(stack: &TensorType, place: &SourcePlace) -> Result<TracedTensor> {
    let named = vec![("dtype", Arg::DType(stack.dtype))];
    let sizes = Arg::of_shape(&stack.shape)?;
    Ok(call_at(place, "zeros", vec![sizes], named).swap_remove(0))
}

/// Adds the iteration number, which is the first input of a loop's body.
fn iteration_number(recorder: &Recorder) -> Result<TracedTensor> {
    let ty = TensorType::new::<Dim>(DType::I64, []);
    let id = recorder.scopes().borrow_mut().add_body_input("round", ty);
    Ok(recorder.tensor(id, Tensor::from_vec([], vec![0i64])?))
}

/// Adds a node for a true condition.
fn true_condition(place: &SourcePlace) -> TracedTensor {
    let named = vec![("dtype", Arg::DType(DType::Bool))];
    call_at(place, "ones", vec![Arg::List(Vec::new())], named).swap_remove(0)
}

/// Values of tensors.
fn values(tensors: &[TracedTensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(TracedTensor::value).collect()
}

/// The value of a `bool` tensor without dimensions.
fn condition_value(tensor: &TracedTensor) -> Result<bool> {
    let value = tensor.value()?;
    if value.dtype() == DType::Bool && value.shape().is_empty() {
        return Ok(value.item()?.to_f64() != 0.0);
    }
    let ty = value.tensor_type();
    let error = Error::operator(format!("the condition is {ty}, not bool[]"));
    Err(error.help("compare (`gt`, `ne`), and reduce by `any` or `all`"))
}

/// An error that begins with `what`, unless both structures are equal.
fn require_same_structure(what: &str, a: &TreeSpec, b: &TreeSpec) -> Result<()> {
    if a == b {
        return Ok(());
    }
    let (a, b) = (describe(a), describe(b));
    Err(Error::operator(format!("{what} {a} and {b}")))
}
