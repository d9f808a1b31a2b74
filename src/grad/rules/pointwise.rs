//! Gradients of pointwise primitives, by the formulas in the tables of scalar functions.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::error::{Error, Result};
use crate::ir::{Argument, Value};
use crate::op::{BinaryFunction, Derivative, UnaryFunction};
use crate::scalar::Scalar;

/// A part of a formula.
#[derive(Clone, Copy)]
enum Term<'g> {
    Number(f64),
    Value(Value<'g>),
}

pub(super) fn unary<'g>(
    function: UnaryFunction,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let formula = function.derivative()?.ok_or_else(|| undefined("it"))?;
    Ok(vec![product(node, &formula)?])
}

pub(super) fn binary<'g>(
    function: BinaryFunction,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let of = |operand: usize| {
        if !node.wants(operand) {
            return Ok(None);
        }
        if let Some(number) = bound(function, node, operand) {
            return within_bound(function, node.operand(operand)?, number, node.gradient(0)?);
        }
        let formula = function.derivative(operand)?;
        let which = ["its first operand", "its second operand"];
        let formula = formula.ok_or_else(|| undefined(which.get(operand).unwrap_or(&"it")))?;
        product(node, &formula)
    };
    Ok(vec![of(0)?, of(1)?])
}

/// The number that bounds an operand of a maximum or minimum.
fn bound(function: BinaryFunction, node: &NodeGradient, operand: usize) -> Option<Scalar> {
    let is_bounded = matches!(function, BinaryFunction::Maximum | BinaryFunction::Minimum);
    match node.node.arguments.get(1 - operand.min(1)) {
        Some(Argument::Number(number)) if is_bounded => Some(*number),
        _ => None,
    }
}

/// A bound is that of `torch.clamp`: an operand that equals it has the gradient. (Two equal tensors share it.)
fn within_bound<'g>(
    function: BinaryFunction,
    x: Value<'g>,
    bound: Scalar,
    gradient: Value<'g>,
) -> Result<Option<Value<'g>>> {
    let is_beyond = match function {
        BinaryFunction::Maximum => x.lt(bound),
        _ => x.gt(bound),
    };
    Ok(Some(is_beyond.where_(0.0, gradient)))
}

fn undefined(operand: &str) -> Error {
    Error::unsupported(format!(
        "PyTorch has no derivative with respect to {operand}"
    ))
    .help("detach the operand")
}

/// Gradients pass to the operand that was selected.
pub(super) fn select<'g>(node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let (condition, gradient) = (node.operand(0)?, node.gradient(0)?);
    let chosen = node.wants(1).then(|| condition.where_(gradient, 0.0));
    let other = node.wants(2).then(|| condition.where_(0.0, gradient));
    Ok(vec![None, chosen, other])
}

pub(super) fn cast<'g>(node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let dtype = node.operand(0)?.dtype();
    Ok(vec![Some(node.gradient(0)?.to(dtype))])
}

/// The gradient of the result times the value of a formula; `None` if the formula is zero.
fn product<'g>(node: &NodeGradient<'_, 'g>, formula: &Derivative) -> Result<Option<Value<'g>>> {
    let gradient = Term::Value(node.gradient(0)?);
    let factor = |formula: &Derivative| evaluate(node, formula);
    let product = match formula {
        Derivative::Number(0.0) => return Ok(None),
        // The quotient is rounded once, as in PyTorch.
        Derivative::Binary(BinaryFunction::Div, parts) => {
            let [numerator, denominator] = &**parts;
            let product = gradient.times(factor(numerator)?)?;
            product.combine(BinaryFunction::Div, factor(denominator)?)
        }
        formula => gradient.times(factor(formula)?),
    };
    let product = product?.value(node)?;
    Ok(Some(match formula {
        // The derivative may be infinite where the value is not selected.
        formula if node.is_selected_from && !matches!(formula, Derivative::Number(_)) => {
            node.gradient(0)?.eq(0.0).where_(0.0, product)
        }
        _ => product,
    }))
}

/// The value of a formula for the operands and the result of a node.
fn evaluate<'g>(node: &NodeGradient<'_, 'g>, formula: &Derivative) -> Result<Term<'g>> {
    Ok(match formula {
        Derivative::Number(number) => Term::Number(*number),
        Derivative::Result => Term::Value(node.result(0)?),
        Derivative::Operand(index) => operand(node, *index)?,
        Derivative::Unary(UnaryFunction::Neg, x) => match evaluate(node, x)? {
            Term::Number(number) => Term::Number(-number),
            Term::Value(value) => Term::Value(-value),
        },
        Derivative::Unary(function, x) => {
            Term::Value(evaluate(node, x)?.value(node)?.function(*function))
        }
        Derivative::Binary(function, parts) => {
            let [x, y] = &**parts;
            evaluate(node, x)?.combine_in(node, *function, evaluate(node, y)?)?
        }
        Derivative::Select(parts) => {
            let [condition, x, y] = &**parts;
            let condition = evaluate(node, condition)?.value(node)?;
            let [x, y] = [evaluate(node, x)?, evaluate(node, y)?];
            let (x, y) = (x.value(node)?, y.value(node)?);
            Term::Value(condition.where_(x, y))
        }
    })
}

/// An operand as a part of a formula.
fn operand<'g>(node: &NodeGradient<'_, 'g>, index: usize) -> Result<Term<'g>> {
    Ok(match node.node.arguments.get(index) {
        Some(Argument::Number(number)) => Term::Number(number.to_f64()),
        Some(Argument::Size(size)) => {
            let dtype = node.result(0)?.dtype();
            Term::Value(node.builder.full(dtype, [], size))
        }
        _ => Term::Value(node.operand(index)?),
    })
}

impl<'g> Term<'g> {
    /// The term as a value; a number becomes a scalar of the result's element type.
    fn value(self, node: &NodeGradient<'_, 'g>) -> Result<Value<'g>> {
        Ok(match self {
            Term::Value(value) => value,
            Term::Number(number) => node.builder.full(node.result(0)?.dtype(), [], number),
        })
    }

    fn times(self, other: Term<'g>) -> Result<Term<'g>> {
        match (self, other) {
            (product, Term::Number(1.0)) => Ok(product),
            (Term::Value(value), Term::Number(-1.0)) => Ok(Term::Value(-value)),
            (product, other) => product.combine(BinaryFunction::Mul, other),
        }
    }

    /// Applies a function, of which one operand is a value.
    fn combine(self, function: BinaryFunction, other: Term<'g>) -> Result<Term<'g>> {
        Ok(Term::Value(match (self, other) {
            (Term::Value(x), Term::Value(y)) => x.combine(function, y),
            (Term::Value(x), Term::Number(y)) => x.combine(function, y),
            (Term::Number(x), Term::Value(y)) => y.builder().combine(function, x, y),
            (Term::Number(_), Term::Number(_)) => {
                return Err(Error::internal("a formula has no operand"));
            }
        }))
    }

    /// Applies a function; of two numbers one becomes a value.
    fn combine_in(
        self,
        node: &NodeGradient<'_, 'g>,
        function: BinaryFunction,
        other: Term<'g>,
    ) -> Result<Term<'g>> {
        match (self, other) {
            (Term::Number(_), Term::Number(_)) => {
                Term::Value(self.value(node)?).combine(function, other)
            }
            _ => self.combine(function, other),
        }
    }
}
