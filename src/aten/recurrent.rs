//! Recurrent layers and cells. A layer becomes one primitive, [`Recurrent`]. A large layer, or one that projects its state,
//! is unrolled instead; then the sequence length is fixed when the graph is made.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::{Recurrent, RecurrentCell};

use super::linear::linear;
use super::packed::PackedLayout;
use super::{Args, Composite};

pub(super) const ROWS: &[Composite] = &[
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

/// A gate input that saturates the sigmoid: the gate is open whatever the state adds; negated, closed.
const SATURATED_GATE: f64 = 1e30;

/// The state that a step passes to the next.
#[derive(Clone, Copy)]
struct RecurrentState<'g> {
    hidden: Value<'g>,
    /// The cell state of an LSTM.
    cell_state: Option<Value<'g>>,
}

/// Weights of one layer in one direction.
#[derive(Clone, Copy)]
struct DirectionWeights<'g> {
    input: Value<'g>,
    hidden: Value<'g>,
    input_bias: Option<Value<'g>>,
    hidden_bias: Option<Value<'g>>,
    /// Projection of an LSTM's hidden state to fewer elements.
    projection: Option<Value<'g>>,
}

impl<'g> DirectionWeights<'g> {
    /// Computes one step; `x` is already multiplied by the input matrix.
    fn step(
        &self,
        cell: RecurrentCell,
        x: Value<'g>,
        state: RecurrentState<'g>,
    ) -> Result<RecurrentState<'g>> {
        let h = linear(state.hidden, self.hidden, self.hidden_bias)?;
        let hidden = match (cell, state.cell_state) {
            (RecurrentCell::Lstm, Some(memory)) => {
                let [input, forget, candidate, output] = equal_parts(x + h);
                let memory = forget.sigmoid() * memory + input.sigmoid() * candidate.tanh();
                let hidden = output.sigmoid() * memory.tanh();
                return Ok(RecurrentState {
                    hidden: match self.projection {
                        Some(projection) => linear(hidden, projection, None)?,
                        None => hidden,
                    },
                    cell_state: Some(memory),
                });
            }
            (RecurrentCell::Lstm, None) => {
                return Err(Error::operator(
                    "an LSTM requires two states, hidden and cell",
                ));
            }
            (RecurrentCell::Gru, _) => {
                let ([reset, update, candidate], [own_reset, own_update, own]) =
                    (equal_parts(x), equal_parts(h));
                let candidate = (candidate + (reset + own_reset).sigmoid() * own).tanh();
                let update = (update + own_update).sigmoid();
                (state.hidden - candidate) * update + candidate
            }
            (RecurrentCell::Tanh, _) => (x + h).tanh(),
            (RecurrentCell::Relu, _) => (x + h).relu(),
        };
        Ok(RecurrentState {
            hidden,
            cell_state: None,
        })
    }

    /// Computes all steps of `[time, batch, channel]`, which is already multiplied by the input matrix. Also returns the
    /// last state.
    fn run(
        &self,
        cell: RecurrentCell,
        projected: Value<'g>,
        mut state: RecurrentState<'g>,
        backwards: bool,
    ) -> Result<(Value<'g>, RecurrentState<'g>)> {
        let builder = projected.builder();
        let length = builder.symbols().specialize(&projected.size(0))?;
        let mut outputs = Vec::new();
        for step in 0..length {
            let place = if backwards { length - 1 - step } else { step };
            state = self.step(cell, projected.select(0, place), state)?;
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
    std::array::from_fn(|part| x.narrow(-1, &width * part as i64, width.clone()))
}

/// A layer: weights and initial state of each direction. The second direction runs backwards.
struct RecurrentLayer<'g> {
    cell: RecurrentCell,
    directions: Vec<(DirectionWeights<'g>, RecurrentState<'g>)>,
    /// `[time, batch]`, for packed sequences: the cell state of an LSTM is unchanged in steps where this is false.
    has_step: Option<Value<'g>>,
}

impl<'g> RecurrentLayer<'g> {
    /// Computes all steps of `[time, batch, channel]`. Also returns the last state of each direction.
    fn run(&self, x: Value<'g>) -> Result<(Value<'g>, Vec<RecurrentState<'g>>)> {
        if !x.builder().symbols().less_equal(&Dim::ONE, &x.size(0))? {
            return Err(Error::operator("requires sequences of at least one step"));
        }
        let is_plain = |own: &DirectionWeights| own.projection.is_none();
        let are_plain = self.directions.iter().all(|(own, _)| is_plain(own));
        let is_small = are_plain && x.dtype() == DType::F32 && x.rank() == 3;
        let is_small = is_small && self.units() <= MAX_UNITS;
        let most = Dim::from(self.max_steps());
        if is_small && x.builder().symbols().less_equal(&x.size(0), &most)? {
            return self.as_primitive(x);
        }
        let (mut outputs, mut last) = (Vec::new(), Vec::new());
        for (direction, (parameters, state)) in self.directions.iter().enumerate() {
            let backwards = direction == 1;
            let (output, state) = match is_small {
                true => self.run_in_chunks(x, *parameters, *state, backwards)?,
                false => {
                    let projected = linear(x, parameters.input, parameters.input_bias)?;
                    parameters.run(self.cell, self.masked_gates(projected), *state, backwards)?
                }
            };
            outputs.push(output);
            last.push(state);
        }
        Ok((x.builder().concat(&outputs, -1), last))
    }

