use serde::{Deserialize, Serialize};

use super::dot::{self, GemmSize};
use super::{HostType, Operand, Rules, values, workspace};
use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// All steps of a recurrent layer, each of which computes a state from the previous one: `torch.nn.RNN`, `GRU` and `LSTM`
/// without the products of the input and its weights, which do not depend on the state.
///
/// Operands, all `f32`, for `D` directions (1 or 2: the second runs from the last step to the first), `T` steps, `B` batch
/// rows, `G` gates ([`RecurrentCell::gates`]) and `H` hidden units:
///
/// - `[T, B, D * G * H]`: contribution of the input to the gates, biases included;
/// - `[D, G, H, H]`: weights from each unit of the previous state to each unit of a gate;
/// - `[D, G, H]`: biases of these products;
/// - `[D, B, H]`: the initial hidden state, and for an LSTM an operand of this shape for the initial cell state.
///
/// Results: the hidden state after each step, `[T, B, D * H]`, and for an LSTM the cell state after the last step, `[D, B,
/// H]`. Formulas, names and the order of gates are those of PyTorch's documentation of these modules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recurrent {
    /// The cell.
    pub cell: RecurrentCell,
}

/// The cell of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecurrentCell {
    /// Gates: input, forget, candidate, output.
    Lstm,
    /// Gates: reset, update, candidate.
    Gru,
    /// `tanh` of a single gate.
    Tanh,
    /// `relu` of a single gate.
    Relu,
}

impl RecurrentCell {
    /// Number of gates of a unit.
    pub fn gates(self) -> usize {
        match self {
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru => 3,
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
        }
    }

    /// Number of states that a step passes to the next: the hidden state, and for an LSTM the cell state.
    pub fn states(self) -> usize {
        match self {
            RecurrentCell::Lstm => 2,
            _ => 1,
        }
    }

