//! Step formulas of recurrent cells (see [`Cell`]) for four units at once.

use crate::dtype::DType;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::op::{BinaryFunction, RecurrentCell, UnaryFunction};
use crate::pass::plan::element::quad::{self, QUAD};
use crate::pass::plan::element::scalar;

/// States after a step, from the gates' contributions of the input and of the previous state.
pub fn next(
    pool: &mut ExprPool,
    cell: RecurrentCell,
    [input, own]: [&[Expr]; 2],
    before: &[Expr],
) -> Vec<Expr> {
    use UnaryFunction::{Sigmoid, Tanh};
    let gates: Vec<Expr> = input
        .iter()
        .zip(own)
        .map(|(input, own)| combined(pool, "x + y", *input, *own))
        .collect();
    match cell {
        RecurrentCell::Lstm => {
            let [input, forget, output] = [0, 1, 3].map(|gate| each(pool, Sigmoid, gates[gate]));
            let candidate = each(pool, Tanh, gates[2]);
            let kept = combined(pool, "x * y", forget, before[1]);
            let taken = combined(pool, "x * y", input, candidate);
            let memory = combined(pool, "x + y", kept, taken);
            let shown = each(pool, Tanh, memory);
            vec![combined(pool, "x * y", output, shown), memory]
        }
        RecurrentCell::Gru => {
            let [reset, update] = [0, 1].map(|gate| each(pool, Sigmoid, gates[gate]));
            let own = combined(pool, "x * y", reset, own[2]);
            let candidate = combined(pool, "x + y", input[2], own);
            let candidate = each(pool, Tanh, candidate);
            let change = combined(pool, "x - y", before[0], candidate);
            let change = combined(pool, "x * y", change, update);
            vec![combined(pool, "x + y", change, candidate)]
        }
        RecurrentCell::Tanh => vec![each(pool, Tanh, gates[0])],
        RecurrentCell::Relu => vec![relu(pool, gates[0])],
    }
}

fn combined(pool: &mut ExprPool, template: &'static str, x: Expr, y: Expr) -> Expr {
    pool.call(template, WgslType::F32x4, &[x, y])
}

/// Applies a function to each component.
fn each(pool: &mut ExprPool, function: UnaryFunction, vector: Expr) -> Expr {
    of_parts(pool, vector, |pool, x| {
        scalar::unary(pool, function, x, DType::F32)
    })
}

fn relu(pool: &mut ExprPool, vector: Expr) -> Expr {
    of_parts(pool, vector, |pool, x| {
        let zero = pool.literal(WgslType::F32, 0.0);
        scalar::binary(pool, BinaryFunction::Maximum, x, zero, DType::F32)
    })
}

fn of_parts(pool: &mut ExprPool, vector: Expr, of: impl Fn(&mut ExprPool, Expr) -> Expr) -> Expr {
    let number = |part| {
        let number = quad::part(pool, vector, part, WgslType::F32);
        of(pool, number)
    };
    let numbers: Vec<Expr> = (0..QUAD).map(number).collect();
    quad::joined(pool, &numbers, WgslType::F32x4)
}
