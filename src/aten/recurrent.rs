//! Recurrent layers and cells. A layer becomes one primitive, [`Recurrent`]. A large layer, or one that projects its state,
//! is unrolled instead; the sequence length is then specialised when the graph is built.
//!
//! "Gates from the input" are the input's part of the pre-activations of all gates, `[time, batch, gates · units]`: the
//! input times the input matrix, plus the input bias (PyTorch's `igates`).

mod mkldnn;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::{Recurrent, RecurrentCell};

use super::linear::linear;
use super::packed::PackedLayout;
use super::{Args, Composite};

pub(super) const ROWS: &[Composite] = &[
    mkldnn::ROW,
    Composite::many(
        &[
            "aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
            "aten::lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)",
        ],
        |a| layers(a, RecurrentCell::Lstm),
        &[
            "input: f32[S, B, 3], [f32[1, B, 4], f32[1, B, 4]], [f32[16, 3], f32[16, 4], f32[16], f32[16]], True, 1, 0.0, False, False, False",
            "data: f32[12, 3], i64[4], [f32[2, 3, 4], f32[2, 3, 4]], [f32[16, 3], f32[16, 4], f32[16, 3], f32[16, 4]], False, 1, 0.0, False, True",
            "data: f16[6, 3], i64[3], [f16[1, 2, 2], f16[1, 2, 4]], [f16[16, 3], f16[16, 2], f16[2, 4]], False, 1, 0.0, False, False",
            "input: f32[2, 3, 3], [f32[2, 2, 2], f32[2, 2, 4]], [f32[16, 3], f32[16, 2], f32[2, 4], f32[16, 3], f32[16, 2], f32[2, 4]], False, 1, 0.0, False, True, True",
        ],
    ),
    Composite::many(
        &[
            "aten::gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten::gru.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        ],
        |a| layers(a, RecurrentCell::Gru),
        &[
            "data: f32[6, 3], i64[3], f32[2, 2, 4], [f32[12, 3], f32[12, 4], f32[12], f32[12], f32[12, 4], f32[12, 4], f32[12], f32[12]], True, 2, 0.0, False, False",
            "input: f32[B, 4, 3], f32[2, B, 4], [f32[12, 3], f32[12, 4], f32[12], f32[12], f32[12, 4], f32[12, 4], f32[12], f32[12]], True, 2, 0.0, False, False, True",
        ],
    ),
    Composite::many(
        &[
            "aten::rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten::rnn_tanh.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        ],
        |a| layers(a, RecurrentCell::Tanh),
        &[
            "data: f16[6, 3], i64[3], f16[2, 2, 4], [f16[4, 3], f16[4, 4], f16[4, 3], f16[4, 4]], False, 1, 0.0, False, True",
            "input: f16[3, 2, 3], f16[2, 2, 4], [f16[4, 3], f16[4, 4], f16[4, 3], f16[4, 4]], False, 1, 0.0, False, True, False",
            "input: f32[12050, 1, 3], f32[2, 1, 4], [f32[4, 3], f32[4, 4], f32[4, 3], f32[4, 4]], False, 1, 0.0, False, True, False",
        ],
    ),
    Composite::many(
        &[
            "aten::rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten::rnn_relu.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        ],
        |a| layers(a, RecurrentCell::Relu),
        &[
            "data: f32[12, 3], i64[4], f32[2, 3, 4], [f32[4, 3], f32[4, 4], f32[4, 3], f32[4, 4]], False, 1, 0.0, False, True",
            "input: f32[3, B, 3], f32[1, B, 4], [f32[4, 3], f32[4, 4]], False, 1, 0.0, False, False, False",
        ],
    ),
    Composite::many(
        &[
            "aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)",
        ],
        |a| {
            let state = cell(a, RecurrentCell::Lstm, &a.tensors("hx"))?;
            Ok(std::iter::once(state.hidden)
                .chain(state.cell_state)
                .collect())
        },
        &["f32[B, 3], [f32[B, 4], f32[B, 4]], f32[16, 3], f32[16, 4], f32[16], f32[16]"],
    ),
    Composite::one(
        &[
            "aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
        ],
        |a| Ok(cell(a, RecurrentCell::Gru, &[a.tensor("hx")])?.hidden),
        &["f32[B, 3], f32[B, 4], f32[12, 3], f32[12, 4], f32[12], f32[12]"],
    ),
    Composite::one(
        &[
            "aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
        ],
        |a| Ok(cell(a, RecurrentCell::Tanh, &[a.tensor("hx")])?.hidden),
        &["f32[B, 3], f32[B, 4], f32[4, 3], f32[4, 4], f32[4], f32[4]"],
    ),
    Composite::one(
        &[
            "aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
        ],
        |a| Ok(cell(a, RecurrentCell::Relu, &[a.tensor("hx")])?.hidden),
        &["f32[B, 3], f32[B, 4], f32[4, 3], f32[4, 4]"],
    ),
];

/// Largest number of hidden units of the primitive, whose steps run in one workgroup. Larger layers occupy a device in each
/// step.
const MAX_UNITS: i64 = 512;
/// Largest number of loop iterations in a kernel. Mesa's rasteriser silently ends all loops after 65,535 iterations of an
/// invocation (22.3, not 25.0), and the system resets a GPU that takes too long for a dispatch.
const MAX_ITERATIONS: i64 = 60_000;

/// Pre-activation that saturates the sigmoid whatever the state adds: the gate is 1, or 0 if negated.
const SATURATED_GATE: f64 = 1e30;

/// The state that a step passes to the next.
#[derive(Clone, Copy)]
struct RecurrentState<'g> {
    /// The hidden state, after the projection if there is one.
    hidden: Value<'g>,
    /// The cell state of an LSTM.
    cell_state: Option<Value<'g>>,
}

/// Weights of one layer in one direction.
#[derive(Clone, Copy)]
struct DirectionWeights<'g> {
    /// PyTorch's `weight_ih`, `[gates · units, input channels]`.
    input: Value<'g>,
    /// PyTorch's `weight_hh`, `[gates · units, hidden channels]`.
    hidden: Value<'g>,
    input_bias: Option<Value<'g>>,
    hidden_bias: Option<Value<'g>>,
    /// Projection of an LSTM's hidden state to fewer elements.
    projection: Option<Value<'g>>,
}

impl<'g> DirectionWeights<'g> {
    /// Computes one step from the gates from the input of that step.
    fn step(
        &self,
        cell: RecurrentCell,
        gates_from_input: Value<'g>,
        state: RecurrentState<'g>,
    ) -> Result<RecurrentState<'g>> {
        let h = linear(state.hidden, self.hidden, self.hidden_bias)?;
        let hidden = match (cell, state.cell_state) {
            (RecurrentCell::Lstm, Some(cell_state)) => {
                let [input, forget, candidate, output] = equal_parts(gates_from_input + h);
                let cell_state = forget.sigmoid() * cell_state + input.sigmoid() * candidate.tanh();
                let hidden = output.sigmoid() * cell_state.tanh();
                return Ok(RecurrentState {
                    hidden: match self.projection {
                        Some(projection) => linear(hidden, projection, None)?,
                        None => hidden,
                    },
                    cell_state: Some(cell_state),
                });
            }
            (RecurrentCell::Lstm, None) => {
                return Err(Error::operator(
                    "an LSTM requires two states, hidden and cell",
                ));
            }
            (RecurrentCell::Gru, _) => {
                let ([reset, update, candidate], [hidden_reset, hidden_update, hidden_candidate]) =
                    (equal_parts(gates_from_input), equal_parts(h));
                let candidate =
                    (candidate + (reset + hidden_reset).sigmoid() * hidden_candidate).tanh();
                let update = (update + hidden_update).sigmoid();
                (state.hidden - candidate) * update + candidate
            }
            (RecurrentCell::Tanh, _) => (gates_from_input + h).tanh(),
            (RecurrentCell::Relu, _) => (gates_from_input + h).relu(),
        };
        Ok(RecurrentState {
            hidden,
            cell_state: None,
        })
    }

    /// Computes all steps, unrolled, from the gates from the input. Returns the hidden states of all steps and the last
    /// state.
    fn run(
        &self,
        cell: RecurrentCell,
        gates_from_input: Value<'g>,
        mut state: RecurrentState<'g>,
        backwards: bool,
    ) -> Result<(Value<'g>, RecurrentState<'g>)> {
        let builder = gates_from_input.builder();
        let length = builder.symbols().specialize(&gates_from_input.size(0))?;
        let mut outputs = Vec::new();
        for step in 0..length {
            let index = if backwards { length - 1 - step } else { step };
            state = self.step(cell, gates_from_input.select(0, index), state)?;
            builder.check()?;
            outputs.push(state.hidden);
        }
        if backwards {
            outputs.reverse();
        }
        Ok((builder.stack(&outputs, 0), state))
    }
}

