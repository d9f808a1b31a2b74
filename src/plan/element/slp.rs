//! Superword-level parallelism: four numbers that are computed by equal expressions become one vec4 expression.
//!
//! The source gets shorter. Mesa's rasteriser also executes a vector operation component by component: while a
//! processor waits for one component's previous result, it computes the other three.

use std::collections::HashMap;

use super::vec4::{VEC4_LEN, source_vector};
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::kernel::shader;

/// Templates in which each operand may be a vector or a scalar.
const ARITHMETIC: &[&str] = &["x + y", "x - y", "x * y", "x / y", "-x"];
/// A select, whose third operand is one condition for all components or one for each.
const SELECT: &str = "select(x, y, z)";
/// Templates that compute each component of vector operands as they compute scalars.
const ELEMENTWISE: &[&str] = &[
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

/// Builds the vector of four numbers or conditions, with vector operations where that saves work.
pub fn vector(pool: &mut ExprPool, parts: [Expr; VEC4_LEN]) -> Expr {
    SlpVectorizer {
        pool,
        vectors: HashMap::new(),
    }
    .vector(parts)
    .expr
}

/// Vectorises expressions, and remembers the vectors that it has built.
struct SlpVectorizer<'p> {
    pool: &'p mut ExprPool,
    vectors: HashMap<[Expr; VEC4_LEN], VectorExpr>,
}

/// Four components as a vector.
#[derive(Clone, Copy)]
struct VectorExpr {
    expr: Expr,
    /// True if the vector takes less work than four scalars: it is a vector already, or is computed from one or by a
    /// library function. An operation on gathered scalars saves nothing: further vectors may have some of the same
    /// components, as the windows of neighbouring positions do, and would compute them again.
    saves_work: bool,
}

impl SlpVectorizer<'_> {
    /// Returns the vector of four components.
    fn vector(&mut self, components: [Expr; VEC4_LEN]) -> VectorExpr {
        if let Some(known) = self.vectors.get(&components) {
            return *known;
        }
        let vector = match source_vector(self.pool, &components) {
            Some(expr) => Some(VectorExpr {
                expr,
                saves_work: true,
            }),
            None => self
                .vectorized_operation(&components)
                .filter(|vector| vector.saves_work),
        };
        let vector = vector.unwrap_or_else(|| self.gather(&components));
        self.vectors.insert(components, vector);
        vector
    }

    /// Builds a vector from four scalars.
    fn gather(&mut self, components: &[Expr; VEC4_LEN]) -> VectorExpr {
        let ty = vec4_of(self.pool.ty(components[0])).unwrap_or(WgslType::F32x4);
        let expr = match (is_splat(components), self.pool.as_literal(components[0])) {
            (true, Some(literal)) => self.pool.literal(ty, literal),
            (true, None) => self.pool.call("vec4(x)", ty, &components[..1]),
            (false, _) => self.pool.call("vec4(x, y, z, w)", ty, components),
        };
        VectorExpr {
            expr,
            saves_work: false,
        }
    }

    /// Vectorises four equal operations. `None` if they are not equal.
    fn vectorized_operation(&mut self, components: &[Expr; VEC4_LEN]) -> Option<VectorExpr> {
        let ty = vec4_of(self.pool.ty(components[0]))?;
        let (template, operands) = self.common_operation(components)?;
        let (template, is_function) = vector_template(&template)?;
        let operands = operands.into_iter().enumerate();
        let operands: Vec<VectorExpr> = operands
            .map(|(operand_index, operand)| {
                match takes_scalar(&template, operand_index) && is_splat(&operand) {
                    true => VectorExpr {
                        expr: operand[0],
                        saves_work: false,
                    },
                    false => self.vector(operand),
                }
            })
            .collect();
        let saves_work = is_function || operands.iter().any(|operand| operand.saves_work);
        let operands: Vec<Expr> = operands.iter().map(|operand| operand.expr).collect();
        let expr = self.pool.call(template, ty, &operands);
        Some(VectorExpr { expr, saves_work })
    }

    /// Returns the template of four equal operations and their operands by component. `None` if templates or operand
    /// types differ.
    fn common_operation(
        &self,
        components: &[Expr; VEC4_LEN],
    ) -> Option<(String, Vec<[Expr; VEC4_LEN]>)> {
        let call = |expr: Expr| match self.pool.node(expr) {
            ExprNode::Call { template, operands } => Some((template, operands)),
            _ => None,
        };
        let (template, first) = call(components[0])?;
        let mut operands: Vec<[Expr; VEC4_LEN]> = first.iter().map(|x| [*x; VEC4_LEN]).collect();
        for (component, expr) in components.iter().enumerate() {
            let (other_template, other_operands) = call(*expr)?;
            if (other_template, other_operands.len()) != (template, first.len()) {
                return None;
            }
            for (operand, other_operand) in operands.iter_mut().zip(other_operands) {
                operand[component] = *other_operand;
            }
        }
        let has_vector_type = |operand: &[Expr; VEC4_LEN]| {
            let ty = self.pool.ty(operand[0]);
            vec4_of(ty).is_some()
                && operand
                    .iter()
                    .all(|component| self.pool.ty(*component) == ty)
        };
        operands
            .iter()
            .all(has_vector_type)
            .then(|| (template.to_string(), operands))
    }
}

