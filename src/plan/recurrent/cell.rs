//! Step formulas of recurrent cells (see [`RecurrentCell`]) for four units at once.

use crate::dtype::DType;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::op::{BinaryFunction, RecurrentCell, UnaryFunction};
use crate::plan::element::scalar;
use crate::plan::element::vec4::{self, VEC4_LEN};

/// States after a step, from the gates' contributions of the input and of the previous state.
pub fn next_states(
    pool: &mut ExprPool,
    cell: RecurrentCell,
    [input, own]: [&[Expr]; 2],
    before: &[Expr],
) -> Vec<Expr> {
    use UnaryFunction::{Sigmoid, Tanh};
    let gates: Vec<Expr> = input
        .iter()
        .zip(own)
        .map(|(input, own)| call_vec4(pool, "x + y", *input, *own))
        .collect();
    match cell {
        RecurrentCell::Lstm => {
            let [input, forget, output] =
                [0, 1, 3].map(|gate| unary_vec4(pool, Sigmoid, gates[gate]));
            let candidate = unary_vec4(pool, Tanh, gates[2]);
            let kept = call_vec4(pool, "x * y", forget, before[1]);
            let taken = call_vec4(pool, "x * y", input, candidate);
            let memory = call_vec4(pool, "x + y", kept, taken);
            let shown = unary_vec4(pool, Tanh, memory);
            vec![call_vec4(pool, "x * y", output, shown), memory]
        }
        RecurrentCell::Gru => {
            let [reset, update] = [0, 1].map(|gate| unary_vec4(pool, Sigmoid, gates[gate]));
            let own = call_vec4(pool, "x * y", reset, own[2]);
            let candidate = call_vec4(pool, "x + y", input[2], own);
            let candidate = unary_vec4(pool, Tanh, candidate);
            let change = call_vec4(pool, "x - y", before[0], candidate);
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
    of: impl Fn(&mut ExprPool, Expr) -> Expr,
) -> Expr {
    let number = |part| {
        let number = vec4::component(pool, vector, part, WgslType::F32);
        of(pool, number)
    };
    let numbers: Vec<Expr> = (0..VEC4_LEN).map(number).collect();
    vec4::build_vec4(pool, &numbers, WgslType::F32x4)
}