/// Splits a value into `N` equal parts along its last axis.
fn equal_parts<'g, const N: usize>(x: Value<'g>) -> [Value<'g>; N] {
    let width = x.size(-1).floor_div(&Dim::from(N));
    std::array::from_fn(|index| x.narrow(-1, &width * index as i64, width.clone()))
}

/// A layer: weights and initial state of each direction. The second direction runs backwards.
struct RecurrentLayer<'g> {
    cell: RecurrentCell,
    directions: Vec<(DirectionWeights<'g>, RecurrentState<'g>)>,
    /// `[time, batch]`, for packed sequences only: true where the sequence has the step. In other steps the cell state
    /// of an LSTM stays unchanged.
    has_step: Option<Value<'g>>,
}

impl<'g> RecurrentLayer<'g> {
    /// Computes all steps of `[time, batch, channel]`. Also returns the last state of each direction.
    fn run(&self, x: Value<'g>) -> Result<(Value<'g>, Vec<RecurrentState<'g>>)> {
        if !x.builder().symbols().less_equal(&Dim::ONE, &x.size(0))? {
            return Err(Error::operator("requires sequences of at least one step"));
        }
        let has_no_projection = |weights: &DirectionWeights| weights.projection.is_none();
        let have_no_projections = self
            .directions
            .iter()
            .all(|(weights, _)| has_no_projection(weights));
        let fits_primitive = have_no_projections && x.dtype() == DType::F32 && x.rank() == 3;
        let fits_primitive = fits_primitive && self.units() <= MAX_UNITS;
        let max_steps = Dim::from(self.max_steps());
        if fits_primitive && x.builder().symbols().less_equal(&x.size(0), &max_steps)? {
            return self.as_primitive(x);
        }
        let (mut outputs, mut last_states) = (Vec::new(), Vec::new());
        for (direction, (weights, state)) in self.directions.iter().enumerate() {
            let backwards = direction == 1;
            let (output, state) = match fits_primitive {
                true => self.run_in_chunks(x, *weights, *state, backwards)?,
                false => {
                    let gates_from_input = linear(x, weights.input, weights.input_bias)?;
                    weights.run(
                        self.cell,
                        self.masked_gates(gates_from_input),
                        *state,
                        backwards,
                    )?
                }
            };
            outputs.push(output);
            last_states.push(state);
        }
        Ok((x.builder().concat(&outputs, -1), last_states))
    }

