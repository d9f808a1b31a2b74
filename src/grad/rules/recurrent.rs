//! Gradients of recurrent layers: backpropagation through time.
//!
//! The gates of all steps are computed again by one product, since the hidden states are results. The derivatives of a step are
//! then known, and a loop from the last step to the first only carries the gradients of the states. Gradients of the
//! weights are products over all steps. Formulas follow from the cells in PyTorch's documentation of `torch.nn.LSTM`, `GRU`
//! and `RNN`.

use super::super::backward::{ArgumentGradients, NodeGradient};
use super::row_loop::{RowLoop, StepValues};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::{Recurrent, RecurrentCell};

/// Axis of the gates of values `[D, T, B, G, H]`.
const GATES: i64 = 3;

/// The values of all steps, in the order in which each direction runs them.
struct LayerSteps<'g> {
    cell: RecurrentCell,
    /// Directions, steps, rows, gates, units.
    sizes: [Dim; 5],
    /// Weights from the previous state to the gates, `[D, G * H, H]`.
    weight: Value<'g>,
    /// Hidden states before the steps, `[D, T, B, H]`.
    previous: Value<'g>,
    /// Contributions of the input and of the previous state to the gates, `[D, T, B, G, H]`.
    contributions: [Value<'g>; 2],
    /// Hidden states after the steps, `[D, T, B, H]`.
    hidden: Value<'g>,
}

/// Derivatives of the steps, with respect to the state that the gradient of each gate derives from.
struct StepDerivatives<'g> {
    /// Derivatives of contributions of the input, `[D, T, B, G, H]`.
    of_input: Value<'g>,
    /// Derivatives of contributions of the previous hidden state.
    of_hidden: Value<'g>,
    /// Derivative of the next hidden state by the previous one, apart from the gates, `[D, T, B, H]`.
    carry: Option<Value<'g>>,
    /// Of an LSTM: derivatives of the hidden state by the cell state, and of that by the previous one.
    of_cell: Option<[Value<'g>; 2]>,
}

pub(super) fn recurrent<'g>(
    layer: &Recurrent,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let steps = LayerSteps::of(layer.cell, node)?;
    let derivatives = steps.derivatives(node)?;
    let (initial, states) = steps.run_backwards(&derivatives, node)?;
    let sources = steps.gate_sources(&states)?;
    let of_input = sources * derivatives.of_input;
    let of_hidden = sources * derivatives.of_hidden;
    let [directions, count, batch, gates, units] = steps.sizes.clone();
    let width = &gates * &units;
    let all = count * batch;
    let flat = |value: Value<'g>, size: &Dim| {
        value.reshape([directions.clone(), all.clone(), size.clone()])
    };
    let of_weight = flat(of_hidden, &width)
        .transpose(1, 2)
        .dot(flat(steps.previous, &units));
    let weight_shape = [&directions, &gates, &units, &units].map(Dim::clone);
    let gradients = [
        in_time_order(of_input.flatten(GATES, GATES + 1)),
        of_weight.reshape(weight_shape),
        of_hidden.sum(&[1, 2], false),
    ];
    Ok(gradients.into_iter().chain(initial).map(Some).collect())
}

