//! The recurrent layer of oneDNN, to which old releases of PyTorch decompose `nn.LSTM` on CPUs: one layer in one direction.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::op::RecurrentCell;

use super::super::{Args, Composite};
use super::{DirectionWeights, RecurrentLayer, RecurrentState};

pub(super) const ROW: Composite = Composite::many(
    &[
        "aten::mkldnn_rnn_layer(Tensor input, Tensor weight0, Tensor weight1, Tensor weight2, Tensor weight3, Tensor hx_, Tensor cx_, bool reverse, int[] batch_sizes, int mode, int hidden_size, int num_layers, bool has_biases, bool bidirectional, bool batch_first, bool train) -> (Tensor, Tensor, Tensor, Tensor)",
    ],
    layer,
    &[
        "f32[S, B, 3], f32[16, 3], f32[16, 4], f32[16], f32[16], f32[B, 4], f32[B, 4], False, [], 2, 4, 1, True, False, False, False",
        "f32[S, B, 3], f32[16, 3], f32[16, 4], f32[16], f32[16], f32[1, B, 4], f32[1, B, 4], True, [], 2, 4, 1, True, False, False, False",
    ],
);

/// `mode` of an LSTM; `nn.GRU` and `nn.RNN` do not call this operator.
const LSTM: i64 = 2;

/// Returns the output `[time, batch, unit]`, the last hidden state, the last cell state, and an empty workspace.
fn layer<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    if a.int("mode") != LSTM || a.int("num_layers") != 1 || a.bool("bidirectional") {
        return a.reject("other layers than those of one LSTM in one direction");
    }
    let bias = |name| a.bool("has_biases").then(|| a.tensor(name).to_compute());
    let weights = DirectionWeights {
        input: a.tensor("weight0").to_compute(),
        hidden: a.tensor("weight1").to_compute(),
        input_bias: bias("weight2"),
        hidden_bias: bias("weight3"),
        projection: None,
    };
    let initial = ["hx_", "cx_"].map(|name| a.tensor(name));
    // Layers pass states with an axis of one direction or without.
    let has_direction = initial.iter().all(|state| state.rank() == 3);
    let of_batch = |state: &Value<'g>| match has_direction {
        true => state.to_compute().select(0, 0),
        false => state.to_compute(),
    };
    let state = RecurrentState::of(initial.iter().map(of_batch))?;
    let layer = RecurrentLayer {
        cell: RecurrentCell::Lstm,
        directions: vec![(weights, state)],
        has_step: None,
    };
    let input = a.tensor("input");
    let in_order = |x: Value<'g>| match a.bool("reverse") {
        true => x.flip(&[0]),
        false => x,
    };
    let (output, last) = layer.run(in_order(input.to_compute()))?;
    let states = last
        .iter()
        .flat_map(|state| [Some(state.hidden), state.cell_state]);
    let states = states.flatten().map(|state| match has_direction {
        true => state.unsqueeze(0),
        false => state,
    });
    let results = std::iter::once(in_order(output)).chain(states);
    let results = results.map(|result| result.to(input.dtype()));
    let workspace = a.builder().full(DType::U8, vec![Dim::ZERO], 0);
    Ok(results.chain([workspace]).collect())
}
