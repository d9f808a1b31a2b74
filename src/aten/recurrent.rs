//! Recurrent layers and cells. A layer is unrolled: the length of its sequence is fixed when the graph is made.

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::linear::linear;
use super::{Args, Composite};

pub(super) const ROWS: &[Composite] = &[
    Composite::many(
        &[
            "aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
            "aten::lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)",
        ],
        |a| layers(a, Cell::Lstm),
        &[
            "input: f32[5, B, 3], [f32[1, B, 4], f32[1, B, 4]], [f32[16, 3], f32[16, 4], f32[16], f32[16]], True, 1, 0.0, False, False, False",
            "input: f32[2, 3, 3], [f32[2, 2, 2], f32[2, 2, 4]], [f32[16, 3], f32[16, 2], f32[2, 4], f32[16, 3], f32[16, 2], f32[2, 4]], False, 1, 0.0, False, True, True",
        ],
    ),
    Composite::many(
        &[
            "aten::gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten::gru.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        ],
        |a| layers(a, Cell::Gru),
        &[
            "input: f32[B, 4, 3], f32[2, B, 4], [f32[12, 3], f32[12, 4], f32[12], f32[12], f32[12, 4], f32[12, 4], f32[12], f32[12]], True, 2, 0.0, False, False, True",
        ],
    ),
    Composite::many(
        &[
            "aten::rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten::rnn_tanh.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        ],
        |a| layers(a, Cell::Tanh),
        &[
            "input: f16[3, 2, 3], f16[2, 2, 4], [f16[4, 3], f16[4, 4], f16[4, 3], f16[4, 4]], False, 1, 0.0, False, True, False",
        ],
    ),
    Composite::many(
        &[
            "aten::rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten::rnn_relu.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        ],
        |a| layers(a, Cell::Relu),
        &[
            "input: f32[3, B, 3], f32[1, B, 4], [f32[4, 3], f32[4, 4]], False, 1, 0.0, False, False, False",
        ],
    ),
    Composite::many(
        &[
            "aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)",
        ],
        |a| {
            let state = cell(a, Cell::Lstm, &a.tensors("hx"))?;
            Ok(std::iter::once(state.hidden).chain(state.memory).collect())
        },
        &["f32[B, 3], [f32[B, 4], f32[B, 4]], f32[16, 3], f32[16, 4], f32[16], f32[16]"],
    ),
    Composite::one(
        &[
            "aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
        ],
        |a| Ok(cell(a, Cell::Gru, &[a.tensor("hx")])?.hidden),
        &["f32[B, 3], f32[B, 4], f32[12, 3], f32[12, 4], f32[12], f32[12]"],
    ),
    Composite::one(
        &[
            "aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
        ],
        |a| Ok(cell(a, Cell::Tanh, &[a.tensor("hx")])?.hidden),
        &["f32[B, 3], f32[B, 4], f32[4, 3], f32[4, 4], f32[4], f32[4]"],
    ),
    Composite::one(
        &[
            "aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
        ],
        |a| Ok(cell(a, Cell::Relu, &[a.tensor("hx")])?.hidden),
        &["f32[B, 3], f32[B, 4], f32[4, 3], f32[4, 4]"],
    ),
];

/// What happens in one step.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// What a step hands to the next.
#[derive(Clone, Copy)]
struct State<'g> {
    hidden: Value<'g>,
    /// The cell state of an LSTM.
    memory: Option<Value<'g>>,
}

/// Parameters of one layer in one direction.
struct Parameters<'g> {
    input: Value<'g>,
    hidden: Value<'g>,
    input_bias: Option<Value<'g>>,
    hidden_bias: Option<Value<'g>>,
    /// An LSTM may project its hidden state to fewer elements.
    projection: Option<Value<'g>>,
}

impl<'g> Parameters<'g> {
    /// One step; `x` has gone through the input's matrix already.
    fn step(&self, cell: Cell, x: Value<'g>, state: State<'g>) -> Result<State<'g>> {
        let h = linear(state.hidden, self.hidden, self.hidden_bias)?;
        let hidden = match (cell, state.memory) {
            (Cell::Lstm, Some(memory)) => {
                let [input, forget, candidate, output] = parts(x + h);
                let memory = forget.sigmoid() * memory + input.sigmoid() * candidate.tanh();
                let hidden = output.sigmoid() * memory.tanh();
                return Ok(State {
                    hidden: match self.projection {
                        Some(projection) => linear(hidden, projection, None)?,
                        None => hidden,
                    },
                    memory: Some(memory),
                });
            }
            (Cell::Lstm, None) => return Err(Error::operator("an LSTM wants two states")),
            (Cell::Gru, _) => {
                let ([reset, update, candidate], [own_reset, own_update, own]) =
                    (parts(x), parts(h));
                let candidate = (candidate + (reset + own_reset).sigmoid() * own).tanh();
                let update = (update + own_update).sigmoid();
                (state.hidden - candidate) * update + candidate
            }
            (Cell::Tanh, _) => (x + h).tanh(),
            (Cell::Relu, _) => (x + h).relu(),
        };
        Ok(State {
            hidden,
            memory: None,
        })
    }

    /// Every step over `[time, batch, channel]`, and the last state.
    fn run(
        &self,
        cell: Cell,
        x: Value<'g>,
        mut state: State<'g>,
        backwards: bool,
    ) -> Result<(Value<'g>, State<'g>)> {
        let builder = x.builder();
        let length = builder.symbols().concrete(&x.size(0))?;
        let projected = linear(x, self.input, self.input_bias)?;
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

/// A value cut into `N` equal parts along its last axis.
fn parts<'g, const N: usize>(x: Value<'g>) -> [Value<'g>; N] {
    let width = x.size(-1).floor_div(&Dim::from(N));
    std::array::from_fn(|part| x.narrow(-1, &width * part as i64, width.clone()))
}

fn layers<'g>(a: &Args<'g>, cell: Cell) -> Result<Vec<Value<'g>>> {
    if a.overload() == "data" {
        return a.reject(
            "packed sequences are not supported; pad them and call the layer with batch_first",
        );
    }
    if a.bool("train") && 0.0 < a.float("dropout") {
        return a.reject("dropout between recurrent layers in training");
    }
    let input = a.tensor("input");
    let initial = match cell {
        Cell::Lstm => a.tensors("hx"),
        _ => vec![a.tensor("hx")],
    };
    a.builder().check()?;
    let batch_first = a.bool("batch_first");
    let mut x = input.to_compute();
    if batch_first {
        x = x.transpose(0, 1);
    }
    let directions = if a.bool("bidirectional") { 2 } else { 1 };
    let cells = usize::try_from(a.int("num_layers") * directions).unwrap_or(1);
    let mut parameters = Parameters::read(a, cells)?.into_iter();
    let (mut hidden, mut memory) = (Vec::new(), Vec::new());
    for layer in 0..a.int("num_layers") {
        let mut outputs = Vec::new();
        for direction in 0..directions {
            let of_layer =
                |value: &Value<'g>| value.to_compute().select(0, layer * directions + direction);
            let state = State::of(initial.iter().map(of_layer))?;
            let parameters = parameters
                .next()
                .ok_or_else(|| Error::operator("has too few parameters"))?;
            let (output, last) = parameters.run(cell, x, state, direction == 1)?;
            outputs.push(output);
            hidden.push(last.hidden);
            memory.extend(last.memory);
        }
        x = a.builder().concat(&outputs, -1);
    }
    let output = if batch_first { x.transpose(0, 1) } else { x };
    let mut results = vec![output, a.builder().stack(&hidden, 0)];
    if !memory.is_empty() {
        results.push(a.builder().stack(&memory, 0));
    }
    Ok(results
        .into_iter()
        .map(|result| result.to(input.dtype()))
        .collect())
}