impl<'g> LayerSteps<'g> {
    fn of(cell: RecurrentCell, node: &NodeGradient<'_, 'g>) -> Result<LayerSteps<'g>> {
        let [x, weight, bias, initial] = [0, 1, 2, 3].map(|index| node.operand(index));
        let (x, weight, bias, initial) = (x?, weight?, bias?, initial?);
        let [count, batch, _] = x.sizes()?;
        let [directions, gates, units, _] = weight.sizes()?;
        let width = &gates * &units;
        let sizes = [&directions, &count, &batch, &gates, &units].map(Dim::clone);
        let hidden = in_step_order(node.result(0)?, &directions);
        let previous = shifted(initial, hidden);
        let weight = weight.reshape([directions.clone(), width.clone(), units.clone()]);
        let flat = previous.reshape([directions.clone(), count * batch, units]);
        let bias = bias.reshape([directions.clone(), Dim::ONE, width]);
        let of_hidden = flat.dot(weight.transpose(1, 2)) + bias;
        Ok(LayerSteps {
            cell,
            contributions: [
                in_step_order(x, &directions).reshape(sizes.to_vec()),
                of_hidden.reshape(sizes.to_vec()),
            ],
            sizes,
            weight,
            previous,
            hidden,
        })
    }

    fn derivatives(&self, node: &NodeGradient<'_, 'g>) -> Result<StepDerivatives<'g>> {
        match self.cell {
            RecurrentCell::Lstm => self.lstm(node.operand(4)?),
            RecurrentCell::Gru => Ok(self.gru()),
            RecurrentCell::Tanh => Ok(self.single_gate(1.0 - self.hidden * self.hidden)),
            RecurrentCell::Relu => {
                Ok(self.single_gate(self.hidden.gt(0.0).to(self.hidden.dtype())))
            }
        }
    }

    /// A contribution to a gate: 0 for that of the input, 1 for that of the previous state.
    fn contribution(&self, of: usize, gate: i64) -> Value<'g> {
        self.contributions[of].select(GATES, gate)
    }

    /// Sum of the contributions to a gate.
    fn gate(&self, gate: i64) -> Value<'g> {
        self.contribution(0, gate) + self.contribution(1, gate)
    }

    fn single_gate(&self, derivative: Value<'g>) -> StepDerivatives<'g> {
        let derivative = derivative.unsqueeze(GATES);
        StepDerivatives {
            of_input: derivative,
            of_hidden: derivative,
            carry: None,
            of_cell: None,
        }
    }

    fn gru(&self) -> StepDerivatives<'g> {
        let [reset, update] = [0, 1].map(|gate| self.gate(gate).sigmoid());
        let from_hidden = self.contribution(1, 2);
        let candidate = (self.contribution(0, 2) + reset * from_hidden).tanh();
        let of_candidate = (1.0 - update) * (1.0 - candidate * candidate);
        let of_reset = of_candidate * from_hidden * of_sigmoid(reset);
        let of_update = (self.previous - candidate) * of_sigmoid(update);
        let stack = |of_candidate| {
            let gates = [of_reset, of_update, of_candidate];
            update.builder().stack(&gates, GATES)
        };
        StepDerivatives {
            of_input: stack(of_candidate),
            of_hidden: stack(of_candidate * reset),
            carry: Some(update),
            of_cell: None,
        }
    }

    fn lstm(&self, initial: Value<'g>) -> Result<StepDerivatives<'g>> {
        let [input, forget, output] = [0, 1, 3].map(|gate| self.gate(gate).sigmoid());
        let candidate = self.gate(2).tanh();
        let cells = self.cell_states(initial, forget, input * candidate)?;
        let activated = cells.tanh();
        let gates = [
            candidate * of_sigmoid(input),
            shifted(initial, cells) * of_sigmoid(forget),
            input * (1.0 - candidate * candidate),
            activated * of_sigmoid(output),
        ];
        let gates = cells.builder().stack(&gates, GATES);
        Ok(StepDerivatives {
            of_input: gates,
            of_hidden: gates,
            carry: None,
            of_cell: Some([output * (1.0 - activated * activated), forget]),
        })
    }

    /// The cell states after all steps of an LSTM.
    fn cell_states(
        &self,
        initial: Value<'g>,
        forget: Value<'g>,
        added: Value<'g>,
    ) -> Result<Value<'g>> {
        let steps = RowLoop {
            count: self.sizes[1].clone(),
            is_reversed: false,
            kept: vec![initial.ty()],
            initial: vec![initial],
            rows: vec![forget.transpose(0, 1), added.transpose(0, 1)],
            constants: Vec::new(),
            step: &|values| {
                let ([cell], [forget, added]) = (&*values.state, &*values.rows) else {
                    return Err(Error::internal("a cell has one state"));
                };
                let next = *forget * *cell + *added;
                Ok((vec![next], vec![next]))
            },
        };
        let (_, kept) = steps.run(initial.builder())?;
        let cells = kept.first().map(|cells| cells.transpose(0, 1));
        cells.ok_or_else(|| Error::internal("cell states were not kept"))
    }

    /// Returns the gradients of the initial states, and those of the states after all steps, `[D, T, B, H]`.
    fn run_backwards(
        &self,
        derivatives: &StepDerivatives<'g>,
        node: &NodeGradient<'_, 'g>,
    ) -> Result<(Vec<Value<'g>>, Vec<Value<'g>>)> {
        let builder = node.builder;
        let state = node.operand(3)?;
        let mut initial = vec![builder.full(state.dtype(), state.shape(), 0.0)];
        if derivatives.of_cell.is_some() {
            initial.push(node.gradient(1)?);
        }
        let mut rows = vec![
            in_step_order(node.gradient(0)?, &self.sizes[0]),
            derivatives.of_hidden,
        ];
        rows.extend(derivatives.carry);
        rows.extend(derivatives.of_cell.into_iter().flatten());
        let steps = RowLoop {
            count: self.sizes[1].clone(),
            is_reversed: true,
            kept: vec![state.ty(); initial.len()],
            initial,
            rows: rows.into_iter().map(|rows| rows.transpose(0, 1)).collect(),
            constants: vec![self.weight],
            step: match self.cell {
                RecurrentCell::Lstm => &lstm_step,
                RecurrentCell::Gru | RecurrentCell::Tanh | RecurrentCell::Relu => &hidden_step,
            },
        };
        let (initial, kept) = steps.run(builder)?;
        let kept = kept.iter().map(|rows| rows.transpose(0, 1));
        Ok((initial, kept.collect()))
    }

    /// For each gate the gradient that its derivative is multiplied with: of the hidden state, or of an LSTM's cell state.
    fn gate_sources(&self, states: &[Value<'g>]) -> Result<Value<'g>> {
        match states {
            [hidden] => Ok(hidden.unsqueeze(GATES)),
            [hidden, cell] => Ok(lstm_sources(*hidden, *cell, GATES)),
            _ => Err(Error::internal("a layer has one or two states")),
        }
    }
}

/// The gradients before a step from those after it, for cells without a cell state.
fn hidden_step<'b>(values: &StepValues<'b>) -> Result<(Vec<Value<'b>>, Vec<Value<'b>>)> {
    let ([hidden], [output, of_hidden, carry @ ..]) = (&*values.state, &*values.rows) else {
        return Err(Error::internal(
            "a step reads the gradient of a hidden state",
        ));
    };
    let hidden = *hidden + *output;
    let before = through_weights(hidden.unsqueeze(-2) * *of_hidden, values)?;
    let carried = carry.first().map(|carry| hidden * *carry);
    let before = carried.map_or(before, |carried| before + carried);
    Ok((vec![before], vec![hidden]))
}