    /// [`RecurrentLayer::run`] for packed sequences in padded form. The second direction runs forwards over reversed
    /// sequences, so that the padding comes last in both directions.
    fn run_packed(
        &self,
        x: Value<'g>,
        packing: &PackedLayout<'g>,
    ) -> Result<(Value<'g>, Vec<RecurrentState<'g>>)> {
        let (mut outputs, mut last_states) = (Vec::new(), Vec::new());
        for (direction, weights_and_state) in self.directions.iter().enumerate() {
            let reversed_if_backwards = |x: Value<'g>| match direction {
                0 => x,
                _ => packing.reversed(x),
            };
            let layer = RecurrentLayer {
                cell: self.cell,
                directions: vec![*weights_and_state],
                has_step: Some(packing.has_step()),
            };
            let (output, states) = layer.run(reversed_if_backwards(x))?;
            let hidden = packing.last(output);
            last_states.extend(
                states
                    .iter()
                    .map(|state| RecurrentState { hidden, ..*state }),
            );
            outputs.push(reversed_if_backwards(output));
        }
        Ok((x.builder().concat(&outputs, -1), last_states))
    }

    /// The gates from the input, except that after a sequence's end those of an LSTM are set so that its cell state
    /// stays unchanged.
    fn masked_gates(&self, gates_from_input: Value<'g>) -> Value<'g> {
        let (Some(has_step), RecurrentCell::Lstm) = (self.has_step, self.cell) else {
            return gates_from_input;
        };
        let builder = gates_from_input.builder();
        let gate_count = Dim::from(self.directions.len() * self.cell.gates());
        let units = gates_from_input.size(-1).floor_div(&gate_count);
        let gate =
            |number: f64| builder.full(gates_from_input.dtype(), vec![units.clone()], number);
        let [input, forget, others] = [-SATURATED_GATE, SATURATED_GATE, 0.0].map(gate);
        let one_direction = [input, forget, others, others];
        let all_directions = one_direction.repeat(self.directions.len());
        has_step
            .unsqueeze(-1)
            .where_(gates_from_input, builder.concat(&all_directions, 0))
    }

    /// Number of hidden units; `i64::MAX` if it is symbolic.
    fn units(&self) -> i64 {
        let first = self.directions.first();
        let units = first.and_then(|(weights, _)| weights.hidden.size(-1).as_const());
        units.unwrap_or(i64::MAX)
    }

    /// Largest number of steps of one primitive, so that its kernel has at most [`MAX_ITERATIONS`]. On devices with the
    /// shortest vectors, a kernel processes 32 units at a time by eight elements of the state. The end of a loop counts
    /// as an iteration.
    fn max_steps(&self) -> i64 {
        let units = self.units().min(MAX_UNITS);
        let iterations_per_step = (units + 31) / 32 * ((units + 7) / 8 + 2) + 2;
        MAX_ITERATIONS / iterations_per_step
    }

    /// Computes one direction chunk by chunk along the sequence, with one primitive for each chunk. Specialises the
    /// length of the sequence.
    fn run_in_chunks(
        &self,
        x: Value<'g>,
        weights: DirectionWeights<'g>,
        mut state: RecurrentState<'g>,
        backwards: bool,
    ) -> Result<(Value<'g>, RecurrentState<'g>)> {
        let builder = x.builder();
        let length = builder.symbols().specialize(&x.size(0))?;
        let reversed_if_backwards = |x: Value<'g>| if backwards { x.flip(&[0]) } else { x };
        let (x, mut chunks, mut start) = (reversed_if_backwards(x), Vec::new(), 0);
        while start < length {
            let chunk_length = self.max_steps().min(length - start);
            let layer = RecurrentLayer {
                cell: self.cell,
                directions: vec![(weights, state)],
                has_step: self
                    .has_step
                    .map(|mask| mask.narrow(0, start, chunk_length)),
            };
            let (output, last_states) = layer.as_primitive(x.narrow(0, start, chunk_length))?;
            chunks.push(output);
            state = last_states.into_iter().next().unwrap_or(state);
            start += chunk_length;
        }
        Ok((reversed_if_backwards(builder.concat(&chunks, 0)), state))
    }

    /// Computes the layer by one primitive.
    fn as_primitive(&self, x: Value<'g>) -> Result<(Value<'g>, Vec<RecurrentState<'g>>)> {
        let builder = x.builder();
        let operands = self.operands(x)?.into_iter().map(Into::into).collect();
        let results = builder.apply_many(Recurrent { cell: self.cell }, operands);
        builder.check()?;
        let missing = || Error::internal("a layer without results");
        let output = *results.first().ok_or_else(missing)?;
        let cell_states = results.get(1);
        let units = Dim::from(self.units());
        let last_states = (0..self.directions.len()).map(|direction| {
            let step = match direction {
                0 => &x.size(0) - 1,
                _ => Dim::ZERO,
            };
            let (start, direction) = (&units * direction as i64, direction as i64);
            let hidden = output.select(0, step);
            RecurrentState {
                hidden: hidden.narrow(-1, start, units.clone()),
                cell_state: cell_states.map(|states| states.select(0, direction)),
            }
        });
        Ok((output, last_states.collect()))
    }

    /// The operands of the primitive for all directions: gates from the input, hidden matrix, hidden bias, initial
    /// hidden state, and initial cell state of an LSTM.
    fn operands(&self, x: Value<'g>) -> Result<Vec<Value<'g>>> {
        let builder = x.builder();
        let weights = || self.directions.iter().map(|(weights, _)| weights);
        let states = || self.directions.iter().map(|(_, state)| state);
        let concatenated = |values: Vec<Value<'g>>| builder.concat(&values, 0);
        let stacked = |values: Vec<Value<'g>>| builder.stack(&values, 0);
        let units = Dim::from(self.units());
        let gates = Dim::from(self.cell.gates());
        let shape = vec![Dim::from(self.directions.len()), gates, units.clone()];
        let input_bias: Option<Vec<Value>> =
            weights().map(|direction| direction.input_bias).collect();
        let input = concatenated(weights().map(|direction| direction.input).collect());
        let gates_from_input = self.masked_gates(linear(x, input, input_bias.map(concatenated))?);
        let weight = stacked(weights().map(|direction| direction.hidden).collect());
        let weight = weight.reshape([shape.clone(), vec![units]].concat());
        let bias: Option<Vec<Value>> = weights().map(|direction| direction.hidden_bias).collect();
        let bias = match bias {
            Some(bias) => stacked(bias).reshape(shape),
            None => builder.full(x.dtype(), shape, 0.0),
        };
        let hidden = stacked(states().map(|state| state.hidden).collect());
        let cell_states: Option<Vec<Value>> = states().map(|state| state.cell_state).collect();
        let operands = [gates_from_input, weight, bias, hidden].into_iter();
        Ok(operands.chain(cell_states.map(stacked)).collect())
    }
}

/// Computes all layers of a call. Returns the output of the last layer, then the last states of all layers and
/// directions.
fn layers<'g>(a: &Args<'g>, cell: RecurrentCell) -> Result<Vec<Value<'g>>> {
    if a.bool("train") && 0.0 < a.float("dropout") {
        return a.reject("dropout between recurrent layers in training");
    }
    let is_packed = a.overload() == "data";
    let input = a.tensor(if is_packed { "data" } else { "input" });
    let initial = match cell {
        RecurrentCell::Lstm => a.tensors("hx"),
        _ => vec![a.tensor("hx")],
    };
    a.builder().check()?;
    let packing = is_packed.then(|| {
        let batch = initial.first().map_or(Dim::ZERO, |state| state.size(1));
        PackedLayout::new(a.tensor("batch_sizes"), batch)
    });
    let batch_first = !is_packed && a.bool("batch_first");
    let mut x = input.to_compute();
    if let Some(packing) = &packing {
        x = packing.padded(x);
    }
    if batch_first {
        x = x.transpose(0, 1);
    }
    let directions = if a.bool("bidirectional") { 2 } else { 1 };
    let direction_count = usize::try_from(a.int("num_layers") * directions).unwrap_or(1);
    let mut weights = DirectionWeights::read(a, direction_count)?.into_iter();
    let (mut hidden_states, mut cell_states) = (Vec::new(), Vec::new());
    for layer in 0..a.int("num_layers") {
        let read_direction = |direction| {
            let select_state =
                |value: &Value<'g>| value.to_compute().select(0, layer * directions + direction);
            let weights = weights.next();
            let missing = || Error::operator("has too few parameters");
            let state = RecurrentState::of(initial.iter().map(select_state))?;
            Ok((weights.ok_or_else(missing)?, state))
        };
        let directions = (0..directions).map(read_direction);
        let directions = directions.collect::<Result<_>>()?;
        let layer = RecurrentLayer {
            cell,
            directions,
            has_step: None,
        };
        let (output, last_states) = match &packing {
            Some(packing) => layer.run_packed(x, packing)?,
            None => layer.run(x)?,
        };
        hidden_states.extend(last_states.iter().map(|state| state.hidden));
        cell_states.extend(last_states.iter().filter_map(|state| state.cell_state));
        x = output;
    }
    let output = match &packing {
        Some(packing) => packing.packed(x, &input.size(0)),
        None if batch_first => x.transpose(0, 1),
        None => x,
    };
    let mut results = vec![output, a.builder().stack(&hidden_states, 0)];
    if !cell_states.is_empty() {
        results.push(a.builder().stack(&cell_states, 0));
    }
    Ok(results
        .into_iter()
        .map(|result| result.to(input.dtype()))
        .collect())
}