    /// [`RecurrentLayer::run`] for packed sequences in padded form. Each direction starts at the first step of every
    /// sequence, so the padding comes last.
    fn run_packed(
        &self,
        x: Value<'g>,
        packing: &PackedLayout<'g>,
    ) -> Result<(Value<'g>, Vec<RecurrentState<'g>>)> {
        let (mut outputs, mut last) = (Vec::new(), Vec::new());
        for (direction, own) in self.directions.iter().enumerate() {
            let turned = |x: Value<'g>| match direction {
                0 => x,
                _ => packing.reversed(x),
            };
            let layer = RecurrentLayer {
                cell: self.cell,
                directions: vec![*own],
                has_step: Some(packing.has_step()),
            };
            let (output, states) = layer.run(turned(x))?;
            let hidden = packing.last(output);
            last.extend(
                states
                    .iter()
                    .map(|state| RecurrentState { hidden, ..*state }),
            );
            outputs.push(turned(output));
        }
        Ok((x.builder().concat(&outputs, -1), last))
    }

    /// The input's contribution to the gates. In steps after a sequence's end, the gates of an LSTM are set so that its cell
    /// state is unchanged.
    fn masked_gates(&self, projected: Value<'g>) -> Value<'g> {
        let (Some(has_step), RecurrentCell::Lstm) = (self.has_step, self.cell) else {
            return projected;
        };
        let builder = projected.builder();
        let gates = Dim::from(self.directions.len() * self.cell.gates());
        let units = projected.size(-1).floor_div(&gates);
        let gate = |number: f64| builder.full(projected.dtype(), vec![units.clone()], number);
        let [input, forget, others] = [-SATURATED_GATE, SATURATED_GATE, 0.0].map(gate);
        let direction = [input, forget, others, others];
        let all = direction.repeat(self.directions.len());
        has_step
            .unsqueeze(-1)
            .where_(projected, builder.concat(&all, 0))
    }

    /// Number of hidden units; `i64::MAX` if it is symbolic.
    fn units(&self) -> i64 {
        let first = self.directions.first();
        let units = first.and_then(|(own, _)| own.hidden.size(-1).as_const());
        units.unwrap_or(i64::MAX)
    }

    /// Largest number of steps of a primitive. On devices with the shortest vectors, a kernel processes 32 units at a time
    /// by eight elements of the state. The end of a loop counts as an iteration.
    fn max_steps(&self) -> i64 {
        let units = self.units().min(MAX_UNITS);
        let of_step = (units + 31) / 32 * ((units + 7) / 8 + 2) + 2;
        MAX_ITERATIONS / of_step
    }

    /// Computes one direction by one primitive for each chunk of the sequence, whose length is specialised.
    fn run_in_chunks(
        &self,
        x: Value<'g>,
        parameters: DirectionWeights<'g>,
        mut state: RecurrentState<'g>,
        backwards: bool,
    ) -> Result<(Value<'g>, RecurrentState<'g>)> {
        let builder = x.builder();
        let length = builder.symbols().specialize(&x.size(0))?;
        let turned = |x: Value<'g>| if backwards { x.flip(&[0]) } else { x };
        let (x, mut chunks, mut start) = (turned(x), Vec::new(), 0);
        while start < length {
            let count = self.max_steps().min(length - start);
            let layer = RecurrentLayer {
                cell: self.cell,
                directions: vec![(parameters, state)],
                has_step: self.has_step.map(|mask| mask.narrow(0, start, count)),
            };
            let (output, last) = layer.as_primitive(x.narrow(0, start, count))?;
            chunks.push(output);
            state = last.into_iter().next().unwrap_or(state);
            start += count;
        }
        Ok((turned(builder.concat(&chunks, 0)), state))
    }

    /// Computes the layer by one primitive.
    fn as_primitive(&self, x: Value<'g>) -> Result<(Value<'g>, Vec<RecurrentState<'g>>)> {
        let builder = x.builder();
        let operands = self.operands(x)?.into_iter().map(Into::into).collect();
        let results = builder.apply_many(Recurrent { cell: self.cell }, operands);
        builder.check()?;
        let missing = || Error::internal("a layer without results");
        let output = *results.first().ok_or_else(missing)?;
        let memory = results.get(1);
        let units = Dim::from(self.units());
        let last = (0..self.directions.len()).map(|direction| {
            let step = match direction {
                0 => &x.size(0) - 1,
                _ => Dim::ZERO,
            };
            let (start, direction) = (&units * direction as i64, direction as i64);
            let hidden = output.select(0, step);
            RecurrentState {
                hidden: hidden.narrow(-1, start, units.clone()),
                cell_state: memory.map(|memory| memory.select(0, direction)),
            }
        });
        Ok((output, last.collect()))
    }

    /// The operands of the primitive, for all directions.
    fn operands(&self, x: Value<'g>) -> Result<Vec<Value<'g>>> {
        let builder = x.builder();
        let own = || self.directions.iter().map(|(own, _)| own);
        let states = || self.directions.iter().map(|(_, state)| state);
        let joined = |values: Vec<Value<'g>>| builder.concat(&values, 0);
        let stacked = |values: Vec<Value<'g>>| builder.stack(&values, 0);
        let units = Dim::from(self.units());
        let gates = Dim::from(self.cell.gates());
        let shape = vec![Dim::from(self.directions.len()), gates, units.clone()];
        let input_bias: Option<Vec<Value>> = own().map(|own| own.input_bias).collect();
        let input = joined(own().map(|own| own.input).collect());
        let projected = self.masked_gates(linear(x, input, input_bias.map(joined))?);
        let weight = stacked(own().map(|own| own.hidden).collect());
        let weight = weight.reshape([shape.clone(), vec![units]].concat());
        let bias: Option<Vec<Value>> = own().map(|own| own.hidden_bias).collect();
        let bias = match bias {
            Some(bias) => stacked(bias).reshape(shape),
            None => builder.full(x.dtype(), shape, 0.0),
        };
        let hidden = stacked(states().map(|state| state.hidden).collect());
        let memory: Option<Vec<Value>> = states().map(|state| state.cell_state).collect();
        let operands = [projected, weight, bias, hidden].into_iter();
        Ok(operands.chain(memory.map(stacked)).collect())
    }
}

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
    let cells = usize::try_from(a.int("num_layers") * directions).unwrap_or(1);
    let mut parameters = DirectionWeights::read(a, cells)?.into_iter();
    let (mut hidden, mut memory) = (Vec::new(), Vec::new());
    for layer in 0..a.int("num_layers") {
        let of_direction = |direction| {
            let of_layer =
                |value: &Value<'g>| value.to_compute().select(0, layer * directions + direction);
            let parameters = parameters.next();
            let missing = || Error::operator("has too few parameters");
            let state = RecurrentState::of(initial.iter().map(of_layer))?;
            Ok((parameters.ok_or_else(missing)?, state))
        };
        let directions = (0..directions).map(of_direction);
        let directions = directions.collect::<Result<_>>()?;
        let layer = RecurrentLayer {
            cell,
            directions,
            has_step: None,
        };
        let (output, last) = match &packing {
            Some(packing) => layer.run_packed(x, packing)?,
            None => layer.run(x)?,
        };
        hidden.extend(last.iter().map(|state| state.hidden));
        memory.extend(last.iter().filter_map(|state| state.cell_state));
        x = output;
    }
    let output = match &packing {
        Some(packing) => packing.packed(x, &input.size(0)),
        None if batch_first => x.transpose(0, 1),
        None => x,
    };
    let mut results = vec![output, a.builder().stack(&hidden, 0)];
    if !memory.is_empty() {
        results.push(a.builder().stack(&memory, 0));
    }
    Ok(results
        .into_iter()
        .map(|result| result.to(input.dtype()))
        .collect())
}

