//! Superword-level parallelism: four numbers that are computed by equal expressions become one vec4 expression.
//!
//! The source gets shorter. Mesa's rasteriser also executes a vector operation component by component: while a processor
//! waits for one component's previous result, it computes the other three.

use std::collections::HashMap;

use super::quad::{QUAD, whole};
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::kernel::shader;

/// Templates whose operands are vectors or scalars.
const ARITHMETIC: &[&str] = &["x + y", "x - y", "x * y", "x / y", "-x"];
/// A select, whose third operand is one condition for all components or one for each.
const SELECT: &str = "select(x, y, z)";
/// Templates that mean for vectors what they mean for scalars, if all operands are vectors.
const ALIKE: &[&str] = &[
    SELECT,
    "select(x, y, x < y)",
    "select(x, y, x > y)",
    "select(x, max(x, y), x < y)",
    "select(x, min(x, y), x > y)",
    "x < y",
    "x <= y",
    "x > y",
    "x >= y",
    "x == y",
    "!(x == y)",
    "!x",
    "abs(x)",
    "ceil(x)",
    "floor(x)",
    "round(x)",
    "sqrt(x)",
    "trunc(x)",
];

/// Returns the vector of four numbers or conditions.
pub fn vector(pool: &mut ExprPool, parts: [Expr; QUAD]) -> Expr {
    Fours {
        pool,
        known: HashMap::new(),
    }
    .vector(parts)
    .expr
}

struct Fours<'p> {
    pool: &'p mut ExprPool,
    known: HashMap<[Expr; QUAD], Vector>,
}

/// Four components as a vector.
#[derive(Clone, Copy)]
struct Vector {
    expr: Expr,
    /// True if the vector takes less work than four scalars: no component is part of other vectors, as happens with the
    /// windows of neighbouring positions.
    is_less: bool,
}

impl Fours<'_> {
    fn vector(&mut self, parts: [Expr; QUAD]) -> Vector {
        if let Some(known) = self.known.get(&parts) {
            return *known;
        }
        let vector = match whole(self.pool, &parts) {
            Some(expr) => Some(Vector {
                expr,
                is_less: true,
            }),
            None => self.alike(&parts).filter(|vector| vector.is_less),
        };
        let vector = vector.unwrap_or_else(|| self.put_together(&parts));
        self.known.insert(parts, vector);
        vector
    }

    fn put_together(&mut self, parts: &[Expr; QUAD]) -> Vector {
        let ty = four(self.pool.ty(parts[0])).unwrap_or(WgslType::F32x4);
        let expr = match (is_one(parts), self.pool.as_literal(parts[0])) {
            (true, Some(literal)) => self.pool.literal(ty, literal),
            (true, None) => self.pool.call("vec4(x)", ty, &parts[..1]),
            (false, _) => self.pool.call("vec4(x, y, z, w)", ty, parts),
        };
        Vector {
            expr,
            is_less: false,
        }
    }

    /// Vectorises four equal operations. `None` if they are not equal.
    fn alike(&mut self, parts: &[Expr; QUAD]) -> Option<Vector> {
        let ty = four(self.pool.ty(parts[0]))?;
        let (template, operands) = self.operation(parts)?;
        let (template, is_function) = widened(&template)?;
        let operands = operands.into_iter().enumerate();
        let operands: Vec<Vector> = operands
            .map(
                |(place, operand)| match takes_one(&template, place) && is_one(&operand) {
                    true => Vector {
                        expr: operand[0],
                        is_less: false,
                    },
                    false => self.vector(operand),
                },
            )
            .collect();
        let is_less = is_function || operands.iter().any(|operand| operand.is_less);
        let operands: Vec<Expr> = operands.iter().map(|operand| operand.expr).collect();
        let expr = self.pool.call(template, ty, &operands);
        Some(Vector { expr, is_less })
    }

    /// Returns the template of four equal operations and their operands by component. `None` if templates or operand
    /// types differ.
    fn operation(&self, parts: &[Expr; QUAD]) -> Option<(String, Vec<[Expr; QUAD]>)> {
        let call = |part: Expr| match self.pool.node(part) {
            ExprNode::Call { template, operands } => Some((template, operands)),
            _ => None,
        };
        let (template, first) = call(parts[0])?;
        let mut operands: Vec<[Expr; QUAD]> = first.iter().map(|x| [*x; QUAD]).collect();
        for (part, expr) in parts.iter().enumerate() {
            let (other, own) = call(*expr)?;
            if (other, own.len()) != (template, first.len()) {
                return None;
            }
            for (operand, own) in operands.iter_mut().zip(own) {
                operand[part] = *own;
            }
        }
        let is_fit = |operand: &[Expr; QUAD]| {
            let ty = self.pool.ty(operand[0]);
            four(ty).is_some() && operand.iter().all(|part| self.pool.ty(*part) == ty)
        };
        operands
            .iter()
            .all(is_fit)
            .then(|| (template.to_string(), operands))
    }
}