/// The gradients before a step of an LSTM from those after it.
fn lstm_step<'b>(values: &StepValues<'b>) -> Result<(Vec<Value<'b>>, Vec<Value<'b>>)> {
    let ([hidden, cell], [output, of_gates, of_cell, forget]) = (&*values.state, &*values.rows)
    else {
        return Err(Error::internal("a step reads the gradients of two states"));
    };
    let hidden = *hidden + *output;
    let cell = *cell + hidden * *of_cell;
    let gates = lstm_sources(hidden, cell, -2) * *of_gates;
    let before = vec![through_weights(gates, values)?, cell * *forget];
    Ok((before, vec![hidden, cell]))
}

/// The gradient of the previous hidden state from those of the gates `[D, B, G, H]`.
fn through_weights<'b>(gates: Value<'b>, values: &StepValues<'b>) -> Result<Value<'b>> {
    let [weight] = &*values.constants else {
        return Err(Error::internal("a step reads one weight"));
    };
    Ok(gates.flatten(2, 3).dot(*weight))
}

/// Only the output gate derives from the hidden state.
fn lstm_sources<'b>(hidden: Value<'b>, cell: Value<'b>, axis: i64) -> Value<'b> {
    let gates = [cell, cell, cell, hidden];
    hidden.builder().stack(&gates, axis)
}

/// Derivative of the sigmoid from its value.
fn of_sigmoid(value: Value) -> Value {
    value * (1.0 - value)
}

/// The states before the steps, from the initial one `[D, B, H]` and those after the steps `[D, T, B, H]`.
fn shifted<'g>(initial: Value<'g>, states: Value<'g>) -> Value<'g> {
    let all = [initial.unsqueeze(1), states];
    let all = initial.builder().concat(&all, 1);
    all.narrow(1, 0, states.size(1))
}

/// `[T, B, D * N]` as `[D, T, B, N]`, the second direction from the last step to the first.
fn in_step_order<'g>(value: Value<'g>, directions: &Dim) -> Value<'g> {
    let [steps, batch, width] = [0, 1, 2].map(|axis| value.size(axis));
    let units = width.floor_div(directions);
    let parts = value.reshape([steps, batch, directions.clone(), units]);
    second_reversed(parts.permute([2, 0, 1, 3]))
}

/// `[D, T, B, N]` as `[T, B, D * N]`, the opposite of [`in_step_order`].
fn in_time_order(value: Value) -> Value {
    second_reversed(value).permute([1, 2, 0, 3]).flatten(2, 3)
}

/// Reverses the steps of the second direction, if there is one.
fn second_reversed(value: Value) -> Value {
    if value.size(0).is(1) {
        return value;
    }
    let second = value.narrow(0, 1, 1).flip(&[1]);
    value.builder().concat(&[value.narrow(0, 0, 1), second], 0)
}