/// Returns whether all components are equal.
fn is_splat(operand: &[Expr; VEC4_LEN]) -> bool {
    operand.iter().all(|component| *component == operand[0])
}

/// Returns whether the operand at an index may be a scalar if others are vectors.
fn takes_scalar(template: &str, operand_index: usize) -> bool {
    ARITHMETIC.contains(&template) || template == SELECT && operand_index == 2
}

/// Returns the four-component vector type of a scalar type.
fn vec4_of(ty: WgslType) -> Option<WgslType> {
    match ty {
        WgslType::F32 => Some(WgslType::F32x4),
        WgslType::Bool => Some(WgslType::Boolx4),
        _ => None,
    }
}

/// Returns the template for vectors, and whether it calls a function of the shader library. `None` if there is none.
fn vector_template(template: &str) -> Option<(String, bool)> {
    if ARITHMETIC.contains(&template) || ELEMENTWISE.contains(&template) {
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
    use crate::plan::element::vec4::component;

    fn template(pool: &ExprPool, expr: Expr) -> &str {
        match pool.node(expr) {
            ExprNode::Call { template, .. } => template,
            _ => "",
        }
    }

    #[test]
    fn operations_on_whole_vectors_and_library_functions_become_one_vector() {
        let pool = &mut ExprPool::default();
        let quad = pool.variable("quad", WgslType::F32x4);
        let two = pool.literal(WgslType::F32, 2.0);
        let parts = [0, 1, 2, 3].map(|number| component(pool, quad, number, WgslType::F32));
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
    fn components_that_other_vectors_may_share_stay_scalar() {
        let pool = &mut ExprPool::default();
        let numbers = ["a", "b", "c", "d"].map(|name| pool.variable(name, WgslType::F32));
        let doubled = numbers.map(|x| pool.call("x + y", WgslType::F32, &[x, x]));
        let found = vector(pool, doubled);
        assert_eq!(template(pool, found), "vec4(x, y, z, w)");
        assert_eq!(pool.operands(found), doubled);
        // One component is a different operation.
        let quad = pool.variable("quad", WgslType::F32x4);
        let mut parts = [0, 1, 2, 3].map(|number| component(pool, quad, number, WgslType::F32));
        parts = parts.map(|part| pool.call("-x", WgslType::F32, &[part]));
        parts[3] = numbers[3];
        let found = vector(pool, parts);
        assert_eq!(template(pool, found), "vec4(x, y, z, w)");
    }
}