    /// The states of a unit after a step, from the contributions of the input and the previous state to its gates.
    fn next(
        self,
        input: &[f64],
        hidden_contribution: &[f64],
        [hidden, cell_state]: [f64; 2],
    ) -> [f64; 2] {
        let gate = |gate: usize| input[gate] + hidden_contribution[gate];
        match self {
            RecurrentCell::Lstm => {
                let cell_state = sigmoid(gate(1)) * cell_state + sigmoid(gate(0)) * gate(2).tanh();
                [sigmoid(gate(3)) * cell_state.tanh(), cell_state]
            }
            RecurrentCell::Gru => {
                let candidate = (input[2] + sigmoid(gate(0)) * hidden_contribution[2]).tanh();
                [
                    candidate + sigmoid(gate(1)) * (hidden - candidate),
                    cell_state,
                ]
            }
            RecurrentCell::Tanh => [gate(0).tanh(), cell_state],
            RecurrentCell::Relu => {
                let gate = gate(0);
                [if gate < 0.0 { 0.0 } else { gate }, cell_state]
            }
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Rules for Recurrent {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let types = match self.cell.states() {
            1 => values::<4>(found)?.to_vec(),
            _ => values::<5>(found)?.to_vec(),
        };
        if let Some(other) = types.iter().find(|ty| ty.dtype != DType::F32) {
            return Err(Error::operator(format!("takes f32, not {other}")));
        }
        let complain = || {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            let gates = self.cell.gates();
            let types = types.join(", ");
            Error::operator(format!(
                "{types} are not [T, B, D * {gates} * H], [D, {gates}, H, H], [D, {gates}, H] and states [D, B, H]"
            ))
        };
        let ([steps, batch, _], [directions, gates, units, _]) =
            (types[0].shape.as_slice(), types[1].shape.as_slice())
        else {
            return Err(complain());
        };
        let is_known = (directions.is(1) || directions.is(2)) && gates.is(self.cell.gates() as i64);
        if !is_known {
            return Err(complain());
        }
        let width = directions * &(gates * units);
        let state = [directions, batch, units].map(Dim::clone).to_vec();
        let mut wanted = vec![
            vec![steps.clone(), batch.clone(), width],
            [directions, gates, units, units].map(Dim::clone).to_vec(),
            [directions, gates, units].map(Dim::clone).to_vec(),
        ];
        wanted.resize(types.len(), state.clone());
        for (ty, wanted) in types.iter().zip(&wanted) {
            if ty.rank() != wanted.len() {
                return Err(complain());
            }
            for (size, wanted) in ty.shape.iter().zip(wanted) {
                symbols.require_equal(size, wanted, || complain().to_string())?;
            }
        }
        let ty = |shape| TensorType {
            dtype: DType::F32,
            shape,
        };
        let hidden = ty(vec![steps.clone(), batch.clone(), directions * units]);
        let cell_state = (self.cell.states() > 1).then(|| ty(state));
        Ok([hidden].into_iter().chain(cell_state).collect())
    }

    /// Computes in double precision.
    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let missing = || Error::internal("operands of recurrent have the wrong number of axes");
        let [x, weight, bias, states @ ..] = found else {
            return Err(missing());
        };
        let (&[steps, batch, _], &[directions, gates, units, _]) = (x.shape(), weight.shape())
        else {
            return Err(missing());
        };
        let layer = RecurrentOperands {
            cell: self.cell,
            sizes: [steps, batch, units],
            directions,
            x: x.to_f64(),
            bias: bias.to_f64(),
        };
        let mut states: Vec<Vec<f64>> = states.iter().map(Tensor::to_f64).collect();
        states.resize(2, vec![0.0; directions * batch * units]);
        let mut outputs = vec![0.0; steps * batch * directions * units];
        let weight = weight.to_f64();
        for direction in 0..directions {
            let part = gates * units * units;
            let weight = transposed(&weight[direction * part..][..part], [gates * units, units]);
            layer.run(direction, &weight, &mut states, &mut outputs);
        }
        let hidden = Tensor::from_f64(DType::F32, [steps, batch, directions * units], outputs)?;
        let cell_state = states.pop().filter(|_| self.cell.states() > 1);
        let cell_state = cell_state
            .map(|cell_state| Tensor::from_f64(DType::F32, [directions, batch, units], cell_state));
        Ok([hidden]
            .into_iter()
            .chain(cell_state.transpose()?)
            .collect())
    }

    fn workspace(&self, operands: &[HostType], results: &[HostType]) -> u64 {
        let numbers = workspace::numbers(operands.iter().chain(results));
        // A weight is transposed, and a step has vectors of its own.
        numbers.saturating_add(workspace::numbers(operands.get(1..).unwrap_or_default()))
    }
}

/// The operands that are constant over the steps.
struct RecurrentOperands {
    cell: RecurrentCell,
    /// Steps, rows, units.
    sizes: [usize; 3],
    directions: usize,
    x: Vec<f64>,
    bias: Vec<f64>,
}

impl RecurrentOperands {
    /// Computes all steps of a direction. Rows of the weight are units of the previous state.
    fn run(&self, direction: usize, weight: &[f64], states: &mut [Vec<f64>], outputs: &mut [f64]) {
        let [steps, batch, units] = self.sizes;
        let gates = self.cell.gates();
        let size = GemmSize {
            batch: 1,
            m: batch,
            k: units,
            n: gates * units,
        };
        let first = direction * batch * units;
        for step in 0..steps {
            let step = if direction == 0 {
                step
            } else {
                steps - 1 - step
            };
            let hidden_contribution =
                dot::product(&states[0][first..][..batch * units], weight, size);
            for (row, unit) in (0..batch).flat_map(|row| (0..units).map(move |unit| (row, unit))) {
                let place = |gate: usize| (direction * gates + gate) * units + unit;
                let of_row = (step * batch + row) * self.directions;
                let input = |gate| self.x[of_row * gates * units + place(gate)];
                let from_hidden = |gate| {
                    hidden_contribution[(row * gates + gate) * units + unit]
                        + self.bias[place(gate)]
                };
                let input: Vec<f64> = (0..gates).map(input).collect();
                let hidden_contribution: Vec<f64> = (0..gates).map(from_hidden).collect();
                let at = first + row * units + unit;
                let [hidden, cell_state] =
                    self.cell
                        .next(&input, &hidden_contribution, [states[0][at], states[1][at]]);
                (states[0][at], states[1][at]) = (hidden, cell_state);
                outputs[(of_row + direction) * units + unit] = hidden;
            }
        }
    }
}

fn transposed(matrix: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let elements = (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
    elements
        .map(|(row, column)| matrix[row * columns + column])
        .collect()
}