impl<'g> RecurrentState<'g> {
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
    /// Splits the flat list of weights into layers and directions.
    fn read(a: &Args<'g>, cells: usize) -> Result<Vec<DirectionWeights<'g>>> {
        let flat: Vec<Value<'g>> = a
            .tensors("params")
            .into_iter()
            .map(Value::to_compute)
            .collect();
        let has_biases = a.bool("has_biases");
        // The sizes of the states also tell whether there are projections, but they may be symbolic.
        let count = flat.len() / cells.max(1);
        flat.chunks(count.max(1))
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

/// Computes a single step.
fn cell<'g>(
    a: &Args<'g>,
    cell: RecurrentCell,
    initial: &[Value<'g>],
) -> Result<RecurrentState<'g>> {
    let input = a.tensor("input");
    let bias = |name| a.optional_tensor(name).map(Value::to_compute);
    let parameters = DirectionWeights {
        input: a.tensor("w_ih").to_compute(),
        hidden: a.tensor("w_hh").to_compute(),
        input_bias: bias("b_ih"),
        hidden_bias: bias("b_hh"),
        projection: None,
    };
    let x = linear(input.to_compute(), parameters.input, parameters.input_bias)?;
    let state = RecurrentState::of(initial.iter().map(|value| value.to_compute()))?;
    let next = parameters.step(cell, x, state)?;
    Ok(RecurrentState {
        hidden: next.hidden.to(input.dtype()),
        cell_state: next.cell_state.map(|memory| memory.to(input.dtype())),
    })
}