impl<'g> RecurrentState<'g> {
    /// Takes the hidden state and, if there is a second value, the cell state. An error if there is none.
    fn of(mut values: impl Iterator<Item = Value<'g>>) -> Result<RecurrentState<'g>> {
        Ok(RecurrentState {
            hidden: values
                .next()
                .ok_or_else(|| Error::operator("has no initial state"))?,
            cell_state: values.next(),
        })
    }
}

impl<'g> DirectionWeights<'g> {
    /// Splits the argument `params`, a flat list, into the weights of each direction of each layer. `direction_count`
    /// is the number of directions in all layers together.
    fn read(a: &Args<'g>, direction_count: usize) -> Result<Vec<DirectionWeights<'g>>> {
        let flat: Vec<Value<'g>> = a
            .tensors("params")
            .into_iter()
            .map(Value::to_compute)
            .collect();
        let has_biases = a.bool("has_biases");
        // The sizes of the states also tell whether there are projections, but they may be symbolic.
        let tensors_per_direction = flat.len() / direction_count.max(1);
        flat.chunks(tensors_per_direction.max(1))
            .map(|chunk| match (chunk, has_biases) {
                ([input, hidden, input_bias, hidden_bias, rest @ ..], true) => {
                    Ok(DirectionWeights {
                        input: *input,
                        hidden: *hidden,
                        input_bias: Some(*input_bias),
                        hidden_bias: Some(*hidden_bias),
                        projection: rest.first().copied(),
                    })
                }
                ([input, hidden, rest @ ..], false) => Ok(DirectionWeights {
                    input: *input,
                    hidden: *hidden,
                    input_bias: None,
                    hidden_bias: None,
                    projection: rest.first().copied(),
                }),
                _ => Err(Error::operator("has too few parameters")),
            })
            .collect()
    }
}

/// Computes the single step of a cell operator from its initial states.
fn cell<'g>(
    a: &Args<'g>,
    cell: RecurrentCell,
    initial: &[Value<'g>],
) -> Result<RecurrentState<'g>> {
    let input = a.tensor("input");
    let bias = |name| a.optional_tensor(name).map(Value::to_compute);
    let weights = DirectionWeights {
        input: a.tensor("w_ih").to_compute(),
        hidden: a.tensor("w_hh").to_compute(),
        input_bias: bias("b_ih"),
        hidden_bias: bias("b_hh"),
        projection: None,
    };
    let x = linear(input.to_compute(), weights.input, weights.input_bias)?;
    let state = RecurrentState::of(initial.iter().map(|value| value.to_compute()))?;
    let next = weights.step(cell, x, state)?;
    Ok(RecurrentState {
        hidden: next.hidden.to(input.dtype()),
        cell_state: next.cell_state.map(|value| value.to(input.dtype())),
    })
}
