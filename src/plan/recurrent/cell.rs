//! Step formulas of recurrent cells (see [`RecurrentCell`]) for four units at once.

use crate::dtype::DType;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::op::{BinaryFunction, RecurrentCell, UnaryFunction};
use crate::plan::element::scalar;
use crate::plan::element::vec4::{self, VEC4_LEN};

/// States after a step: the hidden state, and for an LSTM the cell state. `input` and `hidden` are the contributions of
/// the input and of the previous hidden state to each gate; `previous` are the states before the step.
pub fn next_states(
    pool: &mut ExprPool,
    cell: RecurrentCell,
    [input, hidden]: [&[Expr]; 2],
    previous: &[Expr],
) -> Vec<Expr> {
    use UnaryFunction::{Sigmoid, Tanh};
    let gates: Vec<Expr> = input
        .iter()
        .zip(hidden)
        .map(|(input, hidden)| call_vec4(pool, "x + y", *input, *hidden))
        .collect();
    match cell {
        RecurrentCell::Lstm => {
            let [input, forget, output] =
                [0, 1, 3].map(|gate| unary_vec4(pool, Sigmoid, gates[gate]));
            let candidate = unary_vec4(pool, Tanh, gates[2]);
            let remembered = call_vec4(pool, "x * y", forget, previous[1]);
            let added = call_vec4(pool, "x * y", input, candidate);
            let cell_state = call_vec4(pool, "x + y", remembered, added);
            let activated = unary_vec4(pool, Tanh, cell_state);
            vec![call_vec4(pool, "x * y", output, activated), cell_state]
        }
        RecurrentCell::Gru => {
            let [reset, update] = [0, 1].map(|gate| unary_vec4(pool, Sigmoid, gates[gate]));
            let hidden = call_vec4(pool, "x * y", reset, hidden[2]);
            let candidate = call_vec4(pool, "x + y", input[2], hidden);
            let candidate = unary_vec4(pool, Tanh, candidate);
            let change = call_vec4(pool, "x - y", previous[0], candidate);
            let change = call_vec4(pool, "x * y", change, update);
            vec![call_vec4(pool, "x + y", change, candidate)]
        }
        RecurrentCell::Tanh => vec![unary_vec4(pool, Tanh, gates[0])],
        RecurrentCell::Relu => vec![relu(pool, gates[0])],
    }
}

fn call_vec4(pool: &mut ExprPool, template: &'static str, x: Expr, y: Expr) -> Expr {
    pool.call(template, WgslType::F32x4, &[x, y])
}

/// Applies a function to each component.
fn unary_vec4(pool: &mut ExprPool, function: UnaryFunction, vector: Expr) -> Expr {
    map_components(pool, vector, |pool, x| {
        scalar::unary(pool, function, x, DType::F32)
    })
}

fn relu(pool: &mut ExprPool, vector: Expr) -> Expr {
    map_components(pool, vector, |pool, x| {
        let zero = pool.literal(WgslType::F32, 0.0);
        scalar::binary(pool, BinaryFunction::Maximum, x, zero, DType::F32)
    })
}

fn map_components(
    pool: &mut ExprPool,
    vector: Expr,
    function: impl Fn(&mut ExprPool, Expr) -> Expr,
) -> Expr {
    let element = |component| {
        let element = vec4::component(pool, vector, component, WgslType::F32);
        function(pool, element)
    };
    let numbers: Vec<Expr> = (0..VEC4_LEN).map(element).collect();
    vec4::build_vec4(pool, &numbers, WgslType::F32x4)
}