impl<'g> State<'g> {
    fn of(mut values: impl Iterator<Item = Value<'g>>) -> Result<State<'g>> {
        Ok(State {
            hidden: values
                .next()
                .ok_or_else(|| Error::operator("has no initial state"))?,
            memory: values.next(),
        })
    }
}

impl<'g> Parameters<'g> {
    /// The flat list, cut into layers and directions.
    fn read(a: &Args<'g>, cells: usize) -> Result<Vec<Parameters<'g>>> {
        let flat: Vec<Value<'g>> = a
            .tensors("params")
            .into_iter()
            .map(Value::to_compute)
            .collect();
        let has_biases = a.bool("has_biases");
        // Sizes of the states would tell as well whether there are projections, but may be symbols.
        let count = flat.len() / cells.max(1);
        flat.chunks(count.max(1))
            .map(|chunk| match (chunk, has_biases) {
                ([input, hidden, input_bias, hidden_bias, rest @ ..], true) => Ok(Parameters {
                    input: *input,
                    hidden: *hidden,
                    input_bias: Some(*input_bias),
                    hidden_bias: Some(*hidden_bias),
                    projection: rest.first().copied(),
                }),
                ([input, hidden, rest @ ..], false) => Ok(Parameters {
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

/// A single step.
fn cell<'g>(a: &Args<'g>, cell: Cell, initial: &[Value<'g>]) -> Result<State<'g>> {
    let input = a.tensor("input");
    let bias = |name| a.optional_tensor(name).map(Value::to_compute);
    let parameters = Parameters {
        input: a.tensor("w_ih").to_compute(),
        hidden: a.tensor("w_hh").to_compute(),
        input_bias: bias("b_ih"),
        hidden_bias: bias("b_hh"),
        projection: None,
    };
    let x = linear(input.to_compute(), parameters.input, parameters.input_bias)?;
    let state = State::of(initial.iter().map(|value| value.to_compute()))?;
    let next = parameters.step(cell, x, state)?;
    Ok(State {
        hidden: next.hidden.to(input.dtype()),
        memory: next.memory.map(|memory| memory.to(input.dtype())),
    })
}