fn is_one(operand: &[Expr; QUAD]) -> bool {
    operand.iter().all(|part| *part == operand[0])
}

/// Returns whether the operand at `place` may be a scalar beside vectors.
fn takes_one(template: &str, place: usize) -> bool {
    ARITHMETIC.contains(&template) || template == SELECT && place == 2
}

/// Returns the four-component vector type of a scalar type.
fn four(ty: WgslType) -> Option<WgslType> {
    match ty {
        WgslType::F32 => Some(WgslType::F32x4),
        WgslType::Bool => Some(WgslType::Boolx4),
        _ => None,
    }
}

/// Returns the template for vectors, and whether it calls a function of the shader library. `None` if there is none.
fn widened(template: &str) -> Option<(String, bool)> {
    if ARITHMETIC.contains(&template) || ALIKE.contains(&template) {
        return Some((template.to_string(), false));
    }
    let (function, operands) = template.split_once('(')?;
    let is_call = ["x)", "x, y)", "x, y, z)"].contains(&operands);
    let function = is_call.then(|| shader::vec4_version(function))??;
    Some((format!("{function}({operands}"), true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::plan::element::quad::part;

    fn template(pool: &ExprPool, expr: Expr) -> &str {
        match pool.node(expr) {
            ExprNode::Call { template, .. } => template,
            _ => "",
        }
    }

    #[test]
    fn what_is_computed_of_whole_vectors_or_by_functions_is_one_vector() {
        let pool = &mut ExprPool::default();
        let quad = pool.variable("quad", WgslType::F32x4);
        let two = pool.literal(WgslType::F32, 2.0);
        let parts = [0, 1, 2, 3].map(|number| part(pool, quad, number, WgslType::F32));
        assert_eq!(vector(pool, parts), quad);
        let doubled = parts.map(|part| pool.call("x * y", WgslType::F32, &[part, two]));
        let expected = pool.call("x * y", WgslType::F32x4, &[quad, two]);
        assert_eq!(vector(pool, doubled), expected);
        let [a, b, c, d] = parts;
        let turned = [d, c, b, a].map(|part| pool.call("erf_of(x)", WgslType::F32, &[part]));
        let expected = vector(pool, [d, c, b, a]);
        let expected = pool.call("erf_of_four(x)", WgslType::F32x4, &[expected]);
        assert_eq!(vector(pool, turned), expected);
    }

    #[test]
    fn what_other_vectors_may_share_stays_by_itself() {
        let pool = &mut ExprPool::default();
        let numbers = ["a", "b", "c", "d"].map(|name| pool.variable(name, WgslType::F32));
        let doubled = numbers.map(|x| pool.call("x + y", WgslType::F32, &[x, x]));
        let found = vector(pool, doubled);
        assert_eq!(template(pool, found), "vec4(x, y, z, w)");
        assert_eq!(pool.operands(found), doubled);
        // One component is a different operation.
        let quad = pool.variable("quad", WgslType::F32x4);
        let mut parts = [0, 1, 2, 3].map(|number| part(pool, quad, number, WgslType::F32));
        parts = parts.map(|part| pool.call("-x", WgslType::F32, &[part]));
        parts[3] = numbers[3];
        let found = vector(pool, parts);
        assert_eq!(template(pool, found), "vec4(x, y, z, w)");
    }
}
